// Texts with a gap: which vocabularies have marks, and the order of what is put together from them.

#include "tests/unit/engine/tokenizer/fixture.h"

enum { NMARKS = 3 };

struct family {
    const char *marks[NMARKS];  // prefix, suffix, middle
    const char *order;          // p, s: the texts; P, S, M: the marks
};

static const struct family families[] = {
    {{"<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>"}, "PpSsM"},  // Qwen coder, CodeGemma, Granite 4
    {{"<fim_prefix>", "<fim_suffix>", "<fim_middle>"}, "PpSsM"},        // StarCoder, Granite code, Stable code
    {{"<fim-prefix>", "<fim-suffix>", "<fim-middle>"}, "PpSsM"},        // SantaCoder
    {{"<｜fim▁begin｜>", "<｜fim▁hole｜>", "<｜fim▁end｜>"}, "PpSsM"},  // DeepSeek
    {{"▁<PRE>", "▁<SUF>", "▁<MID>"}, "PpSsM"},                          // Code Llama
    {{"<|code_prefix|>", "<|code_suffix|>", "<|code_middle|>"}, "PpSsM"},  // GLM
    {{"<[fim-prefix]>", "<[fim-suffix]>", "<[fim-middle]>"}, "SsPpM"},     // Seed-Coder
    {{"[PREFIX]", "[SUFFIX]", NULL}, "SsPp"},                              // Codestral
};

// The GPT-2 fixture with marks as added tokens.
static struct tokenizer *with_marks(const char *const *marks, bool special)
{
    json_t *fixture = fixture_load("gpt2");
    json_t *added = json_object_get(json_object_get(json_object_get(fixture, "files"), "tokenizer"), "added_tokens");
    for (int i = 0; i < NMARKS; i++)
        if (marks[i])
            json_array_append_new(added, json_pack("{s:i,s:s,s:b,s:b,s:b,s:b,s:b}", "id", 60000 + i, "content", marks[i],
                                                   "single_word", 0, "lstrip", 0, "rstrip", 0, "normalized", 0, "special",
                                                   special));
    struct tokenizer *t = fixture_open(fixture);
    json_decref(fixture);
    return t;
}

static struct ids gap(const struct tokenizer *t, const char *before, const char *after)
{
    struct text_span spans[] = {{before, strlen(before), false}, {after, strlen(after), false}};
    struct ids ids = {0};
    err e = {0};
    if (tokenizer_fim_encode(t, &spans[0], &spans[1], &ids, &e))
        fail_msg("%s", e.text);
    return ids;
}

static void add(struct ids *to, const struct ids *more)
{
    for (size_t i = 0; i < more->len; i++)
        ids_add(to, more->data[i]);
}

static void test_families(void **state)
{
    (void)state;
    static const char before[] = "def f(x):\n  <|fim_middle|>", after[] = "\n  return y [SUFFIX]";
    for (size_t k = 0; k < sizeof families / sizeof *families; k++) {
        const struct family *f = &families[k];
        struct tokenizer *t = with_marks(f->marks, k % 2);
        assert_true(tokenizer_fim_has(t));
        struct ids p = fixture_encode(t, before, strlen(before), false), s = fixture_encode(t, after, strlen(after), false);
        struct ids want = {0}, got = gap(t, before, after);
        for (const char *o = f->order; *o; o++) {
            if (*o == 'p' || *o == 's')
                add(&want, *o == 'p' ? &p : &s);
            else
                ids_add(&want, 60000 + (*o == 'P' ? 0 : *o == 'S' ? 1 : 2));
        }
        assert_int_equal(got.len, want.len);
        assert_memory_equal(got.data, want.data, want.len * sizeof *want.data);
        free(p.data);
        free(s.data);
        free(want.data);
        free(got.data);
        tokenizer_close(t);
    }
}

// Two of three marks, or none, are no way to ask.
static void test_none(void **state)
{
    (void)state;
    static const char *const two[NMARKS] = {"<fim_prefix>", "<fim_suffix>", NULL};
    struct tokenizer *tokenizers[] = {fixture_tokenizer("gpt2"), fixture_tokenizer("llama3"), with_marks(two, true)};
    for (size_t i = 0; i < 3; i++) {
        struct text_span span = {"a", 1, false};
        struct ids ids = {0};
        err e = {0};
        assert_false(tokenizer_fim_has(tokenizers[i]));
        assert_int_equal(tokenizer_fim_encode(tokenizers[i], &span, &span, &ids, &e), ERR_UNSUPPORTED);
        assert_int_equal(ids.len, 0);
        tokenizer_close(tokenizers[i]);
    }
}

// A GGUF file may name marks whose spelling is not known.
static void test_named(void **state)
{
    (void)state;
    struct gguf_text tokens[] = {{"a", 1}, {"b", 1}, {"ab", 2}, {"<A>", 3}, {"<B>", 3}, {"<C>", 3}}, merges[] = {{"a b", 3}};
    int32_t types[] = {1, 1, 1, 3, 3, 3};
    struct tokenizer_gguf g = {.model = {"gpt2", 4}, .pre = {"gpt-2", 5}, .tokens = tokens, .ntokens = 6, .types = types,
                               .merges = merges, .nmerges = 1, .bos = 3, .add_bos = 1, .add_eos = 0, .eos = TOKEN_NONE,
                               .unknown = TOKEN_NONE, .cls = TOKEN_NONE, .sep = TOKEN_NONE, .fim = {4, 5, 3, false}};
    struct tokenizer *t = NULL;
    err e = {0};
    if (tokenizer_gguf_build(&g, &t, &e))
        fail_msg("%s", e.text);
    static const int32_t want[] = {3, 4, 2, 5, 1, 3};  // BOS comes first
    struct ids got = gap(t, "ab", "b");
    assert_int_equal(got.len, 6);
    assert_memory_equal(got.data, want, sizeof want);
    free(got.data);
    tokenizer_close(t);
    g.fim = (struct tokenizer_fim){4, 77, 3, false};
    assert_int_equal(tokenizer_gguf_build(&g, &t, &e), ERR_OK);
    assert_false(tokenizer_fim_has(t));
    tokenizer_close(t);
}

// With SentencePiece what follows the gap gets no space of its own.
static void test_sentencepiece(void **state)
{
    (void)state;
    struct tokenizer *t = fixture_tokenizer("spm_legacy");
    int32_t space;
    assert_true(tokenizer_find(t, "\u2581", &space));
    t->fim = (struct tokenizer_fim){1, 2, space, false};
    struct ids got = gap(t, "the", "the");
    struct detok d;
    struct buf text;
    buf_init(&text, 100);
    size_t at, n;
    assert_int_equal(*tokenizer_piece(t, got.data[2], &n), ' ');  // behind BOS and mark; before the gap there is one
    for (at = 0; got.data[at] != 2; at++)
        assert_true(at + 1 < got.len);
    detok_init(&d, t, true);
    d.started = true;
    for (size_t i = at + 1; i + 1 < got.len; i++)
        detok_add(&d, got.data[i], &text);
    detok_finish(&d, &text);
    assert_int_equal(text.len, 3);
    assert_memory_equal(text.data, "the", 3);
    buf_done(&text);
    free(got.data);
    tokenizer_close(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_families),
        cmocka_unit_test(test_none),
        cmocka_unit_test(test_named),
        cmocka_unit_test(test_sentencepiece),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
