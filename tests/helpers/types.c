// types.c - see types.h. Used by one thread.
#include "tests/helpers/types.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>
#include <jansson.h>
#include <zlib.h>

#include "base/buf.h"
#include "tests/helpers/blocks.h"
#include "tests/helpers/gguf.h"

enum { ALIGN = 32 };

struct types_set {
    json_t *models;
    float *logits;
};

struct tensor {
    const char *name;
    enum quant_type type;
    uint64_t rows, cols;
    int exponent;
    size_t blocks, bytes;
};

static int whole(const json_t *object, const char *key)
{
    return (int)json_integer_value(json_object_get(object, key));
}

static size_t floats_before(const json_t *models, size_t i)
{
    size_t n = 0;
    for (size_t j = 0; j < i; j++)
        n += (size_t)whole(json_object_get(json_array_get(models, j), "keys"), "vocab_size") * TYPES_ROWS;
    return n;
}

struct types_set *types_load(int *ret_count)
{
    struct types_set *s = calloc(1, sizeof *s);
    s->models = json_load_file("tests/fixtures/types/models.json", 0, NULL);
    assert_non_null(s->models);
    size_t n = floats_before(s->models, json_array_size(s->models));
    s->logits = malloc(n * sizeof *s->logits);
    FILE *f = fopen("tests/fixtures/types/logits.bin", "rb");
    assert_non_null(f);
    assert_int_equal(fread(s->logits, sizeof *s->logits, n, f), n);
    fclose(f);
    *ret_count = (int)json_array_size(s->models);
    return s;
}

void types_free(struct types_set *s)
{
    json_decref(s->models);
    free(s->logits);
    free(s);
}

static void numbers(const json_t *object, const char *key, int32_t *dst, size_t n)
{
    const json_t *list = json_object_get(object, key);
    assert_int_equal(json_array_size(list), n);
    for (size_t i = 0; i < n; i++)
        dst[i] = (int32_t)json_integer_value(json_array_get(list, i));
}

void types_get(const struct types_set *s, int i, struct types_model *ret_model)
{
    const json_t *j = json_array_get(s->models, (size_t)i);
    struct types_model m = {.name = json_string_value(json_object_get(j, "name"))};
    m.vocab = whole(json_object_get(j, "keys"), "vocab_size");
    m.spread = json_number_value(json_object_get(j, "spread"));
    m.logits = s->logits + floats_before(s->models, (size_t)i);
    numbers(j, "ids", m.ids, TYPES_TOKENS);
    numbers(j, "greedy", m.greedy, TYPES_GREEDY);
    numbers(j, "rows", m.rows, TYPES_ROWS);
    *ret_model = m;
}

static struct tensor tensor_of(const json_t *j)
{
    struct tensor t = {.name = json_string_value(json_array_get(j, 0)),
                       .rows = (uint64_t)json_integer_value(json_array_get(j, 2)),
                       .cols = (uint64_t)json_integer_value(json_array_get(j, 3)),
                       .exponent = (int)json_integer_value(json_array_get(j, 4))};
    assert_true(quant_from_name(json_string_value(json_array_get(j, 1)), &t.type));
    assert_true(quant_bytes(t.type, t.rows, t.cols, &t.bytes));
    t.blocks = t.bytes / (size_t)quant_get(t.type)->block_bytes;
    return t;
}

static void add_keys(struct buf *b, const char *arch, json_t *keys)
{
    const char *key;
    json_t *value;
    gguf_key_text(b, "general.architecture", arch);
    json_object_foreach(keys, key, value) {
        char full[96];
        snprintf(full, sizeof full, "%s.%s", arch, key);
        if (json_is_integer(value)) {
            gguf_key_u32(b, full, (uint32_t)json_integer_value(value));
            continue;
        }
        gguf_key(b, full, 6);
        buf_add(b, &(float){(float)json_real_value(value)}, 4);
    }
}

static void add_infos(struct buf *b, const json_t *tensors)
{
    uint64_t offset = 0;
    for (size_t i = 0; i < json_array_size(tensors); i++) {
        struct tensor t = tensor_of(json_array_get(tensors, i));
        uint64_t dims[] = {t.cols, t.rows};
        gguf_info(b, t.name, t.rows > 1 ? 2 : 1, dims, (uint32_t)quant_get(t.type)->ggml_id, offset);
        offset += (t.bytes + ALIGN - 1) / ALIGN * ALIGN;
    }
}

static void add_blocks(struct buf *b, const json_t *j)
{
    const json_t *tensors = json_object_get(j, "tensors");
    uLong crc = 0;
    for (size_t i = 0; i < json_array_size(tensors); i++) {
        struct tensor t = tensor_of(json_array_get(tensors, i));
        uint8_t *data = malloc(t.bytes);
        blocks_random(t.type, data, t.blocks, (uint64_t)whole(j, "number") * 1000 + i, t.exponent);
        crc = crc32(crc, data, (uInt)t.bytes);
        gguf_pad(b, ALIGN);
        buf_add(b, data, t.bytes);
        free(data);
    }
    if (crc != (uLong)json_integer_value(json_object_get(j, "crc32")))
        fail_msg("%s: other random blocks than make_types.py's", json_string_value(json_object_get(j, "name")));
}

char *types_write(const struct types_set *s, int i)
{
    const json_t *j = json_array_get(s->models, (size_t)i);
    const char *arch = json_string_value(json_object_get(j, "arch"));
    json_t *keys = json_object_get(j, "keys"), *tensors = json_object_get(j, "tensors");
    struct buf b;
    buf_init(&b, 1 << 24);
    gguf_header(&b, 3, json_array_size(tensors), json_object_size(keys) + 1);
    add_keys(&b, arch, keys);
    add_infos(&b, tensors);
    add_blocks(&b, j);
    gguf_pad(&b, ALIGN);
    assert_false(b.over);
    char *path = strdup("/tmp/oxinferd-types-XXXXXX.gguf");
    int fd = mkstemps(path, 5);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, b.data, b.len), b.len);
    close(fd);
    free(buf_take(&b));
    return path;
}
