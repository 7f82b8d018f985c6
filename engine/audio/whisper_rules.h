// whisper_rules.h - which token follows: the rules Whisper's logits go through, and the choice.
//
//     whisper_rules_apply(&r, sampled, n, logits);              // excluded ones become -INFINITY
//     id = whisper_rules_pick(&r, logits, temperature, unit, &logprob);
//
// The rules are those of the reference (openai-whisper's decoding.py), in its order: blanks at the start, suppressed
// tokens, and with timestamps: they come in pairs and never go back, a window starts with one, and one is taken when
// all of them together are likelier than the likeliest other token. Without timestamps none may be sampled.
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "engine/audio/whisper_tokens.h"

struct cpu_ops;

struct whisper_rules {
    const struct cpu_ops *ops;
    const struct whisper_tokens *tokens;
    const uint8_t *marks;  // whisper_tokens_suppress
    int vocab;
    bool timestamps;
    int max_first;         // the latest timestamp a window may start with; -1: any
};

// sampled: the window's tokens so far, without its prompt.
void whisper_rules_apply(const struct whisper_rules *r, const int32_t *sampled, int n, float *logits);

// temperature 0: the best one; else drawn with unit in [0, 1). *ret_logprob: of that token at temperature 1. -1 when
// the logits are not numbers.
int32_t whisper_rules_pick(const struct whisper_rules *r, const float *logits, float temperature, double unit,
                           float *ret_logprob);

// Softmax of unfiltered logits at one id.
float whisper_rules_probability(const struct whisper_rules *r, const float *logits, int32_t id);
