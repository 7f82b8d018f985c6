// fake_tokenizer.c - see the header. Spellings are those of byte-level BPE: "Ġ" is a space, "Ċ" a newline, "Ã", "©", "â",
// "Ĥ", "¬" the bytes C3, A9, E2, 82, AC.
#include "tests/helpers/fake_tokenizer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/tokenizer/model.h"
#include "tests/helpers/fake_model.h"

static const char *const pieces[FAKE_VOCAB] = {
    "a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l", "m", "n", "o", "p", "q", "r", "s", "t", "u", "v", "w", "x",
    "y", "z", "\xC4\xA0", "\xC4\x8A", ".", ",", "ab", "abc", "\xC4\xA0" "the", "bc", "cab", "\xC4\xA0" "a", "aa", "bb",
    "ba", "cc", "0", "1", "2", "3", "4", "5", "6", "7", "8", "9", "\xC3\x83", "\xC2\xA9", "\xC3\xA2", "\xC4\xA4",
    "\xC2\xAC", "A", "B", "C", "END", "E", "<|im_end|>"};

struct tokenizer *fake_tokenizer(void)
{
    struct gguf_text tokens[FAKE_VOCAB];
    int32_t types[FAKE_VOCAB];
    for (int i = 0; i < FAKE_VOCAB; i++) {
        tokens[i] = (struct gguf_text){pieces[i], strlen(pieces[i])};
        types[i] = i == FAKE_EOS ? 3 : 1;  // control, normal
    }
    struct gguf_text merges[] = {{"a b", 3}, {"b c", 3}};
    struct tokenizer_gguf g = {.model = {"gpt2", 4}, .pre = {"gpt-2", 5}, .name = {"", 0}, .tokens = tokens,
                               .types = types, .ntokens = FAKE_VOCAB, .merges = merges, .nmerges = 2, .bos = TOKEN_NONE,
                               .eos = FAKE_EOS, .unknown = TOKEN_NONE, .add_bos = 0, .add_eos = 0, .add_prefix = -1};
    struct tokenizer *t;
    err e = {0};
    if (tokenizer_gguf_build(&g, &t, &e)) {
        fprintf(stderr, "fake_tokenizer: %s\n", e.text);
        abort();
    }
    return t;
}
