// lora.c - reads an adapter's config and sorts its tensors into pairs. The thread that opens the model calls it.
#include "engine/blocks/lora.h"

#include <ctype.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "base/mem.h"

struct pair {
    const char *module;  // without the leading words
    const char *a, *b;   // tensor names
    const char *base;    // NULL: none
    bool taken;
};

struct lora {
    const struct weights *weights;
    struct arena arena;
    struct pair *pairs;  // sorted by module
    size_t npairs;
    int rank;
    double alpha;
    bool rslora;
};

// ---- adapter_config.json

// Settings that change what the adapter computes and are not built, with the value that is harmless.
static const struct {
    const char *key, *what;
} refused[] = {
    {"use_dora", "DoRA"},
    {"modules_to_save", "whole trained modules"},
    {"lora_bias", "biases of the pairs"},
    {"fan_in_fan_out", "transposed weights"},
    {"trainable_token_indices", "trained tokens"},
    {"layer_replication", "repeated layers"},
    {"target_parameters", "adapters of bare parameters"},
    {"alora_invocation_tokens", "activated LoRA"},
    {"use_qalora", "QALoRA"},
    {"use_bdlora", "BD-LoRA"},
    {"velora_config", "VeLoRA"},
    {"monteclora_config", "Monte Carlo LoRA"},
    {"kasa_config", "KaSA"},
    {"arrow_config", "Arrow routing"},
};

static bool is_empty(const json_t *j)
{
    return !j || json_is_null(j) || json_is_false(j) || (json_is_array(j) && json_array_size(j) == 0) ||
           (json_is_object(j) && json_object_size(j) == 0);
}

// Ways of initialising that take a part out of the base weights: the adapter belongs to other weights then.
static bool changes_base(const char *init)
{
    static const char *const ways[] = {"pissa", "olora", "corda", "loftq", "lora_ga"};
    for (size_t i = 0; init && i < sizeof ways / sizeof *ways; i++) {
        if (!strncmp(init, ways[i], strlen(ways[i])))
            return true;
    }
    return false;
}

static err_code refuse(const struct weights *w, const json_t *config, err *e)
{
    const char *path = weights_path(w);
    const char *type = json_string_value(json_object_get(config, "peft_type"));
    const char *bias = json_string_value(json_object_get(config, "bias"));
    const char *init = json_string_value(json_object_get(config, "init_lora_weights"));
    if (!type || strcmp(type, "LORA") != 0)
        return err_set_param(e, ERR_UNSUPPORTED, "peft_type", "%s: an adapter of type '%.40s', expected LORA", path,
                             type ? type : "");
    if (bias && strcmp(bias, "none") != 0)
        return err_set_param(e, ERR_UNSUPPORTED, "bias", "%s: a LoRA with bias '%.40s' is not built, expected 'none'",
                             path, bias);
    if (changes_base(init))
        return err_set_param(e, ERR_UNSUPPORTED, "init_lora_weights",
                             "%s: init_lora_weights '%.40s' changed the base weights: not built", path, init);
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        if (!is_empty(json_object_get(config, refused[i].key)))
            return err_set_param(e, ERR_UNSUPPORTED, refused[i].key, "%s: '%s' (%s) is not built", path, refused[i].key,
                                 refused[i].what);
    }
    return ERR_OK;
}

// The keys of a pattern are regular expressions; names of modules, or their ends, are what is found in practice.
static err_code check_pattern(const struct weights *w, const json_t *config, const char *key, double low, double high,
                              err *e)
{
    const char *name;
    json_t *value;
    json_t *pattern = json_object_get(config, key);
    if (pattern && !json_is_null(pattern) && !json_is_object(pattern))
        return err_set_param(e, ERR_CORRUPT, key, "%s: '%s' is no object", weights_path(w), key);
    json_object_foreach(pattern, name, value) {
        for (const char *p = name; *p; p++) {
            if (!isalnum((unsigned char)*p) && *p != '_' && *p != '.')
                return err_set_param(e, ERR_UNSUPPORTED, key, "%s: '%s' has the expression '%.60s', names are built",
                                     weights_path(w), key, name);
        }
        double v = json_number_value(value);
        if (!json_is_number(value) || !(v >= low && v <= high))
            return err_set_param(e, ERR_CORRUPT, key, "%s: '%s' of '%.60s' is %g, expected %g to %g", weights_path(w), key,
                                 name, v, low, high);
    }
    return ERR_OK;
}

static err_code read_config(struct lora *l, const json_t *config, err *e)
{
    const char *path = weights_path(l->weights);
    const json_t *rank = json_object_get(config, "r"), *alpha = json_object_get(config, "lora_alpha");
    if (!json_is_integer(rank) || json_integer_value(rank) < 1 || json_integer_value(rank) > LORA_MAX_RANK)
        return err_set_param(e, ERR_CORRUPT, "r", "%s: rank 'r' is %lld, expected 1 to %d", path,
                             (long long)json_integer_value(rank), LORA_MAX_RANK);
    if (!json_is_number(alpha) || !isfinite(json_number_value(alpha)))
        return err_set_param(e, ERR_CORRUPT, "lora_alpha", "%s: 'lora_alpha' is missing or no number", path);
    l->rank = (int)json_integer_value(rank);
    l->alpha = json_number_value(alpha);
    l->rslora = json_is_true(json_object_get(config, "use_rslora"));
    err_code code = check_pattern(l->weights, config, "rank_pattern", 1, LORA_MAX_RANK, e);
    return code ? code : check_pattern(l->weights, config, "alpha_pattern", -1e6, 1e6, e);
}

// The first key that is the module's name or an end of it, as in PEFT; NULL: none.
static const json_t *pattern_of(const struct lora *l, const char *key, const char *module)
{
    const char *name;
    json_t *value, *pattern = json_object_get(weights_config(l->weights), key);
    size_t n = strlen(module);
    json_object_foreach(pattern, name, value) {
        size_t k = strlen(name);
        if (k <= n && !strcmp(module + n - k, name) && (k == n || module[n - k - 1] == '.'))
            return value;
    }
    return NULL;
}

// ---- tensors

// GGUF's words for what follows the layer's number.
static const char *const words_of_gguf[][2] = {
    {"attn_q", "self_attn.q_proj"},         {"attn_k", "self_attn.k_proj"},        {"attn_v", "self_attn.v_proj"},
    {"attn_output", "self_attn.o_proj"},    {"ffn_gate", "mlp.gate_proj"},         {"ffn_up", "mlp.up_proj"},
    {"ffn_down", "mlp.down_proj"},          {"attn_qkv", "linear_attn.in_proj_qkv"}, {"attn_gate", "linear_attn.in_proj_z"},
    {"ssm_beta", "linear_attn.in_proj_b"},  {"ssm_alpha", "linear_attn.in_proj_a"},  {"ssm_out", "linear_attn.out_proj"},
};

// "blk.3.attn_q" as "layers.3.self_attn.q_proj" into buf; other names stay.
static const char *from_gguf(const char *module, char *buf, size_t size)
{
    int layer, end = 0;
    if (!strcmp(module, "output"))
        return "lm_head";
    if (sscanf(module, "blk.%d.%n", &layer, &end) != 1 || !end)
        return module;
    for (size_t i = 0; i < sizeof words_of_gguf / sizeof *words_of_gguf; i++) {
        if (strcmp(module + end, words_of_gguf[i][0]) != 0)
            continue;
        snprintf(buf, size, "layers.%d.%s", layer, words_of_gguf[i][1]);
        return buf;
    }
    return module;
}

static const char *plain(const char *module)
{
    static const char *const words[] = {"model.", "language_model."};
    for (int i = 0; i < 2; i++) {
        size_t n = strlen(words[i]);
        if (!strncmp(module, words[i], n))
            return plain(module + n);
    }
    return module;
}

static const char prefix[] = "base_model.model.", end_a[] = ".lora_A.weight", end_b[] = ".lora_B.weight",
                  end_base[] = ".base_layer.weight";

static err_code not_a_pair(const struct weights *w, const char *name, err *e)
{
    const char *what = strstr(name, ".lora_embedding_")        ? "a LoRA of an embedding"
                       : strstr(name, "lora_magnitude_vector") ? "a DoRA magnitude"
                       : strstr(name, ".bias")                 ? "a bias"
                                                               : "no low-rank pair";
    return err_set_param(e, ERR_UNSUPPORTED, name, "%s: tensor '%s' is %s, expected %sNAME%s and %s", weights_path(w), name,
                         what, prefix, end_a, end_b);
}

static int by_module(const void *a, const void *b)
{
    return strcmp(((const struct pair *)a)->module, ((const struct pair *)b)->module);
}

static struct pair *find(const struct lora *l, const char *module)
{
    return bsearch(&(struct pair){.module = plain(module)}, l->pairs, l->npairs, sizeof *l->pairs, by_module);
}

static bool ends_with(const char *s, const char *end)
{
    size_t n = strlen(s), k = strlen(end);
    return n > k && !strcmp(s + n - k, end);
}

static const char *module_of(struct lora *l, const char *name, const char *end)
{
    return plain(arena_strndup(&l->arena, name + sizeof prefix - 1, strlen(name) - sizeof prefix + 1 - strlen(end)));
}

static err_code check_name(const struct lora *l, const char *name, err *e)
{
    bool known = ends_with(name, end_a) || ends_with(name, end_b) || ends_with(name, end_base);
    return known && !strncmp(name, prefix, sizeof prefix - 1) ? ERR_OK : not_a_pair(l->weights, name, e);
}

static err_code collect_a(struct lora *l, err *e)
{
    size_t n = weights_count(l->weights);
    l->pairs = mem_new((n + 1) * sizeof *l->pairs);
    for (size_t i = 0; i < n; i++) {
        const char *name = weights_at(l->weights, i)->name;
        if (check_name(l, name, e))
            return e->code;
        if (ends_with(name, end_a))
            l->pairs[l->npairs++] = (struct pair){.module = module_of(l, name, end_a), .a = name};
    }
    qsort(l->pairs, l->npairs, sizeof *l->pairs, by_module);
    for (size_t i = 1; i < l->npairs; i++) {
        if (!by_module(&l->pairs[i], &l->pairs[i - 1]))
            return err_set_param(e, ERR_CORRUPT, l->pairs[i].a, "%s: tensors '%s' and '%s' are of one module",
                                 weights_path(l->weights), l->pairs[i].a, l->pairs[i - 1].a);
    }
    return ERR_OK;
}

static err_code collect_rest(struct lora *l, err *e)
{
    for (size_t i = 0; i < weights_count(l->weights); i++) {
        const char *name = weights_at(l->weights, i)->name;
        bool b = ends_with(name, end_b);
        if (!b && !ends_with(name, end_base))
            continue;
        struct pair *p = find(l, module_of(l, name, b ? end_b : end_base));
        if (!p)
            return err_set_param(e, ERR_CORRUPT, name, "%s: tensor '%s' has no lora_A beside it",
                                 weights_path(l->weights), name);
        *(b ? &p->b : &p->base) = name;
    }
    for (size_t i = 0; i < l->npairs; i++) {
        if (!l->pairs[i].b)
            return err_set_param(e, ERR_CORRUPT, l->pairs[i].a, "%s: tensor '%s' has no lora_B beside it",
                                 weights_path(l->weights), l->pairs[i].a);
    }
    return ERR_OK;
}

err_code lora_open(const struct weights *w, struct lora **ret_lora, err *e)
{
    json_t *config = weights_config(w);
    if (!config)
        return err_set(e, ERR_UNSUPPORTED, "%s: an adapter in a GGUF file is not built, expected a PEFT folder",
                       weights_path(w));
    struct lora *l = mem_new(sizeof *l);
    l->weights = w;
    err_code code = refuse(w, config, e);
    if (!code)
        code = read_config(l, config, e);
    if (!code)
        code = collect_a(l, e);
    if (!code)
        code = collect_rest(l, e);
    if (!code && l->npairs == 0)
        code = err_set(e, ERR_CORRUPT, "%s: no tensor in the adapter", weights_path(w));
    if (code) {
        lora_free(l);
        return code;
    }
    *ret_lora = l;
    return ERR_OK;
}

void lora_free(struct lora *l)
{
    if (!l)
        return;
    arena_done(&l->arena);
    free(l->pairs);
    free(l);
}

const struct weights *lora_weights(const struct lora *l)
{
    return l->weights;
}

bool lora_take(struct lora *l, const char *module, struct lora_source *ret_source)
{
    char buf[96];
    struct pair *p = find(l, from_gguf(module, buf, sizeof buf));
    if (!p)
        return false;
    char full[256];  // the name as PEFT saw it, with its leading words
    snprintf(full, sizeof full, "%.*s", (int)(strlen(p->a) - sizeof prefix + 1 - strlen(end_a)), p->a + sizeof prefix - 1);
    const json_t *rank = pattern_of(l, "rank_pattern", full), *alpha = pattern_of(l, "alpha_pattern", full);
    int r = rank ? (int)json_number_value(rank) : l->rank;
    double s = alpha ? json_number_value(alpha) : l->alpha;
    p->taken = true;
    *ret_source = (struct lora_source){p->a, p->b, p->base, r, (float)(s / (l->rslora ? sqrt(r) : r))};
    return true;
}

err_code lora_check(const struct lora *l, const char *model_path, err *e)
{
    for (size_t i = 0; i < l->npairs; i++) {
        if (!l->pairs[i].taken)
            return err_set_param(e, ERR_CORRUPT, l->pairs[i].a, "%s: tensor '%s' belongs to no weight of %s",
                                 weights_path(l->weights), l->pairs[i].a, model_path);
    }
    return ERR_OK;
}
