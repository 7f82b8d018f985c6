// decide.h - typed decisions: a question about a state is put to the language model as a prompt, and the state after its
// last token is read as probabilities of the options. Nothing is generated (Jev; the template is "bare-v1", bare.h).
//
//     decide_find(m, &e);                  // before the family opens: the bundle, and the adapter it wants
//     decide_open(m, &m->decider, &e);     // after: ERR_NOT_FOUND: no bundle and none was asked for
//     decide_work(m->decider)              // TASK_DECIDE: the common part is the stem, each question a round (work.h)
//     decide_close(m->decider);
//
// Two ways to read an answer. A trained bundle (bundle.h): steps have the adapter on, a score is a row of the bundle's head
// times the last hidden state, then bias and the kind's temperature. "labels": any model's own next-token logits of
// the tokens that say an option; no adapter, so the state is shared with whatever else the model has cached. A model with a
// chat template is asked in a message, and read at the first token of its answer.
//
// What callers write never becomes a control token: the whole prompt is one untrusted text ("<|im_end|>" in a state is
// its ten characters). The reference lets such spellings become the tokens; for all other inputs the ids are the same.
//
// Immutable after open.
#pragma once

#include "base/err.h"
#include "engine/engine.h"
#include "engine/sched/work.h"

struct model;
struct decider;

// Looks for the bundle options.decision asks for, or one in the model's folder, and sets options.adapter to its LoRA, unless
// the opener chose another: then the model does not decide. m has
// weights and options.
MUST_CHECK err_code decide_find(struct model *m, err *e);
// m has its family, tokenizer and options. Errors name file, what was found and what was expected.
MUST_CHECK err_code decide_open(struct model *m, struct decider **ret_decider, err *e);
void decide_close(struct decider *d);
void decide_describe(const struct decider *d, struct model_info *ret_info);
const struct work_ops *decide_work(const struct decider *d);
