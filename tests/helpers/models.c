#include "tests/helpers/models.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

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

double models_difference(const float *a, const float *b, int n)
{
    double worst = 0;
    for (int i = 0; i < n; i++) {
        double d = fabs((double)a[i] - (double)b[i]);
        worst = d > worst || isnan(d) ? d : worst;
    }
    return worst;
}

void models_change(char ret_folder[64], const char *name, struct models_files files, const char *change)
{
    char path[512], target[768], cwd[256];
    snprintf(ret_folder, 64, "/tmp/oxinferd-model-XXXXXX");
    assert_non_null(mkdtemp(ret_folder));
    snprintf(path, sizeof path, "%s/%s", models_path(name), files.config);
    json_t *config = json_load_file(path, 0, NULL), *with = json_loads(change, 0, NULL);
    assert_non_null(config);
    assert_non_null(with);
    json_object_update(config, with);
    snprintf(path, sizeof path, "%s/%s", ret_folder, files.config);
    assert_int_equal(json_dump_file(config, path, 0), 0);
    json_decref(config);
    json_decref(with);
    assert_non_null(getcwd(cwd, sizeof cwd));
    snprintf(target, sizeof target, "%s/%s/%s", cwd, models_path(name), files.tensors);
    snprintf(path, sizeof path, "%s/%s", ret_folder, files.tensors);
    assert_int_equal(symlink(target, path), 0);
}

void models_change_done(const char *folder, struct models_files files)
{
    char path[512];
    snprintf(path, sizeof path, "%s/%s", folder, files.config);
    unlink(path);
    snprintf(path, sizeof path, "%s/%s", folder, files.tensors);
    unlink(path);
    rmdir(folder);
}
