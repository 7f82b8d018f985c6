// meta.h - metadata behind one set of getters (weights.h: meta_int and so on), from GGUF's keys or from config.json.
//
// GGUF values point into a copy of the file's head; the readers have checked their bounds. Built by the thread that
// opens the model, then read by any thread.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/err.h"

struct json_t;

enum { META_KEYS = 1 << 16 }; // most keys of a GGUF file

// Numbered as in GGUF files.
enum meta_type {
    META_U8,
    META_I8,
    META_U16,
    META_I16,
    META_U32,
    META_I32,
    META_F32,
    META_BOOL,
    META_STRING,
    META_ARRAY,
    META_U64,
    META_I64,
    META_F64,
    META_TYPES
};

struct meta_value {
    const char *key;
    enum meta_type type;
    enum meta_type item;     // type of an array's items
    uint64_t count;          // bytes of a string, items of an array
    const uint8_t *data;     // the value, a string's bytes, an array's items
    const uint8_t **strings; // items of a string array, each at its 8-byte length; freed with the meta
};

struct meta {
    struct arena arena;
    struct meta_value *values; // sorted by key once sealed
    size_t count, cap;
    struct json_t *config; // then GGUF's values are empty; owned
    const uint8_t *keys;   // the GGUF file's head and keys; NULL: metadata is config.json's
    size_t keys_len;
    bool gguf_beside;      // of a safetensors file: the metadata is in STORE_KEYS beside it
    struct json_t *scope;  // part of config that is asked first; NULL: none
};

size_t meta_size(enum meta_type type); // bytes of a fixed-size type; 0 for strings and arrays

// v->key is copied; v->strings becomes the meta's also on failure. ERR_TOO_LARGE, ERR_MEMORY.
MUST_CHECK err_code meta_add(struct meta *m, const char *file, const struct meta_value *v, err *e);
// ERR_CORRUPT when a key appears twice.
MUST_CHECK err_code meta_seal(struct meta *m, const char *file, err *e);
// All values point into n bytes at begin: copies these and points into the copy. ERR_MEMORY.
MUST_CHECK err_code meta_own(struct meta *m, const char *file, const uint8_t *begin, size_t n, err *e);
const struct meta_value *meta_find(const struct meta *m, const char *key);
bool meta_value_int(const struct meta_value *v, int64_t *ret_value); // of a scalar; v may be NULL
void meta_done(struct meta *m);
