// bare.h - the prompt of a decision, template "bare-v1": no chat template, no BOS, nothing escaped. A chat model that was not
// trained for it is asked the same in a message, with a line that says how to answer in place of the last.
//
//     [kind] noul          or score, choice
//     [state] ...
//     [question] ...
//     [options]
//     false                true ...; 0 .. 5; A) first option ...
//     [decision]:          and no line feed after it
#pragma once

#include "base/buf.h"
#include "engine/decide/labels.h"
#include "engine/task.h"

enum { BARE_KINDS = 3, BARE_BOOLS = 2, BARE_INTS = 6 };

const char *bare_kind(enum decide_kind k);  // "noul", "score", "choice"
const char *bare_option(enum decide_kind k, int i);  // option i of noul and score
int bare_options(const struct decide_question *q);

void bare_text(const char *state, const struct decide_question *q, const struct labels *labels, struct buf *out);
void bare_message(const char *state, const struct decide_question *q, const struct labels *labels, struct buf *out);
