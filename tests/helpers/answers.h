// answers.h - what an answer's parser gives out, as one text: "{R:reasoning}content{name:arguments}", "...}" behind arguments
// that did not end. For tests of engine/text/answer.h.
#pragma once

#include <stdbool.h>
#include <stddef.h>

struct answer_style;
struct json_t;

// The caller frees it. Parts are checked as they come: names first, calls in order, places that grow.
char *answers_pieces(const struct answer_style *s, struct json_t *tools, bool thinking, const char *const *pieces, size_t n);
// The text at once, byte by byte, and in random pieces, each time with this result.
void answers_check(const struct answer_style *s, struct json_t *tools, bool thinking, const char *text, const char *want);
void answers_check_bytes(const struct answer_style *s, struct json_t *tools, bool thinking, const char *text, size_t len,
                         const char *want);
