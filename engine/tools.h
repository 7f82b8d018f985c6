// tools.h - the offline commands: work on a model without a server. Used by the command line only.
//
// The second door beside engine.h: these run a model directly on the calling thread's team, with no scheduler, so that a
// check of a family needs nothing but the family.
#pragma once

#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "base/err.h"

struct tools_model {
    const char *path;
    const char *activations, *kv, *isa;  // NULL: default
    const char *lora;                    // folder of an adapter that is on for all rows; NULL: none
    int threads, context;
    const char *vocoder;  // folder of a speech model's vocoder; NULL: its own snac/
};

// oxinferd logits: f32 little-endian [rows, vocab] to out; all: a row for every position, else the last one.
// chunk: most tokens a step takes (0: 512); the bits do not depend on it.
MUST_CHECK err_code tools_logits(const struct tools_model *m, const int32_t *ids, size_t nids, bool all, int chunk,
                                 FILE *out, err *e);

struct tools_bench {
    int prompt, generate;  // tokens of a prompt, and generated; 0: that figure is left out
    int depth, parallel;   // positions that every sequence has before; sequences
    int reps;              // 1 or more
    int chunk;             // most tokens of a prompt in one step; 0: 512
};
// oxinferd bench: one JSON line a figure to out (bench/README.md).
MUST_CHECK err_code tools_bench(const struct tools_model *m, const struct tools_bench *b, FILE *out, err *e);

struct tools_snac {
    const char *model, *codes, *noise, *isa;  // noise NULL: none
    int threads, step;                        // latent rows of a step (0: the most); the bits do not depend on it
};
// oxinferd snac-check: the waveform of given codes, f32 little-endian, to out. codes: JSON, a list of lists, one a level; or
// the same numbers level after level as NAME.u16 or NAME.i32, little-endian. noise: f32, one number for each row of
// each noise layer's output, layer after layer.
MUST_CHECK err_code tools_speech_snac(const struct tools_snac *t, FILE *out, err *e);

struct tools_speak {
    const char *text, *voice, *seed;  // NULL: the first voice, 0
    bool greedy, noise;               // noise: as served, drawn from the seed; else none
    int max_tokens;                   // of a span; 0: the model's
};
// oxinferd speak-check: two lines a span to tokens, "prompt: ids" and "tokens: ids"; the waveform (f32, the model's rate) to
// sound, unless it is NULL.
MUST_CHECK err_code tools_speech_speak(const struct tools_model *m, const struct tools_speak *s, FILE *tokens, FILE *sound,
                                       err *e);

struct tools_quantize {
    const char *src, *dst, *type;     // a model; a folder that does not exist yet, or is empty; "q8" or "q4"
    int threads;                      // 0: all usable
    bool rows;                        // the blocks in rows, as files usually have them, to be packed at each load; for checks
    FILE *progress;                   // NULL: none
    const volatile sig_atomic_t *stop;  // set by a signal handler: everything written is removed; NULL: never
};
// oxinferd quantize: writes SRC with its linears quantised and packed (engine/weights/own.h), nothing under dst's name until all
// of it is on disk. The files of a model that is not a GGUF go along; a GGUF's keys are kept as metadata.gguf.
// ERR_INVALID: dst exists or lies in src; ERR_UNSUPPORTED: a pipeline; ERR_CORRUPT naming a tensor that cannot be quantised;
// ERR_IO; ERR_CANCELLED.
MUST_CHECK err_code tools_quantize(const struct tools_quantize *q, err *e);

// oxinferd show: family, sizes, tasks, tensors not used, template, memory needed.
MUST_CHECK err_code tools_show(const struct tools_model *m, FILE *out, err *e);

// oxinferd devices: CPU features, cores used and why, caches, memory, ceilings measured on one thread and on all, GPUs and
// what each will be used for. threads: as the setting; 0: as many as are used by default.
MUST_CHECK err_code tools_devices(int threads, FILE *out, err *e);

// oxinferd mel: log-mel features of 16 kHz samples, f32 little-endian [mels, frames], at least one window.
MUST_CHECK err_code tools_audio_mel(const struct tools_model *m, const float *samples, size_t n, FILE *out, err *e);

struct tools_whisper {
    const float *features;  // [mels, frames] of one window
    size_t nfeatures;
    const int32_t *ids;
    size_t nids;
    int reps;               // of the encoder, for its time
};
// oxinferd whisper-logits: the encoder's output [positions, hidden] to encoder (may be NULL), a row of logits for every
// id to out. *ret_encoder_s: the fastest repetition.
MUST_CHECK err_code tools_audio_logits(const struct tools_model *m, const struct tools_whisper *q, FILE *encoder, FILE *out,
                                  double *ret_encoder_s, err *e);

// oxinferd transcribe: one JSON line for the language, each segment, and the tokens used.
struct transcribe;
MUST_CHECK err_code tools_audio_transcribe(const struct tools_model *m, const struct transcribe *ask, FILE *out, err *e);

// oxinferd image-check: makes the picture that the JSON file case_path describes (docs: engine/image/README.md) and writes
// latents_out.bin and image.bin into the folder, which is made if need be.
MUST_CHECK err_code tools_image_check(const struct tools_model *m, const char *case_path, const char *folder, err *e);
