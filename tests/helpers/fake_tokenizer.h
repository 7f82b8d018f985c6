// fake_tokenizer.h - a byte-level tokenizer of FAKE_VOCAB tokens for the fake model: letters, some longer pieces, the bytes
// of "é" and "€" one by one, and an end marker.
#pragma once

#include <stdint.h>

struct tokenizer;

enum { FAKE_EOS = 60 };

struct tokenizer *fake_tokenizer(void);  // freed by tokenizer_close
