// token_walk.c - see the header. Scheduler thread, and prep threads.
//
// Most of a vocabulary is never looked at. Inside a string the plain tokens are known and only the rest is walked. In free
// text, and where a name begins, nearly all tokens are presumed and the walk takes away and adds; a state that stays
// where it is with every kind of byte in a subtree takes the subtree whole. A lone automaton is stepped in its table.
#include "engine/grammar/token_walk.h"

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "engine/grammar/utf8step.h"

enum { STAYS = 512, MAX_RUN = 32, MAX_SPREAD = 8, SMALL = 6, LARGE = 24, MAX_DEPTH = 200 };

// Which kinds of bytes can follow a state of an automaton whatever they are: any number of them (stays), or `run`.
// Remembered while a mask is made.
struct stay {
    const struct bytedfa *dfa;
    uint32_t state, run;
    uint64_t stays, runs;
    bool has_run, stops;       // stops: no run + 1 of them can
};

struct level {
    uint32_t first, n;         // frames
    bool uncertain;
    bool pure;                 // all bytes so far are of presumed kinds
    const struct node *alone;  // of a lone frame that is stepped here; NULL: the machine steps
    bool pushed;               // that frame is in the machine
    bool written;              // its text is, where it is tracked
    uint8_t byte;              // the last one
    struct frame frame;
};

struct place {
    uint32_t state, run;       // any `run` bytes of these kinds can follow
    uint64_t kinds;
    bool sure;                 // what comes up to here is of ASCII, and presumed
    bool stops;                // no more than `run` can, and just those are presumed
};

struct walk {
    struct token_walk *w;
    const struct token_tree *tree;
    const uint64_t *presumed;  // mask; NULL: nothing
    uint64_t kinds;            // tokens of these alone are presumed,
    uint32_t most;             // and of so many bytes
    bool stops;                // a lone automaton allows no longer ones of these kinds
    bool near;                 // as token_walk's
    bool counted;              // plain tokens are presumed by their characters: in a free text that counts these
    bool plain_root[256];      // all plain tokens that begin so are allowed
    struct level *levels;
    struct place *places;      // of a lone automaton, by depth
    struct stay *stays;        // [STAYS]; NULL: not asked yet
    const struct bytedfa *classed;  // whose classes these are: bytes of each kind, as classes of the automaton
    uint64_t classes[BYTES_KINDS][4], never;  // kinds that lead nowhere from any state
};

void token_walk_note(struct token_walk *w, int32_t id)
{
    if (w->nuncertain == w->cap) {
        w->cap = w->cap ? 2 * w->cap : 64;
        w->uncertain = mem_resize(w->uncertain, w->cap * sizeof *w->uncertain);
    }
    w->uncertain[w->nuncertain++] = id;
}

// ---- kinds of bytes

static uint64_t plain_kinds(void)
{
    uint64_t no = 0;
    for (const char *p = "\"\\\n\t\r\x01\xFF"; *p; p++)
        no |= TOKEN_TRIE_KIND(token_trie_kind((uint8_t)*p));
    return ~(no | TOKEN_TRIE_KIND(BYTES_BROKEN));
}

static void classify(struct walk *k, const struct bytedfa *d)
{
    if (k->classed == d)
        return;
    k->classed = d;
    memset(k->classes, 0, sizeof k->classes);
    for (int b = 0; b < 0x100; b = b == 0x7F ? TOKEN_TRIE_MARK : b + 1)
        k->classes[token_trie_kind((uint8_t)b)][d->classes[b] / 64] |= 1ull << d->classes[b] % 64;
    uint64_t ever = 0;
    for (int b = 0; b < 0x100; b++)
        if (!(d->never[b / 64] >> b % 64 & 1))
            ever |= TOKEN_TRIE_KIND(token_trie_kind((uint8_t)b));
    if (ever & TOKEN_TRIE_KIND(BYTES_LONG))
        ever |= TOKEN_TRIE_KIND(BYTES_BROKEN);
    k->never = ~ever;
}

// Whether all bytes of a kind lead from a state to `to`, or, where that is 0, anywhere from where it goes on; those places
// are added to *spread.
static bool leads(const struct walk *k, const struct bytedfa *d, uint32_t state, unsigned kind, uint32_t to,
                  uint32_t *spread, uint32_t *n)
{
    for (uint32_t i = 0; i < 4; i++)
        for (uint64_t x = k->classes[kind][i]; x; x &= x - 1) {
            uint32_t next = d->next[(size_t)state * d->nclasses + 64 * i + (uint32_t)__builtin_ctzll(x)], j = 0;
            if (next == BYTEDFA_DEAD || (to && next != to) || (!to && !(d->flags[next] & BYTEDFA_MORE)))
                return false;
            while (!to && j < *n && spread[j] != next)
                j++;
            if (to || j < *n)
                continue;
            if (*n == MAX_SPREAD)
                return false;
            spread[(*n)++] = next;
        }
    return true;
}

static uint64_t find_stays(const struct walk *k, const struct bytedfa *d, uint32_t state)
{
    uint64_t kinds = 0;
    for (unsigned kind = 0; kind < BYTES_KINDS; kind++)
        if (kind == BYTES_LONG ? d->flags[state] & BYTEDFA_LONG : kind != BYTES_BROKEN && leads(k, d, state, kind, state, NULL, NULL))
            kinds |= TOKEN_TRIE_KIND(kind);
    return kinds;
}

static bool all_dead(const struct walk *k, const struct stay *s, const uint32_t *at, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        for (uint64_t x = s->runs; x; x &= x - 1)
            for (uint32_t w = 0; w < 4; w++)
                for (uint64_t y = k->classes[__builtin_ctzll(x)][w]; y; y &= y - 1)
                    if (s->dfa->next[(size_t)at[i] * s->dfa->nclasses + 64 * w + (uint32_t)__builtin_ctzll(y)] != BYTEDFA_DEAD)
                        return false;
    return true;
}

// Kinds of which any `run` bytes can follow. Where some kinds can no more and others can, those are left out and it is
// tried again; where none can, that is the end of the run.
static void find_run(const struct walk *k, struct stay *s)
{
    uint64_t no = TOKEN_TRIE_KIND(BYTES_LONG) | TOKEN_TRIE_KIND(BYTES_BROKEN) | TOKEN_TRIE_KIND(BYTES_MARK);
    s->has_run = true;
    s->runs = ((1ull << BYTES_KINDS) - 1) & ~no;
    uint32_t at[MAX_SPREAD] = {s->state}, n = 1;
    for (s->run = 0; s->run < MAX_RUN && s->runs;) {
        uint32_t next[MAX_SPREAD], nnext = 0;
        uint64_t dead = 0;
        for (uint64_t x = s->runs; x; x &= x - 1)
            for (uint32_t i = 0; i < n; i++)
                if (!leads(k, s->dfa, at[i], (unsigned)__builtin_ctzll(x), 0, next, &nnext))
                    dead |= x & -x;
        if (dead == s->runs) {
            s->stops = all_dead(k, s, at, n);
            return;
        }
        if (dead) {
            s->runs &= ~dead;
            s->run = 0;
            n = 1;
            at[0] = s->state;
            continue;
        }
        memcpy(at, next, nnext * sizeof *at);
        n = nnext;
        s->run++;
    }
}

static struct stay *stay_of(struct walk *k, const struct bytedfa *d, uint32_t state)
{
    if (!k->stays)
        k->stays = mem_new(STAYS * sizeof *k->stays);
    struct stay *s = &k->stays[(state * 0x9E3779B1u >> 16 ^ (uintptr_t)d >> 6) % STAYS];
    if (s->dfa == d && s->state == state)
        return s;
    classify(k, d);
    *s = (struct stay){.dfa = d, .state = state, .stays = find_stays(k, d, state)};
    return s;
}

// Whether a thread certainly takes all bytes of some kinds, so many at most.
static bool takes(struct walk *k, const struct frame *f, uint64_t kinds, uint32_t reach, bool large)
{
    const struct node *n = &k->w->g->list[f->node];
    struct stay *s;
    switch (n->kind) {
    case NODE_FREE:
        if (n->free->begun && (f->b > n->free->max || n->free->max - f->b < reach))
            return false;
        return !(kinds & ~stay_of(k, n->free->dfa, f->a)->stays);
    case NODE_BYTES:
        if (n->tracked && n->bytes->ends[f->a] != BYTEDFA_ENDLESS)
            return false;
        s = stay_of(k, n->bytes, f->a);
        if (!(kinds & ~s->stays))
            return true;
        if (n->tracked || (!s->has_run && !large))
            return false;
        classify(k, n->bytes);
        if (!s->has_run)
            find_run(k, s);
        return reach <= s->run && !(kinds & ~s->runs);
    case NODE_STRING:
        return f->a == MACHINE_IN_STRING && n->string->max == NODES_NO_LIMIT && !(kinds & ~plain_kinds());
    default: return false;
    }
}

// Whether the tokens below a node are all allowed because one thread takes them.
static bool takes_all(struct walk *k, const struct level *l, uint32_t i)
{
    const struct token_node *node = &k->tree->nodes[i];
    uint64_t below = k->tree->below[i];
    bool large = node->end - i > LARGE;
    if (l->uncertain || below & TOKEN_TRIE_KIND(BYTES_BROKEN))
        return false;
    if (l->alone)
        return takes(k, &l->frame, below, node->reach, large);
    uint32_t n;
    const struct frame *f = machine_threads(k->w->m, &n) + l->first;
    for (uint32_t t = 0; t < l->n && t < MAX_SPREAD; t++)
        if (takes(k, &f[t], below, node->reach, large))
            return true;
    return false;
}

// ---- bits

static void set_all(struct token_walk *w, const struct token_tree *tree, uint32_t from, uint32_t to)
{
    for (uint32_t i = from; i < to; i++)
        token_trie_set(w->bits, tree->list[i]);
    w->n += to - from;
}

static void clear_all(struct token_walk *w, const struct token_tree *tree, uint32_t from, uint32_t to)
{
    for (uint32_t i = from; i < to; i++)
        w->bits[tree->list[i] / 64] &= ~(1ull << tree->list[i] % 64);
}

static void add_plain(const struct token_trie *t, uint32_t room, struct token_walk *w)
{
    uint32_t k = room > TOKEN_TRIE_LENGTHS ? TOKEN_TRIE_LENGTHS : room;
    bool all = room == NODES_NO_LIMIT;
    memcpy(w->bits, all ? t->plain : t->shorter[k], t->words * sizeof *w->bits);
    w->n = all ? t->nplain : t->nshorter[k];
    for (uint32_t i = 0; !all && i < t->nlonger && t->longer[i].characters <= room; i++, w->n++)
        token_trie_set(w->bits, t->longer[i].id);
}

// ---- steps

static void set_alone(const struct nodes *g, struct level *l, const struct frame *f)
{
    const struct node *n = &g->list[f->node];
    l->alone = n->kind == NODE_FREE || n->kind == NODE_BYTES || n->kind == NODE_STRING ? n : NULL;
    l->frame = *f;
    l->pushed = l->written = true;
}

enum told { NO, YES, ASK };

// A lone frame and a byte, without the machine: it cannot come, it only changes the frame, or the machine must tell.
static enum told step_alone(const struct node *n, struct frame *f, uint8_t byte)
{
    if (n->kind == NODE_STRING) {
        if (f->a != MACHINE_IN_STRING || byte < ' ' || byte > '~' || byte == '"' || byte == '\\')
            return ASK;
        if (f->b == n->string->max)
            return NO;
        f->b += f->b < (n->string->max == NODES_NO_LIMIT ? n->string->min : n->string->max);
        return YES;
    }
    if (n->kind == NODE_FREE) {
        enum machine_told told = machine_free_text(n->free, f, byte);
        return told == TOLD_NO ? NO : told == TOLD_YES ? YES : ASK;
    }
    uint32_t next = bytedfa_next(n->bytes, f->a, byte);
    if (next == BYTEDFA_DEAD)
        return NO;
    if (n->bytes->flags[next] & BYTEDFA_ACCEPT || (n->tracked && n->bytes->ends[next] != BYTEDFA_ENDLESS))
        return ASK;
    f->a = next;
    return YES;
}

// Gives the machine the frame of a level, and its text.
static void push(struct walk *k, struct level *l)
{
    if (l->pushed)
        return;
    struct level *from = l;
    while (!from->written)
        from--;
    for (; from < l; from++) {
        from[1].frame.c = l->alone->kind == NODE_BYTES && l->alone->tracked
                        ? machine_write(k->w->m, from->frame.c, from[1].byte) : from->frame.c;
        from[1].written = true;
    }
    machine_drop(k->w->m, l->first);
    machine_push(k->w->m, &l->frame);
    l->pushed = true;
}

// The level behind one more byte; false: it is not allowed.
static bool step(struct walk *k, struct level *from, struct level *to, uint8_t byte)
{
    struct machine *m = k->w->m;
    if (from->alone) {
        struct frame f = from->frame;
        enum told told = step_alone(from->alone, &f, byte);
        if (told == YES)
            *to = (struct level){.first = from->first + from->pushed, .n = 1, .uncertain = from->uncertain,
                                 .alone = from->alone, .byte = byte, .frame = f};
        if (told != ASK)
            return told == YES;
        push(k, from);
    }
    to->first = from->first + from->n;
    machine_drop(m, to->first);
    to->n = machine_step(m, from->first, from->n, byte, &to->uncertain);
    to->uncertain |= from->uncertain;
    to->alone = NULL;
    to->written = true;
    uint32_t n;
    if (to->n == 1)
        set_alone(k->w->g, to, machine_threads(m, &n) + to->first);
    return to->n > 0;
}

// ---- the tree

static uint32_t tokens_before(const struct token_tree *tree, uint32_t i)
{
    return tree->nodes[i].first;
}

static bool is_kind(const struct walk *k, uint8_t byte)
{
    return k->kinds >> token_trie_kind(byte) & 1;
}

// A node that cannot come; returns the one behind its subtree.
static uint32_t leave(struct walk *k, uint32_t i, const struct level *from)
{
    uint32_t end = k->tree->nodes[i].end;
    if (from->pure && is_kind(k, k->tree->nodes[i].byte))  // else none of them was presumed
        clear_all(k->w, k->tree, tokens_before(k->tree, i), tokens_before(k->tree, end));
    return end;
}

// A node below which everything is allowed.
static uint32_t take(struct walk *k, uint32_t i, bool pure)
{
    const struct token_node *node = &k->tree->nodes[i];
    uint32_t end = node->end;
    if (!pure || k->tree->below[i] & ~k->kinds || (uint32_t)node->depth + node->reach > k->most)  // else they are presumed
        set_all(k->w, k->tree, tokens_before(k->tree, i + 1), tokens_before(k->tree, end));
    return end;
}

// A lone automaton that needs no machine as long as it does not accept.
static bool is_table(const struct level *l)
{
    if (!l->alone || l->uncertain)
        return false;
    return l->alone->kind == NODE_FREE ? !l->alone->free->begun : l->alone->kind == NODE_BYTES && !l->alone->tracked;
}

static void walk_table(struct walk *k, uint32_t i, uint32_t end, struct level *base);

// Whether the plain tokens below, and there are no others, begin no end: then only their length counts, as was presumed.
static bool stays_counted(struct walk *k, const struct level *l, uint64_t below)
{
    if (!l->alone || l->alone->kind != NODE_FREE || below & ~k->kinds)
        return false;
    if (!l->alone->free->begun || l->alone->free->begun[l->frame.a])
        return false;
    return !(below & ~stay_of(k, l->alone->free->dfa, l->frame.a)->stays);
}

// Takes one node; returns the next one to look at.
static uint32_t visit(struct walk *k, uint32_t i)
{
    const struct token_tree *tree = k->tree;
    const struct token_node *node = &tree->nodes[i];
    struct level *from = &k->levels[node->depth - 1], *to = from + 1;
    if (!step(k, from, to, node->byte))
        return leave(k, i, from);
    to->pure = from->pure && is_kind(k, node->byte);
    uint32_t first = tokens_before(tree, i), behind = tokens_before(tree, i + 1);
    set_all(k->w, tree, first, behind);
    for (uint32_t t = first; t < behind && to->uncertain; t++)
        token_walk_note(k->w, tree->list[t]);
    if (k->counted && to->pure && stays_counted(k, to, tree->below[i]))
        return node->end;
    if (node->end - i > SMALL && takes_all(k, to, i))
        return take(k, i, to->pure);
    if (!is_table(to) || node->depth > MAX_DEPTH)
        return i + 1;
    walk_table(k, i + 1, node->end, to);
    return node->end;
}

// What is known to follow a place: by the one before it, or looked up where that pays.
static void learn(struct walk *k, const struct bytedfa *d, struct place *p, const struct place *before, uint8_t byte,
                  bool large)
{
    p->run = before->run && before->kinds >> token_trie_kind(byte) & 1 ? before->run - 1 : 0;
    p->kinds = p->run ? before->kinds : 0;
    p->stops = p->run && before->stops;
    if (p->run > MAX_RUN / 2 || p->stops || !large)
        return;
    struct stay *s = stay_of(k, d, p->state);
    if (!(TOKEN_TRIE_ALNUM & ~s->stays) || s->stays >> BYTES_LONG & 1) {
        p->run = UINT16_MAX;
        p->kinds = s->stays;
        return;
    }
    if (!s->has_run)
        find_run(k, s);
    p->run = s->run;
    p->kinds = s->runs;
}

// The node to look at behind one that is allowed: the next one, or, where the tokens below can be told, that behind them.
static uint32_t table_jump(struct walk *k, uint32_t i, const struct place *p, bool pure)
{
    const struct token_node *node = &k->tree->nodes[i];
    uint64_t below = k->tree->below[i], may = below & ~k->never;
    bool long_ones = node->reach > p->run, presumed = pure && !(may & ~k->kinds) && !(k->kinds & k->never);
    if (may & ~p->kinds || (long_ones && !(p->stops && presumed)))
        return i + 1;
    if (may == below && !long_ones)
        return take(k, i, pure);
    return presumed && (p->stops || (uint32_t)node->depth + node->reach <= k->most) ? node->end : i + 1;
}

// Nodes [i, end) below a level that is_table.
static void walk_table(struct walk *k, uint32_t i, uint32_t end, struct level *base)
{
    const struct token_tree *tree = k->tree;
    const struct node *n = base->alone;
    const struct bytedfa *d = n->kind == NODE_FREE ? n->free->dfa : n->bytes;
    struct place *places = k->places;
    classify(k, d);
    places[base - k->levels] = (struct place){.state = base->frame.a, .sure = base->pure && base == k->levels};
    if (base == k->levels && k->stops)
        places[0] = (struct place){.state = base->frame.a, .sure = true, .stops = true, .run = k->most, .kinds = k->kinds};
    while (i < end) {
        const struct token_node *node = &tree->nodes[i];
        struct place *p = &places[node->depth];
        struct level *to = &k->levels[node->depth];
        p->state = bytedfa_next(d, p[-1].state, node->byte);
        if (p->state == BYTEDFA_DEAD) {
            i = leave(k, i, to - 1);
            continue;
        }
        if (n->kind == NODE_FREE ? n->free->ends[p->state] : d->flags[p->state] & BYTEDFA_ACCEPT) {
            if (to - 1 != base) {
                to[-1] = (struct level){.first = base->first + base->pushed, .n = 1, .pure = to[-1].pure, .alone = n,
                                        .written = true, .frame = base->frame};
                to[-1].frame.a = p[-1].state;
            }
            for (uint32_t behind = node->end; i < behind;)
                i = visit(k, i);
            classify(k, d);
            continue;
        }
        to->pure = to[-1].pure && is_kind(k, node->byte);
        p->sure = p[-1].sure && to->pure && node->byte < 0x80 && node->depth <= k->most;
        if (!p->sure)
            set_all(k->w, tree, tokens_before(tree, i), tokens_before(tree, i + 1));
        learn(k, d, p, p - 1, node->byte, node->end - i > LARGE);
        i = node->end > i + 1 ? table_jump(k, i, p, to->pure) : i + 1;
    }
}

// The tokens that begin with a byte.
static void walk_root(struct walk *k, uint32_t b)
{
    const struct token_tree *all = k->tree, *tree = k->plain_root[b] ? &k->w->trie->rest : all;
    uint32_t i = tree->roots[b], end = tree->roots[b + 1];
    if (i == end)
        return;
    k->tree = tree;
    if (k->near) {
        const struct level *l = &k->levels[0];
        const struct bytedfa *d = l->alone->free->dfa;
        if (bytedfa_next(d, l->frame.a, (uint8_t)b) == bytedfa_next(d, BYTEDFA_START, (uint8_t)b))
            return;
        clear_all(k->w, tree, tokens_before(tree, i), tokens_before(tree, end));
    }
    // Most bytes cannot come: their nodes, which lie far apart, are not looked at.
    if (!step(k, &k->levels[0], &k->levels[1], (uint8_t)b))
        leave(k, i, &k->levels[0]);
    else if (is_table(&k->levels[0]))
        walk_table(k, i, end, &k->levels[0]);
    else
        while (i < end)
            i = visit(k, i);
    k->tree = all;
}

static void walk_tree(struct walk *k)
{
    size_t levels = (size_t)k->w->trie->longest + 2;
    uint32_t n;
    k->levels = mem_new(levels * sizeof *k->levels);
    k->places = mem_new(levels * sizeof *k->places);
    const struct frame *threads = machine_threads(k->w->m, &n);
    k->levels[0] = (struct level){.n = n, .pure = k->presumed != NULL, .written = true};
    if (n == 1)
        set_alone(k->w->g, &k->levels[0], threads);
    for (uint32_t b = 0; b < 256; b++)
        walk_root(k, b);
    free(k->levels);
    free(k->places);
}

// ---- what is presumed

// Inside a string: how many plain characters are allowed whatever they are (*ret_room), so that only the rest needs a
// walk.
static bool in_string(struct walk *w, uint32_t *ret_room)
{
    uint32_t n;
    const struct frame *threads = machine_threads(w->w->m, &n);
    for (uint32_t i = 0; i < n; i++) {
        const struct node *k = &w->w->g->list[threads[i].node];
        // Where no plain character begins an end: counted ones as in a string.
        if (k->kind == NODE_FREE && (!k->free->begun || (n == 1 && threads[i].b <= k->free->max)) &&
            !(plain_kinds() & ~stay_of(w, k->free->dfa, threads[i].a)->stays)) {
            *ret_room = k->free->begun && k->free->max != NODES_NO_LIMIT ? k->free->max - threads[i].b : NODES_NO_LIMIT;
            return true;
        }
        bool plain = k->kind == NODE_BYTES && k->bytes->flags[threads[i].a] & BYTEDFA_PLAIN;
        bool string = k->kind == NODE_STRING && threads[i].a == MACHINE_IN_STRING;
        if (string && k->string->max != NODES_NO_LIMIT && n > 1)
            continue;  // the others may allow more of them
        if (!plain && !string)
            continue;
        *ret_room = plain || k->string->max == NODES_NO_LIMIT ? NODES_NO_LIMIT : k->string->max - threads[i].b;
        return true;
    }
    return false;
}

// Whether behind a state, or inside a character (at as in utf8step.h), whatever comes next leads to where all plain
// characters can go on.
static bool leads_to_plain(const struct bytedfa *d, uint32_t state, uint32_t at)
{
    uint32_t seen = BYTEDFA_DEAD;
    if (state == BYTEDFA_DEAD)
        return false;
    if (at == UTF8STEP_BETWEEN)
        return d->flags[state] & BYTEDFA_PLAIN;
    for (uint32_t b = 0x80; b < 0xC0; b++) {
        uint32_t to = utf8step(at, (uint8_t)b), next = bytedfa_next(d, state, (uint8_t)b);
        if (to == UTF8STEP_BAD || (next == seen && next))
            continue;
        if (!leads_to_plain(d, next, to))
            return false;
        seen = next;
    }
    return true;
}

// With which first bytes all plain tokens are allowed; returns how many tokens begin so.
static uint32_t find_plain_roots(struct walk *k, const struct bytedfa *d, uint32_t state)
{
    const struct token_tree *tree = &k->w->trie->all;
    uint32_t n = 0;
    for (uint32_t b = 0; b < 0x100; b++) {
        k->plain_root[b] = utf8step(UTF8STEP_BETWEEN, (uint8_t)b) != UTF8STEP_BAD && plain_kinds() >> token_trie_kind((uint8_t)b) & 1 &&
                           leads_to_plain(d, bytedfa_next(d, state, (uint8_t)b), utf8step(UTF8STEP_BETWEEN, (uint8_t)b));
        n += k->plain_root[b] ? tokens_before(tree, tree->roots[b + 1]) - tokens_before(tree, tree->roots[b]) : 0;
    }
    return n;
}

// How many letters and digits can come whatever they are, where little else can; 0: few.
static uint32_t word_run(struct walk *k, const struct bytedfa *d, uint32_t state)
{
    struct stay *s = stay_of(k, d, state);
    if (!(TOKEN_TRIE_ALNUM & ~s->stays))
        return s->stays >> BYTES_LONG & 1 ? 0 : TOKEN_TRIE_LENGTHS;
    classify(k, d);
    if (!s->has_run)
        find_run(k, s);
    uint32_t run = s->run < TOKEN_TRIE_LENGTHS ? s->run : TOKEN_TRIE_LENGTHS;
    k->stops = s->stops && s->run <= TOKEN_TRIE_LENGTHS && s->runs == TOKEN_TRIE_ALNUM;
    return TOKEN_TRIE_ALNUM & ~s->runs ? 0 : run;
}

static bool mostly_plain(struct walk *k, const struct bytedfa *d, uint32_t state)
{
    // Most automata have no such state: asked of a few letters first.
    bool may = false;
    for (const char *p = "aeinst "; *p && !may; p++)
        may = d->flags[bytedfa_next(d, state, (uint8_t)*p)] & BYTEDFA_PLAIN;
    if (may && find_plain_roots(k, d, state) > k->w->trie->nplain / 2)
        return true;
    memset(k->plain_root, 0, sizeof k->plain_root);
    return false;
}

static void presume(struct walk *k)
{
    uint32_t n, run;
    const struct frame *f = machine_threads(k->w->m, &n);
    const struct token_trie *t = k->w->trie;
    for (uint32_t i = 0; i < n && i < 8 && !k->presumed; i++) {
        const struct node *x = &k->w->g->list[f[i].node];
        bool open = x->kind == NODE_FREE && x->free->dfa->flags[f[i].a] & BYTEDFA_ACCEPT;
        if (open && x->free->begun && n == 1 && !x->free->begun[f->a]) {
            add_plain(t, x->free->max == NODES_NO_LIMIT ? NODES_NO_LIMIT : x->free->max - f->b, k->w);
            k->presumed = k->w->bits;
            k->kinds = plain_kinds();
            k->most = 0;
            k->counted = true;
        } else if (open) {
            k->presumed = t->whole;
            k->kinds = ~TOKEN_TRIE_KIND(BYTES_BROKEN);
        } else if (x->kind == NODE_BYTES && (run = word_run(k, x->bytes, f[i].a))) {
            k->presumed = t->alnum[run];
            k->kinds = TOKEN_TRIE_ALNUM;
            k->most = run;
            k->stops &= n == 1;
        } else if (x->kind == NODE_BYTES && mostly_plain(k, x->bytes, f[i].a)) {
            k->presumed = t->plain;
            k->kinds = plain_kinds();
        }
    }
}

bool token_walk_is_near(const struct token_walk *w, uint32_t *ret_node)
{
    uint32_t n;
    const struct frame *f = machine_threads(w->m, &n);
    const struct node *x = &w->g->list[f->node];
    *ret_node = f->node;
    return n == 1 && x->kind == NODE_FREE && x->free->outer && f->a != BYTEDFA_START && x->free->dfa->flags[f->a] & BYTEDFA_ACCEPT;
}

void token_walk(struct token_walk *w, bool near)
{
    struct walk k = {.w = w, .tree = &w->trie->all, .most = UINT32_MAX, .near = near};
    size_t bytes = w->trie->words * sizeof *w->bits;
    uint32_t room = 0;
    if (near) {
        // bits are there
    } else if (in_string(&k, &room)) {
        k.tree = &w->trie->rest;
        add_plain(w->trie, room, w);
    } else {
        presume(&k);
        if (k.presumed && k.presumed != w->bits)
            memcpy(w->bits, k.presumed, bytes);
        if (!k.presumed)
            memset(w->bits, 0, bytes);
    }
    walk_tree(&k);
    free(k.stays);
    if (!k.presumed && !near)
        return;
    w->n = 0;
    for (size_t i = 0; i < w->trie->words; i++)
        w->n += (uint32_t)__builtin_popcountll(w->bits[i]);
}
