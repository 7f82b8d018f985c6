// subtitles.h - segments of speech as SubRip and WebVTT text.
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "base/buf.h"

enum subtitles_format { SUBTITLES_SRT, SUBTITLES_VTT };

// "WEBVTT" and an empty line, or nothing.
void api_subtitles_begin(struct buf *b, enum subtitles_format format);
// One cue; number counts from 1. Nothing for a text that is blank, and false.
bool api_subtitles_add(struct buf *b, enum subtitles_format format, int number, double start_s, double end_s, const char *text,
                       size_t len);
