// fuzz_safetensors.c - any bytes as a safetensors file: refused with a text, or every tensor of it can be touched.

#include "tests/helpers/weights_walk.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    weights_try("fuzz.safetensors", data, size);
    return 0;
}
