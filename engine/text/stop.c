// stop.c - stop strings by Knuth-Morris-Pratt, one matcher a string, all fed byte by byte.
//
// The match that ends first wins; of several that end at the same byte the longest (so that how the text was cut into
// pieces cannot matter). Held back is the longest suffix that begins a stop string. Owned by one choice.
#include "engine/text/stop.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"

struct pattern {
    char *s;
    size_t len;
    uint32_t *fail;  // fail[i]: longest proper prefix that ends the first i bytes
};

// What several matchers share.
struct patterns {
    int users;
    size_t n;
    struct pattern list[];
};

struct stop {
    struct patterns *p;
    struct buf held;
    bool include;
    uint32_t at[];  // [p->n] bytes matched so far
};

static void pattern_init(struct pattern *p, const char *s, size_t len)
{
    p->len = len;
    p->s = mem_strndup(s, p->len);
    p->fail = mem_new((p->len + 1) * sizeof *p->fail);
    for (size_t i = 1, k = 0; i < p->len; i++) {
        while (k > 0 && s[i] != s[k])
            k = p->fail[k];
        k += s[i] == s[k];
        p->fail[i + 1] = (uint32_t)k;
    }
}

static struct stop *matcher(struct patterns *p, bool include)
{
    struct stop *s = mem_new(sizeof *s + p->n * sizeof *s->at);
    s->p = p;
    s->include = include;
    buf_init(&s->held, SIZE_MAX);
    p->users++;
    return s;
}

struct stop *stop_new(const char *const *strings, size_t n, bool include)
{
    struct patterns *p = mem_new(sizeof *p + n * sizeof *p->list);
    for (size_t i = 0; i < n; i++) {
        size_t len = strings[i] ? strlen(strings[i]) : 0;
        if (len > 0 && len < UINT32_MAX)  // none so long fits into an answer
            pattern_init(&p->list[p->n++], strings[i], len);
    }
    if (p->n > 0)
        return matcher(p, include);
    free(p);
    return NULL;
}

struct stop *stop_share(const struct stop *s)
{
    return s ? matcher(s->p, s->include) : NULL;
}

void stop_free(struct stop *s)
{
    if (!s)
        return;
    struct patterns *p = --s->p->users ? NULL : s->p;
    for (size_t i = 0; p && i < p->n; i++) {
        free(p->list[i].s);
        free(p->list[i].fail);
    }
    free(p);
    buf_done(&s->held);
    free(s);
}

static bool pattern_step(const struct pattern *p, uint32_t *at, char c)
{
    uint32_t k = *at;
    while (k > 0 && p->s[k] != c)
        k = p->fail[k];
    k += p->s[k] == c;
    bool whole = k == p->len;
    *at = whole ? p->fail[k] : k;
    return whole;
}

static void release(struct stop *s, size_t n, struct buf *out)
{
    if (n == 0)
        return;
    buf_add(out, s->held.data, n);
    s->held.len -= n;
    memmove(s->held.data, s->held.data + n, s->held.len + 1);
}

bool stop_feed(struct stop *s, const char *text, size_t len, struct buf *out)
{
    if (!s) {
        buf_add(out, text, len);
        return false;
    }
    for (size_t i = 0; i < len; i++) {
        size_t matched = 0;
        for (size_t k = 0; k < s->p->n; k++)
            if (pattern_step(&s->p->list[k], &s->at[k], text[i]) && s->p->list[k].len > matched)
                matched = s->p->list[k].len;
        if (matched == 0)
            continue;
        buf_add(&s->held, text, i + 1);
        release(s, s->held.len - (s->include ? 0 : matched), out);
        buf_clear(&s->held);
        return true;
    }
    buf_add(&s->held, text, len);
    size_t keep = 0;
    for (size_t k = 0; k < s->p->n; k++)
        if (s->at[k] > keep)
            keep = s->at[k];
    release(s, s->held.len - keep, out);
    return false;
}

void stop_flush(struct stop *s, struct buf *out)
{
    if (!s)
        return;
    release(s, s->held.len, out);
    memset(s->at, 0, s->p->n * sizeof *s->at);
}
