// gbnf.c - a recursive-descent parser that makes nodes as it goes. Prep threads. A rule is an ALT that is opened when its
// name is first seen and filled when it is defined.
#include "engine/grammar/gbnf.h"

#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/map.h"
#include "base/mem.h"
#include "base/utf8.h"
#include "engine/grammar/charset.h"

enum { MAX_DEPTH = 200, MAX_REPEAT = 1000000, MAX_TEXT = 256 << 10, MAX_LEFT = 256 };

struct rule {
    char *name;
    uint32_t node;
    bool defined;
};

struct parser {
    const char *p, *end, *start;
    struct nodes *g;
    struct map *names;
    struct rule *rules;
    uint32_t nrules, cap;
    int depth;
    err *e;
    bool failed;
};

struct list {
    uint32_t *v, n, cap;
};

static void push(struct list *l, uint32_t id)
{
    if (l->n == l->cap) {
        l->cap = l->cap ? 2 * l->cap : 8;
        l->v = mem_resize(l->v, l->cap * sizeof *l->v);
    }
    l->v[l->n++] = id;
}

static uint32_t fail(struct parser *r, err_code code, const char *what)
{
    if (!r->failed)
        err_fill(r->e, code, "", "%s at byte %zu of the grammar", what, (size_t)(r->p - r->start));
    r->failed = true;
    return 0;
}

// ---- characters

static bool more(const struct parser *r)
{
    return r->p < r->end && !r->failed;
}

static bool eat(struct parser *r, const char *text)
{
    size_t n = strlen(text);
    if ((size_t)(r->end - r->p) < n || memcmp(r->p, text, n) != 0)
        return false;
    r->p += n;
    return true;
}

// Blanks and comments; line ends too where they mean nothing.
static void space(struct parser *r, bool lines)
{
    while (r->p < r->end) {
        if (*r->p == '#')
            while (r->p < r->end && *r->p != '\n')
                r->p++;
        else if (*r->p == ' ' || *r->p == '\t' || *r->p == '\r' || (lines && *r->p == '\n'))
            r->p++;
        else
            return;
    }
}

static bool is_name(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '_';
}

static int hex_digit(char c)
{
    return c >= '0' && c <= '9' ? c - '0' : (c | 32) >= 'a' && (c | 32) <= 'f' ? (c | 32) - 'a' + 10 : -1;
}

static uint32_t hex(struct parser *r, int digits)
{
    uint32_t v = 0;
    for (int i = 0; i < digits; i++, r->p++) {
        if (r->p >= r->end || hex_digit(*r->p) < 0)
            return fail(r, ERR_INVALID, "a faulty escape");
        v = v * 16 + (uint32_t)hex_digit(*r->p);
    }
    return v;
}

static uint32_t character(struct parser *r)
{
    uint32_t cp;
    if (!eat(r, "\\")) {
        int n = utf8_decode(r->p, (size_t)(r->end - r->p), &cp);
        r->p += n;
        return n ? cp : fail(r, ERR_INVALID, "the grammar ends early");
    }
    char c = r->p < r->end ? *r->p++ : 0;
    switch (c) {
    case 'x': return hex(r, 2);
    case 'u': return hex(r, 4);
    case 'U': return hex(r, 8);
    case 'n': return '\n';
    case 'r': return '\r';
    case 't': return '\t';
    case '\\': case '"': case '[': case ']': case '-': case '^': return (uint32_t)c;
    default: r->p--; return fail(r, ERR_INVALID, "an unknown escape");
    }
}

// ---- terminals

static bool set_accepts(void *ud, const void *key, size_t len)
{
    (void)ud;
    (void)len;
    return *(const char *)key == 1;
}

static void set_edges(void *ud, const void *key, size_t len, struct chardfa_explorer *x)
{
    const struct charset *s = ud;
    for (uint32_t i = 0; i < s->n && *(const char *)key == 0; i++)
        chardfa_edge(x, s->ranges[i].lo, s->ranges[i].hi, "\1", len);
}

static uint32_t set_node(struct parser *r, struct charset *s)
{
    struct chardfa_budget b = {CHARDFA_STATES, CHARDFA_WORK};
    struct chardfa_source source = {s, set_accepts, set_edges};
    struct chardfa *c = NULL;
    struct bytedfa *d;
    uint32_t node = 0;
    if (r->failed || chardfa_explore(&source, "\0", 1, &b, &c, r->e) || bytedfa_make(c, false, false, &d, r->e))
        r->failed = true;
    else
        node = nodes_bytes(r->g, d, false);
    chardfa_free(c);
    charset_done(s);
    return node;
}

static uint32_t class(struct parser *r)
{
    struct charset s = {0};
    bool negated = eat(r, "^");
    while (more(r) && *r->p != ']') {
        uint32_t lo = character(r), hi = lo;
        if (r->p + 1 < r->end && *r->p == '-' && r->p[1] != ']') {
            r->p++;
            hi = character(r);
        }
        charset_add(&s, lo, hi);
    }
    if (!eat(r, "]"))
        fail(r, ERR_INVALID, "a class without its closing bracket");
    charset_settle(&s);
    if (negated)
        charset_negate(&s);
    return set_node(r, &s);
}

static uint32_t any(struct parser *r)
{
    struct charset s = {0};
    charset_negate(&s);
    return set_node(r, &s);
}

static uint32_t literal(struct parser *r)
{
    struct buf b;
    char utf8[4];
    buf_init(&b, MAX_TEXT);
    while (more(r) && *r->p != '"')
        buf_add(&b, utf8, (size_t)utf8_encode(character(r), utf8));
    if (!eat(r, "\""))
        fail(r, ERR_INVALID, "a text without its closing quote");
    const char *text = b.data ? b.data : "";
    uint32_t node = r->failed ? 0 : nodes_literals(r->g, &text, &b.len, 1);
    buf_done(&b);
    return node;
}

// ---- rules

static uint32_t rule_of(struct parser *r, const char *name, size_t len)
{
    uint32_t at;
    if (map_get(r->names, name, len, &at))
        return at;
    if (r->nrules == r->cap) {
        r->cap = r->cap ? 2 * r->cap : 16;
        r->rules = mem_resize(r->rules, r->cap * sizeof *r->rules);
    }
    r->rules[r->nrules] = (struct rule){mem_strndup(name, len), nodes_open(r->g), false};
    map_put(r->names, name, len, r->nrules);
    return r->nrules++;
}

static const char *name(struct parser *r, size_t *ret_len)
{
    const char *from = r->p;
    while (r->p < r->end && is_name(*r->p))
        r->p++;
    *ret_len = (size_t)(r->p - from);
    return from;
}

static uint32_t alternatives(struct parser *r, bool nested);

static uint32_t group(struct parser *r)
{
    if (++r->depth > MAX_DEPTH)
        return fail(r, ERR_TOO_LARGE, "too many nested parentheses");
    space(r, true);
    uint32_t node = alternatives(r, true);
    r->depth--;
    space(r, true);
    if (!r->failed && !eat(r, ")"))
        return fail(r, ERR_INVALID, "a group without its closing parenthesis");
    return node;
}

static uint32_t item(struct parser *r)
{
    size_t len;
    if (eat(r, "\""))
        return literal(r);
    if (eat(r, "["))
        return class(r);
    if (eat(r, "("))
        return group(r);
    if (eat(r, "."))
        return any(r);
    if (*r->p == '<' || *r->p == '!')
        return fail(r, ERR_UNSUPPORTED, "a token terminal, which is not supported,");
    const char *text = name(r, &len);
    if (len == 0)
        return fail(r, ERR_INVALID, "something unexpected");
    return r->rules[rule_of(r, text, len)].node;
}

static uint32_t number(struct parser *r)
{
    uint32_t v = 0;
    const char *from = r->p;
    while (r->p < r->end && *r->p >= '0' && *r->p <= '9' && v <= MAX_REPEAT)
        v = v * 10 + (uint32_t)(*r->p++ - '0');
    if (r->p == from)
        return fail(r, ERR_INVALID, "a number is missing");
    return v > MAX_REPEAT ? fail(r, ERR_TOO_LARGE, "a repetition of more than a million") : v;
}

static void braces(struct parser *r, uint32_t *min, uint32_t *max)
{
    space(r, false);
    *max = *min = number(r);
    space(r, false);
    if (eat(r, ",")) {
        space(r, false);
        *max = r->p < r->end && *r->p == '}' ? NODES_NO_LIMIT : number(r);
        space(r, false);
    }
    if (!r->failed && (!eat(r, "}") || *max < *min))
        fail(r, ERR_INVALID, "a faulty repetition");
}

static uint32_t repeated(struct parser *r)
{
    uint32_t node = item(r);
    while (more(r)) {
        uint32_t min = 0, max = NODES_NO_LIMIT;
        if (eat(r, "*")) {
        } else if (eat(r, "+")) {
            min = 1;
        } else if (eat(r, "?")) {
            max = 1;
        } else if (eat(r, "{")) {
            braces(r, &min, &max);
        } else {
            break;
        }
        node = nodes_repeat(r->g, node, min, max);
    }
    return node;
}

static uint32_t sequence(struct parser *r, bool nested)
{
    struct list l = {0};
    space(r, nested);
    while (more(r) && *r->p != '|' && *r->p != ')' && *r->p != '\n') {
        push(&l, repeated(r));
        space(r, nested);
    }
    uint32_t node = r->failed ? 0 : nodes_list(r->g, NODE_SEQ, l.v, l.n);
    free(l.v);
    return node;
}

static uint32_t alternatives(struct parser *r, bool nested)
{
    struct list l = {0};
    push(&l, sequence(r, nested));
    while (more(r) && eat(r, "|")) {
        space(r, true);
        push(&l, sequence(r, nested));
    }
    uint32_t node = r->failed ? 0 : nodes_list(r->g, NODE_ALT, l.v, l.n);
    free(l.v);
    return node;
}

static void rule(struct parser *r)
{
    size_t len;
    const char *text = name(r, &len);
    space(r, false);
    if (len == 0 || !eat(r, "::=")) {
        fail(r, ERR_INVALID, "expected a rule (name ::= ...)");
        return;
    }
    uint32_t at = rule_of(r, text, len);
    if (r->rules[at].defined) {
        fail(r, ERR_INVALID, "a rule that is defined already");
        return;
    }
    r->rules[at].defined = true;
    space(r, true);
    uint32_t node = alternatives(r, false);
    if (more(r) && *r->p == ')')
        fail(r, ERR_INVALID, "a closing parenthesis without its group");
    if (!r->failed)
        nodes_fill(r->g, r->rules[at].node, &node, 1);
}

// ---- left recursion

struct check {
    const struct nodes *g;
    uint8_t *empty, *seen;
};

static bool is_empty(const struct check *c, const struct node *n)
{
    switch (n->kind) {
    case NODE_BYTES: return n->bytes->flags[BYTEDFA_START] & BYTEDFA_ACCEPT;
    case NODE_LITERALS: return n->literals->n && n->literals->lens[0] == 0;
    case NODE_REPEAT: return n->repeat->min == 0 || c->empty[n->repeat->node];
    case NODE_ALT:
        for (uint32_t i = 0; i < n->list->n; i++)
            if (c->empty[n->list->nodes[i]])
                return true;
        return false;
    case NODE_SEQ:
        for (uint32_t i = 0; i < n->list->n; i++)
            if (!c->empty[n->list->nodes[i]])
                return false;
        return true;
    default: return false;
    }
}

static void find_empty(struct check *c)
{
    bool changed = true;
    while (changed) {
        changed = false;
        for (uint32_t i = c->g->n; i-- > 1;)
            if (!c->empty[i] && is_empty(c, &c->g->list[i]))
                c->empty[i] = changed = true;
    }
    for (uint32_t i = 1; i < c->g->n; i++)
        if (c->g->list[i].kind == NODE_REPEAT)
            c->g->list[i].repeat->may_be_empty = c->empty[c->g->list[i].repeat->node];
}

enum { OPEN = 1, CLOSED = 2 };

// How deep what a node may begin with is nested; MAX_LEFT: too deep, or in itself.
static int left_depth(struct check *c, uint32_t node, int depth)
{
    const struct node *n = &c->g->list[node];
    if (c->seen[node] == OPEN || depth == MAX_LEFT)
        return MAX_LEFT;
    bool list = n->kind == NODE_ALT || n->kind == NODE_SEQ;
    if (c->seen[node] == CLOSED || (!list && n->kind != NODE_REPEAT))
        return 0;
    c->seen[node] = OPEN;
    int worst = 0;
    uint32_t parts = list ? n->list->n : 1;
    for (uint32_t i = 0; i < parts && worst < MAX_LEFT; i++) {
        uint32_t part = list ? n->list->nodes[i] : n->repeat->node;
        int d = left_depth(c, part, depth + 1);
        worst = d > worst ? d : worst;
        if (n->kind == NODE_SEQ && !c->empty[part])
            break;
    }
    c->seen[node] = CLOSED;
    return worst;
}

static void check_left(struct parser *r)
{
    struct check c = {r->g, mem_new(r->g->n), mem_new(r->g->n)};
    find_empty(&c);
    for (uint32_t i = 0; i < r->nrules && !r->failed; i++) {
        if (left_depth(&c, r->rules[i].node, 0) < MAX_LEFT)
            continue;
        err_fill(r->e, ERR_UNSUPPORTED, "", "the rule '%s' begins with itself (left recursion), which is not supported",
                 r->rules[i].name);
        r->failed = true;
    }
    free(c.empty);
    free(c.seen);
}

static void check_rules(struct parser *r, uint32_t *ret_root)
{
    uint32_t root;
    for (uint32_t i = 0; i < r->nrules && !r->failed; i++)
        if (!r->rules[i].defined) {
            err_fill(r->e, ERR_INVALID, "", "the rule '%.80s' is not defined", r->rules[i].name);
            r->failed = true;
        }
    if (!r->failed && !map_get(r->names, "root", 4, &root))
        fail(r, ERR_INVALID, "the rule 'root' is missing");
    if (!r->failed)
        *ret_root = r->rules[root].node;
}

err_code gbnf_compile(const char *text, size_t len, struct nodes *g, uint32_t *ret_root, err *e)
{
    err local;
    struct parser r = {.p = text, .start = text, .end = text + len, .g = g, .e = e ? e : &local};
    if (len > MAX_TEXT)
        return err_set(e, ERR_TOO_LARGE, "a grammar of %zu bytes, at most %d", len, MAX_TEXT);
    if (!utf8_valid(text, len))
        return err_set(e, ERR_INVALID, "a grammar that is not UTF-8");
    r.names = map_new(64);
    for (space(&r, true); more(&r); space(&r, true))
        rule(&r);
    if (!r.failed && nodes_check(g, r.e))
        r.failed = true;
    check_rules(&r, ret_root);
    if (!r.failed)
        check_left(&r);
    for (uint32_t i = 0; i < r.nrules; i++)
        free(r.rules[i].name);
    free(r.rules);
    map_free(r.names);
    return r.failed ? r.e->code : ERR_OK;
}
