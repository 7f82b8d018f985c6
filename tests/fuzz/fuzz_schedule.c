// fuzz_schedule - any bytes as scheduler_config.json, the first two as a number of steps: the schedule opens or fails with a
// text, and what opens can be run.

#include <jansson.h>
#include <stdint.h>
#include <stdlib.h>

#include "engine/image/schedule.h"

enum { N = 3 };

static void use(const struct schedule *s)
{
    float buffers[SCHEDULE_BUFFERS][N] = {{0}}, x[N] = {1, -1, 0.5f}, out[N], noise[N] = {0.1f, 0.2f, -1}, x0[N];
    struct schedule_state state;
    for (int i = 0; i < SCHEDULE_BUFFERS; i++)
        state.buffer[i] = buffers[i];
    for (int i = 0; i < schedule_calls(s); i++) {
        for (int k = 0; k < N; k++)
            out[k] = (float)(x[k] * schedule_input_scale(s, i)) / 2 + (float)schedule_timestep(s, i) * 1e-4f;
        schedule_step(s, i, &state, x, out, noise, x0, 0, N);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 2)
        return 0;
    int steps = data[0] % 64 + (data[1] == 0xFF ? 970 : 0);
    json_t *j = json_loadb((const char *)data + 2, size - 2, 0, NULL);
    struct schedule *s;
    err e = {0};
    if (!j)
        return 0;
    if (schedule_open(j, json_object_get(j, "override"), NULL, steps, &s, &e)) {
        if (!e.text[0])
            abort();
    } else {
        use(s);
        schedule_close(s);
    }
    json_decref(j);
    return 0;
}
