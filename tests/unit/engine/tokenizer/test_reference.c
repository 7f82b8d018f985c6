// Tiny tokenizers of every style against the `tokenizers` library: ids, BOS and EOS, decoded text, odd id lists.
//
// The texts hold those of TOK-04 (runs of tabs, 1 to 40 spaces, 1 to 20 newlines, CRLF), TOK-05 (spaces after a special
// token, SentencePiece) and TOK-06 (words beside added tokens, every flag; the kind "added").

#include "tests/unit/engine/tokenizer/fixture.h"

#include "base/utf8.h"

static char *escaped(const char *p, size_t n)
{
    json_t *s = json_stringn_nocheck(p, n);
    char *text = json_dumps(s, JSON_ENCODE_ANY | JSON_ENSURE_ASCII);
    json_decref(s);
    return text ? text : strdup("(not UTF-8)");
}

static int check_ids(const char *what, const json_t *text, const json_t *want, const struct ids *got)
{
    bool same = got->len == json_array_size(want);
    for (size_t i = 0; same && i < got->len; i++)
        same = got->data[i] == json_integer_value(json_array_get(want, i));
    if (same)
        return 0;
    char *shown = escaped(json_string_value(text), json_string_length(text)), *ids = json_dumps(want, JSON_COMPACT);
    printf("%s: %s\n  want %s\n  got  [", what, shown, ids);
    for (size_t i = 0; i < got->len; i++)
        printf("%s%d", i ? "," : "", got->data[i]);
    printf("]\n");
    free(shown);
    free(ids);
    return 1;
}

static int check_text(const char *what, const json_t *want, const char *got, size_t n)
{
    if (json_string_length(want) == n && memcmp(json_string_value(want), got, n) == 0)
        return 0;
    char *a = escaped(json_string_value(want), json_string_length(want)), *b = escaped(got, n);
    printf("%s:\n  want %s\n  got  %s\n", what, a, b);
    free(a);
    free(b);
    return 1;
}

static int check_decode(const struct tokenizer *t, const char *what, const int32_t *ids, size_t n, bool skip,
                        const json_t *want)
{
    size_t len;
    char *text = fixture_decode(t, ids, n, skip, &len);
    int bad = check_text(what, want, text, len);
    assert_true(utf8_valid(text, len));
    free(text);
    return bad;
}

static int check_texts(const struct tokenizer *t, const json_t *fixture, const json_t *texts)
{
    int bad = 0;
    size_t i;
    json_t *text;
    json_array_foreach (texts, i, text) {
        struct ids ids = fixture_encode(t, json_string_value(text), json_string_length(text), true);
        bad += check_ids("ids", text, json_array_get(json_object_get(fixture, "ids"), i), &ids);
        char key[24];
        snprintf(key, sizeof key, "%zu", i);
        const json_t *decoded = json_object_get(json_object_get(fixture, "decoded"), key);
        bad += check_decode(t, "decoded", ids.data, ids.len, false, decoded ? decoded : text);
        free(ids.data);
    }
    return bad;
}

static int check_special(const struct tokenizer *t, const json_t *fixture, const json_t *texts)
{
    int bad = 0;
    size_t i;
    json_t *entry;
    json_array_foreach (json_object_get(fixture, "special"), i, entry) {
        const json_t *text = json_array_get(texts, (size_t)json_integer_value(json_array_get(entry, 0)));
        struct text_span span = {json_string_value(text), json_string_length(text), true};
        struct ids ids = fixture_spans(t, &span, 1, true);
        bad += check_ids("with BOS and EOS", text, json_array_get(entry, 1), &ids);
        free(ids.data);
    }
    return bad;
}

static int check_odd(const struct tokenizer *t, const json_t *fixture)
{
    int bad = 0;
    size_t i, k;
    json_t *entry, *id;
    json_array_foreach (json_object_get(fixture, "decode"), i, entry) {
        int32_t ids[64];
        size_t n = 0;
        json_array_foreach (json_array_get(entry, 0), k, id)
            ids[n++] = (int32_t)json_integer_value(id);
        bad += check_decode(t, "odd ids, kept", ids, n, false, json_array_get(entry, 1));
        bad += check_decode(t, "odd ids, skipped", ids, n, true, json_array_get(entry, 2));
    }
    return bad;
}

static void check_kind(void **state)
{
    json_t *fixture = fixture_load(*state), *texts = fixture_load("texts");
    struct tokenizer *t = fixture_open(fixture);
    assert_string_equal(tokenizer_kind(t), "bpe");
    assert_true(json_array_size(texts) > 250);
    int bad = check_texts(t, fixture, texts) + check_special(t, fixture, texts) + check_odd(t, fixture);
    tokenizer_close(t);
    json_decref(fixture);
    json_decref(texts);
    assert_int_equal(bad, 0);
}

#define KIND(name) {#name, check_kind, NULL, NULL, #name}

int main(void)
{
    const struct CMUnitTest tests[] = {
        KIND(gpt2),       KIND(llama3),    KIND(qwen2),     KIND(smollm), KIND(deepseek3), KIND(o200k),
        KIND(spm_legacy), KIND(spm_first), KIND(metaspace), KIND(mixed),  KIND(gemma),     KIND(added),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
