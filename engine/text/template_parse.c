// template_parse.c - tokens to a tree. Recursive descent in Jinja's order of precedence; a template is parsed once, at
// load. After an error the parser sees only the end of the template, so every loop ends by itself.
#include <stdio.h>
#include <string.h>

#include "base/map.h"
#include "base/mem.h"
#include "engine/text/template_int.h"

struct parser {
    struct template *t;
    struct arena *arena;
    struct map *names;
    const struct token *tok;  // the current one
    int depth, loops;
    int closures;          // macros and call blocks seen so far
    struct node *macro;    // the macro around what is parsed
    bool failed;
    err *e;
};

static struct node dummy = {.kind = N_CONST, .value = {.type = V_NONE}};
static const struct token end_token = {.type = T_EOF};

static struct node *expression(struct parser *p);
static struct node *or_expression(struct parser *p);
static struct node *unary(struct parser *p, bool filters);
static struct node *body_until(struct parser *p, const char *const *ends);

// ---- tokens

static struct node *fail(struct parser *p, err_code code, const char *fmt, const char *what)
{
    if (!p->failed) {
        char text[300];
        snprintf(text, sizeof text, fmt, what);
        err_set(p->e, code, "chat template, line %d: %s", p->tok->line, text);
        p->failed = true;
    }
    p->tok = &end_token;
    return &dummy;
}

static const char *describe(const struct token *t, char out[64])
{
    static const char *const names[] = {"end of template",
                                        "text",
                                        "begin of statement block",
                                        "end of statement block",
                                        "begin of print statement",
                                        "end of print statement",
                                        "name",
                                        "string",
                                        "integer",
                                        "float",
                                        "+",
                                        "-",
                                        "*",
                                        "/",
                                        "//",
                                        "%",
                                        "**",
                                        "~",
                                        "[",
                                        "]",
                                        "(",
                                        ")",
                                        "{",
                                        "}",
                                        "==",
                                        "!=",
                                        ">",
                                        ">=",
                                        "<",
                                        "<=",
                                        "=",
                                        ".",
                                        ":",
                                        "|",
                                        ",",
                                        ";"};
    if (t->type == T_NAME)
        snprintf(out, 64, "%.*s", (int)(t->s.len < 60 ? t->s.len : 60), t->s.p);
    else
        snprintf(out, 64, "%s", names[t->type]);
    return out;
}

static void next(struct parser *p)
{
    if (p->tok->type != T_EOF)
        p->tok++;
}

static bool is_name(const struct token *t, const char *name)
{
    return t->type == T_NAME && t->s.len == strlen(name) && !memcmp(t->s.p, name, t->s.len);
}

static bool skip_name(struct parser *p, const char *name)
{
    if (!is_name(p->tok, name))
        return false;
    next(p);
    return true;
}

static bool skip_type(struct parser *p, enum token_type type)
{
    if (p->tok->type != type)
        return false;
    next(p);
    return true;
}

static void expect(struct parser *p, enum token_type type)
{
    char found[64], wanted[64], text[160];
    if (skip_type(p, type))
        return;
    struct token want = {.type = type, .s = {.p = "name", .len = 4}};
    snprintf(text, sizeof text, "expected '%s', got '%s'", describe(&want, wanted), describe(p->tok, found));
    fail(p, ERR_INVALID, "%s", text);
}

static struct node *unexpected(struct parser *p)
{
    char found[64];
    return fail(p, ERR_INVALID, "unexpected '%s'", describe(p->tok, found));
}

// ---- nodes

static bool enter(struct parser *p)
{
    if (++p->depth <= TEMPLATE_MAX_DEPTH && !p->failed)
        return true;
    fail(p, ERR_TOO_LARGE, "%s", "the template is nested too deeply");
    return false;
}

static struct node *node(struct parser *p, enum node_kind kind)
{
    struct node *n = arena_alloc(p->arena, sizeof *n);
    n->kind = kind;
    n->line = p->tok->line;
    return n;
}

static struct node *node2(struct parser *p, enum node_kind kind, struct node *a, struct node *b)
{
    struct node *n = node(p, kind);
    n->a = a;
    n->b = b;
    return n;
}

static void add_kid(struct parser *p, struct node *n, struct node *kid)
{
    if ((n->nkids & (n->nkids - 1)) == 0) {
        struct node **bigger = arena_alloc(p->arena, (size_t)(n->nkids ? n->nkids * 2 : 1) * sizeof *bigger);
        if (n->nkids)
            memcpy(bigger, n->kids, (size_t)n->nkids * sizeof *bigger);
        n->kids = bigger;
    }
    n->kids[n->nkids++] = kid;
}

static void add_kw(struct parser *p, struct node *n, struct value name, struct node *value)
{
    if ((n->nkw & (n->nkw - 1)) == 0) {
        struct node_kw *bigger = arena_alloc(p->arena, (size_t)(n->nkw ? n->nkw * 2 : 1) * sizeof *bigger);
        if (n->nkw)
            memcpy(bigger, n->kw, (size_t)n->nkw * sizeof *bigger);
        n->kw = bigger;
    }
    n->kw[n->nkw++] = (struct node_kw){name, value};
}

static struct value text_const(struct arena *arena, const char *p, size_t len)
{
    struct str *s = arena_alloc(arena, sizeof *s);
    *s = (struct str){.p = p, .len = len};
    return (struct value){.type = V_STR, .s = s};
}

static int intern(struct parser *p, const char *name, size_t len)
{
    struct template *t = p->t;
    uint32_t known;
    if (map_get(p->names, name, len, &known))
        return (int)known;
    map_put(p->names, name, len, (uint32_t)t->nnames);
    if ((t->nnames & (t->nnames - 1)) == 0) {
        struct str **bigger = arena_alloc(p->arena, (size_t)(t->nnames ? t->nnames * 2 : 1) * sizeof *bigger);
        if (t->nnames)
            memcpy(bigger, t->names, (size_t)t->nnames * sizeof *bigger);
        t->names = bigger;
    }
    struct str *s = arena_alloc(p->arena, sizeof *s);
    *s = (struct str){.p = name, .len = len};
    t->names[t->nnames] = s;
    return t->nnames++;
}

static struct value name_text(struct parser *p)  // the current name as a string; moves on
{
    if (p->tok->type != T_NAME) {
        expect(p, T_NAME);
        return text_const(p->arena, "", 0);
    }
    struct value v = text_const(p->arena, p->tok->s.p, p->tok->s.len);
    next(p);
    return v;
}

// N_NAME: name
static struct node *name_node(struct parser *p)
{
    struct node *n = node(p, N_NAME);
    if (p->tok->type != T_NAME) {
        expect(p, T_NAME);
        return n;
    }
    n->name = intern(p, p->tok->s.p, p->tok->s.len);
    next(p);
    return n;
}

static void mention(struct parser *p, int name)
{
    if (!p->macro)
        return;
    p->macro->caller |= name == NAME_CALLER;
    p->macro->varargs |= name == NAME_VARARGS;
    p->macro->kwargs |= name == NAME_KWARGS;
}

// ---- expressions

static struct node *constant(struct parser *p, struct value v)
{
    struct node *n = node(p, N_CONST);
    n->value = v;
    return n;
}

static bool tuple_end(const struct parser *p, const char *end)
{
    enum token_type t = p->tok->type;
    return t == T_VAR_END || t == T_BLOCK_END || t == T_RPAREN || t == T_EOF || (end && is_name(p->tok, end));
}

enum tuple_of { TUPLE_EXPRESSIONS, TUPLE_NO_COND, TUPLE_PRIMARIES };

static struct node *primary(struct parser *p, bool ns);

// An expression, or with commas N_TUPLE: kids. `end` is a name that ends it.
static struct node *tuple(struct parser *p, enum tuple_of of, const char *end, bool parens, bool ns)
{
    struct node *n = node(p, N_TUPLE);
    bool comma = false;
    while (!tuple_end(p, end)) {
        add_kid(p, n, of == TUPLE_PRIMARIES ? primary(p, ns) : of == TUPLE_NO_COND ? or_expression(p) : expression(p));
        if (!skip_type(p, T_COMMA))
            break;
        comma = true;
    }
    if (comma)
        return n;
    if (n->nkids)
        return n->kids[0];
    char found[64];
    if (!parens)
        return fail(p, ERR_INVALID, "expected an expression, got '%s'", describe(p->tok, found));
    return n;
}

static struct node *list(struct parser *p)  // N_LIST: kids
{
    struct node *n = node(p, N_LIST);
    next(p);
    while (p->tok->type != T_RBRACKET && !p->failed) {
        add_kid(p, n, expression(p));
        if (!skip_type(p, T_COMMA))
            break;
    }
    expect(p, T_RBRACKET);
    return n;
}

static struct node *dict(struct parser *p)  // N_DICT: kids key, value, key, value ...
{
    struct node *n = node(p, N_DICT);
    next(p);
    while (p->tok->type != T_RBRACE && !p->failed) {
        add_kid(p, n, expression(p));
        expect(p, T_COLON);
        add_kid(p, n, expression(p));
        if (!skip_type(p, T_COMMA))
            break;
    }
    expect(p, T_RBRACE);
    return n;
}

static struct node *string(struct parser *p)  // neighbours are one
{
    if (p->tok[1].type != T_STRING) {
        struct value v = text_const(p->arena, p->tok->s.p, p->tok->s.len);
        next(p);
        return constant(p, v);
    }
    size_t n = 0, k = 0;
    for (const struct token *t = p->tok; t->type == T_STRING; t++)
        n += t->s.len;
    char *text = arena_alloc(p->arena, n + 1);
    for (; p->tok->type == T_STRING; next(p)) {
        memcpy(text + k, p->tok->s.p, p->tok->s.len);
        k += p->tok->s.len;
    }
    return constant(p, text_const(p->arena, text, n));
}

static struct node *name_or_constant(struct parser *p, bool ns)
{
    static const struct { const char *name; struct value v; } constants[] = {
        {"true", {.type = V_BOOL, .b = true}}, {"True", {.type = V_BOOL, .b = true}}, {"false", {.type = V_BOOL}},
        {"False", {.type = V_BOOL}}, {"none", {.type = V_NONE}}, {"None", {.type = V_NONE}}};
    for (size_t i = 0; i < sizeof constants / sizeof *constants; i++)
        if (skip_name(p, constants[i].name))
            return constant(p, constants[i].v);
    struct node *n = name_node(p);
    if (ns && skip_type(p, T_DOT)) {  // N_NSREF: name, value = attribute
        n->kind = N_NSREF;
        n->value = name_text(p);
    }
    mention(p, n->name);
    return n;
}

static struct node *primary(struct parser *p, bool ns)
{
    struct node *n;
    switch (p->tok->type) {
    case T_NAME:
        return name_or_constant(p, ns);
    case T_STRING:
        return string(p);
    case T_INT:
        n = constant(p, (struct value){.type = V_INT, .i = p->tok->i});
        next(p);
        return n;
    case T_FLOAT:
        n = constant(p, (struct value){.type = V_FLOAT, .f = p->tok->f});
        next(p);
        return n;
    case T_LPAREN:
        next(p);
        n = tuple(p, TUPLE_EXPRESSIONS, NULL, true, false);
        expect(p, T_RPAREN);
        return n;
    case T_LBRACKET:
        return list(p);
    case T_LBRACE:
        return dict(p);
    default:
        return unexpected(p);
    }
}

// Positional kids, keywords kw, then dyn_args (*x) and dyn_kwargs (**x).
static void call_args(struct parser *p, struct node *n)
{
    expect(p, T_LPAREN);
    while (p->tok->type != T_RPAREN && !p->failed) {
        if (p->tok->type == T_MUL && !n->dyn_args && !n->dyn_kwargs) {
            next(p);
            n->dyn_args = expression(p);
        } else if (p->tok->type == T_POW && !n->dyn_kwargs) {
            next(p);
            n->dyn_kwargs = expression(p);
        } else if (p->tok->type == T_NAME && p->tok[1].type == T_ASSIGN && !n->dyn_kwargs) {
            struct value key = name_text(p);
            next(p);
            add_kw(p, n, key, expression(p));
        } else if (!n->dyn_args && !n->dyn_kwargs && !n->nkw) {
            add_kid(p, n, expression(p));
        } else {
            fail(p, ERR_INVALID, "%s", "invalid syntax for function call expression");
        }
        if (!skip_type(p, T_COMMA))
            break;
    }
    expect(p, T_RPAREN);
}

static struct node *call(struct parser *p, struct node *callee)  // N_CALL: a = callee, and call_args
{
    struct node *n = node2(p, N_CALL, callee, NULL);
    call_args(p, n);
    return n;
}

// One part of [...]: an expression, or N_SLICE: a, b, c (NULL where left out)
static struct node *subscript_part(struct parser *p)
{
    struct node *part[3] = {0}, *n = node(p, N_SLICE);
    if (p->tok->type != T_COLON) {
        part[0] = expression(p);
        if (p->tok->type != T_COLON)
            return part[0];
    }
    next(p);
    if (p->tok->type != T_COLON && p->tok->type != T_RBRACKET && p->tok->type != T_COMMA)
        part[1] = expression(p);
    if (skip_type(p, T_COLON) && p->tok->type != T_RBRACKET && p->tok->type != T_COMMA)
        part[2] = expression(p);
    n->a = part[0];
    n->b = part[1];
    n->c = part[2];
    return n;
}

// N_ATTR: a, value = name.  N_ITEM: a, b = key.
static struct node *subscript(struct parser *p, struct node *of)
{
    if (skip_type(p, T_DOT)) {
        if (p->tok->type == T_INT) {
            struct node *n = node2(p, N_ITEM, of, constant(p, (struct value){.type = V_INT, .i = p->tok->i}));
            next(p);
            return n;
        }
        struct node *n = node2(p, N_ATTR, of, NULL);
        n->value = name_text(p);
        return n;
    }
    struct node *n = node2(p, N_ITEM, of, NULL), *parts = node(p, N_TUPLE);
    next(p);
    while (p->tok->type != T_RBRACKET && !p->failed) {
        add_kid(p, parts, subscript_part(p));
        if (!skip_type(p, T_COMMA))
            break;
    }
    expect(p, T_RBRACKET);
    n->b = parts->nkids == 1 ? parts->kids[0] : parts;
    return n;
}

static struct node *postfix(struct parser *p, struct node *n)
{
    int depth = p->depth;
    for (;;) {
        if (p->tok->type == T_DOT || p->tok->type == T_LBRACKET)
            n = subscript(p, n);
        else if (p->tok->type == T_LPAREN)
            n = call(p, n);
        else
            break;
        if (!enter(p))
            break;
    }
    p->depth = depth;
    return n;
}

static void dotted_name(struct parser *p, struct node *n)
{
    n->value = name_text(p);
    while (skip_type(p, T_DOT)) {  // no filter or test has a dot in its name; kept for the message
        struct value part = name_text(p);
        const struct str *a = n->value.s, *b = part.s;
        char *both = arena_printf(p->arena, "%.*s.%.*s", (int)a->len, a->p, (int)b->len, b->p);
        n->value = text_const(p->arena, both, strlen(both));
    }
}

// N_FILTER: a = operand (NULL: the text of a block), value = name, def, and call_args
static struct node *filter(struct parser *p, struct node *of)
{
    struct node *n = node2(p, N_FILTER, of, NULL);
    dotted_name(p, n);
    n->def = template_filters_find(n->value.s->p, n->value.s->len);
    if (p->tok->type == T_LPAREN)
        call_args(p, n);
    return n;
}

static struct node *filter_chain(struct parser *p, struct node *n)
{
    while (skip_type(p, T_PIPE))
        n = filter(p, n);
    return n;
}

// N_TEST: a = operand, value = name, def, and call_args
static struct node *test(struct parser *p, struct node *of)
{
    bool negated = skip_name(p, "not");
    struct node *n = node2(p, N_TEST, of, NULL);
    dotted_name(p, n);
    n->def = template_tests_find(n->value.s->p, n->value.s->len);
    enum token_type t = p->tok->type;
    if (t == T_LPAREN) {
        call_args(p, n);
    } else if ((t == T_NAME || t == T_STRING || t == T_INT || t == T_FLOAT || t == T_LBRACKET || t == T_LBRACE) &&
               !is_name(p->tok, "else") && !is_name(p->tok, "or") && !is_name(p->tok, "and")) {
        if (is_name(p->tok, "is"))
            return fail(p, ERR_INVALID, "%s", "you cannot chain multiple tests with is");
        add_kid(p, n, postfix(p, primary(p, false)));
    }
    return negated ? node2(p, N_NOT, n, NULL) : n;
}

static struct node *filters_and_tests(struct parser *p, struct node *n)
{
    int depth = p->depth;
    for (;;) {
        if (skip_type(p, T_PIPE))
            n = filter(p, n);
        else if (skip_name(p, "is"))
            n = test(p, n);
        else if (p->tok->type == T_LPAREN)
            n = call(p, n);
        else
            break;
        if (!enter(p))
            break;
    }
    p->depth = depth;
    return n;
}

static struct node *unary(struct parser *p, bool filters)
{
    struct node *n;
    if (!enter(p))
        return &dummy;
    if (p->tok->type == T_SUB || p->tok->type == T_ADD) {  // N_NEG, N_POS: a
        enum node_kind kind = p->tok->type == T_SUB ? N_NEG : N_POS;
        next(p);
        n = node2(p, kind, unary(p, false), NULL);
    } else {
        n = primary(p, false);
    }
    n = postfix(p, n);
    if (filters)
        n = filters_and_tests(p, n);
    p->depth--;
    return n;
}

// N_BINARY: a = left, b = right, op. Chains lean to the left; the evaluator walks that side without recursion.
static struct node *binary(struct parser *p, int op, struct node *left, struct node *right)
{
    struct node *n = node2(p, N_BINARY, left, right);
    n->op = op;
    return n;
}

static struct node *power(struct parser *p)
{
    struct node *left = unary(p, true);
    while (skip_type(p, T_POW))
        left = binary(p, T_POW, left, unary(p, true));
    return left;
}

static struct node *product(struct parser *p)
{
    struct node *left = power(p);
    while (p->tok->type == T_MUL || p->tok->type == T_DIV || p->tok->type == T_FLOORDIV || p->tok->type == T_MOD) {
        int op = (int)p->tok->type;
        next(p);
        left = binary(p, op, left, power(p));
    }
    return left;
}

static struct node *concat(struct parser *p)  // N_CONCAT: kids
{
    struct node *first = product(p);
    if (p->tok->type != T_TILDE)
        return first;
    struct node *n = node(p, N_CONCAT);
    add_kid(p, n, first);
    while (skip_type(p, T_TILDE))
        add_kid(p, n, product(p));
    return n;
}

static struct node *sum(struct parser *p)
{
    struct node *left = concat(p);
    while (p->tok->type == T_ADD || p->tok->type == T_SUB) {
        int op = (int)p->tok->type;
        next(p);
        left = binary(p, op, left, concat(p));
    }
    return left;
}

// Operators of comparisons that are words.
enum { OP_IN = 1000, OP_NOT_IN };

static int compare_operator(struct parser *p)
{
    enum token_type t = p->tok->type;
    if (t >= T_EQ && t <= T_LE) {
        next(p);
        return (int)t;
    }
    if (skip_name(p, "in"))
        return OP_IN;
    if (is_name(p->tok, "not") && is_name(&p->tok[1], "in")) {
        next(p);
        next(p);
        return OP_NOT_IN;
    }
    return 0;
}

// N_COMPARE: a = first operand; kids are N_BINARY holders: op, b = operand. op T_NAME is "in", T_NAME + flag "not in".
static struct node *comparison(struct parser *p)
{
    struct node *first = sum(p);
    int op = compare_operator(p);
    if (!op)
        return first;
    struct node *n = node2(p, N_COMPARE, first, NULL);
    for (; op; op = compare_operator(p)) {
        struct node *k = node2(p, N_BINARY, NULL, sum(p));
        k->op = op >= OP_IN ? (int)T_NAME : op;
        k->flag = op == OP_NOT_IN;
        add_kid(p, n, k);
    }
    return n;
}

static struct node *not_expression(struct parser *p)  // N_NOT: a
{
    bool negate = false, any = false;
    while (skip_name(p, "not")) {
        negate = !negate;
        any = true;
    }
    struct node *n = comparison(p);
    if (any)
        n = node2(p, N_NOT, n, NULL);
    return any && !negate ? node2(p, N_NOT, n, NULL) : n;
}

static struct node *and_expression(struct parser *p)  // N_AND, N_OR: kids
{
    struct node *first = not_expression(p);
    if (!is_name(p->tok, "and"))
        return first;
    struct node *n = node(p, N_AND);
    add_kid(p, n, first);
    while (skip_name(p, "and"))
        add_kid(p, n, not_expression(p));
    return n;
}

static struct node *or_expression(struct parser *p)
{
    struct node *first = and_expression(p);
    if (!is_name(p->tok, "or"))
        return first;
    struct node *n = node(p, N_OR);
    add_kid(p, n, first);
    while (skip_name(p, "or"))
        add_kid(p, n, and_expression(p));
    return n;
}

static struct node *expression(struct parser *p)  // N_COND: a = value, b = condition, c = else value or NULL
{
    if (!enter(p))
        return &dummy;
    int depth = p->depth;
    struct node *n = or_expression(p);
    while (skip_name(p, "if")) {
        n = node2(p, N_COND, n, or_expression(p));
        if (skip_name(p, "else"))
            n->c = expression(p);
        if (!enter(p))
            break;
    }
    p->depth = depth - 1;
    return n;
}

// ---- statements

static bool assignable(const struct node *n)
{
    if (n->kind != N_TUPLE)
        return n->kind == N_NAME || n->kind == N_NSREF;
    for (int i = 0; i < n->nkids; i++)
        if (!assignable(n->kids[i]))
            return false;
    return true;
}

static struct node *target(struct parser *p, const char *end, bool ns)
{
    struct node *n = tuple(p, TUPLE_PRIMARIES, end, false, ns);
    return p->failed || assignable(n) ? n : fail(p, ERR_INVALID, "%s", "this cannot be assigned to");
}

static const char *const end_set[] = {"endset", NULL}, *const end_for[] = {"endfor", NULL},
                         *const end_if[] = {"endif", NULL}, *const end_call[] = {"endcall", NULL},
                         *const end_filter[] = {"endfilter", NULL}, *const end_macro[] = {"endmacro", NULL},
                         *const end_with[] = {"endwith", NULL}, *const end_generation[] = {"endgeneration", NULL},
                         *const end_for_else[] = {"endfor", "else", NULL},
                         *const end_if_else[] = {"elif", "else", "endif", NULL};

// N_SET: a = target, b = value.  N_SETBLOCK: a = target, b = filter or NULL, c = body.
static struct node *parse_set(struct parser *p)
{
    struct node *n = node2(p, N_SET, target(p, NULL, true), NULL);
    if (skip_type(p, T_ASSIGN)) {
        n->b = tuple(p, TUPLE_EXPRESSIONS, NULL, false, false);
        return n;
    }
    n->kind = N_SETBLOCK;
    n->b = filter_chain(p, NULL);
    n->c = body_until(p, end_set);
    next(p);
    return n;
}

// N_FOR: a = target, b = iterable, c = condition or NULL; kids[0] = body, kids[1] = else or NULL; op: recursive
static struct node *parse_for(struct parser *p)
{
    struct node *n = node2(p, N_FOR, target(p, "in", false), NULL);
    if (!skip_name(p, "in"))
        return unexpected(p);
    n->b = tuple(p, TUPLE_NO_COND, "recursive", false, false);
    if (skip_name(p, "if"))
        n->c = expression(p);
    n->op = skip_name(p, "recursive");
    int closures = p->closures;
    p->loops++;
    add_kid(p, n, body_until(p, end_for_else));
    p->loops--;
    n->flag = p->closures != closures;
    bool has_else = is_name(p->tok, "else");
    next(p);
    add_kid(p, n, has_else ? body_until(p, end_for) : NULL);
    if (has_else)
        next(p);
    return n;
}

// N_IF: kids condition, body, condition, body ..., and c = else or NULL
static struct node *parse_if(struct parser *p)
{
    struct node *n = node(p, N_IF);
    for (bool more = true; more && !p->failed;) {
        add_kid(p, n, tuple(p, TUPLE_NO_COND, NULL, false, false));
        add_kid(p, n, body_until(p, end_if_else));
        more = is_name(p->tok, "elif");
        if (is_name(p->tok, "else")) {
            next(p);
            n->c = body_until(p, end_if);
        }
        next(p);
    }
    return n;
}

// N_MACRO: name, value = name text, kids = parameters (N_NAME with a = default or NULL), c = body
static void signature(struct parser *p, struct node *n)
{
    bool defaults = false;
    expect(p, T_LPAREN);
    while (p->tok->type != T_RPAREN && !p->failed) {
        struct node *arg = name_node(p);
        if (skip_type(p, T_ASSIGN)) {
            arg->a = expression(p);
            defaults = true;
        } else if (defaults) {
            fail(p, ERR_INVALID, "%s", "non-default argument follows default argument");
        }
        add_kid(p, n, arg);
        if (p->tok->type != T_RPAREN)
            expect(p, T_COMMA);
    }
    expect(p, T_RPAREN);
}

static void macro_body(struct parser *p, struct node *n, const char *const *ends)
{
    struct node *outer = p->macro;
    int loops = p->loops;
    p->macro = n;
    p->loops = 0;
    n->c = body_until(p, ends);
    next(p);
    p->macro = outer;
    p->loops = loops;
    p->closures++;
    if (outer) {  // a name an inner macro leaves open is open in the outer one too
        outer->caller |= n->caller;
        outer->varargs |= n->varargs;
        outer->kwargs |= n->kwargs;
    }
}

static struct node *parse_macro(struct parser *p)
{
    struct node *n = node(p, N_MACRO);
    if (p->tok->type == T_NAME)
        n->name = intern(p, p->tok->s.p, p->tok->s.len);
    n->value = name_text(p);
    signature(p, n);
    macro_body(p, n, end_macro);
    return n;
}

// N_CALLBLOCK: a = the call (N_CALL), b = N_MACRO of the block
static struct node *parse_call_block(struct parser *p)
{
    struct node *n = node(p, N_CALLBLOCK);
    n->b = node(p, N_MACRO);
    n->b->value = text_const(p->arena, "caller", 6);
    if (p->tok->type == T_LPAREN)
        signature(p, n->b);
    n->a = expression(p);
    if (n->a->kind != N_CALL)
        return fail(p, ERR_INVALID, "%s", "expected call");
    macro_body(p, n->b, end_call);
    return n;
}

// N_FILTERBLOCK: a = filter chain, c = body
static struct node *parse_filter_block(struct parser *p)
{
    struct node *n = node(p, N_FILTERBLOCK);
    n->a = filter_chain(p, filter(p, NULL));
    n->c = body_until(p, end_filter);
    next(p);
    return n;
}

// N_WITH: kids target, value, target, value ..., c = body
static struct node *parse_with(struct parser *p)
{
    struct node *n = node(p, N_WITH);
    while (p->tok->type != T_BLOCK_END && !p->failed) {
        if (n->nkids)
            expect(p, T_COMMA);
        struct node *to = primary(p, false);
        if (to->kind != N_NAME)
            fail(p, ERR_INVALID, "%s", "with assigns to names only");
        add_kid(p, n, to);
        expect(p, T_ASSIGN);
        add_kid(p, n, expression(p));
    }
    n->c = body_until(p, end_with);
    next(p);
    return n;
}

static struct node *parse_generation(struct parser *p)  // N_SCOPE: c = body
{
    struct node *n = node(p, N_SCOPE);
    int loops = p->loops;
    p->loops = 0;
    n->c = body_until(p, end_generation);
    p->loops = loops;
    next(p);
    return n;
}

static struct node *parse_jump(struct parser *p, enum node_kind kind)
{
    if (!p->loops)
        return fail(p, ERR_INVALID, "'%s' outside of a loop", kind == N_BREAK ? "break" : "continue");
    return node(p, kind);
}

static struct node *parse_print(struct parser *p)  // N_PRINT: kids
{
    struct node *n = node(p, N_PRINT);
    while (p->tok->type != T_BLOCK_END && !p->failed) {
        if (n->nkids)
            expect(p, T_COMMA);
        add_kid(p, n, expression(p));
    }
    return n;
}

static struct node *statement(struct parser *p)
{
    static const struct { const char *name; struct node *(*parse)(struct parser *); } kinds[] = {
        {"set", parse_set}, {"for", parse_for}, {"if", parse_if}, {"macro", parse_macro}, {"call", parse_call_block},
        {"filter", parse_filter_block}, {"with", parse_with}, {"generation", parse_generation}, {"print", parse_print}};
    static const char *const absent[] = {"include", "import", "from", "extends", "block", "autoescape"};
    if (p->tok->type != T_NAME)
        return fail(p, ERR_INVALID, "%s", "tag name expected");
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (skip_name(p, kinds[i].name))
            return kinds[i].parse(p);
    if (skip_name(p, "break"))
        return parse_jump(p, N_BREAK);
    if (skip_name(p, "continue"))
        return parse_jump(p, N_CONTINUE);
    for (size_t i = 0; i < sizeof absent / sizeof *absent; i++)
        if (is_name(p->tok, absent[i]))
            return fail(p, ERR_UNSUPPORTED, "the statement '%s' is not supported", absent[i]);
    char found[64];
    return fail(p, ERR_INVALID, "encountered unknown tag '%s'", describe(p->tok, found));
}

static bool at_end(const struct parser *p, const char *const *ends)
{
    for (; ends && *ends; ends++)
        if (is_name(p->tok, *ends))
            return true;
    return false;
}

// N_BODY: kids. Stops at one of the end tags, on its name; ends NULL: at the end of the template.
static struct node *sub_parse(struct parser *p, const char *const *ends)
{
    struct node *n = node(p, N_BODY);
    if (!enter(p))
        return n;
    while (p->tok->type != T_EOF) {
        if (p->tok->type == T_TEXT) {  // N_TEXT: value
            struct node *text = node(p, N_TEXT);
            text->value = text_const(p->arena, p->tok->s.p, p->tok->s.len);
            add_kid(p, n, text);
            next(p);
        } else if (skip_type(p, T_VAR_BEGIN)) {
            struct node *print = node(p, N_PRINT);
            add_kid(p, print, tuple(p, TUPLE_EXPRESSIONS, NULL, false, false));
            expect(p, T_VAR_END);
            add_kid(p, n, print);
        } else {
            expect(p, T_BLOCK_BEGIN);
            if (at_end(p, ends))
                break;
            add_kid(p, n, statement(p));
            expect(p, T_BLOCK_END);
        }
    }
    p->depth--;
    return n;
}

static struct node *body_until(struct parser *p, const char *const *ends)
{
    skip_type(p, T_COLON);
    expect(p, T_BLOCK_END);
    struct node *n = sub_parse(p, ends);
    if (p->tok->type == T_EOF)
        fail(p, ERR_INVALID, "unexpected end of template, looking for '%s'", ends[0]);
    return n;
}

// LF line ends, and without the one at the very end.
static char *normal_source(struct arena *a, const char *source, size_t len, size_t *ret_len)
{
    char *s = arena_alloc(a, len + 1);
    size_t n = 0;
    for (size_t i = 0; i < len; i++) {
        if (source[i] == '\r' && i + 1 < len && source[i + 1] == '\n')
            continue;
        s[n++] = source[i] == '\r' ? '\n' : source[i];
    }
    if (n && s[n - 1] == '\n')
        n--;
    *ret_len = n;
    return s;
}

err_code template_parse(const char *source, size_t len, struct template **ret_template, err *e)
{
    static const char *const special[SPECIAL_NAMES] = {"loop", "caller", "varargs", "kwargs"};
    err own = {0};
    if (len > TEMPLATE_MAX_SOURCE)
        return err_set(e, ERR_TOO_LARGE, "the chat template has %zu bytes, at most %d are read", len,
                       TEMPLATE_MAX_SOURCE);
    if (!utf8_valid(source, len))
        return err_set(e, ERR_INVALID, "the chat template is not valid UTF-8");
    struct template *t = mem_new(sizeof *t);
    struct token *tokens;
    size_t n;
    char *text = normal_source(&t->arena, source, len, &n);
    if (!template_lex(&t->arena, text, n, &tokens, &n, &own)) {
        struct parser p = {.t = t, .arena = &t->arena, .names = map_new(64), .tok = tokens, .e = &own};
        for (int i = 0; i < SPECIAL_NAMES; i++)
            intern(&p, special[i], strlen(special[i]));
        t->body = sub_parse(&p, NULL);
        map_free(p.names);
    }
    if (own.code) {
        template_free(t);
        if (e)
            *e = own;
        return own.code;
    }
    *ret_template = t;
    return ERR_OK;
}
