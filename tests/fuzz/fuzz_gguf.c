// fuzz_gguf.c - any bytes as a GGUF file: refused with a text, or every tensor and key of it can be touched.

#include "tests/helpers/weights_walk.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    weights_try("fuzz.gguf", data, size);
    return 0;
}
