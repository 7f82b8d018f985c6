// completions.c - POST /v1/completions: one prompt or a batch of them, as text or as token ids. Each prompt is a task;
// choice k of prompt p has index p * n + k. With best_of a task makes that many choices, and the n likeliest are shown. The
// fields are read on the loop thread; the writers of JSON run under the generation's lock on engine threads.
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/utf8.h"
#include "server/api/chunks.h"
#include "server/api/generate.h"
#include "server/api/handlers.h"
#include "server/api/jsonout.h"
#include "server/request.h"
#include "server/server.h"

enum { DEFAULT_TOKENS = 16 };

// g->own
struct asked {
    int n, logprobs;  // of the answer; with best_of the tasks have more
    bool echo;        // with a suffix the engine's prompt is not the text to repeat: it comes from here
};

static const struct field completion_fields[] = {
    {"prompt", FIELD_HONOURED, "string|[string]|[integer]|[[integer]]"},
    {"max_tokens", FIELD_HONOURED, "integer -1.."},
    {"logprobs", FIELD_HONOURED, "integer 0..20"},
    {"echo", FIELD_HONOURED, "boolean"},
    {"best_of", FIELD_HONOURED, "integer 0..20"},
    {"suffix", FIELD_HONOURED, "string"},
};
API_BODY(api_completions_create, completion_fields, generate);

// ---- fields

static void read_best_of(struct generation *g, struct fields *f, struct asked *a)
{
    int best_of = 0;
    a->n = g->settings.n;
    a->logprobs = g->settings.logprobs;
    if (!api_fields_small(f, "best_of", &best_of) || best_of == 0)
        return;
    if (best_of < a->n)
        api_fields_fail(f, "invalid_value", "best_of", "Invalid 'best_of': it must be at least 'n'.");
    else if (best_of > a->n && g->stream)
        api_fields_fail(f, "invalid_value", "best_of",
                        "Invalid 'best_of': the best are known at the end, so it must not be greater than 'n' with 'stream'.");
    if (best_of <= a->n)
        return;
    g->settings.n = best_of;
    if (a->logprobs < 0)
        g->settings.logprobs = 0;  // by which they are compared
}

// An empty suffix is none: editors send it at the end of a file.
static void read_suffix(struct generation *g, struct fields *f, struct asked *a)
{
    struct prompt *p = &g->settings.prompt;
    const char *suffix;
    if (!api_fields_string(f, "suffix", &suffix) || !*suffix)
        return;
    if (!f->failed && !g->model->fills)
        api_fields_fail(f, "unsupported_parameter", "suffix",
                        "Unsupported parameter: 'suffix' is not supported with this model, whose vocabulary has no tokens that "
                        "mark a gap.");
    if (g->settings.echo && a->logprobs >= 0)
        api_fields_fail(f, "unsupported_parameter", "echo",
                        "Unsupported parameter: 'echo' with 'logprobs' is not supported together with 'suffix'.");
    p->suffix = suffix;
    p->suffix_len = json_string_length(api_fields_get(f, "suffix"));
    a->echo = g->settings.echo;
    g->settings.echo = false;
}

static void read_own(struct generation *g, struct fields *f)
{
    struct asked *a = arena_alloc(&g->r->arena, sizeof *a);
    g->own = a;
    if (!api_generate_limit(g, f, "max_tokens"))
        g->settings.max_tokens = DEFAULT_TOKENS;
    api_fields_small(f, "logprobs", &g->settings.logprobs);
    api_fields_bool(f, "echo", &g->settings.echo);
    read_best_of(g, f, a);
    read_suffix(g, f, a);
}

// The kind of an array's elements decides what it is; a mixture is nothing.
static bool all_of(const json_t *list, bool (*is)(const json_t *v))
{
    for (size_t i = 0; i < json_array_size(list); i++)
        if (!is(json_array_get(list, i)))
            return false;
    return true;
}

static bool is_string(const json_t *v)
{
    return json_is_string(v);
}

static bool is_id(const json_t *v)
{
    return json_is_integer(v) || (json_is_real(v) && json_real_value(v) == floor(json_real_value(v)));
}

static bool is_ids(const json_t *v)
{
    return json_is_array(v) && json_array_size(v) && all_of(v, is_id);
}

// The task's own copy.
static const char *keep(struct task *t, struct fields *f, const char *text, size_t len)
{
    char *copy = mem_try(len + 1);
    if (!copy) {
        api_fields_fail(f, "invalid_value", "prompt", "Invalid 'prompt': no memory for %zu bytes.", len);
        return NULL;
    }
    memcpy(copy, text, len);
    arena_defer(&t->arena, free, copy);
    return copy;
}

static void add_text(struct generation *g, struct fields *f, const char *text, size_t len)
{
    struct task *t = api_generate_add(g);
    struct prompt *p = &t->generate.prompt;
    p->text = keep(t, f, text, len);
    p->text_len = len;
    if (p->suffix)
        p->suffix = keep(t, f, p->suffix, p->suffix_len);
}

static void add_ids(struct generation *g, struct fields *f, const json_t *list)
{
    size_t n = json_array_size(list), bytes;
    if (g->settings.prompt.suffix)
        api_fields_fail(f, "unsupported_parameter", "suffix",
                        "Unsupported parameter: 'suffix' is supported with prompts of text only.");
    int32_t *ids = size_mul(n, sizeof *ids, &bytes) ? mem_try(bytes) : NULL;
    if (!ids) {
        api_fields_fail(f, "invalid_value", "prompt", "Invalid 'prompt': no memory for %zu token ids.", n);
        return;
    }
    struct task *t = api_generate_add(g);
    arena_defer(&t->arena, free, ids);
    for (size_t i = 0; i < n; i++) {
        double id = json_number_value(json_array_get(list, i));
        if (id < 0 || id > INT32_MAX || id >= g->model->vocab) {
            api_fields_fail(f, "invalid_value", "prompt",
                            "Invalid 'prompt': token id out of range. Expected 0 to %d, but got %.0f instead.",
                            g->model->vocab - 1, id);
            return;
        }
        ids[i] = (int32_t)id;
    }
    t->generate.prompt.ids = ids;
    t->generate.prompt.nids = n;
}

static void read_batch(struct generation *g, struct fields *f, const json_t *list)
{
    size_t n = json_array_size(list), queue = (size_t)server_settings(g->r->server)->max_prompts;
    size_t most = queue && queue < API_MAX_PROMPTS ? queue : API_MAX_PROMPTS;
    if (n > most || n * (size_t)g->settings.n > API_MAX_ALL_CHOICES) {
        api_fields_fail(f, "array_above_max_length", "prompt",
                        "Invalid 'prompt': array too long. Expected at most %zu prompts and %d choices in all.", most,
                        API_MAX_ALL_CHOICES);
        return;
    }
    for (size_t i = 0; i < n && !f->failed; i++) {
        const json_t *v = json_array_get(list, i);
        if (json_is_string(v))
            add_text(g, f, json_string_value(v), json_string_length(v));
        else
            add_ids(g, f, v);
    }
}

static void read_prompts(struct generation *g, struct fields *f)
{
    const json_t *v = api_fields_get(f, "prompt");
    if (!v) {
        add_text(g, f, "", 0);
    } else if (json_is_string(v)) {
        add_text(g, f, json_string_value(v), json_string_length(v));
    } else if (json_is_array(v) && !json_array_size(v)) {
        api_fields_empty(f, "prompt");
    } else if (json_is_array(v) && all_of(v, is_id)) {
        add_ids(g, f, v);
    } else if (json_is_array(v) && (all_of(v, is_string) || all_of(v, is_ids))) {
        read_batch(g, f, v);
    } else {
        api_fields_fail(f, "invalid_type", "prompt",
                        "Invalid type for 'prompt': expected a string, an array of strings, an array of integers or an "
                        "array of non-empty arrays of integers.");
    }
}

// ---- JSON

enum list { LIST_TOKENS, LIST_LOGPROBS, LIST_TOP, LIST_OFFSETS };

// A token's text; one that is no text by itself is spelt as its bytes, so that keys stay different.
static void add_token(const struct token_alternative *a, struct buf *out)
{
    if (utf8_valid(a->bytes, a->len)) {
        api_jsonout_string(out, a->bytes, a->len);
        return;
    }
    buf_add_str(out, "\"bytes:");
    for (size_t i = 0; i < a->len; i++)
        buf_printf(out, "\\\\x%02x", (unsigned char)a->bytes[i]);
    buf_add_char(out, '"');
}

static bool same_text(const struct token_alternative *a, const struct token_alternative *b)
{
    return a->len == b->len && (!a->len || !memcmp(a->bytes, b->bytes, a->len));  // bytes of none may be NULL
}

static void add_pair(const struct token_alternative *a, struct buf *out)
{
    if (out->data && out->data[out->len - 1] != '{')
        buf_add_char(out, ',');
    add_token(a, out);
    buf_add_char(out, ':');
    api_jsonout_float(out, a->logprob);
}

// The likeliest tokens, and the chosen one when it is not among them. Two tokens may have the same text: the likelier
// one stays, for an object has each key once.
static void add_top(const struct token_logprob *t, struct buf *out)
{
    buf_add_char(out, '{');
    bool chosen = false;
    for (int k = 0; k < t->ntop; k++) {
        bool seen = false;
        for (int j = 0; j < k; j++)
            seen |= same_text(&t->top[j], &t->top[k]);
        chosen |= same_text(&t->top[k], &t->token);
        if (!seen)
            add_pair(&t->top[k], out);
    }
    if (!chosen)
        add_pair(&t->token, out);
    buf_add_char(out, '}');
}

// Where a token starts, in characters. A token that begins inside a character starts where that character does.
static size_t offset_of(struct choice *c, const struct token_alternative *a)
{
    size_t at = c->characters;
    bool inside = a->len && (a->bytes[0] & 0xC0) == 0x80;
    for (size_t i = 0; i < a->len; i++)
        c->characters += (a->bytes[i] & 0xC0) != 0x80;
    return inside && at ? at - 1 : at;
}

// The list, ready for its next element.
static struct buf *next(struct choice *c, enum list k)
{
    if (c->lists[k].len)
        buf_add_char(&c->lists[k], ',');
    return &c->lists[k];
}

static void add_logprobs(struct choice *c, const struct event *ev)
{
    for (size_t i = 0; i < ev->ntokens; i++) {
        const struct token_logprob *t = &ev->tokens[i];
        add_token(&t->token, next(c, LIST_TOKENS));
        api_jsonout_float(next(c, LIST_LOGPROBS), t->token.logprob);
        buf_printf(next(c, LIST_OFFSETS), "%zu", offset_of(c, &t->token));
        if (isnan(t->token.logprob))  // the first token of an echoed prompt: nothing comes before it
            buf_add_str(next(c, LIST_TOP), "null");
        else
            add_top(t, next(c, LIST_TOP));
    }
}

static void add_lists(const struct generation *g, const struct choice *c, struct buf *out)
{
    static const char *const names[] = {
        [LIST_TOKENS] = "{\"tokens\":",
        [LIST_LOGPROBS] = ",\"token_logprobs\":",
        [LIST_TOP] = ",\"top_logprobs\":",
        [LIST_OFFSETS] = ",\"text_offset\":",
    };
    for (int k = 0; k < API_CHOICE_LISTS; k++) {
        buf_add_str(out, names[k]);
        if (k == LIST_TOP && g->settings.logprobs == 0)
            buf_add_str(out, "null");  // 0 asks for no alternatives
        else
            buf_printf(out, "[%s]", c->lists[k].len ? c->lists[k].data : "");
    }
    buf_add_char(out, '}');
}

// The prompt that a choice continues; from the request, whose tasks are gone by now.
static void add_echo(const struct generation *g, int index, struct buf *out)
{
    const json_t *prompt = json_object_get(g->r->json, "prompt");
    if (json_is_array(prompt))
        prompt = json_array_get(prompt, (size_t)(index / g->settings.n));
    buf_add(out, json_string_value(prompt), json_string_length(prompt));
}

static void add_text_of(const struct generation *g, int index, enum api_part part, const struct event *ev, struct buf *out)
{
    const struct asked *a = g->own;
    const struct choice *c = &g->choices[index];
    struct buf text;
    buf_init(&text, SIZE_MAX);
    if (a->echo && (part == PART_WHOLE || part == PART_OPENING))
        add_echo(g, index, &text);
    if (part == PART_WHOLE)
        buf_add(&text, c->text.data, c->text.len);
    else if (ev)
        buf_add(&text, ev->text, ev->len);
    api_jsonout_string(out, text.data ? text.data : "", text.len);
    buf_done(&text);
}

static void add_choice(const struct generation *g, int index, enum api_part part, const struct event *ev, struct buf *out)
{
    const struct choice *c = &g->choices[index];
    buf_add_str(out, "{\"text\":");
    add_text_of(g, index, part, ev, out);
    buf_printf(out, ",\"index\":%d,\"logprobs\":", index);
    if (g->settings.logprobs >= 0 && (part == PART_WHOLE || c->lists[LIST_TOKENS].len))
        add_lists(g, c, out);
    else
        buf_add_str(out, "null");
    buf_add_str(out, ",\"finish_reason\":");
    api_jsonout_text(out, part == PART_PIECE ? NULL : api_generate_finish_name(c));
    if (part == PART_WHOLE || part == PART_LAST)
        api_generate_probabilities(g, index, out);
    buf_add_char(out, '}');
}

static void begin(struct generation *g)
{
    static const struct api_chunk_format chunks = {"text_completion", "text_completion", false, false, add_choice};
    static const struct api_chunk_format echoed = {"text_completion", "text_completion", true, false, add_choice};
    const struct asked *a = g->own;
    api_chunks_begin(g, a->echo ? &echoed : &chunks);
}

// ---- the best of more

struct candidate {
    struct choice choice;
    double score;
    int index;
};

// Mean log-probability of its tokens, of which the first `skip` are the echoed prompt's; 0 for none.
static double score(const struct choice *c, int skip)
{
    double sum = 0;
    int n = 0;
    for (const char *p = c->lists[LIST_LOGPROBS].data; p && *p; p++) {
        const char *end = strchrnul(p, ',');
        if (skip-- <= 0) {
            sum += strtod(p, NULL);
            n++;
        }
        p = *end ? end : end - 1;
    }
    return n ? sum / n : 0;
}

static int best_first(const void *a, const void *b)
{
    const struct candidate *x = a, *y = b;
    return x->score != y->score ? (x->score < y->score ? 1 : -1) : x->index - y->index;
}

// Each prompt's n best come to the front, in the order of the answer; what is left stays behind them, for release.
static void keep_best(struct generation *g)
{
    const struct asked *a = g->own;
    int of = g->settings.n, total = g->ntasks * of, shown = 0, rest = g->ntasks * a->n;
    struct candidate *all = mem_new((size_t)total * sizeof *all);
    for (int i = 0; i < total; i++) {
        int skip = g->settings.echo ? api_generate_usage(g, i / of)->prompt_tokens : 0;
        all[i] = (struct candidate){g->choices[i], score(&g->choices[i], skip), i};
    }
    for (int p = 0; p < g->ntasks; p++)
        qsort(all + p * of, (size_t)of, sizeof *all, best_first);
    for (int i = 0; i < total; i++)
        g->choices[i % of < a->n ? shown++ : rest++] = all[i].choice;
    free(all);
    g->settings.n = a->n;
    g->settings.logprobs = a->logprobs;
}

static void whole(struct generation *g, struct buf *out)
{
    const struct asked *a = g->own;
    if (a->n < g->settings.n)
        keep_best(g);
    api_chunks_whole(g, out);
}

static const struct api_format format = {
    .id_prefix = "cmpl-",
    .context_param = "",
    .begin = begin,
    .open = api_chunks_open,
    .text = api_chunks_text,
    .finish = api_chunks_finish,
    .progress = api_chunks_progress,
    .end = api_chunks_end,
    .done = true,
    .probabilities = true,
    .whole = whole,
    .logprobs = add_logprobs,
};

// ---- the handler

void api_completions_create(struct request *r)
{
    struct fields f;
    api_fields_init(&f, r);
    api_fields_check(&f, &api_completions_create_body);
    struct generation *g = api_generate_new(r, &format);
    api_generate_read(g, &f, CAN_COMPLETE);
    read_own(g, &f);
    if (!f.failed)
        read_prompts(g, &f);
    if (f.failed) {
        api_fields_reply(&f);
        return;
    }
    api_generate_start(g);
}
