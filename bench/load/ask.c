// ask.c - see the header.
#include "bench/load/ask.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"

// With a space before them one token each in the usual vocabularies.
static const char *const words[] = {
    "time", "year", "people", "way", "day", "man", "thing", "woman", "life", "child", "world", "school", "state", "family",
    "student", "group", "country", "problem", "hand", "part", "place", "case", "week", "company", "system", "program",
    "question", "work", "government", "number", "night", "point", "home", "water", "room", "mother", "area", "money",
    "story", "fact", "month", "lot", "right", "study", "book", "eye", "job", "word", "business", "issue", "side", "kind",
    "head", "house", "service", "friend", "father", "power", "hour", "game", "line", "end", "member", "law"};

enum { DRAW_PROMPT = 1, DRAW_OUTPUT, DRAW_STEM, DRAW_LEAVE, DRAW_WHEN, DRAW_RESET, DRAW_CLOSE, DRAW_WORDS = 1000 };

bool ask_spread(const char *text, struct ask_spread *ret_spread)
{
    struct ask_spread s = {SPREAD_FIXED, 0, 0, 1e9};
    char end;
    bool ok = true;
    if (sscanf(text, "uniform:%lf:%lf%c", &s.a, &s.b, &end) == 2)
        s.kind = SPREAD_UNIFORM;
    else if (sscanf(text, "lognormal:%lf:%lf:%lf%c", &s.a, &s.b, &s.most, &end) == 3)
        s.kind = SPREAD_LOGNORMAL;
    else
        ok = sscanf(text, "%lf%c", &s.a, &end) == 1;
    ok = ok && s.a >= 1 && s.a <= 1e6 && s.b <= 1e6 && (s.kind != SPREAD_UNIFORM || s.b >= s.a);
    if (ok)
        *ret_spread = s;
    return ok;
}

static int draw(const struct ask_spread *s, uint64_t seed, uint64_t number, int what)
{
    double u = rng_unit(seed, number, (uint64_t)what), v = rng_unit(seed, number, (uint64_t)what + 100);
    double n = s->a;
    if (s->kind == SPREAD_UNIFORM)
        n = s->a + u * (s->b - s->a + 1);
    else if (s->kind == SPREAD_LOGNORMAL)
        n = s->a * exp(s->b * sqrt(-2 * log(1 - u)) * cos(2 * 3.14159265358979323846 * v));
    return n < 1 ? 1 : n > s->most ? (int)s->most : (int)n;
}

void ask_init(struct ask *a)
{
    memset(a, 0, sizeof *a);
    buf_init(&a->bytes, SIZE_MAX);
}

void ask_done(struct ask *a)
{
    buf_done(&a->bytes);
}

static void add_prompt(struct buf *b, const struct ask_options *o, int n, bool stem, uint64_t number)
{
    for (int i = 0; i < n; i++) {
        uint64_t r = stem && i < o->stem_tokens ? rng_u64(o->seed, DRAW_WORDS, (uint64_t)i)
                                                : rng_u64(o->seed, number, DRAW_WORDS + (uint64_t)i);
        if (o->vocab)
            buf_printf(b, i ? ",%d" : "%d", (int)(r % (uint64_t)o->vocab));
        else
            buf_printf(b, i ? " %s" : "%s", words[r % (sizeof words / sizeof *words)]);
    }
}

static void wrap(struct ask *a, const struct ask_options *o, const char *method, const char *path, const char *body, bool close)
{
    buf_clear(&a->bytes);
    buf_printf(&a->bytes, "%s %s HTTP/1.1\r\nHost: %s\r\n", method, path, o->host);
    if (o->key)
        buf_printf(&a->bytes, "Authorization: Bearer %s\r\n", o->key);
    if (close)
        buf_add_str(&a->bytes, "Connection: close\r\n");
    if (body)
        buf_printf(&a->bytes, "Content-Type: application/json\r\nContent-Length: %zu\r\n", strlen(body));
    buf_add_str(&a->bytes, "\r\n");
    buf_add_str(&a->bytes, body ? body : "");
}

void ask_make_get(struct ask *a, const struct ask_options *o, const char *path)
{
    a->kind = ASK_OTHER;
    a->what = "get";
    a->stream = false;
    a->leave_after = -1;
    a->status = 200;
    wrap(a, o, "GET", path, NULL, false);
}

static void make_text(struct ask *a, const struct ask_options *o, int prompt, bool stem, const char *tail, uint64_t number)
{
    struct buf b;
    buf_init(&b, SIZE_MAX);
    buf_printf(&b, "{\"model\":\"%s\",\"stream\":%s,\"max_tokens\":%d,\"n\":%d,\"temperature\":%g,\"seed\":%u,", o->model,
               a->stream ? "true" : "false", a->output_tokens, a->choices, o->temperature, (unsigned)(number & 0xffffff));
    if (a->stream)
        buf_add_str(&b, "\"stream_options\":{\"include_usage\":true},");
    if (o->ignore_eos)
        buf_add_str(&b, "\"ignore_eos\":true,");
    if (o->token_ids)
        buf_add_str(&b, "\"return_token_ids\":true,");
    if (o->logprobs)
        buf_add_str(&b, o->chat ? "\"logprobs\":true,\"top_logprobs\":2," : "\"logprobs\":2,");
    bool ids = o->vocab && !o->chat;
    buf_add_str(&b, o->chat ? "\"messages\":[{\"role\":\"user\",\"content\":\"" : ids ? "\"prompt\":[" : "\"prompt\":\"");
    add_prompt(&b, o, prompt, stem, number);
    buf_add_str(&b, ids ? "" : tail);
    buf_add_str(&b, o->chat ? "\"}]}" : ids ? "]}" : "\"}");
    wrap(a, o, "POST", o->chat ? "/v1/chat/completions" : "/v1/completions", b.data,
         rng_unit(o->seed, number, DRAW_CLOSE) < 0.02);
    buf_done(&b);
}

static void choose_leaving(struct ask *a, const struct ask_options *o, uint64_t number)
{
    a->leave_after = -1;
    if (rng_unit(o->seed, number, DRAW_LEAVE) < o->leave)
        a->leave_after = (int)(rng_u64(o->seed, number, DRAW_WHEN) % (uint64_t)(a->output_tokens + 1));
    a->leave_reset = rng_unit(o->seed, number, DRAW_RESET) < 0.5;
}

static void begin(struct ask *a, const struct ask_options *o, uint64_t number)
{
    a->kind = ASK_TEXT;
    a->what = o->chat ? "chat" : "completion";
    a->stream = o->stream;
    a->choices = o->choices;
    a->status = 200;
    a->output_tokens = draw(&o->output, o->seed, number, DRAW_OUTPUT);
    choose_leaving(a, o, number);
}

void ask_make(struct ask *a, const struct ask_options *o, uint64_t number)
{
    begin(a, o, number);
    make_text(a, o, draw(&o->prompt, o->seed, number, DRAW_PROMPT), rng_unit(o->seed, number, DRAW_STEM) < o->stem_share, "", number);
}

void ask_make_long(struct ask *a, const struct ask_options *o, int prompt_tokens, uint64_t number)
{
    begin(a, o, number);
    a->what = "long";
    a->leave_after = -1;
    a->output_tokens = 4;
    make_text(a, o, prompt_tokens, false, "", number);
}

static void make_other(struct ask *a, const struct ask_options *o, const char *what, const char *method, const char *path, int status,
                       const char *body)
{
    a->kind = ASK_OTHER;
    a->what = what;
    a->stream = false;
    a->status = status;
    wrap(a, o, method, path, body, false);
}

static void make_vectors(struct ask *a, const struct ask_options *o, uint64_t number)
{
    struct buf b;
    buf_init(&b, SIZE_MAX);
    buf_printf(&b, "{\"model\":\"%s\",\"input\":[\"", o->embed_model);
    add_prompt(&b, o, 1 + (int)(number % 20), false, number);
    buf_add_str(&b, "\",\"second\"]}");
    make_other(a, o, "embeddings", "POST", "/v1/embeddings", 200, b.data);
    buf_done(&b);
}

static void make_wrong(struct ask *a, const struct ask_options *o, uint64_t number)
{
    struct buf b;
    buf_init(&b, SIZE_MAX);
    switch (number % 4) {
    case 0:
        make_other(a, o, "no_json", "POST", "/v1/chat/completions", 400, "{\"model\": \"m\", \"messages\": [");
        break;
    case 1:
        make_other(a, o, "no_model", "POST", "/v1/chat/completions", 404, "{\"model\":\"none\",\"messages\":[{\"role\":\"user\",\"content\":\"1\"}]}");
        break;
    case 2:
        buf_printf(&b, "{\"model\":\"%s\",\"temperature\":99,\"messages\":[{\"role\":\"user\",\"content\":\"1\"}]}", o->model);
        make_other(a, o, "bad_field", "POST", "/v1/chat/completions", 400, b.data);
        break;
    default:
        make_other(a, o, "no_path", "GET", "/v1/nothing", 404, NULL);
    }
    buf_done(&b);
}

void ask_make_mixed(struct ask *a, const struct ask_options *o, uint64_t number)
{
    // The last character chooses what the scripted model says; to others it is a word like any.
    static const char *const tails[] = {" 0", " 1", " 5", " 8", " 9", " #"};
    struct ask_options mine = *o;
    unsigned sort = (unsigned)(number % 16);
    mine.chat = sort < 8;
    mine.stream = sort < 5 || sort == 8 || sort == 9;
    mine.choices = sort == 3 || sort == 4 || sort == 7 ? 2 : 1;
    mine.logprobs = o->logprobs || sort == 8 || sort == 10 || sort == 2;
    mine.ignore_eos = false;
    if (sort == 13 && o->embed_model) {
        make_vectors(a, o, number);
    } else if (sort == 14 || sort == 13) {
        make_wrong(a, o, number / 16);
    } else if (sort == 15) {
        make_other(a, o, "models", "GET", "/v1/models", 200, NULL);
    } else {
        begin(a, &mine, number);
        make_text(a, &mine, draw(&o->prompt, o->seed, number, DRAW_PROMPT),
                  rng_unit(o->seed, number, DRAW_STEM) < o->stem_share, tails[number / 16 % 6], number);
        return;
    }
    a->choices = 1;
    a->output_tokens = 1;
    choose_leaving(a, o, number);
}
