// text.h - text on its way to the model, with one flag a byte: did it come from a trusted span?
//
// Owner: one encode call. Running out of memory sets `failed`; the caller asks once at the end (tokenizer_text_check).
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

struct tokenizer_text {
    char *data;
    uint8_t *trust;  // 1: trusted
    size_t len, cap;
    bool failed;
};

// Bytes of text with the flags they bring, or (trust NULL) all with the flag `all`.
void tokenizer_text_add(struct tokenizer_text *t, const char *p, size_t n, const uint8_t *trust, bool all);
void tokenizer_text_swap(struct tokenizer_text *a, struct tokenizer_text *b);
void tokenizer_text_done(struct tokenizer_text *t);
MUST_CHECK err_code tokenizer_text_check(const struct tokenizer_text *t, err *e);

// Whether all n flags are set.
bool tokenizer_text_trusted(const uint8_t *trust, size_t n);
