// fake_model.h - a model without weights whose answers depend on every row of its KV pages.
//
// A position's rows are hashes of the row before it and its token; logits are a hash over all rows of the prefix, read
// back from the pages. A wrong page, a stale or missing row, a bad fork or copy gives other tokens. fake_answer computes
// the same with plain arrays and no pages. One with a window reads the last positions only; a recurrent one reads a state of
// the sequence as well, which depends on every token. Logits that nobody asked for (batch.out_groups) are no numbers, or huge.
//
// It has two kinds of work as well. TASK_EMBED: each input takes as many steps as it has bytes, in a scratch all share,
// and gives a vector of FAKE_VALUES. TASK_SPEAK: every word is a round of ids after a common stem; the tokens leave as
// audio, FAKE_WINDOW at a time, through a step of their own.
#pragma once

#include <stdint.h>

#include "engine/engine.h"
#include "engine/model.h"

enum { FAKE_VOCAB = 61, FAKE_VALUES = 5, FAKE_WINDOW = 3, FAKE_STEM = 70, FAKE_ROUND_TOKENS = 400 };

struct fake_kind {
    int window;      // 0: none
    bool recurrent;
    int vocab;       // 0: FAKE_VOCAB, and fake_answer knows its answers
};

struct model *fake_model(int context);
struct model *fake_model_new(int context, struct fake_kind kind);
int fake_works_alive(void);  // works made and not freed
void fake_model_set_delay(struct model *m, int64_t ns_per_row);  // lane 0 sleeps
// A clock of the test's own: steps of models with a cost, and of works, move it on by what they cost. For tests/helpers/sim.h.
struct fake_cost {
    double fixed_s, row_s, head_s, key_s;  // of a step; a row; a row of logits; a key that a row reads
    double work_s;                         // a step of TASK_EMBED
};
void fake_model_set_cost(struct model *m, const struct fake_cost *c);
int64_t fake_now_ns(void);
void fake_advance(double seconds);
void fake_model_set_nan(struct model *m, int position);  // logits of this position are NAN

// The tokens choice `choice` gets; returns how many (max_out).
int fake_answer(const int32_t *prompt, int nprompt, const struct sampling *sampling, int choice, int max_out,
                int32_t *ret_ids);
int fake_answer_of(struct fake_kind kind, const int32_t *prompt, int nprompt, const struct sampling *sampling, int choice,
                   int max_out, int32_t *ret_ids);
// Raw logits after the first n tokens.
void fake_logits(const int32_t *ids, int n, float *ret_logits);

// The vector of a text; the audio of a text spoken, n values at most. Returns how many.
void fake_vector(const char *text, float *ret_values);
int fake_audio(const char *text, const struct sampling *sampling, float *ret_values, int n);
