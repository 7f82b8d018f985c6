// mlx.c - joins MLX's parts of a tensor. Runs on the thread that opens a model; what it makes belongs to the weights' arena.
#include "engine/weights/mlx.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "engine/weights/store.h"

// How a module is quantised.
struct scheme {
    const char *mode;
    int64_t bits, group;
};

static json_t *settings_of(const struct weights *w)
{
    json_t *q = json_object_get(w->meta.config, "quantization");
    if (!json_is_object(q))
        q = json_object_get(w->meta.config, "quantization_config");
    // Others' formats (GPTQ, AWQ) name their method.
    return json_is_object(q) && json_object_get(q, "bits") && !json_object_get(q, "quant_method") ? q : NULL;
}

static void merge(struct scheme *s, const json_t *from)
{
    const json_t *bits = json_object_get(from, "bits"), *group = json_object_get(from, "group_size");
    const char *mode = json_string_value(json_object_get(from, "mode"));
    s->bits = json_is_integer(bits) ? json_integer_value(bits) : s->bits;
    s->group = json_is_integer(group) ? json_integer_value(group) : s->group;
    s->mode = mode ? mode : s->mode;
}

// What config.json says of the module whose weight this is.
static struct scheme scheme_of(const json_t *settings, const char *module)
{
    struct scheme s = {"affine", 4, 64};
    merge(&s, settings);
    const json_t *own = json_object_get(settings, module);
    if (json_is_object(own))
        merge(&s, own);
    return s;
}

static err_code type_of(const struct scheme *s, const struct tensor *t, enum quant_type *ret_type, err *e)
{
    static const struct {
        const char *mode;
        int bits;
        enum quant_type type;
    } all[] = {{"affine", 2, QUANT_MLX2}, {"affine", 3, QUANT_MLX3}, {"affine", 4, QUANT_MLX4}, {"affine", 5, QUANT_MLX5},
               {"affine", 6, QUANT_MLX6}, {"affine", 8, QUANT_MLX8}, {"mxfp4", 4, QUANT_MXFP4}, {"nvfp4", 4, QUANT_NVFP4}};
    int64_t group = !strcmp(s->mode, "mxfp4") ? 32 : !strcmp(s->mode, "nvfp4") ? 16 : s->group;
    char shown[32];
    if (s->group != group || (group != 16 && group != 32 && group != 64 && group != 128) ||
        (group == 16 && strcmp(s->mode, "nvfp4")))
        return err_set_param(e, ERR_UNSUPPORTED, t->name, "tensor '%s': MLX groups of %lld in mode '%s' are not built", t->name,
                             (long long)s->group, directory_quote(s->mode, shown, sizeof shown));
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (!strcmp(all[i].mode, s->mode) && all[i].bits == s->bits) {
            *ret_type = all[i].type;
            return ERR_OK;
        }
    return err_set_param(e, ERR_UNSUPPORTED, t->name,
                         "tensor '%s': MLX mode '%s' of %lld bits is not built; there are affine of 2, 3, 4, 5, 6 and 8 bits, "
                         "mxfp4 and nvfp4", t->name, directory_quote(s->mode, shown, sizeof shown), (long long)s->bits);
}

static err_code check_numbers(const struct weights *w, const struct tensor *t, const struct tensor *n, bool affine, int64_t cols,
                              int64_t group, err *e)
{
    char found[96], want[96];
    struct tensor expect = *t;
    expect.shape[t->ndim - 1] = cols / group;
    directory_shape(n->shape, n->ndim, found, sizeof found);
    directory_shape(expect.shape, expect.ndim, want, sizeof want);
    if (n->ndim != t->ndim || memcmp(n->shape, expect.shape, (size_t)t->ndim * sizeof *n->shape))
        return err_set_param(e, ERR_CORRUPT, n->name, "%s: tensor '%s' has shape %s, expected %s: groups of %lld of '%s'",
                             w->names[n->shard], n->name, found, want, (long long)group, t->name);
    bool kind = affine ? n->type == QUANT_F16 || n->type == QUANT_BF16 || n->type == QUANT_F32 : !strcmp(n->dtype, "U8");
    if (!kind)
        return err_set_param(e, ERR_CORRUPT, n->name, "%s: tensor '%s' is stored as %s, expected %s", w->names[n->shard],
                             n->name, n->dtype, affine ? "F16, BF16 or F32" : "U8");
    return ERR_OK;
}

static const struct tensor *sibling(const struct weights *w, const char *module, const char *part)
{
    char name[2 * DIRECTORY_NAME];
    snprintf(name, sizeof name, "%.*s.%s", DIRECTORY_NAME, module, part);
    return directory_find(&w->directory, name);
}

// Columns of the weight by its bits; its last dimension counts words of 32.
static err_code columns(const struct weights *w, const struct tensor *t, const struct scheme *s, int64_t *ret_cols, err *e)
{
    int64_t words = t->ndim >= 2 ? t->shape[t->ndim - 1] : 0, cols = words > INT32_MAX ? 0 : words * 32 / s->bits;
    if (words <= 0 || words * 32 % s->bits || cols % s->group || cols > INT32_MAX || cols % 32 || t->bytes == 0) {
        char shape[96];
        return err_set_param(e, ERR_CORRUPT, t->name, "%s: tensor '%s' has shape %s, expected words of %lld bits in groups of %lld",
                             w->names[t->shard], t->name, directory_shape(t->shape, t->ndim, shape, sizeof shape),
                             (long long)s->bits, (long long)s->group);
    }
    *ret_cols = cols;
    return ERR_OK;
}

static err_code join(struct weights *w, const json_t *settings, struct tensor *t, const char *module, err *e)
{
    const struct tensor *scales = sibling(w, module, "scales"), *biases = sibling(w, module, "biases");
    struct scheme s = scheme_of(settings, module);
    enum quant_type type = QUANT_COUNT;
    int64_t cols = 0;
    err_code rc = type_of(&s, t, &type, e);
    bool affine = !strcmp(s.mode, "affine");
    if (!rc && (!scales || (affine && !biases)))
        rc = err_set_param(e, ERR_CORRUPT, t->name, "%s: tensor '%s' is quantised, but '%s.%s' is missing", w->names[t->shard],
                           t->name, module, scales ? "biases" : "scales");
    if (!rc)
        rc = columns(w, t, &s, &cols, e);
    if (!rc)
        rc = check_numbers(w, t, scales, affine, cols, s.group, e);
    if (!rc && affine)
        rc = check_numbers(w, t, biases, affine, cols, s.group, e);
    if (!rc && affine && biases->type != scales->type)
        rc = err_set_param(e, ERR_CORRUPT, biases->name, "%s: tensor '%s' is stored as %s, expected %s as the scales",
                           w->names[biases->shard], biases->name, biases->dtype, scales->dtype);
    if (rc)
        return rc;
    struct quant_parts *p = arena_alloc(&w->arena, sizeof *p);
    *p = (struct quant_parts){.codes = t->data, .scales = scales->data, .biases = affine ? biases->data : NULL,
                              .group = (int)s.group,
                              .number = scales->type == QUANT_F16   ? QUANT_NUMBER_F16
                                        : scales->type == QUANT_F32 ? QUANT_NUMBER_F32
                                                                    : QUANT_NUMBER_BF16};
    struct tensor *numbers = arena_alloc(&w->arena, 2 * sizeof *numbers);
    numbers[0] = *scales;
    numbers[0].name = arena_strdup(&w->arena, scales->name);
    if (affine) {
        numbers[1] = *biases;
        numbers[1].name = arena_strdup(&w->arena, biases->name);
    }
    t->parts = p;
    t->numbers = numbers;
    t->type = type;
    t->shape[t->ndim - 1] = cols;
    t->dtype = quant_get(type)->name;
    return ERR_OK;
}

// Module of a tensor called MODULE.part; false: it is none.
static bool module_of(const char *name, const char *part, char *out, size_t size)
{
    size_t n = strlen(name), m = strlen(part);
    if (n <= m + 1 || strcmp(name + n - m, part) || name[n - m - 1] != '.')
        return false;
    snprintf(out, size, "%.*s", (int)(n - m - 1), name);
    return true;
}

static bool is_part(const struct tensor *t, void *weights)
{
    char module[DIRECTORY_NAME + 16];
    if (!module_of(t->name, "scales", module, sizeof module) && !module_of(t->name, "biases", module, sizeof module))
        return false;
    const struct tensor *weight = sibling(weights, module, "weight");
    return weight && weight->parts;
}

err_code mlx_join(struct weights *w, err *e)
{
    json_t *settings = settings_of(w);
    struct directory *d = &w->directory;
    char module[DIRECTORY_NAME + 16];
    if (!settings)
        return ERR_OK;
    for (size_t i = 0; i < d->count; i++) {
        if (strcmp(d->all[i].dtype, "U32") || !module_of(d->all[i].name, "weight", module, sizeof module))
            continue;
        err_code rc = join(w, settings, &d->all[i], module, e);
        if (rc)
            return rc;
    }
    // Parts are found by name until all are joined; then the list may move.
    size_t n = 0;
    bool *drop = mem_new((d->count + 1) * sizeof *drop);
    for (size_t i = 0; i < d->count; i++)
        drop[i] = is_part(&d->all[i], w);
    for (size_t i = 0; i < d->count; i++)
        if (!drop[i])
            d->all[n++] = d->all[i];
    free(drop);
    d->count = n;
    directory_list(d);
    return ERR_OK;
}

size_t mlx_numbers_bytes(const struct tensor *t)
{
    return t->parts ? t->numbers[0].bytes : 0;
}

size_t mlx_row_bytes(const struct tensor *t, int which)
{
    size_t rows = 1;
    for (int i = 0; i < t->ndim - 1; i++)
        rows *= (size_t)t->shape[i];
    return which && !t->parts->biases ? 0 : t->numbers[which].bytes / rows;
}
