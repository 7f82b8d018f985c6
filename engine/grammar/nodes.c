// nodes.c - making the nodes of a grammar, and how high each is. Prep threads.
#include "engine/grammar/nodes.h"

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"

enum { MAX_ROUNDS = 600 };

void nodes_init(struct nodes *g, uint32_t max_depth)
{
    *g = (struct nodes){.max_depth = max_depth, .n = 1, .cap = 64, .work = NODES_WORK, .steps = NODES_STEPS};
    g->list = mem_new(g->cap * sizeof *g->list);
}

void nodes_done(struct nodes *g)
{
    for (uint32_t i = 0; i < g->n; i++) {
        if (g->list[i].kind == NODE_BYTES)
            bytedfa_free(g->list[i].bytes);
        if (g->list[i].kind != NODE_FREE)
            continue;
        bytedfa_free(g->list[i].free->dfa);
        free(g->list[i].free->ends);
        free(g->list[i].free->begun);
    }
    free(g->list);
    arena_done(&g->arena);
}

static void *get(struct nodes *g, size_t bytes)
{
    g->bytes += bytes;
    return arena_alloc(&g->arena, bytes ? bytes : 1);
}

static void *copy(struct nodes *g, const void *p, size_t bytes)
{
    void *to = get(g, bytes);
    return bytes ? memcpy(to, p, bytes) : to;
}

static uint32_t add(struct nodes *g, enum node_kind kind)
{
    if (g->n >= NODES_MAX || g->bytes > NODES_MAX_BYTES) {
        g->bytes = NODES_MAX_BYTES + 1;
        return 0;
    }
    if (g->n == g->cap) {
        g->cap *= 2;
        g->list = mem_resize(g->list, g->cap * sizeof *g->list);
    }
    g->list[g->n] = (struct node){.kind = kind, .height = HEIGHT_NEVER};
    g->bytes += sizeof *g->list;
    return g->n++;
}

err_code nodes_check(const struct nodes *g, err *e)
{
    if (g->bytes <= NODES_MAX_BYTES)
        return ERR_OK;
    return err_set(e, ERR_TOO_LARGE, "the grammar is too large: more than %d parts, or %d MB", NODES_MAX,
                   NODES_MAX_BYTES >> 20);
}

uint32_t nodes_bytes(struct nodes *g, struct bytedfa *d, bool tracked)
{
    uint32_t id = add(g, NODE_BYTES);
    if (!id) {
        bytedfa_free(d);
        return 0;
    }
    g->bytes += d->bytes;
    g->list[id].bytes = d;
    g->list[id].tracked = tracked;
    return id;
}

struct text {
    const char *text;
    size_t len;
    uint32_t from;
};

static int by_bytes(const void *a, const void *b)
{
    const struct text *x = a, *y = b;
    int c = memcmp(x->text, y->text, x->len < y->len ? x->len : y->len);
    return c ? c : (x->len > y->len) - (x->len < y->len);
}

static struct text *sorted(const char *const *texts, const size_t *lens, size_t n)
{
    struct text *list = mem_new((n + 1) * sizeof *list);
    for (size_t i = 0; i < n; i++)
        list[i] = (struct text){texts[i], lens[i], (uint32_t)i};
    qsort(list, n, sizeof *list, by_bytes);
    return list;
}

uint32_t nodes_literals(struct nodes *g, const char *const *texts, const size_t *lens, size_t n)
{
    uint32_t id = add(g, NODE_LITERALS);
    if (!id)
        return 0;
    struct text *list = sorted(texts, lens, n);
    struct literals *l = get(g, sizeof *l);
    l->texts = get(g, n * sizeof *l->texts);
    l->lens = get(g, n * sizeof *l->lens);
    for (size_t i = 0; i < n; i++) {
        if (i > 0 && by_bytes(&list[i - 1], &list[i]) == 0)
            continue;
        l->texts[l->n] = copy(g, list[i].text, list[i].len);
        l->lens[l->n++] = (uint32_t)list[i].len;
    }
    free(list);
    g->list[id].literals = l;
    return id;
}

uint32_t nodes_string(struct nodes *g, uint32_t min, uint32_t max)
{
    uint32_t id = add(g, NODE_STRING);
    if (id)
        g->list[id].string = copy(g, &(struct string_def){min, max}, sizeof(struct string_def));
    return id;
}

uint32_t nodes_open(struct nodes *g)
{
    uint32_t id = add(g, NODE_ALT);
    if (id)
        g->list[id].list = get(g, sizeof(struct list_def));
    return id;
}

void nodes_fill(struct nodes *g, uint32_t node, const uint32_t *nodes, uint32_t n)
{
    if (!node)
        return;
    struct list_def *l = g->list[node].list;
    l->n = n;
    l->nodes = copy(g, nodes, n * sizeof *nodes);
}

uint32_t nodes_list(struct nodes *g, enum node_kind kind, const uint32_t *nodes, uint32_t n)
{
    if (n == 1)
        return nodes[0];
    uint32_t id = nodes_open(g);
    if (id)
        g->list[id].kind = kind;
    nodes_fill(g, id, nodes, n);
    return id;
}

uint32_t nodes_repeat(struct nodes *g, uint32_t node, uint32_t min, uint32_t max)
{
    uint32_t id = add(g, NODE_REPEAT);
    if (id)
        g->list[id].repeat = copy(g, &(struct repeat_def){node, min, max, false}, sizeof(struct repeat_def));
    return id;
}

uint32_t nodes_free(struct nodes *g, const struct free_def *d)
{
    uint32_t id = add(g, NODE_FREE);
    if (!id) {
        bytedfa_free(d->dfa);
        free(d->ends);
        free(d->begun);
        return 0;
    }
    struct free_def *f = copy(g, d, sizeof *d);
    f->targets = copy(g, d->targets, d->ntargets * sizeof *d->targets);
    g->bytes += d->dfa->bytes + d->dfa->nstates * (sizeof *d->ends + (d->begun ? sizeof *d->begun : 0));
    g->list[id].free = f;
    return id;
}

uint32_t nodes_array(struct nodes *g, const struct array_def *d)
{
    uint32_t id = add(g, NODE_ARRAY);
    if (!id)
        return 0;
    struct array_def *a = copy(g, d, sizeof *d);
    a->prefix = copy(g, d->prefix, d->nprefix * sizeof *d->prefix);
    g->list[id].array = a;
    return id;
}

uint32_t nodes_object(struct nodes *g, struct object_def *d, const char *const *names, const size_t *lens)
{
    uint32_t n = d->nproperties;
    d->names = nodes_literals(g, names, lens, n);
    uint32_t id = add(g, NODE_OBJECT);
    if (!id || !d->names)
        return 0;
    struct object_def *o = copy(g, d, sizeof *d);
    o->properties = copy(g, d->properties, n * sizeof *d->properties);
    o->by_rank = get(g, n * sizeof *o->by_rank);
    o->required_from = get(g, (n + 1) * sizeof *o->required_from);
    o->next_required = get(g, (n + 1) * sizeof *o->next_required);
    struct text *list = sorted(names, lens, n);
    for (uint32_t i = 0; i < n; i++) {
        o->by_rank[i] = list[i].from;
        o->properties[list[i].from].rank = i;
    }
    free(list);
    o->next_required[n] = n;
    for (uint32_t i = n; i-- > 0;) {
        o->required_from[i] = o->required_from[i + 1] + o->properties[i].required;
        o->next_required[i] = o->properties[i].required ? i : o->next_required[i + 1];
    }
    g->list[id].object = o;
    return id;
}

// ---- heights

bool nodes_fits(const struct nodes *g, uint32_t node, uint32_t depth)
{
    return node && depth + g->list[node].height <= g->max_depth;
}

static uint32_t height_of(const struct nodes *g, uint32_t node)
{
    return node ? g->list[node].height : HEIGHT_NEVER;
}

static uint32_t larger(uint32_t a, uint32_t b)
{
    return a > b ? a : b;
}

static int ascending(const void *x, const void *y)
{
    uint32_t a = *(const uint32_t *)x, b = *(const uint32_t *)y;
    return (a > b) - (a < b);
}

// The lowest height at which `need` names beside the required ones can be had: of the optional ones, then undeclared ones.
static uint32_t fill_up(const struct nodes *g, const struct object_def *o, uint32_t need)
{
    uint32_t *heights = mem_new(((size_t)o->nproperties + (size_t)o->nextras * need + 1) * sizeof *heights), n = 0;
    for (uint32_t i = 0; i < o->nproperties; i++)
        if (!o->properties[i].required)
            heights[n++] = height_of(g, o->properties[i].node);
    for (uint32_t k = 0; k < o->nextras; k++) {
        uint32_t names = g->list[o->extras[k].name].bytes->ends[BYTEDFA_START];
        for (uint32_t i = 0; i < need && i < names; i++)
            heights[n++] = height_of(g, o->extras[k].node);
    }
    qsort(heights, n, sizeof *heights, ascending);
    uint32_t h = need <= n ? heights[need - 1] : HEIGHT_NEVER;
    free(heights);
    return h;
}

static uint32_t object_height(const struct nodes *g, const struct object_def *o)
{
    uint32_t h = 0, required = o->required_from[0];
    for (uint32_t i = 0; i < o->nproperties; i++)
        if (o->properties[i].required)
            h = larger(h, height_of(g, o->properties[i].node));
    if (required > o->max || o->min > o->max)
        return HEIGHT_NEVER;
    if (o->min > required)
        h = larger(h, o->min - required > NODES_MAX_UNDECLARED + o->nproperties ? HEIGHT_NEVER
                                                                               : fill_up(g, o, o->min - required));
    return h + 1;
}

static uint32_t array_height(const struct nodes *g, const struct array_def *a)
{
    uint32_t h = 0;
    if (a->min > a->max)
        return HEIGHT_NEVER;
    for (uint32_t i = 0; i < a->nprefix && i < a->min; i++)
        h = larger(h, height_of(g, a->prefix[i]));
    if (a->min > a->nprefix)
        h = larger(h, height_of(g, a->rest));
    if (a->unique && a->min > 0 && a->rest && a->min > g->list[a->rest].bytes->ends[BYTEDFA_START])
        h = HEIGHT_NEVER;
    return h + 1;
}

static uint32_t list_height(const struct nodes *g, const struct node *n)
{
    uint32_t h = n->kind == NODE_ALT ? HEIGHT_NEVER : 0;
    for (uint32_t i = 0; i < n->list->n; i++) {
        uint32_t x = height_of(g, n->list->nodes[i]);
        bool last = i + 1 == n->list->n;  // it takes the sequence's place
        h = n->kind == NODE_ALT ? (x < h ? x : h) : larger(h, last ? x : x + 1);
    }
    return h;
}

static uint32_t free_height(const struct nodes *g, const struct free_def *f)
{
    uint32_t h = f->may_end ? 0 : HEIGHT_NEVER;
    for (uint32_t i = 0; i < f->ntargets; i++)
        h = height_of(g, f->targets[i]) < h ? height_of(g, f->targets[i]) : h;
    return h;
}

static uint32_t height(const struct nodes *g, const struct node *n)
{
    switch (n->kind) {
    case NODE_BYTES: return n->bytes->flags[BYTEDFA_START] ? 0 : HEIGHT_NEVER;
    case NODE_LITERALS: return n->literals->n ? 0 : HEIGHT_NEVER;
    case NODE_STRING: return n->string->min <= n->string->max ? 0 : HEIGHT_NEVER;
    case NODE_OBJECT: return object_height(g, n->object);
    case NODE_ARRAY: return array_height(g, n->array);
    case NODE_ALT:
    case NODE_SEQ: return list_height(g, n);
    case NODE_FREE: return free_height(g, n->free);
    case NODE_REPEAT: return n->repeat->min ? height_of(g, n->repeat->node) + 1 : 1;
    default: return HEIGHT_NEVER;
    }
}

// Heights only fall, and each round settles at least one more. False: it takes too many rounds.
static bool settle_heights(struct nodes *g)
{
    bool changed = true;
    for (int round = 0; changed && round < MAX_ROUNDS; round++) {
        changed = false;
        for (uint32_t k = 1; k < g->n; k++) {
            uint32_t i = round % 2 ? k : g->n - k;  // both ways: what refers to what may be in either order
            uint32_t h = height(g, &g->list[i]);
            changed |= h < g->list[i].height;
            g->list[i].height = h < g->list[i].height ? h : g->list[i].height;
        }
    }
    return !changed;
}

err_code nodes_finish(struct nodes *g, uint32_t root, err *e)
{
    if (nodes_check(g, e))
        return ERR_TOO_LARGE;
    if (!settle_heights(g))
        return err_set(e, ERR_TOO_LARGE, "the grammar's parts refer to each other in too long chains");
    g->root = root;
    if (nodes_fits(g, root, 0))
        return ERR_OK;
    if (height_of(g, root) < HEIGHT_NEVER)
        return err_set(e, ERR_TOO_LARGE, "the shortest answer is nested more than %u deep", g->max_depth);
    return err_set(e, ERR_INVALID, "no answer can satisfy it");
}
