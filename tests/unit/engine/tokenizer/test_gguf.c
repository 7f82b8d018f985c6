// The same tiny tokenizers as GGUF metadata give the ids of their tokenizer.json, whose expectations come from the
// `tokenizers` library.

#include "tests/unit/engine/tokenizer/fixture.h"

#include "engine/weights/weights.h"

static struct tokenizer *open_gguf(const char *name)
{
    char path[256];
    struct weights *w = NULL;
    struct tokenizer *t = NULL;
    err e = {0};
    snprintf(path, sizeof path, "tests/fixtures/tokenizer/%s.gguf", name);
    if (weights_open(path, &w, &e) || tokenizer_open(w, &t, &e))
        fail_msg("%s: %s", path, e.text);
    weights_close(w);  // the tokenizer keeps nothing of the file
    return t;
}

static int differs(const struct tokenizer *t, const json_t *text, const json_t *want, size_t number)
{
    struct ids ids = fixture_encode(t, json_string_value(text), json_string_length(text), true);
    bool same = ids.len == json_array_size(want);
    for (size_t i = 0; same && i < ids.len; i++)
        same = ids.data[i] == json_integer_value(json_array_get(want, i));
    if (!same)
        printf("text %zu: %zu ids, expected %zu: %s\n", number, ids.len, json_array_size(want),
               json_string_value(text));
    free(ids.data);
    return !same;
}

static void check_kind(void **state)
{
    const char *name = *state;
    json_t *fixture = fixture_load(name), *texts = fixture_load("texts"), *text;
    struct tokenizer *t = open_gguf(name);
    int bad = 0;
    size_t i;
    json_array_foreach (texts, i, text)
        bad += differs(t, text, json_array_get(json_object_get(fixture, "ids"), i), i);
    tokenizer_close(t);
    json_decref(fixture);
    json_decref(texts);
    assert_int_equal(bad, 0);
}

static void test_bos_and_stops(void **state)
{
    (void)state;
    struct tokenizer *llama = open_gguf("llama3"), *smol = open_gguf("smollm"), *spm = open_gguf("spm_legacy");
    struct tokenizer *oss = open_gguf("o200k");
    size_t n;
    assert_true(tokenizer_adds_bos(llama));   // by the pre-tokeniser's name
    assert_false(tokenizer_adds_bos(smol));   // the file says no
    assert_int_not_equal(tokenizer_bos(smol), TOKEN_NONE);
    assert_true(tokenizer_adds_bos(spm));
    assert_string_equal(tokenizer_kind(spm), "sentencepiece");
    tokenizer_stops(llama, &n);
    assert_int_equal(n, 3);  // <|end_of_text|>, <|eot_id|>, <|eom_id|>
    tokenizer_stops(oss, &n);
    assert_int_equal(n, 3);  // <|endoftext|>, <|return|>, <|call|>, not <|end|>
    tokenizer_close(llama);
    tokenizer_close(smol);
    tokenizer_close(spm);
    tokenizer_close(oss);
}

static void test_unknown_names(void **state)
{
    (void)state;
    struct gguf_text tokens[] = {{"a", 1}, {"b", 1}, {"ab", 2}}, merges[] = {{"a b", 3}};
    struct tokenizer_gguf g = {.model = {"gpt2", 4}, .pre = {"fancy-2099", 10}, .tokens = tokens, .ntokens = 3,
                               .merges = merges, .nmerges = 1, .bos = -1, .eos = -1, .unknown = -1,
                               .add_bos = -1, .add_eos = -1, .add_prefix = -1};
    struct tokenizer *t = NULL;
    err e = {0};
    assert_int_equal(tokenizer_gguf_build(&g, &t, &e), ERR_UNSUPPORTED);
    assert_non_null(strstr(e.text, "fancy-2099"));
    g.pre = (struct gguf_text){"", 0};
    assert_int_equal(tokenizer_gguf_build(&g, &t, &e), ERR_UNSUPPORTED);
    assert_non_null(strstr(e.text, "tokenizer.ggml.pre"));
    g.model = (struct gguf_text){"rwkv", 4};
    assert_int_equal(tokenizer_gguf_build(&g, &t, &e), ERR_UNSUPPORTED);
    assert_non_null(strstr(e.text, "rwkv"));
    g.model = (struct gguf_text){"gpt2", 4};
    g.pre = (struct gguf_text){"gpt-2", 5};
    merges[0] = (struct gguf_text){"a c", 3};
    assert_int_equal(tokenizer_gguf_build(&g, &t, &e), ERR_CORRUPT);
    assert_null(t);
}

// Every published pattern compiles.
static void test_all_patterns(void **state)
{
    (void)state;
    static const char *const names[] = {
        "llama-bpe",    "dbrx",           "glm4",
        "chatglm-bpe",  "qwen2",          "megrez",
        "qwen35",       "gpt-4o",         "granite-embed-multi-97m",
        "tekken",       "tiny_aya",       "youtu",
        "kimi-k2",      "deepseek-v3",    "spark2_5",
        "deepseek-llm", "deepseek-coder", "smollm",
        "gpt-2",        "falcon",         "bloom",
        "viking",       "bailingmoe",     "seed-coder",
        "superbpe",     "exaone-moe",     "jais-2",
        "minicpm5",     "ufakzeka",       "laguna",
        "gemma4",
    };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        struct tokenizer_pretok *p = NULL;
        struct tokenizer_pretok_traits traits;
        err e = {0};
        if (tokenizer_pretok_named(names[i], strlen(names[i]), &p, &traits, &e))
            fail_msg("%s: %s", names[i], e.text);
        tokenizer_pretok_close(p);
    }
}

#define KIND(name) {#name, check_kind, NULL, NULL, #name}

int main(void)
{
    const struct CMUnitTest tests[] = {
        KIND(gpt2), KIND(llama3), KIND(qwen2), KIND(smollm), KIND(deepseek3), KIND(o200k), KIND(spm_legacy),
        cmocka_unit_test(test_bos_and_stops), cmocka_unit_test(test_unknown_names), cmocka_unit_test(test_all_patterns),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
