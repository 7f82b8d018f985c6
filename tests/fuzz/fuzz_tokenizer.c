// fuzz_tokenizer - any bytes as text over the tiny tokenizers, in trusted and untrusted spans; the ids decoded again.
//
// Holds: ids are in range; untrusted text yields no control token; decoded text is UTF-8. Run from the repository root.

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/utf8.h"
#include "engine/tokenizer/model.h"

static const char *const names[] = {"gpt2",       "llama3",    "qwen2",     "smollm", "deepseek3", "o200k",
                                    "spm_legacy", "spm_first", "metaspace", "mixed",  "gemma",     "added"};
enum { N = sizeof names / sizeof *names };
static struct tokenizer *all[N];

static void open_all(void)
{
    for (int i = 0; i < N; i++) {
        char path[200];
        snprintf(path, sizeof path, "tests/fixtures/tokenizer/%s.json", names[i]);
        json_t *j = json_load_file(path, JSON_ALLOW_NUL, NULL), *files = json_object_get(j, "files");
        struct tokenizer_json_files f = {.tokenizer = json_object_get(files, "tokenizer"),
                                         .config = json_object_get(files, "config")};
        err e = {0};
        if (tokenizer_hf_open(&f, &all[i], &e)) {
            fprintf(stderr, "%s: %s\n", path, e.text);
            abort();
        }
        json_decref(j);
    }
}

static void check(const struct tokenizer *t, const struct ids *ids, bool untrusted)
{
    struct detok d;
    struct buf out;
    int32_t unknown = TOKEN_NONE;
    tokenizer_find(t, "<unk>", &unknown);
    buf_init(&out, 1 << 24);
    detok_init(&d, t, false);
    for (size_t i = 0; i < ids->len; i++) {
        if (ids->data[i] < 0 || ids->data[i] >= tokenizer_size(t))
            abort();
        if (untrusted && ids->data[i] != unknown && tokenizer_is_control(t, ids->data[i]))
            abort();
        detok_add(&d, ids->data[i], &out);
    }
    detok_finish(&d, &out);
    if (out.len && !utf8_valid(out.data, out.len))
        abort();
    buf_done(&out);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (!all[0])
        open_all();
    if (size < 3)
        return 0;
    const struct tokenizer *t = all[data[0] % N];
    size_t cut = data[1] < size - 3 ? data[1] : size - 3;
    const char *text = (const char *)data + 3;
    struct text_span spans[] = {{text, cut, data[2] & 1}, {text + cut, size - 3 - cut, data[2] & 2}};
    struct ids ids = {0};
    err e = {0};
    if (tokenizer_encode(t, spans, 2, false, &ids, &e) == ERR_OK)
        check(t, &ids, (data[2] & 3) == 0);
    // The same bytes as ids.
    struct ids odd = {0};
    for (size_t i = 0; i + 1 < size; i += 2)
        ids_add(&odd, (data[i] | data[i + 1] << 8) % tokenizer_size(t));
    check(t, &odd, false);
    free(ids.data);
    free(odd.data);
    return 0;
}
