// model.c - opens a model: container, family, tokenizer, chat template. Runs on the thread that loads it; the result is
// immutable and may be read by any thread.
#include "engine/model.h"

#include <stdlib.h>

#include "base/mem.h"
#include "engine/blocks/lora.h"
#include "engine/blocks/packed.h"
#include "engine/decide/decide.h"
#include "engine/family/family.h"
#include "engine/text/chat.h"
#include "engine/tokenizer/tokenizer.h"
#include "engine/weights/weights.h"

static err_code find_family(struct model *m, err *e)
{
    const char *arch = weights_arch(m->weights);
    m->family = family_find(arch, m->weights, &m->options);
    if (m->family)
        return ERR_OK;
    char known[640];
    family_names(known, sizeof known);
    if (!arch[0])
        return err_set(e, ERR_CORRUPT, "%s: no architecture is named; known are %s", m->path, known);
    return err_set(e, ERR_UNSUPPORTED, "%s: architecture '%s' is not built; known are %s", m->path, arch, known);
}

static err_code limit_context(struct model *m, err *e)
{
    int asked = m->options.context;
    if (asked > m->context)
        return err_set(e, ERR_INVALID, "a context of %d was asked for, %s has %d positions", asked, m->path,
                       m->context);
    if (asked > 0)
        m->context = asked;
    return ERR_OK;
}

// A model without a tokenizer or a template still answers from ids; why it has none is kept for whoever asks for one.
// A template the configuration names must be right, though: a model is not served with another one than was asked for.
static err_code open_text(struct model *m, err *e)
{
    const char *override = m->options.chat_template;
    if (!m->tokenizer && tokenizer_open(m->weights, &m->tokenizer, &m->tokenizer_error))  // a family may have opened its own
        m->tokenizer = NULL;
    if (!chat_open(m->weights, override, &m->chat, &m->chat_error))
        return ERR_OK;
    m->chat = NULL;
    if (override)
        *e = m->chat_error;
    return override ? m->chat_error.code : ERR_OK;
}

// As with templates: what the configuration asks for must be right; a model without is served all the same.
static err_code open_decider(struct model *m, err *e)
{
    if (!m->family->gen || m->family->speak || !decide_open(m, &m->decider, &m->decider_error))
        return ERR_OK;
    m->decider = NULL;
    if (m->decider_error.code == ERR_NOT_FOUND)
        return ERR_OK;
    *e = m->decider_error;
    return e->code;
}

// Before the family opens its linears, which take their pairs out of it.
static err_code open_adapter(struct model *m, err *e)
{
    struct model_part *p;
    if (!m->options.adapter)
        return ERR_OK;
    err_code code = model_add_part(m, "adapter", m->options.adapter, &p, e);
    return code ? code : lora_open(p->weights, &m->adapter, e);
}

static err_code open_family(struct model *m, err *e)
{
    err_code code = open_adapter(m, e);
    if (!code)
        code = m->family->open(m, e);
    if (!code && m->adapter)
        code = lora_check(m->adapter, m->path, e);
    return code;
}

err_code model_open(const char *path, const struct model_options *o, const struct cpu_ops *ops,
                    struct model **ret_model, err *e)
{
    struct model *m = mem_new(sizeof *m);
    m->path = mem_strdup(path);
    m->options = *o;
    m->options.chat_template = o->chat_template ? mem_strdup(o->chat_template) : NULL;
    m->options.vocoder = o->vocoder ? mem_strdup(o->vocoder) : NULL;
    m->options.decision = o->decision ? mem_strdup(o->decision) : NULL;
    m->options.adapter = o->adapter ? mem_strdup(o->adapter) : NULL;
    m->ops = ops;
    err_code code = weights_open(path, &m->weights, e);
    if (!code)
        code = find_family(m, e);
    if (!code && m->family->gen && !m->family->speak)
        code = decide_find(m, e);
    if (!code)
        code = open_family(m, e);
    if (!code)
        code = limit_context(m, e);
    if (!code)
        code = open_text(m, e);
    if (!code)
        code = open_decider(m, e);
    if (code) {
        model_close(m);
        return code;
    }
    *ret_model = m;
    return ERR_OK;
}

err_code model_open_survey(const char *path, const struct cpu_ops *ops, struct model **ret_model, err *e)
{
    struct model *m = mem_new(sizeof *m);
    m->path = mem_strdup(path);
    m->ops = ops;
    err_code code = weights_open(path, &m->weights, e);
    if (!code) {
        weights_set_survey(m->weights);
        code = find_family(m, e);
    }
    if (!code)
        code = m->family->open(m, e);
    if (code) {
        model_close(m);
        return code;
    }
    *ret_model = m;
    return ERR_OK;
}

err_code model_ready(const struct model *m, err *e)
{
    err_code why = m->tokenizer ? ERR_OK : m->tokenizer_error.code;
    if (why && why != ERR_NOT_FOUND && why != ERR_UNSUPPORTED) {
        *e = m->tokenizer_error;
        return why;
    }
    return m->family->ready ? m->family->ready(m, e) : ERR_OK;
}

void model_hide_paths(const struct model *m, const char *name, err *e)
{
    const char *const paths[] = {m->path, m->options.vocoder, m->options.decision, m->options.adapter};
    for (size_t i = 0; i < sizeof paths / sizeof *paths; i++)
        err_hide_path(e, paths[i], name);
}

void model_close(struct model *m)
{
    if (!m)
        return;
    decide_close(m->decider);
    chat_close(m->chat);
    tokenizer_close(m->tokenizer);
    if (m->family)
        m->family->close(m);
    packed_free(m->packed);
    lora_free(m->adapter);
    weights_close(m->weights);
    for (int i = 0; i < m->nparts; i++) {
        packed_free(m->parts[i].packed);
        weights_close(m->parts[i].weights);
    }
    free((char *)m->options.chat_template);
    free((char *)m->options.vocoder);
    free((char *)m->options.decision);
    free((char *)m->options.adapter);
    free(m->path);
    free(m);
}

err_code model_add_part(struct model *m, const char *name, const char *path, struct model_part **ret_part, err *e)
{
    if (m->nparts == MODEL_PARTS)
        return err_set(e, ERR_INTERNAL, "more than %d parts in a model", MODEL_PARTS);
    struct model_part *p = &m->parts[m->nparts];
    *p = (struct model_part){.name = name};
    err_code code = weights_open(path, &p->weights, e);
    if (code)
        return code;
    m->nparts++;
    *ret_part = p;
    return ERR_OK;
}

const struct work_ops *model_work(const struct model *m, enum task_kind kind)
{
    const struct family *f = m->family;
    switch (kind) {
    case TASK_EMBED:
        return f->embed;
    case TASK_TRANSCRIBE:
        return f->transcribe;
    case TASK_SPEAK:
        return f->speak;
    case TASK_IMAGE:
        return f->image;
    case TASK_DECIDE:
        return m->decider ? decide_work(m->decider) : NULL;
    default:
        return NULL;
    }
}

unsigned model_can(const struct model *m)
{
    const struct family *f = m->family;
    unsigned can = 0;
    if (f->gen && !f->speak)
        can |= CAN_COMPLETE | (m->chat && m->tokenizer ? CAN_CHAT : 0);
    can |= f->embed ? CAN_EMBED : 0;
    can |= f->transcribe ? CAN_TRANSCRIBE : 0;
    can |= f->speak ? CAN_SPEAK : 0;
    can |= f->image ? CAN_IMAGE : 0;
    can |= m->decider ? CAN_DECIDE : 0;
    return can;
}
