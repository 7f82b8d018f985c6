// weights_files.h - a file of weights in memory, as damage may leave it: cut at every byte, with every bit turned. For tests.
#pragma once

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/buf.h"
#include "tests/helpers/weights_walk.h"

// Opens a copy of exactly n bytes, walks it when it opens, and closes it. e may be NULL.
static inline err_code weights_files_try(const char *name, const void *data, size_t n, err *e)
{
    void *copy = malloc(n ? n : 1);
    memcpy(copy, data, n);
    struct weights *w = NULL;
    err_code rc = weights_open_memory(name, copy, n, &w, e);
    if (rc)
        assert_null(w);
    else
        weights_walk(w);
    weights_close(w);
    free(copy);
    return rc;
}

// Whole it opens; cut anywhere it is refused with its name, never read past its end.
static inline void weights_files_cut(const char *name, const struct buf *b)
{
    for (size_t n = 0; n < b->len; n++) {
        err e = {0};
        if (weights_files_try(name, b->data, n, &e) != ERR_CORRUPT || !strstr(e.text, name))
            fail_msg("cut at byte %zu of %zu: %s", n, b->len, e.text);
    }
    assert_int_equal(weights_files_try(name, b->data, b->len, NULL), ERR_OK);
}

// Refused or read, without a crash.
static inline void weights_files_turn_bits(const char *name, struct buf *b)
{
    for (size_t i = 0; i < b->len; i++)
        for (int bit = 0; bit < 8; bit++) {
            b->data[i] = (char)(b->data[i] ^ 1 << bit);
            (void)weights_files_try(name, b->data, b->len, NULL);
            b->data[i] = (char)(b->data[i] ^ 1 << bit);
        }
}
