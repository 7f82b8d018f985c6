// fuzz_tokenizer_json - any bytes as tokenizer.json: it opens or fails with a text, and what opens can encode and
// decode.

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "engine/tokenizer/model.h"

static void use(const struct tokenizer *t)
{
    static const char text[] = "Hello  wörld's\n\n<s> a<|im_end|>b 123 \xE2\x96\x81 e\xCC\x81 aab";
    struct text_span spans[] = {{text, 20, true}, {text + 20, strlen(text) - 20, false}};
    struct ids ids = {0};
    struct detok d;
    struct buf out;
    err e = {0};
    buf_init(&out, 1 << 20);
    detok_init(&d, t, true);
    if (tokenizer_encode(t, spans, 2, true, &ids, &e) == ERR_OK)
        for (size_t i = 0; i < ids.len; i++)
            detok_add(&d, ids.data[i], &out);
    else if (!e.text[0])
        abort();
    detok_finish(&d, &out);
    buf_done(&out);
    free(ids.data);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    json_t *j = json_loadb((const char *)data, size, JSON_ALLOW_NUL, NULL);
    struct tokenizer_json_files f = {
        .tokenizer = j, .config = json_object_get(j, "config"), .generation = j, .model = j};
    struct tokenizer *t = NULL;
    err e = {0};
    if (!j)
        return 0;
    if (tokenizer_hf_open(&f, &t, &e) == ERR_OK)
        use(t);
    else if (!e.text[0])
        abort();
    tokenizer_close(t);
    json_decref(j);
    return 0;
}
