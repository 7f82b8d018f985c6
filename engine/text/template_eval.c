// template_eval.c - walks the tree: statements print to r->out, expressions give values. One render, one thread.
//
// Names are looked up frame by frame and then in the render's context. A loop iteration, a macro call, a with block and
// a captured block have a frame each; if has none, so what it sets stays. A macro keeps the frame it was defined in.
#include <string.h>

#include "engine/text/template_int.h"

enum flow { FLOW_NEXT, FLOW_BREAK, FLOW_CONTINUE };

static struct value eval(struct run *r, const struct node *n, struct frame *f);
static enum flow exec_body(struct run *r, const struct node *body, struct frame *f);

static struct value undefined_name(const struct str *name)
{
    return (struct value){.type = V_UNDEF, .of = V_ABSENT, .s = name};
}

static void assign(struct run *r, struct frame *f, int name, struct value v)
{
    for (int i = 0; i < f->n; i++)
        if (f->slots[i].name == name) {
            f->slots[i].v = v;
            return;
        }
    if (f->n == f->cap) {
        int cap = f->cap ? f->cap * 2 : 4;
        struct frame_slot *bigger = template_value_alloc(r, (size_t)cap * sizeof *bigger);
        if (!bigger)
            return;
        if (f->n)
            memcpy(bigger, f->slots, (size_t)f->n * sizeof *bigger);
        f->slots = bigger;
        f->cap = cap;
    }
    f->slots[f->n++] = (struct frame_slot){name, v};
}

static struct value lookup(struct run *r, int name, const struct frame *f)
{
    for (; f; f = f->up)
        for (int i = 0; i < f->n; i++)
            if (f->slots[i].name == name)
                return f->slots[i].v;
    struct value v = r->context[name];
    return v.type == V_ABSENT ? undefined_name(r->t->names[name]) : v;
}

static struct frame *new_frame(struct run *r, struct frame *up)
{
    struct frame *f = template_value_alloc(r, sizeof *f);
    f->up = up;
    return f;
}

// ---- expressions

static struct value eval_binary(struct run *r, const struct node *n, struct frame *f)
{
    const struct node *left = n;
    int depth = 0;
    while (left->kind == N_BINARY) {
        left = left->a;
        depth++;
    }
    struct value v = eval(r, left, f);
    for (; depth && !r->failed; depth--) {  // from the innermost operator outwards
        const struct node *op = n;
        for (int i = 1; i < depth; i++)
            op = op->a;
        template_value_charge(r, (size_t)depth * 8);
        struct value right = eval(r, op->b, f);
        r->line = op->line;
        v = template_ops_binary(r, op->op, v, right);
    }
    return v;
}

static struct value eval_compare(struct run *r, const struct node *n, struct frame *f)
{
    struct value left = eval(r, n->a, f);
    bool yes = true;
    for (int i = 0; i < n->nkids && yes && !r->failed; i++) {
        const struct node *k = n->kids[i];
        struct value right = eval(r, k->b, f);
        if (r->failed)
            break;
        r->line = n->line;
        yes = k->op == T_NAME ? template_value_contains(r, left, right) != k->flag
                              : template_ops_compare(r, k->op, left, right);
        left = right;
    }
    return (struct value){.type = V_BOOL, .b = yes};
}

static struct value eval_logic(struct run *r, const struct node *n, struct frame *f)
{
    struct value v = {.type = V_NONE};
    for (int i = 0; i < n->nkids && !r->failed; i++) {
        v = eval(r, n->kids[i], f);
        if (template_value_truth(v) == (n->kind == N_OR))
            break;
    }
    return v;
}

static struct value eval_concat(struct run *r, const struct node *n, struct frame *f)
{
    struct value v = template_value_text(r, "");
    for (int i = 0; i < n->nkids && !r->failed; i++) {
        struct value next = template_format_str(r, eval(r, n->kids[i], f));
        if (!r->failed)
            v = template_value_concat(r, v.s, next.s);
    }
    return v;
}

static struct value eval_seq(struct run *r, const struct node *n, struct frame *f)
{
    struct seq *s = template_value_seq(r, n->kind == N_TUPLE ? SEQ_TUPLE : SEQ_LIST, (size_t)n->nkids);
    for (int i = 0; i < n->nkids && !r->failed; i++)
        template_value_push(r, s, eval(r, n->kids[i], f));
    return template_value_of_seq(s);
}

static struct value eval_dict(struct run *r, const struct node *n, struct frame *f)
{
    struct dict *d = template_value_dict(r);
    for (int i = 0; i + 1 < n->nkids && !r->failed; i += 2) {
        struct value k = eval(r, n->kids[i], f);
        template_value_put(r, d, k, eval(r, n->kids[i + 1], f));
    }
    return (struct value){.type = V_DICT, .dict = d};
}

static struct value eval_item(struct run *r, const struct node *n, struct frame *f)
{
    struct value v = eval(r, n->a, f);
    if (n->b->kind != N_SLICE) {
        struct value key = eval(r, n->b, f);
        r->line = n->line;
        return template_ops_item(r, v, key);
    }
    const struct node *parts[3] = {n->b->a, n->b->b, n->b->c};
    struct value b[3];
    for (int i = 0; i < 3; i++)
        b[i] = parts[i] ? eval(r, parts[i], f) : (struct value){.type = V_NONE};
    r->line = n->line;
    return template_ops_slice(r, v, b);
}

// Arguments of a call; extra is one more keyword (the caller of a call block) or NULL.
static void eval_args(struct run *r, const struct node *n, struct frame *f, const struct kwarg *extra,
                      struct args *ret_a)
{
    struct seq *pos = template_value_seq(r, SEQ_LIST, (size_t)n->nkids);
    for (int i = 0; i < n->nkids && !r->failed; i++)
        template_value_push(r, pos, eval(r, n->kids[i], f));
    if (n->dyn_args) {
        const struct seq *more = template_value_iterate(r, eval(r, n->dyn_args, f));
        for (size_t i = 0; i < more->n && !r->failed; i++)
            template_value_push(r, pos, more->v[i]);
    }
    struct value dyn = n->dyn_kwargs ? eval(r, n->dyn_kwargs, f) : (struct value){.type = V_NONE};
    size_t room = (size_t)n->nkw + (dyn.type == V_DICT ? dyn.dict->n : 0) + (extra != NULL);
    struct kwarg *kw = room ? template_value_alloc(r, room * sizeof *kw) : NULL;
    size_t k = 0;
    for (int i = 0; i < n->nkw && kw && !r->failed; i++) {
        struct value v = eval(r, n->kw[i].node, f);
        kw[k++] = (struct kwarg){n->kw[i].name.s, v};
    }
    for (size_t i = 0; dyn.type == V_DICT && kw && i < dyn.dict->n; i++)
        if (dyn.dict->e[i].k.type == V_STR)
            kw[k++] = (struct kwarg){dyn.dict->e[i].k.s, dyn.dict->e[i].v};
    if (extra && kw)
        kw[k++] = *extra;
    *ret_a = (struct args){pos->v, pos->n, kw, k};
}

static struct value eval_filter(struct run *r, const struct node *n, struct frame *f, const struct value *block)
{
    struct value v =
        n->a ? (n->a->kind == N_FILTER && block ? eval_filter(r, n->a, f, block) : eval(r, n->a, f)) : *block;
    struct args a;
    eval_args(r, n, f, NULL, &a);
    r->line = n->line;
    if (!n->def)
        return template_value_fail(r, ERR_INVALID, "no %s named '%.*s'", n->kind == N_TEST ? "test" : "filter",
                                   (int)(n->value.s->len & 0xFF), n->value.s->p);
    return template_ops_call(r, n->def, v, &a);
}

static struct value call_value(struct run *r, struct value callee, const struct args *a);

static struct value eval_call(struct run *r, const struct node *n, struct frame *f, const struct kwarg *extra)
{
    struct value callee = eval(r, n->a, f);
    struct args a;
    eval_args(r, n, f, extra, &a);
    r->line = n->line;
    return r->failed ? callee : call_value(r, callee, &a);
}

static struct value eval_node(struct run *r, const struct node *n, struct frame *f)
{
    struct value v;
    switch (n->kind) {
    case N_CONST:
        return n->value;
    case N_NAME:
        return lookup(r, n->name, f);
    case N_NSREF:
        return template_ops_attr(r, lookup(r, n->name, f), n->value.s);
    case N_TUPLE:
    case N_LIST:
        return eval_seq(r, n, f);
    case N_DICT:
        return eval_dict(r, n, f);
    case N_COND:
        if (template_value_truth(eval(r, n->b, f)))
            return eval(r, n->a, f);
        return n->c ? eval(r, n->c, f) : undefined_name(NULL);
    case N_OR:
    case N_AND:
        return eval_logic(r, n, f);
    case N_NOT:
        return (struct value){.type = V_BOOL, .b = !template_value_truth(eval(r, n->a, f))};
    case N_COMPARE:
        return eval_compare(r, n, f);
    case N_BINARY:
        return eval_binary(r, n, f);
    case N_CONCAT:
        return eval_concat(r, n, f);
    case N_NEG:
    case N_POS:
        v = eval(r, n->a, f);
        return template_ops_negate(r, v, n->kind == N_NEG);
    case N_ATTR:
        v = eval(r, n->a, f);
        r->line = n->line;
        return template_ops_attr(r, v, n->value.s);
    case N_ITEM:
        return eval_item(r, n, f);
    case N_CALL:
        return eval_call(r, n, f, NULL);
    case N_FILTER:
    case N_TEST:
        return eval_filter(r, n, f, NULL);
    default:  // a slice beside other subscripts: x[1:2, 3]
        return template_value_fail(r, ERR_INVALID, "a slice cannot stand here");
    }
}

static struct value eval(struct run *r, const struct node *n, struct frame *f)
{
    struct value v = undefined_name(NULL);
    if (template_value_enter(r) && template_value_charge(r, 0))
        v = eval_node(r, n, f);
    r->depth--;
    return v;
}

// ---- calls

static bool same_name(const struct str *a, const struct str *b)
{
    return a->len == b->len && !memcmp(a->p, b->p, a->len);
}

static const struct kwarg *find_kw(const struct args *a, const struct str *name)
{
    for (size_t i = 0; i < a->nkw; i++)
        if (same_name(a->kw[i].name, name))
            return &a->kw[i];
    return NULL;
}

static void bind_params(struct run *r, const struct node *m, struct frame *f, const struct args *a)
{
    for (int i = 0; i < m->nkids && !r->failed; i++) {
        const struct node *p = m->kids[i];
        const struct str *name = r->t->names[p->name];
        const struct kwarg *kw = (size_t)i < a->npos ? NULL : find_kw(a, name);
        struct value v = undefined_name(name);
        if ((size_t)i < a->npos)
            v = a->pos[i];
        else if (kw)
            v = kw->v;
        else if (p->a)
            v = eval(r, p->a, f);
        assign(r, f, p->name, v);
    }
}

static bool is_param(struct run *r, const struct node *m, const struct str *name, size_t from)
{
    for (size_t i = from; i < (size_t)m->nkids; i++)
        if (same_name(r->t->names[m->kids[i]->name], name))
            return true;
    return false;
}

// What the parameters leave over: caller, kwargs and varargs if the body mentions them, otherwise an error.
static void bind_rest(struct run *r, const struct node *m, struct frame *f, const struct args *a)
{
    struct dict *kwargs = template_value_dict(r);
    struct seq *varargs = template_value_seq(r, SEQ_TUPLE, 0);
    const struct str *caller_name = r->t->names[NAME_CALLER];
    bool caller_param = is_param(r, m, caller_name, 0);
    for (size_t i = (size_t)m->nkids; i < a->npos; i++)
        template_value_push(r, varargs, a->pos[i]);
    if (varargs->n && !m->varargs)
        template_value_fail(r, ERR_INVALID, "macro '%.*s' takes not more than %d arguments",
                            (int)(m->value.s->len & 0xFF), m->value.s->p, m->nkids);
    for (size_t i = 0; i < a->nkw && !r->failed; i++) {
        const struct str *name = a->kw[i].name;
        if (is_param(r, m, name, a->npos) || (m->caller && !caller_param && same_name(name, caller_name)))
            continue;
        if (!m->kwargs)
            template_value_fail(r, ERR_INVALID, "macro '%.*s' takes no keyword argument '%.*s'",
                                (int)(m->value.s->len & 0xFF), m->value.s->p, (int)(name->len & 0xFF), name->p);
        template_value_put(r, kwargs, (struct value){.type = V_STR, .s = name}, a->kw[i].v);
    }
    if (m->caller && !caller_param) {
        const struct kwarg *caller = find_kw(a, caller_name);
        assign(r, f, NAME_CALLER, caller ? caller->v : undefined_name(caller_name));
    }
    if (m->kwargs && !is_param(r, m, r->t->names[NAME_KWARGS], 0))
        assign(r, f, NAME_KWARGS, (struct value){.type = V_DICT, .dict = kwargs});
    if (m->varargs && !is_param(r, m, r->t->names[NAME_VARARGS], 0))
        assign(r, f, NAME_VARARGS, template_value_of_seq(varargs));
}

// Runs a body and takes what it prints as a string.
static struct value capture(struct run *r, const struct node *body, struct frame *f)
{
    struct out own = {0}, *outer = r->out;
    r->out = &own;
    exec_body(r, body, f);
    r->out = outer;
    return template_value_out_take(r, &own);
}

static struct value call_macro(struct run *r, const struct macro *m, const struct args *a)
{
    struct value v = undefined_name(NULL);
    struct frame *f = new_frame(r, m->frame);
    if (++r->calls > TEMPLATE_MAX_DEPTH)
        template_value_fail(r, ERR_TOO_LARGE, "macros call each other deeper than %d", TEMPLATE_MAX_DEPTH);
    bind_rest(r, m->node, f, a);
    bind_params(r, m->node, f, a);
    if (!r->failed)
        v = capture(r, m->node->c, f);
    r->calls--;
    return v;
}

static enum flow run_loop(struct run *r, const struct node *n, struct frame *f, struct value over, int depth0);

static struct value call_value(struct run *r, struct value callee, const struct args *a)
{
    if (callee.type == V_FUNC)
        return template_ops_call(r, callee.func->def, callee.func->self, a);
    if (callee.type == V_MACRO)
        return call_macro(r, callee.macro, a);
    if (callee.type == V_LOOP && callee.loop->node->op && a->npos == 1) {  // {% for .. recursive %} and loop(children)
        struct out own = {0}, *outer = r->out;
        if (++r->calls > TEMPLATE_MAX_DEPTH)
            template_value_fail(r, ERR_TOO_LARGE, "a loop calls itself deeper than %d", TEMPLATE_MAX_DEPTH);
        r->out = &own;
        run_loop(r, callee.loop->node, callee.loop->frame, a->pos[0], callee.loop->depth0 + 1);
        r->out = outer;
        r->calls--;
        return template_value_out_take(r, &own);
    }
    if (callee.type == V_UNDEF)
        return template_value_undefined(r, callee);
    return template_value_fail(r, ERR_INVALID, "'%s' object is not callable", template_value_type(callee));
}

// ---- statements

static void assign_target(struct run *r, const struct node *to, struct frame *f, struct value v)
{
    if (r->failed)
        return;
    if (to->kind == N_NAME) {
        assign(r, f, to->name, v);
        return;
    }
    if (to->kind == N_NSREF) {
        struct value ns = lookup(r, to->name, f);
        if (ns.type != V_NAMESPACE)
            template_value_fail(r, ERR_INVALID, "cannot assign attribute on non-namespace object");
        else if (to->value.s->len && *to->value.s->p == '_')
            template_value_fail(r, ERR_INVALID, "a namespace takes no names that begin with an underscore");
        else
            template_value_put(r, ns.dict, to->value, v);
        return;
    }
    const struct seq *s = template_value_iterate(r, v);
    if (s->n != (size_t)to->nkids) {
        template_value_fail(r, ERR_INVALID, "%zu values to unpack, expected %d", s->n, to->nkids);
        return;
    }
    for (int i = 0; i < to->nkids; i++)
        assign_target(r, to->kids[i], f, s->v[i]);
}

static struct seq *loop_items(struct run *r, const struct node *n, struct frame *f, struct value over)
{
    struct seq *all = template_value_iterate(r, over);
    if (!n->c)
        return all;
    struct seq *kept = template_value_seq(r, SEQ_LIST, 0);
    struct frame *test = new_frame(r, f);
    for (size_t i = 0; i < all->n && !r->failed; i++) {
        assign_target(r, n->a, test, all->v[i]);
        if (template_value_truth(eval(r, n->c, test)))
            template_value_push(r, kept, all->v[i]);
    }
    return kept;
}

static enum flow run_loop(struct run *r, const struct node *n, struct frame *f, struct value over, int depth0)
{
    struct loop *l = template_value_alloc(r, sizeof *l);
    *l = (struct loop){.node = n, .frame = f, .depth0 = depth0, .changed = {.type = V_ABSENT}};
    l->items = loop_items(r, n, f, over);
    struct frame *body = NULL;
    enum flow flow = FLOW_NEXT;
    size_t rounds = 0;
    for (; l->i < l->items->n && flow != FLOW_BREAK && !r->failed; l->i++, rounds++) {
        if (!body || n->flag)
            body = new_frame(r, f);
        body->n = 0;
        assign(r, body, NAME_LOOP, (struct value){.type = V_LOOP, .loop = l});
        assign_target(r, n->a, body, l->items->v[l->i]);
        flow = exec_body(r, n->kids[0], body);
    }
    if (!rounds && n->kids[1] && !r->failed)
        return exec_body(r, n->kids[1], new_frame(r, f));
    return FLOW_NEXT;
}

static enum flow exec_if(struct run *r, const struct node *n, struct frame *f)
{
    for (int i = 0; i + 1 < n->nkids; i += 2) {
        bool yes = template_value_truth(eval(r, n->kids[i], f));
        if (r->failed)
            return FLOW_NEXT;
        if (yes)
            return exec_body(r, n->kids[i + 1], f);
    }
    return n->c ? exec_body(r, n->c, f) : FLOW_NEXT;
}

static struct value make_macro(struct run *r, const struct node *n, struct frame *f)
{
    struct macro *m = template_value_alloc(r, sizeof *m);
    *m = (struct macro){n, f};
    return (struct value){.type = V_MACRO, .macro = m};
}

static enum flow exec_with(struct run *r, const struct node *n, struct frame *f)
{
    struct frame *inner = new_frame(r, f);
    for (int i = 0; i + 1 < n->nkids; i += 2) {
        struct value v = eval(r, n->kids[i + 1], f);
        assign_target(r, n->kids[i], inner, v);
    }
    return exec_body(r, n->c, inner);
}

static void exec_call_block(struct run *r, const struct node *n, struct frame *f)
{
    struct kwarg caller = {r->t->names[NAME_CALLER], make_macro(r, n->b, f)};
    struct value v = eval_call(r, n->a, f, &caller);
    if (!r->failed)
        template_format_print(r, r->out, v);
}

static enum flow exec(struct run *r, const struct node *n, struct frame *f)
{
    struct value v;
    switch (n->kind) {
    case N_TEXT:
        template_value_out_str(r, r->out, n->value.s);
        break;
    case N_PRINT:
        for (int i = 0; i < n->nkids && !r->failed; i++) {
            v = eval(r, n->kids[i], f);
            if (!r->failed)
                template_format_print(r, r->out, v);
        }
        break;
    case N_IF:
        return exec_if(r, n, f);
    case N_FOR:
        v = eval(r, n->b, f);
        return r->failed ? FLOW_NEXT : run_loop(r, n, f, v, 0);
    case N_SET:
        v = eval(r, n->b, f);
        assign_target(r, n->a, f, v);
        break;
    case N_SETBLOCK:
        v = capture(r, n->c, new_frame(r, f));
        if (n->b && !r->failed)
            v = eval_filter(r, n->b, f, &v);
        assign_target(r, n->a, f, v);
        break;
    case N_FILTERBLOCK:
        v = capture(r, n->c, new_frame(r, f));
        if (!r->failed)
            v = eval_filter(r, n->a, f, &v);
        if (!r->failed)
            template_format_print(r, r->out, v);
        break;
    case N_MACRO:
        assign(r, f, n->name, make_macro(r, n, f));
        break;
    case N_CALLBLOCK:
        exec_call_block(r, n, f);
        break;
    case N_WITH:
        return exec_with(r, n, f);
    case N_SCOPE:
        return exec_body(r, n->c, new_frame(r, f));
    case N_BREAK:
        return FLOW_BREAK;
    default:
        return FLOW_CONTINUE;
    }
    return FLOW_NEXT;
}

static enum flow exec_body(struct run *r, const struct node *body, struct frame *f)
{
    enum flow flow = FLOW_NEXT;
    if (template_value_enter(r))
        for (int i = 0; i < body->nkids && flow == FLOW_NEXT && template_value_charge(r, 0); i++) {
            r->line = body->kids[i]->line;
            flow = exec(r, body->kids[i], f);
        }
    r->depth--;
    return flow;
}

void template_eval_body(struct run *r, const struct node *body, struct frame *f)
{
    exec_body(r, body, f);
}
