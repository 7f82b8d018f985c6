// fuzz_gguf.c - any bytes as a GGUF file: refused with a text, or every tensor and key of it can be touched.

#include <stdlib.h>

#include "tests/helpers/weights_walk.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct weights *w = NULL;
    err e = {0};
    if (weights_open_memory("fuzz.gguf", data, size, &w, &e)) {
        assert(!w && e.code && e.text[0]);
        return 0;
    }
    volatile unsigned sum = weights_walk(w);
    (void)sum;
    weights_close(w);
    return 0;
}
