// regex.c - pattern to syntax tree, tree to a nondeterministic automaton, that one explored as sets of its states. Prep
// threads; a compilation owns all its memory.
//
// ^ and $ are edges without a character: ^ may be taken only before the first character, $ only after the last one. So
// they work anywhere in a pattern (`^$|^\+?[0-9]+$`).
#include "engine/grammar/regex.h"

#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "base/cancel.h"
#include "base/mem.h"
#include "base/utf8.h"
#include "engine/grammar/charset.h"

enum { MAX_DEPTH = 200, MAX_REPEAT = 10000, MAX_NFA = 40000, MAX_NODES = 20000, MAX_PATTERN = 64 << 10 };

// ---- the syntax tree

enum kind { EMPTY, CHARS, CAT, ALT, REPEAT, BEGIN, END };

struct tree {
    enum kind kind;
    uint32_t set;              // CHARS
    uint32_t min, max;         // REPEAT; max UINT32_MAX: no limit
    struct tree *a, *b;        // CAT and ALT: both; REPEAT: a
};

struct parser {
    const char *p, *end, *start;
    bool fold, dot_all;
    int depth, nodes;
    struct arena arena;
    struct charset *sets;
    uint32_t nsets, sets_cap;
    err *e;
    bool failed;
};

static struct tree *fail(struct parser *r, err_code code, const char *what)
{
    if (!r->failed)
        err_fill(r->e, code, "", "%s at byte %zu of the pattern", what, (size_t)(r->p - r->start));
    r->failed = true;
    return NULL;
}

static struct tree *make(struct parser *r, enum kind kind, struct tree *a, struct tree *b)
{
    if (r->failed)
        return NULL;
    if (++r->nodes > MAX_NODES)
        return fail(r, ERR_TOO_LARGE, "the pattern has too many parts");
    struct tree *t = arena_alloc(&r->arena, sizeof *t);
    t->kind = kind;
    t->a = a;
    t->b = b;
    return t;
}

static struct tree *make_set(struct parser *r, struct charset *s)
{
    charset_settle(s);
    if (r->fold)
        charset_fold(s);
    if (r->nsets == r->sets_cap) {
        r->sets_cap = r->sets_cap ? 2 * r->sets_cap : 16;
        r->sets = mem_resize(r->sets, r->sets_cap * sizeof *r->sets);
    }
    r->sets[r->nsets++] = *s;
    struct tree *t = make(r, CHARS, NULL, NULL);
    if (t)
        t->set = r->nsets - 1;
    return t;
}

static struct tree *make_char(struct parser *r, uint32_t cp)
{
    struct charset s = {0};
    charset_add(&s, cp, cp);
    return make_set(r, &s);
}

static bool at(const struct parser *r, const char *text)
{
    size_t n = strlen(text);
    return (size_t)(r->end - r->p) >= n && memcmp(r->p, text, n) == 0;
}

static bool eat(struct parser *r, const char *text)
{
    if (!at(r, text))
        return false;
    r->p += strlen(text);
    return true;
}

static int hex_digit(char c)
{
    return c >= '0' && c <= '9' ? c - '0' : (c | 32) >= 'a' && (c | 32) <= 'f' ? (c | 32) - 'a' + 10 : -1;
}

static bool hex(struct parser *r, int digits, uint32_t *ret_value)
{
    uint32_t v = 0;
    for (int i = 0; i < digits; i++, r->p++) {
        if (r->p >= r->end || hex_digit(*r->p) < 0)
            return false;
        v = v * 16 + (uint32_t)hex_digit(*r->p);
    }
    *ret_value = v;
    return true;
}

// \u0041, \u{1F600}, surrogate pairs; after the u.
static bool unicode_escape(struct parser *r, uint32_t *ret_cp)
{
    uint32_t v = 0, low;
    if (eat(r, "{")) {
        int n = 0;
        for (; r->p < r->end && hex_digit(*r->p) >= 0 && n < 7; n++)
            v = v * 16 + (uint32_t)hex_digit(*r->p++);
        *ret_cp = v;
        return n > 0 && v <= CHARDFA_LAST && eat(r, "}");
    }
    if (!hex(r, 4, &v))
        return false;
    if (v >= 0xD800 && v < 0xDC00 && at(r, "\\u")) {
        r->p += 2;
        if (!hex(r, 4, &low) || low < 0xDC00 || low > 0xDFFF)
            return false;
        v = 0x10000 + ((v - 0xD800) << 10) + (low - 0xDC00);
    }
    *ret_cp = v;
    return true;
}

// \p{...} or \P{...}, after the letter.
static bool category(struct parser *r, bool negated, struct charset *s)
{
    if (!eat(r, "{")) {
        bool ok = r->p < r->end && charset_add_category(s, r->p, 1, negated);
        r->p += ok;
        return ok;
    }
    const char *close = memchr(r->p, '}', (size_t)(r->end - r->p));
    if (!close)
        return false;
    bool ok = charset_add_category(s, r->p, (size_t)(close - r->p), negated);
    r->p = close + 1;
    return ok;
}

// An escape that is a character or a set, after the backslash; in and outside classes. One character: *ret_cp, else a set.
static bool escape(struct parser *r, struct charset *s, bool in_class, uint32_t *ret_cp, bool *ret_single)
{
    static const char plain[][2] = {{'n', '\n'}, {'r', '\r'}, {'t', '\t'}, {'f', '\f'}, {'v', '\v'}, {'a', 7}, {'e', 27}};
    if (r->p >= r->end)
        return fail(r, ERR_INVALID, "a lone backslash") != NULL;
    char c = *r->p;
    *ret_single = true;
    for (size_t i = 0; i < sizeof plain / sizeof *plain; i++)
        if (c == plain[i][0]) {
            r->p++;
            *ret_cp = (uint32_t)plain[i][1];
            return true;
        }
    uint32_t cp;
    size_t n = (size_t)utf8_decode(r->p, (size_t)(r->end - r->p), &cp);
    r->p += n;
    if (c == 'p' || c == 'P') {
        *ret_single = false;
        return category(r, c == 'P', s) || fail(r, ERR_UNSUPPORTED, "an unknown or unsupported \\p{...}") != NULL;
    }
    if (charset_add_escape(s, c)) {
        *ret_single = false;
        return true;
    }
    *ret_cp = cp;
    if (c == 'u')
        return unicode_escape(r, ret_cp) || fail(r, ERR_INVALID, "a faulty \\u escape") != NULL;
    if (c == 'x')
        return hex(r, 2, ret_cp) || fail(r, ERR_INVALID, "a faulty \\x escape") != NULL;
    if (c == 'c' && r->p < r->end && ((*r->p | 32) >= 'a' && (*r->p | 32) <= 'z')) {
        *ret_cp = (uint32_t)(*r->p++ & 31);
        return true;
    }
    if (c == '0' && !(r->p < r->end && *r->p >= '0' && *r->p <= '9')) {
        *ret_cp = 0;
        return true;
    }
    if (in_class && c == 'b') {
        *ret_cp = 8;
        return true;
    }
    if (c >= '0' && c <= '9')
        return fail(r, ERR_UNSUPPORTED, "a back-reference, which no automaton can follow,") != NULL;
    if ((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'))
        return fail(r, ERR_UNSUPPORTED, "an escape that is unknown or not supported (word borders, back-references)") !=
               NULL;
    return true;
}

static bool posix_class(struct parser *r, struct charset *s)
{
    static const struct {
        const char *name;
        struct char_range r[4];
        int n;
    } classes[] = {{"[:alnum:]", {{'0', '9'}, {'A', 'Z'}, {'a', 'z'}}, 3}, {"[:alpha:]", {{'A', 'Z'}, {'a', 'z'}}, 2},
                   {"[:digit:]", {{'0', '9'}}, 1}, {"[:lower:]", {{'a', 'z'}}, 1}, {"[:upper:]", {{'A', 'Z'}}, 1},
                   {"[:space:]", {{9, 13}, {32, 32}}, 2}, {"[:xdigit:]", {{'0', '9'}, {'A', 'F'}, {'a', 'f'}}, 3}};
    for (size_t i = 0; i < sizeof classes / sizeof *classes; i++)
        if (eat(r, classes[i].name)) {
            for (int k = 0; k < classes[i].n; k++)
                charset_add(s, classes[i].r[k].lo, classes[i].r[k].hi);
            return true;
        }
    return false;
}

// One member of a class. *ret_single: a character, which may begin a range.
static bool class_member(struct parser *r, struct charset *s, uint32_t *ret_cp, bool *ret_single)
{
    if (eat(r, "\\"))
        return escape(r, s, true, ret_cp, ret_single);
    *ret_single = true;
    size_t n = (size_t)utf8_decode(r->p, (size_t)(r->end - r->p), ret_cp);
    r->p += n;
    return n > 0;
}

static struct tree *class(struct parser *r)
{
    struct charset s = {0};
    bool negated = eat(r, "^");
    while (r->p < r->end && *r->p != ']' && !r->failed) {
        uint32_t lo = 0, hi = 0;
        bool single, both = false;
        if (posix_class(r, &s) || !class_member(r, &s, &lo, &single) || !single)
            continue;
        if (at(r, "-") && r->p + 1 < r->end && r->p[1] != ']') {
            r->p++;
            if (!class_member(r, &s, &hi, &both))
                break;
            if (both && hi < lo)
                fail(r, ERR_INVALID, "a class range whose end comes before its start");
            if (!both)
                charset_add(&s, '-', '-');
        }
        charset_add(&s, lo, both ? hi : lo);
    }
    if (!eat(r, "]"))
        fail(r, ERR_INVALID, "a class without its closing bracket");
    charset_settle(&s);
    if (r->fold)
        charset_fold(&s);
    if (negated)
        charset_negate(&s);
    return make_set(r, &s);
}

static struct tree *alternatives(struct parser *r);

static struct tree *group(struct parser *r)
{
    if (eat(r, "?:")) {
    } else if (at(r, "?=") || at(r, "?!") || at(r, "?<=") || at(r, "?<!")) {
        return fail(r, ERR_UNSUPPORTED, "look-around, which is not supported,");
    } else if (eat(r, "?P<") || eat(r, "?<")) {
        const char *close = memchr(r->p, '>', (size_t)(r->end - r->p));
        if (!close || close == r->p)
            return fail(r, ERR_INVALID, "a faulty group name");
        r->p = close + 1;
    } else if (at(r, "?")) {
        return fail(r, ERR_UNSUPPORTED, "a kind of group that is not supported");
    }
    if (++r->depth > MAX_DEPTH)
        return fail(r, ERR_TOO_LARGE, "too many nested groups");
    struct tree *t = alternatives(r);
    r->depth--;
    if (!r->failed && !eat(r, ")"))
        return fail(r, ERR_INVALID, "a group without its closing parenthesis");
    return t;
}

static struct tree *any_char(struct parser *r)
{
    struct charset s = {0};
    if (!r->dot_all) {
        charset_add(&s, '\n', '\n');
        charset_add(&s, '\r', '\r');
        charset_add(&s, 0x2028, 0x2029);
        charset_settle(&s);
    }
    charset_negate(&s);
    return make_set(r, &s);
}

static struct tree *escaped_atom(struct parser *r)
{
    if (eat(r, "A"))
        return make(r, BEGIN, NULL, NULL);
    if (eat(r, "z") || eat(r, "Z"))
        return make(r, END, NULL, NULL);
    struct charset s = {0};
    uint32_t cp = 0;
    bool single;
    if (!escape(r, &s, false, &cp, &single)) {
        charset_done(&s);
        return NULL;
    }
    if (single)
        charset_add(&s, cp, cp);
    return make_set(r, &s);
}

static struct tree *atom(struct parser *r)
{
    if (eat(r, "("))
        return group(r);
    if (eat(r, "["))
        return class(r);
    if (eat(r, "."))
        return any_char(r);
    if (eat(r, "^"))
        return make(r, BEGIN, NULL, NULL);
    if (eat(r, "$"))
        return make(r, END, NULL, NULL);
    if (eat(r, "\\"))
        return escaped_atom(r);
    if (at(r, "*") || at(r, "+") || at(r, "?"))
        return fail(r, ERR_INVALID, "a repetition of nothing");
    uint32_t cp;
    r->p += utf8_decode(r->p, (size_t)(r->end - r->p), &cp);
    return make_char(r, cp);
}

static bool number(struct parser *r, uint32_t *ret_value)
{
    uint32_t v = 0;
    const char *from = r->p;
    while (r->p < r->end && *r->p >= '0' && *r->p <= '9' && v <= MAX_REPEAT)
        v = v * 10 + (uint32_t)(*r->p++ - '0');
    *ret_value = v;
    return r->p > from;
}

// {m} {m,} {m,n}; anything else leaves the brace an ordinary character.
static bool braces(struct parser *r, uint32_t *min, uint32_t *max)
{
    const char *from = r->p;
    if (!eat(r, "{"))
        return false;
    bool ok = number(r, min);
    *max = *min;
    if (ok && eat(r, ",") && !number(r, max))
        *max = UINT32_MAX;
    if (ok && eat(r, "}"))
        return true;
    r->p = from;
    return false;
}

static struct tree *repeated(struct parser *r)
{
    struct tree *t = atom(r);
    while (!r->failed && r->p < r->end) {
        uint32_t min = 0, max = UINT32_MAX;
        if (eat(r, "*")) {
        } else if (eat(r, "+")) {
            min = 1;
        } else if (eat(r, "?")) {
            max = 1;
        } else if (!braces(r, &min, &max)) {
            break;
        }
        if (t && (t->kind == BEGIN || t->kind == END))
            return fail(r, ERR_INVALID, "a repetition of nothing");
        if (min > MAX_REPEAT || (max != UINT32_MAX && max > MAX_REPEAT))
            return fail(r, ERR_TOO_LARGE, "a repetition of more than 10000");
        if (max < min)
            return fail(r, ERR_INVALID, "a repetition whose most is below its least");
        if (!eat(r, "?"))  // lazy: the same strings
            if (eat(r, "+"))
                return fail(r, ERR_UNSUPPORTED, "a possessive repetition");
        t = make(r, REPEAT, t, NULL);
        if (t) {
            t->min = min;
            t->max = max;
        }
    }
    return t;
}

static struct tree *sequence(struct parser *r)
{
    struct tree *t = make(r, EMPTY, NULL, NULL);
    while (!r->failed && r->p < r->end && *r->p != '|' && *r->p != ')')
        t = make(r, CAT, t, repeated(r));
    return t;
}

static struct tree *alternatives(struct parser *r)
{
    struct tree *t = sequence(r);
    while (!r->failed && eat(r, "|"))
        t = make(r, ALT, t, sequence(r));
    return t;
}

static struct tree *parse(struct parser *r)
{
    while (eat(r, "(?i)") || eat(r, "(?s)") || eat(r, "(?u)")) {
        r->fold |= r->p[-2] == 'i';
        r->dot_all |= r->p[-2] == 's';
    }
    struct tree *t = alternatives(r);
    if (!r->failed && r->p < r->end)
        return fail(r, ERR_INVALID, "a closing parenthesis without its group");
    return t;
}

// ---- the nondeterministic automaton

enum move { MOVE_CHARS, MOVE_SPLIT, MOVE_BEGIN, MOVE_END, MOVE_MATCH };

struct nfa_state {
    enum move move;
    uint32_t set, to, other;  // MOVE_SPLIT goes both ways
};

struct nfa {
    struct nfa_state *states;
    uint32_t n, cap;
    bool over;
    const struct charset *sets;
    // Of exploring: a work list and marks.
    uint32_t *list, *todo, *marks, mark, nlist;
    size_t *work;  // the budget's
};

static uint32_t add(struct nfa *a, enum move move, uint32_t to, uint32_t other)
{
    if (a->n >= MAX_NFA) {
        a->over = true;
        return 0;
    }
    if (a->n == a->cap) {
        a->cap = a->cap ? 2 * a->cap : 64;
        a->states = mem_resize(a->states, a->cap * sizeof *a->states);
    }
    a->states[a->n] = (struct nfa_state){.move = move, .to = to, .other = other};
    return a->n++;
}

static uint32_t emit(struct nfa *a, const struct tree *t, uint32_t next);

static uint32_t emit_repeat(struct nfa *a, const struct tree *t, uint32_t next)
{
    uint32_t at = next;
    if (t->max == UINT32_MAX) {
        at = add(a, MOVE_SPLIT, 0, next);
        uint32_t body = emit(a, t->a, at);
        if (!a->over)
            a->states[at].to = body;
    }
    for (uint32_t i = t->min; t->max != UINT32_MAX && i < t->max && !a->over; i++)
        at = add(a, MOVE_SPLIT, emit(a, t->a, at), next);
    for (uint32_t i = 0; i < t->min && !a->over; i++)
        at = emit(a, t->a, at);
    return at;
}

// The states of t, in front of `next`; returns where to enter. A long sequence leans to the left, so only its last part is
// a call.
static uint32_t emit(struct nfa *a, const struct tree *t, uint32_t next)
{
    for (; t->kind == CAT && !a->over; t = t->a)
        next = emit(a, t->b, next);
    if (a->over)
        return 0;
    switch (t->kind) {
    case EMPTY: return next;
    case CHARS: {
        uint32_t s = add(a, MOVE_CHARS, next, 0);
        a->states[s].set = t->set;
        return s;
    }
    case ALT: {
        uint32_t other = emit(a, t->b, next);
        return add(a, MOVE_SPLIT, emit(a, t->a, next), other);
    }
    case REPEAT: return emit_repeat(a, t, next);
    case BEGIN: return add(a, MOVE_BEGIN, next, 0);
    default: return add(a, MOVE_END, next, 0);
    }
}

static void reach(struct nfa *a, uint32_t from, bool begin, bool end)
{
    uint32_t n = 0;
    a->todo[n++] = from;
    while (n > 0) {
        uint32_t s = a->todo[--n];
        if (a->marks[s] == a->mark)
            continue;
        a->marks[s] = a->mark;
        if (*a->work)
            --*a->work;
        const struct nfa_state *q = &a->states[s];
        if (q->move == MOVE_SPLIT) {
            a->todo[n++] = q->other;
            a->todo[n++] = q->to;
        } else if ((q->move == MOVE_BEGIN && begin) || (q->move == MOVE_END && end)) {
            a->todo[n++] = q->to;
        }
        if (q->move != MOVE_SPLIT)
            a->list[a->nlist++] = s;
    }
}

static int by_number(const void *x, const void *y)
{
    uint32_t a = *(const uint32_t *)x, b = *(const uint32_t *)y;
    return (a > b) - (a < b);
}

// A key: whether it is the start, then the states' numbers.
static void new_set(struct nfa *a)
{
    a->mark++;
    a->nlist = 1;
    a->list[0] = 0;
}

static bool accepts(void *ud, const void *key, size_t len)
{
    struct nfa *a = ud;
    uint32_t n = (uint32_t)(len / sizeof n), *k = mem_new(len);
    memcpy(k, key, len);
    new_set(a);
    bool found = false;
    for (uint32_t i = 1; i < n; i++)
        reach(a, k[i], k[0], true);
    for (uint32_t i = 1; i < a->nlist; i++)
        found |= a->states[a->list[i]].move == MOVE_MATCH;
    free(k);
    return found;
}

// Borders of the ranges that leave the set.
static uint32_t borders(const struct nfa *a, const uint32_t *k, uint32_t n, uint32_t **ret_borders)
{
    uint32_t count = 0;
    for (uint32_t i = 1; i < n; i++)
        if (a->states[k[i]].move == MOVE_CHARS)
            count += 2 * a->sets[a->states[k[i]].set].n;
    uint32_t *list = mem_new((count + 1) * sizeof *list), used = 0, kept = 0;
    for (uint32_t i = 1; i < n; i++) {
        if (a->states[k[i]].move != MOVE_CHARS)
            continue;
        const struct charset *s = &a->sets[a->states[k[i]].set];
        for (uint32_t r = 0; r < s->n; r++) {
            list[used++] = s->ranges[r].lo;
            list[used++] = s->ranges[r].hi + 1;
        }
    }
    if (used)
        qsort(list, used, sizeof *list, by_number);
    for (uint32_t i = 0; i < used; i++)
        if (kept == 0 || list[kept - 1] != list[i])
            list[kept++] = list[i];
    *ret_borders = list;
    return kept;
}

static bool has(const struct charset *s, uint32_t cp)
{
    uint32_t lo = 0, hi = s->n;
    while (lo < hi) {
        uint32_t mid = (lo + hi) / 2;
        if (s->ranges[mid].hi < cp)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo < s->n && s->ranges[lo].lo <= cp;
}

static void edges(void *ud, const void *key, size_t len, struct chardfa_explorer *x)
{
    struct nfa *a = ud;
    uint32_t n = (uint32_t)(len / sizeof n), *k = mem_new(len), *list;
    memcpy(k, key, len);
    uint32_t nb = borders(a, k, n, &list);
    for (uint32_t b = 0; b + 1 < nb && *a->work; b++) {
        new_set(a);
        if (cancel_due(n))
            *a->work = 0;
        for (uint32_t i = 1; i < n; i++) {
            const struct nfa_state *q = &a->states[k[i]];
            *a->work -= *a->work > 0;
            if (q->move == MOVE_CHARS && has(&a->sets[q->set], list[b]))
                reach(a, q->to, false, false);
        }
        if (a->nlist == 1)
            continue;
        qsort(a->list + 1, a->nlist - 1, sizeof *a->list, by_number);
        chardfa_edge(x, list[b], list[b + 1] - 1, a->list, a->nlist * sizeof *a->list);
    }
    if (!*a->work)
        chardfa_edge(x, 0, 0, key, len);  // notices that the budget is spent
    free(list);
    free(k);
}

static err_code determinise(struct nfa *a, uint32_t start, struct chardfa_budget *b, struct chardfa **ret_dfa, err *e)
{
    // A state is on the work list at most once for each edge into it, and at most two edges leave one.
    a->list = mem_new(((size_t)a->n + 2) * sizeof *a->list);
    a->todo = mem_new((2 * (size_t)a->n + 2) * sizeof *a->todo);
    a->marks = mem_new(((size_t)a->n + 1) * sizeof *a->marks);
    a->work = &b->work;
    new_set(a);
    reach(a, start, true, false);
    a->list[0] = 1;
    qsort(a->list + 1, a->nlist - 1, sizeof *a->list, by_number);
    uint32_t *first = mem_new((a->nlist + 1) * sizeof *first);
    memcpy(first, a->list, a->nlist * sizeof *first);
    struct chardfa_source s = {a, accepts, edges};
    err_code code = chardfa_explore(&s, first, a->nlist * sizeof *first, b, ret_dfa, e);
    free(first);
    free(a->list);
    free(a->todo);
    free(a->marks);
    return code;
}

static err_code build(struct parser *r, const struct tree *t, bool search, struct chardfa_budget *b,
                      struct chardfa **ret_dfa, err *e)
{
    struct charset all = {0};
    charset_add(&all, 0, CHARDFA_LAST);
    make_set(r, &all);
    struct nfa a = {.sets = r->sets};
    uint32_t last = add(&a, MOVE_MATCH, 0, 0), start;
    if (search) {  // anything before and behind
        uint32_t loop = add(&a, MOVE_SPLIT, 0, last), eat_one = add(&a, MOVE_CHARS, loop, 0);
        a.states[eat_one].set = r->nsets - 1;
        a.states[loop].to = eat_one;
        start = emit(&a, t, loop);
        uint32_t before = add(&a, MOVE_SPLIT, 0, start), one = add(&a, MOVE_CHARS, before, 0);
        if (!a.over) {
            a.states[one].set = r->nsets - 1;
            a.states[before].to = one;
        }
        start = before;
    } else {
        start = emit(&a, t, last);
    }
    err_code code = a.over ? err_set(e, ERR_TOO_LARGE, "the pattern's repetitions are too large")
                           : determinise(&a, start, b, ret_dfa, e);
    free(a.states);
    return code;
}

err_code regex_compile(const char *pattern, size_t len, bool search, struct chardfa_budget *b, struct chardfa **ret_dfa,
                       err *e)
{
    err local;
    struct parser r = {.p = pattern, .start = pattern, .end = pattern + len, .e = e ? e : &local};
    if (len > MAX_PATTERN)
        return err_set(e, ERR_TOO_LARGE, "a pattern of %zu bytes, at most %d", len, MAX_PATTERN);
    if (!utf8_valid(pattern, len))
        return err_set(e, ERR_INVALID, "a pattern that is not UTF-8");
    const struct tree *t = parse(&r);
    err_code code = r.failed ? r.e->code : build(&r, t, search, b, ret_dfa, r.e);
    for (uint32_t i = 0; i < r.nsets; i++)
        charset_done(&r.sets[i]);
    free(r.sets);
    arena_done(&r.arena);
    return code;
}
