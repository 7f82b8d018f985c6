// WordPiece with BERT's normaliser against the `tokenizers` library: ids, [CLS] and [SEP], decoded text; and the same
// from a folder that has only vocab.txt.

#include "tests/unit/engine/tokenizer/fixture.h"

#define FOLDER "tests/fixtures/tokenizer/wordpiece_folder"

static bool same_ids(const json_t *want, const struct ids *got)
{
    bool same = got->len == json_array_size(want);
    for (size_t i = 0; same && i < got->len; i++)
        same = got->data[i] == json_integer_value(json_array_get(want, i));
    return same;
}

static int check_ids(const struct tokenizer *t, const json_t *text, const json_t *want, bool special)
{
    struct text_span span = {json_string_value(text), json_string_length(text), true};
    struct ids ids = fixture_spans(t, &span, 1, special);
    bool same = same_ids(want, &ids);
    if (!same) {
        char *shown = json_dumps(text, JSON_ENCODE_ANY | JSON_ENSURE_ASCII), *list = json_dumps(want, JSON_COMPACT);
        printf("%s:\n  want %s\n  got  ", shown, list);
        for (size_t i = 0; i < ids.len; i++)
            printf("%d,", ids.data[i]);
        printf("\n");
        free(shown);
        free(list);
    }
    free(ids.data);
    return !same;
}

static int check_decoded(const struct tokenizer *t, const json_t *ids, const json_t *want)
{
    int32_t list[1024];
    size_t n = json_array_size(ids), len;
    for (size_t i = 0; i < n; i++)
        list[i] = (int32_t)json_integer_value(json_array_get(ids, i));
    char *text = fixture_decode(t, list, n, false, &len);
    bool same = len == json_string_length(want) && memcmp(text, json_string_value(want), len) == 0;
    if (!same)
        printf("decoded: %s\n  got    %s\n", json_string_value(want), text);
    free(text);
    return !same;
}

static void check_all(const struct tokenizer *t, const json_t *fixture)
{
    size_t i;
    json_t *text;
    int bad = 0;
    assert_string_equal(tokenizer_kind(t), "wordpiece");
    assert_true(json_array_size(json_object_get(fixture, "texts")) > 100);
    json_array_foreach (json_object_get(fixture, "texts"), i, text) {
        const json_t *ids = json_array_get(json_object_get(fixture, "ids"), i);
        bad += check_ids(t, text, ids, false);
        bad += check_ids(t, text, json_array_get(json_object_get(fixture, "special"), i), true);
        bad += check_decoded(t, ids, json_array_get(json_object_get(fixture, "decoded"), i));
    }
    assert_int_equal(bad, 0);
}

static void check_kind(void **state)
{
    json_t *fixture = fixture_load(*state);
    struct tokenizer *t = fixture_open(fixture);
    check_all(t, fixture);
    tokenizer_close(t);
    json_decref(fixture);
}

static void test_vocab_txt(void **state)
{
    (void)state;
    json_t *fixture = fixture_load("wordpiece_cased");
    struct tokenizer_json_files files = {.config = json_load_file(FOLDER "/tokenizer_config.json", 0, NULL)};
    struct tokenizer *t;
    err e = {0};
    assert_true(tokenizer_vocabtxt_has(FOLDER));
    assert_false(tokenizer_vocabtxt_has("tests/fixtures/tokenizer"));
    if (tokenizer_vocabtxt_open(FOLDER, &files, &t, &e))
        fail_msg("%s", e.text);
    check_all(t, fixture);
    tokenizer_close(t);
    json_decref((json_t *)files.config);
    json_decref(fixture);
}

// Written by somebody who is not trusted, a special token is characters.
static void test_untrusted(void **state)
{
    (void)state;
    struct tokenizer *t = fixture_tokenizer("wordpiece");
    struct text_span span = {"[MASK]", 6, false};
    struct ids ids = fixture_spans(t, &span, 1, false);
    int32_t mask;
    assert_true(tokenizer_find(t, "[MASK]", &mask));
    assert_true(ids.len > 1);
    for (size_t i = 0; i < ids.len; i++)
        assert_int_not_equal(ids.data[i], mask);
    free(ids.data);
    tokenizer_close(t);
}

static void refuse(const char *model, const char *word)
{
    json_t *j = json_pack("{s:o}", "model", json_loads(model, 0, NULL));
    struct tokenizer_json_files f = {.tokenizer = j};
    struct tokenizer *t;
    err e = {0};
    assert_int_equal(tokenizer_hf_open(&f, &t, &e), ERR_CORRUPT);
    assert_non_null(strstr(e.text, word));
    json_decref(j);
}

static void test_refused(void **state)
{
    (void)state;
    refuse("{\"type\": \"WordPiece\", \"vocab\": {\"a\": 0}, \"unk_token\": \"[UNK]\"}", "unk_token");
    refuse("{\"type\": \"WordPiece\", \"vocab\": {\"a\": \"b\"}, \"unk_token\": \"a\"}", "not a number");
    refuse("{\"type\": \"WordPiece\", \"vocab\": {\"a\": 0}, \"unk_token\": \"a\", \"continuing_subword_prefix\": 3}", "prefix");
}

// sentence_bert_config.json's do_lower_case makes a cased tokenizer lower its text; one that lowers already stays as it is.
static void test_do_lower_case(void **state)
{
    (void)state;
    json_t *sentences = json_pack("{s:b}", "do_lower_case", 1);
    static const char *const texts[] = {"The Cat", "the cat"};
    for (int with = 0; with < 2; with++) {
        json_t *fixture = fixture_load("wordpiece_cased"), *files = json_object_get(fixture, "files");
        struct tokenizer_json_files f = {.tokenizer = json_object_get(files, "tokenizer"),
                                         .config = json_object_get(files, "config"),
                                         .sentences = with ? sentences : NULL};
        struct tokenizer *t;
        err e = {0};
        struct ids ids[2] = {{0}, {0}};
        if (tokenizer_hf_open(&f, &t, &e))
            fail_msg("%s", e.text);
        for (int i = 0; i < 2; i++) {
            struct text_span span = {texts[i], strlen(texts[i]), false};
            assert_int_equal(tokenizer_encode(t, &span, 1, true, &ids[i], &e), ERR_OK);
        }
        bool same = ids[0].len == ids[1].len && !memcmp(ids[0].data, ids[1].data, ids[0].len * sizeof *ids[0].data);
        assert_int_equal(same, with);
        free(ids[0].data);
        free(ids[1].data);
        tokenizer_close(t);
        json_decref(fixture);
    }
    json_decref(sentences);
}

#define KIND(name) {#name, check_kind, NULL, NULL, #name}

int main(void)
{
    const struct CMUnitTest tests[] = {
        KIND(wordpiece), KIND(wordpiece_cased), KIND(wordpiece_accents), cmocka_unit_test(test_vocab_txt),
        cmocka_unit_test(test_untrusted), cmocka_unit_test(test_refused), cmocka_unit_test(test_do_lower_case),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
