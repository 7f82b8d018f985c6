// Which files of a repository are chosen.
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "server/hub/choice.h"

static void label_is(const char *path, const char *want)
{
    char out[CHOICE_LABEL];
    if (strcmp(choice_label(path, out), want) != 0)
        fail_msg("%s: '%s', expected '%s'", path, out, want);
}

static void test_labels(void **state)
{
    (void)state;
    label_is("Qwen3-0.6B-Q4_K_M.gguf", "Q4_K_M");
    label_is("qwen2.5-7b-instruct-q5_k_m-00001-of-00002.gguf", "Q5_K_M");
    label_is("tinyllama-1.1b-chat-v1.0.Q4_0.gguf", "Q4_0");
    label_is("SmolLM2-135M-Instruct.Q4_1.gguf", "Q4_1");
    label_is("phi-4-q4.gguf", "Q4");
    label_is("tinyllama_q4_k_m.gguf", "Q4_K_M");
    label_is("UD-Q4_K_XL/x-UD-Q4_K_XL-00001-of-00003.gguf", "UD-Q4_K_XL");
    label_is("X-IQ2_XXS.gguf", "IQ2_XXS");
    label_is("X-TQ1_0.gguf", "TQ1_0");
    label_is("X-BF16.gguf", "BF16");
    label_is("gpt-oss-20b-mxfp4.gguf", "MXFP4");
    label_is("gpt-oss-MXFP4_MOE.gguf", "MXFP4_MOE");
    label_is("gemma-3-1b-it-qat-Q4_0.gguf", "Q4_0");
    label_is("X-Q8_0-imat.gguf", "Q8_0");
    label_is("model.gguf", "");
    label_is("Qwen3-32B.gguf", "");
    label_is("f16x-model.gguf", "");
    label_is(".gguf", "");
    label_is("-Q4_0.gguf", "Q4_0");
    label_is("BUD-Q4_0.gguf", "Q4_0");
}

static struct hub_listing listing(const char *const *paths)
{
    struct hub_listing l = {.commit = "c"};
    static struct hub_file files[64];
    for (; paths[l.nfiles]; l.nfiles++)
        files[l.nfiles] = (struct hub_file){.path = paths[l.nfiles]};
    l.files = files;
    return l;
}

// paths by name, as a listing has them; wants the chosen ones, or the error.
static void chosen(const char *ref, const char *const *paths, err_code want, const char *words)
{
    struct hub_listing l = listing(paths);
    struct modelref r;
    struct choice *c = mem_new(sizeof *c);
    err e = {0};
    char text[2000] = "";
    assert_int_equal(modelref_parse(ref, &r, &e), ERR_OK);
    err_code rc = choice_gguf(&l, &r, c, &e);
    for (int i = 0; i < c->nfiles && !rc; i++)
        sprintf(text + strlen(text), "%s%s", i ? " " : "", l.files[c->files[i]].path);
    if (rc != want || !strstr(rc ? e.text : text, words) || (!rc && strcmp(text, words) != 0))
        fail_msg("%s: %d '%s', expected %d '%s'", ref, rc, rc ? e.text : text, want, words);
    assert_true(rc || c->gguf == (c->nfiles > 0));
    free(c);
}

static void test_gguf(void **state)
{
    static const char *const one[] = {"README.md", "imatrix.gguf", "mmproj-F16.gguf", "x-Q6_K.gguf", NULL};
    static const char *const two[] = {"x-Q4_0.gguf", "x-q4_k_m.gguf", NULL};
    static const char *const old[] = {"x-Q4_0.gguf", "x-Q8_0.gguf", NULL};
    static const char *const more[] = {"x-Q4_K_M.gguf", "x-UD-Q4_K_M.gguf", NULL};
    static const char *const twins[] = {"14b/x-Q4_0.gguf", "7b/x-Q4_0.gguf", "Q8_0/y.gguf", NULL};
    static const char *const split[] = {"q/x-Q8_0-00001-of-00002.gguf", "q/x-Q8_0-00002-of-00002.gguf", NULL};
    static const char *const torn[] = {"x-Q8_0-00001-of-00003.gguf", "x-Q8_0-00003-of-00003.gguf", NULL};
    static const char *const nothing[] = {"x-Q8_0-00001-of-00000.gguf", NULL}, *const less[] = {"x-00001-of-000-3.gguf", NULL};
    static const char *const none[] = {"config.json", "model.safetensors", NULL};
    (void)state;
    chosen("a/b", one, ERR_OK, "x-Q6_K.gguf");
    chosen("a/b:q6_k", one, ERR_OK, "x-Q6_K.gguf");
    chosen("a/b:Q6", one, ERR_NOT_FOUND, "it has Q6_K");
    chosen("a/b:F16", one, ERR_NOT_FOUND, "it has Q6_K");
    chosen("a/b", two, ERR_OK, "x-q4_k_m.gguf");
    chosen("a/b", old, ERR_OK, "x-Q4_0.gguf");
    chosen("a/b:K_M", two, ERR_NOT_FOUND, "no GGUF of K_M");
    chosen("a/b", more, ERR_OK, "x-Q4_K_M.gguf");
    chosen("a/b:ud-q4_k_m", more, ERR_OK, "x-UD-Q4_K_M.gguf");
    chosen("a/b", twins, ERR_INVALID, "14b/x-Q4_0.gguf, 7b/x-Q4_0.gguf");
    chosen("a/b/7b", twins, ERR_OK, "7b/x-Q4_0.gguf");
    chosen("a/b/7b:Q8_0", twins, ERR_NOT_FOUND, "it has Q4_0");
    chosen("a/b/14b/x-Q4_0.gguf", twins, ERR_OK, "14b/x-Q4_0.gguf");
    chosen("a/b/14b/y.gguf", twins, ERR_NOT_FOUND, "no file '14b/y.gguf'");
    chosen("a/b:Q8_0", twins, ERR_OK, "Q8_0/y.gguf");
    chosen("a/b/9b", twins, ERR_OK, "");
    chosen("a/b", split, ERR_OK, "q/x-Q8_0-00001-of-00002.gguf q/x-Q8_0-00002-of-00002.gguf");
    chosen("a/b", torn, ERR_NOT_FOUND, "x-Q8_0-00002-of-00003.gguf");
    chosen("a/b", nothing, ERR_OK, nothing[0]);  // part of none is one that stands alone
    chosen("a/b", less, ERR_OK, less[0]);
    chosen("a/b", none, ERR_OK, "");
    chosen("a/b:Q4_0", none, ERR_NOT_FOUND, "no GGUF files");
}

struct reader {
    const struct hub_listing *l;
    const char *path, *text;
};

static err_code read_one(void *ud, int file, char **ret_text, size_t *ret_len, err *e)
{
    const struct reader *r = ud;
    if (strcmp(r->l->files[file].path, r->path) != 0)
        return err_set(e, ERR_IO, "%s was read", r->l->files[file].path);
    *ret_text = mem_strdup(r->text);
    *ret_len = strlen(r->text);
    return ERR_OK;
}

static err_code folder(const char *const *paths, const char *index, char *out, err *e)
{
    struct hub_listing l = listing(paths);
    struct modelref r = {.repo = "a/b"};
    struct choice *c = mem_new(sizeof *c);
    struct reader reader = {&l, "model.safetensors.index.json", index};
    err_code rc = choice_folder(&l, &r, read_one, &reader, c, e);
    *out = 0;
    for (int i = 0; i < c->nfiles && !rc; i++)
        sprintf(out + strlen(out), "%s%s", i ? " " : "", l.files[c->files[i]].path);
    free(c);
    return rc;
}

static void test_index(void **state)
{
    static const char *const paths[] = {
        "a.safetensors", "b.safetensors", "config.json", "d/a.safetensors", "model.safetensors.index.json", NULL};
    static const char *const wrong[] = {
        "../a.safetensors", "d/a.safetensors",    "config.json",     "",
        "/a.safetensors",   "a\\\\a.safetensors", "con.safetensors", "a\\u000a.safetensors",
        "..safetensors.",   "nothing.safetensors"};
    (void)state;
    char out[2000], index[200];
    err e = {0};
    assert_int_equal(folder(paths, "{\"weight_map\": {\"x\": \"b.safetensors\", \"y\": \"b.safetensors\"}}", out, &e),
                     ERR_OK);
    assert_string_equal(out, "model.safetensors.index.json b.safetensors config.json");
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        snprintf(index, sizeof index, "{\"weight_map\": {\"x\": \"%s\"}}", wrong[i]);
        err_code rc = folder(paths, index, out, &e);
        if (rc != ERR_CORRUPT && !(rc == ERR_NOT_FOUND && strstr(wrong[i], "nothing")))
            fail_msg("a shard '%s': %d %s", wrong[i], rc, out);
    }
    assert_int_equal(folder(paths, "{\"weight_map\": {\"x\": 1}}", out, &e), ERR_CORRUPT);
    assert_int_equal(folder(paths, "{", out, &e), ERR_CORRUPT);
    assert_int_equal(folder(paths, "[]", out, &e), ERR_UNSUPPORTED);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_labels),
        cmocka_unit_test(test_gguf),
        cmocka_unit_test(test_index),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
