// check.c - see the header.
#include "engine/check.h"

#include <math.h>

#include "engine/family/family.h"
#include "engine/model.h"
#include "engine/sched/session.h"

static err_code check_sampling(const struct sampling *s, int vocab, err *e)
{
    if (!(s->temperature >= 0 && isfinite(s->temperature)))
        return err_set_param(e, ERR_INVALID, "temperature", "temperature is %g, expected 0 or more", s->temperature);
    if (!(s->top_p >= 0 && s->top_p <= 1))
        return err_set_param(e, ERR_INVALID, "top_p", "top_p is %g, expected 0 to 1", s->top_p);
    if (!(s->min_p >= 0 && s->min_p <= 1))
        return err_set_param(e, ERR_INVALID, "min_p", "min_p is %g, expected 0 to 1", s->min_p);
    if (!(s->repetition_penalty > 0 && isfinite(s->repetition_penalty)))
        return err_set_param(e, ERR_INVALID, "repetition_penalty", "repetition_penalty is %g, expected more than 0",
                             s->repetition_penalty);
    if (!isfinite(s->presence_penalty) || !isfinite(s->frequency_penalty))
        return err_set_param(e, ERR_INVALID, "frequency_penalty", "penalties must be finite");
    for (size_t i = 0; i < s->nbias; i++)
        if (s->bias[i].id < 0 || s->bias[i].id >= vocab || isnan(s->bias[i].bias))
            return err_set_param(e, ERR_INVALID, "logit_bias", "token id %d with bias %g, expected an id below %d and a "
                                 "number", s->bias[i].id, s->bias[i].bias, vocab);
    return ERR_OK;
}

static err_code check_prompt(const struct model *m, const struct prompt *p, err *e)
{
    if ((p->messages != NULL) + (p->text != NULL) + (p->ids != NULL) != 1)
        return err_set_param(e, ERR_INVALID, "prompt", "expected exactly one of messages, text and ids");
    if (!p->ids && !m->tokenizer)
        return err_set(e, ERR_UNSUPPORTED, "the model has no tokenizer, only token ids can be its prompt%s%s",
                       m->tokenizer_error.text[0] ? ": " : "", m->tokenizer_error.text);
    if (p->suffix && (!p->text || !tokenizer_fim_has(m->tokenizer)))
        return err_set_param(e, ERR_UNSUPPORTED, "suffix", "%s", p->text ? "the model's vocabulary has no marks for a gap in a text"
                             : "a suffix needs a prompt of text");
    if (p->messages && !m->chat)
        return err_set_param(e, ERR_UNSUPPORTED, "messages", "the model has no chat template%s%s",
                             m->chat_error.text[0] ? ": " : "", m->chat_error.text);
    return ERR_OK;
}

static err_code check_generate(const struct model *m, const struct generate *g, int max_running, err *e)
{
    if (g->n < 1 || g->n > max_running)
        return err_set_param(e, ERR_INVALID, "n", "n is %d, expected 1 to %d", g->n, max_running);
    if (g->max_tokens < -1)
        return err_set_param(e, ERR_INVALID, "max_tokens", "max_tokens is %d", g->max_tokens);
    if (g->logprobs > SESSION_MAX_LOGPROBS)
        return err_set_param(e, ERR_INVALID, "logprobs", "logprobs is %d, at most %d", g->logprobs, SESSION_MAX_LOGPROBS);
    if (g->choosing == CHOOSE_SCORED && g->grammar.kind != GRAMMAR_CHOICE)
        return err_set(e, ERR_INVALID, "probabilities need an answer that is one of several texts");
    if (g->choosing == CHOOSE_SCORED && (!m->tokenizer || max_running < 2))
        return err_set_param(e, ERR_UNSUPPORTED, g->grammar.field, "probabilities of choices need a model with a tokenizer and at "
                             "least two sequences in a step");
    if (check_prompt(m, &g->prompt, e))
        return e->code;
    return check_sampling(&g->sampling, m->vocab, e);
}

err_code check_task(const struct model *m, const struct task *t, int max_running, err *e)
{
    if (t->kind >= TASK_EMBED) {
        const struct work_ops *w = model_work(m, t->kind);
        if (!w)
            return err_set_param(e, ERR_UNSUPPORTED, "model", "the model '%s' cannot do this", t->model);
        return w->check ? w->check(m, t, e) : ERR_OK;
    }
    if (t->kind == TASK_LOAD)
        return ERR_OK;
    if (!m->family->gen && t->kind == TASK_GENERATE)
        return err_set_param(e, ERR_UNSUPPORTED, "model", "the model '%s' generates no text", t->model);
    if (t->kind == TASK_GENERATE)
        return check_generate(m, &t->generate, max_running, e);
    const struct prompt *p = &t->tokenize.prompt;
    if (!m->tokenizer)
        return err_set(e, ERR_UNSUPPORTED, "the model has no tokenizer%s%s", m->tokenizer_error.text[0] ? ": " : "",
                       m->tokenizer_error.text);
    bool fits = t->kind == TASK_TOKENIZE ? (p->text != NULL) != (p->messages != NULL) && !p->ids
              : t->kind == TASK_DETOKENIZE ? !p->text && !p->messages && (p->ids || p->nids == 0)
              : p->messages && !p->text && !p->ids;
    if (!fits)
        return err_set_param(e, ERR_INVALID, "prompt", "expected %s",
                             t->kind == TASK_TOKENIZE ? "text or messages" : t->kind == TASK_DETOKENIZE ? "ids" : "messages");
    return p->messages ? check_prompt(m, p, e) : ERR_OK;
}
