// gguf.c - reads GGUF versions 2 and 3, little-endian: header, keys, tensor descriptions, then data at an alignment.
// https://github.com/ggml-org/ggml/blob/master/docs/gguf.md
//
//   "GGUF" u32 version u64 tensors u64 keys | key: string name, u32 type, value | ...
//   tensor: string name, u32 dims, u64 dim[], u32 type, u64 offset | ... | padding | data
//
// Runs on the thread that opens a model; all it allocates belongs to the directory and the meta it fills. Nothing
// is allocated by a count that the rest of the file could not hold.

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/utf8.h"
#include "engine/weights/directory.h"
#include "engine/weights/format.h"
#include "engine/weights/meta.h"
#include "kernels/quant.h"

enum {
    HEADER = 24,
    KEY_MAX = 65535, // bytes of a key's name, by the specification
    DIMS_MAX = 4,    // of a tensor
    ALIGN_DEFAULT = 32,
    ALIGN_MAX = 1 << 20,
    TENSOR_INFO_MIN = 8 + 1 + 4 + 4 + 8,
    KEY_INFO_MIN = 8 + 1 + 4 + 1,
};

struct cursor {
    const struct format_file *f;
    size_t at;
    char what[128]; // what is being read, for messages
};

// A tensor's description, before its place is known.
struct info {
    struct tensor t;
    size_t offset;
};

struct infos {
    struct info *list;
    size_t count;
};

static size_t left(const struct cursor *c)
{
    return c->f->size - c->at;
}

static err_code cut(const struct cursor *c, err *e)
{
    return err_set(e, ERR_CORRUPT, "%s: the file ends at byte %zu inside %s", c->f->name, c->f->size, c->what);
}

static err_code take(struct cursor *c, size_t n, const uint8_t **ret_bytes, err *e)
{
    if (n > left(c))
        return cut(c, e);
    *ret_bytes = c->f->data + c->at;
    c->at += n;
    return ERR_OK;
}

static err_code take_u32(struct cursor *c, uint32_t *ret_value, err *e)
{
    const uint8_t *p = NULL;
    err_code rc = take(c, sizeof *ret_value, &p, e);
    if (!rc)
        memcpy(ret_value, p, sizeof *ret_value);
    return rc;
}

static err_code take_u64(struct cursor *c, uint64_t *ret_value, err *e)
{
    const uint8_t *p = NULL;
    err_code rc = take(c, sizeof *ret_value, &p, e);
    if (!rc)
        memcpy(ret_value, p, sizeof *ret_value);
    return rc;
}

static err_code take_string(struct cursor *c, const uint8_t **ret_bytes, uint64_t *ret_len, err *e)
{
    uint64_t n = 0;
    err_code rc = take_u64(c, &n, e);
    if (rc)
        return rc;
    if (n > left(c))
        return err_set(e, ERR_CORRUPT, "%s: %s has a string of %llu bytes, %zu are left in the file", c->f->name,
                       c->what, (unsigned long long)n, left(c));
    *ret_len = n;
    return take(c, (size_t)n, ret_bytes, e);
}

// ---- keys

static err_code check_bools(const struct cursor *c, const uint8_t *p, uint64_t n, err *e)
{
    for (uint64_t i = 0; i < n; i++)
        if (p[i] > 1)
            return err_set(e, ERR_CORRUPT, "%s: %s has a bool of value %d, expected 0 or 1", c->f->name, c->what, p[i]);
    return ERR_OK;
}

static err_code take_strings(struct cursor *c, struct meta_value *v, err *e)
{
    v->strings = mem_try((size_t)v->count * sizeof *v->strings);
    if (!v->strings)
        return err_set(e, ERR_MEMORY, "%s: no memory for the %llu strings of %s", c->f->name,
                       (unsigned long long)v->count, c->what);
    for (uint64_t i = 0; i < v->count; i++) {
        const uint8_t *text;
        uint64_t n;
        v->strings[i] = c->f->data + c->at;
        err_code rc = take_string(c, &text, &n, e);
        if (rc) {
            free(v->strings);
            v->strings = NULL;
            return rc;
        }
    }
    return ERR_OK;
}

static err_code take_array(struct cursor *c, struct meta_value *v, err *e)
{
    uint32_t item = 0;
    err_code rc = take_u32(c, &item, e);
    if (!rc)
        rc = take_u64(c, &v->count, e);
    if (rc)
        return rc;
    if (item >= META_TYPES)
        return err_set(e, ERR_CORRUPT, "%s: %s is an array of unknown type %u", c->f->name, c->what, item);
    if (item == META_ARRAY)
        return err_set(e, ERR_UNSUPPORTED, "%s: %s is an array of arrays, which is not supported", c->f->name, c->what);
    v->item = (enum meta_type)item;
    size_t each = item == META_STRING ? 8 : meta_size(v->item);
    if (v->count > left(c) / each)
        return err_set(e, ERR_CORRUPT,
                       "%s: %s is an array of %llu items, the %zu bytes left in the file hold at most %zu", c->f->name,
                       c->what, (unsigned long long)v->count, left(c), left(c) / each);
    if (item == META_STRING)
        return take_strings(c, v, e);
    rc = take(c, (size_t)v->count * each, &v->data, e);
    return rc || item != META_BOOL ? rc : check_bools(c, v->data, v->count, e);
}

static err_code take_value(struct cursor *c, struct meta_value *v, err *e)
{
    uint32_t type = 0;
    err_code rc = take_u32(c, &type, e);
    if (rc)
        return rc;
    if (type >= META_TYPES)
        return err_set(e, ERR_CORRUPT, "%s: %s has the unknown type %u", c->f->name, c->what, type);
    v->type = (enum meta_type)type;
    if (type == META_ARRAY)
        return take_array(c, v, e);
    if (type == META_STRING)
        return take_string(c, &v->data, &v->count, e);
    rc = take(c, meta_size(v->type), &v->data, e);
    return rc || type != META_BOOL ? rc : check_bools(c, v->data, 1, e);
}

static err_code take_key(struct cursor *c, uint64_t i, struct meta *m, err *e)
{
    const uint8_t *name = NULL;
    uint64_t n = 0;
    snprintf(c->what, sizeof c->what, "key %llu", (unsigned long long)i);
    err_code rc = take_string(c, &name, &n, e);
    if (rc)
        return rc;
    if (n == 0 || n > KEY_MAX || memchr(name, 0, (size_t)n) || !utf8_valid((const char *)name, (size_t)n))
        return err_set(e, ERR_CORRUPT, "%s: the name of key %llu has %llu bytes, expected 1 to %d of UTF-8", c->f->name,
                       (unsigned long long)i, (unsigned long long)n, KEY_MAX);
    char *key = mem_strndup((const char *)name, (size_t)n);
    struct meta_value v = {.key = key};
    char shown[100];
    snprintf(c->what, sizeof c->what, "key '%s'", directory_quote(key, shown, sizeof shown));
    rc = take_value(c, &v, e);
    if (!rc)
        rc = meta_add(m, c->f->name, &v, e);
    free(key);
    return rc;
}

// ---- tensors

// Types of GGUF that no kernel reads but whose size is known: the file opens, using the tensor is an error.
static const struct {
    uint32_t id;
    const char *name;
    size_t bytes;
} plain[] = {{24, "I8", 1}, {25, "I16", 2}, {26, "I32", 4}, {27, "I64", 8}, {28, "F64", 8}};

static err_code size_of(const struct cursor *c, uint32_t id, struct tensor *t, err *e)
{
    size_t elements;
    char shape[96];
    bool positive = true;
    for (int i = 0; i < t->ndim; i++)
        positive = positive && t->shape[i] > 0;
    if (!positive || !directory_elements(t->shape, t->ndim, &elements))
        return err_set_param(e, ERR_CORRUPT, t->name,
                             "%s: tensor '%s' has the shape %s, expected dimensions of 1 or more "
                             "and a product below 2^63",
                             c->f->name, t->name, directory_shape(t->shape, t->ndim, shape, sizeof shape));
    for (size_t i = 0; i < sizeof plain / sizeof *plain; i++)
        if (plain[i].id == id && size_mul(elements, plain[i].bytes, &t->bytes)) {
            t->type = QUANT_COUNT;
            t->dtype = plain[i].name;
            return ERR_OK;
        }
    if (!quant_from_ggml(id, &t->type))
        return err_set_param(e, ERR_UNSUPPORTED, t->name,
                             "%s: tensor '%s' is stored in GGUF type %u, which is not supported", c->f->name, t->name,
                             id);
    const struct quant *q = quant_get(t->type);
    t->dtype = q->name;
    size_t cols = t->ndim ? (size_t)t->shape[t->ndim - 1] : 1;
    if (cols % (size_t)q->block)
        return err_set_param(e, ERR_CORRUPT, t->name,
                             "%s: tensor '%s' has rows of %zu numbers, %s needs a multiple of %d", c->f->name, t->name,
                             cols, q->name, q->block);
    if (!quant_bytes(t->type, elements / cols, cols, &t->bytes))
        return err_set_param(e, ERR_CORRUPT, t->name, "%s: the size of tensor '%s' with the shape %s passes 2^64 bytes",
                             c->f->name, t->name, directory_shape(t->shape, t->ndim, shape, sizeof shape));
    return ERR_OK;
}

// GGUF lists the innermost dimension first.
static err_code take_shape(struct cursor *c, struct tensor *t, err *e)
{
    uint32_t n = 0;
    err_code rc = take_u32(c, &n, e);
    if (!rc && n > DIMS_MAX)
        return err_set_param(e, ERR_CORRUPT, t->name, "%s: tensor '%s' has %u dimensions, at most %d are possible",
                             c->f->name, t->name, n, DIMS_MAX);
    t->ndim = rc ? 0 : (int)n;
    for (int i = t->ndim - 1; !rc && i >= 0; i--) {
        uint64_t d = 0;
        rc = take_u64(c, &d, e);
        t->shape[i] = (int64_t)d;
    }
    return rc;
}

// ret->t.name is allocated: the directory copies it later.
static err_code take_info(struct cursor *c, size_t i, struct info *ret, err *e)
{
    const uint8_t *name = NULL;
    uint64_t n = 0, offset = 0;
    uint32_t type = 0;
    struct tensor t = {.shard = c->f->shard};
    snprintf(c->what, sizeof c->what, "the description of tensor %zu", i);
    err_code rc = take_string(c, &name, &n, e);
    if (!rc)
        rc = directory_check_name(c->f->name, (const char *)name, (size_t)n, i, e);
    if (rc)
        return rc;
    char *copy = mem_strndup((const char *)name, (size_t)n);
    t.name = copy;
    rc = take_shape(c, &t, e);
    if (!rc)
        rc = take_u32(c, &type, e);
    if (!rc)
        rc = take_u64(c, &offset, e);
    if (!rc)
        rc = size_of(c, type, &t, e);
    if (rc)
        free(copy);
    else
        *ret = (struct info){t, (size_t)offset};
    return rc;
}

static void infos_done(struct infos *in)
{
    for (size_t i = 0; i < in->count; i++)
        free((char *)in->list[i].t.name);
    free(in->list);
}

static err_code take_infos(struct cursor *c, uint64_t count, struct infos *in, err *e)
{
    in->list = mem_try((size_t)count * sizeof *in->list);
    if (!in->list)
        return err_set(e, ERR_MEMORY, "%s: no memory for %llu tensors", c->f->name, (unsigned long long)count);
    for (uint64_t i = 0; i < count; i++) {
        err_code rc = take_info(c, (size_t)i, &in->list[i], e);
        if (rc)
            return rc;
        in->count++;
    }
    return ERR_OK;
}

// Puts a tensor into the file's data, which starts at byte `start`.
static err_code place(const struct format_file *f, struct info *in, size_t start, size_t align, err *e)
{
    struct tensor *t = &in->t;
    size_t begin, end;
    if (in->offset % align)
        return err_set_param(e, ERR_CORRUPT, t->name, "%s: tensor '%s' lies at offset %zu, expected a multiple of %zu",
                             f->name, t->name, in->offset, align);
    if (!size_add(start, in->offset, &begin) || !size_add(begin, t->bytes, &end))
        return err_set_param(e, ERR_CORRUPT, t->name, "%s: offset %zu and size %zu of tensor '%s' pass 2^64", f->name,
                             in->offset, t->bytes, t->name);
    if (end > f->size)
        return err_set_param(e, ERR_CORRUPT, t->name, "%s: tensor '%s' ends at byte %zu, the file has %zu", f->name,
                             t->name, end, f->size);
    t->data = f->data + begin;
    return ERR_OK;
}

// Tensors follow each other with nothing but padding between: else one has more or fewer bytes than its shape says.
// spans are sorted.
static err_code check_gaps(const struct format_file *f, const struct directory_span *spans, size_t count, size_t align,
                           err *e)
{
    for (size_t i = 0; i < count; i++) {
        size_t end = i ? spans[i - 1].end : 0;
        const char *before = i ? spans[i - 1].name : "";
        if (spans[i].begin - end < align)
            continue;
        if (!i)
            return err_set_param(e, ERR_CORRUPT, spans[i].name,
                                 "%s: the first tensor, '%s', lies at offset %zu, expected 0", f->name, spans[i].name, spans[i].begin);
        return err_set_param(e, ERR_CORRUPT, before,
                             "%s: tensor '%s' has %zu bytes by its type and shape, and %zu up to '%s', expected less than %zu of padding", f->name, before, end - spans[i - 1].begin,
                             spans[i].begin - spans[i - 1].begin, spans[i].name, align);
    }
    return ERR_OK;
}

static err_code check_overlaps(const struct format_file *f, const struct infos *in, size_t align, err *e)
{
    struct directory_span *spans = mem_try(in->count * sizeof *spans);
    if (!spans)
        return err_set(e, ERR_MEMORY, "%s: no memory to check %zu tensors", f->name, in->count);
    for (size_t i = 0; i < in->count; i++)
        spans[i] =
            (struct directory_span){in->list[i].offset, in->list[i].offset + in->list[i].t.bytes, in->list[i].t.name};
    err_code rc = directory_check_spans(f->name, spans, in->count, false, 0, e);
    if (!rc)
        rc = check_gaps(f, spans, in->count, align, e);
    free(spans);
    return rc;
}

static err_code alignment(const struct format_file *f, const struct meta *m, size_t *ret_align, err *e)
{
    const struct meta_value *v = meta_find(m, "general.alignment");
    int64_t a = ALIGN_DEFAULT;
    if (v && (!meta_value_int(v, &a) || a < 1 || a > ALIGN_MAX || (a & (a - 1))))
        return err_set_param(e, ERR_CORRUPT, "general.alignment",
                             "%s: key 'general.alignment' is %lld, expected a power "
                             "of two up to %d",
                             f->name, (long long)a, ALIGN_MAX);
    *ret_align = (size_t)a;
    return ERR_OK;
}

static err_code place_all(struct cursor *c, struct infos *in, const struct meta *m, struct directory *d, err *e)
{
    size_t align = ALIGN_DEFAULT, start;
    err_code rc = alignment(c->f, m, &align, e);
    if (rc)
        return rc;
    if (!size_add(c->at, align - 1, &start))
        return cut(c, e);
    start &= ~(align - 1);
    for (size_t i = 0; i < in->count && !rc; i++)
        rc = place(c->f, &in->list[i], start, align, e);
    if (!rc)
        rc = check_overlaps(c->f, in, align, e);
    for (size_t i = 0; i < in->count && !rc; i++)
        rc = directory_add(d, &in->list[i].t, e);
    return rc;
}

// ---- the file

static bool probe(const struct format_file *f)
{
    return f->size >= 4 && memcmp(f->data, "GGUF", 4) == 0;
}

static err_code check_version(const struct format_file *f, uint32_t version, err *e)
{
    if (version == 2 || version == 3)
        return ERR_OK;
    if (version && (version & 0xFFFF) == 0)
        return err_set(e, ERR_UNSUPPORTED, "%s: big-endian GGUF is not supported", f->name);
    return err_set(e, ERR_UNSUPPORTED, "%s: GGUF version %u is not supported, expected 2 or 3", f->name, version);
}

// Counts that the file's size rules out, or that pass the maxima, are refused before anything is read.
static err_code check_counts(const struct cursor *c, uint64_t tensors, uint64_t keys, err *e)
{
    if (keys > left(c) / KEY_INFO_MIN || tensors > left(c) / TENSOR_INFO_MIN)
        return err_set(e, ERR_CORRUPT, "%s: %llu keys and %llu tensors do not fit a file of %zu bytes", c->f->name,
                       (unsigned long long)keys, (unsigned long long)tensors, c->f->size);
    if (keys > META_KEYS || tensors > DIRECTORY_TENSORS)
        return err_set(e, ERR_TOO_LARGE, "%s: %llu keys and %llu tensors, at most %d and %d are read", c->f->name,
                       (unsigned long long)keys, (unsigned long long)tensors, META_KEYS, DIRECTORY_TENSORS);
    return ERR_OK;
}

static err_code read_header(struct cursor *c, uint64_t *ret_tensors, uint64_t *ret_keys, err *e)
{
    const uint8_t *magic = NULL;
    uint32_t version = 0;
    snprintf(c->what, sizeof c->what, "the %d bytes of the header", HEADER);
    err_code rc = take(c, 4, &magic, e);
    if (rc)
        return rc;
    if (memcmp(magic, "GGUF", 4))
        return err_set(e, ERR_CORRUPT, "%s: begins with %02X %02X %02X %02X, expected \"GGUF\"", c->f->name, magic[0],
                       magic[1], magic[2], magic[3]);
    rc = take_u32(c, &version, e);
    if (!rc)
        rc = check_version(c->f, version, e);
    if (!rc)
        rc = take_u64(c, ret_tensors, e);
    if (!rc)
        rc = take_u64(c, ret_keys, e);
    return rc ? rc : check_counts(c, *ret_tensors, *ret_keys, e);
}

static err_code read_file(const struct format_file *f, struct directory *d, struct meta *m, err *e)
{
    struct cursor c = {.f = f};
    struct infos in = {0};
    uint64_t tensors = 0, keys = 0;
    err_code rc = read_header(&c, &tensors, &keys, e);
    if (rc)
        return rc;
    size_t first = c.at;
    for (uint64_t i = 0; i < keys && !rc; i++)
        rc = take_key(&c, i, m, e);
    m->keys = f->data;
    m->keys_len = c.at;
    if (!rc)
        rc = meta_own(m, f->name, f->data + first, c.at - first, e);
    if (!rc)
        rc = meta_seal(m, f->name, e);
    if (!rc)
        rc = take_infos(&c, tensors, &in, e);
    if (!rc)
        rc = place_all(&c, &in, m, d, e);
    infos_done(&in);
    return rc;
}

const struct format format_gguf = {"GGUF", ".gguf", false, probe, read_file};
