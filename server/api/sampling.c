// sampling.c - see the header. Loop thread.
#include "server/api/sampling.h"

#include <jansson.h>
#include <limits.h>
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
    MAX_LOGPROBS = 20,
};

struct reader {
    struct fields *f;
    struct arena *arena;
    int vocab;
};

static void read_float(struct fields *f, const char *name, double min, double max, float *ret_value)
{
    double d;
    if (api_fields_number(f, name, min, max, &d))
        *ret_value = (float)d;
}

static void read_small(struct fields *f, const char *name, int min, int max, int *ret_value)
{
    int64_t i;
    if (api_fields_int(f, name, min, max, &i))
        *ret_value = (int)i;
}

// ---- numbers

// -1: all; 0: the penalties look at nothing.
static void read_penalties(struct fields *f, struct sampling *s)
{
    int last = -1;
    read_float(f, "presence_penalty", -2, 2, &s->presence_penalty);
    read_float(f, "frequency_penalty", -2, 2, &s->frequency_penalty);
    read_float(f, "repeat_penalty", 0.01, 100, &s->repetition_penalty);
    read_float(f, "repetition_penalty", 0.01, 100, &s->repetition_penalty);
    read_small(f, "repeat_last_n", -1, INT_MAX, &last);
    if (last == 0) {
        s->presence_penalty = s->frequency_penalty = 0;
        s->repetition_penalty = 1;
    }
    s->penalty_last_n = last > 0 ? last : 0;
}

static void read_sampling(struct fields *f, struct sampling *s)
{
    int64_t seed;
    read_float(f, "temperature", 0, 2, &s->temperature);
    read_float(f, "top_p", 0, 1, &s->top_p);
    read_float(f, "min_p", 0, 1, &s->min_p);
    read_penalties(f, s);
    read_small(f, "top_k", -1, INT_MAX, &s->top_k);
    s->top_k = s->top_k < 0 ? 0 : s->top_k;
    if (api_fields_int(f, "seed", INT64_MIN, INT64_MAX, &seed))
        s->seed = (uint64_t)seed;
}

// llama-server's. Its way to turn one off is taken too: -1 standard deviations, no length to look back.
static void read_further(struct fields *f, struct sampling *s)
{
    read_float(f, "typical_p", 0, 1, &s->typical_p);
    read_float(f, "top_n_sigma", -1, 100, &s->top_n_sigma);
    read_float(f, "xtc_probability", 0, 1, &s->xtc_probability);
    read_float(f, "xtc_threshold", 0, 1, &s->xtc_threshold);
    read_float(f, "dry_multiplier", 0, 100, &s->dry_multiplier);
    read_float(f, "dry_base", 1, 100, &s->dry_base);
    read_small(f, "dry_allowed_length", 1, INT_MAX, &s->dry_allowed_length);
    read_small(f, "dry_penalty_last_n", -1, INT_MAX, &s->dry_last_n);
    if (s->dry_last_n == 0)
        s->dry_multiplier = 0;
    read_small(f, "mirostat_mode", 0, 2, &s->mirostat);
    read_small(f, "mirostat", 0, 2, &s->mirostat);
    read_float(f, "mirostat_tau", 0, 100, &s->mirostat_tau);
    read_float(f, "mirostat_eta", 0, 1, &s->mirostat_eta);
    read_float(f, "dynatemp_range", 0, 2, &s->dynatemp_range);
    read_float(f, "dynatemp_exponent", 0, 100, &s->dynatemp_exponent);
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
    read_small(f, "prompt_logprobs", 0, MAX_LOGPROBS, &g->prompt_logprobs);
    int probs = 0;
    read_small(f, "n_probs", 0, MAX_LOGPROBS, &probs);
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
