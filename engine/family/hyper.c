// hyper.c - reads a family's table of hyper-parameters from config.json or GGUF keys. Runs when a model is opened.
#include <math.h>
#include <stdio.h>

#include "engine/family/family.h"

static bool read_number(const struct weights *w, const char *key, enum hyper_kind kind, double *ret_value)
{
    int64_t i;
    bool b;
    if (kind == HYPER_FLOAT)
        return meta_float(w, key, ret_value);
    if (kind == HYPER_BOOL) {
        if (!meta_bool(w, key, &b))
            return false;
        *ret_value = b;
        return true;
    }
    if (!meta_int(w, key, &i))
        return false;
    *ret_value = (double)i;
    return true;
}

static void put(const struct hyper *h, void *dims, double v)
{
    char *field = (char *)dims + h->offset;
    if (h->kind == HYPER_INT)
        *(int *)field = (int)v;
    else if (h->kind == HYPER_FLOAT)
        *(float *)field = (float)v;
    else
        *(bool *)field = v != 0;
}

static err_code read_one(const struct weights *w, const struct hyper *h, void *dims, err *e)
{
    char key[160] = "";
    bool gguf = weights_container(w) == WEIGHTS_GGUF;
    double v = gguf ? h->gguf_fallback : h->fallback;
    if (gguf && h->gguf)
        snprintf(key, sizeof key, "%s.%s", weights_arch(w), h->gguf);
    else if (!gguf && h->hf)
        snprintf(key, sizeof key, "%s", h->hf);
    if (key[0] && !read_number(w, key, h->kind, &v)) {
        if (meta_array_length(w, key) >= 0)
            return err_set_param(e, ERR_UNSUPPORTED, key, "%s: '%s' is a list, one value for all layers is built",
                                 weights_path(w), key);
        static const char *const kinds[] = {"an integer", "a number", "true or false"};
        bool null = meta_null(w, key);
        if (h->required || (!null && meta_has(w, key)))
            return err_set_param(e, ERR_CORRUPT, key, "%s: '%s' is %s, expected %s", weights_path(w), key,
                                 null ? "null" : meta_has(w, key) ? "of another type" : "missing", kinds[h->kind]);
        if (null && h->kind != HYPER_FLOAT)
            v = 0;
    }
    if (!isfinite(v) || v < h->min || v > h->max)
        return err_set_param(e, ERR_CORRUPT, key, "%s: '%s' is %g, expected %g to %g", weights_path(w), key, v, h->min,
                             h->max);
    put(h, dims, v);
    return ERR_OK;
}

err_code hyper_read(const struct weights *w, const struct hyper *table, size_t n, void *dims, err *e)
{
    for (size_t i = 0; i < n; i++) {
        err_code code = read_one(w, &table[i], dims, e);
        if (code)
            return code;
    }
    return ERR_OK;
}
