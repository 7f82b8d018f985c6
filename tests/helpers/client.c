// client.c - see the header. Events arrive on engine threads, one at a time for one client.
#include "tests/helpers/client.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/mem.h"
#include "base/utf8.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t ended = PTHREAD_COND_INITIALIZER;

static void add_id(struct client *c, int choice, int32_t id, float logprob)
{
    int n = c->nids[choice]++;
    if ((n & (n - 1)) == 0) {  // doubled at every power of two
        size_t cap = n ? 2 * (size_t)n : 1;
        c->ids[choice] = mem_resize(c->ids[choice], cap * sizeof **c->ids);
        c->logprobs[choice] = mem_resize(c->logprobs[choice], cap * sizeof **c->logprobs);
    }
    c->ids[choice][n] = id;
    c->logprobs[choice][n] = logprob;
}

static void add_part(struct client *c, const struct event *ev)
{
    struct buf *b = &c->parts[ev->choice];
    enum channel before = c->channel[ev->choice];
    if (before == CHANNEL_REASONING && ev->channel != before)
        buf_add_str(b, "}");
    if (ev->channel == CHANNEL_REASONING && ev->channel != before)
        buf_add_str(b, "{R:");
    if (ev->name)
        buf_printf(b, "{%s:", ev->name);
    buf_add(b, ev->text, ev->len);
    buf_add_str(b, ev->call_ends ? "}" : "");
    c->channel[ev->choice] = ev->channel;
}

static void on_text(struct client *c, const struct event *ev)
{
    if (ev->len > 0 || ev->name || ev->call_ends)
        add_part(c, ev);
    c->reasoned[ev->choice] += ev->channel == CHANNEL_REASONING ? (int)ev->ntokens : 0;
    c->said[ev->choice] += ev->channel == CHANNEL_CONTENT ? (int)ev->ntokens : 0;
    c->wrong |= c->finishes[ev->choice] > 0 || !utf8_valid(ev->text, ev->len);
    buf_add(&c->text[ev->choice], ev->text, ev->len);
    for (size_t i = 0; i < ev->ntokens; i++)
        add_id(c, ev->choice, ev->tokens[i].token.id, ev->tokens[i].token.logprob);
}

static void on_prompt(struct client *c, const struct event *ev)
{
    c->wrong |= c->prompt != NULL || c->text[0].len > 0;  // once, and before any text
    c->nprompt = (int)ev->ntokens;
    c->prompt = mem_new(ev->ntokens * sizeof *c->prompt);
    for (int i = 0; i < c->nprompt; i++) {
        const struct token_logprob *t = &ev->tokens[i];
        c->prompt[i] = (struct client_prompt){t->token.id, t->ntop ? t->top[0].id : -1, t->token.logprob, t->rank, t->ntop};
    }
}

static void on_scores(struct client *c, const struct event *ev)
{
    c->wrong |= c->scores != NULL || c->text[0].len > 0;  // once, and before any text
    size_t bytes = ev->nscores * sizeof *c->scores;
    c->nscores = (int)ev->nscores;
    c->scores = memcpy(mem_new(bytes), ev->scores, bytes);
    for (int i = 0; i < c->nscores; i++)
        c->scores[i].text = NULL;
}

static void add_number(struct client *c, double v)
{
    buf_add(&c->blob, &v, sizeof v);
}

static void on_segment(struct client *c, const struct segment *g)
{
    c->wrong |= !utf8_valid(g->text, g->len) || g->end < g->start;
    add_number(c, g->start);
    add_number(c, g->end);
    add_number(c, g->avg_logprob);
    add_number(c, g->no_speech_prob);
    buf_add(&c->blob, g->text, g->len);
    buf_add(&c->blob, g->ids, (size_t)g->nids * sizeof *g->ids);
}

static void on_picture(struct client *c, const struct picture *p)
{
    add_number(c, p->partial);
    buf_add(&c->blob, p->rgb, (size_t)p->width * (size_t)p->height * 3);
    if (p->latents)
        buf_add(&c->blob, p->latents, p->nlatents * sizeof *p->latents);
}

static void on_decision(struct client *c, const struct decision *d)
{
    buf_add(&c->blob, d->probabilities, d->n * sizeof *d->probabilities);
    add_number(c, d->best);
    add_number(c, d->mass);
    add_number(c, d->native);
    add_number(c, d->wide);
}

static void on_other(struct client *c, const struct event *ev)
{
    add_number(c, ev->kind * 1000 + ev->choice);
    if (ev->values)
        buf_add(&c->blob, ev->values, ev->nvalues * sizeof *ev->values);
    if (ev->text)
        buf_add(&c->blob, ev->text, ev->len);
    if (ev->segment)
        on_segment(c, ev->segment);
    if (ev->picture)
        on_picture(c, ev->picture);
    if (ev->decision)
        on_decision(c, ev->decision);
}

static void on_end(struct client *c, const struct event *ev)
{
    static atomic_int places;
    c->ends++;
    c->place = atomic_fetch_add(&places, 1);
    c->counted = c->counter ? atomic_load(c->counter) : 0;
    c->usage = ev->usage;
    c->error = ev->error;
    pthread_mutex_lock(&lock);
    atomic_store(&c->done, true);
    pthread_cond_broadcast(&ended);
    pthread_mutex_unlock(&lock);
}

static void on_event(struct task *t, const struct event *ev)
{
    struct client *c = t->ud;
    c->wrong |= c->ends > 0 || (ev->kind != EVENT_START && ev->kind != EVENT_END && !c->starts);
    if (c->cancel_on && c->events++ == c->cancel_at)
        engine_cancel(c->cancel_on, c->ticket);
    switch (ev->kind) {
    case EVENT_START:
        c->starts++;
        c->usage = ev->usage;
        break;
    case EVENT_TEXT:
        on_text(c, ev);
        break;
    case EVENT_PROMPT:
        on_prompt(c, ev);
        break;
    case EVENT_SCORES:
        on_scores(c, ev);
        break;
    case EVENT_FINISH:
        c->finishes[ev->choice]++;
        c->finish[ev->choice] = ev->finish;
        break;
    case EVENT_IDS:
        for (size_t i = 0; i < ev->nids; i++)
            add_id(c, 0, ev->ids[i], 0);
        break;
    case EVENT_END:
        on_end(c, ev);
        break;
    default:
        on_other(c, ev);
    }
}

bool client_submit(struct client *c, struct engine *en, struct task *t, err *e)
{
    for (int i = 0; i < CLIENT_MAX_CHOICES; i++) {
        buf_init(&c->text[i], SIZE_MAX);
        buf_init(&c->parts[i], SIZE_MAX);
    }
    buf_init(&c->blob, SIZE_MAX);
    t->on_event = on_event;
    t->ud = c;
    if (!engine_submit(en, t, &c->ticket, e))
        return true;
    task_free(t);
    atomic_store(&c->done, true);
    return false;
}

void client_wait(struct client *c)
{
    pthread_mutex_lock(&lock);
    while (!atomic_load(&c->done))
        pthread_cond_wait(&ended, &lock);
    pthread_mutex_unlock(&lock);
}

void client_done(struct client *c)
{
    buf_done(&c->blob);
    free(c->prompt);
    free(c->scores);
    for (int i = 0; i < CLIENT_MAX_CHOICES; i++) {
        buf_done(&c->text[i]);
        buf_done(&c->parts[i]);
        free(c->ids[i]);
        free(c->logprobs[i]);
    }
    memset(c, 0, sizeof *c);
}

struct task *client_task(const char *model, const int32_t *ids, int n)
{
    struct task *t = task_new(TASK_GENERATE);
    t->model = arena_strdup(&t->arena, model);
    int32_t *copy = arena_alloc(&t->arena, (size_t)n * sizeof *copy);
    if (n > 0)
        memcpy(copy, ids, (size_t)n * sizeof *copy);
    t->generate.prompt.ids = copy;
    t->generate.prompt.nids = (size_t)n;
    return t;
}

// ---- what must go well

void client_must_submit(struct client *c, struct engine *en, struct task *t)
{
    err e = {0};
    if (!client_submit(c, en, t, &e))
        fail_msg("%s", e.text);
}

void client_ended_well(struct client *c)
{
    client_wait(c);
    if (c->error.code)
        fail_msg("%s", c->error.text);
    assert_int_equal(c->starts, 1);
    assert_int_equal(c->ends, 1);
    assert_false(c->wrong);
}

void client_refused(struct engine *en, struct task *t, err_code code, const char *param, const char *text)
{
    struct client c = {0};
    err e = {0};
    if (client_submit(&c, en, t, &e)) {
        client_wait(&c);
        e = c.error;
        assert_int_equal(c.starts, 0);
    }
    client_done(&c);
    if (e.code != code || (param && strcmp(e.param, param)) || !strstr(e.text, text))
        fail_msg("%d %s: %s; expected %d %s: %s", e.code, e.param, e.text, code, param ? param : "", text);
}
