// work.h - what a task computes besides (or instead of) generating tokens: one object per task, run in steps.
//
//     prep thread        ops->prepare(model, task, &work, &nprompt, &e)      tokens, log-mel, plans
//     scheduler thread   ops->begin(work, &e)                                its memory
//                        team_run: ops->step(work, lane)                     one step, on every lane
//                        ops->after(work, session, &e)                       events; what next
//                        ops->free(work)                                     at any time between steps
//
// A step is at most about 100 ms of work, so that tasks interleave and a cancel takes effect after it; what takes longer
// (an encoder, a denoiser) keeps its place in the work object and returns in between, when work_slice says so or
// after a fixed share. Where it was cut, how many lanes ran and what else runs never change the numbers.
//
// Works of one model run side by side, a step of each in turn, at most ops->max_running of them; the others wait. A step
// may use the model's one scratch (scratch_bytes) as long as nothing in it has to survive the step; what must survive
// is the work's own.
//
// Rounds. A work whose task needs a language model (speech tokens, decisions) has `rounds`: the scheduler runs the stem,
// ids[0 .. nstem), once, and then one round after another: a fork of the stem that goes on with the round's ids. Every
// token sampled after them (or, with `hidden`, the last hidden state) goes to the work. Further tokens may come while
// a step of the work waits for its turn: the work keeps them.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "kernels/team.h"

struct model;
struct session;
struct task;
struct sampling;
struct work;

enum work_next {
    WORK_MORE,  // a step is ready
    WORK_WAIT,  // nothing to do before the next token of a round
    WORK_DONE,  // all events were sent
    WORK_FAIL,  // e says why
};

struct work_rounds {
    bool decide;     // hidden state and adapter instead of logits and sampling
    // The next round: its ids after the stem (valid until the round ends), the most tokens it may sample. False: no more.
    bool (*next)(struct work *w, const int32_t **ret_ids, int *ret_nids, int *ret_max_tokens);
    // Before sampling: the tokens that may come, as bits of words that are 0 before; of no others logits need be computed.
    // The same until the next token. NULL: any may.
    void (*admit)(struct work *w, uint64_t *mask);
    // Without admit, before sampling: looks at the logits. NULL: does not.
    void (*look)(struct work *w, const float *logits);
    bool (*token)(struct work *w, int32_t id);  // true: the round ends with this one
    void (*end)(struct work *w);                // the round ended (by token, by its limit); NULL: nobody asks
    // decide: the last position's state after the final norm. Sends events through session_emit.
    err_code (*hidden)(struct work *w, struct session *s, const float *state, err *e);
};

struct work_ops {
    int max_running;  // works of one model at a time
    const struct work_rounds *rounds;  // NULL: none
    // Submitting thread, quick: what the task asks for against what the model can. NULL: nothing to check.
    err_code (*check)(const struct model *m, const struct task *t, err *e);
    // Prep thread. *ret_prompt_tokens: usage.prompt_tokens, when it is known. On failure nothing is left.
    err_code (*prepare)(const struct model *m, const struct task *t, struct work **ret_work, int *ret_prompt_tokens,
                        err *e);
    // Bytes a running work holds beside the scratch at most, as `show` tells; and the scratch of a step.
    size_t (*work_bytes)(const struct model *m);
    size_t (*scratch_bytes)(const struct model *m, int lanes);
    // Any of begin, step and after may be NULL. Without after the work is done when its rounds are.
    err_code (*begin)(struct work *w, err *e);
    void (*step)(struct work *w, struct lane *lane);
    // After begin, after each step and after each token of a round. WORK_DONE before the last round ended is a bug.
    enum work_next (*after)(struct work *w, struct session *s, err *e);
    void (*free)(struct work *w);  // also one that was never begun
};

// Stands first in a family's own struct. What prepare leaves empty here is filled in afterwards: ops, model, task, and
// scratch and lanes before begin.
struct work {
    const struct work_ops *ops;
    const struct model *model;
    const struct task *task;
    void *scratch;                   // scratch_bytes, 64-byte aligned, shared by the model's works
    int lanes;                       // of the team that will run its steps
    int64_t slice_ns;                // when this step should end; see work_slice
    bool slice_over;
    const int32_t *stem;             // rounds: the tokens all rounds begin with, at least one; owned by the family's part
    int nstem;
    const struct sampling *sampling; // rounds that sample
    bool rounds_over;                // set by the scheduler: no round is left
};

// For steps that are a loop of short parts, each ending with a barrier: true when the step has used up its time. Called
// by every lane after the same part; all get the same answer (one more barrier).
bool work_slice(struct work *w, struct lane *lane);
