#include "tests/helpers/models.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <jansson.h>

const char *models_path(const char *name)
{
    static char path[256];
    snprintf(path, sizeof path, "tests/fixtures/models/%s", name);
    if (!strncmp(name, "gguf-", 5))
        strncat(path, "/model.gguf", sizeof path - strlen(path) - 1);
    return path;
}

static void load_case(const json_t *j, struct models_case *c)
{
    const json_t *ids = json_object_get(j, "ids"), *rows = json_object_get(j, "rows");
    const json_t *greedy = json_object_get(j, "greedy");
    c->nids = (int)json_array_size(ids);
    c->nrows = (int)json_array_size(rows);
    assert_in_range(c->nids, 1, 10000);
    assert_in_range(c->nrows, 1, 4);
    assert_int_equal(json_array_size(greedy), MODELS_GREEDY);
    c->ids = calloc((size_t)c->nids, sizeof *c->ids);
    for (int i = 0; i < c->nids; i++)
        c->ids[i] = (int32_t)json_integer_value(json_array_get(ids, (size_t)i));
    for (int i = 0; i < c->nrows; i++)
        c->rows[i] = (int)json_integer_value(json_array_get(rows, (size_t)i));
    for (int i = 0; i < MODELS_GREEDY; i++)
        c->greedy[i] = (int32_t)json_integer_value(json_array_get(greedy, (size_t)i));
}

void models_load(const char *name, struct models_expected *ret_expected)
{
    char path[256];
    struct models_expected x = {0};
    snprintf(path, sizeof path, "tests/fixtures/models/%s/expected.json", name);
    json_t *root = json_load_file(path, 0, NULL);
    assert_non_null(root);
    x.vocab = (int)json_integer_value(json_object_get(root, "vocab"));
    x.spread = json_number_value(json_object_get(root, "spread"));
    const json_t *cases = json_object_get(root, "cases");
    x.ncases = (int)json_array_size(cases);
    assert_in_range(x.ncases, 1, MODELS_CASES);
    size_t rows = 0, at = 0;
    for (int i = 0; i < x.ncases; i++) {
        load_case(json_array_get(cases, (size_t)i), &x.cases[i]);
        rows += (size_t)x.cases[i].nrows;
    }
    json_decref(root);
    x.blob = calloc(rows * (size_t)x.vocab, sizeof *x.blob);
    snprintf(path, sizeof path, "tests/fixtures/models/%s/expected.bin", name);
    FILE *f = fopen(path, "rb");
    assert_non_null(f);
    assert_int_equal(fread(x.blob, sizeof *x.blob * (size_t)x.vocab, rows, f), rows);
    fclose(f);
    for (int i = 0; i < x.ncases; i++) {
        x.cases[i].logits = x.blob + at * (size_t)x.vocab;
        at += (size_t)x.cases[i].nrows;
    }
    *ret_expected = x;
}

void models_free(struct models_expected *x)
{
    for (int i = 0; i < x->ncases; i++)
        free(x->cases[i].ids);
    free(x->blob);
}
