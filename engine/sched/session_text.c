// session_text.c - see the header. Called by the thread that owns the session.
#include "engine/sched/session_text.h"

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "engine/model.h"
#include "engine/sched/session.h"
#include "engine/text/answer.h"
#include "engine/text/stop.h"

struct where {  // what a part is for
    struct session *s;
    struct choice *c;
};

void session_text_init(struct session *s, struct choice *c)
{
    struct session_text *t = &c->text;
    const struct generate *g = &s->task->generate;
    buf_init(&t->piece, SIZE_MAX);
    buf_init(&t->content, SIZE_MAX);
    if (s->task->kind != TASK_GENERATE)
        return;
    t->stop = c->index > 0 ? stop_share(s->choices[0].text.stop) : stop_new(g->stop, g->nstop, g->include_stop);
    if (s->model->tokenizer)
        detok_init(&t->detok, s->model->tokenizer, !g->show_control);
    // An answer to messages is a text of its own; anything else continues the prompt's, leading space and all.
    t->detok.started = !g->prompt.messages || g->prompt.continue_final_message;
    if (s->style)
        t->answer = answer_new(s->style, &s->ask);
}

void session_text_done(struct choice *c)
{
    struct session_text *t = &c->text;
    for (int i = 0; i < t->ntokens; i++)
        free((void *)t->tokens[i].logprob.top);
    free(t->tokens);
    free(t->places);
    answer_free(t->answer);
    stop_free(t->stop);
    buf_done(&t->piece);
    buf_done(&t->content);
}

// ---- events

void session_text_ids(const struct session *s, struct choice *c, struct event *ev)
{
    int n = c->nids - s->nprompt - c->text.told;
    if (s->task->kind != TASK_GENERATE || !s->task->generate.token_ids || n <= 0)
        return;
    ev->ids = c->ids + s->nprompt + c->text.told;
    ev->nids = (size_t)n;
    c->text.told += n;
}

// Sends a text with the first `ntokens` waiting tokens, and forgets them.
static void emit(struct session *s, struct choice *c, struct event *ev, int ntokens)
{
    struct session_text *t = &c->text;
    struct token_logprob *out = ntokens > 0 ? mem_new((size_t)ntokens * sizeof *out) : NULL;
    for (int i = 0; i < ntokens; i++)
        out[i] = t->tokens[i].logprob;
    ev->kind = EVENT_TEXT;
    ev->choice = c->index;
    ev->text = ev->len ? ev->text : "";
    ev->tokens = out;
    ev->ntokens = (size_t)ntokens;
    session_text_ids(s, c, ev);
    session_emit(s, ev);
    for (int i = 0; i < ntokens; i++)
        free((void *)out[i].top);
    free(out);
    t->ntokens -= ntokens;
    if (ntokens > 0)
        memmove(t->tokens, t->tokens + ntokens, (size_t)t->ntokens * sizeof *t->tokens);
}

static void emit_content(struct session *s, struct choice *c, int ntokens)
{
    struct buf *b = &c->text.content;
    if (b->len > 0 || ntokens > 0)
        emit(s, c, &(struct event){.channel = CHANNEL_CONTENT, .text = b->data, .len = b->len}, ntokens);
    buf_clear(b);
}

// How many waiting tokens go with the text that left: those whose text is out. One without text of its own (part of a
// character) goes with the token that completes it.
static int tokens_out(const struct session *s, const struct session_text *t)
{
    int n = 0;
    for (int i = 0; i < t->ntokens; i++) {
        const struct session_token *k = &t->tokens[i];
        if (!s->model->tokenizer || (k->end > k->start && k->end <= t->released))
            n = i + 1;
    }
    return n;
}

// After a stop string: only tokens that begin before the cut.
static int tokens_before_cut(const struct session_text *t)
{
    int n = 0;
    while (n < t->ntokens && t->tokens[n].start < t->released)
        n++;
    return n;
}

void session_text_send(struct session *s, struct choice *c)
{
    emit_content(s, c, tokens_out(s, &c->text));
    struct event ev = {.kind = EVENT_TEXT, .choice = c->index, .text = ""};
    session_text_ids(s, c, &ev);
    if (ev.nids > 0)
        session_emit(s, &ev);
}

// ---- content

static void add_place(struct session_text *t, const struct answer_part *p)
{
    for (int i = t->ntokens - 1; i >= 0 && (t->tokens[i].end > p->from || t->tokens[i].start >= p->from); i--)
        t->tokens[i].logprob.content |= t->tokens[i].start < p->to;
    if (t->nplaces == t->places_cap) {
        t->places_cap = t->places_cap ? 2 * t->places_cap : 4;
        t->places = mem_resize(t->places, (size_t)t->places_cap * sizeof *t->places);
    }
    t->content_in += p->len;
    t->places[t->nplaces++] = (struct session_place){t->content_in, p->len, p->from, p->to};
}

// Where in the text the content that may leave ends.
static void release(struct session_text *t)
{
    int gone = 0;
    while (gone < t->nplaces && t->places[gone].end <= t->content_out)
        t->released = t->places[gone++].to;
    t->nplaces -= gone;
    if (gone > 0)
        memmove(t->places, t->places + gone, (size_t)t->nplaces * sizeof *t->places);
    if (t->nplaces == 0)
        return;
    const struct session_place *p = &t->places[0];
    size_t begin = p->end - p->len;
    if (t->content_out > begin && p->to - p->from == p->len)
        t->released = p->from + (t->content_out - begin);
}

static void add_content(struct session_text *t, const struct answer_part *p)
{
    size_t before = t->content.len;
    add_place(t, p);
    t->hit = stop_feed(t->stop, p->text, p->len, &t->content);
    t->content_out += t->content.len - before;
    release(t);
}

// What is held back begins no stop string after all.
static void flush_content(struct session_text *t)
{
    stop_flush(t->stop, &t->content);
    t->content_out = t->content_in;
    release(t);
}

static void on_part(void *ud, const struct answer_part *p)
{
    const struct where *w = ud;
    struct session_text *t = &w->c->text;
    if (t->hit)
        return;
    t->beside = p->channel != CHANNEL_CONTENT;
    if (p->channel == CHANNEL_CONTENT) {
        if (p->len > 0)
            add_content(t, p);
        return;
    }
    flush_content(t);  // stop strings are not looked for across other parts
    if (t->content.len > 0)
        session_text_send(w->s, w->c);
    t->released = p->to > t->released ? p->to : t->released;
    struct event ev = {.channel = p->channel, .call = p->call, .name = p->name, .call_ends = p->call_ends, .text = p->text,
                       .len = p->len};
    emit(w->s, w->c, &ev, tokens_out(w->s, t));
}

// ---- tokens

static void feed(struct session *s, struct choice *c, size_t from, const char *text, size_t len, bool marker)
{
    struct session_text *t = &c->text;
    struct where w = {s, c};
    if (len == 0)
        return;
    if (t->answer)
        answer_feed(t->answer, text, len, marker, on_part, &w);
    else
        on_part(&w, &(struct answer_part){.channel = CHANNEL_CONTENT, .text = text, .len = len, .from = from,
                                          .to = from + len});
}

// The text of the piece: markers of the style are control tokens, and stand at its end when they are.
static void feed_piece(struct session *s, struct choice *c, size_t marker)
{
    struct session_text *t = &c->text;
    size_t plain = t->piece.len - marker, from = t->fed - t->piece.len;
    feed(s, c, from, t->piece.data, plain, false);
    feed(s, c, from + plain, t->piece.data + plain, marker, true);
    buf_clear(&t->piece);
}

// Detokenises; returns the length of the marker the token is, 0: it is none.
static size_t spell(const struct session *s, struct session_text *t, int32_t id)
{
    const struct tokenizer *tk = s->model->tokenizer;
    if (!tk || id >= tokenizer_size(tk))
        return 0;
    size_t len = 0;
    const char *text = t->answer && tokenizer_is_control(tk, id) ? tokenizer_token(tk, id, &len) : NULL;
    if (!text || !answer_is_marker(s->style, text, len)) {
        detok_add(&t->detok, id, &t->piece);
        return 0;
    }
    bool started = t->detok.started;
    detok_finish(&t->detok, &t->piece);  // half a character before it stays half
    t->detok.started = started;
    buf_add(&t->piece, text, len);
    return len;
}

static void remember(struct session_text *t, const struct token_logprob *lp, size_t start)
{
    if (t->ntokens == t->tokens_cap) {
        t->tokens_cap = t->tokens_cap ? 2 * t->tokens_cap : 8;
        t->tokens = mem_resize(t->tokens, (size_t)t->tokens_cap * sizeof *t->tokens);
    }
    t->tokens[t->ntokens++] = (struct session_token){.logprob = *lp, .start = start, .end = t->fed};
}

bool session_text_say(struct session *s, struct choice *c, int32_t id, const struct token_logprob *lp)
{
    struct session_text *t = &c->text;
    if (t->answer && answer_in_reasoning(t->answer)) {
        t->reasoned++;
        s->reasoning_tokens++;
    }
    size_t start = t->fed, marker = spell(s, t, id);
    t->fed += t->piece.len;
    if (lp)
        remember(t, lp, start);
    feed_piece(s, c, marker);
    return t->hit;
}

// After a stop string nothing more leaves.
void session_text_finish(struct session *s, struct choice *c, bool cut)
{
    struct session_text *t = &c->text;
    struct where w = {s, c};
    bool only_calls = t->answer && s->ask.rules && s->ask.rules->choice == TOOLS_REQUIRED;
    if (!t->hit && s->model->tokenizer && !(cut && only_calls)) {  // half a character of a call says nothing
        detok_finish(&t->detok, &t->piece);
        t->fed += t->piece.len;
        feed_piece(s, c, 0);
    }
    if (!t->hit && t->answer && !(cut && answer_in_call(t->answer)))
        answer_finish(t->answer, on_part, &w);
    if (!t->hit)
        flush_content(t);
    for (int i = t->ntokens - 1; i >= 0 && t->tokens[i].start == t->fed; i--)  // the one that ends the turn
        t->tokens[i].logprob.content = !t->beside;
    emit_content(s, c, t->hit ? tokens_before_cut(t) : t->ntokens);
}

// ---- the prompt

void session_text_echo(struct session *s, const struct token_logprob *tokens)
{
    struct buf text;
    buf_init(&text, SIZE_MAX);
    const struct choice *c0 = &s->choices[0];
    const struct tokenizer *t = s->model->tokenizer;
    struct detok d;
    if (t) {
        detok_init(&d, t, !s->task->generate.show_control);
        for (int i = 0; i < s->nprompt; i++)
            if (c0->ids[i] < tokenizer_size(t))
                detok_add(&d, c0->ids[i], &text);
        detok_finish(&d, &text);
    }
    for (int i = 0; i < session_answers(s); i++)
        session_emit(s, &(struct event){.kind = EVENT_TEXT, .choice = i, .text = text.data ? text.data : "",
                                        .len = text.len, .tokens = tokens,
                                        .ntokens = tokens ? (size_t)s->nprompt_logprobs : 0});
    buf_done(&text);
}
