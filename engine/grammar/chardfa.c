// chardfa.c - exploring, trimming, minimising and combining automata over characters. On prep threads; owns nothing.
#include "engine/grammar/chardfa.h"

#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/cancel.h"
#include "base/map.h"
#include "base/mem.h"
#include "base/utf8.h"

enum { MINIMISE_WORK = 8000000, MAX_KEYS = 64 << 20, EDGE_COST = 16, ROUNDS_AN_EDGE = 4 };
// EDGE_COST: of cancel.h. ROUNDS_AN_EDGE: so many states and edges are looked at in the time that one is made.

struct chardfa_explorer {
    struct chardfa *d;
    struct chardfa_budget *budget;
    struct map *ids;
    struct buf keys;
    size_t *starts;  // of each state's key; one more than there are states
    uint32_t states_cap, edges_cap;
    bool over;
};

static uint32_t state_of(struct chardfa_explorer *x, const void *key, size_t len)
{
    uint32_t id;
    if (map_get(x->ids, key, len, &id))
        return id;
    struct chardfa *d = x->d;
    if (d->nstates >= x->budget->states || !buf_add(&x->keys, key, len)) {
        x->over = true;
        return 0;
    }
    if (d->nstates == x->states_cap) {
        x->states_cap = x->states_cap ? 2 * x->states_cap : 16;
        d->states = mem_resize(d->states, x->states_cap * sizeof *d->states);
        x->starts = mem_resize(x->starts, ((size_t)x->states_cap + 1) * sizeof *x->starts);
    }
    id = d->nstates++;
    d->states[id] = (struct chardfa_state){0};
    x->starts[id + 1] = x->keys.len;
    map_put(x->ids, key, len, id);
    return id;
}

static void add_edge(struct chardfa_explorer *x, uint32_t lo, uint32_t hi, uint32_t to)
{
    struct chardfa *d = x->d;
    if (d->nedges == x->edges_cap) {
        x->edges_cap = x->edges_cap ? 2 * x->edges_cap : 32;
        d->edges = mem_resize(d->edges, x->edges_cap * sizeof *d->edges);
    }
    d->edges[d->nedges++] = (struct chardfa_edge){lo, hi, to};
}

void chardfa_edge(struct chardfa_explorer *x, uint32_t lo, uint32_t hi, const void *key, size_t len)
{
    if (x->budget->work == 0 || cancel_due(EDGE_COST))
        x->over = true;
    if (x->over)
        return;
    x->budget->work--;
    hi = hi < CHARDFA_LAST ? hi : CHARDFA_LAST;
    uint32_t to = state_of(x, key, len);
    // Surrogates are no characters.
    if (lo < 0xD800 && hi >= 0xD800) {
        add_edge(x, lo, 0xD7FF, to);
        lo = 0xD800;
    }
    if (lo >= 0xD800 && lo <= 0xDFFF)
        lo = 0xE000;
    if (lo <= hi)
        add_edge(x, lo, hi, to);
}

// ---- trimming and minimising

// Joins neighbouring ranges that lead to the same state, and leaves out those that lead to what map says is no state.
static void renumber(struct chardfa *d, const uint32_t *map, uint32_t nstates)
{
    struct chardfa_state *states = mem_new(((size_t)nstates + 1) * sizeof *states);
    struct chardfa_edge *edges = mem_new(((size_t)d->nedges + 1) * sizeof *edges);
    uint32_t ne = 0, made = 0;
    for (uint32_t s = 0; s < d->nstates; s++) {
        if (map[s] != made)
            continue;  // no state, or one of a class that has been written
        const struct chardfa_state *old = &d->states[s];
        struct chardfa_state *now = &states[made++];
        *now = (struct chardfa_state){.first = ne, .accept = old->accept};
        for (uint32_t i = 0; i < old->n; i++) {
            struct chardfa_edge e = d->edges[old->first + i];
            if (map[e.to] == UINT32_MAX)
                continue;
            e.to = map[e.to];
            bool joins = ne > now->first && edges[ne - 1].to == e.to &&
                         (edges[ne - 1].hi + 1 == e.lo || (edges[ne - 1].hi == 0xD7FF && e.lo == 0xE000));
            if (joins)
                edges[ne - 1].hi = e.hi;
            else
                edges[ne++] = e;
        }
        now->n = ne - now->first;
    }
    free(d->states);
    free(d->edges);
    d->states = states;
    d->edges = edges;
    d->nstates = made;
    d->nedges = ne;
}

// Marks the states from which an end can be reached, backwards over the edges in reverse until nothing changes.
static void mark_alive(const struct chardfa *d, uint8_t *alive)
{
    uint32_t *first = mem_new(((size_t)d->nstates + 2) * sizeof *first), *from, *todo;
    from = mem_new(((size_t)d->nedges + 1) * sizeof *from);
    todo = mem_new(((size_t)d->nstates + 1) * sizeof *todo);
    for (uint32_t i = 0; i < d->nedges; i++)
        first[d->edges[i].to + 2]++;
    for (uint32_t s = 0; s < d->nstates; s++)
        first[s + 1] += first[s];
    for (uint32_t s = 0; s < d->nstates; s++)
        for (uint32_t i = 0; i < d->states[s].n; i++)
            from[first[d->edges[d->states[s].first + i].to + 1]++] = s;
    uint32_t n = 0;
    for (uint32_t s = 0; s < d->nstates; s++)
        if ((alive[s] = d->states[s].accept))
            todo[n++] = s;
    while (n > 0) {
        uint32_t s = todo[--n];
        for (uint32_t i = first[s]; i < first[s + 1]; i++)
            if (!alive[from[i]]) {
                alive[from[i]] = 1;
                todo[n++] = from[i];
            }
    }
    free(first);
    free(from);
    free(todo);
}

static void trim(struct chardfa *d)
{
    uint8_t *alive = mem_new(d->nstates);
    uint32_t *map = mem_new(d->nstates * sizeof *map), n = 0;
    mark_alive(d, alive);
    alive[0] = 1;
    for (uint32_t s = 0; s < d->nstates; s++)
        map[s] = alive[s] ? n++ : UINT32_MAX;
    // The start of an empty automaton leads nowhere.
    renumber(d, map, n);
    free(alive);
    free(map);
}

// One round of Moore's refinement: new[s] numbers the different (class, edges by class). Returns how many.
static uint32_t refine(const struct chardfa *d, const uint32_t *old, uint32_t *new, struct buf *key)
{
    struct map *m = map_new(d->nstates);
    uint32_t n = 0;
    for (uint32_t s = 0; s < d->nstates; s++) {
        buf_clear(key);
        buf_add(key, &old[s], sizeof *old);
        struct chardfa_edge run = {0, 0, UINT32_MAX};
        for (uint32_t i = 0; i < d->states[s].n; i++) {
            struct chardfa_edge e = d->edges[d->states[s].first + i];
            e.to = old[e.to];
            if (run.to == e.to && (run.hi + 1 == e.lo || (run.hi == 0xD7FF && e.lo == 0xE000))) {
                run.hi = e.hi;
                continue;
            }
            if (run.to != UINT32_MAX)
                buf_add(key, &run, sizeof run);
            run = e;
        }
        if (run.to != UINT32_MAX)
            buf_add(key, &run, sizeof run);
        if (!map_get(m, key->data, key->len, &new[s])) {
            new[s] = n++;
            map_put(m, key->data, key->len, new[s]);
        }
    }
    map_free(m);
    return n;
}

static size_t least(size_t a, size_t b)
{
    return a < b ? a : b;
}

// Left as it is when that would take long: a large automaton is as right as a small one.
static void minimise(struct chardfa *d, struct chardfa_budget *budget)
{
    uint32_t *a = mem_new(d->nstates * sizeof *a), *b = mem_new(d->nstates * sizeof *b), n = 1, before = 0;
    struct buf key;
    buf_init(&key, SIZE_MAX);
    for (uint32_t s = 0; s < d->nstates; s++)
        a[s] = d->states[s].accept;
    size_t work = 0;
    size_t most = least(MINIMISE_WORK, budget->work * ROUNDS_AN_EDGE);
    for (; n != before && work < most && !cancel_due(d->nstates); work += d->nstates + d->nedges) {
        before = n;
        n = refine(d, a, b, &key);
        uint32_t *t = a;
        a = b;
        b = t;
    }
    budget->work -= least(budget->work, work / ROUNDS_AN_EDGE);
    // Classes are numbered by their first state, so the start stays 0.
    if (n == before && n < d->nstates)
        renumber(d, a, n);
    buf_done(&key);
    free(a);
    free(b);
}

// ---- exploring

static void explore(struct chardfa_explorer *x, const struct chardfa_source *s)
{
    struct buf key;
    buf_init(&key, SIZE_MAX);
    for (uint32_t i = 0; i < x->d->nstates && !x->over; i++) {
        buf_clear(&key);
        buf_add(&key, x->keys.data + x->starts[i], x->starts[i + 1] - x->starts[i]);
        uint32_t first = x->d->nedges;
        s->edges(s->ud, key.data, key.len, x);
        x->d->states[i].first = first;
        x->d->states[i].n = x->d->nedges - first;
        x->d->states[i].accept = s->accepts(s->ud, key.data, key.len);
    }
    buf_done(&key);
}

err_code chardfa_explore(const struct chardfa_source *s, const void *start, size_t len, struct chardfa_budget *b,
                         struct chardfa **ret_dfa, err *e)
{
    struct chardfa_explorer x = {.budget = b, .d = mem_new(sizeof *x.d), .ids = map_new(64)};
    x.starts = mem_new(sizeof *x.starts);
    buf_init(&x.keys, MAX_KEYS);
    state_of(&x, start, len);
    explore(&x, s);
    map_free(x.ids);
    buf_done(&x.keys);
    free(x.starts);
    if (x.over || x.d->nstates == 0) {
        chardfa_free(x.d);
        return err_set(e, ERR_TOO_LARGE, "it needs an automaton of more than %zu states, or too long to build", b->states);
    }
    trim(x.d);
    minimise(x.d, b);
    *ret_dfa = x.d;
    return ERR_OK;
}

void chardfa_free(struct chardfa *d)
{
    if (!d)
        return;
    free(d->states);
    free(d->edges);
    free(d);
}

// ---- making and combining

struct chardfa *chardfa_any(void)
{
    struct chardfa *d = mem_new(sizeof *d);
    d->states = mem_new(sizeof *d->states);
    d->edges = mem_new(2 * sizeof *d->edges);
    d->states[0] = (struct chardfa_state){0, 2, true};
    d->nstates = 1;
    d->edges[0] = (struct chardfa_edge){0, 0xD7FF, 0};
    d->edges[1] = (struct chardfa_edge){0xE000, CHARDFA_LAST, 0};
    d->nedges = 2;
    return d;
}

// Sorted texts; a state is the range of those that begin alike, and how many bytes that is.
struct text_list {
    const char **texts;
    size_t *lens, n;
};
struct text_range {
    uint64_t first, end, at;
};

static int by_bytes(const char *a, size_t na, const char *b, size_t nb)
{
    int c = memcmp(a, b, na < nb ? na : nb);
    return c ? c : (na > nb) - (na < nb);
}

static bool texts_accept(void *ud, const void *key, size_t len)
{
    const struct text_list *t = ud;
    struct text_range r;
    memcpy(&r, key, len);
    return r.first < r.end && t->lens[r.first] == r.at;  // a text comes before those that it begins
}

static void texts_edges(void *ud, const void *key, size_t len, struct chardfa_explorer *x)
{
    const struct text_list *t = ud;
    struct text_range r;
    memcpy(&r, key, len);
    uint64_t i = r.first + texts_accept(ud, key, len);
    while (i < r.end) {
        uint32_t cp, other;
        size_t n = (size_t)utf8_decode(t->texts[i] + r.at, t->lens[i] - r.at, &cp);
        struct text_range to = {i, i + 1, r.at + n};
        while (to.end < r.end && utf8_decode(t->texts[to.end] + r.at, t->lens[to.end] - r.at, &other) && other == cp)
            to.end++;
        i = to.end;
        chardfa_edge(x, cp, cp, &to, sizeof to);
    }
}

static void sort_texts(struct text_list *t)
{
    size_t kept = 0;
    for (size_t i = 0; i < t->n; i++) {  // insertion: lists are short, or come sorted
        const char *text = t->texts[i];
        size_t len = t->lens[i], at = kept;
        while (at > 0 && by_bytes(t->texts[at - 1], t->lens[at - 1], text, len) > 0)
            at--;
        if (at > 0 && by_bytes(t->texts[at - 1], t->lens[at - 1], text, len) == 0)
            continue;
        memmove(t->texts + at + 1, t->texts + at, (kept - at) * sizeof *t->texts);
        memmove(t->lens + at + 1, t->lens + at, (kept - at) * sizeof *t->lens);
        t->texts[at] = text;
        t->lens[at] = len;
        kept++;
    }
    t->n = kept;
}

err_code chardfa_texts(const char *const *texts, const size_t *lens, size_t n, struct chardfa_budget *b,
                       struct chardfa **ret_dfa, err *e)
{
    struct text_list t = {mem_new((n + 1) * sizeof *t.texts), mem_new((n + 1) * sizeof *t.lens), n};
    if (n) {
        memcpy(t.texts, texts, n * sizeof *t.texts);
        memcpy(t.lens, lens, n * sizeof *t.lens);
    }
    sort_texts(&t);
    struct text_range all = {0, t.n, 0};
    struct chardfa_source s = {&t, texts_accept, texts_edges};
    err_code code = chardfa_explore(&s, &all, sizeof all, b, ret_dfa, e);
    free(t.texts);
    free(t.lens);
    return code;
}

enum { NOWHERE = UINT32_MAX };  // the second automaton has no way on

struct product {
    const struct chardfa *x, *y;
    bool minus;
};

static bool product_accepts(void *ud, const void *key, size_t len)
{
    const struct product *p = ud;
    uint32_t k[2];
    memcpy(k, key, len);
    bool second = k[1] != NOWHERE && p->y->states[k[1]].accept;
    return p->x->states[k[0]].accept && second != p->minus;
}

static void product_edge(const struct product *p, struct chardfa_explorer *x, uint32_t lo, uint32_t hi, uint32_t a,
                         uint32_t b)
{
    uint32_t k[2] = {a, b};
    if (lo <= hi && (b != NOWHERE || p->minus))
        chardfa_edge(x, lo, hi, k, sizeof k);
}

static void product_edges(void *ud, const void *key, size_t len, struct chardfa_explorer *x)
{
    const struct product *p = ud;
    uint32_t k[2];
    memcpy(k, key, len);
    const struct chardfa_state *s = &p->x->states[k[0]];
    const struct chardfa_edge *ye = NULL, *yend = NULL;
    if (k[1] != NOWHERE) {
        ye = p->y->edges + p->y->states[k[1]].first;
        yend = ye + p->y->states[k[1]].n;
    }
    for (uint32_t i = 0; i < s->n; i++) {
        struct chardfa_edge e = p->x->edges[s->first + i];
        while (ye < yend && ye->hi < e.lo)
            ye++;
        const struct chardfa_edge *q = ye;
        for (; q < yend && q->lo <= e.hi; q++) {
            if (q->lo > e.lo)
                product_edge(p, x, e.lo, q->lo - 1, e.to, NOWHERE);
            uint32_t lo = q->lo > e.lo ? q->lo : e.lo, hi = q->hi < e.hi ? q->hi : e.hi;
            product_edge(p, x, lo, hi, e.to, q->to);
            e.lo = hi + 1;
        }
        if (e.lo <= e.hi)
            product_edge(p, x, e.lo, e.hi, e.to, NOWHERE);
    }
}

static err_code combine(const struct product *p, struct chardfa_budget *b, struct chardfa **ret_dfa, err *e)
{
    struct chardfa_source s = {(void *)p, product_accepts, product_edges};
    uint32_t start[2] = {0, 0};
    return chardfa_explore(&s, start, sizeof start, b, ret_dfa, e);
}

err_code chardfa_intersect(const struct chardfa *x, const struct chardfa *y, struct chardfa_budget *b,
                           struct chardfa **ret_dfa, err *e)
{
    return combine(&(struct product){x, y, false}, b, ret_dfa, e);
}

err_code chardfa_minus(const struct chardfa *x, const struct chardfa *y, struct chardfa_budget *b,
                       struct chardfa **ret_dfa, err *e)
{
    return combine(&(struct product){x, y, true}, b, ret_dfa, e);
}

struct counted {
    const struct chardfa *x;
    uint32_t min, max;
};

static bool counted_accepts(void *ud, const void *key, size_t len)
{
    const struct counted *c = ud;
    uint32_t k[2];
    memcpy(k, key, len);
    return k[1] >= c->min && c->x->states[k[0]].accept;
}

static void counted_edges(void *ud, const void *key, size_t len, struct chardfa_explorer *x)
{
    const struct counted *c = ud;
    uint32_t k[2], most = c->max == CHARDFA_NO_LIMIT ? c->min : c->max;
    memcpy(k, key, len);
    if (k[1] == most && c->max != CHARDFA_NO_LIMIT)
        return;
    const struct chardfa_state *s = &c->x->states[k[0]];
    for (uint32_t i = 0; i < s->n; i++) {
        const struct chardfa_edge *e = &c->x->edges[s->first + i];
        uint32_t to[2] = {e->to, k[1] < most ? k[1] + 1 : most};
        chardfa_edge(x, e->lo, e->hi, to, sizeof to);
    }
}

err_code chardfa_length(const struct chardfa *x, uint32_t min, uint32_t max, struct chardfa_budget *b,
                        struct chardfa **ret_dfa, err *e)
{
    struct counted c = {x, min, max};
    struct chardfa_source s = {&c, counted_accepts, counted_edges};
    uint32_t start[2] = {0, 0};
    return chardfa_explore(&s, start, sizeof start, b, ret_dfa, e);
}

// ---- asking

bool chardfa_is_empty(const struct chardfa *d)
{
    return d->nstates == 1 && !d->states[0].accept;
}

static bool step(const struct chardfa *d, uint32_t *state, uint32_t cp)
{
    const struct chardfa_state *s = &d->states[*state];
    for (uint32_t i = 0; i < s->n; i++) {
        const struct chardfa_edge *e = &d->edges[s->first + i];
        if (cp >= e->lo && cp <= e->hi) {
            *state = e->to;
            return true;
        }
    }
    return false;
}

bool chardfa_matches(const struct chardfa *d, const char *text, size_t len)
{
    uint32_t state = 0, cp;
    for (size_t i = 0, n; i < len; i += n) {
        n = (size_t)utf8_decode(text + i, len - i, &cp);
        if (n == 0 || !step(d, &state, cp))
            return false;
    }
    return d->states[state].accept;
}
