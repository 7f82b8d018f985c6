// whisper_net.h - Whisper's forward passes over one window, in parts short enough to be steps.
//
//     whisper_net_init(&net, model, memory);                     // whisper_net_bytes()
//     ... features into net.mel rows 1 .. frames ...
//     struct whisper_cursor at = {0};
//     while (!whisper_net_encode(&net, &at, lane, scratch)) ;    // every lane; each call is one part
//     whisper_net_decode(&net, lane, scratch, ids, n, true);     // rows at net.length ..; logits of the last one
//     net.length += n;                                           // by one thread, between runs
//
// Everything that must survive a step lies in `memory`; scratch is free again after every call. Each part ends with a
// barrier. Results depend on the features and ids alone: not on lanes, and not on how many rows a call decodes.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kernels/team.h"

struct model;
struct whisper;

enum { WHISPER_ROWS = 32 };  // most rows of one whisper_net_decode

struct whisper_net {
    const struct model *model;
    const struct whisper *w;
    float *mel;     // [1 + 2 * positions + 1, mels]: a zero row, the features, a zero row
    float *x;       // [positions, hidden]; after the last part the encoder's output
    float *qkv;     // [positions, 3 * hidden]; first the output of conv1, [1 + 2 * positions + 1, hidden]
    float *cross;   // [dec_layers, positions, 2 * hidden]: keys, values
    float *kv;      // [dec_layers, context, 2 * hidden]
    float *logits;  // [vocab]
    int length;     // rows in kv
};

// Where the encoder is: every lane keeps its own copy during a run.
struct whisper_cursor {
    int stage, layer, row;
};

size_t whisper_net_bytes(const struct whisper *w);
void whisper_net_init(struct whisper_net *n, const struct model *m, void *memory);
size_t whisper_net_scratch(const struct whisper *w, int lanes);

// The next part; true when it was the last: x and cross are complete.
bool whisper_net_encode(const struct whisper_net *n, struct whisper_cursor *at, struct lane *lane, void *scratch);

// Rows length .. length + rows of the decoder; rows is at most WHISPER_ROWS and what the context leaves.
void whisper_net_decode(const struct whisper_net *n, struct lane *lane, void *scratch, const int32_t *ids, int rows,
                        bool logits);
