// session.h - a task on its way through the engine: its state, its choices, the text that leaves, and its one end.
//
//   submit ──▶ PREP ──▶ QUEUED ──admitted──▶ PREFILL ──prompt computed──▶ DECODE
//                          ▲                    │  ▲                         │
//                          │                    ▼  └──admitted───┐           │ memory needed
//                          └─ (never back)   PREEMPTED ◀─────────┴───────────┘
//   QUEUED ──admitted──▶ WORK: a task of steps only (work.h). With rounds as above, DECODE ──next round──▶ PREFILL, and
//   WORK after the last one
//   every state ── session_end ──▶ DONE, once
//
// PREP belongs to a prep thread, all later states to the scheduler; a pointer is handed over through the scheduler's
// inbox. A preempted session keeps what it knows (tokens, sampler, text) and only loses its pages: when it is admitted
// again its known tokens are computed again as a prompt, which gives the same bits, and it goes on.
//
// A choice's known tokens are ids[0 .. nids); the first seq.kv.len of them are computed. One token known and not computed
// is the ordinary state of decoding, or a run of them that are no choice; more is prefill. Usage counts every token of an
// answer, the one that ends a turn included.
//
// A work with rounds has two choices: 0 is the stem, which is computed and never sampled from, 1 the round (round.h). With a
// score choice 0 is the prompt and the others are lanes (score_lanes.h), however many answers there are.
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "engine/task.h"
#include "engine/grammar/grammar.h"
#include "engine/sched/prefix.h"
#include "engine/sched/session_text.h"
#include "engine/sched/share.h"
#include "engine/sched/slot.h"
#include "engine/sched/work.h"
#include "engine/text/answer.h"
#include "engine/text/sampler.h"
#include "engine/tokenizer/tokenizer.h"

struct bad_words;
struct heads;
struct metrics;
struct model;
struct score;
struct served;

enum session_state {
    SESSION_PREP, SESSION_QUEUED, SESSION_PREFILL, SESSION_DECODE, SESSION_PREEMPTED, SESSION_WORK, SESSION_DONE,
    SESSION_STATES
};

enum {
    SESSION_MAX_LOGPROBS = 64,
    SESSION_RUN = 16,   // most tokens without a choice that are taken at once
    SESSION_DRAFT = 7,  // most that are offered as a draft
};

struct choice {
    int index;
    bool active;             // has a sequence of its own (choices above 0: from the fork on)
    bool done;
    int32_t *ids;
    int nids, cap;
    int limit;               // most positions it computes
    int was;                 // positions it had when it was preempted
    struct prefix_seq seq;
    struct sampler *sampler;
    struct grammar_state *grammar;  // where its text stands in what was asked for; NULL: anything goes
    struct session_text text;
    int run;                 // tokens known and not computed, which the next step computes as one run
    int32_t draft[SESSION_DRAFT];  // tokens that may follow the known ones, computed with them and kept if they are picked
    int ndraft, most_draft;  // most_draft: how many are offered, by how many of the last ones were kept
    int closing;             // how many of the tokens that close the reasoning it was given; -1: they do not close it
    int closed_at;           // tokens it had then
    int64_t last_ns;         // when its last token came
};

struct session {
    struct task *task;
    struct ticket ticket;
    struct slot_table *slots;
    struct session *next;  // in the scheduler's inbox, or among those parked
    enum session_state state;
    bool waiting;          // counts as waiting in the slot table
    struct metrics *metrics;  // the model's; NULL: nobody counts
    int64_t queued_ns, begun_ns, first_ns;  // prepared, first admitted, first token; 0: not yet (timing.h)
    int64_t parked_ns;     // since when it waits for its model
    void (*on_end)(void *arg);  // after everything else; NULL: nobody asks
    void *on_end_arg;
    struct served *owner;  // NULL: its model is not there yet
    const struct model *model;
    struct prefix *prefix;
    int context;

    struct work *work;     // what it does besides generating tokens; NULL: nothing
    bool ready;            // the work has a step to run
    bool finished;         // the work has sent everything
    int round;             // rounds begun
    size_t charged;        // of memory beside the model's, while it runs
    bool reserved;         // it runs in what the model has reserved

    uint64_t arrival;      // order of age
    struct share_entry share;  // whose turn it is
    int preempted;         // how often
    bool planned;          // has rows in the step being made
    int64_t held_ns;       // since when its reader is behind (task.held); 0: it is not
    int64_t blocked_ns;    // since when there is no memory for it to begin; 0: it was not tried
    int led_at, led_still; // while it waits for a page: where its leader was, and for how many plans it has been there
    int passing;           // tokens at the prompt's end that the next turn will not have (chat_ids.h)
    int nprompt, cached;   // tokens of the prompt (with rounds: of the stem)
    int prompt_tokens;     // usage
    int max_out;           // most tokens a choice may get
    int completion_tokens, reasoning_tokens;
    bool cut;              // a choice reached its limit
    bool begun;            // EVENT_START was sent
    bool forked;           // every choice has its tokens
    struct choice *choices;  // [n] once prepared
    int n, ndone;
    err failure;           // set while a step is worked off; ends the session after it

    struct score *score;   // the answers are found by the probabilities of whole texts (score_lanes.h); NULL: token by token

    struct token_logprob *prompt_logprobs;  // [nprompt], with echo and logprobs, or when they are asked for
    int nprompt_logprobs;

    const struct answer_style *style;  // how answers are told apart; NULL: they are content
    struct answer_ask ask;
    int32_t *close;        // tokens of the text that closes the reasoning, when it has a limit
    int nclose;
    struct bad_words *bad_words;  // NULL: none
    int32_t *banned;       // room for what a token may not be
    uint64_t *admitted;    // rounds: room for a mask
};

struct session *session_new(struct task *t, struct ticket ticket, struct slot_table *slots);

// The only place that changes the state; an illegal pair is a bug and aborts.
void session_set_state(struct session *s, enum session_state to);

// Answers it gives: mostly one from each choice.
static inline int session_answers(const struct session *s)
{
    return s->score ? s->task->generate.n : s->n;
}

static inline bool session_has_rounds(const struct session *s)
{
    return s->work && s->work->ops->rounds;
}

// Whether its steps want hidden states and the adapter.
static inline bool session_decides(const struct session *s)
{
    return session_has_rounds(s) && s->work->ops->rounds->decide;
}

static inline struct choice *session_stem(const struct session *s)
{
    return &s->choices[0];
}

static inline struct choice *session_round(const struct session *s)
{
    return &s->choices[1];
}

// Prep: the prompt is known (takes ids), and what the answers must be (NULL: anything). Makes the choices. Style, ask, close and
// bad words come before.
void session_set_prompt(struct session *s, int32_t *ids, int nids, int max_out, struct grammar *g);
// The same for answers that are found by s->score, with so many lanes.
void session_set_scored(struct session *s, int32_t *ids, int nids, int max_out, int lanes);
// Gives one answer: this text of the score, as far as the token limit lets it.
void session_say_scored(struct session *s, int answer, int text);

bool session_wants_prompt_logprobs(const struct session *s);  // and does not have them all
// A choice of its own starts here: no text yet, nothing sampled. Frees nothing.
void session_init_choice(struct session *s, struct choice *c, int index);
void session_add_id(struct choice *c, int32_t id);
// Everything is done: only session_end is left.
bool session_over(const struct session *s);
// Why it must end now: cancelled, deadline passed; ERR_OK: it may go on.
err_code session_must_end(const struct session *s, int64_t now_ns, err *e);

void session_start(struct session *s);  // EVENT_START, and the echoed prompt unless its logprobs are wanted
void session_prompt_progress(struct session *s);  // more of the prompt is computed: says so if that was asked for
// Log-probabilities of the model's own distribution.
void session_take_logprobs(const struct session *s, const float *logits, int32_t id, int k, struct token_logprob *ret);
// logits of the position before prompt token `at`: its log-probability. The first one has none (NAN).
void session_prompt_logits(struct session *s, const float *logits, int at);
void session_prompt_done(struct session *s);  // sends the prompt's logprobs, and the echo with them
// Other choices take over the prompt of choice 0.
void session_fork_choice(struct session *s, struct choice *c);
// session_sample.c. Takes the next token of a choice from its logits, which are changed, and those after it that are no
// choice. Sends text; may end the choice; s->failure on logits that are not numbers.
void session_sample(struct session *s, struct choice *c, float *logits);
// Adds the logits that session_sample reads: behind the known tokens, and behind each of the draft's first `ndraft`.
void session_sample_needs(const struct session *s, const struct choice *c, int ndraft, struct heads *h);
// The tokens that the grammar makes likely to follow, into c->draft. Changes nothing else.
void session_sample_draft(const struct session *s, struct choice *c);
void session_finish_choice(struct session *s, struct choice *c, enum finish finish);

void session_emit(struct session *s, struct event *ev);
// The one end: releases everything, gives the slot back, sends EVENT_END, frees the session and its task. why NULL: ok.
void session_end(struct session *s, const err *why);
