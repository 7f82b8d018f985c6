// sampling.c - see the header. Loop thread.
#include "server/api/sampling.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    MAX_STOPS = 64,  // OpenAI's 4 are too few for what clients of other servers send
    MAX_STOP_BYTES = 4096,
    MAX_BIAS = 4096,
    MAX_STOP_IDS = 128,
    MAX_BREAKERS = 64,
    MAX_BREAKER_BYTES = 40,  // llama-server cuts them there
    MAX_BAD_WORDS = 256,
    MAX_WORD_BYTES = 256,
};

struct reader {
    struct fields *f;
    struct arena *arena;
    int vocab;
};

// ---- numbers

// -1: all; 0: the penalties look at nothing.
static void read_penalties(struct fields *f, struct sampling *s)
{
    int last = -1;
    api_fields_float(f, "presence_penalty", &s->presence_penalty);
    api_fields_float(f, "frequency_penalty", &s->frequency_penalty);
    api_fields_float(f, "repeat_penalty", &s->repetition_penalty);
    api_fields_float(f, "repetition_penalty", &s->repetition_penalty);
    api_fields_small(f, "repeat_last_n", &last);
    if (last == 0) {
        s->presence_penalty = s->frequency_penalty = 0;
        s->repetition_penalty = 1;
    }
    s->penalty_last_n = last > 0 ? last : 0;
}

static void read_sampling(struct fields *f, struct sampling *s)
{
    int64_t seed;
    api_fields_float(f, "temperature", &s->temperature);
    api_fields_float(f, "top_p", &s->top_p);
    api_fields_float(f, "min_p", &s->min_p);
    read_penalties(f, s);
    api_fields_small(f, "top_k", &s->top_k);
    s->top_k = s->top_k < 0 ? 0 : s->top_k;
    if (api_fields_int(f, "seed", &seed))
        s->seed = (uint64_t)seed;
}

// llama-server's. Its way to turn one off is taken too: -1 standard deviations, no length to look back.
static void read_further(struct fields *f, struct sampling *s)
{
    api_fields_float(f, "typical_p", &s->typical_p);
    api_fields_float(f, "top_n_sigma", &s->top_n_sigma);
    api_fields_float(f, "xtc_probability", &s->xtc_probability);
    api_fields_float(f, "xtc_threshold", &s->xtc_threshold);
    api_fields_float(f, "dry_multiplier", &s->dry_multiplier);
    api_fields_float(f, "dry_base", &s->dry_base);
    api_fields_small(f, "dry_allowed_length", &s->dry_allowed_length);
    api_fields_small(f, "dry_penalty_last_n", &s->dry_last_n);
    if (s->dry_last_n == 0)
        s->dry_multiplier = 0;
    api_fields_small(f, "mirostat_mode", &s->mirostat);
    api_fields_small(f, "mirostat", &s->mirostat);
    api_fields_float(f, "mirostat_tau", &s->mirostat_tau);
    api_fields_float(f, "mirostat_eta", &s->mirostat_eta);
    api_fields_float(f, "dynatemp_range", &s->dynatemp_range);
    api_fields_float(f, "dynatemp_exponent", &s->dynatemp_exponent);
}

// ---- lists

static bool token_of(const char *key, int vocab, int32_t *ret_id)
{
    char *end;
    long id = *key >= '0' && *key <= '9' ? strtol(key, &end, 10) : -1;
    if (id < 0 || *end || id >= vocab)
        return false;
    *ret_id = (int32_t)id;
    return true;
}

static void read_bias(const struct reader *r, struct sampling *s)
{
    struct fields *f = r->f;
    const json_t *map;
    if (!api_fields_object(f, "logit_bias", &map) || !json_object_size(map))
        return;
    if (json_object_size(map) > MAX_BIAS) {
        api_fields_fail(f, "object_above_max_length", "logit_bias",
                        "Invalid 'logit_bias': too many entries. Expected at most %d.", MAX_BIAS);
        return;
    }
    size_t n = 0;
    struct logit_bias *list = arena_alloc(r->arena, json_object_size(map) * sizeof *list);
    const char *key;
    json_t *v;
    json_object_foreach((json_t *)map, key, v) {
        double bias = 0;
        char path[96];
        snprintf(path, sizeof path, "logit_bias.%.40s", key);
        if (!token_of(key, r->vocab, &list[n].id))
            api_fields_fail(f, "invalid_value", "logit_bias",
                            "Invalid key in 'logit_bias': '%.40s'. Expected the id of a token of this model, 0 to %d.",
                            key, r->vocab - 1);
        else if (api_fields_as_number(f, v, path, -100, 100, &bias))
            list[n++].bias = (float)bias;
    }
    s->bias = list;
    s->nbias = n;
}

// A string or strings; empty ones, which would match anywhere, are left out. NULL: the field is absent or wrong.
static const char **read_texts(const struct reader *r, const char *name, size_t most, size_t most_bytes, bool single,
                               size_t *ret_n)
{
    const json_t *v = api_fields_get(r->f, name);
    if (!v)
        return NULL;
    bool array = json_is_array(v);
    size_t n = array ? json_array_size(v) : 1;
    if (!array && !(single && json_is_string(v))) {
        api_fields_wrong_type(r->f, v, name, single ? "a string or an array of strings" : "an array of strings");
        return NULL;
    }
    const char **list = arena_alloc(r->arena, (n + 1) * sizeof *list);
    *ret_n = 0;
    for (size_t i = 0; i < n; i++) {
        const json_t *one = array ? json_array_get(v, i) : v;
        if (!json_is_string(one))
            api_fields_wrong_type(r->f, one, name, single ? "a string or an array of strings" : "an array of strings");
        else if (json_string_length(one) > most_bytes)
            api_fields_fail(r->f, "string_above_max_length", name,
                            "Invalid '%s': string too long. Expected at most %zu bytes.", name, most_bytes);
        else if (*json_string_value(one))
            list[(*ret_n)++] = json_string_value(one);
    }
    if (*ret_n > most)
        api_fields_fail(r->f, "array_above_max_length", name,
                        "Invalid '%s': array too long. Expected an array with maximum length %zu, but got an array with "
                        "length %zu instead.", name, most, *ret_n);
    return list;
}

static void read_stop_ids(const struct reader *r, struct generate *g)
{
    const json_t *list;
    if (!api_fields_array(r->f, "stop_token_ids", &list))
        return;
    size_t n = json_array_size(list);
    if (n > MAX_STOP_IDS) {
        api_fields_fail(r->f, "array_above_max_length", "stop_token_ids",
                        "Invalid 'stop_token_ids': array too long. Expected at most %d ids.", MAX_STOP_IDS);
        return;
    }
    int32_t *ids = arena_alloc(r->arena, (n + 1) * sizeof *ids);
    for (size_t i = 0; i < n; i++) {
        int64_t id;
        if (api_fields_as_int(r->f, json_array_get(list, i), "stop_token_ids", 0, r->vocab - 1, &id))
            ids[i] = (int32_t)id;
    }
    g->stop_ids = ids;
    g->nstop_ids = n;
}

static void read_lists(const struct reader *r, struct generate *g)
{
    struct sampling *s = &g->sampling;
    const char **list;
    size_t n = 0;
    read_bias(r, s);
    read_stop_ids(r, g);
    if ((list = read_texts(r, "stop", MAX_STOPS, MAX_STOP_BYTES, true, &n))) {
        g->stop = list;
        g->nstop = n;
    }
    if ((list = read_texts(r, "bad_words", MAX_BAD_WORDS, MAX_WORD_BYTES, false, &n))) {
        g->bad_words = list;
        g->nbad_words = n;
    }
    if ((list = read_texts(r, "dry_sequence_breakers", MAX_BREAKERS, MAX_BREAKER_BYTES, false, &n))) {
        s->dry_breakers = list;
        s->ndry_breakers = n;
    }
}

void api_sampling_read(struct fields *f, struct arena *a, int vocab, struct generate *g)
{
    struct reader r = {f, a, vocab};
    bool skip_control = true;
    read_sampling(f, &g->sampling);
    read_further(f, &g->sampling);
    read_lists(&r, g);
    api_fields_bool(f, "include_stop_str_in_output", &g->include_stop);
    if (api_fields_bool(f, "skip_special_tokens", &skip_control))
        g->show_control = !skip_control;
    api_fields_small(f, "prompt_logprobs", &g->prompt_logprobs);
    int probs = 0;
    api_fields_small(f, "n_probs", &probs);
    if (probs > 0)
        g->logprobs = probs;
}

// ---- copies

static void *copy(struct arena *a, const void *from, size_t n, size_t size)
{
    return n ? memcpy(arena_alloc(a, n * size), from, n * size) : NULL;
}

static const char *const *copy_texts(struct arena *a, const char *const *from, size_t n)
{
    const char **list = n ? arena_alloc(a, n * sizeof *list) : NULL;
    for (size_t i = 0; i < n; i++)
        list[i] = arena_strdup(a, from[i]);
    return list;
}

void api_sampling_copy(struct generate *g, struct arena *a)
{
    struct sampling *s = &g->sampling;
    s->bias = copy(a, s->bias, s->nbias, sizeof *s->bias);
    s->dry_breakers = copy_texts(a, s->dry_breakers, s->ndry_breakers);
    g->stop = copy_texts(a, g->stop, g->nstop);
    g->stop_ids = copy(a, g->stop_ids, g->nstop_ids, sizeof *g->stop_ids);
    g->bad_words = copy_texts(a, g->bad_words, g->nbad_words);
}
