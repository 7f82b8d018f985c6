// CLIP tokenizers from vocab.json and merges.txt against transformers (tests/reference/make_sdpipe.py).
#include "tests/unit/engine/tokenizer/fixture.h"

#include <unistd.h>

static struct tokenizer *open_model(const char *model, int32_t *ret_pad)
{
    char path[256];
    struct tokenizer *t;
    err e = {0};
    snprintf(path, sizeof path, "tests/fixtures/sd/%s/tokenizer", model);
    if (tokenizer_folder_open(path, &t, ret_pad, &e))
        fail_msg("%s", e.text);
    return t;
}

static void same_ids_as_transformers(void **state)
{
    (void)state;
    json_t *root = json_load_file("tests/fixtures/sd/tokenizer.json", JSON_ALLOW_NUL, NULL), *c;
    size_t i, checked = 0;
    int32_t pad;
    struct tokenizer *sd1 = open_model("tiny-sd1", &pad), *sd2 = open_model("tiny-sd2", &pad);
    json_array_foreach (json_object_get(root, "cases"), i, c) {
        const json_t *text = json_object_get(c, "text"), *want = json_object_get(c, "ids");
        const char *model = json_string_value(json_object_get(c, "model"));
        if (!want)
            continue;  // padded ones: see the pipeline's tests
        struct ids ids = fixture_encode(strcmp(model, "tiny-sd1") ? sd2 : sd1, json_string_value(text),
                                        json_string_length(text), true);
        bool same = ids.len == json_array_size(want);
        for (size_t k = 0; same && k < ids.len; k++)
            same = ids.data[k] == json_integer_value(json_array_get(want, k));
        if (!same) {
            char *shown = json_dumps(c, JSON_COMPACT | JSON_ENSURE_ASCII);
            printf("%s\n got:", shown);
            for (size_t k = 0; k < ids.len; k++)
                printf(" %d", ids.data[k]);
            fail_msg("ids differ");
        }
        free(ids.data);
        checked++;
    }
    assert_true(checked >= 60);
    tokenizer_close(sd1);
    tokenizer_close(sd2);
    json_decref(root);
}

static void specials(void **state)
{
    (void)state;
    int32_t pad;
    struct tokenizer *t = open_model("tiny-sd1", &pad);
    assert_int_equal(pad, 593);
    assert_int_equal(tokenizer_bos(t), 592);
    assert_int_equal(tokenizer_eos(t), 593);
    struct ids ids = fixture_spans(t, &(struct text_span){"a photo", 7, false}, 1, true);
    assert_int_equal(ids.data[0], 592);
    assert_int_equal(ids.data[ids.len - 1], 593);
    size_t len;
    char *text = fixture_decode(t, ids.data, ids.len, true, &len);
    assert_string_equal(text, "a photo ");
    free(text);
    free(ids.data);
    tokenizer_close(t);
    t = open_model("tiny-sd2", &pad);
    assert_int_equal(pad, 0);
    tokenizer_close(t);
}

static void put(const char *folder, const char *file, const char *text)
{
    char path[256];
    snprintf(path, sizeof path, "%s/%s", folder, file);
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
}

static void drop(const char *folder, const char *file)
{
    char path[256];
    snprintf(path, sizeof path, "%s/%s", folder, file);
    unlink(path);
}

static void says_what_is_missing(void **state)
{
    (void)state;
    char folder[] = "/tmp/oxinferd-clip-XXXXXX";
    struct tokenizer *t;
    int32_t pad;
    err e = {0};
    assert_non_null(mkdtemp(folder));
    assert_int_equal(tokenizer_folder_open(folder, &t, &pad, &e), ERR_NOT_FOUND);
    assert_non_null(strstr(e.text, "vocab.json"));
    put(folder, "vocab.json", "{\"a\": 0, \"b</w>\": 1, \"ab</w>\": 2, \"<|startoftext|>\": 3}");
    assert_int_equal(tokenizer_folder_open(folder, &t, &pad, &e), ERR_NOT_FOUND);
    assert_non_null(strstr(e.text, "merges.txt"));
    put(folder, "merges.txt", "#version: 0.2\na b</w>\n");
    assert_int_equal(tokenizer_folder_open(folder, &t, &pad, &e), ERR_CORRUPT);
    assert_non_null(strstr(e.text, "<|endoftext|>"));
    put(folder, "special_tokens_map.json", "{\"eos_token\": {\"content\": \"a\"}}");
    assert_int_equal(tokenizer_folder_open(folder, &t, &pad, &e), ERR_CORRUPT);  // its unknown token is not there
    put(folder, "merges.txt", "a\n");
    put(folder, "vocab.json", "{\"a\": 0, \"b</w>\": 1, \"ab</w>\": 2, \"<|startoftext|>\": 3, \"<|endoftext|>\": 4}");
    assert_int_equal(tokenizer_folder_open(folder, &t, &pad, &e), ERR_CORRUPT);
    assert_non_null(strstr(e.text, "merge 0"));
    put(folder, "tokenizer_config.json", "{\"tokenizer_class\": \"T5Tokenizer\"}");
    assert_int_equal(tokenizer_folder_open(folder, &t, &pad, &e), ERR_UNSUPPORTED);
    assert_non_null(strstr(e.text, "T5Tokenizer"));
    static const char *const files[] = {"vocab.json", "merges.txt", "special_tokens_map.json", "tokenizer_config.json"};
    for (int i = 0; i < 4; i++)
        drop(folder, files[i]);
    rmdir(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(same_ids_as_transformers),
        cmocka_unit_test(specials),
        cmocka_unit_test(says_what_is_missing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
