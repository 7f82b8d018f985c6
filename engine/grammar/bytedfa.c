// bytedfa.c - characters to bytes. Prep threads.
//
// A state of the source becomes one state; between two of them lie states inside a character (or an escape). Such a state
// is known by what may still come: its ranges, as numbers of the continuation bytes that are left, and where they lead;
// equal ones are shared.
#include "engine/grammar/bytedfa.h"

#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/map.h"
#include "base/mem.h"

struct maker {
    const struct chardfa *c;
    bool json;
    struct bytedfa_row *rows;
    uint8_t *flags;
    uint32_t n, cap, final;
    struct map *inner;  // states inside characters
    bool over;
};

static uint32_t new_state(struct maker *m)
{
    if (m->n >= BYTEDFA_STATES) {
        m->over = true;
        return BYTEDFA_DEAD;
    }
    if (m->n == m->cap) {
        m->cap = m->cap ? 2 * m->cap : 64;
        m->rows = mem_resize(m->rows, m->cap * sizeof *m->rows);
        m->flags = mem_resize(m->flags, m->cap);
    }
    memset(&m->rows[m->n], 0, sizeof *m->rows);
    m->flags[m->n] = 0;
    return m->n++;
}

// What may follow, `left` continuation bytes long, as ranges of the number they make.
struct rest {
    struct chardfa_edge *ranges;
    uint32_t n;
};

static void cut(const struct rest *all, uint32_t from, uint32_t size, struct rest *ret)
{
    ret->n = 0;
    for (uint32_t i = 0; i < all->n; i++) {
        struct chardfa_edge e = all->ranges[i];
        if (e.hi < from || e.lo >= from + size)
            continue;
        e.lo = e.lo > from ? e.lo - from : 0;
        e.hi = e.hi < from + size - 1 ? e.hi - from : size - 1;
        ret->ranges[ret->n++] = e;
    }
}

static uint32_t inside(struct maker *m, const struct rest *r, int left)
{
    if (r->n == 0)
        return BYTEDFA_DEAD;
    if (left == 0)
        return r->ranges[0].to;
    struct buf key;
    uint32_t id;
    buf_init(&key, SIZE_MAX);
    buf_add_char(&key, (char)left);
    buf_add(&key, r->ranges, r->n * sizeof *r->ranges);
    if (!map_get(m->inner, key.data, key.len, &id)) {
        id = new_state(m);
        map_put(m->inner, key.data, key.len, id);
        struct rest part = {mem_new(r->n * sizeof *part.ranges), 0};
        for (uint32_t b = 0; b < 64 && !m->over; b++) {
            uint32_t size = 1u << 6 * (left - 1);
            cut(r, b * size, size, &part);
            uint32_t to = inside(m, &part, left - 1);
            m->rows[id].next[0x80 + b] = to;
        }
        free(part.ranges);
    }
    buf_done(&key);
    return id;
}

// Edges of characters of `len` bytes.
static void spell(struct maker *m, uint32_t state, const struct rest *all, int len)
{
    static const uint32_t from[] = {0, 0, 0x80, 0x800, 0x10000, 0x110000}, lead[] = {0, 0, 0xC0, 0xE0, 0xF0};
    struct rest part = {mem_new((all->n + 1) * sizeof *part.ranges), 0};
    uint32_t size = 1u << 6 * (len - 1);
    struct rest own = {mem_new((all->n + 1) * sizeof *own.ranges), 0};  // no overlong forms
    for (uint32_t i = 0; i < all->n; i++) {
        own.ranges[own.n] = all->ranges[i];
        if (own.ranges[own.n].lo < from[len])
            own.ranges[own.n].lo = from[len];
        own.n += own.ranges[own.n].lo <= own.ranges[own.n].hi;
    }
    for (uint32_t base = from[len] / size * size; base < from[len + 1] && !m->over; base += size) {
        cut(&own, base, size, &part);
        uint32_t to = inside(m, &part, len - 1);
        if (to != BYTEDFA_DEAD)
            m->rows[state].next[lead[len] | base / size] = to;
    }
    free(part.ranges);
    free(own.ranges);
}

static uint32_t target(const struct rest *r, uint32_t cp)
{
    for (uint32_t i = 0; i < r->n; i++)
        if (cp >= r->ranges[i].lo && cp <= r->ranges[i].hi)
            return r->ranges[i].to;
    return BYTEDFA_DEAD;
}

static uint32_t child(struct maker *m, uint32_t state, uint8_t byte)
{
    if (m->rows[state].next[byte] == BYTEDFA_DEAD) {
        uint32_t made = new_state(m);
        m->rows[state].next[byte] = made;
    }
    return m->rows[state].next[byte];
}

static void spell_escapes(struct maker *m, uint32_t state, const struct rest *r)
{
    static const char shorts[] = "\"\"\\\\\bb\ff\nn\rr\tt";
    bool done[128] = {0};
    for (const char *p = shorts; *p; p += 2) {
        uint32_t to = target(r, (unsigned char)*p);
        done[(unsigned char)*p] = true;
        if (to == BYTEDFA_DEAD)
            continue;
        uint32_t at = child(m, state, '\\');
        m->rows[at].next[(unsigned char)p[1]] = to;
    }
    for (uint32_t c = 0; c < 0x20 && !m->over; c++) {
        uint32_t to = target(r, c);
        if (done[c] || to == BYTEDFA_DEAD)
            continue;
        uint32_t at = child(m, child(m, child(m, child(m, state, '\\'), 'u'), '0'), '0');
        at = child(m, at, (uint8_t)('0' + c / 16));
        m->rows[at].next[(uint8_t) "0123456789abcdef"[c % 16]] = to;
    }
}

static bool is_plain(const struct rest *r, uint32_t self)
{
    static const uint32_t want[][2] = {{0x20, 0x21}, {0x23, 0x5B}, {0x5D, 0xD7FF}, {0xE000, CHARDFA_LAST}};
    for (size_t i = 0; i < 4; i++)
        for (uint32_t at = want[i][0], k = 0; at <= want[i][1]; k++) {
            if (k == r->n)
                return false;
            if (r->ranges[k].hi < at)
                continue;
            if (r->ranges[k].lo > at || r->ranges[k].to != self)
                return false;
            at = r->ranges[k].hi + 1;
        }
    return true;
}

static void spell_state(struct maker *m, uint32_t s, uint32_t first)
{
    const struct chardfa_state *from = &m->c->states[s];
    struct rest r = {mem_new((from->n + 1) * sizeof *r.ranges), 0};
    for (uint32_t i = 0; i < from->n; i++) {
        struct chardfa_edge e = m->c->edges[from->first + i];
        e.to += first;
        r.ranges[r.n++] = e;
        if (e.lo >= 0xD800 || e.hi <= 0xDFFF)
            continue;
        r.ranges[r.n - 1].hi = 0xD7FF;  // an edge may span the surrogates, which have no bytes; at most one does
        e.lo = 0xE000;
        r.ranges[r.n++] = e;
    }
    uint32_t at = first + s;
    if (is_plain(&r, at))
        m->flags[at] |= BYTEDFA_PLAIN | BYTEDFA_LONG;
    for (uint32_t b = m->json ? 0x20 : 0; b < 0x80; b++)
        if (!m->json || (b != '"' && b != '\\'))
            m->rows[at].next[b] = target(&r, b);
    for (int len = 2; len <= 4; len++)
        spell(m, at, &r, len);
    if (m->json)
        spell_escapes(m, at, &r);
    if (from->accept && m->json)
        m->rows[at].next['"'] = m->final;
    else if (from->accept)
        m->flags[at] |= BYTEDFA_ACCEPT;
    free(r.ranges);
}

// ---- the finished form

// Bytes that every state treats alike are one class.
static void classify(const struct maker *m, struct bytedfa *d)
{
    uint8_t of[256];
    for (int b = 0; b < 256; b++) {
        uint32_t k = 0;
        for (; k < d->nclasses; k++) {
            uint32_t s = 0;
            while (s < m->n && m->rows[s].next[b] == m->rows[s].next[of[k]])
                s++;
            if (s == m->n)
                break;
        }
        if (k == d->nclasses)
            of[d->nclasses++] = (uint8_t)b;
        d->classes[b] = (uint8_t)k;
    }
    d->next = mem_new((size_t)m->n * d->nclasses * sizeof *d->next);
    bool used[256] = {0};
    for (uint32_t s = 0; s < m->n; s++)
        for (uint32_t k = 0; k < d->nclasses; k++) {
            d->next[(size_t)s * d->nclasses + k] = m->rows[s].next[of[k]];
            used[k] |= m->rows[s].next[of[k]] != BYTEDFA_DEAD;
        }
    for (int b = 0; b < 256; b++)
        d->never[b / 64] |= (uint64_t)!used[d->classes[b]] << b % 64;
}

enum { UNSEEN, OPEN, COUNTED };

struct visit {
    uint32_t state;
    int byte;
};

// Depth first: a state met again while it is open lies on a cycle, and from all of a trimmed automaton's states an end can
// be reached, so its strings are endless.
static void count_ends(const struct maker *m, struct bytedfa *d)
{
    uint8_t *seen = mem_new(d->nstates);
    struct visit *stack = mem_new(((size_t)d->nstates + 1) * sizeof *stack);
    uint32_t n = 0;
    d->ends = mem_new(d->nstates * sizeof *d->ends);
    stack[n++] = (struct visit){BYTEDFA_START, 0};
    seen[BYTEDFA_START] = OPEN;
    d->ends[BYTEDFA_START] = d->flags[BYTEDFA_START] & BYTEDFA_ACCEPT;
    while (n > 0) {
        struct visit *v = &stack[n - 1];
        uint32_t *sum = &d->ends[v->state];
        if (v->byte == 256) {
            seen[v->state] = COUNTED;
            n--;
            continue;
        }
        uint32_t to = m->rows[v->state].next[v->byte];
        if (to != BYTEDFA_DEAD && seen[to] == UNSEEN) {
            seen[to] = OPEN;
            d->ends[to] = d->flags[to] & BYTEDFA_ACCEPT;
            stack[n++] = (struct visit){to, 0};
            continue;
        }
        if (to != BYTEDFA_DEAD) {
            uint32_t add = seen[to] == OPEN ? BYTEDFA_ENDLESS : d->ends[to];
            *sum = *sum > BYTEDFA_ENDLESS - add ? BYTEDFA_ENDLESS : *sum + add;
        }
        v->byte++;
    }
    free(seen);
    free(stack);
}

static struct bytedfa *finish(struct maker *m, bool counts)
{
    struct bytedfa *d = mem_new(sizeof *d);
    for (uint32_t s = 1; s < m->n; s++)
        for (int b = 0; b < 256 && !(m->flags[s] & BYTEDFA_MORE); b++)
            if (m->rows[s].next[b] != BYTEDFA_DEAD)
                m->flags[s] |= BYTEDFA_MORE;
    d->nstates = m->n;
    d->flags = mem_resize(m->flags, m->n);
    m->flags = NULL;
    classify(m, d);
    if (counts)
        count_ends(m, d);
    d->bytes = sizeof *d + (size_t)d->nstates * (d->nclasses * sizeof *d->next + 1 + (counts ? sizeof *d->ends : 0));
    return d;
}

struct bytedfa *bytedfa_of_rows(const struct bytedfa_row *rows, const uint8_t *flags, uint32_t n)
{
    struct maker m = {.rows = (struct bytedfa_row *)rows, .n = n};
    m.flags = memcpy(mem_new(n), flags, n);
    return finish(&m, false);
}

err_code bytedfa_make(const struct chardfa *c, bool json, bool counts, struct bytedfa **ret_dfa, err *e)
{
    struct maker m = {.c = c, .json = json, .inner = map_new(64)};
    new_state(&m);  // dead
    uint32_t first = BYTEDFA_START;
    if (json) {
        new_state(&m);
        m.final = new_state(&m);
        m.flags[m.final] = BYTEDFA_ACCEPT;
        first = m.n;
        m.rows[BYTEDFA_START].next['"'] = first;
    }
    for (uint32_t s = 0; s < c->nstates; s++)
        new_state(&m);
    for (uint32_t s = 0; s < c->nstates && !m.over; s++)
        spell_state(&m, s, first);
    err_code code = ERR_OK;
    if (m.over)
        code = err_set(e, ERR_TOO_LARGE, "it needs an automaton of more than %d states", BYTEDFA_STATES);
    else
        *ret_dfa = finish(&m, counts);
    map_free(m.inner);
    free(m.rows);
    free(m.flags);
    return code;
}

void bytedfa_free(struct bytedfa *d)
{
    if (!d)
        return;
    free(d->next);
    free(d->flags);
    free(d->ends);
    free(d);
}
