// whisper_work.h - transcription by Whisper as a task's work (engine/sched/work.h).
//
// The reference is openai-whisper's transcribe() with temperature=0 and condition_on_previous_text=False, and it is
// met segment by segment. Why those: without a schedule of rising temperatures, text fed back from a window that went
// wrong is what makes Whisper repeat itself for the rest of a file; and windows that do not depend on each other's text
// are what every batching server gives. What differs from it, on purpose:
//   - the language is detected on the first window that is decoded, with the features it is decoded from (no second
//     encoder pass; for audio under 30 s the reference pads the two differently);
//   - a window of digital silence is not decoded, nor is a rest under 0.1 s;
//   - no segment ends after the audio does, blank ones are left out;
//   - without timestamps none is ever sampled.
// With transcribe.fallback a window whose text repeats itself (compression ratio over 2.4) or is unlikely (average log
// probability under -1), and is no silence, is decoded again 0.2 warmer, as in transcribe()'s own schedule up to 1; the
// last result is kept whatever it is. Not built: beam search, times of words.
#pragma once

#include <stdbool.h>

#include "engine/sched/work.h"

extern const struct work_ops whisper_work_ops;

bool whisper_work_multilingual(const struct model *m);
