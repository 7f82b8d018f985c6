// gguf.h - writes GGUF files piece by piece into a buffer, valid or not.
//
//     gguf_header(&b, 3, 1, 2);                          // version, tensors, keys
//     gguf_key_text(&b, "general.architecture", "llama");
//     gguf_key_u32(&b, "llama.block_count", 2);
//     gguf_info(&b, "x", 2, (uint64_t[]){4, 2}, 0, 0);   // innermost dimension first, type, offset
//     gguf_pad(&b, 32);
//     buf_add(&b, data, 32);
#pragma once

#include <stdint.h>

#include "base/buf.h"

void gguf_u32(struct buf *b, uint32_t v);
void gguf_u64(struct buf *b, uint64_t v);
void gguf_text(struct buf *b, const char *s);  // length and bytes
void gguf_header(struct buf *b, uint32_t version, uint64_t tensors, uint64_t keys);
void gguf_key(struct buf *b, const char *name, uint32_t type);  // the value follows
void gguf_key_text(struct buf *b, const char *name, const char *text);
void gguf_key_u32(struct buf *b, const char *name, uint32_t v);
void gguf_info(struct buf *b, const char *name, uint32_t ndim, const uint64_t *dims, uint32_t type, uint64_t offset);
void gguf_pad(struct buf *b, size_t align);

// A small valid file: keys of every type, an F32, a Q8_0 and an I64 tensor; the last byte belongs to a tensor.
void gguf_sample(struct buf *b);
