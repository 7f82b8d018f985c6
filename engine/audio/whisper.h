// whisper.h - an opened Whisper model: its sizes and weights. Filled by family/whisper.c, read by whisper_net.c
// (forward passes) and whisper_work.c (transcription). Immutable once the model is open.
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "engine/blocks/linear.h"

struct mel;

struct whisper_dims {
    int vocab, hidden, mels;
    int positions, context;  // of the encoder (1500); of the decoder (448)
    int enc_layers, enc_heads, enc_ffn;
    int dec_layers, dec_heads, dec_ffn;
};

struct whisper_norm {
    const float *w, *b;
};

struct whisper_attn {
    struct whisper_norm norm;
    struct linear q, k, v, o;
};

struct whisper_block {
    struct whisper_attn self, cross;  // cross: decoder only
    struct whisper_norm norm;
    struct linear fc1, fc2;
};

struct whisper {
    struct whisper_dims dims;
    enum mat_math math;
    struct linear conv1, conv2;  // [out, 3 * in]: time first, then channel
    uint8_t *conv_memory[2];     // their packed weights
    struct mat enc_positions, dec_positions;
    struct mat embed;            // unless tied: then head is looked up
    bool tied;
    struct linear head;
    struct whisper_block *enc, *dec;
    struct whisper_norm enc_norm, dec_norm;
    struct mel *mel;
};
