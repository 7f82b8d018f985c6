// prep.c - the prep threads. Each owns the session it works on; models, tokenizers and templates are read only. Long
// texts and sounds are left in the middle when nobody waits for them any more: the loops that take long ask
// (base/cancel.h).
//
// Those loops also tell how much they do, and that bounds a preparation as a whole, however slow the machine is. What
// looks small (line.h) and turns out not to be is left in the middle too, and begins again among the large ones.
#include "engine/sched/prep.h"

#include <jansson.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/cancel.h"
#include "base/clock.h"
#include "base/mem.h"
#include "engine/grammar/grammar.h"
#include "engine/model.h"
#include "engine/need.h"
#include "engine/sched/line.h"
#include "engine/sched/round.h"
#include "engine/sched/score.h"
#include "engine/sched/score_lanes.h"
#include "engine/sched/served.h"
#include "engine/sched/sched.h"
#include "engine/text/answer.h"
#include "engine/text/bad_words.h"
#include "engine/text/chat.h"
#include "engine/text/chat_ids.h"

enum { PREP_MAX_THREADS = 8, MAX_CONTEXTS = 4, SAMPLE_BYTES = 8 };  // SAMPLE_BYTES: of samples, worth a byte of text

struct prep {
    struct line *line;
    struct sched *sched;
    atomic_bool closing;
    int nthreads;
    pthread_t threads[PREP_MAX_THREADS];
};

// What a thread works on, and what its long loops ask.
struct watch {
    struct cancel cancel;
    struct prep *prep;
    struct session *session;
    enum line_size size;
    size_t most;  // units of work
    bool over;    // it takes more
};

static err_code must_stop(const struct prep *p, const struct session *s, err *e)
{
    if (atomic_load(&p->closing))
        return err_set(e, ERR_DRAINING, "the server is shutting down");
    return session_must_end(s, clock_ns(), e);
}

static bool is_stopped(const struct cancel *c)
{
    struct watch *w = (struct watch *)(uintptr_t)c;
    err e;
    w->over = cancel_work() > w->most;
    return w->over || must_stop(w->prep, w->session, &e) != ERR_OK;
}

// As it was before anything was prepared.
static bool begin_again(struct watch *w)
{
    struct session *s = w->session;
    bad_words_free(s->bad_words);
    s->bad_words = NULL;
    score_free(s->score);
    s->score = NULL;
    free(s->close);
    s->close = NULL;
    s->nclose = 0;
    score_free(s->score);
    s->score = NULL;
    return line_push(w->prep->line, s, LINE_LARGE);
}

// Ends it with what went wrong; what was stopped, and says so or calls it too large, has the reason that stopped it.
static void end(struct watch *w, err *e)
{
    if (e->code && !must_stop(w->prep, w->session, e) && w->over) {
        bool fresh = !w->session->work && !w->session->choices;
        if (w->size == LINE_SMALL && fresh && begin_again(w))
            return;
        if (w->size == LINE_SMALL)
            err_set(e, ERR_DRAINING, "the server is shutting down");
        else
            err_set(e, ERR_INVALID, "the request takes too much work to prepare: more than %zu million steps",
                    w->most / 1000000);
    }
    session_end(w->session, e);
}

static err_code encode_text(const struct session *s, const struct prompt *p, bool add_special, struct ids *ids, err *e)
{
    // Who writes a raw prompt writes the template too, so control tokens count.
    struct text_span span = {p->text, p->text_len, true};
    return tokenizer_encode(s->model->tokenizer, &span, 1, add_special, ids, e);
}

// A text from its very beginning, for a model that has no BOS of its own accord: what stands between texts.
static void add_begin(const struct tokenizer *t, struct ids *ids)
{
    int32_t id = tokenizer_bos(t) != TOKEN_NONE ? tokenizer_bos(t) : tokenizer_eos(t);
    if (id != TOKEN_NONE)
        ids_add(ids, id);
}

static err_code encode_prompt(const struct session *s, const struct prompt *p, struct ids *ids, err *e)
{
    err_code rc = encode_text(s, p, true, ids, e);
    if (!rc && p->text_len == 0 && ids->len == 0)
        add_begin(s->model->tokenizer, ids);
    return rc;
}

// What an editor sends is somebody's file: marks written in it are text.
static err_code encode_gap(const struct session *s, const struct prompt *p, struct ids *ids, err *e)
{
    struct text_span before = {p->text, p->text_len, false}, after = {p->suffix, p->suffix_len, false};
    return tokenizer_fim_encode(s->model->tokenizer, &before, &after, ids, e);
}

// ids and pool fit the request, or it never can run.
static err_code check(const struct session *s, const struct ids *ids, int *ret_max_out, err *e)
{
    const struct generate *g = &s->task->generate;
    const char *field = g->prompt.messages ? "messages" : "prompt";
    if (ids->len == 0)
        return err_set_param(e, ERR_INVALID, field, "the prompt has no tokens, expected at least one");
    for (size_t i = 0; i < ids->len; i++)
        if (ids->data[i] < 0 || ids->data[i] >= s->model->vocab)
            return err_set_param(e, ERR_INVALID, field, "token id %d is outside the vocabulary of %d", ids->data[i],
                                 s->model->vocab);
    // A limit on the answer is a limit, no demand: where the context ends before it, the answer ends, with FINISH_LENGTH.
    size_t context = (size_t)s->context, want = g->max_tokens > 0 ? (size_t)g->max_tokens : g->max_tokens < 0;
    if (ids->len + (want > 0) > context)
        return err_set_param(e, ERR_CONTEXT, field,
                             "This model's maximum context length is %zu tokens. However, you requested %zu tokens (%zu "
                             "in the prompt, %zu in the completion).", context, ids->len + want, ids->len, want);
    size_t pool = (size_t)served_pages(s->owner), n = (size_t)g->n, room = pool / n * KV_PAGE_TOKENS;
    if (g->max_tokens < 0 && room < context && room > ids->len)
        context = room;  // no limit was asked for: what the memory allows for all choices together is one
    // The last token is not computed, so the prompt's positions and one token fewer are.
    int most = (int)(context - ids->len);
    *ret_max_out = g->max_tokens >= 0 && g->max_tokens < most ? g->max_tokens : most;
    size_t positions = ids->len + (size_t)(*ret_max_out > 1 ? *ret_max_out - 1 : 0);
    size_t pages = (size_t)prefix_pages((int)positions) * n;
    if (pages > pool && !s->score)  // which computes no answers: score_lanes.h
        return err_set_param(e, ERR_INVALID, "n", "%d choices of up to %zu tokens need %zu pages of KV memory, there are %zu",
                             g->n, positions, pages, pool);
    return ERR_OK;
}

static err_code compile(const struct session *s, const struct grammar_request *r, struct grammar **ret_grammar, err *e)
{
    if (r->kind == GRAMMAR_NONE)
        return ERR_OK;
    if (!s->model->tokenizer)
        return err_set_param(e, ERR_UNSUPPORTED, r->field, "this model has no tokenizer, without which no form can be asked for");
    return grammar_cache_get(s->owner->grammars, r, ret_grammar, e);
}

// ---- answers found by the probabilities of whole texts

// Whether anything forbids it, by the request's field; a failure only where the request insists.
static bool may_score(const struct session *s, const char *field, err *e)
{
    const struct generate *g = &s->task->generate;
    if (g->grammar.kind != GRAMMAR_CHOICE || g->choosing == CHOOSE_BY_TOKEN)
        return false;
    if (!s->model->tokenizer || s->owner->core->config.max_running < 2)  // check.c refuses where the request insists
        return false;
    if (field && g->choosing == CHOOSE_SCORED)
        err_set_param(e, ERR_INVALID, field, "Invalid '%s': it bears on single tokens, and cannot be combined with probabilities "
                      "of whole choices.", field);
    return !field;
}

// The form of the content, or the score of what it may be.
static err_code compile_content(struct session *s, struct grammar **ret_grammar, err *e)
{
    const struct generate *g = &s->task->generate;
    err own = {0};
    if (!may_score(s, score_hindrance(g), &own))
        return own.code ? (*e = own).code : compile(s, &g->grammar, ret_grammar, e);
    if (!score_new(s->model->tokenizer, &g->grammar, s->model->vocab, &s->score, &own))
        return ERR_OK;
    if (own.code == ERR_UNSUPPORTED && g->choosing == CHOOSE_LIKELIEST)
        return compile(s, &g->grammar, ret_grammar, e);
    return (*e = own).code;
}

// Whether the prompt ends with the mark that closes the reasoning, so that nothing comes before the content.
static bool is_closed(const struct answer_style *style, const char *text, size_t len)
{
    static const char blank[] = " \n\t\r";
    const char *mark = answer_close(style);
    if (!mark)
        return false;
    mark += strspn(mark, blank);
    size_t n = strlen(mark);
    while (n > 0 && strchr(blank, mark[n - 1]))
        n--;
    while (len > 0 && strchr(blank, text[len - 1]))
        len--;
    return len >= n && memcmp(text + len - n, mark, n) == 0;
}

// ---- answers that are told apart

// The form of the whole answer, when it has one.
static err_code compile_answer(struct session *s, const struct rendered *r, struct grammar **ret_grammar, err *e)
{
    const struct grammar_request *content = &s->task->generate.grammar;
    char *text;
    if (!answer_thinks(s->style) && !json_array_size(s->ask.tools))  // it is its content
        return compile_content(s, ret_grammar, e);
    err own = {0};
    bool only_content = is_closed(s->style, r->text, r->len) && !json_array_size(s->ask.tools);
    if (may_score(s, score_hindrance(&s->task->generate), &own) && only_content)
        return compile_content(s, ret_grammar, e);
    if (own.code)
        return (*e = own).code;
    if (s->task->generate.choosing == CHOOSE_SCORED && content->kind == GRAMMAR_CHOICE)
        return err_set_param(e, ERR_INVALID, content->field, "Invalid '%s': the model thinks before it answers, so choices have no "
                             "probabilities of their own. Switch its reasoning off (reasoning_effort \"none\").", content->field);
    if (answer_structure(s->style, &s->ask, &text, e))
        return e->code;
    if (!text)
        return compile(s, content, ret_grammar, e);
    struct grammar_request form = {GRAMMAR_STRUCTURE, text, strlen(text), content->field ? content->field : "tools", content->name};
    err_code code = compile(s, &form, ret_grammar, e);
    free(text);
    return code;
}

// The tokens that close the reasoning, when it has a limit.
static err_code encode_close(struct session *s, err *e)
{
    const char *text = answer_close(s->style);
    if (s->task->generate.reasoning_max < 0 || !text)
        return ERR_OK;
    struct ids ids = {0};
    struct text_span span = {text, strlen(text), true};
    err_code code = tokenizer_encode(s->model->tokenizer, &span, 1, false, &ids, e);
    s->close = ids.data;
    s->nclose = code ? 0 : (int)ids.len;
    return code;
}

static err_code ask_answer(struct session *s, const struct rendered *r, struct grammar **ret_grammar, err *e)
{
    const struct generate *g = &s->task->generate;
    s->style = chat_answer_style(s->model->chat, json_array_size(g->prompt.tools) > 0);
    if (!s->style)
        return compile_content(s, ret_grammar, e);
    s->ask = (struct answer_ask){g->prompt.tools, &g->tools, &g->grammar, answer_opens(s->style, r->text, r->len)};
    if (encode_close(s, e))
        return e->code;
    return compile_answer(s, r, ret_grammar, e);
}

static err_code prepare_chat(struct session *s, struct ids *ids, struct grammar **ret_grammar, err *e)
{
    const struct generate *g = &s->task->generate;
    struct rendered r;
    if (chat_ids_render(s->model->chat, s->model->tokenizer, &g->prompt, &r, e))
        return e->code;
    err_code code = ask_answer(s, &r, ret_grammar, e);
    if (!code)
        code = chat_ids_encode_rendered(s->model->tokenizer, &r, ids, e);
    if (!code && s->owner->state_bytes)
        s->passing = (int)chat_ids_passing(s->model->chat, s->model->tokenizer, &g->prompt, &r);
    rendered_done(&r);
    return code;
}

// ---- prompts

// Where the form does not depend on the prompt it comes first, so that a bad schema is told first.
static err_code prepare_prompt(struct session *s, struct ids *ids, struct grammar **ret_grammar, err *e)
{
    const struct generate *g = &s->task->generate;
    const struct prompt *p = &g->prompt;
    if (g->nbad_words && !s->model->tokenizer)
        return err_set_param(e, ERR_UNSUPPORTED, "bad_words", "this model has no tokenizer, without which words are unknown");
    if (g->nbad_words && bad_words_new(s->model->tokenizer, g->bad_words, g->nbad_words, &s->bad_words, e))
        return e->code;
    if (p->messages && g->split)
        return prepare_chat(s, ids, ret_grammar, e);
    if (compile_content(s, ret_grammar, e))
        return e->code;
    if (p->messages)
        return chat_ids_encode(s->model->chat, s->model->tokenizer, p, ids, e);
    if (p->suffix)
        return encode_gap(s, p, ids, e);
    if (p->text)
        return encode_prompt(s, p, ids, e);
    for (size_t i = 0; i < p->nids; i++)
        ids_add(ids, p->ids[i]);
    return ERR_OK;
}

// Takes the ids.
static err_code set_prompt(const struct prep *p, struct session *s, struct ids *ids, int max_out, struct grammar *grammar, err *e)
{
    int lanes = 0, n = (int)ids->len;
    if (s->score && score_lanes_count(s, n, sched_max_running(p->sched), served_pages(s->owner), &lanes, e))
        return e->code;
    slot_refine(s->slots, s->ticket, ids->len);
    if (s->score)
        session_set_scored(s, ids->data, n, max_out, lanes);
    else
        session_set_prompt(s, ids->data, n, max_out, grammar);
    return ERR_OK;
}

static void prepare_generate(struct watch *w)
{
    struct session *s = w->session;
    err e = {0};
    // A text that is far too long is not tokenised to its end: that takes seconds others would wait for.
    size_t context = (size_t)s->context;
    struct ids ids = {.max = MAX_CONTEXTS * context};
    int max_out = 0;
    struct grammar *grammar = NULL;
    if (prepare_prompt(s, &ids, &grammar, &e) || check(s, &ids, &max_out, &e) || set_prompt(w->prep, s, &ids, max_out, grammar, &e)) {
        if (ids.over)
            err_set_param(&e, ERR_CONTEXT, s->task->generate.prompt.messages ? "messages" : "prompt",
                          "This model's maximum context length is %zu tokens. However, you requested more than %zu "
                          "tokens.", context, ids.max);
        free(ids.data);
        grammar_drop(grammar);
        end(w, &e);
        return;
    }
    grammar_drop(grammar);
    session_set_state(s, SESSION_QUEUED);
    sched_submit(w->prep->sched, s);
}

// What a task in steps needs before its first one.
static void prepare_work(struct watch *w)
{
    struct session *s = w->session;
    err e = {0};
    const struct task *t = s->task;
    const struct work_ops *ops = model_work(s->model, t->kind);
    err_code code = ops->prepare(s->model, t, &s->work, &s->prompt_tokens, &e);
    if (!code) {
        s->work->ops = ops;
        s->work->model = s->model;
        s->work->task = t;
        slot_refine(s->slots, s->ticket, (size_t)s->prompt_tokens);
    }
    if (!code && ops->rounds)
        code = round_init(s, &e);
    if (code) {
        end(w, &e);
        return;
    }
    session_set_state(s, SESSION_QUEUED);
    sched_submit(w->prep->sched, s);
}

static err_code run_tokenize(struct session *s, err *e)
{
    const struct tokenize *t = &s->task->tokenize;
    struct ids ids = {0};
    const struct model *m = s->model;
    if (t->prompt.messages ? chat_ids_encode(m->chat, m->tokenizer, &t->prompt, &ids, e)
                           : encode_text(s, &t->prompt, t->add_special, &ids, e)) {
        free(ids.data);
        return e->code;
    }
    struct token_alternative *pieces = NULL;
    if (t->with_pieces && ids.len > 0) {
        pieces = mem_new(ids.len * sizeof *pieces);
        for (size_t i = 0; i < ids.len; i++) {
            pieces[i].id = ids.data[i];
            pieces[i].bytes = tokenizer_piece(s->model->tokenizer, ids.data[i], &pieces[i].len);
        }
    }
    s->prompt_tokens = (int)ids.len;
    session_emit(s, &(struct event){.kind = EVENT_START});
    session_emit(s, &(struct event){.kind = EVENT_IDS, .ids = ids.data, .nids = ids.len, .pieces = pieces});
    free(pieces);
    free(ids.data);
    return ERR_OK;
}

static void send_text(struct session *s, const char *text, size_t len)
{
    session_emit(s, &(struct event){.kind = EVENT_START});
    session_emit(s, &(struct event){.kind = EVENT_TEXT, .text = text ? text : "", .len = len});
}

static err_code run_detokenize(struct session *s, err *e)
{
    const struct prompt *p = &s->task->tokenize.prompt;
    struct buf text;
    buf_init(&text, SIZE_MAX);
    struct detok d;
    detok_init(&d, s->model->tokenizer, false);
    for (size_t i = 0; i < p->nids; i++) {
        if (p->ids[i] < 0 || p->ids[i] >= tokenizer_size(s->model->tokenizer)) {
            buf_done(&text);
            return err_set_param(e, ERR_INVALID, "tokens", "token id %d is outside the vocabulary of %d", p->ids[i],
                                 tokenizer_size(s->model->tokenizer));
        }
        detok_add(&d, p->ids[i], &text);
    }
    detok_finish(&d, &text);
    s->prompt_tokens = (int)p->nids;
    send_text(s, text.data, text.len);
    buf_done(&text);
    return ERR_OK;
}

static err_code run_render(struct session *s, err *e)
{
    struct rendered r;
    if (chat_ids_render(s->model->chat, s->model->tokenizer, &s->task->tokenize.prompt, &r, e))
        return e->code;
    send_text(s, r.text, r.len);
    rendered_done(&r);
    return ERR_OK;
}

static err_code run_load(struct session *s, err *e)
{
    (void)e;
    session_emit(s, &(struct event){.kind = EVENT_START});
    return ERR_OK;
}

static void work(struct watch *w)
{
    struct session *s = w->session;
    err e = {0};
    err_code (*const run[])(struct session *, err *) = {
        [TASK_TOKENIZE] = run_tokenize, [TASK_DETOKENIZE] = run_detokenize, [TASK_RENDER] = run_render,
        [TASK_LOAD] = run_load};
    if (must_stop(w->prep, s, &e)) {
        session_end(s, &e);
    } else if (s->task->kind == TASK_GENERATE) {
        prepare_generate(w);
    } else if (s->task->kind >= TASK_EMBED) {
        prepare_work(w);
    } else {
        (void)!run[s->task->kind](s, &e);
        end(w, &e);
    }
}

// How long sound may be is a setting of its own.
static size_t most_work(const struct task *t, enum line_size size)
{
    if (size == LINE_SMALL)
        return PREP_SMALL_WORK;
    return PREP_WORK + (t->kind == TASK_TRANSCRIBE ? PREP_SAMPLE_WORK * t->transcribe.nsamples : 0);
}

static enum line_size size_of(const struct task *t)
{
    struct slot_load load;
    need_load(t, &load);
    size_t bytes = t->kind == TASK_TRANSCRIBE ? load.bytes / SAMPLE_BYTES : load.bytes;
    return bytes <= PREP_SMALL_BYTES ? LINE_SMALL : LINE_LARGE;
}

static void *run_thread(void *arg)
{
    struct prep *p = arg;
    struct watch w = {.cancel = {is_stopped}, .prep = p};
    while ((w.session = line_pop(p->line, &w.size))) {
        w.over = false;
        w.most = most_work(w.session->task, w.size);
        cancel_watch(&w.cancel);
        work(&w);
        cancel_watch(NULL);
        line_done(p->line, w.size);
    }
    return NULL;
}

struct prep *prep_open(int threads, struct line *line, struct sched *sched)
{
    struct prep *p = mem_new(sizeof *p);
    p->line = line;
    p->sched = sched;
    threads = threads < PREP_MAX_THREADS ? threads : PREP_MAX_THREADS;
    while (p->nthreads < threads && pthread_create(&p->threads[p->nthreads], NULL, run_thread, p) == 0)
        p->nthreads++;
    if (p->nthreads > 0)
        return p;
    prep_close(p);
    return NULL;
}

void prep_submit(struct prep *p, struct session *s)
{
    bool hurry = s->task->deadline_ns != 0;
    if (line_push(p->line, s, size_of(s->task))) {
        if (hurry)
            sched_wake(p->sched);  // which sleeps until the earliest deadline in the line
        return;
    }
    err e = {0};
    err_set(&e, ERR_DRAINING, "the server is shutting down");
    session_end(s, &e);
}

void prep_close(struct prep *p)
{
    if (!p)
        return;
    atomic_store(&p->closing, true);
    line_close(p->line);
    for (int i = 0; i < p->nthreads; i++)
        pthread_join(p->threads[i], NULL);
    free(p);
}
