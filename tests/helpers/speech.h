// speech.h - the committed tiny Whispers and what the references computed from them (tests/reference/make_whisper.py),
// and a way to run a transcription without a scheduler, cut into steps as a test likes.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "engine/engine.h"

struct json_t;
struct model;
struct team;

struct speech {
    char path[128];
    struct json_t *expected;
};

// Fails the running test when the files are not what they should be. name: "multi", "english".
void speech_load(const char *name, struct speech *ret);
void speech_free(struct speech *s);

// Samples of a clip of expected.json: tones and noise made from integers, as the script made them. Freed by free().
float *speech_samples(const struct speech *s, int clip, size_t *ret_n);

// What a case of expected.json asks. Strings stay the case's.
void speech_ask(const struct json_t *c, const float *samples, size_t n, struct transcribe *ret_ask);

struct model *speech_open(const char *path, const char *isa, const char *activations);

enum speech_cut { SPEECH_WHOLE, SPEECH_PARTS, SPEECH_UNEVEN };  // how steps end: never early, after each part, by turns

// Runs the task to its end, or (stop_after >= 0) that many steps; every event's contents go to *out, one after another.
// Returns the number of steps; *ret_error: of prepare, begin or after.
int speech_run(const struct model *m, struct team *team, const struct transcribe *ask, enum speech_cut cut,
               int stop_after, struct buf *out, err *ret_error);
