// machine.c - stepping. Scheduler thread (or whoever owns the machine).
//
// What a frame's numbers mean:
//     BYTES     a: state; c: TEXT written so far, when tracked
//     LITERALS  [a, b): texts that begin so; c: bytes of them written
//     STRING    a: state (below); b: characters
//     OBJECT    a: phase, white space << 8, class << 16 (0: declared, k: extras[k - 1]); b: next property, count << 16; c: SET
//     ARRAY     a: phase, white space << 8; b: count; c: SET
//     FREE      a: state; b: characters, where they are counted
//     SEQ       a: next part          REPEAT    a: times begun
//     TEXT      parent: all but the last byte; a: that byte
//     SET       parent: the others; a: TEXT; b: how many; c: class
//
// Threads have something at the top that reads bytes (BYTES, LITERALS, STRING, OBJECT, ARRAY), or nothing left at all. An
// automaton that may end ends at once in a further thread; the first one goes on if it can.
#include "engine/grammar/machine.h"

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "engine/grammar/freetext.h"
#include "engine/grammar/token_trie.h"
#include "engine/grammar/utf8step.h"

struct slot {
    struct frame f;
    uint32_t next;   // in its bucket
    uint32_t stamp;  // the step in which what stands on it was last finished
};

struct machine {
    const struct nodes *g;
    struct frames now, fresh;  // threads, then what is tried; beginnings
    uint32_t nthreads;
    struct slot *slots;
    uint32_t nslots, slots_cap;
    uint32_t *buckets, nbuckets;
    uint32_t compacted;        // slots in use after the last time
    uint32_t old_slots;        // while trying: those from before are below
    uint32_t lowest;
    uint32_t *empties, nempties, empties_cap;  // REPEATs begun in this step whose part may be empty
    uint32_t stamp, work, nesting;  // of this step
    size_t tried;              // of this mask
    bool trying, uncertain, broken;
};

// What one byte may cost: beginnings, and calls inside each other. Only grammars made to hurt need as much.
enum { MAX_WORK = 20000, MAX_NESTING = 2000 };

enum object_phase { OPEN, FIRST, NEXT, KEY, COLON, VALUE, IN, AFTER };
enum { PHASE = 0xFF, SPACE_SHIFT = 8, CLASS_SHIFT = 16, COUNT_SHIFT = 16, INDEX = 0xFFFF, MOST = 0xFFFF };

// ---- frames in memory

static uint32_t bucket_of(const struct machine *m, const struct frame *f)
{
    uint64_t h = f->parent * 0x9E3779B97F4A7C15ull ^ f->node * 0xC2B2AE3D27D4EB4Full;
    h = (h ^ h >> 29) + f->a * 0x165667B19E3779F9ull + f->b * 0x85EBCA77C2B2AE63ull + f->c * 0x27D4EB2F165667C5ull;
    return (uint32_t)((h ^ h >> 32) & (m->nbuckets - 1));
}

static void new_step(struct machine *m)
{
    m->nempties = m->work = 0;
    m->uncertain = false;
    if (++m->stamp)
        return;
    m->stamp = 1;
    for (uint32_t i = 0; i < m->nslots; i++)
        m->slots[i].stamp = 0;
}

static void rehash(struct machine *m, uint32_t nbuckets)
{
    free(m->buckets);
    m->nbuckets = nbuckets;
    m->buckets = mem_new(nbuckets * sizeof *m->buckets);
    for (uint32_t i = 1; i < m->nslots; i++) {
        uint32_t b = bucket_of(m, &m->slots[i].f);
        m->slots[i].next = m->buckets[b];
        m->buckets[b] = i;
    }
}

static bool same(const struct frame *x, const struct frame *y)
{
    return x->parent == y->parent && x->node == y->node && x->a == y->a && x->b == y->b && x->c == y->c &&
           x->depth == y->depth;
}

// The slot of a frame: the one that holds it, or a new one.
static uint32_t keep(struct machine *m, const struct frame *f)
{
    uint32_t b = bucket_of(m, f);
    for (uint32_t i = m->buckets[b]; i; i = m->slots[i].next)
        if (same(&m->slots[i].f, f))
            return i;
    if (m->nslots >= MACHINE_MAX_SLOTS) {
        m->broken = true;
        return 0;
    }
    if (m->nslots == m->slots_cap) {
        m->slots_cap *= 2;
        m->slots = mem_resize(m->slots, m->slots_cap * sizeof *m->slots);
        rehash(m, 2 * m->slots_cap);
        b = bucket_of(m, f);
    }
    uint32_t i = m->nslots++;
    m->slots[i] = (struct slot){*f, m->buckets[b], 0};
    m->buckets[b] = i;
    return i;
}

static void forget(struct machine *m, uint32_t nslots)
{
    while (m->nslots > nslots) {
        const struct slot *s = &m->slots[--m->nslots];
        m->buckets[bucket_of(m, &s->f)] = s->next;  // the newest is the first of its bucket
    }
}

static struct frame look(struct machine *m, uint32_t slot)
{
    m->lowest = slot < m->lowest ? slot : m->lowest;
    return m->slots[slot].f;
}

static void push(struct frames *l, const struct frame *f)
{
    if (l->n == l->cap) {
        l->cap = l->cap ? 2 * l->cap : 16;
        l->v = mem_resize(l->v, l->cap * sizeof *l->v);
    }
    l->v[l->n++] = *f;
}

// Appends to a list's part that begins at base, unless it is there.
static void out(struct machine *m, struct frames *l, uint32_t base, const struct frame *f)
{
    for (uint32_t i = base; i < l->n; i++)
        if (same(&l->v[i], f))
            return;
    if (l->n - base >= MACHINE_MAX_THREADS)
        m->broken = true;
    else
        push(l, f);
}

// ---- texts that must differ

static uint32_t used_count(const struct machine *m, uint32_t set)
{
    return set ? m->slots[set].f.b : 0;
}

// Whether the rest of a set is from before and must not be looked at.
static bool is_hidden(const struct machine *m, uint32_t set)
{
    return m->trying && set < m->old_slots;
}

static bool is_used(struct machine *m, uint32_t set, uint32_t text)
{
    m->uncertain = true;
    for (; set && !is_hidden(m, set); set = m->slots[set].f.parent)
        if (m->slots[set].f.a == text)
            return true;
    return false;
}

static bool begins(const struct machine *m, uint32_t text, uint32_t with)
{
    while (text > with)
        text = m->slots[text].f.parent;
    return text == with;
}

// How many texts of a class (from a state of its automaton, with what is written) are left.
static uint32_t left_of(struct machine *m, uint32_t set, uint32_t class, uint32_t text, uint32_t ends)
{
    if (ends == BYTEDFA_ENDLESS)
        return ends;
    m->uncertain = true;
    for (; set && !is_hidden(m, set) && ends > 0; set = m->slots[set].f.parent)
        ends -= m->slots[set].f.c == class && (!text || begins(m, m->slots[set].f.a, text));
    return ends;
}

static uint32_t add_to_set(struct machine *m, uint32_t set, uint32_t text, uint32_t class)
{
    return keep(m, &(struct frame){.parent = set, .node = MACHINE_SET, .a = text, .b = used_count(m, set) + 1, .c = class});
}

// ---- objects: which names may come

static uint32_t index_of(const struct frame *f)
{
    return f->b & INDEX;
}

static uint32_t count_of(const struct frame *f)
{
    return f->b >> COUNT_SHIFT;
}

static uint32_t class_left(struct machine *m, const struct object_def *o, const struct frame *f, uint32_t k)
{
    const struct extra *x = &o->extras[k];
    if (!nodes_fits(m->g, x->node, f->depth))
        return 0;
    return left_of(m, f->c, k, 0, m->g->list[x->name].bytes->ends[BYTEDFA_START]);
}

// Names that can still come at property `from` and behind it, undeclared ones included; no more than `enough`.
static uint32_t available(struct machine *m, const struct object_def *o, const struct frame *f, uint32_t from,
                          uint32_t enough)
{
    uint32_t n = 0;
    for (uint32_t p = from; p < o->nproperties && n < enough; p++)
        n += nodes_fits(m->g, o->properties[p].node, f->depth);
    for (uint32_t k = 0; k < o->nextras && n < enough; k++) {
        uint32_t left = class_left(m, o, f, k);
        n = left > enough - n ? enough : n + left;
    }
    return n;
}

static bool offers_property(struct machine *m, const struct object_def *o, const struct frame *f, uint32_t p)
{
    uint32_t first = index_of(f), last = o->next_required[first], count = count_of(f) + 1;
    if (p < first || p > last || count + o->required_from[p + 1] > o->max ||
        !nodes_fits(m->g, o->properties[p].node, f->depth))
        return false;
    return count >= o->min || available(m, o, f, p + 1, o->min - count) >= o->min - count;
}

static bool offers_extra(struct machine *m, const struct object_def *o, const struct frame *f, uint32_t k)
{
    uint32_t count = count_of(f) + 1;
    if (o->required_from[index_of(f)] || count > o->max || used_count(m, f->c) >= NODES_MAX_UNDECLARED)
        return false;
    if (class_left(m, o, f, k) == 0)
        return false;
    uint32_t need = o->min > count ? o->min - count : 0;
    return need == 0 || available(m, o, f, o->nproperties, need + 1) > need;
}

static bool may_have_property(struct machine *m, const struct object_def *o, const struct frame *f)
{
    uint32_t last = o->next_required[index_of(f)];
    for (uint32_t p = index_of(f); p < o->nproperties && p <= last; p++)
        if (offers_property(m, o, f, p))
            return true;
    return false;
}

static bool may_have_more(struct machine *m, const struct object_def *o, const struct frame *f)
{
    if (may_have_property(m, o, f))
        return true;
    for (uint32_t k = 0; k < o->nextras; k++)
        if (offers_extra(m, o, f, k))
            return true;
    return false;
}

// A name with one of the ranks [from, to) may come.
static bool may_be_named(struct machine *m, const struct frame *f, uint32_t from, uint32_t to)
{
    const struct object_def *o = m->g->list[f->node].object;
    uint32_t first = index_of(f), last = o->next_required[first];
    last = last < o->nproperties ? last : o->nproperties - 1;
    if (last - first < to - from) {
        for (uint32_t p = first; p <= last; p++)
            if (o->properties[p].rank >= from && o->properties[p].rank < to && offers_property(m, o, f, p))
                return true;
        return false;
    }
    for (uint32_t r = from; r < to; r++)
        if (offers_property(m, o, f, o->by_rank[r]))
            return true;
    return false;
}

// ---- beginning and finishing nodes

static void begin(struct machine *m, uint32_t node, uint32_t parent, uint32_t depth, struct frames *l, uint32_t base);
static void finish(struct machine *m, uint32_t parent, struct frames *l, uint32_t base);

static void begin_part(struct machine *m, const struct frame *seq, uint32_t i, struct frames *l, uint32_t base)
{
    const struct list_def *d = m->g->list[seq->node].list;
    if (i == d->n) {
        finish(m, seq->parent, l, base);
        return;
    }
    struct frame f = *seq;
    f.a = i + 1;
    // The last part takes the sequence's place, so that what repeats by calling itself at its end needs no more room.
    uint32_t parent = i + 1 == d->n ? seq->parent : keep(m, &f);
    begin(m, d->nodes[i], parent, i + 1 == d->n ? seq->depth - 1 : seq->depth, l, base);
}

static bool is_empty_round(const struct machine *m, uint32_t slot)
{
    for (uint32_t i = 0; i < m->nempties; i++)
        if (m->empties[i] == slot)
            return true;
    return false;
}

static void note_round(struct machine *m, uint32_t slot)
{
    if (m->nempties == m->empties_cap) {
        m->empties_cap = m->empties_cap ? 2 * m->empties_cap : 8;
        m->empties = mem_resize(m->empties, m->empties_cap * sizeof *m->empties);
    }
    m->empties[m->nempties++] = slot;
}

// After f.a rounds: another one, or what comes behind.
static void begin_round(struct machine *m, const struct frame *repeat, struct frames *l, uint32_t base)
{
    const struct repeat_def *d = m->g->list[repeat->node].repeat;
    uint32_t min = d->may_be_empty ? 0 : d->min, stop = d->max == NODES_NO_LIMIT ? min : d->max;
    if (repeat->a < d->max && nodes_fits(m->g, d->node, repeat->depth)) {
        struct frame f = *repeat;
        f.a = f.a < stop ? f.a + 1 : stop;
        uint32_t slot = keep(m, &f);
        if (!d->may_be_empty || !is_empty_round(m, slot)) {
            if (d->may_be_empty)
                note_round(m, slot);
            begin(m, d->node, slot, f.depth, l, base);
        }
    }
    if (repeat->a >= min)
        finish(m, repeat->parent, l, base);
}

static void begin_node(struct machine *m, uint32_t node, uint32_t parent, uint32_t depth, struct frames *l, uint32_t base)
{
    const struct node *n = &m->g->list[node];
    struct frame f = {.parent = parent, .node = node, .depth = depth};
    switch (n->kind) {
    case NODE_ALT:
        for (uint32_t i = 0; i < n->list->n; i++)
            begin(m, n->list->nodes[i], parent, depth, l, base);
        return;
    case NODE_SEQ:
        f.depth++;
        begin_part(m, &f, 0, l, base);
        return;
    case NODE_REPEAT:
        f.depth++;
        begin_round(m, &f, l, base);
        return;
    case NODE_BYTES:
        f.a = BYTEDFA_START;
        if (n->bytes->flags[BYTEDFA_START] & BYTEDFA_ACCEPT)
            finish(m, parent, l, base);
        if (n->bytes->flags[BYTEDFA_START] & BYTEDFA_MORE)
            out(m, l, base, &f);
        return;
    case NODE_LITERALS:
        f.b = n->literals->n;
        if (n->literals->lens[0] == 0) {
            finish(m, parent, l, base);
            if (n->literals->n == 1)
                return;
        }
        break;
    case NODE_FREE:
        f.a = BYTEDFA_START;
        break;
    case NODE_OBJECT:
    case NODE_ARRAY:
        f.depth++;
        break;
    default:
        break;
    }
    out(m, l, base, &f);
}

static void begin(struct machine *m, uint32_t node, uint32_t parent, uint32_t depth, struct frames *l, uint32_t base)
{
    if (m->broken || !nodes_fits(m->g, node, depth))
        return;
    m->broken = ++m->work > MAX_WORK || m->nesting > MAX_NESTING;
    m->nesting++;
    begin_node(m, node, parent, depth, l, base);
    m->nesting--;
}

// What stands on `parent` is finished. A second time in the same step would bring nothing new.
static void finish(struct machine *m, uint32_t parent, struct frames *l, uint32_t base)
{
    if (m->broken)
        return;
    if (!parent) {
        out(m, l, base, &(struct frame){0});
        return;
    }
    if (m->slots[parent].stamp == m->stamp)
        return;
    m->slots[parent].stamp = m->stamp;
    struct frame f = look(m, parent);
    switch (m->g->list[f.node].kind) {
    case NODE_SEQ:
        begin_part(m, &f, f.a, l, base);
        return;
    case NODE_REPEAT:
        if (!m->g->list[f.node].repeat->may_be_empty || !is_empty_round(m, parent))
            begin_round(m, &f, l, base);
        return;
    default:  // OBJECT, ARRAY: a value is in
        f.a = AFTER;
        out(m, l, base, &f);
    }
}

// ---- what reads bytes

// White space between the parts of objects and arrays: none, one space, or a line end and an indent of at most two spaces
// a level. 0: none yet; 1: a space; 2 + n: a line end and n spaces.
static bool take_space(const struct machine *m, struct frame *f, uint8_t byte)
{
    uint32_t at = f->a >> SPACE_SHIFT & PHASE, limit = 2 * (f->depth < 16 ? f->depth : 16);
    if (m->g->compact || (byte != ' ' && byte != '\n'))
        return false;
    if (byte == '\n' && at == 0)
        at = 2;
    else if (byte == ' ' && (at == 0 || (at >= 2 && at - 2 < limit)))
        at++;
    else
        return false;
    f->a = (f->a & ~((uint32_t)PHASE << SPACE_SHIFT)) | at << SPACE_SHIFT;
    return true;
}

static void step(struct machine *m, const struct frame *f, uint8_t byte, struct frames *l, uint32_t base);

// A value begins with this byte, on top of f.
static void begin_value(struct machine *m, const struct frame *f, uint32_t node, uint8_t byte, struct frames *l,
                        uint32_t base)
{
    struct frame in = *f;
    in.a = IN;
    uint32_t parent = keep(m, &in), first = m->fresh.n;
    begin(m, node, parent, f->depth, &m->fresh, first);
    uint32_t n = m->fresh.n;
    for (uint32_t i = first; i < n; i++) {
        struct frame leaf = m->fresh.v[i];
        if (leaf.parent == parent)  // else something empty: JSON values are not
            step(m, &leaf, byte, l, base);
    }
    m->fresh.n = first;
}

static void begin_name(struct machine *m, const struct frame *f, uint8_t byte, struct frames *l, uint32_t base)
{
    const struct object_def *o = m->g->list[f->node].object;
    struct frame key = *f;
    key.a = KEY;
    if (may_have_property(m, o, f)) {
        struct frame leaf = {.node = o->names, .b = o->nproperties, .depth = f->depth, .parent = keep(m, &key)};
        step(m, &leaf, byte, l, base);
    }
    for (uint32_t k = 0; k < o->nextras; k++) {
        if (!offers_extra(m, o, f, k))
            continue;
        key.a = KEY | (k + 1) << CLASS_SHIFT;
        struct frame leaf = {.node = o->extras[k].name, .a = BYTEDFA_START, .depth = f->depth, .parent = keep(m, &key)};
        step(m, &leaf, byte, l, base);
    }
}

static void step_object(struct machine *m, const struct frame *f, uint8_t byte, struct frames *l, uint32_t base)
{
    const struct object_def *o = m->g->list[f->node].object;
    uint32_t phase = f->a & PHASE, class = f->a >> CLASS_SHIFT;
    struct frame to = *f;
    if (phase == OPEN || phase == COLON) {
        to.a = phase == OPEN ? FIRST : VALUE | class << CLASS_SHIFT;
        if (byte == (phase == OPEN ? '{' : ':'))
            out(m, l, base, &to);
        return;
    }
    if (take_space(m, &to, byte)) {
        out(m, l, base, &to);
    } else if (phase == VALUE) {
        to.a = 0;
        begin_value(m, &to, class ? o->extras[class - 1].node : o->properties[index_of(f) - 1].node, byte, l, base);
    } else if (byte == '"' && (phase == FIRST || phase == NEXT)) {
        begin_name(m, f, byte, l, base);
    } else if (byte == '}' && phase != NEXT && count_of(f) >= o->min && !o->required_from[index_of(f)]) {
        finish(m, f->parent, l, base);
    } else if (byte == ',' && phase == AFTER && may_have_more(m, o, f)) {
        to.a = NEXT;
        out(m, l, base, &to);
    }
}

// Beyond what matters it does not count, so that more objects are in the same state.
static void counted(const struct object_def *o, struct frame *f, uint32_t index)
{
    uint32_t count = count_of(f), stop = o->max == NODES_NO_LIMIT && o->min < MOST ? o->min : MOST;
    f->b = index | (count < stop ? count + 1 : stop) << COUNT_SHIFT;
}

// A declared name is written.
static void named(struct machine *m, uint32_t parent, uint32_t rank, struct frames *l, uint32_t base)
{
    struct frame f = look(m, parent);
    const struct object_def *o = m->g->list[f.node].object;
    counted(o, &f, o->by_rank[rank] + 1);
    f.a = COLON;
    out(m, l, base, &f);
}

// A tracked text is written: an undeclared name, or an item that must be unique.
static void tracked_end(struct machine *m, uint32_t parent, uint32_t text, struct frames *l, uint32_t base)
{
    struct frame f = look(m, parent);
    if (is_used(m, f.c, text))
        return;
    const struct node *n = &m->g->list[f.node];
    uint32_t class = n->kind == NODE_OBJECT ? f.a >> CLASS_SHIFT : 0;
    f.c = add_to_set(m, f.c, text, class ? class - 1 : 0);
    if (n->kind == NODE_OBJECT) {
        counted(n->object, &f, n->object->nproperties);
        f.a = COLON | class << CLASS_SHIFT;
    } else {
        f.a = AFTER;
    }
    out(m, l, base, &f);
}

static uint32_t item_of(const struct array_def *a, uint32_t i)
{
    return i >= a->max ? 0 : i < a->nprefix ? a->prefix[i] : a->rest;
}

static bool may_have_item(struct machine *m, const struct array_def *a, const struct frame *f)
{
    uint32_t node = item_of(a, f->b);
    if (!nodes_fits(m->g, node, f->depth))
        return false;
    if (!a->unique)
        return true;
    return used_count(m, f->c) < NODES_MAX_UNDECLARED &&
           left_of(m, f->c, 0, 0, m->g->list[node].bytes->ends[BYTEDFA_START]) > 0;
}

static void begin_item(struct machine *m, const struct array_def *a, const struct frame *f, uint8_t byte,
                       struct frames *l, uint32_t base)
{
    if (!may_have_item(m, a, f))
        return;
    struct frame in = *f;
    // Beyond what matters it does not count, so that all later items are in the same state.
    uint32_t stop = a->max != NODES_NO_LIMIT ? a->max : a->nprefix > a->min ? a->nprefix : a->min;
    in.b = f->b < stop ? f->b + 1 : stop;
    begin_value(m, &in, item_of(a, f->b), byte, l, base);
}

static void step_array(struct machine *m, const struct frame *f, uint8_t byte, struct frames *l, uint32_t base)
{
    const struct array_def *a = m->g->list[f->node].array;
    uint32_t phase = f->a & PHASE;
    struct frame to = *f;
    if (phase == OPEN) {
        to.a = FIRST;
        if (byte == '[')
            out(m, l, base, &to);
    } else if (take_space(m, &to, byte)) {
        out(m, l, base, &to);
    } else if (byte == ']' && phase != NEXT && f->b >= a->min) {
        finish(m, f->parent, l, base);
    } else if (phase == AFTER) {
        to.a = NEXT;
        if (byte == ',' && may_have_item(m, a, f))
            out(m, l, base, &to);
    } else if (byte != ']') {
        begin_item(m, a, f, byte, l, base);
    }
}

// A state of tracked text stays alive only if some end of it is not used.
static bool tracked_alive(struct machine *m, const struct frame *to, const struct bytedfa *d)
{
    if (d->ends[to->a] == BYTEDFA_ENDLESS)
        return true;
    struct frame parent = look(m, to->parent);
    uint32_t class = m->g->list[parent.node].kind == NODE_OBJECT ? (parent.a >> CLASS_SHIFT) - 1 : 0;
    return left_of(m, parent.c, class, to->c, d->ends[to->a]) > 0;
}

static void step_bytes(struct machine *m, const struct frame *f, uint8_t byte, struct frames *l, uint32_t base)
{
    const struct node *n = &m->g->list[f->node];
    struct frame to = *f;
    to.a = bytedfa_next(n->bytes, f->a, byte);
    if (to.a == BYTEDFA_DEAD)
        return;
    if (n->tracked) {
        to.c = machine_write(m, f->c, byte);
        if (!tracked_alive(m, &to, n->bytes))
            return;
    }
    uint8_t flags = n->bytes->flags[to.a];
    if (flags & BYTEDFA_MORE)
        out(m, l, base, &to);
    if (!(flags & BYTEDFA_ACCEPT))
        return;
    if (n->tracked)
        tracked_end(m, f->parent, to.c, l, base);
    else
        finish(m, f->parent, l, base);
}

// Where characters are counted there must be a way to the end: either it has begun, and what is in front of it fits, or
// another character may come (then the end can begin anew behind it).
enum machine_told machine_free_text(const struct free_def *d, struct frame *f, uint8_t byte)
{
    f->a = bytedfa_next(d->dfa, f->a, byte);
    if (f->a == BYTEDFA_DEAD || !d->begun)
        return f->a == BYTEDFA_DEAD ? TOLD_NO : d->ends[f->a] ? TOLD_END : TOLD_YES;
    uint32_t begun = d->begun[f->a];
    if (begun == FREETEXT_INSIDE)
        return f->b < d->max ? TOLD_YES : TOLD_NO;
    f->b += byte != TOKEN_TRIE_MARK;
    bool fits = f->b - begun >= d->min && f->b - begun <= d->max;
    if (d->ends[f->a])
        return fits ? TOLD_END : TOLD_NO;
    return fits || (d->dfa->flags[f->a] & BYTEDFA_ACCEPT && f->b <= d->max) ? TOLD_YES : TOLD_NO;
}

static void step_free(struct machine *m, const struct frame *f, uint8_t byte, struct frames *l, uint32_t base)
{
    const struct free_def *d = m->g->list[f->node].free;
    struct frame to = *f;
    enum machine_told told = machine_free_text(d, &to, byte);
    if (told == TOLD_END)
        begin(m, d->targets[d->ends[to.a] - 1], f->parent, f->depth, l, base);
    else if (told == TOLD_YES)
        out(m, l, base, &to);
}

static uint32_t first_with(const struct literals *s, uint32_t from, uint32_t to, uint32_t at, int byte)
{
    while (from < to) {
        uint32_t mid = from + (to - from) / 2;
        int c = s->lens[mid] > at ? (uint8_t)s->texts[mid][at] : -1;
        if (c < byte)
            from = mid + 1;
        else
            to = mid;
    }
    return from;
}

static void step_literals(struct machine *m, const struct frame *f, uint8_t byte, struct frames *l, uint32_t base)
{
    const struct literals *s = m->g->list[f->node].literals;
    struct frame to = *f, parent = {0};
    to.a = first_with(s, f->a, f->b, f->c, byte);
    to.b = first_with(s, to.a, f->b, f->c, byte + 1);
    to.c++;
    if (to.a == to.b)
        return;
    if (f->parent)
        parent = look(m, f->parent);
    bool name = m->g->list[parent.node].kind == NODE_OBJECT && (parent.a & PHASE) == KEY;
    if (name && !may_be_named(m, &parent, to.a, to.b))
        return;
    bool ends = s->lens[to.a] == to.c;
    if (to.b - to.a > ends)
        out(m, l, base, &to);
    if (ends && name)
        named(m, f->parent, to.a, l, base);
    else if (ends)
        finish(m, f->parent, l, base);
}

// States of a string: before its quote, inside, after a backslash, after \u, \u0, \u00, \u000 and \u001, then inside a
// character (utf8step.h).
enum { S_START, S_IN = MACHINE_IN_STRING, S_ESCAPE, S_U, S_U0, S_U00, S_U000, S_U001, S_TAIL };
static uint32_t string_rest(uint32_t at)
{
    return at == UTF8STEP_BETWEEN ? S_IN : at == UTF8STEP_BAD ? S_START : S_TAIL + at;
}

// The state after a byte inside a string; S_START: none. S_IN: a character is complete.
static uint32_t string_next(uint32_t state, uint8_t byte)
{
    switch (state) {
    case S_IN:
        return byte == '\\' ? S_ESCAPE : byte < 0x20 || byte == '"' ? S_START : string_rest(utf8step(UTF8STEP_BETWEEN, byte));
    case S_ESCAPE: return byte == 'u' ? S_U : byte && strchr("\"\\bfnrt", byte) ? S_IN : S_START;
    case S_U: return byte == '0' ? S_U0 : S_START;
    case S_U0: return byte == '0' ? S_U00 : S_START;
    case S_U00: return byte == '0' ? S_U000 : byte == '1' ? S_U001 : S_START;
    // What has a short escape has only that.
    case S_U000: return byte && strchr("01234567be", byte) ? S_IN : byte == 'f' ? S_IN : S_START;
    case S_U001: return byte && strchr("0123456789abcdef", byte) ? S_IN : S_START;
    default: break;
    }
    return string_rest(utf8step(state - S_TAIL, byte));
}

static void step_string(struct machine *m, const struct frame *f, uint8_t byte, struct frames *l, uint32_t base)
{
    const struct string_def *d = m->g->list[f->node].string;
    struct frame to = *f;
    if (f->a == S_START) {
        to.a = S_IN;
        if (byte == '"')
            out(m, l, base, &to);
        return;
    }
    if (f->a == S_IN && byte == '"') {
        if (f->b >= d->min)
            finish(m, f->parent, l, base);
        return;
    }
    if (f->a == S_IN && f->b == d->max)
        return;
    to.a = string_next(f->a, byte);
    if (to.a == S_START)
        return;
    uint32_t stop = d->max == NODES_NO_LIMIT ? d->min : d->max;
    if (to.a == S_IN && to.b < stop)
        to.b++;
    out(m, l, base, &to);
}

static void step(struct machine *m, const struct frame *f, uint8_t byte, struct frames *l, uint32_t base)
{
    if (m->broken)
        return;
    switch (m->g->list[f->node].kind) {
    case NODE_BYTES: step_bytes(m, f, byte, l, base); return;
    case NODE_LITERALS: step_literals(m, f, byte, l, base); return;
    case NODE_STRING: step_string(m, f, byte, l, base); return;
    case NODE_FREE: step_free(m, f, byte, l, base); return;
    case NODE_OBJECT: step_object(m, f, byte, l, base); return;
    case NODE_ARRAY: step_array(m, f, byte, l, base); return;
    default: return;  // everything is written
    }
}

// Quickly: a byte that cannot come here, whatever the rest.
static bool is_out_of_place(const struct node *n, const struct frame *f, uint8_t byte)
{
    uint32_t phase = f->a & PHASE;
    switch (n->kind) {
    case NODE_LITERALS: return f->b - f->a == 1 && (uint8_t)n->literals->texts[f->a][f->c] != byte;
    case NODE_OBJECT:
        return phase == COLON ? byte != ':'
             : phase == OPEN  ? byte != '{'
             : phase != VALUE && byte != ' ' && byte != '\n' && byte != '"' && byte != ',' && byte != '}';
    case NODE_ARRAY:
        return phase == OPEN ? byte != '[' : phase == AFTER && byte != ' ' && byte != '\n' && byte != ',' && byte != ']';
    default: return false;
    }
}

// A lone automaton or string that goes on with this byte: what most steps of a mask are. False: it is not that simple.
static bool step_alone(struct machine *m, uint32_t first, uint8_t byte, uint32_t *ret_n)
{
    struct frame f = m->now.v[first];
    const struct node *n = &m->g->list[f.node];
    *ret_n = 0;
    if (is_out_of_place(n, &f, byte))
        return true;
    if (n->kind == NODE_STRING && f.a != S_START) {
        bool counts = n->string->max != NODES_NO_LIMIT || f.b < n->string->min;
        uint32_t to = f.a == S_IN && (byte == '"' || counts) ? S_IN : string_next(f.a, byte);
        if (to == S_IN && (counts || byte == '"'))
            return false;
        f.a = to;
        *ret_n = to != S_START;
        if (*ret_n)
            push(&m->now, &f);
        return true;
    }
    if (n->kind == NODE_FREE) {
        enum machine_told told = machine_free_text(n->free, &f, byte);
        *ret_n = told == TOLD_YES;
        if (*ret_n)
            push(&m->now, &f);
        return told != TOLD_END;
    }
    if (n->kind != NODE_BYTES || n->tracked)
        return false;
    f.a = bytedfa_next(n->bytes, f.a, byte);
    if (f.a != BYTEDFA_DEAD && n->bytes->flags[f.a] & BYTEDFA_ACCEPT)
        return false;
    *ret_n = f.a != BYTEDFA_DEAD;
    if (*ret_n)
        push(&m->now, &f);
    return true;
}

// Each of the threads that come out was compared with those before it.
static void count_tried(struct machine *m, uint32_t n, uint32_t nout)
{
    m->tried += n + m->work + (size_t)nout * nout / 16;
    m->broken |= m->tried > MACHINE_MAX_TRIED;
}

uint32_t machine_step(struct machine *m, uint32_t first, uint32_t n, uint8_t byte, bool *uncertain)
{
    uint32_t base = m->now.n, alone;
    *uncertain = false;
    if (n == 1 && step_alone(m, first, byte, &alone))
        return alone;
    new_step(m);
    for (uint32_t i = 0; i < n; i++) {
        struct frame f = m->now.v[first + i];
        step(m, &f, byte, &m->now, base);
    }
    *uncertain = m->uncertain;
    if (m->trying)
        count_tried(m, n, m->now.n - base);
    return m->broken ? 0 : m->now.n - base;
}

// ---- the whole

struct machine *machine_at(const struct nodes *g, uint32_t node)
{
    struct machine *m = mem_new(sizeof *m);
    m->g = g;
    m->slots_cap = 64;
    m->slots = mem_new(m->slots_cap * sizeof *m->slots);
    m->nslots = 1;
    rehash(m, 128);
    new_step(m);
    begin(m, node, 0, 0, &m->now, 0);
    m->nthreads = m->now.n;
    m->compacted = m->nslots;
    return m;
}

struct machine *machine_new(const struct nodes *g)
{
    return machine_at(g, g->root);
}

static void *duplicate(const void *p, size_t used, size_t bytes)
{
    return memcpy(mem_new(bytes), p, used);
}

struct machine *machine_copy(const struct machine *from)
{
    struct machine *m = mem_new(sizeof *m);
    *m = *from;
    m->now = (struct frames){.n = from->nthreads, .cap = from->nthreads + 1};
    m->now.v = duplicate(from->now.v, from->nthreads * sizeof *m->now.v, m->now.cap * sizeof *m->now.v);
    m->fresh = (struct frames){0};
    m->slots = duplicate(from->slots, from->nslots * sizeof *m->slots, m->slots_cap * sizeof *m->slots);
    m->buckets = duplicate(from->buckets, m->nbuckets * sizeof *m->buckets, m->nbuckets * sizeof *m->buckets);
    m->empties = NULL;
    m->empties_cap = m->nempties = 0;
    return m;
}

void machine_free(struct machine *m)
{
    if (!m)
        return;
    free(m->now.v);
    free(m->fresh.v);
    free(m->slots);
    free(m->buckets);
    free(m->empties);
    free(m);
}

// Which of a frame's numbers are slots.
static uint32_t *second_slot(const struct machine *m, struct frame *f)
{
    if (f->node == MACHINE_SET)
        return &f->a;
    if (f->node == MACHINE_TEXT)
        return NULL;
    const struct node *n = &m->g->list[f->node];
    bool has = n->kind == NODE_OBJECT || n->kind == NODE_ARRAY || (n->kind == NODE_BYTES && n->tracked);
    return has ? &f->c : NULL;
}

// Only what the threads stand on is kept. Slots refer to lower ones, so one pass down marks and one pass up moves.
static void compact(struct machine *m)
{
    uint32_t *to = mem_new(m->nslots * sizeof *to), n = 1;
    for (uint32_t i = 0; i < m->nthreads; i++) {
        uint32_t *c = second_slot(m, &m->now.v[i]);
        to[m->now.v[i].parent] = 1;
        if (c)
            to[*c] = 1;
    }
    for (uint32_t i = m->nslots; i-- > 1;) {
        struct frame *f = &m->slots[i].f;
        uint32_t *c = to[i] ? second_slot(m, f) : NULL;
        if (!to[i])
            continue;
        to[f->parent] = 1;
        if (c)
            to[*c] = 1;
    }
    to[0] = 0;
    for (uint32_t i = 1; i < m->nslots; i++) {
        if (!to[i])
            continue;
        struct frame f = m->slots[i].f;
        uint32_t *c = second_slot(m, &f);
        f.parent = to[f.parent];
        if (c)
            *c = to[*c];
        to[i] = n;
        m->slots[n++].f = f;
    }
    for (uint32_t i = 0; i < m->nthreads; i++) {
        struct frame *f = &m->now.v[i];
        uint32_t *c = second_slot(m, f);
        f->parent = to[f->parent];
        if (c)
            *c = to[*c];
    }
    free(to);
    m->nslots = m->compacted = n;
    rehash(m, m->nbuckets);
}

// Steps over a text from the threads; leaves the result behind them. 0: not allowed.
static uint32_t walk(struct machine *m, const char *text, size_t len, uint32_t *ret_first)
{
    uint32_t first = 0, n = m->nthreads;
    bool uncertain;
    for (size_t i = 0; i < len && n > 0; i++) {
        uint32_t next = m->now.n;
        n = machine_step(m, first, n, (uint8_t)text[i], &uncertain);
        first = next;
    }
    *ret_first = first;
    return n;
}

bool machine_text(struct machine *m, const char *text, size_t len)
{
    uint32_t first, n;
    if (m->broken)
        return false;
    m->now.n = m->nthreads;
    n = walk(m, text, len, &first);
    if (n > 0) {
        memmove(m->now.v, m->now.v + first, n * sizeof *m->now.v);
        m->nthreads = n;
    }
    m->now.n = m->nthreads;
    if (m->nslots > 2 * m->compacted + 1024)
        compact(m);
    return n > 0;
}

bool machine_allows(struct machine *m, const char *text, size_t len)
{
    uint32_t first, slots = m->nslots;
    m->now.n = m->nthreads;
    bool ok = walk(m, text, len, &first) > 0;
    m->now.n = m->nthreads;
    forget(m, slots);
    return ok;
}

static bool is_end(const struct machine *m, const struct frame *f)
{
    const struct node *n = &m->g->list[f->node];
    return !f->node || (n->kind == NODE_FREE && n->free->may_end && n->free->dfa->flags[f->a] & BYTEDFA_ACCEPT);
}

bool machine_ends(const struct machine *m)
{
    for (uint32_t i = 0; i < m->nthreads; i++)
        if (is_end(m, &m->now.v[i]))
            return true;
    return false;
}

bool machine_goes_on(const struct machine *m)
{
    for (uint32_t i = 0; i < m->nthreads; i++)
        if (m->now.v[i].node)
            return true;
    return false;
}

bool machine_broken(const struct machine *m)
{
    return m->broken;
}

const struct frame *machine_threads(const struct machine *m, uint32_t *ret_n)
{
    *ret_n = m->nthreads;
    return m->now.v;
}

const struct frame *machine_slot(const struct machine *m, uint32_t slot)
{
    return &m->slots[slot].f;
}

void machine_try(struct machine *m)
{
    m->now.n = m->nthreads;
    m->trying = true;
    m->tried = 0;
    m->old_slots = m->nslots;
    m->lowest = m->nslots;
}

void machine_push(struct machine *m, const struct frame *f)
{
    push(&m->now, f);
}

uint32_t machine_write(struct machine *m, uint32_t text, uint8_t byte)
{
    return keep(m, &(struct frame){.parent = text, .node = MACHINE_TEXT, .a = byte});
}

void machine_drop(struct machine *m, uint32_t first)
{
    m->now.n = first;
}

uint32_t machine_lowest(const struct machine *m)
{
    return m->lowest;
}

void machine_tried(struct machine *m)
{
    m->now.n = m->nthreads;
    m->trying = false;
    forget(m, m->old_slots);
}

bool machine_has_sets(const struct machine *m)
{
    for (uint32_t i = 0; i < m->nthreads; i++) {
        struct frame f = m->now.v[i];
        for (;; f = m->slots[f.parent].f) {
            const uint32_t *c = second_slot(m, &f);
            if (c && *c && m->g->list[f.node].kind != NODE_BYTES)
                return true;
            if (!f.parent)
                break;
        }
    }
    return false;
}
