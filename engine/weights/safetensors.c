// safetensors.c - reads safetensors: u64 length, a JSON header of that length, then the tensors' bytes without gaps.
// https://github.com/huggingface/safetensors#format
//
//   {"__metadata__": {text: text}, name: {"dtype": "F32", "shape": [2, 3], "data_offsets": [begin, end]}, ...}
//
// Runs on the thread that opens a model; everything it allocates belongs to the directory it fills.

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "engine/weights/directory.h"
#include "engine/weights/format.h"
#include "engine/weights/jsonfile.h"
#include "engine/weights/meta.h"
#include "engine/weights/own.h"

// All dtypes of the format. The file opens whatever it holds; those without a storage type here cannot be used.
static const struct dtype {
    const char *name;
    int bits;
    enum quant_type type;
} dtypes[] = {
    {"F32", 32, QUANT_F32},          {"F16", 16, QUANT_F16},          {"BF16", 16, QUANT_BF16},
    {"BOOL", 8, QUANT_COUNT},        {"U8", 8, QUANT_COUNT},          {"I8", 8, QUANT_COUNT},
    {"F8_E4M3", 8, QUANT_COUNT},     {"F8_E5M2", 8, QUANT_COUNT},     {"F8_E8M0", 8, QUANT_COUNT},
    {"F8_E4M3FNUZ", 8, QUANT_COUNT}, {"F8_E5M2FNUZ", 8, QUANT_COUNT}, {"F4", 4, QUANT_COUNT},
    {"F6_E2M3", 6, QUANT_COUNT},     {"F6_E3M2", 6, QUANT_COUNT},     {"I16", 16, QUANT_COUNT},
    {"U16", 16, QUANT_COUNT},        {"I32", 32, QUANT_COUNT},        {"U32", 32, QUANT_COUNT},
    {"I64", 64, QUANT_COUNT},        {"U64", 64, QUANT_COUNT},        {"F64", 64, QUANT_COUNT},
    {"C64", 64, QUANT_COUNT},
};

// The tensors' bytes: what follows the header.
struct body {
    const struct format_file *f;
    const uint8_t *data;
    size_t size;
    const json_t *metadata;  // NULL: none
};

static const struct dtype *dtype_find(const char *name)
{
    for (size_t i = 0; i < sizeof dtypes / sizeof *dtypes; i++)
        if (strcmp(dtypes[i].name, name) == 0)
            return &dtypes[i];
    return NULL;
}

static err_code wrong(const struct format_file *f, const char *tensor, const char *field, const char *want, err *e)
{
    return err_set_param(e, ERR_CORRUPT, tensor, "%s: tensor '%s' has a wrong '%s', expected %s", f->name, tensor,
                         field, want);
}

static err_code read_shape(const struct format_file *f, const json_t *info, struct tensor *t, size_t *ret_elements,
                           err *e)
{
    const json_t *shape = json_object_get(info, "shape");
    if (!json_is_array(shape))
        return wrong(f, t->name, "shape", "an array of whole numbers", e);
    if (json_array_size(shape) > TENSOR_DIMS)
        return err_set_param(e, ERR_UNSUPPORTED, t->name,
                             "%s: tensor '%s' has %zu dimensions, at most %d are supported", f->name, t->name,
                             json_array_size(shape), TENSOR_DIMS);
    t->ndim = (int)json_array_size(shape);
    for (int i = 0; i < t->ndim; i++) {
        const json_t *dim = json_array_get(shape, (size_t)i);
        if (!json_is_integer(dim) || json_integer_value(dim) < 0)
            return wrong(f, t->name, "shape", "an array of whole numbers", e);
        t->shape[i] = json_integer_value(dim);
    }
    char text[96];
    if (!directory_elements(t->shape, t->ndim, ret_elements))
        return err_set_param(e, ERR_CORRUPT, t->name, "%s: tensor '%s' has the shape %s, whose product passes 2^63",
                             f->name, t->name, directory_shape(t->shape, t->ndim, text, sizeof text));
    return ERR_OK;
}

// Bytes of the data [begin, end) as the header says, inside the body.
static err_code read_offsets(const struct body *b, const json_t *info, const char *name, size_t *ret_begin,
                             size_t *ret_end, err *e)
{
    const json_t *offsets = json_object_get(info, "data_offsets");
    const json_t *first = json_array_get(offsets, 0), *last = json_array_get(offsets, 1);
    if (json_array_size(offsets) != 2 || !json_is_integer(first) || !json_is_integer(last) ||
        json_integer_value(first) < 0 || json_integer_value(last) < json_integer_value(first))
        return wrong(b->f, name, "data_offsets", "two whole numbers, the smaller one first", e);
    if ((uint64_t)json_integer_value(last) > b->size)
        return err_set_param(e, ERR_CORRUPT, name, "%s: tensor '%s' ends at data byte %lld, the file has %zu",
                             b->f->name, name, (long long)json_integer_value(last), b->size);
    *ret_begin = (size_t)json_integer_value(first);
    *ret_end = (size_t)json_integer_value(last);
    return ERR_OK;
}

static err_code check_size(const struct format_file *f, const struct tensor *t, const struct dtype *dt, size_t elements,
                           err *e)
{
    size_t bits;
    bool fits = size_mul(elements, (size_t)dt->bits, &bits);
    if (fits && bits % 8 == 0 && bits / 8 == t->bytes)
        return ERR_OK;
    char shape[96];
    directory_shape(t->shape, t->ndim, shape, sizeof shape);
    return err_set_param(e, ERR_CORRUPT, t->name, "%s: tensor '%s' has %zu bytes, but %s of shape %s needs %s%zu",
                         f->name, t->name, t->bytes, dt->name, shape, fits ? "" : "more than ",
                         fits ? bits / 8 : SIZE_MAX / 8);
}

static err_code read_tensor(const struct body *b, const char *name, const json_t *info, struct directory *d,
                            struct directory_span *ret_span, err *e)
{
    struct tensor t = {.name = name, .shard = b->f->shard};
    size_t elements = 0, begin = 0, end = 0;
    if (!json_is_object(info))
        return wrong(b->f, name, "entry", "an object with dtype, shape and data_offsets", e);
    err_code rc = read_offsets(b, info, name, &begin, &end, e);
    if (!rc)
        rc = read_shape(b->f, info, &t, &elements, e);
    if (rc)
        return rc;
    const char *dtype = json_string_value(json_object_get(info, "dtype"));
    if (!dtype)
        return wrong(b->f, name, "dtype", "text such as \"F32\"", e);
    const struct dtype *dt = dtype_find(dtype);
    char shown[40];
    if (!dt)
        return err_set_param(e, ERR_UNSUPPORTED, name, "%s: tensor '%s' has the unknown dtype '%s'", b->f->name, name,
                             directory_quote(dtype, shown, sizeof shown));
    t.type = dt->type;
    t.dtype = dt->name;
    t.data = b->data + begin;
    t.bytes = end - begin;
    *ret_span = (struct directory_span){begin, end, name};
    rc = check_size(b->f, &t, dt, elements, e);
    if (!rc)
        rc = own_tensor(b->f, b->metadata, &t, e);
    return rc ? rc : directory_add(d, &t, e);
}

static err_code check_metadata(const struct format_file *f, json_t *meta, err *e)
{
    const char *key;
    json_t *value;
    bool text = json_is_object(meta);
    json_object_foreach(meta, key, value)
        text = text && json_is_string(value);
    if (!text)
        return err_set(e, ERR_CORRUPT, "%s: '__metadata__' is not an object of texts", f->name);
    return own_check(f, meta, e);
}

static err_code read_tensors(const struct body *b, json_t *header, struct directory *d, err *e)
{
    struct directory_span *spans = mem_try(json_object_size(header) * sizeof *spans);
    if (!spans)
        return err_set(e, ERR_MEMORY, "%s: no memory for %zu tensors", b->f->name, json_object_size(header));
    size_t n = 0;
    const char *name;
    json_t *value;
    err_code rc = ERR_OK;
    json_object_foreach(header, name, value) {
        if (strcmp(name, "__metadata__") == 0)
            continue;
        rc = directory_check_name(b->f->name, name, strlen(name), n, e);
        if (!rc)
            rc = read_tensor(b, name, value, d, &spans[n], e);
        n++;
        if (rc)
            break;
    }
    if (!rc)
        rc = directory_check_spans(b->f->name, spans, n, true, b->size, e);
    free(spans);
    return rc;
}

// ---- the file

static uint64_t header_length(const struct format_file *f)
{
    uint64_t n;
    memcpy(&n, f->data, sizeof n);
    return n;
}

static bool probe(const struct format_file *f)
{
    return f->size > 8 && header_length(f) <= JSONFILE_HEADER && f->data[8] == '{';
}

static err_code read_file(const struct format_file *f, struct directory *d, struct meta *m, err *e)
{
    if (f->size < 8)
        return err_set(e, ERR_CORRUPT, "%s: the file has %zu bytes, expected at least the 8 of the header's length",
                       f->name, f->size);
    uint64_t n = header_length(f);
    if (n > JSONFILE_HEADER)
        return err_set(e, ERR_CORRUPT, "%s: the header has %llu bytes, at most %d are allowed", f->name,
                       (unsigned long long)n, JSONFILE_HEADER);
    if (n > f->size - 8)
        return err_set(e, ERR_CORRUPT, "%s: the header ends at byte %llu, the file has %zu", f->name,
                       (unsigned long long)n + 8, f->size);
    json_t *header = NULL;
    err_code rc = jsonfile_parse(f->name, (const char *)f->data + 8, (size_t)n, JSONFILE_STRICT, &header, e);
    if (rc)
        return rc;
    json_t *metadata = json_object_get(header, "__metadata__");
    rc = metadata ? check_metadata(f, metadata, e) : ERR_OK;
    if (rc) {
        json_decref(header);
        return rc;
    }
    struct body b = {f, f->data + 8 + n, f->size - 8 - (size_t)n, metadata};
    m->gguf_beside = own_is_gguf(b.metadata);
    rc = read_tensors(&b, header, d, e);
    json_decref(header);
    return rc;
}

const struct format format_safetensors = {"safetensors", ".safetensors", true, probe, read_file};
