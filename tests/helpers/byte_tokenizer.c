// byte_tokenizer.c - see the header.
#include "tests/helpers/byte_tokenizer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/tokenizer/model.h"

static const char *const longer[] = {
    "th", "in", "k>", "</", "thi", "nk>\n", "\n\n", "lo", "Hel", "tool", "_call", ">\n", "\":", " {", "name", "hm", "\xC3\xA9",
    "zq", ",w", "do", "ne", "{\"", "\", \"", "\": \"", "arg", "uments", "ments\"", "\": {\"", "cit", "city", "alpha", "al", "pha",
    "-long", "long-", "true", "tr", "fal", "e, ", "}}", "\"}", "<tool", "</tool", "call>\n", " \"", "ing"};
static const char *const control[] = {"<think>", "</think>", "<|im_start|>", "<|im_end|>"};
enum { LONGER = sizeof longer / sizeof *longer, CONTROL = sizeof control / sizeof *control };

static int utf8(char *out, int cp)
{
    return cp < 128 ? sprintf(out, "%c", cp) : sprintf(out, "%c%c", 0xC0 | cp >> 6, 0x80 | (cp & 63));
}

// GPT-2's letter for a byte.
static int letter(int b)
{
    int extra = 0;
    for (int i = 0; i < b; i++)
        extra += !((i >= 33 && i < 127) || (i >= 161 && i < 173) || i >= 174);
    return (b >= 33 && b < 127) || (b >= 161 && b < 173) || b >= 174 ? b : 256 + extra;
}

// Spelling of token i; its length.
static int spell(int i, char *out)
{
    char *p = out;
    if (i < 256)
        p += utf8(p, letter(i));
    else if (i < 256 + LONGER)
        for (const char *s = longer[i - 256]; *s; s++)
            p += utf8(p, letter((unsigned char)*s));
    else if (i >= BYTE_THINK && i < BYTE_THINK + CONTROL)
        p += sprintf(p, "%s", control[i - BYTE_THINK]);
    else
        p += sprintf(p, "[hole%d]", i);
    return (int)(p - out);
}

struct tokenizer *byte_tokenizer(void)
{
    static char spelt[BYTE_VOCAB][64];
    struct gguf_text tokens[BYTE_VOCAB];
    int32_t types[BYTE_VOCAB];
    for (int i = 0; i < BYTE_VOCAB; i++) {
        tokens[i] = (struct gguf_text){spelt[i], (size_t)spell(i, spelt[i])};
        types[i] = i >= 256 + LONGER ? 3 : 1;  // control, normal
    }
    struct gguf_text merge = {"l o", 3};
    struct tokenizer_gguf g = {.model = {"gpt2", 4}, .pre = {"gpt-2", 5}, .name = {"", 0}, .tokens = tokens, .types = types,
                               .ntokens = BYTE_VOCAB, .merges = &merge, .nmerges = 1, .bos = TOKEN_NONE, .eos = BYTE_EOS,
                               .unknown = TOKEN_NONE, .add_bos = 0, .add_eos = 0, .add_prefix = -1};
    struct tokenizer *t;
    err e = {0};
    if (tokenizer_gguf_build(&g, &t, &e)) {
        fprintf(stderr, "byte_tokenizer: %s\n", e.text);
        abort();
    }
    return t;
}

int32_t byte_tokenizer_at(const char *text, size_t left, uint64_t r, size_t *ret_len)
{
    int fit[LONGER], n = 0;
    for (int i = 0; i < LONGER; i++)
        if (strlen(longer[i]) <= left && !memcmp(text, longer[i], strlen(longer[i])))
            fit[n++] = i;
    int k = n > 0 && r % 3 ? fit[r / 3 % (uint64_t)n] : -1;
    *ret_len = k < 0 ? 1 : strlen(longer[k]);
    return k < 0 ? (unsigned char)*text : BYTE_LONGER + k;
}
