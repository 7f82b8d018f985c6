// whisper_segments.h - cuts a window's tokens into segments and says where the next window starts, as the reference
// does.
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "engine/audio/whisper_tokens.h"

enum { WHISPER_SEGMENTS = 128 };  // more than the pairs of timestamps in the most tokens a window may have

struct whisper_slice {
    int first, n;       // tokens
    double start, end;  // seconds in the audio
};

struct whisper_cut {
    struct whisper_slice slices[WHISPER_SEGMENTS];
    int n;
    int advance;  // frames from this window's start to the next one's
};

// seek, size: the window's first frame and its frames inside the audio. Two timestamps in a row are a cut; after the
// last such pair the text has no end in this window and is left to the next one, unless the window ends with one closing
// timestamp.
void whisper_segments_cut(const struct whisper_tokens *t, const int32_t *ids, int n, int seek, int size,
                          struct whisper_cut *ret_cut);

// Bytes of text over bytes of its deflate stream; 0 of no text. High values mean repetition.
float whisper_segments_ratio(const char *text, size_t n);

// Without white space at both ends.
const char *whisper_segments_strip(const char *text, size_t n, size_t *ret_n);
