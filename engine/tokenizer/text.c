// text.c - the growing text with trust flags. One encode call owns it; nothing here is shared between threads.

#include "engine/tokenizer/text.h"

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"

static bool reserve(struct tokenizer_text *t, size_t n)
{
    size_t need;
    if (t->failed || !size_add(t->len, n, &need) || need > SIZE_MAX / 4) {
        t->failed = true;
        return false;
    }
    if (need <= t->cap)
        return true;
    size_t cap = need + need / 2 + 64;
    char *data = realloc(t->data, cap);
    if (data)
        t->data = data;
    uint8_t *trust = realloc(t->trust, cap);
    if (trust)
        t->trust = trust;
    if (!data || !trust) {
        t->failed = true;
        return false;
    }
    t->cap = cap;
    return true;
}

void tokenizer_text_add(struct tokenizer_text *t, const char *p, size_t n, const uint8_t *trust, bool all)
{
    if (n == 0 || !reserve(t, n))
        return;
    memcpy(t->data + t->len, p, n);
    if (trust)
        memcpy(t->trust + t->len, trust, n);
    else
        memset(t->trust + t->len, all, n);
    t->len += n;
}

void tokenizer_text_swap(struct tokenizer_text *a, struct tokenizer_text *b)
{
    struct tokenizer_text c = *a;
    *a = *b;
    *b = c;
}

void tokenizer_text_done(struct tokenizer_text *t)
{
    free(t->data);
    free(t->trust);
    *t = (struct tokenizer_text){0};
}

err_code tokenizer_text_check(const struct tokenizer_text *t, err *e)
{
    return t->failed ? err_set(e, ERR_MEMORY, "no memory for %zu bytes of text to tokenise", t->len) : ERR_OK;
}

bool tokenizer_text_trusted(const uint8_t *trust, size_t n)
{
    return n == 0 || !memchr(trust, 0, n);
}
