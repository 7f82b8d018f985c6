// drawing.c - see drawing.h for who runs what.
#include "server/api/drawing.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/mem.h"
#include "codecs/base64.h"
#include "server/api/fields.h"
#include "server/keep.h"
#include "server/pool.h"
#include "server/request.h"
#include "server/server.h"

enum { ANSWER_MAX = 1 << 30, RING = 128 << 20 };

enum item_kind { ITEM_PROGRESS, ITEM_PICTURE, ITEM_END };

struct drawing_item {
    struct drawing_item *next;
    enum item_kind kind;
    int choice, partial, done, total, dropped, dropped_negative, width, height;
    uint8_t *rgb;
    struct usage usage;
    err error;
};

// ---- life

struct drawing *api_drawing_new(struct request *r)
{
    struct drawing *d = mem_new(sizeof *d);
    d->r = r;
    d->engine = server_engine(r->server);
    d->pool = pool_ref(server_pool(r->server));
    d->task = task_new(TASK_IMAGE);
    d->n = 1;
    d->compression = 100;
    atomic_init(&d->refs, 1);
    pthread_mutex_init(&d->lock, NULL);
    return d;
}

void api_drawing_free(struct drawing *d)
{
    if (d->task)
        task_free(d->task);
    if (d->reserved)
        keep_release(d->keep, (size_t)d->n, d->reserved);
    for (int i = 0; i < API_PICTURES_MAX; i++)
        free(d->files[i]);
    keep_unref(d->keep);
    pool_unref(d->pool);
    pthread_mutex_destroy(&d->lock);
    free(d);
}

static void give_up(struct drawing *d)
{
    if (atomic_fetch_sub_explicit(&d->refs, 1, memory_order_acq_rel) == 1)
        api_drawing_free(d);
}

// ---- JSON

static void add_usage(const struct drawing *d, struct buf *out)
{
    int pictures = d->n * d->latents;
    buf_printf(out,
               "\"usage\":{\"input_tokens\":%d,\"output_tokens\":%d,\"total_tokens\":%d,"
               "\"input_tokens_details\":{\"text_tokens\":%d,\"image_tokens\":0},"
               "\"output_tokens_details\":{\"text_tokens\":0,\"image_tokens\":%d}}",
               d->tokens, pictures, d->tokens + pictures, d->tokens, pictures);
}

static void add_warnings(const struct drawing *d, struct buf *out)
{
    const char *const names[] = {"prompt", "negative_prompt"};
    const int dropped[] = {d->dropped, d->dropped_negative};
    bool any = false;
    for (int i = 0; i < 2; i++) {
        if (!dropped[i])
            continue;
        buf_printf(out, "%s\"%s is too long for the model's text encoder: its last %d tokens were not read\"",
                   any ? "," : ",\"warnings\":[", names[i], dropped[i]);
        any = true;
    }
    buf_add_str(out, any ? "]" : "");
}

// What every answer and event says of its pictures.
static void add_look(const struct drawing *d, struct buf *out)
{
    buf_printf(out, "\"background\":\"opaque\",\"output_format\":\"%s\",\"size\":\"%s\",\"quality\":\"%s\"",
               image_write_name(d->format), d->size, d->quality);
}

// ---- streams

static void open_stream(struct drawing *d)
{
    d->sse = reply_sse(d->r);
    sse_allow(d->sse, RING);
}

static void send_event(struct drawing *d, const char *type, struct buf *data)
{
    if (data->over && !d->error.code)
        err_set(&d->error, ERR_INTERNAL, "an event is larger than %d MB", ANSWER_MAX >> 20);
    else if (!d->dead && !sse_send_named(d->sse, type, data->data, data->len))
        d->dead = true;  // on_gone cancels the task
}

static void send_picture(struct drawing *d, int partial, const char *b64, size_t len)
{
    static const char *const types[] = {"image_generation.completed", "image_generation.partial_image"};
    const char *type = types[partial >= 0];
    struct buf out;
    buf_init(&out, ANSWER_MAX);
    buf_printf(&out, "{\"type\":\"%s\",\"b64_json\":\"", type);
    buf_add(&out, b64, len);
    buf_printf(&out, "\",\"created_at\":%lld,", (long long)clock_unix_s());
    add_look(d, &out);
    if (partial >= 0) {
        buf_printf(&out, ",\"partial_image_index\":%d", partial);
    } else {
        buf_printf(&out, ",\"seed\":%llu,", (unsigned long long)d->seed);
        add_usage(d, &out);
        add_warnings(d, &out);
    }
    buf_add_char(&out, '}');
    send_event(d, type, &out);
    buf_done(&out);
}

static void send_progress(struct drawing *d, const struct drawing_item *it)
{
    struct buf out;
    buf_init(&out, 400);
    buf_printf(&out, "{\"type\":\"oxinferd.progress\",\"done\":%d,\"total\":%d}", it->done, it->total);
    send_event(d, "oxinferd.progress", &out);
    buf_done(&out);
}

// ---- items, in order

static void say_truncated(struct drawing *d)
{
    char text[96];
    if (!d->dropped && !d->dropped_negative)
        return;
    snprintf(text, sizeof text, "prompt=%d, negative_prompt=%d", d->dropped, d->dropped_negative);
    request_set_header(d->r, "x-oxinferd-truncated", text);
}

static void on_progress(struct drawing *d, const struct drawing_item *it)
{
    if (it->done == 0 && !d->tokens) {
        d->dropped = it->dropped;
        d->dropped_negative = it->dropped_negative;
        d->tokens = it->usage.prompt_tokens;
        say_truncated(d);
        if (d->stream)
            open_stream(d);
    }
    if (d->sse && d->progress)
        send_progress(d, it);
}

static char *to_base64(const uint8_t *data, size_t len, size_t *ret_len)
{
    char *text = base64_length(len, ret_len) ? mem_try(*ret_len + 1) : NULL;
    if (text)
        base64_encode(data, len, text);
    return text;
}

static char *to_url(struct drawing *d, uint8_t *data, size_t len, size_t *ret_len)
{
    char id[KEEP_ID], text[512];
    keep_put(d->keep, image_write_type(d->format), data, len, id);
    *ret_len = (size_t)snprintf(text, sizeof text, "%s/v1/images/files/%s", d->base_url, id);
    return mem_strdup(text);
}

static void on_picture(struct drawing *d, const struct drawing_item *it)
{
    uint8_t *data;
    size_t len, n = 0;
    if (!d->error.code && atomic_load(&d->unwanted))
        err_set(&d->error, ERR_CANCELLED, "the client has gone");
    if (d->error.code || d->dead)
        return;
    if (!it->rgb) {
        err_set(&d->error, ERR_MEMORY, "no memory for a picture of %dx%d", it->width, it->height);
        return;
    }
    if (image_write(d->format, it->rgb, it->width, it->height, d->compression, &data, &len, &d->error))
        return;
    bool kept = d->url && it->partial < 0;
    char *text = kept ? to_url(d, data, len, &n) : to_base64(data, len, &n);
    if (!kept)
        free(data);
    if (!text) {
        err_set(&d->error, ERR_MEMORY, "no memory for a picture of %zu bytes", len);
        return;
    }
    if (d->sse) {
        send_picture(d, it->partial, text, n);
        free(text);
    } else {
        d->files[it->choice] = text;
        d->lengths[it->choice] = n;
    }
}

static void answer_whole(struct drawing *d)
{
    struct buf out;
    buf_init(&out, ANSWER_MAX);
    buf_printf(&out, "{\"created\":%lld,\"data\":[", (long long)clock_unix_s());
    for (int i = 0; i < d->n; i++) {
        buf_printf(&out, "%s{\"%s\":\"", i ? "," : "", d->url ? "url" : "b64_json");
        buf_add(&out, d->files[i] ? d->files[i] : "", d->lengths[i]);
        buf_printf(&out, "\",\"seed\":%llu}", (unsigned long long)(d->seed + (uint64_t)i));
    }
    buf_add_str(&out, "],");
    add_look(d, &out);
    buf_add_char(&out, ',');
    add_usage(d, &out);
    add_warnings(d, &out);
    buf_add_char(&out, '}');
    if (out.over) {
        err e;
        err_set(&e, ERR_INTERNAL, "the answer is larger than %d MB", ANSWER_MAX >> 20);
        reply_error(d->r, &e);
    } else {
        reply_text(d->r, 200, "application/json", out.data, out.len);
    }
    buf_done(&out);
}

// A picture that does not fit into memory is no fault of the server as such: 507, and not to be tried again.
static void answer_error(struct drawing *d)
{
    err e = d->error;
    api_fields_clean(e.text);
    if (!d->sse) {
        if (e.code == ERR_MEMORY)
            reply_problem(d->r, 507, "server_error", "insufficient_memory", &e);
        else
            reply_error(d->r, &e);
        return;
    }
    request_problem(d->r, &e);
    json_t *j = reply_error_json(&e);
    char *text = json_dumps(j, JSON_COMPACT);
    json_decref(j);
    if (text && !d->dead)
        sse_send_named(d->sse, "error", text, strlen(text));
    free(text);
    sse_end(d->sse, false);
}

// The last item: nothing touches the request after this.
static void on_end(struct drawing *d, const struct drawing_item *it)
{
    if (!d->error.code)
        d->error = it->error;
    for (int i = 0; i < d->n && !d->stream && !d->error.code; i++)
        if (!d->files[i])
            err_set(&d->error, ERR_INTERNAL, "picture %d is missing", i);
    request_note(d->r, &(struct request_facts){.model = d->model, .prompt_tokens = d->tokens});
    if (d->error.code)
        answer_error(d);
    else if (d->sse)
        sse_end(d->sse, false);
    else
        answer_whole(d);
}

static struct drawing_item *take(struct drawing *d)
{
    pthread_mutex_lock(&d->lock);
    struct drawing_item *it = d->first;
    d->first = it ? it->next : NULL;
    d->last = d->first ? d->last : NULL;
    d->busy = it != NULL;
    pthread_mutex_unlock(&d->lock);
    return it;
}

static void work_off(void *arg)
{
    struct drawing *d = arg;
    struct drawing_item *it;
    bool over = false;
    while (!over && (it = take(d))) {
        if (it->kind == ITEM_PROGRESS)
            on_progress(d, it);
        else if (it->kind == ITEM_PICTURE)
            on_picture(d, it);
        else
            on_end(d, it);
        over = it->kind == ITEM_END;
        free(it->rgb);
        free(it);
    }
    if (over)
        give_up(d);
}

// ---- the engine's side

static void add(struct drawing *d, struct drawing_item *it)
{
    pthread_mutex_lock(&d->lock);
    if (d->last)
        d->last->next = it;
    else
        d->first = it;
    d->last = it;
    bool idle = !d->busy;
    d->busy = true;
    pthread_mutex_unlock(&d->lock);
    if (idle && !pool_post(d->pool, work_off, d))
        work_off(d);  // the server is closing
}

static void on_event(struct task *t, const struct event *ev)
{
    struct drawing *d = t->ud;
    if (ev->kind != EVENT_PROGRESS && ev->kind != EVENT_IMAGE && ev->kind != EVENT_END)
        return;
    struct drawing_item *it = mem_new(sizeof *it);
    it->choice = ev->choice;
    it->usage = ev->usage;
    if (ev->kind == EVENT_PROGRESS) {
        it->kind = ITEM_PROGRESS;
        it->done = ev->done;
        it->total = ev->total;
        it->dropped = ev->dropped;
        it->dropped_negative = ev->dropped_negative;
    } else if (ev->kind == EVENT_IMAGE) {
        const struct picture *p = ev->picture;
        size_t bytes = (size_t)p->width * (size_t)p->height * 3;
        it->kind = ITEM_PICTURE;
        it->partial = p->partial;
        it->width = p->width;
        it->height = p->height;
        it->rgb = mem_try(bytes);
        if (it->rgb)
            memcpy(it->rgb, p->rgb, bytes);
    } else {
        it->kind = ITEM_END;
        it->error = ev->error;
    }
    add(d, it);
    if (ev->kind == EVENT_END)
        give_up(d);
}

// ---- start

static void on_gone(struct request *r)
{
    struct drawing *d = r->ud;
    atomic_store(&d->unwanted, true);
    engine_cancel(d->engine, d->ticket);
}

void api_drawing_start(struct drawing *d)
{
    struct request *r = d->r;
    struct task *t = d->task;
    err e = {0};
    struct ticket ticket;
    t->on_event = on_event;
    t->ud = d;
    d->model = arena_strdup(&r->arena, t->model);
    request_note(r, &(struct request_facts){.model = d->model});
    d->task = NULL;
    atomic_store(&d->refs, 3);  // the task, the list, and this function
    if (engine_submit(d->engine, t, &ticket, &e)) {
        d->task = t;
        api_fields_clean(e.text);
        api_drawing_free(d);
        reply_error(r, &e);
        return;
    }
    d->ticket = ticket;
    r->ud = d;
    r->on_gone = on_gone;
    give_up(d);
}
