// sentences.h - cuts a long text into pieces that can be spoken one after another.
//
//     for (size_t at = 0, n; at < len; at += n) {
//         n = sentences_next(text + at, len - at, 180);
//         ... piece text + at, n bytes ...
//     }
//
// Pieces follow each other without a gap, so nothing is lost: white space stays at the end of the piece before it. Every
// border is the last one of the best kind within max bytes: end of a sentence or a line; a comma, colon or dash; a space;
// between characters (not before combining marks). Ends of sentences are known in Latin, Greek, Cyrillic, Arabic,
// Devanagari and CJK punctuation; a full stop after an abbreviation, an initial, or before a small letter is none.
#pragma once

#include <stddef.h>

// Bytes of the first piece; len when that is at most max. At least 1 when len is; more than max only if one character is.
size_t sentences_next(const char *text, size_t len, size_t max);
