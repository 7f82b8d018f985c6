// byte_tokenizer.h - a byte-level tokenizer for tests that need any text: every byte, some longer tokens that cut words and
// markers in many ways, and control tokens.
#pragma once

#include <stddef.h>
#include <stdint.h>

struct tokenizer;

enum {
    BYTE_LONGER = 256,    // the first longer one
    BYTE_VOCAB = 320,     // holes at the end
    BYTE_THINK = 310,     // "<think>", "</think>", "<|im_start|>", "<|im_end|>": control tokens
    BYTE_THINK_END, BYTE_TURN, BYTE_EOS
};

struct tokenizer *byte_tokenizer(void);  // freed by tokenizer_close
// One of the tokens without control that text begins with, by r; *ret_len: its bytes.
int32_t byte_tokenizer_at(const char *text, size_t left, uint64_t r, size_t *ret_len);
