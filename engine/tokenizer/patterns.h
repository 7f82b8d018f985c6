// patterns.h - the published pre-tokeniser patterns, by the names GGUF files use for them (tokenizer.ggml.pre).
#pragma once

#include "engine/tokenizer/pretok.h"

// GPT-2's own, which tokenizer.json's ByteLevel applies when use_regex is set.
#define PATTERN_GPT2 "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+"

enum { PATTERN_PASSES = 6 };

struct tokenizer_pattern {
    const char *names;  // separated by single spaces
    const char *passes[PATTERN_PASSES];  // each cuts what the former left
    struct tokenizer_pretok_traits traits;
};

const struct tokenizer_pattern *tokenizer_patterns_find(const char *name, size_t len);  // NULL: not known
