// labels.h - the option labels a tokenizer has: A .. Z, AA .. ZZ, as far as each is one token where it stands in a prompt.
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct tokenizer;

enum { LABELS_MAX = 256, LABELS_FORMS = 4 };

struct labels {
    int n;
    int32_t ids[LABELS_MAX];
    char text[LABELS_MAX][4];
};

// The label candidate number i of 702; false: there are no more.
bool labels_candidate(int i, char out[4]);
void labels_find(const struct tokenizer *t, struct labels *ret_labels);
// The one token that text is; false when it is several.
bool labels_token(const struct tokenizer *t, const char *text, int32_t *ret_id);
// The tokens that say the same at the start of an answer: the text, with a space in front, and both with a capital first
// letter, as far as each is one token. Returns how many.
int labels_forms(const struct tokenizer *t, const char *text, int32_t ret_ids[LABELS_FORMS]);
