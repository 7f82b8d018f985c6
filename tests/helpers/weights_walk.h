// weights_walk.h - touches everything an open model offers: each tensor's first and last byte, each key by each getter.
// A sanitizer then tells whether something points outside the file. Used by tests and fuzzers.
#pragma once

#include <assert.h>
#include <string.h>

#include "engine/weights/store.h"

static inline unsigned walk_bytes(const void *p, size_t n)
{
    const unsigned char *b = p;
    return n ? (unsigned)b[0] + b[n - 1] : 0;
}

static inline unsigned walk_key(const struct weights *w, const char *key)
{
    int64_t i;
    double d;
    bool b;
    const char *text;
    size_t n;
    unsigned sum = 0;
    sum += meta_int(w, key, &i) + meta_float(w, key, &d) + meta_bool(w, key, &b);
    if (meta_string(w, key, &text, &n))
        sum += walk_bytes(text, n);
    int64_t len = meta_array_length(w, key);
    for (int64_t k = -1; k <= len; k++) {
        sum += meta_array_int(w, key, k, &i) + meta_array_float(w, key, k, &d);
        if (meta_array_string(w, key, k, &text, &n))
            sum += walk_bytes(text, n);
    }
    return sum;
}

static inline unsigned weights_walk(const struct weights *w)
{
    unsigned sum = (unsigned)strlen(weights_arch(w));
    for (size_t i = 0; i < weights_count(w); i++) {
        const struct tensor *t = weights_at(w, i);
        assert(weights_find(w, t->name) == t);
        size_t bytes, cols = t->ndim ? (size_t)t->shape[t->ndim - 1] : 1, rows = 1;
        for (int k = 0; k < t->ndim - 1; k++)
            rows *= (size_t)t->shape[k];
        assert(t->packed || t->parts || (quant_bytes(t->type, rows, cols, &bytes) && bytes == t->bytes));
        sum += walk_bytes(t->data, t->bytes);
    }
    for (size_t i = 0; i < w->directory.count; i++)
        sum += walk_bytes(w->directory.all[i].data, w->directory.all[i].bytes);
    for (size_t i = 0; i < w->meta.count; i++)
        sum += walk_key(w, w->meta.values[i].key);
    return sum;
}

// Any bytes as a file of weights: refused with a text, or all of it can be touched.
static inline void weights_try(const char *name, const uint8_t *data, size_t size)
{
    struct weights *w = NULL;
    err e = {0};
    if (weights_open_memory(name, data, size, &w, &e)) {
        assert(!w && e.code && e.text[0]);
        return;
    }
    volatile unsigned sum = weights_walk(w);
    (void)sum;
    weights_close(w);
}
