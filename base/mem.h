// mem.h - allocation and checked sizes.
//
// Two kinds of allocation. mem_new, mem_resize and mem_strdup are for small things of bounded size: when one fails
// the process cannot go on and aborts (no caller could do better). mem_try is for anything whose size comes from a file,
// a client or the number of tokens: it returns NULL and the caller reports ERR_MEMORY. All memory is freed by free().
#pragma once

#include <stdbool.h>
#include <stddef.h>

void *mem_new(size_t bytes);               // zeroed
void *mem_resize(void *p, size_t bytes);   // new bytes are not zeroed
char *mem_strdup(const char *s);
char *mem_strndup(const char *s, size_t n);

void *mem_try(size_t bytes);  // zeroed; NULL when it cannot be had

// Page-aligned zeroed memory for weights, KV and scratch, on huge pages where the kernel has them; NULL on failure.
// Freed by mem_free_pages with the same size.
void *mem_try_pages(size_t bytes);
void mem_free_pages(void *p, size_t bytes);

// a*b and a+b, false on overflow; *ret_size is written only on success.
static inline bool size_mul(size_t a, size_t b, size_t *ret_size)
{
    size_t r;
    if (__builtin_mul_overflow(a, b, &r))
        return false;
    *ret_size = r;
    return true;
}

static inline bool size_add(size_t a, size_t b, size_t *ret_size)
{
    size_t r;
    if (__builtin_add_overflow(a, b, &r))
        return false;
    *ret_size = r;
    return true;
}
