// meta.c - getters over GGUF values and config.json. Immutable after open: any thread.

#include "engine/weights/meta.h"

#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "engine/weights/store.h"

static const uint8_t sizes[META_TYPES] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};

size_t meta_size(enum meta_type type)
{
    return sizes[type];
}

static err_code grow(struct meta *m, const char *file, err *e)
{
    if (m->count == META_KEYS)
        return err_set(e, ERR_TOO_LARGE, "%s: more than %d keys", file, META_KEYS);
    if (m->count < m->cap)
        return ERR_OK;
    size_t cap = m->cap ? m->cap * 2 : 64;
    struct meta_value *values = realloc(m->values, cap * sizeof *values);
    if (!values)
        return err_set(e, ERR_MEMORY, "%s: no memory for %zu keys", file, cap);
    m->values = values;
    m->cap = cap;
    return ERR_OK;
}

err_code meta_add(struct meta *m, const char *file, const struct meta_value *v, err *e)
{
    arena_defer(&m->arena, free, v->strings);
    err_code rc = grow(m, file, e);
    if (rc)
        return rc;
    m->values[m->count] = *v;
    m->values[m->count++].key = arena_strdup(&m->arena, v->key);
    return ERR_OK;
}

static int by_key(const void *a, const void *b)
{
    return strcmp(((const struct meta_value *)a)->key, ((const struct meta_value *)b)->key);
}

err_code meta_seal(struct meta *m, const char *file, err *e)
{
    if (m->count == 0)
        return ERR_OK;
    qsort(m->values, m->count, sizeof *m->values, by_key);
    char shown[100];
    for (size_t i = 1; i < m->count; i++)
        if (strcmp(m->values[i].key, m->values[i - 1].key) == 0)
            return err_set_param(e, ERR_CORRUPT, directory_quote(m->values[i].key, shown, sizeof shown),
                                 "%s: key '%s' appears twice", file, shown);
    return ERR_OK;
}

err_code meta_own(struct meta *m, const char *file, const uint8_t *begin, size_t n, err *e)
{
    uint8_t *copy = n ? mem_try(n) : NULL;
    if (n && !copy)
        return err_set(e, ERR_MEMORY, "%s: no memory for %zu bytes of keys", file, n);
    arena_defer(&m->arena, free, copy);
    if (n)
        memcpy(copy, begin, n);
    for (size_t i = 0; i < m->count; i++) {
        struct meta_value *v = &m->values[i];
        if (v->data)
            v->data = copy + (v->data - begin);
        for (uint64_t k = 0; v->strings && k < v->count; k++)
            v->strings[k] = copy + (v->strings[k] - begin);
    }
    return ERR_OK;
}

const struct meta_value *meta_find(const struct meta *m, const char *key)
{
    struct meta_value want = {.key = key};
    return m->count ? bsearch(&want, m->values, m->count, sizeof want, by_key) : NULL;
}

void meta_done(struct meta *m)
{
    free(m->values);
    json_decref(m->config);
    arena_done(&m->arena);
    *m = (struct meta){0};
}

// ---- GGUF scalars at unaligned places

#define READ(type, name)                                                                                               \
    static type read_##name(const uint8_t *p)                                                                          \
    {                                                                                                                  \
        type v;                                                                                                        \
        memcpy(&v, p, sizeof v);                                                                                       \
        return v;                                                                                                      \
    }
READ(int16_t, i16)
READ(uint16_t, u16)
READ(int32_t, i32)
READ(uint32_t, u32)
READ(int64_t, i64)
READ(uint64_t, u64)
READ(float, f32)
READ(double, f64)
#undef READ

static bool whole(double d, int64_t *ret_value)
{
    if (!(fabs(d) < 0x1p63) || d != floor(d))
        return false;
    *ret_value = (int64_t)d;
    return true;
}

static bool int_at(enum meta_type type, const uint8_t *p, int64_t *ret_value)
{
    switch (type) {
    case META_U8:
        *ret_value = p[0];
        return true;
    case META_I8:
        *ret_value = (int8_t)p[0];
        return true;
    case META_U16:
        *ret_value = read_u16(p);
        return true;
    case META_I16:
        *ret_value = read_i16(p);
        return true;
    case META_U32:
        *ret_value = read_u32(p);
        return true;
    case META_I32:
        *ret_value = read_i32(p);
        return true;
    case META_I64:
        *ret_value = read_i64(p);
        return true;
    case META_U64:
        if (read_u64(p) > INT64_MAX)
            return false;
        *ret_value = read_i64(p);
        return true;
    case META_F32:
        return whole((double)read_f32(p), ret_value);
    case META_F64:
        return whole(read_f64(p), ret_value);
    default:
        return false;
    }
}

static bool float_at(enum meta_type type, const uint8_t *p, double *ret_value)
{
    int64_t i;
    switch (type) {
    case META_F32:
        *ret_value = (double)read_f32(p);
        return true;
    case META_F64:
        *ret_value = read_f64(p);
        return true;
    case META_U64:
        *ret_value = (double)read_u64(p);
        return true;
    default:
        if (!int_at(type, p, &i))
            return false;
        *ret_value = (double)i;
        return true;
    }
}

bool meta_value_int(const struct meta_value *v, int64_t *ret_value)
{
    return v && int_at(v->type, v->data, ret_value);
}

// ---- config.json

// The value at a path of names joined by dots. A name that itself holds dots is found when it is a key as a whole.
static json_t *json_at(json_t *j, const char *path)
{
    json_t *v = json_object_get(j, path);
    for (const char *dot = path; !v && (dot = strchr(dot, '.')); dot++) {
        json_t *inner = json_object_getn(j, path, (size_t)(dot - path));
        if (json_is_object(inner))
            v = json_at(inner, dot + 1);
    }
    return v;
}

// The key's value under the scope, or in the file as a whole.
static json_t *lookup(const struct weights *w, const char *key)
{
    json_t *v = w->meta.scope ? json_at(w->meta.scope, key) : NULL;
    return v ? v : json_at(w->meta.config, key);
}

static bool json_int(const json_t *j, int64_t *ret_value)
{
    if (json_is_integer(j)) {
        *ret_value = json_integer_value(j);
        return true;
    }
    return json_is_real(j) && whole(json_real_value(j), ret_value);
}

static bool json_float(const json_t *j, double *ret_value)
{
    if (!json_is_number(j))
        return false;
    *ret_value = json_number_value(j);
    return true;
}

static bool json_text(const json_t *j, const char **ret_text, size_t *ret_len)
{
    if (!json_is_string(j))
        return false;
    *ret_text = json_string_value(j);
    *ret_len = json_string_length(j);
    return true;
}

// ---- the getters

bool meta_scope(struct weights *w, const char *key)
{
    json_t *j = w->meta.config ? json_at(w->meta.config, key) : NULL;
    w->meta.scope = json_is_object(j) ? j : NULL;
    return w->meta.scope;
}

bool meta_int(const struct weights *w, const char *key, int64_t *ret_value)
{
    if (w->meta.config)
        return json_int(lookup(w, key), ret_value);
    return meta_value_int(meta_find(&w->meta, key), ret_value);
}

bool meta_float(const struct weights *w, const char *key, double *ret_value)
{
    if (w->meta.config)
        return json_float(lookup(w, key), ret_value);
    const struct meta_value *v = meta_find(&w->meta, key);
    return v && float_at(v->type, v->data, ret_value);
}

bool meta_bool(const struct weights *w, const char *key, bool *ret_value)
{
    if (w->meta.config) {
        json_t *j = lookup(w, key);
        if (!json_is_boolean(j))
            return false;
        *ret_value = json_is_true(j);
        return true;
    }
    const struct meta_value *v = meta_find(&w->meta, key);
    if (!v || v->type != META_BOOL)
        return false;
    *ret_value = v->data[0] != 0;
    return true;
}

bool meta_string(const struct weights *w, const char *key, const char **ret_text, size_t *ret_len)
{
    if (w->meta.config)
        return json_text(lookup(w, key), ret_text, ret_len);
    const struct meta_value *v = meta_find(&w->meta, key);
    if (!v || v->type != META_STRING)
        return false;
    *ret_text = (const char *)v->data;
    *ret_len = (size_t)v->count;
    return true;
}

bool meta_has(const struct weights *w, const char *key)
{
    return w->meta.config ? lookup(w, key) != NULL : meta_find(&w->meta, key) != NULL;
}

bool meta_null(const struct weights *w, const char *key)
{
    return w->meta.config && json_is_null(lookup(w, key));
}

bool meta_group(const struct weights *w, const char *key)
{
    return w->meta.config && json_object_size(lookup(w, key)) > 0;
}

static const struct meta_value *array_of(const struct weights *w, const char *key)
{
    const struct meta_value *v = meta_find(&w->meta, key);
    return v && v->type == META_ARRAY ? v : NULL;
}

int64_t meta_array_length(const struct weights *w, const char *key)
{
    if (w->meta.config) {
        json_t *j = lookup(w, key);
        return json_is_array(j) ? (int64_t)json_array_size(j) : -1;
    }
    const struct meta_value *v = array_of(w, key);
    return v ? (int64_t)v->count : -1;
}

// Item i of an array in config.json; NULL when there is none.
static json_t *item_of(const struct weights *w, const char *key, int64_t i)
{
    return i < 0 ? NULL : json_array_get(lookup(w, key), (size_t)i);
}

bool meta_array_string(const struct weights *w, const char *key, int64_t i, const char **ret_text, size_t *ret_len)
{
    if (w->meta.config)
        return json_text(item_of(w, key, i), ret_text, ret_len);
    const struct meta_value *v = array_of(w, key);
    if (!v || v->item != META_STRING || i < 0 || (uint64_t)i >= v->count)
        return false;
    *ret_text = (const char *)v->strings[i] + 8;
    *ret_len = (size_t)read_u64(v->strings[i]);
    return true;
}

// Place of item i of a GGUF array of fixed-size items; NULL when there is none.
static const uint8_t *place_of(const struct meta_value *v, int64_t i)
{
    if (!v || i < 0 || (uint64_t)i >= v->count || meta_size(v->item) == 0)
        return NULL;
    return v->data + (size_t)i * meta_size(v->item);
}

bool meta_array_int(const struct weights *w, const char *key, int64_t i, int64_t *ret_value)
{
    if (w->meta.config)
        return json_int(item_of(w, key, i), ret_value);
    const struct meta_value *v = array_of(w, key);
    const uint8_t *p = place_of(v, i);
    return p && int_at(v->item, p, ret_value);
}

bool meta_array_float(const struct weights *w, const char *key, int64_t i, double *ret_value)
{
    if (w->meta.config)
        return json_float(item_of(w, key, i), ret_value);
    const struct meta_value *v = array_of(w, key);
    const uint8_t *p = place_of(v, i);
    return p && float_at(v->item, p, ret_value);
}
