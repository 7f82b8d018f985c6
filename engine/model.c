// model.c - opens a model: container, family, tokenizer, chat template. Runs on the thread that loads it; the result is
// immutable and may be read by any thread.
#include "engine/model.h"

#include <stdlib.h>

#include "base/mem.h"
#include "engine/blocks/packed.h"
#include "engine/family/family.h"
#include "engine/text/chat.h"
#include "engine/tokenizer/tokenizer.h"
#include "engine/weights/weights.h"

static err_code find_family(struct model *m, err *e)
{
    const char *arch = weights_arch(m->weights);
    m->family = family_find(arch);
    if (m->family)
        return ERR_OK;
    char known[320];
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
    if (tokenizer_open(m->weights, &m->tokenizer, &m->tokenizer_error))
        m->tokenizer = NULL;
    if (!chat_open(m->weights, override, &m->chat, &m->chat_error))
        return ERR_OK;
    m->chat = NULL;
    if (override)
        *e = m->chat_error;
    return override ? m->chat_error.code : ERR_OK;
}

err_code model_open(const char *path, const struct model_options *o, const struct cpu_ops *ops,
                    struct model **ret_model, err *e)
{
    struct model *m = mem_new(sizeof *m);
    m->path = mem_strdup(path);
    m->options = *o;
    m->options.chat_template = o->chat_template ? mem_strdup(o->chat_template) : NULL;
    m->ops = ops;
    err_code code = weights_open(path, &m->weights, e);
    if (!code)
        code = find_family(m, e);
    if (!code)
        code = m->family->open(m, e);
    if (!code)
        code = limit_context(m, e);
    if (!code)
        code = open_text(m, e);
    if (code) {
        model_close(m);
        return code;
    }
    *ret_model = m;
    return ERR_OK;
}

void model_close(struct model *m)
{
    if (!m)
        return;
    chat_close(m->chat);
    tokenizer_close(m->tokenizer);
    if (m->family)
        m->family->close(m);
    packed_free(m->packed);
    weights_close(m->weights);
    free((char *)m->options.chat_template);
    free(m->path);
    free(m);
}
