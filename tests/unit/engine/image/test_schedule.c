// Samplers against diffusers (tests/reference/make_sdpipe.py): same first latents, noise and toy denoiser.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "engine/image/schedule.h"

enum { N = 8, STEPS = 60 };

static double at(const json_t *list, size_t i)
{
    return json_number_value(json_array_get(list, i));
}

static void toy(const float *x, double scale, double t, float *out)
{
    for (int k = 0; k < N; k++) {
        float in = (float)(x[k] * scale);
        out[k] = 0.8f * in / (1 + fabsf(in)) + (float)(0.1 * cos(t / 100));
    }
}

// Runs s in ranges of `part` elements.
static void run(const struct schedule *s, const json_t *root, int part, float *x)
{
    float buffers[SCHEDULE_BUFFERS][N] = {0}, out[N], noise[N];
    struct schedule_state state;
    for (int i = 0; i < SCHEDULE_BUFFERS; i++)
        state.buffer[i] = buffers[i];
    for (int k = 0; k < N; k++)
        x[k] = (float)(at(json_object_get(root, "latents"), (size_t)k) * schedule_initial(s));
    for (int i = 0; i < schedule_calls(s); i++) {
        const json_t *row = json_array_get(json_object_get(root, "noise"), (size_t)i);
        for (int k = 0; k < N; k++)
            noise[k] = (float)at(row, (size_t)k);
        toy(x, schedule_input_scale(s, i), schedule_timestep(s, i), out);
        for (int k = 0; k < N; k += part)
            schedule_step(s, i, &state, x, out, noise, NULL, (size_t)k, (size_t)(k + part));
    }
}

// Largest difference against the largest value. Seen: 4.6e-6 over all cases.
static double compare(const json_t *c, const float *x)
{
    double worst = 0, top = 0;
    for (int k = 0; k < N; k++) {
        double want = at(json_object_get(c, "final"), (size_t)k);
        top = fabs(want) > top ? fabs(want) : top;
        worst = fabs(x[k] - want) > worst ? fabs(x[k] - want) : worst;
    }
    return worst / top;
}

static void check_case(const json_t *root, const json_t *c, double *worst)
{
    const json_t *config = json_object_get(c, "config"), *times = json_object_get(c, "timesteps");
    struct schedule *s;
    float x[N], again[N];
    err e = {0};
    if (schedule_open(config, NULL, NULL, (int)json_integer_value(json_object_get(c, "steps")), &s, &e))
        fail_msg("%s", e.text);
    char *shown = json_dumps(c, JSON_COMPACT);
    if (schedule_calls(s) != (int)json_array_size(times))
        fail_msg("%d calls: %s", schedule_calls(s), shown);
    for (int i = 0; i < schedule_calls(s); i++)
        if (fabs(schedule_timestep(s, i) - at(times, (size_t)i)) > 1e-3)  // seen: 1.9e-5 of a Karras time
            fail_msg("time %d is %g: %s", i, schedule_timestep(s, i), shown);
    double initial = json_number_value(json_object_get(c, "initial"));
    if (fabs(schedule_initial(s) - initial) > 1e-6 * initial)
        fail_msg("initial %g: %s", schedule_initial(s), shown);
    run(s, root, N, x);
    double d = compare(c, x);
    if (!(d < 3e-5))
        fail_msg("off by %g: %s", d, shown);
    *worst = d > *worst ? d : *worst;
    run(s, root, 2, again);
    assert_memory_equal(x, again, sizeof x);
    free(shown);
    schedule_close(s);
}

static void agrees_with_diffusers(void **state)
{
    (void)state;
    json_t *root = json_load_file("tests/fixtures/sd/schedules.json", 0, NULL);
    const json_t *cases = json_object_get(root, "cases");
    double worst = 0;
    assert_true(json_array_size(cases) > 100);
    for (size_t i = 0; i < json_array_size(cases); i++)
        check_case(root, json_array_get(cases, i), &worst);
    print_message("%zu cases, worst %.2g of the largest value\n", json_array_size(cases), worst);
    json_decref(root);
}

static err_code open_text(const char *config, const char *override, const char *name, int steps, struct schedule **s,
                          err *e)
{
    json_t *c = config ? json_loads(config, 0, NULL) : NULL, *o = override ? json_loads(override, 0, NULL) : NULL;
    *e = (err){0};
    err_code code = schedule_open(c, o, name, steps, s, e);
    json_decref(c);
    json_decref(o);
    return code;
}

static void refuses_by_name(void **state)
{
    (void)state;
    static const struct {
        const char *config;
        int steps;
        err_code code;
        const char *param, *text;
    } cases[] = {
        {"{\"_class_name\": \"LMSDiscreteScheduler\"}", 5, ERR_UNSUPPORTED, "scheduler", "LMSDiscreteScheduler"},
        {"{\"_class_name\": \"LMSDiscreteScheduler\"}", 5, ERR_UNSUPPORTED, "scheduler", "PNDMScheduler"},
        {"{}", 5, ERR_CORRUPT, "_class_name", "names no scheduler"},
        {"{\"_class_name\": \"DDIMScheduler\"}", 0, ERR_INVALID, "steps", "1 to 1000"},
        {"{\"_class_name\": \"DDIMScheduler\"}", 1001, ERR_INVALID, "steps", "1 to 1000"},
        {"{\"_class_name\": \"PNDMScheduler\"}", 3, ERR_INVALID, "steps", "at least 4"},
        {"{\"_class_name\": \"DDIMScheduler\", \"thresholding\": true}", 5, ERR_UNSUPPORTED, "thresholding", ""},
        {"{\"_class_name\": \"EulerDiscreteScheduler\", \"use_beta_sigmas\": true}", 5, ERR_UNSUPPORTED, "use_beta_sigmas", ""},
        {"{\"_class_name\": \"EulerDiscreteScheduler\", \"timestep_spacing\": \"odd\"}", 5, ERR_UNSUPPORTED, "timestep_spacing",
         "linspace|leading|trailing"},
        {"{\"_class_name\": \"EulerDiscreteScheduler\", \"beta_end\": \"x\"}", 5, ERR_CORRUPT, "beta_end", ""},
        {"{\"_class_name\": \"EulerDiscreteScheduler\", \"num_train_timesteps\": 1e9}", 5, ERR_CORRUPT, "num_train_timesteps", ""},
        {"{\"_class_name\": \"EulerDiscreteScheduler\", \"num_train_timesteps\": 10.5}", 5, ERR_CORRUPT, "num_train_timesteps", ""},
        {"{\"_class_name\": \"DPMSolverMultistepScheduler\", \"solver_order\": 3}", 5, ERR_UNSUPPORTED, "solver_order", ""},
        {"{\"_class_name\": \"DPMSolverMultistepScheduler\", \"algorithm_type\": \"dpmsolver\"}", 5, ERR_UNSUPPORTED,
         "algorithm_type", ""},
        {"{\"_class_name\": \"PNDMScheduler\", \"trained_betas\": [0.1]}", 5, ERR_UNSUPPORTED, "trained_betas", ""},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct schedule *s;
        err e;
        assert_int_equal(open_text(cases[i].config, NULL, NULL, cases[i].steps, &s, &e), cases[i].code);
        assert_string_equal(e.param, cases[i].param);
        assert_non_null(strstr(e.text, cases[i].text));
    }
}

static void name_and_override_win(void **state)
{
    (void)state;
    struct schedule *s;
    err e;
    const char *config = "{\"_class_name\": \"PNDMScheduler\", \"skip_prk_steps\": true, \"steps_offset\": 1}";
    assert_int_equal(open_text(config, NULL, "DDIMScheduler", 10, &s, &e), ERR_OK);
    assert_string_equal(schedule_name(s), "DDIMScheduler");
    assert_int_equal(schedule_calls(s), 10);
    assert_true(schedule_noise_scale(s, 0) == 0);
    schedule_close(s);
    assert_int_equal(open_text(config, "{\"steps_offset\": 0}", "EulerAncestralDiscreteScheduler", 10, &s, &e), ERR_OK);
    assert_true(schedule_noise_scale(s, 0) > 0);
    schedule_close(s);
    assert_int_equal(open_text(config, "{\"_class_name\": \"EulerDiscreteScheduler\"}", NULL, 10, &s, &e), ERR_OK);
    assert_string_equal(schedule_name(s), "EulerDiscreteScheduler");
    schedule_close(s);
    schedule_close(NULL);
}

// Whatever the number of steps, a schedule opens or says why, and its numbers are finite.
static void every_number_of_steps(void **state)
{
    (void)state;
    static const char *const names[] = {"EulerDiscreteScheduler", "EulerAncestralDiscreteScheduler", "DDIMScheduler",
                                        "PNDMScheduler", "DPMSolverMultistepScheduler"};
    static const char *const spacings[] = {"{\"timestep_spacing\": \"leading\", \"steps_offset\": 1}",
                                           "{\"timestep_spacing\": \"trailing\"}",
                                           "{\"timestep_spacing\": \"linspace\", \"skip_prk_steps\": true}"};
    for (int k = 0; k < 15; k++) {
        for (int steps = 1; steps <= 1000; steps += steps < 60 ? 1 : 47) {
            struct schedule *s;
            err e;
            float x[1] = {1}, out[1] = {0.5f}, noise[1] = {0.1f}, buffers[SCHEDULE_BUFFERS] = {0};
            struct schedule_state st;
            if (open_text(spacings[k % 3], NULL, names[k / 3], steps, &s, &e)) {
                assert_string_equal(e.param, "steps");
                continue;
            }
            for (int i = 0; i < SCHEDULE_BUFFERS; i++)
                st.buffer[i] = &buffers[i];
            for (int i = 0; i < schedule_calls(s); i++) {
                assert_true(schedule_timestep(s, i) <= 1000);  // 1000 steps, counted from 1
                schedule_step(s, i, &st, x, out, noise, NULL, 0, 1);
                if (!isfinite(x[0]))
                    fail_msg("%s %s, %d steps: call %d is %g", names[k / 3], spacings[k % 3], steps, i, x[0]);
            }
            schedule_close(s);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(agrees_with_diffusers),
        cmocka_unit_test(refuses_by_name),
        cmocka_unit_test(name_and_override_win),
        cmocka_unit_test(every_number_of_steps),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
