// chat_ids.h - messages all the way to token ids: a model's template and its tokenizer together.
#pragma once

#include "base/err.h"
#include "engine/task.h"
#include "engine/text/template.h"
#include "engine/tokenizer/tokenizer.h"

struct chat;

// p->messages through the template, with the spellings of the tokenizer's BOS and EOS. Any thread. Errors as chat_render.
MUST_CHECK err_code chat_ids_render(const struct chat *c, const struct tokenizer *t, const struct prompt *p,
                                    struct rendered *ret_rendered, err *e);
// And encoded, appended to *ids. A model that wants BOS gets exactly one, whether or not its template prints it.
MUST_CHECK err_code chat_ids_encode(const struct chat *c, const struct tokenizer *t, const struct prompt *p, struct ids *ids,
                                    err *e);
// How many tokens at the end of what chat_ids_render made of p the next turn will not have there: what the template opens an
// answer with and does not write in front of one that is history (thoughts). 0: none, or not known.
size_t chat_ids_passing(const struct chat *c, const struct tokenizer *t, const struct prompt *p, const struct rendered *r);
// What chat_ids_render made.
MUST_CHECK err_code chat_ids_encode_rendered(const struct tokenizer *t, const struct rendered *r, struct ids *ids, err *e);
