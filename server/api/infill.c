// infill.c - POST /infill as llama-server has it: editors ask for what stands between the text before and the text after the
// cursor. One task; the answer has llama-server's form, whole or in pieces. The fields are read on the loop thread; the writers
// of JSON run under the generation's lock on engine threads.
#include <jansson.h>
#include <stdlib.h>

#include "server/api/chunks.h"
#include "server/api/generate.h"
#include "server/api/handlers.h"
#include "server/api/jsonout.h"
#include "server/request.h"

enum { MAX_TEXT = 64 << 20 };

static const struct field infill_fields[] = {
    {"input_prefix", FIELD_HONOURED, "string"},
    {"input_suffix", FIELD_HONOURED, "string"},
    {"input_extra", FIELD_HONOURED, "[object]"},
    {"prompt", FIELD_HONOURED, "string"},
    {"n_predict", FIELD_HONOURED, "integer -1.."},
    {"max_tokens", FIELD_HONOURED, "integer -1.."},

    {"n_indent", FIELD_ACCEPTED, 0},
    {"id_slot", FIELD_ACCEPTED, 0},
    {"samplers", FIELD_ACCEPTED, 0},
    {"response_fields", FIELD_ACCEPTED, 0},  // the answer has all of them
    {"t_max_prompt_ms", FIELD_ACCEPTED, 0},
    {"t_max_predict_ms", FIELD_ACCEPTED, 0},

    {"n", FIELD_REFUSED, NEUTRAL_ONE},
    {"n_probs", FIELD_REFUSED, NEUTRAL_ZERO},
    {"return_token_ids", FIELD_REFUSED, NEUTRAL_FALSE},
};
API_BODY(api_infill_create, infill_fields, generate);

// ---- fields

static void add_string(struct fields *f, const char *name, struct buf *out)
{
    const char *text;
    if (api_fields_string(f, name, &text))
        buf_add(out, text, json_string_length(api_fields_get(f, name)));
}

// Pieces of other files, [{"filename", "text"}]: they come before the text, as a file that goes on with it would have them.
static void add_extra(struct fields *f, struct buf *out)
{
    const json_t *list, *one;
    size_t i;
    if (!api_fields_array(f, "input_extra", &list))
        return;
    json_array_foreach((json_t *)list, i, one) {
        const json_t *text = json_object_get(one, "text");
        if (!json_is_string(text)) {
            api_fields_fail(f, "invalid_type", "input_extra", "Invalid type for 'input_extra': expected an array of objects, each "
                            "with a string 'text'.");
            return;
        }
        buf_add(out, json_string_value(text), json_string_length(text));
        buf_add_char(out, '\n');
    }
}

// The task's own.
static const char *keep(struct task *t, struct buf *b, size_t *ret_len)
{
    *ret_len = b->len;
    char *text = buf_take(b);
    arena_defer(&t->arena, free, text);
    return text;
}

static void read_limit(struct generation *g, struct fields *f)
{
    if (!api_fields_small(f, "max_tokens", &g->settings.max_tokens))
        api_fields_small(f, "n_predict", &g->settings.max_tokens);
}

static void add_task(struct generation *g, struct fields *f)
{
    struct buf before, after;
    buf_init(&before, MAX_TEXT);
    buf_init(&after, MAX_TEXT);
    add_extra(f, &before);
    add_string(f, "input_prefix", &before);
    add_string(f, "prompt", &before);
    add_string(f, "input_suffix", &after);
    if (before.over || after.over)
        api_fields_fail(f, "string_above_max_length", "input_prefix", "Invalid 'input_prefix': more than %d bytes of text.", MAX_TEXT);
    if (f->failed) {
        buf_done(&before);
        buf_done(&after);
        return;
    }
    struct task *t = api_generate_add(g);
    struct prompt *p = &t->generate.prompt;
    p->text = keep(t, &before, &p->text_len);
    p->suffix = keep(t, &after, &p->suffix_len);
}

// ---- JSON

static void add_end(const struct generation *g, struct buf *out)
{
    const struct choice *c = &g->choices[0];
    const struct usage *u = &g->usage;
    // What ended it, a token or a stop of the request, is not told.
    const char *how = c->finish == FINISH_LENGTH ? "limit" : g->settings.nstop ? "none" : "eos";
    buf_printf(out, ",\"stop\":true,\"stop_type\":\"%s\",\"stopping_word\":\"\",\"truncated\":false,\"model\":", how);
    api_jsonout_text(out, g->model->name);
    buf_printf(out, ",\"tokens_predicted\":%d,\"tokens_evaluated\":%d,\"tokens_cached\":%d", u->completion_tokens,
               u->prompt_tokens, u->cached_tokens);
    api_chunks_timings(g, out);
    buf_add_char(out, '}');
}

static void whole(struct generation *g, struct buf *out)
{
    const struct choice *c = &g->choices[0];
    buf_add_str(out, "{\"index\":0,\"id_slot\":0,\"tokens\":[],\"content\":");
    api_jsonout_string(out, c->text.data ? c->text.data : "", c->text.len);
    add_end(g, out);
}

static struct buf *begin_event(struct generation *g, const char *text, size_t len)
{
    buf_clear(&g->out);
    buf_add_str(&g->out, "{\"index\":0,\"id_slot\":0,\"tokens\":[],\"content\":");
    api_jsonout_string(&g->out, text, len);
    return &g->out;
}

static void piece(struct generation *g, int index, const struct event *ev)
{
    (void)index;
    struct buf *out = begin_event(g, ev->text, ev->len);
    buf_add_str(out, ",\"stop\":false}");
    api_generate_send(g, NULL, out->data, out->len);
}

static void finish(struct generation *g, int index)
{
    (void)g, (void)index;  // the end says it, with what was counted
}

static void end(struct generation *g)
{
    struct buf *out = begin_event(g, "", 0);
    add_end(g, out);
    api_generate_send(g, NULL, out->data, out->len);
}

static const struct api_format format = {
    .id_prefix = "cmpl-",
    .context_param = "",
    .text = piece,
    .finish = finish,
    .end = end,
    .whole = whole,
};

// ---- the handler

void api_infill_create(struct request *r)
{
    struct fields f;
    api_fields_init(&f, r);
    api_fields_check(&f, &api_infill_create_body);
    struct generation *g = api_generate_new(r, &format);
    api_generate_read(g, &f, CAN_COMPLETE);
    read_limit(g, &f);
    if (!f.failed && !g->model->fills)
        api_fields_fail(&f, "unsupported_value", "model", "Unsupported value: the model '%s' cannot fill in the middle: its "
                        "vocabulary has no tokens that mark a gap.", g->model->name);
    if (!f.failed)
        add_task(g, &f);
    if (f.failed)
        api_fields_reply(&f);
    else
        api_generate_start(g);
}
