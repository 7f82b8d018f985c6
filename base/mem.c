#include "base/mem.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

static void *checked(void *p, size_t bytes)
{
    if (!p) {
        fprintf(stderr, "oxinferd: out of memory allocating %zu bytes\n", bytes);
        abort();
    }
    return p;
}

void *mem_new(size_t bytes)
{
    return checked(calloc(1, bytes ? bytes : 1), bytes);
}

void *mem_resize(void *p, size_t bytes)
{
    return checked(realloc(p, bytes ? bytes : 1), bytes);
}

char *mem_strndup(const char *s, size_t n)
{
    char *copy = mem_new(n + 1);
    memcpy(copy, s, n);
    return copy;
}

char *mem_strdup(const char *s)
{
    return mem_strndup(s, strlen(s));
}

void *mem_try(size_t bytes)
{
    return calloc(1, bytes ? bytes : 1);
}

// mmap gives 4 KB alignment; huge pages need 2 MB, so map that much more and cut both ends.
void *mem_try_pages(size_t bytes)
{
    const size_t huge = 2u << 20;
    size_t want;
    if (bytes == 0 || !size_add(bytes, 4095, &want))
        return NULL;
    want &= ~(size_t)4095;
    size_t slack = bytes >= huge ? huge : 0, total;
    if (!size_add(want, slack, &total))
        return NULL;
    char *p = mmap(NULL, total, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED)
        return NULL;
    if (!slack)
        return p;
    char *at = (char *)(((uintptr_t)p + huge - 1) & ~(huge - 1));
    if (at > p)
        munmap(p, (size_t)(at - p));
    if (at + want < p + total)
        munmap(at + want, (size_t)(p + total - at) - want);
    madvise(at, want, MADV_HUGEPAGE);
    return at;
}

void mem_free_pages(void *p, size_t bytes)
{
    if (p)
        munmap(p, (bytes + 4095) & ~(size_t)4095);
}
