// bad_words.c - see the header.
#include "engine/text/bad_words.h"

#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/mem.h"
#include "engine/tokenizer/tokenizer.h"

struct bad_words {
    size_t n;
    struct ids runs[];
};

static err_code encode(const struct tokenizer *t, const char *before, const char *word, struct ids *ids, err *e)
{
    struct buf b;
    buf_init(&b, SIZE_MAX);
    buf_add_str(&b, before);
    buf_add_str(&b, word);
    struct text_span span = {b.data, b.len, false};
    err_code code = tokenizer_encode(t, &span, 1, false, ids, e);
    buf_done(&b);
    return code;
}

// As it stands in a text, and after a space, where that makes a word of its own of the first token.
static err_code add_word(struct bad_words *b, const struct tokenizer *t, const char *word, err *e)
{
    struct ids alone = {0}, spaced = {0};
    while (*word == ' ')
        word++;
    if (encode(t, "", word, &alone, e) || encode(t, " ", word, &spaced, e)) {
        free(alone.data);
        free(spaced.data);
        return e->code;
    }
    if (alone.len > 0 && spaced.len == alone.len && spaced.data[0] != alone.data[0])
        b->runs[b->n++] = spaced;
    else
        free(spaced.data);
    if (alone.len > 0)
        b->runs[b->n++] = alone;
    else
        free(alone.data);
    return ERR_OK;
}

err_code bad_words_new(const struct tokenizer *t, const char *const *words, size_t n, struct bad_words **ret_words, err *e)
{
    struct bad_words *b = mem_new(sizeof *b + 2 * n * sizeof *b->runs);
    for (size_t i = 0; i < n; i++)
        if (add_word(b, t, words[i], e)) {
            bad_words_free(b);
            return e->code;
        }
    if (b->n == 0) {
        bad_words_free(b);
        b = NULL;
    }
    *ret_words = b;
    return ERR_OK;
}

void bad_words_free(struct bad_words *b)
{
    for (size_t i = 0; b && i < b->n; i++)
        free(b->runs[i].data);
    free(b);
}

size_t bad_words_most(const struct bad_words *b)
{
    return b ? b->n : 0;
}

size_t bad_words_banned(const struct bad_words *b, const int32_t *output, size_t noutput, int32_t *ret_ids)
{
    size_t n = 0;
    for (size_t i = 0; b && i < b->n; i++) {
        size_t before = b->runs[i].len - 1;
        if (before <= noutput && !memcmp(output + noutput - before, b->runs[i].data, before * sizeof *output))
            ret_ids[n++] = b->runs[i].data[before];
    }
    return n;
}
