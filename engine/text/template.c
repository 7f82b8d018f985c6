// template.c - one render of a parsed template: the variables it sees, its limits, and the output with its spans.
// Any number of threads may render the same template at once; everything a render makes is its own.
#include <stdlib.h>
#include <string.h>

#include <jansson.h>

#include "base/mem.h"
#include "engine/text/template_int.h"

void template_free(struct template *t)
{
    if (!t)
        return;
    arena_done(&t->arena);
    free(t);
}

static void define(struct run *r, const char *name, struct value v)
{
    for (int i = 0; i < r->t->nnames; i++) {
        const struct str *s = r->t->names[i];
        if (s->len == strlen(name) && !memcmp(s->p, name, s->len))
            r->context[i] = v;
    }
}

static void define_globals(struct run *r)
{
    for (int i = 0; i < r->t->nnames; i++) {
        const struct fn_def *def = template_methods_global(r->t->names[i]);
        r->context[i] = (struct value){.type = V_ABSENT};
        if (!def)
            continue;
        struct func *f = template_value_alloc(r, sizeof *f);
        f->def = def;
        r->context[i] = (struct value){.type = V_FUNC, .func = f};
    }
}

static void define_input(struct run *r, const struct template_input *in)
{
    const char *key;
    json_t *item;
    struct value none = {.type = V_NONE};
    if (in->bos_token)
        define(r, "bos_token", template_value_text(r, in->bos_token));
    if (in->eos_token)
        define(r, "eos_token", template_value_text(r, in->eos_token));
    json_object_foreach(in->kwargs, key, item)
        define(r, key, template_json_value(r, item));
    define(r, "messages", template_json_messages(r, in->messages));
    define(r, "tools", in->tools ? template_json_value(r, in->tools) : none);
    define(r, "documents", in->documents ? template_json_value(r, in->documents) : none);
    define(r, "add_generation_prompt", (struct value){.type = V_BOOL, .b = in->add_generation_prompt});
}

static size_t count_spans(const struct out *o)
{
    size_t n = o->len != 0;
    for (size_t i = 1; o->mask && i < o->len; i++)
        n += o->mask[i] != o->mask[i - 1];
    return n;
}

static err_code finish(const struct out *o, struct rendered *ret, err *e)
{
    size_t n = count_spans(o), k = 0;
    struct rendered out = {.len = o->len, .nspans = n};
    out.text = mem_try(o->len + 1);
    out.spans = mem_try((n + 1) * sizeof *out.spans);
    if (!out.text || !out.spans) {
        rendered_done(&out);
        return err_set(e, ERR_MEMORY, "no memory for a prompt of %zu bytes", o->len);
    }
    if (o->len)
        memcpy(out.text, o->p, o->len);
    for (size_t i = 0, from = 0; i < o->len; i++) {
        if (i + 1 < o->len && (!o->mask || o->mask[i] == o->mask[i + 1]))
            continue;
        bool untrusted = o->mask ? o->mask[i] : o->untrusted;
        out.spans[k++] = (struct text_span){.text = out.text + from, .len = i + 1 - from, .trusted = !untrusted};
        from = i + 1;
    }
    *ret = out;
    return ERR_OK;
}

err_code template_render(const struct template *t, const struct template_input *in, struct rendered *ret_rendered,
                         err *e)
{
    struct out out = {0};
    struct run r = {.t = t, .in = in, .out = &out, .line = 1};
    struct frame top = {0};
    err_code code;
    r.context = template_value_alloc(&r, (size_t)t->nnames * sizeof *r.context);
    if (r.context) {
        define_globals(&r);
        define_input(&r, in);
        template_eval_body(&r, t->body, &top);
    }
    if (r.failed) {
        code = r.e.code;
        if (e)
            *e = r.e;
    } else {
        code = finish(&out, ret_rendered, e);
    }
    free(out.p);
    free(out.mask);
    arena_done(&r.arena);
    return code;
}
