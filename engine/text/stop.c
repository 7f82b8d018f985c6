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
    size_t len, at;  // at: bytes matched so far
    size_t *fail;    // fail[i]: longest proper prefix that ends the first i bytes
};

struct stop {
    struct buf held;
    bool include;
    size_t n;
    struct pattern patterns[];
};

static void pattern_init(struct pattern *p, const char *s)
{
    p->len = strlen(s);
    p->s = mem_strndup(s, p->len);
    p->fail = mem_new((p->len + 1) * sizeof *p->fail);
    for (size_t i = 1, k = 0; i < p->len; i++) {
        while (k > 0 && s[i] != s[k])
            k = p->fail[k];
        k += s[i] == s[k];
        p->fail[i + 1] = k;
    }
}

struct stop *stop_new(const char *const *strings, size_t n, bool include)
{
    struct stop *s = mem_new(sizeof *s + n * sizeof *s->patterns);
    s->include = include;
    buf_init(&s->held, SIZE_MAX);
    for (size_t i = 0; i < n; i++)
        if (strings[i] && strings[i][0])
            pattern_init(&s->patterns[s->n++], strings[i]);
    if (s->n > 0)
        return s;
    stop_free(s);
    return NULL;
}

void stop_free(struct stop *s)
{
    if (!s)
        return;
    for (size_t i = 0; i < s->n; i++) {
        free(s->patterns[i].s);
        free(s->patterns[i].fail);
    }
    buf_done(&s->held);
    free(s);
}

static bool pattern_step(struct pattern *p, char c)
{
    while (p->at > 0 && p->s[p->at] != c)
        p->at = p->fail[p->at];
    p->at += p->s[p->at] == c;
    if (p->at < p->len)
        return false;
    p->at = p->fail[p->len];
    return true;
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
        for (size_t k = 0; k < s->n; k++)
            if (pattern_step(&s->patterns[k], text[i]) && s->patterns[k].len > matched)
                matched = s->patterns[k].len;
        if (matched == 0)
            continue;
        buf_add(&s->held, text, i + 1);
        release(s, s->held.len - (s->include ? 0 : matched), out);
        buf_clear(&s->held);
        return true;
    }
    buf_add(&s->held, text, len);
    size_t keep = 0;
    for (size_t k = 0; k < s->n; k++)
        if (s->patterns[k].at > keep)
            keep = s->patterns[k].at;
    release(s, s->held.len - keep, out);
    return false;
}

void stop_flush(struct stop *s, struct buf *out)
{
    if (!s)
        return;
    release(s, s->held.len, out);
    for (size_t k = 0; k < s->n; k++)
        s->patterns[k].at = 0;
}
