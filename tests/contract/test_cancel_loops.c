// The loops that take long on a client's behalf ask whether to go on (base/cancel.h), wherever they are: every kind of
// tokenizer over running text, one endless word, text of many characters that are normalised; templates; the filter bank.
// A yes at any question ends them with ERR_CANCELLED and nothing appended.
#include "tests/unit/engine/tokenizer/fixture.h"

#include "base/cancel.h"
#include "base/mem.h"
#include "engine/audio/mel.h"
#include "engine/text/chat.h"
#include "engine/text/template.h"
#include "tests/helpers/asker.h"

enum { TEXT = 1 << 18, QUESTIONS_LEAST = 8 };

static const char *const tokenizers[] = {"gpt2", "llama3", "qwen2", "smollm", "o200k", "deepseek3", "gemma", "spm_legacy", "spm_first",
                                         "metaspace", "mixed", "added", "wordpiece", "wordpiece_accents", "wordpiece_cased"};

// How often it asked; the result must be what the questions said.
static int encode(const struct tokenizer *t, const char *text, size_t len, int yes_at)
{
    struct asker a = {{asker_ask}, 0, yes_at};
    struct text_span span = {text, len, false};
    struct ids ids = {0};
    err e = {0};
    ids_add(&ids, 7);
    cancel_watch(&a.cancel);
    err_code code = tokenizer_encode(t, &span, 1, true, &ids, &e);
    cancel_watch(NULL);
    if (a.asked < yes_at) {
        assert_int_equal(code, ERR_OK);
        assert_true(ids.len > 1);
    } else {
        assert_int_equal(code, ERR_CANCELLED);
        assert_int_equal(a.asked, yes_at);  // not asked again after a yes
        assert_int_equal(ids.len, 1);
    }
    assert_int_equal(ids.data[0], 7);
    free(ids.data);
    return a.asked;
}

// A part of it, over and over.
static char *repeat(const char *part, size_t len)
{
    char *text = mem_new(len + 1);
    size_t n = strlen(part);
    for (size_t i = 0; i < len / n; i++)
        memcpy(text + i * n, part, n);
    memset(text + len / n * n, 'a', len % n);
    return text;
}

static void test_tokenizers(void **state)
{
    (void)state;
    static const char *const parts[] = {"some words, and more; 12 of them\n", "a", "\xC3\xA9t\xC3\xA9 A\xCC\x8A \xE7\x99\xBA"};
    for (size_t k = 0; k < sizeof parts / sizeof *parts; k++) {
        char *text = repeat(parts[k], TEXT);
        for (size_t i = 0; i < sizeof tokenizers / sizeof *tokenizers; i++) {
            struct tokenizer *t = fixture_tokenizer(tokenizers[i]);
            int all = encode(t, text, TEXT, INT32_MAX);
            // One word that WordPiece calls unknown, or of letters that are in no vocabulary, is no work.
            bool easy = k == 1 && (strcmp(tokenizer_kind(t), "wordpiece") == 0 || strcmp(tokenizers[i], "added") == 0);
            if (all < (easy ? 1 : QUESTIONS_LEAST))
                fail_msg("%s asked %d times over %d bytes of kind %zu", tokenizers[i], all, TEXT, k);
            for (int at = 1; at <= all; at = at < 6 ? at + 1 : at + 1 + all / 6)
                encode(t, text, TEXT, at);
            encode(t, text, TEXT, all);
            tokenizer_close(t);
        }
        free(text);
    }
}

static void test_filter_bank(void **state)
{
    (void)state;
    enum { SAMPLES = 60 * 16000 };
    float *samples = mem_new(SAMPLES * sizeof *samples);
    for (int i = 0; i < SAMPLES; i++)
        samples[i] = (float)(i % 100) / 100;
    struct mel *m = mel_new(80);
    struct asker a = {{asker_ask}, 0, INT32_MAX};
    cancel_watch(&a.cancel);
    (void)mel_peak(m, samples, SAMPLES);
    int all = a.asked;
    a = (struct asker){{asker_ask}, 0, 2};
    cancel_watch(&a.cancel);
    (void)mel_peak(m, samples, SAMPLES);
    err e = {0};
    assert_int_equal(cancel_check(0, &e), ERR_CANCELLED);
    cancel_watch(NULL);
    assert_true(all > 60);
    assert_int_equal(a.asked, 2);
    mel_free(m);
    free(samples);
}

static void test_template(void **state)
{
    (void)state;
    static const char source[] = "{% for m in messages %}{% for i in range(30000) %}{% set x = i * 2 %}{% endfor %}"
                                 "{{ m.content | replace('a', 'b') }}{% endfor %}";
    struct chat *c;
    err e = {0};
    if (chat_open_source(source, sizeof source - 1, NULL, 0, &c, &e))
        fail_msg("%s", e.text);
    struct prompt p = {.messages = json_pack("[{s:s, s:s}]", "role", "user", "content", "banana")};
    int all = 0;
    for (int yes_at = INT32_MAX; yes_at > 0; yes_at = yes_at > all ? all : yes_at - 1) {
        struct asker a = {{asker_ask}, 0, yes_at};
        struct rendered r;
        cancel_watch(&a.cancel);
        err_code code = chat_render(c, &p, "", "", 0, &r, &e);
        cancel_watch(NULL);
        assert_int_equal(code, a.asked < yes_at ? ERR_OK : ERR_CANCELLED);
        if (code == ERR_OK)
            rendered_done(&r);
        all = all ? all : a.asked;
    }
    assert_true(all >= QUESTIONS_LEAST);
    json_decref(p.messages);
    chat_close(c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_tokenizers), cmocka_unit_test(test_filter_bank), cmocka_unit_test(test_template),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
