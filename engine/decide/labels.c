// labels.c - see labels.h. Runs on the thread that opens a model.
#include "engine/decide/labels.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/tokenizer/tokenizer.h"

enum { LETTERS = 26 };

bool labels_candidate(int i, char out[4])
{
    if (i < 0 || i >= LETTERS + LETTERS * LETTERS)
        return false;
    int k = i - LETTERS;
    if (i < LETTERS)
        snprintf(out, 4, "%c", 'A' + i);
    else
        snprintf(out, 4, "%c%c", 'A' + k / LETTERS, 'A' + k % LETTERS);
    return true;
}

static bool encode(const struct tokenizer *t, const char *text, struct ids *ids)
{
    err e;
    struct text_span span = {text, strlen(text), false};
    return !tokenizer_encode(t, &span, 1, false, ids, &e);
}

static bool spells(const struct tokenizer *t, int32_t id, const char *text)
{
    size_t len;
    const char *piece = tokenizer_piece(t, id, &len);
    return len == strlen(text) && !memcmp(piece, text, len);
}

// The token that encoding this text gives alone and that spells `word`.
static bool encodes_to(const struct tokenizer *t, const char *text, const char *word, int32_t *ret_id)
{
    struct ids ids = {0};
    bool one = encode(t, text, &ids) && ids.len == 1 && spells(t, ids.data[0], word);
    if (one)
        *ret_id = ids.data[0];
    free(ids.data);
    return one;
}

// SentencePiece writes a word at the start of a text with a space in front; inside a line it is the token spelt plainly.
bool labels_token(const struct tokenizer *t, const char *text, int32_t *ret_id)
{
    int32_t id;
    if (encodes_to(t, text, text, ret_id))
        return true;
    if (strcmp(tokenizer_kind(t), "sentencepiece") || !tokenizer_find(t, text, &id) || !spells(t, id, text))
        return false;
    *ret_id = id;
    return true;
}

int labels_forms(const struct tokenizer *t, const char *text, int32_t ret_ids[LABELS_FORMS])
{
    int n = 0;
    for (int capital = 0; capital < 2; capital++) {
        char word[64];
        if (snprintf(word, sizeof word, " %s", text) >= (int)sizeof word || (capital && !islower((unsigned char)word[1])))
            break;
        word[1] = capital ? (char)toupper((unsigned char)word[1]) : word[1];
        n += labels_token(t, word + 1, &ret_ids[n]);
        n += encodes_to(t, word, word, &ret_ids[n]) || encodes_to(t, word + 1, word, &ret_ids[n]);
    }
    return n;
}

// Whether the label is this token too where it stands in a prompt.
static bool in_line(const struct tokenizer *t, const char *label, int32_t id)
{
    char line[16];
    struct ids ids = {0};
    bool found = false;
    snprintf(line, sizeof line, "x\n%s) y", label);
    if (encode(t, line, &ids))
        for (size_t i = 0; i < ids.len; i++)
            found |= ids.data[i] == id;
    free(ids.data);
    return found;
}

void labels_find(const struct tokenizer *t, struct labels *ret_labels)
{
    struct labels *l = ret_labels;
    l->n = 0;
    for (int i = 0; l->n < LABELS_MAX && labels_candidate(i, l->text[l->n]); i++)
        if (labels_token(t, l->text[l->n], &l->ids[l->n]) && in_line(t, l->text[l->n], l->ids[l->n]))
            l->n++;
}
