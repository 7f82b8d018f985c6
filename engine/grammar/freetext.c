// freetext.c - an Aho-Corasick automaton over bytes, with the state of UTF-8. Prep threads.
//
// A mark (the byte 0xFF) stands in no UTF-8, so only a token that the vocabulary itself marks can write one; the bytes
// behind it are then read like any others. So a mark may come anywhere in a given text: what follows it must match.
#include "engine/grammar/freetext.h"

#include <stdlib.h>
#include <string.h>

#include "base/map.h"
#include "base/mem.h"
#include "engine/grammar/token_trie.h"
#include "engine/grammar/utf8step.h"

enum { ROOT = 0, EXCLUDED = UINT16_MAX };

struct corasick {
    uint32_t (*next)[256];
    uint32_t *fail, *order, n;
    uint16_t *out;   // 1 + end; EXCLUDED
    uint16_t *depth;
};

static uint32_t add_text(struct corasick *c, const struct freetext_text *t)
{
    uint32_t at = ROOT;
    for (size_t i = 0; i < t->len; i++) {
        uint32_t *to = &c->next[at][(uint8_t)t->text[i]];
        if (*to == ROOT)
            *to = c->n++;
        at = *to;
        c->depth[at] = (uint16_t)(i + 1);
    }
    return at;
}

// Breadth first: fail links, then all 256 ways on of each state.
static void link_up(struct corasick *c)
{
    uint32_t done = 0, n = 0;
    c->order[n++] = ROOT;
    while (done < n) {
        uint32_t at = c->order[done++];
        for (int b = 0; b < 256; b++) {
            uint32_t to = c->next[at][b], back = at == ROOT ? ROOT : c->next[c->fail[at]][b];
            if (to == ROOT) {
                c->next[at][b] = back;
                continue;
            }
            c->fail[to] = back;
            if (!c->out[to])
                c->out[to] = c->out[back];
            c->order[n++] = to;
        }
    }
}

static void corasick_make(const struct freetext_spec *s, struct corasick *c)
{
    size_t most = 1;
    for (size_t i = 0; i < s->nends; i++)
        most += s->ends[i].len;
    for (size_t i = 0; i < s->nexcludes; i++)
        most += s->excludes[i].len;
    *c = (struct corasick){.n = 1, .next = mem_new(most * sizeof *c->next), .fail = mem_new(most * sizeof *c->fail),
                           .order = mem_new(most * sizeof *c->order), .out = mem_new(most * sizeof *c->out),
                           .depth = mem_new(most * sizeof *c->depth)};
    for (size_t i = 0; i < s->nexcludes; i++)
        c->out[add_text(c, &s->excludes[i])] = EXCLUDED;
    for (size_t i = 0; i < s->nends; i++)
        c->out[add_text(c, &s->ends[i])] = (uint16_t)(1 + i);
    link_up(c);
}

static void corasick_done(struct corasick *c)
{
    free(c->next);
    free(c->fail);
    free(c->order);
    free(c->out);
    free(c->depth);
}

// ---- states of the result: where the texts and UTF-8 stand, and whether a mark binds what comes

struct place {
    uint32_t node;
    uint16_t utf8, strict;
};

struct build {
    const struct freetext_spec *s;
    struct corasick c;
    struct map *ids;
    struct place *places;
    struct bytedfa_row *rows;
    uint8_t *flags;
    uint16_t *ends;
    uint32_t n, cap;
    bool over, longs;  // longs: a text begins with a character of several bytes
};

static uint32_t state_of(struct build *b, const struct place *p)
{
    uint32_t id;
    if (map_get(b->ids, (const char *)p, sizeof *p, &id))
        return id;
    if (b->n >= BYTEDFA_STATES) {
        b->over = true;
        return BYTEDFA_DEAD;
    }
    if (b->n == b->cap) {
        b->cap = b->cap ? 2 * b->cap : 32;
        b->places = mem_resize(b->places, b->cap * sizeof *b->places);
        b->rows = mem_resize(b->rows, b->cap * sizeof *b->rows);
        b->flags = mem_resize(b->flags, b->cap);
        b->ends = mem_resize(b->ends, b->cap * sizeof *b->ends);
    }
    id = b->n++;
    uint16_t out = b->c.out[p->node];
    b->places[id] = *p;
    b->ends[id] = id == BYTEDFA_DEAD || out == EXCLUDED ? 0 : out;
    b->flags[id] = p->utf8 == UTF8STEP_BETWEEN && !p->strict && !b->ends[id] ? BYTEDFA_ACCEPT : 0;
    if (b->flags[id] && p->node == ROOT && !b->longs)
        b->flags[id] |= BYTEDFA_LONG;
    memset(&b->rows[id], 0, sizeof *b->rows);
    map_put(b->ids, (const char *)p, sizeof *p, id);
    return id;
}

static uint32_t after(struct build *b, const struct place *from, uint8_t byte)
{
    struct place to = *from;
    if (byte == TOKEN_TRIE_MARK) {
        to.strict = b->s->strict;
        return from->utf8 == UTF8STEP_BETWEEN ? state_of(b, &to) : BYTEDFA_DEAD;
    }
    to.node = b->c.next[from->node][byte];
    to.utf8 = (uint16_t)utf8step(from->utf8, byte);
    if (to.utf8 == UTF8STEP_BAD || b->c.out[to.node] == EXCLUDED || (from->strict && to.node == ROOT))
        return BYTEDFA_DEAD;
    return state_of(b, &to);
}

static void explore(struct build *b)
{
    struct place start = {ROOT, UTF8STEP_BETWEEN, 0};
    state_of(b, &(struct place){ROOT, UTF8STEP_BAD, 0});  // BYTEDFA_DEAD
    state_of(b, &start);
    for (uint32_t i = BYTEDFA_START; i < b->n && !b->over; i++) {
        struct place from = b->places[i];
        for (int byte = 0; byte < 256 && !b->ends[i]; byte++) {
            uint32_t to = after(b, &from, (uint8_t)byte);
            b->rows[i].next[byte] = to;
        }
    }
}

// Takes away what leads nowhere: characters that are all excluded, marks that no end goes on from. Where a character is
// complete there is always a way on: one that stands in no text.
static void trim(struct build *b)
{
    bool *alive = mem_new(b->n), changed = true;
    for (uint32_t i = BYTEDFA_START; i < b->n; i++)
        alive[i] = b->ends[i] || b->flags[i] & BYTEDFA_ACCEPT;
    while (changed) {
        changed = false;
        for (uint32_t i = b->n; i-- > BYTEDFA_START;)
            for (int byte = 0; byte < 256 && !alive[i]; byte++)
                changed |= alive[i] = alive[b->rows[i].next[byte]];
    }
    for (uint32_t i = BYTEDFA_START; i < b->n; i++)
        for (int byte = 0; byte < 256; byte++)
            if (!alive[b->rows[i].next[byte]])
                b->rows[i].next[byte] = BYTEDFA_DEAD;
    free(alive);
}

static err_code check(const struct freetext_spec *s, err *e)
{
    size_t bytes = 0;
    for (size_t i = 0; i < s->nends; i++)
        bytes += s->ends[i].len;
    for (size_t i = 0; i < s->nexcludes; i++)
        bytes += s->excludes[i].len;
    if (bytes > FREETEXT_MAX_BYTES)
        return err_set(e, ERR_TOO_LARGE, "texts of %zu bytes that end a free text or are excluded from it, at most %d", bytes,
                       FREETEXT_MAX_BYTES);
    return ERR_OK;
}

static uint16_t *begun(const struct build *b)
{
    uint16_t *list = mem_new(b->n * sizeof *list);
    for (uint32_t i = 0; i < b->n; i++)
        list[i] = b->places[i].utf8 == UTF8STEP_BETWEEN ? b->c.depth[b->places[i].node] : FREETEXT_INSIDE;
    return list;
}

err_code freetext_make(const struct freetext_spec *s, struct bytedfa **ret_dfa, uint16_t **ret_ends, uint16_t **ret_begun,
                       err *e)
{
    struct build b = {.s = s};
    bool ends = s->nends == 0;
    if (check(s, e))
        return ERR_TOO_LARGE;
    corasick_make(s, &b.c);
    b.ids = map_new(64);
    for (int byte = 0x80; byte < 0x100; byte++)
        b.longs |= b.c.next[ROOT][byte] != ROOT;
    explore(&b);
    for (uint32_t i = 0; i < b.n; i++)
        ends |= b.ends[i] != 0;
    err_code code = ERR_OK;
    if (b.over)
        code = err_set(e, ERR_TOO_LARGE, "it needs an automaton of more than %d states", BYTEDFA_STATES);
    else if (!ends)
        code = err_set(e, ERR_INVALID, "a free text that cannot end: what ends it is excluded");
    if (!code) {
        trim(&b);
        *ret_dfa = bytedfa_of_rows(b.rows, b.flags, b.n);
        *ret_ends = b.ends;
        b.ends = NULL;
        if (ret_begun)
            *ret_begun = begun(&b);
    }
    corasick_done(&b.c);
    map_free(b.ids);
    free(b.places);
    free(b.rows);
    free(b.flags);
    free(b.ends);
    return code;
}

struct bytedfa *freetext_given(const char *text, size_t len)
{
    uint32_t n = (uint32_t)len + 2;
    struct bytedfa_row *rows = mem_new(n * sizeof *rows);
    uint8_t *flags = mem_new(n);
    for (uint32_t i = 0; i < len; i++) {
        rows[BYTEDFA_START + i].next[TOKEN_TRIE_MARK] = BYTEDFA_START + i;
        rows[BYTEDFA_START + i].next[(uint8_t)text[i]] = BYTEDFA_START + i + 1;
    }
    flags[n - 1] = BYTEDFA_ACCEPT;
    struct bytedfa *d = bytedfa_of_rows(rows, flags, n);
    free(rows);
    free(flags);
    return d;
}
