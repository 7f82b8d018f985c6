// gguf.c - see gguf.h.

#include "tests/helpers/gguf.h"

#include <string.h>

void gguf_u32(struct buf *b, uint32_t v)
{
    buf_add(b, &v, sizeof v);
}

void gguf_u64(struct buf *b, uint64_t v)
{
    buf_add(b, &v, sizeof v);
}

void gguf_text(struct buf *b, const char *s)
{
    gguf_u64(b, strlen(s));
    buf_add(b, s, strlen(s));
}

void gguf_header(struct buf *b, uint32_t version, uint64_t tensors, uint64_t keys)
{
    buf_add(b, "GGUF", 4);
    gguf_u32(b, version);
    gguf_u64(b, tensors);
    gguf_u64(b, keys);
}

void gguf_key(struct buf *b, const char *name, uint32_t type)
{
    gguf_text(b, name);
    gguf_u32(b, type);
}

void gguf_key_text(struct buf *b, const char *name, const char *text)
{
    gguf_key(b, name, 8);
    gguf_text(b, text);
}

void gguf_key_u32(struct buf *b, const char *name, uint32_t v)
{
    gguf_key(b, name, 4);
    gguf_u32(b, v);
}

void gguf_info(struct buf *b, const char *name, uint32_t ndim, const uint64_t *dims, uint32_t type, uint64_t offset)
{
    gguf_text(b, name);
    gguf_u32(b, ndim);
    for (uint32_t i = 0; i < ndim; i++)
        gguf_u64(b, dims[i]);
    gguf_u32(b, type);
    gguf_u64(b, offset);
}

void gguf_pad(struct buf *b, size_t align)
{
    while (b->len % align)
        buf_add_char(b, 0);
}

static void array(struct buf *b, const char *name, uint32_t item, uint64_t count)
{
    gguf_key(b, name, 9);
    gguf_u32(b, item);
    gguf_u64(b, count);
}

static void sample_keys(struct buf *b)
{
    gguf_key_text(b, "general.architecture", "llama");
    gguf_key(b, "k.u8", 0);
    buf_add(b, "\xFE", 1);
    gguf_key(b, "k.i8", 1);
    buf_add(b, "\xFE", 1);
    gguf_key(b, "k.u16", 2);
    buf_add(b, "\xFE\xFF", 2);
    gguf_key(b, "k.i16", 3);
    buf_add(b, "\xFE\xFF", 2);
    gguf_key_u32(b, "k.u32", 0xFFFFFFFE);
    gguf_key(b, "k.i32", 5);
    gguf_u32(b, 0xFFFFFFFE);
    gguf_key(b, "k.f32", 6);
    buf_add(b, &(float){-2.5f}, 4);
    gguf_key(b, "k.bool", 7);
    buf_add(b, "\1", 1);
    gguf_key(b, "k.u64", 10);
    gguf_u64(b, UINT64_MAX);
    gguf_key(b, "k.i64", 11);
    gguf_u64(b, UINT64_MAX - 1);
    gguf_key(b, "k.f64", 12);
    buf_add(b, &(double){1e6}, 8);
    array(b, "k.texts", 8, 3);
    gguf_text(b, "a");
    gguf_text(b, "");
    gguf_text(b, "\xFF\xC3\xA9");
    array(b, "k.ints", 5, 2);
    gguf_u32(b, 7);
    gguf_u32(b, 0xFFFFFFFF);
    array(b, "k.floats", 6, 2);
    buf_add(b, (float[]){0.5f, 4}, 8);
    array(b, "k.none", 8, 0);
}

void gguf_sample(struct buf *b)
{
    gguf_header(b, 3, 3, 16);
    sample_keys(b);
    gguf_info(b, "out.weight", 2, (uint64_t[]){32, 3}, 8, 64);
    gguf_info(b, "norm.weight", 1, (uint64_t[]){4}, 0, 0);
    gguf_info(b, "ids", 1, (uint64_t[]){2}, 27, 32);
    gguf_pad(b, 32);
    buf_add(b, (float[]){1, 2, 3, 4}, 16);
    gguf_pad(b, 32);
    buf_add(b, (int64_t[]){5, 6}, 16);
    gguf_pad(b, 32);
    for (int row = 0; row < 3; row++) {
        buf_add(b, "\0\x3C", 2); // scale 1
        for (int i = 0; i < 32; i++)
            buf_add_char(b, (char)(i - 10 * row));
    }
}
