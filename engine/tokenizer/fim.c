// fim.c - fill in the middle: the marks of a vocabulary and the prompt made of them. Which orders there are is public in the
// models' papers and code: prefix first (StarCoder, Code Llama, DeepSeek-Coder, Qwen, CodeGemma, Granite, GLM), or suffix
// first (Codestral, Seed-Coder).

#include <string.h>

#include "engine/tokenizer/model.h"

static const struct {
    const char *prefix, *suffix, *middle;  // middle NULL: the text ends with the prefix
    bool suffix_first;
    bool added;  // the spelling may be an ordinary word's: only an added token is the mark
} families[] = {
    {"<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>", false, false},
    {"<fim_prefix>", "<fim_suffix>", "<fim_middle>", false, false},
    {"<fim-prefix>", "<fim-suffix>", "<fim-middle>", false, false},
    {"<｜fim▁begin｜>", "<｜fim▁hole｜>", "<｜fim▁end｜>", false, false},
    {"▁<PRE>", "▁<SUF>", "▁<MID>", false, false},
    {"<PRE>", "<SUF>", "<MID>", false, true},
    {"<|code_prefix|>", "<|code_suffix|>", "<|code_middle|>", false, false},
    {"<[fim-prefix]>", "<[fim-suffix]>", "<[fim-middle]>", true, false},
    {"[PREFIX]", "[SUFFIX]", NULL, true, true},
};

static int32_t mark(const struct tokenizer *t, const char *text, bool added)
{
    int32_t id;
    bool found = text && tokenizer_find(t, text, &id) && (!added || tokenizer_is_added(t, id));
    return found ? id : TOKEN_NONE;
}

static bool used(const struct tokenizer *t, int32_t id)
{
    return id >= 0 && id < t->vocab.size && (t->vocab.tokens[id].flags & TOKEN_USED);
}

void tokenizer_fim_find(struct tokenizer *t, const struct tokenizer_fim *given)
{
    t->fim = (struct tokenizer_fim){TOKEN_NONE, TOKEN_NONE, TOKEN_NONE, false};
    for (size_t i = 0; i < sizeof families / sizeof *families; i++) {
        struct tokenizer_fim m = {
            mark(t, families[i].prefix, families[i].added), mark(t, families[i].suffix, families[i].added),
            mark(t, families[i].middle, families[i].added), families[i].suffix_first,
        };
        if (m.prefix != TOKEN_NONE && m.suffix != TOKEN_NONE && (m.middle != TOKEN_NONE || !families[i].middle)) {
            t->fim = m;
            return;
        }
    }
    if (given && given->prefix != given->suffix && used(t, given->prefix) && used(t, given->suffix) && used(t, given->middle))
        t->fim = *given;
}

bool tokenizer_fim_has(const struct tokenizer *t)
{
    return t->fim.prefix != TOKEN_NONE;
}

// SentencePiece puts a space before every text, but what follows the gap goes on where the gap ends: it is encoded behind a
// sign, and the sign is taken off. Where the sign grew into a token with the text, the space stays.
static err_code encode_after(const struct tokenizer *t, const struct text_span *after, struct ids *ids, err *e)
{
    static const char sign[] = "☺";
    struct text_span both[] = {{sign, sizeof sign - 1, false}, *after};
    size_t start = ids->len, k = start, seen = 0, n = 0;
    if (tokenizer_encode(t, both, 2, false, ids, e))
        return e->code;
    bool spaced = *tokenizer_piece(t, ids->data[k], &n) == ' ';
    for (; spaced && k < ids->len && seen < sizeof sign; k++) {
        tokenizer_piece(t, ids->data[k], &n);
        seen += n;
    }
    if (seen != sizeof sign) {  // the space, and the sign
        ids->len = start;
        return tokenizer_encode(t, after, 1, false, ids, e);
    }
    memmove(ids->data + start, ids->data + k, (ids->len - k) * sizeof *ids->data);
    ids->len -= k - start;
    return ERR_OK;
}

err_code tokenizer_fim_encode(const struct tokenizer *t, const struct text_span *before, const struct text_span *after,
                              struct ids *ids, err *e)
{
    const struct tokenizer_fim *m = &t->fim;
    size_t start = ids->len;
    err_code rc = tokenizer_fim_has(t) ? ERR_OK : err_set(e, ERR_UNSUPPORTED, "the vocabulary has no marks for a gap in a text");
    if (rc == ERR_OK && tokenizer_adds_bos(t))
        ids_add(ids, t->bos);
    for (int i = 0; rc == ERR_OK && i < 2; i++) {
        bool suffix = (i == 0) == m->suffix_first;
        ids_add(ids, suffix ? m->suffix : m->prefix);
        rc = suffix ? encode_after(t, after, ids, e) : tokenizer_encode(t, before, 1, false, ids, e);
    }
    if (rc == ERR_OK && m->middle != TOKEN_NONE)
        ids_add(ids, m->middle);
    if (rc)
        ids->len = start;
    return rc;
}
