// pooling.c - opening runs on the thread that loads the model, running on every lane: a lane takes whole texts, only
// Dense is split by its outputs. Plain C throughout: the same code, so the same bits, whichever instruction set is chosen.
#include "engine/blocks/pooling.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "engine/blocks/linear.h"
#include "engine/model.h"
#include "engine/weights/weights.h"

enum { MAX_MODULES = 6, MAX_MODES = 12, MAX_DIMS = 1 << 16 };

enum pool_mode { POOL_CLS, POOL_MAX, POOL_MEAN, POOL_MEAN_SQRT, POOL_WEIGHTED, POOL_LAST };

// In the order in which the switches of older files are put side by side.
static const struct {
    const char *name, *old;  // pooling_mode, and the switch of older files
    enum pool_mode mode;
} modes[] = {
    {"cls", "pooling_mode_cls_token", POOL_CLS},
    {"max", "pooling_mode_max_tokens", POOL_MAX},
    {"mean", "pooling_mode_mean_tokens", POOL_MEAN},
    {"mean_sqrt_len_tokens", "pooling_mode_mean_sqrt_len_tokens", POOL_MEAN_SQRT},
    {"weightedmean", "pooling_mode_weightedmean_tokens", POOL_WEIGHTED},
    {"lasttoken", "pooling_mode_lasttoken", POOL_LAST},
};

enum { MODES = sizeof modes / sizeof *modes };

enum module_kind { MODULE_DENSE, MODULE_LAYERNORM, MODULE_NORMALIZE };
enum activation { ACT_NONE, ACT_TANH, ACT_RELU, ACT_GELU, ACT_SILU, ACT_SIGMOID };

static const struct {
    const char *name;
    enum activation act;
} activations[] = {{"Identity", ACT_NONE}, {"Tanh", ACT_TANH}, {"ReLU", ACT_RELU},
                   {"GELU", ACT_GELU},     {"SiLU", ACT_SILU}, {"Sigmoid", ACT_SIGMOID}};

struct module {
    enum module_kind kind;
    struct linear dense;
    enum activation act;
    const float *weight, *bias;  // LAYERNORM
    int out;
};

struct pooling {
    int hidden;
    enum pool_mode modes[MAX_MODES];  // side by side in this order
    int nmodes;                       // 0: not known yet
    bool include_prompt;
    struct module modules[MAX_MODULES];
    int n, dims, widest;
    size_t bytes;
};

// ---- opening

static const char *last_name(const char *dotted)
{
    const char *dot = strrchr(dotted, '.');
    return dot ? dot + 1 : dotted;
}

static void add_mode(struct pooling *p, enum pool_mode mode)
{
    p->modes[p->nmodes++] = mode;
    p->dims = p->widest = p->hidden * p->nmodes;
}

static err_code add_named(struct pooling *p, const json_t *j, const char *path, err *e)
{
    const char *name = json_string_value(j);
    if (p->nmodes == MAX_MODES)
        return err_set_param(e, ERR_UNSUPPORTED, "pooling_mode", "%s: pooling_mode has more than %d modes", path, MAX_MODES);
    for (int i = 0; name && i < MODES; i++)
        if (strcmp(name, modes[i].name) == 0 || (modes[i].mode == POOL_MEAN_SQRT && strcmp(name, "mean_sqrt_len") == 0)) {
            add_mode(p, modes[i].mode);
            return ERR_OK;
        }
    return err_set_param(e, ERR_UNSUPPORTED, "pooling_mode", "%s: pooling_mode '%.40s' is not built", path, name ? name : "?");
}

// A list of names counts in its own order, and older switches beside it do not; none of them set means the mean.
static err_code read_modes(struct pooling *p, const json_t *config, const char *path, err *e)
{
    const json_t *mode = json_object_get(config, "pooling_mode");
    if (mode && !json_is_array(mode))
        return add_named(p, mode, path, e);
    if (mode && json_array_size(mode) == 0)
        return err_set_param(e, ERR_CORRUPT, "pooling_mode", "%s: pooling_mode is an empty list", path);
    for (size_t i = 0; i < json_array_size(mode); i++)
        if (add_named(p, json_array_get(mode, i), path, e))
            return e->code;
    for (int i = 0; !mode && i < MODES; i++)
        if (json_is_true(json_object_get(config, modes[i].old)))
            add_mode(p, modes[i].mode);
    if (p->nmodes == 0)
        add_mode(p, POOL_MEAN);
    return ERR_OK;
}

static err_code open_pooling(struct pooling *p, const json_t *config, const char *path, err *e)
{
    const json_t *dims = json_object_get(config, "word_embedding_dimension");
    if (!dims)
        dims = json_object_get(config, "embedding_dimension");
    if (json_is_integer(dims) && json_integer_value(dims) != p->hidden)
        return err_set_param(e, ERR_CORRUPT, "word_embedding_dimension", "%s: %lld dimensions, expected the model's %d",
                             path, (long long)json_integer_value(dims), p->hidden);
    err_code code = read_modes(p, config, path, e);
    if (code)
        return code;
    p->include_prompt = !json_is_false(json_object_get(config, "include_prompt"));
    return ERR_OK;
}

static err_code read_dense(struct pooling *p, struct module *d, const json_t *config, const char *path, int *ret_in,
                           err *e)
{
    json_int_t in = json_integer_value(json_object_get(config, "in_features"));
    json_int_t out = json_integer_value(json_object_get(config, "out_features"));
    const char *input = json_string_value(json_object_get(config, "module_input_name"));
    const json_t *function = json_object_get(config, "activation_function");
    const char *act = function ? json_string_value(function) : "torch.nn.modules.activation.Tanh";
    if (in != p->dims || out <= 0 || out > MAX_DIMS)
        return err_set_param(e, ERR_CORRUPT, "in_features",
                             "%s: Dense from %lld to %lld, expected from %d to at most %d", path, (long long)in,
                             (long long)out, p->dims, MAX_DIMS);
    if (json_is_true(json_object_get(config, "use_residual")) || (input && strcmp(input, "sentence_embedding") != 0))
        return err_set_param(e, ERR_UNSUPPORTED, "Dense",
                             "%s: a Dense module with use_residual or module_input_name is not built", path);
    for (size_t i = 0; act && i < sizeof activations / sizeof *activations; i++)
        if (strncmp(act, "torch.", 6) == 0 && strcmp(last_name(act), activations[i].name) == 0) {
            d->act = activations[i].act;
            d->out = (int)out;
            *ret_in = (int)in;
            return ERR_OK;
        }
    return err_set_param(e, ERR_UNSUPPORTED, "activation_function", "%s: activation '%.80s' is not built", path,
                         act ? act : "?");
}

static err_code load_module(struct model *m, struct module *d, const char *path, int in, struct loader *ld, err *e)
{
    (void)path;
    err_code code;
    if (d->kind == MODULE_DENSE) {
        code = linear_open(&d->dense, ld, "linear.weight", "linear.bias", d->out, in, e);
    } else {
        code = loader_vector(ld, "norm.weight", in, &d->weight, e);
        if (!code)
            code = loader_vector(ld, "norm.bias", in, &d->bias, e);
    }
    return code ? code : loader_run(ld, m->options.load_threads, e);
}

// A module with weights: they lie in its own folder and become a part of the model.
static err_code open_weights(struct model *m, struct pooling *p, struct module *d, const char *path, int in, err *e)
{
    char full[4096];
    struct model_part *part;
    if ((size_t)snprintf(full, sizeof full, "%s/%s", weights_folder(m->weights), path) >= sizeof full)
        return err_set(e, ERR_INVALID, "the path of module '%s' is too long", path);
    err_code code = model_add_part(m, path, full, &part, e);
    if (code)
        return code;
    struct loader *ld = loader_new(part->weights, MAT_F32, m->ops);
    code = load_module(m, d, path, in, ld, e);
    if (code) {
        loader_free(ld);
        return code;
    }
    part->packed = loader_take(ld);
    p->bytes += packed_bytes(part->packed);
    return ERR_OK;
}

static err_code add_module(struct model *m, struct pooling *p, enum module_kind kind, const json_t *config,
                           const char *path, err *e)
{
    if (p->n == MAX_MODULES)
        return err_set(e, ERR_UNSUPPORTED, "modules.json has more than %d modules after Pooling", MAX_MODULES);
    struct module *d = &p->modules[p->n++];
    int in = p->dims;
    *d = (struct module){.kind = kind, .out = p->dims};
    err_code code = kind == MODULE_DENSE ? read_dense(p, d, config, path, &in, e) : ERR_OK;
    if (!code && kind != MODULE_NORMALIZE)
        code = open_weights(m, p, d, path, in, e);
    p->dims = d->out;
    p->widest = p->dims > p->widest ? p->dims : p->widest;
    return code;
}

static err_code open_module(struct model *m, struct pooling *p, const json_t *j, size_t i, err *e)
{
    const char *path = json_string_value(json_object_get(j, "path"));
    const char *type = json_string_value(json_object_get(j, "type"));
    const char *name = type ? last_name(type) : "?";
    char file[512];
    path = path ? path : "";
    snprintf(file, sizeof file, "%s/config.json", path);
    const json_t *config = weights_json(m->weights, file);
    if (i == 0 && strcmp(name, "Transformer") == 0) {
        if (*path)
            return err_set_param(e, ERR_UNSUPPORTED, "modules.json",
                                 "the Transformer module lies in '%s', its own folder is not built", path);
        return ERR_OK;
    }
    if (strcmp(name, "Pooling") == 0 && p->nmodes == 0)
        return open_pooling(p, config, file, e);
    if (p->nmodes && strcmp(name, "Dense") == 0)
        return add_module(m, p, MODULE_DENSE, config, path, e);
    if (p->nmodes && strcmp(name, "LayerNorm") == 0)
        return add_module(m, p, MODULE_LAYERNORM, config, path, e);
    if (p->nmodes && strcmp(name, "Normalize") == 0)
        return add_module(m, p, MODULE_NORMALIZE, config, path, e);
    if (strcmp(name, "Dropout") == 0)
        return ERR_OK;
    return err_set_param(e, ERR_UNSUPPORTED, "modules.json", "module %zu is a '%.60s', which is not built there", i,
                         name);
}

static err_code open_hf(struct model *m, struct pooling *p, err *e)
{
    size_t i;
    json_t *j;
    err_code code = ERR_OK;
    json_array_foreach (weights_json(m->weights, "modules.json"), i, j) {
        if (!code)
            code = open_module(m, p, j, i, e);
    }
    if (!code && p->nmodes == 0)
        add_mode(p, POOL_MEAN);
    return code;
}

static err_code open_gguf(struct model *m, struct pooling *p, err *e)
{
    static const enum pool_mode types[] = {POOL_MEAN, POOL_MEAN, POOL_CLS, POOL_LAST};
    char key[128];
    int64_t type = -1;
    snprintf(key, sizeof key, "%s.pooling_type", weights_arch(m->weights));
    if (!meta_int(m->weights, key, &type) || type < 1 || type > 3)
        return err_set_param(e, ERR_UNSUPPORTED, key,
                             "%s: '%s' is %lld, expected 1 (mean), 2 (cls) or 3 (last): how it pools is not guessed",
                             m->path, key, (long long)type);
    add_mode(p, types[type]);
    return ERR_OK;
}

err_code pooling_open(struct model *m, int hidden, struct pooling **ret_pool, err *e)
{
    struct pooling *p = mem_new(sizeof *p);
    p->hidden = hidden;
    p->include_prompt = true;
    err_code code = weights_container(m->weights) == WEIGHTS_GGUF ? open_gguf(m, p, e) : open_hf(m, p, e);
    if (code)
        pooling_close(p);
    else
        *ret_pool = p;
    return code;
}

void pooling_close(struct pooling *p)
{
    free(p);
}

int pooling_dims(const struct pooling *p)
{
    return p->dims;
}

bool pooling_includes_prompt(const struct pooling *p)
{
    return p->include_prompt;
}

size_t pooling_bytes(const struct pooling *p)
{
    return p->bytes;
}

// ---- running

static size_t align(size_t bytes)
{
    return (bytes + 63) & ~(size_t)63;
}

static size_t side_bytes(const struct pooling *p, int n)
{
    return align((size_t)n * (size_t)p->widest * sizeof(float));
}

size_t pooling_scratch_bytes(const struct pooling *p, int n)
{
    return 2 * side_bytes(p, n) + acts_bytes(n, p->widest, MAT_F32);
}

static void pool_mean(const struct pooling *p, const struct pooling_text *t, const float *x, enum pool_mode mode, float *out)
{
    int n = t->rows - t->skip;
    float weight = 0;
    memset(out, 0, (size_t)p->hidden * sizeof *out);
    for (int r = t->skip; r < t->rows; r++) {
        const float *row = x + (size_t)r * (size_t)p->hidden;
        float w = mode == POOL_WEIGHTED ? (float)(r + 1) : 1;
        weight += w;
        for (int d = 0; d < p->hidden; d++)
            out[d] += row[d] * w;
    }
    weight = mode == POOL_MEAN_SQRT ? sqrtf((float)n) : weight;
    for (int d = 0; d < p->hidden; d++)
        out[d] /= weight;
}

static void pool_max(const struct pooling *p, const struct pooling_text *t, const float *x, float *out)
{
    for (int d = 0; d < p->hidden; d++)
        out[d] = -INFINITY;
    for (int r = t->skip; r < t->rows; r++) {
        const float *row = x + (size_t)r * (size_t)p->hidden;
        for (int d = 0; d < p->hidden; d++)
            out[d] = row[d] > out[d] || row[d] != row[d] ? row[d] : out[d];
    }
}

static void pool_one(const struct pooling *p, const struct pooling_text *t, const float *states, float *out)
{
    const float *x = states + (size_t)t->first * (size_t)p->hidden;
    for (int i = 0; i < p->nmodes; i++) {
        enum pool_mode mode = p->modes[i];
        if (mode == POOL_CLS)
            memcpy(out, x + (size_t)t->skip * (size_t)p->hidden, (size_t)p->hidden * sizeof *out);
        else if (mode == POOL_LAST)
            memcpy(out, x + (size_t)(t->rows - 1) * (size_t)p->hidden, (size_t)p->hidden * sizeof *out);
        else if (mode == POOL_MAX)
            pool_max(p, t, x, out);
        else
            pool_mean(p, t, x, mode, out);
        out += p->hidden;
    }
}

static void normalize(float *v, int n)
{
    double sum = 0;
    for (int i = 0; i < n; i++)
        sum += (double)v[i] * (double)v[i];
    float norm = (float)sqrt(sum);
    norm = norm > 1e-12f ? norm : 1e-12f;
    for (int i = 0; i < n; i++)
        v[i] /= norm;
}

static void activate(const struct cpu_ops *ops, enum activation act, float *v, int n)
{
    if (act == ACT_GELU)
        ops->gelu(v, v, n, GELU_ERF);
    else if (act == ACT_SILU)
        ops->silu(v, v, n);
    for (int i = 0; i < n; i++) {
        if (act == ACT_TANH)
            v[i] = tanhf(v[i]);
        else if (act == ACT_RELU)
            v[i] = v[i] < 0 ? 0 : v[i];
        else if (act == ACT_SIGMOID)
            v[i] = 1 / (1 + expf(-v[i]));
    }
}

// From rows x, ldx apart, to y; both belong to this step.
static void dense(struct lane *lane, const struct cpu_ops *ops, const struct module *d, const float *x, float *y,
                  int ld, int n, void *memory)
{
    const struct linear *l = &d->dense;
    struct acts a;
    int lo, hi;
    acts_init(&a, memory, n, l->in, MAT_F32);
    linear_input(lane, ops, &a, x, ld, n);
    lane_split(lane, mat_groups(&l->w), 1, &lo, &hi);
    linear_groups(ops, l, y, ld, &a, lo, hi, MAT_STORE);
    int r0 = lo * MAT_GROUP, r1 = hi * MAT_GROUP < l->out ? hi * MAT_GROUP : l->out;
    for (int i = 0; r0 < r1 && i < n; i++)
        activate(ops, d->act, y + (size_t)i * (size_t)ld + r0, r1 - r0);
    lane_barrier(lane);
}

void pooling_run(struct lane *lane, const struct pooling *p, const struct cpu_ops *ops, const float *x,
              const struct pooling_text *texts, int n, void *scratch, float *out)
{
    float *v = scratch, *other = (float *)((char *)scratch + side_bytes(p, n));
    void *memory = (char *)scratch + 2 * side_bytes(p, n);
    size_t ld = (size_t)p->widest;
    int lo, hi;
    lane_split(lane, n, 1, &lo, &hi);
    for (int i = lo; i < hi; i++)
        pool_one(p, &texts[i], x, v + (size_t)i * ld);
    for (int k = 0; k < p->n; k++) {
        const struct module *d = &p->modules[k];
        if (d->kind == MODULE_DENSE) {
            lane_barrier(lane);
            dense(lane, ops, d, v, other, p->widest, n, memory);
            float *was = v;
            v = other;
            other = was;
            continue;
        }
        for (int i = lo; i < hi; i++) {
            float *at = v + (size_t)i * ld;
            if (d->kind == MODULE_NORMALIZE)
                normalize(at, d->out);
            else
                ops->layernorm(at, at, d->weight, d->bias, d->out, 1e-5f);
        }
    }
    for (int i = lo; i < hi; i++)
        memcpy(out + (size_t)i * (size_t)p->dims, v + (size_t)i * ld, (size_t)p->dims * sizeof *out);
    lane_barrier(lane);
}
