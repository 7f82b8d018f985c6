// models.h - the committed tiny models and what the reference computed from them (tests/reference/make_models.py).
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { MODELS_CASES = 8, MODELS_GREEDY = 32 };

struct models_case {
    int32_t *ids;
    int nids, rows[4], nrows;
    int32_t greedy[MODELS_GREEDY];
    const float *logits;  // [nrows, vocab]
};

struct models_expected {
    int vocab, ncases;
    double spread;  // largest minus smallest logit
    struct models_case cases[MODELS_CASES];
    float *blob;
};

// Fails the running test when the files are not what they should be.
void models_load(const char *name, struct models_expected *ret_expected);
void models_free(struct models_expected *x);
double models_difference(const float *a, const float *b, int n);  // the largest; NAN when there is one
// A folder with the tensors of a model or an adapter under a changed configuration: `change` is JSON whose keys replace its own.
struct models_files {
    const char *config, *tensors;
};
void models_change(char ret_folder[64], const char *name, struct models_files files, const char *change);
void models_change_done(const char *folder, struct models_files files);
// tests/fixtures/models/<name>, in a static buffer.
const char *models_path(const char *name);
