// generate.c - sampling fields, task submission and the event sink. See generate.h for who
// runs what on which thread.
#include "server/api/generate.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/rng.h"
#include "server/api/jsonout.h"
#include "server/api/models.h"
#include "server/api/sampling.h"
#include "server/api/structured.h"
#include "server/api/tools.h"
#include "server/request.h"
#include "server/server.h"

enum {
    MAX_TEXT = 256 << 20,  // of one answer; far beyond any context
    MAX_HELD = 64 << 10,   // then a stream opens although some prompts still wait for admission
};

struct part {
    struct generation *g;
    int first;  // index of its choice 0 in the answer
    struct usage usage;  // so far
};

const struct field api_generate_fields[] = {
    {"model", FIELD_HONOURED, "string"},
    {"temperature", FIELD_HONOURED, "number 0..2"},
    {"top_p", FIELD_HONOURED, "number 0..1"},
    {"top_k", FIELD_HONOURED, "integer -1.."},
    {"min_p", FIELD_HONOURED, "number 0..1"},
    {"presence_penalty", FIELD_HONOURED, "number -2..2"},
    {"frequency_penalty", FIELD_HONOURED, "number -2..2"},
    {"repetition_penalty", FIELD_HONOURED, "number 0.01..100"},
    {"repeat_penalty", FIELD_HONOURED, "number 0.01..100"},
    {"repeat_last_n", FIELD_HONOURED, "integer -1.."},
    {"typical_p", FIELD_HONOURED, "number 0..1"},
    {"top_n_sigma", FIELD_HONOURED, "number -1..100"},
    {"xtc_probability", FIELD_HONOURED, "number 0..1"},
    {"xtc_threshold", FIELD_HONOURED, "number 0..1"},
    {"dry_multiplier", FIELD_HONOURED, "number 0..100"},
    {"dry_base", FIELD_HONOURED, "number 1..100"},
    {"dry_allowed_length", FIELD_HONOURED, "integer 1.."},
    {"dry_penalty_last_n", FIELD_HONOURED, "integer -1.."},
    {"dry_sequence_breakers", FIELD_HONOURED, "[string]"},
    {"mirostat", FIELD_HONOURED, "integer 0..2"},
    {"mirostat_mode", FIELD_HONOURED, "integer 0..2"},
    {"mirostat_tau", FIELD_HONOURED, "number 0..100"},
    {"mirostat_eta", FIELD_HONOURED, "number 0..1"},
    {"dynatemp_range", FIELD_HONOURED, "number 0..2"},
    {"dynatemp_exponent", FIELD_HONOURED, "number 0..100"},
    {"logit_bias", FIELD_HONOURED, "object"},
    {"bad_words", FIELD_HONOURED, "[string]"},
    {"n_probs", FIELD_HONOURED, "integer 0..20"},
    {"prompt_logprobs", FIELD_HONOURED, "integer 0..20"},
    {"n_predict", FIELD_HONOURED, "integer -1.."},
    {"min_tokens", FIELD_HONOURED, "integer 0.."},
    {"n", FIELD_HONOURED, "integer 1..128"},
    {"seed", FIELD_HONOURED, "integer"},
    {"stop", FIELD_HONOURED, "string|[string]"},
    {"stop_token_ids", FIELD_HONOURED, "[integer]"},
    {"include_stop_str_in_output", FIELD_HONOURED, "boolean"},
    {"skip_special_tokens", FIELD_HONOURED, "boolean"},
    {"ignore_eos", FIELD_HONOURED, "boolean"},
    {"stream", FIELD_HONOURED, "boolean"},
    {"stream_options", FIELD_HONOURED, "object {include_usage boolean, continuous_usage_stats boolean, "
                                       "include_obfuscation boolean}"},
    {"return_progress", FIELD_HONOURED, "boolean"},
    {"timings_per_token", FIELD_HONOURED, "boolean"},
    {"return_token_ids", FIELD_HONOURED, "boolean"},
    API_CALLER_FIELDS,
    {"response_format", FIELD_HONOURED, "object"},
    {"structured_outputs", FIELD_HONOURED, "object {json any, regex string, choice [string], grammar string, structural_tag any, "
                                           "json_object boolean, probabilities boolean}"},
    {"guided_json", FIELD_HONOURED, "object|boolean|string"},
    {"guided_regex", FIELD_HONOURED, "string"},
    {"guided_choice", FIELD_HONOURED, "[string]"},
    {"guided_grammar", FIELD_HONOURED, "string"},
    {"grammar", FIELD_HONOURED, "string"},
    {"json_schema", FIELD_HONOURED, "object|boolean|string"},

    {"user", FIELD_ACCEPTED, 0},
    {"safety_identifier", FIELD_ACCEPTED, 0},
    {"metadata", FIELD_ACCEPTED, 0},
    {"store", FIELD_ACCEPTED, 0},
    {"prompt_cache_key", FIELD_ACCEPTED, 0},
    {"prompt_cache_retention", FIELD_ACCEPTED, 0},
    {"prompt_cache_options", FIELD_ACCEPTED, 0},
    {"cache_prompt", FIELD_ACCEPTED, 0},
    {"guided_decoding_backend", FIELD_ACCEPTED, 0},

    // Extensions of other servers that would change the answer.
    {"guided_whitespace_pattern", FIELD_REFUSED, NEUTRAL_EMPTY},
    {"grammar_lazy", FIELD_REFUSED, NEUTRAL_FALSE},
    {"grammar_triggers", FIELD_REFUSED, NEUTRAL_EMPTY},
    {"tfs_z", FIELD_REFUSED, NEUTRAL_ONE},
    {"top_a", FIELD_REFUSED, NEUTRAL_ZERO},
    {"samplers", FIELD_REFUSED, NEUTRAL_EMPTY},
    {"min_keep", FIELD_REFUSED, NEUTRAL_ZERO},
    {"post_sampling_probs", FIELD_REFUSED, NEUTRAL_FALSE},
    {"allowed_token_ids", FIELD_REFUSED, NEUTRAL_EMPTY},
    {"use_beam_search", FIELD_REFUSED, NEUTRAL_FALSE},
    {"truncate_prompt_tokens", FIELD_REFUSED, NEUTRAL_NULL},
    {"lora", FIELD_REFUSED, NEUTRAL_EMPTY},
    {"lora_path", FIELD_REFUSED, NEUTRAL_EMPTY},
    {"regex", FIELD_REFUSED, NEUTRAL_EMPTY},
    {"ebnf", FIELD_REFUSED, NEUTRAL_EMPTY},
    {"logits_processors", FIELD_REFUSED, NEUTRAL_EMPTY},
    {"return_tokens_as_token_ids", FIELD_REFUSED, NEUTRAL_FALSE},
    {"detokenize", FIELD_REFUSED, NEUTRAL_TRUE},
    {"system_prompt", FIELD_REFUSED, NEUTRAL_EMPTY},
    {"image_data", FIELD_REFUSED, NEUTRAL_EMPTY},
};
const size_t api_generate_nfields = sizeof api_generate_fields / sizeof *api_generate_fields;

// ---- making one

static void release_choice(struct choice *c)
{
    buf_done(&c->text);
    buf_done(&c->reasoning);
    for (int i = 0; i < c->ncalls; i++)
        buf_done(&c->calls[i].arguments);
    free(c->calls);
    for (int k = 0; k < API_CHOICE_LISTS; k++)
        buf_done(&c->lists[k]);
    buf_done(&c->ids);
}

static void release(void *object)
{
    struct generation *g = object;
    for (int i = 0; i < g->ntasks; i++)
        if (g->tasks[i])
            task_free(g->tasks[i]);
    for (int i = 0; i < g->nchoices; i++)
        release_choice(&g->choices[i]);
    for (int i = 0; g->prompts && i < g->ntasks; i++) {
        buf_done(&g->prompts[i]);
        buf_done(&g->scores[i]);
        buf_done(&g->prompt_ids[i]);
    }
    free(g->tasks);
    buf_done(&g->held);
    buf_done(&g->out);
    pthread_mutex_destroy(&g->lock);
}

struct generation *api_generate_new(struct request *r, const struct api_format *format)
{
    struct generation *g = arena_alloc(&r->arena, sizeof *g);
    g->r = r;
    g->engine = server_engine(r->server);
    g->format = format;
    g->model = arena_alloc(&r->arena, sizeof *g->model);
    pthread_mutex_init(&g->lock, NULL);
    buf_init(&g->held, 2 * MAX_HELD + MAX_TEXT);
    buf_init(&g->out, MAX_TEXT);
    struct task *defaults = task_new(TASK_GENERATE);
    g->settings = defaults->generate;
    task_free(defaults);
    g->settings.n = 1;
    g->settings.max_tokens = -1;
    g->settings.logprobs = g->settings.prompt_logprobs = -1;
    arena_defer(&r->arena, release, g);
    return g;
}

static bool read_option(struct fields *f, const json_t *options, const char *name, const char *path)
{
    const json_t *v = json_object_get(options, name);
    if (v && !json_is_boolean(v) && !json_is_null(v))
        api_fields_wrong_type(f, v, path, "a boolean");
    return json_is_true(v);
}

static void read_stream(struct generation *g, struct fields *f)
{
    api_fields_bool(f, "stream", &g->stream);
    api_fields_bool(f, "return_progress", &g->settings.progress);
    g->settings.progress &= g->stream;
    api_fields_bool(f, "timings_per_token", &g->timings);
    api_fields_bool(f, "return_token_ids", &g->settings.token_ids);
    const json_t *options = NULL;
    api_fields_object(f, "stream_options", &options);
    if (!g->stream)
        return;
    g->include_usage = read_option(f, options, "include_usage", "stream_options.include_usage");
    g->continuous = read_option(f, options, "continuous_usage_stats", "stream_options.continuous_usage_stats");
    (void)read_option(f, options, "include_obfuscation", "stream_options.include_obfuscation");  // nothing is ever added
}

void api_generate_read(struct generation *g, struct fields *f, unsigned can)
{
    if (!api_models_find(f, can, g->model))
        return;
    api_sampling_read(f, &g->r->arena, g->model->vocab, &g->settings);
    api_structured_read(f, &g->r->arena, &g->settings);
    if (g->settings.choosing == CHOOSE_SCORED && !g->format->probabilities)
        api_fields_fail(f, "unsupported_parameter", "structured_outputs.probabilities", "Unsupported parameter: "
                        "'structured_outputs.probabilities' is not supported at this address, but by /v1/chat/completions and "
                        "/v1/completions.");
    api_fields_small(f, "n_predict", &g->settings.max_tokens);  // llama-server's name, with -1 for no limit; others win
    api_fields_small(f, "n", &g->settings.n);
    api_fields_small(f, "min_tokens", &g->settings.min_tokens);
    api_fields_bool(f, "ignore_eos", &g->settings.ignore_eos);
    read_stream(g, f);
    if (g->stream && g->settings.prompt_logprobs >= 0)  // as in vLLM
        api_fields_fail(f, "invalid_value", "prompt_logprobs",
                        "Invalid 'prompt_logprobs': they are not available in a stream.");
    api_caller_read(&g->caller, f);
}

bool api_generate_limit(struct generation *g, struct fields *f, const char *name)
{
    if (!api_fields_get(f, name))
        return !strcmp(name, "max_tokens") && api_fields_get(f, "n_predict");
    if (!strcmp(name, "max_tokens") && json_number_value(api_fields_get(f, name)) == -1) {  // llama-server: no limit
        g->settings.max_tokens = -1;
        return true;
    }
    api_fields_small(f, name, &g->settings.max_tokens);
    if (!f->failed && g->settings.min_tokens > g->settings.max_tokens)
        api_fields_fail(f, "invalid_value", "min_tokens", "Invalid 'min_tokens': it is greater than '%s'.", name);
    return true;
}

// ---- tasks

// A task shares nothing with its request: it is freed on another thread, maybe after the request.
static void copy_settings(const struct generation *g, struct task *t)
{
    t->generate = g->settings;
    t->generate.grammar = api_structured_copy(&g->settings.grammar, &t->arena);
    struct tool_rules *rules = &t->generate.tools;
    const char **names = rules->nnames ? arena_alloc(&t->arena, rules->nnames * sizeof *names) : NULL;
    for (size_t i = 0; i < rules->nnames; i++)
        names[i] = arena_strdup(&t->arena, rules->names[i]);
    rules->names = names;
    api_sampling_copy(&t->generate, &t->arena);
}

struct task *api_generate_add(struct generation *g)
{
    if (g->ntasks == g->cap) {
        g->cap = g->cap ? g->cap * 2 : 1;
        g->tasks = mem_resize(g->tasks, (size_t)g->cap * sizeof *g->tasks);
    }
    struct task *t = task_new(TASK_GENERATE);
    copy_settings(g, t);
    t->model = arena_strdup(&t->arena, g->model->name);
    api_caller_fill(&g->caller, t);
    g->tasks[g->ntasks++] = t;
    return t;
}

// ---- what formats ask for

const char *api_generate_finish_name(const struct choice *c)
{
    static const char *const names[] = {[FINISH_STOP] = "stop", [FINISH_LENGTH] = "length", [FINISH_CALLS] = "tool_calls"};
    return c->finished ? names[c->finish] : NULL;
}

void api_generate_probabilities(const struct generation *g, int index, struct buf *out)
{
    if (g->settings.choosing == CHOOSE_SCORED)
        buf_printf(out, ",\"probabilities\":%s", g->scores[index / g->settings.n].data);
}

const struct usage *api_generate_usage(const struct generation *g, int task)
{
    return &g->parts[task].usage;
}

uint64_t api_generate_fingerprint(const struct generation *g)
{
    const struct model_info *m = g->model;
    uint64_t h = rng_mix(m->weight_bytes) ^ rng_mix((uint64_t)m->context + 1);
    for (const char *s = m->parent[0] ? m->parent : m->name; *s; s++)  // an alias is the same model
        h = rng_mix(h ^ (unsigned char)*s);
    for (const char *s = m->format; *s; s++)
        h = rng_mix(h ^ (unsigned char)*s);
    return h;
}

static void open_stream(struct generation *g);

static void send(struct generation *g, const char *name, const char *data, size_t len)
{
    if (!g->dead && !sse_send_named(g->sse, name, data, len))
        g->dead = true;  // on_gone cancels the tasks
}

// Only events without a name are held: formats that name theirs have one task.
void api_generate_send(struct generation *g, const char *name, const char *data, size_t len)
{
    if (g->sse || g->dead) {
        send(g, name, data, len);
        return;
    }
    buf_add(&g->held, data, len);
    buf_add_char(&g->held, '\n');
    if (g->held.len > MAX_HELD)
        open_stream(g);
}

static void send_held(struct generation *g)
{
    for (char *line = g->held.data, *end; line && *line; line = end + 1) {
        end = strchr(line, '\n');
        send(g, NULL, line, (size_t)(end - line));
    }
    buf_done(&g->held);
}

static void open_stream(struct generation *g)
{
    g->sse = reply_sse(g->r);
    if (g->format->open)
        g->format->open(g);
    send_held(g);
}

// ---- events; under g->lock

static void on_progress(struct generation *g, const struct event *ev)
{
    if (g->sse && g->ntasks == 1 && g->format->progress)
        g->format->progress(g, ev);
}

static void add_ranked(struct buf *out, const struct token_alternative *a, int rank)
{
    if (out->data[out->len - 1] != '{')
        buf_add_char(out, ',');
    buf_printf(out, "\"%d\":{\"logprob\":", a->id);
    api_jsonout_float(out, a->logprob);
    buf_printf(out, ",\"rank\":%d,\"decoded_token\":", rank);
    api_jsonout_string(out, a->bytes, a->len);
    buf_add_char(out, '}');
}

// As vLLM has them: null for the first token, then for each an object of the token and the likeliest, by id.
static void on_prompt(struct buf *out, const struct event *ev)
{
    buf_add_char(out, '[');
    for (size_t i = 0; i < ev->ntokens; i++) {
        const struct token_logprob *t = &ev->tokens[i];
        buf_add_str(out, i ? "," : "");
        if (t->rank == 0) {
            buf_add_str(out, "null");
            continue;
        }
        buf_add_char(out, '{');
        add_ranked(out, &t->token, t->rank);
        for (int k = 0; k < t->ntop; k++)
            if (t->top[k].id != t->token.id)
                add_ranked(out, &t->top[k], k + 1);
        buf_add_char(out, '}');
    }
    buf_add_char(out, ']');
}

// A text that cannot be has the API's floor.
static void on_scores(struct buf *out, const struct event *ev)
{
    buf_add_char(out, '[');
    for (size_t i = 0; i < ev->nscores; i++) {
        const struct scored_text *t = &ev->scores[i];
        buf_add_str(out, i ? ",{\"text\":" : "{\"text\":");
        api_jsonout_string(out, t->text, t->len);
        buf_printf(out, ",\"probability\":%.17g,\"logprob\":%.17g}", t->probability, t->logprob < -9999 ? -9999.0 : t->logprob);
    }
    buf_add_char(out, ']');
}

static void add_ids(struct buf *out, const struct event *ev)
{
    for (size_t i = 0; i < ev->nids; i++)
        buf_printf(out, out->len ? ",%d" : "%d", ev->ids[i]);
}

static void *grown(void *list, int n, int *cap, size_t size)
{
    if (n < *cap)
        return list;
    *cap = *cap ? 2 * *cap : 4;
    return mem_resize(list, (size_t)*cap * size);
}

// "call_" and 24 letters and digits: what clients expect, unlike any other.
static const char *call_id(struct arena *a)
{
    static const char digits[] = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
    char id[25] = "";
    for (int i = 0; i < 24; i++)
        id[i] = digits[rng_os() % 62];
    return arena_printf(a, "call_%s", id);
}

static struct choice_call *add_call(struct generation *g, struct choice *c, const char *name)
{
    c->calls = grown(c->calls, c->ncalls, &c->calls_cap, sizeof *c->calls);
    struct choice_call *call = &c->calls[c->ncalls++];
    *call = (struct choice_call){.id = call_id(&g->r->arena), .name = arena_strdup(&g->r->arena, name)};
    buf_init(&call->arguments, MAX_TEXT);
    return call;
}

static struct buf *place(struct generation *g, struct choice *c, const struct event *ev)
{
    if (ev->channel == CHANNEL_CONTENT)
        return &c->text;
    if (ev->channel == CHANNEL_REASONING)
        return &c->reasoning;
    if (ev->name)
        add_call(g, c, ev->name);
    struct choice_call *call = &c->calls[c->ncalls - 1];
    call->whole = ev->call_ends;
    return &call->arguments;
}

static void on_text(struct generation *g, int index, const struct event *ev)
{
    struct choice *c = &g->choices[index];
    struct buf *to = place(g, c, ev);
    add_ids(&c->ids, ev);
    if (ev->ntokens && g->settings.logprobs >= 0)
        g->format->logprobs(c, ev);
    bool told = g->stream || g->format->pieces;
    if (!told || ev->channel == CHANNEL_CALL)
        buf_add(to, ev->text, ev->len);
    if (told && (ev->len || ev->ntokens || ev->nids || ev->name || ev->call_ends))
        g->format->text(g, index, ev);
}

static void on_finish(struct generation *g, int index, const struct event *ev)
{
    struct choice *c = &g->choices[index];
    add_ids(&c->ids, ev);
    c->finished = true;
    c->finish = ev->finish;
    if (g->stream || g->format->pieces)
        g->format->finish(g, index);
}

static void record_error(struct generation *g, const err *e)
{
    if (!g->error.code)
        g->error = *e;
}

static void count(struct generation *g, struct part *p, const struct usage *u)
{
    g->usage.prompt_tokens += u->prompt_tokens - p->usage.prompt_tokens;
    g->usage.cached_tokens += u->cached_tokens - p->usage.cached_tokens;
    g->usage.completion_tokens += u->completion_tokens - p->usage.completion_tokens;
    g->usage.reasoning_tokens += u->reasoning_tokens - p->usage.reasoning_tokens;
    p->usage = *u;
}

// For the log: what there is so far.
static void note(struct generation *g)
{
    const struct usage *u = &g->usage;
    struct request_facts f = {.model = g->model->name, .first_ns = g->first_ns, .prompt_tokens = u->prompt_tokens,
                              .cached_tokens = u->cached_tokens, .completion_tokens = u->completion_tokens};
    if (g->choices[0].finished)
        f.finish = api_generate_finish_name(&g->choices[0]);
    request_note(g->r, &f);
}

static void on_start(struct generation *g, const struct part *p, const struct event *ev)
{
    add_ids(&g->prompt_ids[p->first / g->settings.n], ev);
    if (++g->started == g->ntasks && g->stream && !g->sse)
        open_stream(g);
}

static void handle(struct part *p, const struct event *ev)
{
    struct generation *g = p->g;
    count(g, p, &ev->usage);
    if (ev->kind == EVENT_TEXT && !g->first_ns)
        g->first_ns = clock_ns();
    if (ev->kind == EVENT_END && ev->error.code)
        record_error(g, &ev->error);
    else if (g->error.code || ev->kind == EVENT_END)
        return;  // after an error the answer is that error, whatever the other tasks still say
    else if (ev->kind == EVENT_START)
        on_start(g, p, ev);
    else if (ev->kind == EVENT_PROGRESS)
        on_progress(g, ev);
    else if (ev->kind == EVENT_PROMPT)
        on_prompt(&g->prompts[p->first / g->settings.n], ev);
    else if (ev->kind == EVENT_SCORES)
        on_scores(&g->scores[p->first / g->settings.n], ev);
    else if (ev->kind == EVENT_TEXT)
        on_text(g, p->first + ev->choice, ev);
    else if (ev->kind == EVENT_FINISH)
        on_finish(g, p->first + ev->choice, ev);
}

// ---- the end

// An engine's error as this endpoint words it.
static void word_error(const struct generation *g, err *e)
{
    if (e->code == ERR_CONTEXT) {
        if (!strstr(e->text, "maximum context length is"))
            err_wrap(e, "This model's maximum context length is %d tokens", g->model->context);
        snprintf(e->param, sizeof e->param, "%s", g->format->context_param);
    }
    if (g->format->word)
        g->format->word(g, e);
    api_fields_clean(e->text);
}

static void answer_error(struct generation *g)
{
    err e = g->error;
    const char *code = api_tools_word(g->tools, &e);
    word_error(g, &e);
    if (!g->sse) {  // which is gone with the answer
        if (code)
            reply_error_code(g->r, &e, code);
        else
            reply_error(g->r, &e);
        return;
    }
    request_problem(g->r, &e);
    if (!g->dead && g->format->failed)
        g->format->failed(g, &e);
    else if (!g->dead)
        sse_send_json(g->sse, reply_error_json(&e));
    sse_end(g->sse, false);
}

static void answer_stream(struct generation *g)
{
    if (g->format->end)
        g->format->end(g);
    sse_end(g->sse, g->format->done);
}

static void answer_whole(struct generation *g)
{
    struct buf *out = &g->out;
    buf_clear(out);
    g->format->whole(g, out);
    if (out->over) {
        err e;
        err_set(&e, ERR_INTERNAL, "the answer is larger than %d MB", MAX_TEXT >> 20);
        reply_error(g->r, &e);
        return;
    }
    reply_text(g->r, 200, "application/json", out->data, out->len);
}

static bool over(const struct choice *c)
{
    bool any = c->text.over || c->reasoning.over || c->ids.over;
    for (int i = 0; i < c->ncalls; i++)
        any |= c->calls[i].arguments.over;
    for (int k = 0; k < API_CHOICE_LISTS; k++)
        any |= c->lists[k].over;
    return any;
}

// What the engine's contract excludes, or a limit of ours: never an answer that looks complete.
static void check_complete(struct generation *g)
{
    for (int i = 0; i < g->ntasks * g->settings.n && !g->error.code; i++) {
        if (!g->choices[i].finished)
            err_set(&g->error, ERR_INTERNAL, "choice %d ended without a finish reason", i);
        else if (over(&g->choices[i]) || g->prompts[i / g->settings.n].over || g->prompt_ids[i / g->settings.n].over ||
                 g->scores[i / g->settings.n].over)
            err_set(&g->error, ERR_INTERNAL, "the answer is larger than %d MB", MAX_TEXT >> 20);
    }
}

static void answer(struct generation *g)
{
    check_complete(g);
    note(g);
    if (g->error.code)
        answer_error(g);
    else if (g->stream)
        answer_stream(g);
    else
        answer_whole(g);
}

static void cancel_all(struct generation *g)
{
    pthread_mutex_lock(&g->lock);
    int n = g->submitted;
    pthread_mutex_unlock(&g->lock);
    for (int i = 0; i < n; i++)
        engine_cancel(g->engine, g->tickets[i]);
}

// Gives back n of g->pending; whoever gives the last one answers, and g is gone. Nothing may touch g afterwards.
static void give_back(struct generation *g, int n)
{
    pthread_mutex_lock(&g->lock);
    g->pending -= n;
    bool last = g->pending == 0;
    pthread_mutex_unlock(&g->lock);
    if (last)
        answer(g);
}

static void on_event(struct task *t, const struct event *ev)
{
    struct part *p = t->ud;
    struct generation *g = p->g;
    pthread_mutex_lock(&g->lock);
    handle(p, ev);
    pthread_mutex_unlock(&g->lock);
    if (ev->kind != EVENT_END)
        return;
    if (ev->error.code && g->ntasks > 1)
        cancel_all(g);
    give_back(g, 1);
}

static void on_gone(struct request *r)
{
    struct generation *g = r->ud;
    pthread_mutex_lock(&g->lock);
    note(g);
    pthread_mutex_unlock(&g->lock);
    cancel_all(g);
}

// The format's own last event; from then on the stream takes no more. With nothing pending another thread is giving the answer.
static bool on_ended(struct request *r, const err *e)
{
    struct generation *g = r->ud;
    pthread_mutex_lock(&g->lock);
    bool says = g->pending > 0 && g->sse && !g->dead && !g->error.code;
    if (says) {
        g->error = *e;
        g->format->failed(g, e);
        g->dead = true;
    }
    pthread_mutex_unlock(&g->lock);
    return says;
}

// It waits in the queue, or for its model. What goes wrong from here on is an event.
static void on_quiet(struct request *r)
{
    struct generation *g = r->ud;
    pthread_mutex_lock(&g->lock);
    if (!g->sse && !g->error.code)
        open_stream(g);
    pthread_mutex_unlock(&g->lock);
}

// ---- start

// Hands one task to the engine. False when the request has failed, by this task or an earlier one.
static bool submit(struct generation *g, int i)
{
    struct task *t = g->tasks[i];
    struct ticket ticket;
    err e = {0};
    g->tasks[i] = NULL;
    err_code code = engine_submit(g->engine, t, &ticket, &e);
    if (code)
        task_free(t);
    pthread_mutex_lock(&g->lock);
    if (code)
        record_error(g, &e);
    else
        g->tickets[g->submitted++] = ticket;
    bool go_on = !g->error.code;
    pthread_mutex_unlock(&g->lock);
    return go_on;
}

// Where the first token of a text completion starts: behind its prompt, unless that is part of the text. How long a
// prompt of ids is as text is not known here; its offsets count from the completion.
static size_t first_offset(const struct generation *g, const struct prompt *p)
{
    size_t n = 0;
    for (size_t i = 0; p->text && !g->settings.echo && i < p->text_len; i++)
        n += (p->text[i] & 0xC0) != 0x80;
    return n;
}

static void make_choices(struct generation *g)
{
    struct arena *a = &g->r->arena;
    int n = g->settings.n;
    g->parts = arena_alloc(a, (size_t)g->ntasks * sizeof *g->parts);
    g->tickets = arena_alloc(a, (size_t)g->ntasks * sizeof *g->tickets);
    g->choices = arena_alloc(a, (size_t)g->ntasks * (size_t)n * sizeof *g->choices);
    g->prompts = arena_alloc(a, (size_t)g->ntasks * sizeof *g->prompts);
    g->scores = arena_alloc(a, (size_t)g->ntasks * sizeof *g->scores);
    g->prompt_ids = arena_alloc(a, (size_t)g->ntasks * sizeof *g->prompt_ids);
    for (int i = 0; i < g->ntasks; i++) {
        buf_init(&g->prompts[i], MAX_TEXT);
        buf_init(&g->scores[i], MAX_TEXT);
        buf_init(&g->prompt_ids[i], MAX_TEXT);
    }
    g->nchoices = g->ntasks * n;
    for (int i = 0; i < g->nchoices; i++) {
        buf_init(&g->choices[i].text, MAX_TEXT);
        buf_init(&g->choices[i].reasoning, MAX_TEXT);
        buf_init(&g->choices[i].ids, MAX_TEXT);
        for (int k = 0; k < API_CHOICE_LISTS; k++)
            buf_init(&g->choices[i].lists[k], MAX_TEXT);
    }
    for (int i = 0; i < g->ntasks; i++) {
        size_t offset = first_offset(g, &g->tasks[i]->generate.prompt);
        for (int k = 0; k < n; k++)
            g->choices[i * n + k].characters = offset;
        g->parts[i] = (struct part){.g = g, .first = i * n};
        g->tasks[i]->on_event = on_event;
        g->tasks[i]->ud = &g->parts[i];
    }
}

void api_generate_start(struct generation *g)
{
    g->r->answer_id = arena_printf(&g->r->arena, "%s%016llx%08x", g->format->id_prefix, (unsigned long long)rng_os(),
                                   (unsigned)rng_os());
    make_choices(g);
    if (g->format->begin)
        g->format->begin(g);
    g->r->ud = g;
    g->r->on_gone = on_gone;
    g->r->on_quiet = g->stream ? on_quiet : NULL;
    g->r->on_ended = g->stream && g->format->failed ? on_ended : NULL;
    g->pending = g->ntasks + 1;
    int i = 0;
    while (i < g->ntasks && submit(g, i))
        i++;
    if (i < g->ntasks)
        cancel_all(g);
    give_back(g, g->ntasks - g->submitted + 1);  // only this thread writes g->submitted
}
