// asking.c - one task of decisions: its prompts, its rounds, its answers. Prepared on a prep thread, then the scheduler
// thread's.
//
//     prompts   [stem][tail 0]   [stem][tail 1] ...      each tokenised whole; the stem is what all begin with
//     rounds    tail 0, tail 1 ...                        the last position of each is read at once (readout.c)
//
// A tail is kept from where it leaves the first prompt, so that many questions about a long state keep it once.
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "engine/decide/bare.h"
#include "engine/decide/decider.h"
#include "engine/decide/readout.h"
#include "engine/model.h"
#include "engine/sched/session.h"
#include "engine/task.h"
#include "engine/text/chat_ids.h"
#include "engine/tokenizer/tokenizer.h"

enum { MAX_TEXT = 64 << 20 };  // bytes of all prompts of a task

struct tail {
    int shared;    // tokens it has in common with the first prompt
    int32_t *ids;  // those after them
    int n;
};

struct asking {
    struct work w;
    const struct decider *d;
    const struct decide *task;
    int32_t *first;         // the first prompt
    int nfirst;
    struct tail *tails;     // [nquestions]
    int next, answered;     // rounds given out, answers sent
    int32_t *round;         // of the round that runs
    double *scores, *p;     // [most options]
    int32_t *tokens;        // of all options, for their share of the vocabulary
    bool pending;           // an answer waits to be sent
    err failure;            // of reading it
    struct decision decision;
};

static const struct decide_question *question(const struct asking *a, int i)
{
    return &a->task->questions[i];
}

// ---- what is asked for

static err_code check_question(const struct decider *d, const struct decide_question *q, enum decide_kind kind, err *e)
{
    if (q->kind != kind)
        return err_set(e, ERR_INTERNAL, "questions of two kinds in one task");
    if (!q->text)
        return err_set_param(e, ERR_INVALID, "question", "a question has no text");
    int most = d->count[DECIDE_ENUM];
    if (kind == DECIDE_ENUM && (q->noptions < 2 || q->noptions > (size_t)most))
        return err_set_param(e, ERR_INVALID, "options", "choice needs 2-%d options, got %zu", most, q->noptions);
    return ERR_OK;
}

static err_code check(const struct model *m, const struct task *t, err *e)
{
    const struct decide *in = &t->decide;
    if (in->nquestions < 1 || in->nquestions > DECIDE_MAX_QUESTIONS)
        return err_set_param(e, ERR_INVALID, "questions", "%zu questions, expected 1 to %d", in->nquestions,
                             DECIDE_MAX_QUESTIONS);
    for (size_t i = 0; i < in->nquestions; i++)
        if (check_question(m->decider, &in->questions[i], in->questions[0].kind, e))
            return e->code;
    return ERR_OK;
}

// ---- prompts

static err_code too_long(const struct model *m, size_t tokens, err *e)
{
    return err_set_param(e, ERR_CONTEXT, "state", "This model's maximum context length is %d tokens. However, you requested "
                         "more than %zu tokens.", m->context, tokens);
}

// A message to a chat model, which is not to think first: the answer is read at the first token of its turn.
static err_code encode_message(const struct model *m, const struct buf *text, struct ids *ids, err *e)
{
    struct prompt p = {.add_generation_prompt = true};
    p.messages = json_pack("[{s:s, s:s%}]", "role", "user", "content", text->data, text->len);
    p.kwargs = json_pack("{s:b}", "enable_thinking", 0);
    err_code code = p.messages ? chat_ids_encode(m->chat, m->tokenizer, &p, ids, e)
                               : err_set_param(e, ERR_INVALID, "state", "the question is not UTF-8");
    json_decref(p.messages);
    json_decref(p.kwargs);
    return code;
}

static err_code encode_text(const struct model *m, const struct buf *text, struct ids *ids, err *e)
{
    struct text_span span = {text->data, text->len, false};
    return tokenizer_encode(m->tokenizer, &span, 1, false, ids, e);
}

static err_code encode(const struct asking *a, const struct model *m, int i, size_t *bytes, struct ids *ids, err *e)
{
    struct buf text;
    bool message = !a->d->native && m->chat;
    buf_init(&text, MAX_TEXT - *bytes);
    (message ? bare_message : bare_text)(a->task->state, question(a, i), &a->d->labels, &text);
    err_code code = ERR_OK;
    if (text.over)
        code = err_set_param(e, ERR_TOO_LARGE, "questions", "the prompts of all questions have more than %d bytes, the state "
                             "counted for each", MAX_TEXT);
    ids->max = (size_t)m->context;
    if (!code && (message ? encode_message : encode_text)(m, &text, ids, e))
        code = ids->over ? too_long(m, ids->max, e) : e->code;
    *bytes += text.len;
    buf_done(&text);
    if (!code && ids->len < 2)
        code = err_set_param(e, ERR_INVALID, "state", "the prompt has %zu tokens, expected 2 or more", ids->len);
    for (size_t k = 0; !code && k < ids->len; k++)
        if (ids->data[k] < 0 || ids->data[k] >= m->vocab)
            code = err_set_param(e, ERR_INVALID, "state", "token id %d is outside the vocabulary of %d", ids->data[k], m->vocab);
    return code;
}

static int common(const struct asking *a, const struct ids *ids)
{
    int n = 0, most = a->nfirst < (int)ids->len ? a->nfirst : (int)ids->len;
    while (n < most && a->first[n] == ids->data[n])
        n++;
    return n;
}

static void keep_tail(struct asking *a, int i, const struct ids *ids)
{
    struct tail *t = &a->tails[i];
    int shared = common(a, ids);
    t->shared = shared < (int)ids->len ? shared : (int)ids->len - 1;
    t->n = (int)ids->len - t->shared;
    t->ids = mem_new((size_t)t->n * sizeof *t->ids);
    memcpy(t->ids, ids->data + t->shared, (size_t)t->n * sizeof *t->ids);
    if (t->shared < a->w.nstem)
        a->w.nstem = t->shared;
}

static err_code encode_all(struct asking *a, const struct model *m, err *e)
{
    size_t bytes = 0;
    err_code code = ERR_OK;
    for (int i = 0; i < (int)a->task->nquestions && !code; i++) {
        struct ids ids = {0};
        code = encode(a, m, i, &bytes, &ids, e);
        if (!code && i == 0) {
            a->first = mem_new(ids.len * sizeof *a->first);
            memcpy(a->first, ids.data, ids.len * sizeof *a->first);
            a->nfirst = (int)ids.len;
            a->w.nstem = a->nfirst - 1;
        }
        if (!code)
            keep_tail(a, i, &ids);
        free(ids.data);
    }
    if (!code && a->w.nstem < 1)
        code = err_set(e, ERR_INTERNAL, "the questions' prompts do not begin alike");
    a->w.stem = a->first;
    return code;
}

static int round_length(const struct asking *a, int i)
{
    return a->tails[i].shared - a->w.nstem + a->tails[i].n;
}

static void release(struct work *w)
{
    struct asking *a = (struct asking *)w;
    for (int i = 0; a->tails && i < (int)a->task->nquestions; i++)
        free(a->tails[i].ids);
    free(a->tails);
    free(a->first);
    free(a->round);
    free(a->scores);
    free(a->p);
    free(a->tokens);
    free(a);
}

static err_code prepare(const struct model *m, const struct task *t, struct work **ret_work, int *ret_prompt_tokens, err *e)
{
    // Nothing is drawn: the token a round ends with is not used.
    static const struct sampling greedy = {.temperature = 0, .top_p = 1, .repetition_penalty = 1};
    struct asking *a = mem_new(sizeof *a);
    a->d = m->decider;
    a->task = &t->decide;
    a->w.sampling = &greedy;
    a->tails = mem_new(t->decide.nquestions * sizeof *a->tails);
    a->scores = mem_new((size_t)a->d->n * sizeof *a->scores);
    a->p = mem_new((size_t)a->d->n * sizeof *a->p);
    a->tokens = mem_new((size_t)a->d->n * LABELS_FORMS * sizeof *a->tokens);
    if (encode_all(a, m, e)) {
        release(&a->w);
        return e->code;
    }
    int tokens = a->w.nstem, longest = 0;
    for (int i = 0; i < (int)t->decide.nquestions; i++) {
        int n = round_length(a, i);
        tokens += n;
        longest = n > longest ? n : longest;
    }
    a->round = mem_new((size_t)longest * sizeof *a->round);
    *ret_prompt_tokens = tokens;
    *ret_work = &a->w;
    return ERR_OK;
}

// ---- rounds

static bool next(struct work *w, const int32_t **ret_ids, int *ret_nids, int *ret_max_tokens)
{
    struct asking *a = (struct asking *)w;
    if (a->next == (int)a->task->nquestions)
        return false;
    const struct tail *t = &a->tails[a->next++];
    int before = t->shared - w->nstem;
    memcpy(a->round, a->first + w->nstem, (size_t)before * sizeof *a->round);
    memcpy(a->round + before, t->ids, (size_t)t->n * sizeof *a->round);
    *ret_ids = a->round;
    *ret_nids = before + t->n;
    *ret_max_tokens = 1;
    return true;
}

static void choose(struct asking *a, const struct decide_question *q, double mass)
{
    const struct decider *d = a->d;
    int n = bare_options(q), best;
    if (!readout_softmax(a->scores, d->bias ? d->bias + d->first[q->kind] : NULL, n, d->temperature[q->kind], a->p, &best)) {
        err_set(&a->failure, ERR_INTERNAL, "the model's answer to question %d is not a number", a->answered);
        return;
    }
    bool wide = d->native && q->kind == DECIDE_ENUM && n > d->trained;
    a->decision = (struct decision){a->p, (size_t)n, best, mass, d->native, wide};
    a->pending = true;
}

static err_code hidden(struct work *w, struct session *s, const float *state, err *e)
{
    struct asking *a = (struct asking *)w;
    const struct decide_question *q = question(a, a->answered);
    const struct decider *d = a->d;
    int size = d->model->hidden;
    (void)s;
    for (int i = 0; i < bare_options(q); i++)
        a->scores[i] = readout_dot(d->rows + (size_t)(d->first[q->kind] + i) * (size_t)size, state, size);
    choose(a, q, NAN);
    *e = a->failure;
    return e->code;
}

// Only looks at the logits: all of them are needed for the share the options have.
static void look(struct work *w, const float *logits)
{
    struct asking *a = (struct asking *)w;
    const struct decide_question *q = question(a, a->answered);
    const int32_t *forms = a->d->forms + (size_t)a->d->first[q->kind] * LABELS_FORMS;
    int n = 0;
    for (int i = 0; i < bare_options(q); i++) {
        int before = n;
        for (int k = 0; k < LABELS_FORMS; k++)
            if (forms[i * LABELS_FORMS + k] != TOKEN_NONE)
                a->tokens[n++] = forms[i * LABELS_FORMS + k];
        a->scores[i] = readout_together(logits, a->tokens + before, n - before);
    }
    choose(a, q, readout_mass(logits, a->d->model->vocab, a->tokens, n));
}

static bool end_round(struct work *w, int32_t id)
{
    (void)w;
    (void)id;
    return true;
}

static enum work_next after(struct work *w, struct session *s, err *e)
{
    struct asking *a = (struct asking *)w;
    if (a->failure.code) {
        *e = a->failure;
        return WORK_FAIL;
    }
    if (a->pending)
        session_emit(s, &(struct event){.kind = EVENT_DECISION, .choice = a->answered++, .decision = &a->decision});
    a->pending = false;
    return a->answered == (int)a->task->nquestions ? WORK_DONE : WORK_WAIT;
}

static const struct work_rounds native_rounds = {.decide = true, .next = next, .hidden = hidden};
static const struct work_rounds label_rounds = {.next = next, .look = look, .token = end_round};

const struct work_ops asking_native_work = {
    .max_running = 8, .rounds = &native_rounds, .check = check, .prepare = prepare, .after = after, .free = release};
const struct work_ops asking_label_work = {
    .max_running = 8, .rounds = &label_rounds, .check = check, .prepare = prepare, .after = after, .free = release};
