// fixture.h - what the tokenizer tests share: opening a tokenizer from a fixture, encoding and decoding in one call.
#pragma once

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/tokenizer/model.h"

static inline json_t *fixture_load(const char *name)
{
    char path[256];
    json_error_t why;
    snprintf(path, sizeof path, "tests/fixtures/tokenizer/%s.json", name);
    json_t *j = json_load_file(path, JSON_ALLOW_NUL, &why);
    if (!j)
        fail_msg("%s: %s", path, why.text);
    return j;
}

static inline struct tokenizer *fixture_open(const json_t *fixture)
{
    const json_t *files = json_object_get(fixture, "files");
    struct tokenizer_json_files f = {.tokenizer = json_object_get(files, "tokenizer"),
                                     .config = json_object_get(files, "config")};
    struct tokenizer *t = NULL;
    err e = {0};
    if (tokenizer_hf_open(&f, &t, &e))
        fail_msg("%s", e.text);
    return t;
}

// A tokenizer by the name of its fixture.
static inline struct tokenizer *fixture_tokenizer(const char *name)
{
    json_t *j = fixture_load(name);
    struct tokenizer *t = fixture_open(j);
    json_decref(j);
    return t;
}

static inline struct ids fixture_spans(const struct tokenizer *t, const struct text_span *spans, size_t n, bool special)
{
    struct ids ids = {0};
    err e = {0};
    if (tokenizer_encode(t, spans, n, special, &ids, &e))
        fail_msg("%s", e.text);
    return ids;
}

static inline struct ids fixture_encode(const struct tokenizer *t, const char *text, size_t len, bool trusted)
{
    struct text_span span = {text, len, trusted};
    return fixture_spans(t, &span, 1, false);
}

// Ids to text, one token at a time.
static inline char *fixture_decode(const struct tokenizer *t, const int32_t *ids, size_t n, bool skip, size_t *ret_len)
{
    struct detok d;
    struct buf out;
    buf_init(&out, 1 << 24);
    detok_init(&d, t, skip);
    for (size_t i = 0; i < n; i++)
        detok_add(&d, ids[i], &out);
    detok_finish(&d, &out);
    *ret_len = out.len;
    return buf_take(&out);
}
