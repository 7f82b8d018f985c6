// structured.h - the fields that say which form an answer must have: OpenAI's response_format, vLLM's structured_outputs and
// guided_*, llama-server's grammar and json_schema.
#pragma once

#include "engine/engine.h"
#include "server/api/fields.h"

struct arena;

// At most one of them; what it says goes to *ret_grammar, whose texts lie in the arena. Only the shape of the fields is
// checked here: the grammar itself is compiled by the engine, which answers with an error naming the field. A choice is made by
// the probabilities of whole texts at temperature 0, which was read before, and where structured_outputs.probabilities asks for them.
void api_structured_read(struct fields *f, struct arena *a, struct generate *g);
// The same from the value of text.format (responses).
void api_structured_flat(struct fields *f, struct arena *a, const json_t *format, struct grammar_request *ret_grammar);
// A copy whose texts lie in another arena.
struct grammar_request api_structured_copy(const struct grammar_request *g, struct arena *a);
