// chunks.c - see the header. Under the generation's lock.
#include "server/api/chunks.h"

#include "base/clock.h"
#include "server/api/jsonout.h"
#include "server/request.h"

struct chunks {
    const struct api_chunk_format *format;
    const char *head;  // JSON up to the choices, the same in every chunk
};

void api_chunks_begin(struct generation *g, const struct api_chunk_format *format)
{
    struct chunks *c = arena_alloc(&g->r->arena, sizeof *c);
    struct buf b;
    buf_init(&b, 4096);
    buf_printf(&b, "{\"id\":\"%s\",\"object\":\"%s\",\"created\":%lld,\"model\":", g->r->answer_id,
               g->stream ? format->chunk_object : format->object, (long long)clock_unix_s());
    api_jsonout_text(&b, g->model->name);
    buf_printf(&b, ",\"system_fingerprint\":\"fp_%012llx\"", (unsigned long long)(api_generate_fingerprint(g) >> 16));
    if (g->caller.tier)
        buf_printf(&b, ",\"service_tier\":\"%s\"", g->caller.tier);
    buf_add_str(&b, ",\"choices\":[");
    c->format = format;
    c->head = arena_strndup(&g->r->arena, b.data, b.len);
    g->chunks = c;
    buf_done(&b);
}

static void add_usage(const struct usage *u, struct buf *out)
{
    buf_printf(out,
               "{\"prompt_tokens\":%d,\"completion_tokens\":%d,\"total_tokens\":%d,"
               "\"prompt_tokens_details\":{\"cached_tokens\":%d,\"audio_tokens\":0},"
               "\"completion_tokens_details\":{\"reasoning_tokens\":%d,\"audio_tokens\":0,"
               "\"accepted_prediction_tokens\":0,\"rejected_prediction_tokens\":0}}",
               u->prompt_tokens, u->completion_tokens, u->prompt_tokens + u->completion_tokens, u->cached_tokens,
               u->reasoning_tokens);
}

static void add_rate(struct buf *out, const char *what, int n, double ms)
{
    buf_printf(out, "\"%s_n\":%d,\"%s_ms\":%.3f,\"%s_per_token_ms\":%.3f,\"%s_per_second\":%.3f", what, n, what, ms, what,
               n ? ms / n : 0, what, ms > 0 ? n / ms * 1e3 : 0);
}

void api_chunks_timings(const struct generation *g, struct buf *out)
{
    const struct usage *u = &g->usage;
    int64_t now = clock_ns(), first = g->first_ns ? g->first_ns : now;
    buf_printf(out, ",\"timings\":{\"cache_n\":%d,", u->cached_tokens);
    add_rate(out, "prompt", u->prompt_tokens - u->cached_tokens, (double)(first - g->r->received_ns) * 1e-6);
    buf_add_char(out, ',');
    add_rate(out, "predicted", u->completion_tokens, (double)(now - first) * 1e-6);
    buf_add_char(out, '}');
}

// What every chunk of the stream says of usage: the counts so far, or that they come at the end.
static void add_usage_so_far(const struct generation *g, struct buf *out)
{
    if (g->continuous) {
        buf_add_str(out, ",\"usage\":");
        add_usage(&g->usage, out);
    } else if (g->include_usage) {
        buf_add_str(out, ",\"usage\":null");
    }
}

static void add_list(const char *name, const struct buf *ids, struct buf *out)
{
    buf_printf(out, ",\"%s\":[%s]", name, ids->len ? ids->data : "");
}

// The choice with its ids and, in its first chunk after it is known, its prompt's; as vLLM has them.
static void add_choice(struct generation *g, int index, enum api_part part, const struct event *ev, struct buf *out)
{
    const struct chunks *c = g->chunks;
    struct choice *choice = &g->choices[index];
    const struct buf *prompt = &g->prompt_ids[index / g->settings.n];
    c->format->choice(g, index, part, ev, out);
    if (!g->settings.token_ids)
        return;
    out->len--;  // the choice's last brace
    add_list("token_ids", &choice->ids, out);
    bool first = prompt->len && !choice->prompt_told && !c->format->beside;
    if (first)
        add_list("prompt_token_ids", prompt, out);
    buf_add_char(out, '}');
    choice->prompt_told |= first;
}

static struct buf *begin_chunk(struct generation *g)
{
    const struct chunks *c = g->chunks;
    buf_clear(&g->out);
    buf_add_str(&g->out, c->head);
    return &g->out;
}

static void send_chunk(struct generation *g, int index, enum api_part part, const struct event *ev)
{
    struct choice *choice = &g->choices[index];
    const struct buf *prompt = &g->prompt_ids[index / g->settings.n];
    if (g->dead)
        return;
    struct buf *out = begin_chunk(g);
    add_choice(g, index, part, ev, out);
    buf_add_char(out, ']');
    if (prompt->len && !choice->prompt_told)
        add_list("prompt_token_ids", prompt, out);
    choice->prompt_told |= prompt->len > 0;
    add_usage_so_far(g, out);
    buf_add_char(out, '}');
    for (int k = 0; k < API_CHOICE_LISTS; k++)
        buf_clear(&choice->lists[k]);
    buf_clear(&choice->ids);
    api_generate_send(g, NULL, out->data, out->len);
}

void api_chunks_open(struct generation *g)
{
    const struct chunks *c = g->chunks;
    for (int i = 0; c->format->opens && i < g->ntasks * g->settings.n; i++)
        send_chunk(g, i, PART_OPENING, NULL);
}

void api_chunks_text(struct generation *g, int index, const struct event *ev)
{
    send_chunk(g, index, PART_PIECE, ev);
}

void api_chunks_finish(struct generation *g, int index)
{
    send_chunk(g, index, PART_LAST, NULL);
}

// As llama-server says how much of a prompt was read; a chunk without choices.
void api_chunks_progress(struct generation *g, const struct event *ev)
{
    struct buf *out = begin_chunk(g);
    buf_add_char(out, ']');
    add_usage_so_far(g, out);
    buf_printf(out, ",\"prompt_progress\":{\"total\":%d,\"cache\":%d,\"processed\":%d,\"time_ms\":%lld}}", ev->total,
               ev->usage.cached_tokens, ev->done, (long long)((clock_ns() - g->r->received_ns) / 1000000));
    api_generate_send(g, NULL, out->data, out->len);
}

void api_chunks_end(struct generation *g)
{
    if (!g->include_usage && !g->timings)
        return;
    struct buf *out = begin_chunk(g);
    buf_add_char(out, ']');
    if (g->include_usage) {
        buf_add_str(out, ",\"usage\":");
        add_usage(&g->usage, out);
    }
    if (g->timings)
        api_chunks_timings(g, out);
    buf_add_char(out, '}');
    api_generate_send(g, NULL, out->data, out->len);
}

// vLLM has them in the choices of a completion, and in a chat answer beside them.
static void add_prompt(const struct generation *g, int task, struct buf *out)
{
    buf_printf(out, ",\"prompt_logprobs\":%s", g->prompts[task].len ? g->prompts[task].data : "null");
}

void api_chunks_whole(struct generation *g, struct buf *out)
{
    const struct chunks *c = g->chunks;
    buf_add_str(out, c->head);
    for (int i = 0; i < g->ntasks * g->settings.n; i++) {
        if (i)
            buf_add_char(out, ',');
        add_choice(g, i, PART_WHOLE, NULL, out);
        if (g->settings.prompt_logprobs < 0 || c->format->beside)
            continue;
        out->len--;  // the choice's last brace
        add_prompt(g, i / g->settings.n, out);
        buf_add_char(out, '}');
    }
    buf_add_str(out, "],\"usage\":");
    add_usage(&g->usage, out);
    if (g->settings.prompt_logprobs >= 0 && c->format->beside)
        add_prompt(g, 0, out);
    if (g->settings.token_ids && c->format->beside)
        add_list("prompt_token_ids", &g->prompt_ids[0], out);
    if (g->timings)
        api_chunks_timings(g, out);
    buf_add_char(out, '}');
}
