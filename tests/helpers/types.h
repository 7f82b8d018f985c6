// types.h - the tiny models of every storage type: made here from tests/fixtures/types/models.json, whose random weights
// are functions of a number (blocks.h), with what transformers computed from them (tests/reference/make_types.py).
#pragma once

#include <stddef.h>
#include <stdint.h>

enum { TYPES_TOKENS = 37, TYPES_ROWS = 3, TYPES_GREEDY = 8 };

struct types_model {
    const char *name;
    int vocab;
    int32_t ids[TYPES_TOKENS], greedy[TYPES_GREEDY];
    int rows[TYPES_ROWS];
    double spread;        // largest minus smallest logit
    const float *logits;  // [TYPES_ROWS, vocab]
};

struct types_set;

// Fails the running test when the files are not what they should be.
struct types_set *types_load(int *ret_count);
void types_free(struct types_set *s);
void types_get(const struct types_set *s, int i, struct types_model *ret_model);
// Writes model i as a GGUF file; the caller unlinks and frees the path.
char *types_write(const struct types_set *s, int i);
