// Image tasks through the engine's door, on the tiny pipelines: what diffusers makes of the same noise
// (tests/reference/make_sdpipe.py), and the exactness rule: the same bits on 1 and 2 threads and on every instruction set,
// picture k alone as in a batch, beside other tasks; a cancel at any event leaves nothing behind.
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <dirent.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "engine/engine.h"
#include "engine/image/pipeline.h"
#include "engine/model.h"
#include "kernels/cpu.h"
#include "tests/helpers/client.h"
#include "tests/helpers/engines.h"

#define FOLDER "tests/fixtures/sd/"

static struct engine *open_engine(const char *model, int threads, const char *isa)
{
    char path[256];
    snprintf(path, sizeof path, FOLDER "%s", model);
    struct engine_config c = {.threads = threads, .isa = isa, .kv_bytes = 1 << 20, .max_waiting = 32};
    struct model_config m = {.name = "m", .path = path, .max_image_pixels = 128 * 128};
    return engines_open(&c, &m);
}

static struct task *new_task(const char *prompt, int width, int height, int n, uint64_t seed)
{
    struct task *t = task_new(TASK_IMAGE);
    t->model = "m";
    t->image.prompt = prompt;
    t->image.width = width;
    t->image.height = height;
    t->image.n = n;
    t->image.steps = 3;
    t->image.seed = seed;
    return t;
}

static void run(struct client *c, struct engine *en, struct task *t)
{
    client_must_submit(c, en, t);
    client_wait(c);
    assert_int_equal(c->ends, 1);
    assert_false(c->wrong);
}

// ---- against diffusers

struct result {
    float *latents;
    uint8_t *rgb;
    size_t nlatents, nrgb;
    struct client client;
};

static void *load(const char *name, const char *end, size_t *ret_len)
{
    char path[256], *text;
    err e = {0};
    snprintf(path, sizeof path, FOLDER "cases/%s%s", name, end);
    if (file_read(path, 1 << 24, &text, ret_len, &e))
        fail_msg("%s", e.text);
    return text;
}

static void compare(const char *name, const struct result *r, double *worst)
{
    size_t n;
    float *want = load(name, ".out", &n);
    assert_int_equal(n, r->nlatents * sizeof *want);
    double off = 0, top = 0;
    for (size_t i = 0; i < r->nlatents; i++) {
        off = fabs(want[i] - r->latents[i]) > off ? fabs(want[i] - r->latents[i]) : off;
        top = fabs(want[i]) > top ? fabs(want[i]) : top;
    }
    if (!(off < 1e-4 * top))
        fail_msg("%s: latents are off by %g of %g", name, off, top);  // seen: 3.4e-6 of the largest
    *worst = off / top > *worst ? off / top : *worst;
    uint8_t *rgb = load(name, ".rgb", &n);
    assert_int_equal(n, r->nrgb);
    for (size_t i = 0; i < n; i++)
        if (abs(rgb[i] - r->rgb[i]) > 1)
            fail_msg("%s: byte %zu is %d, expected %d", name, i, r->rgb[i], rgb[i]);
    free(rgb);
    free(want);
}

static struct task *case_task(const json_t *j, float **ret_latents, float **ret_noise)
{
    char stem[64];
    size_t n;
    snprintf(stem, sizeof stem, "%s", json_string_value(json_object_get(j, "latents_in")));
    *strrchr(stem, '.') = 0;
    *ret_latents = load(stem, ".latents", &n);
    *ret_noise = json_object_get(j, "step_noise") ? load(stem, ".noise", &n) : NULL;
    struct task *t = new_task(json_string_value(json_object_get(j, "prompt")),
                              (int)json_integer_value(json_object_get(j, "width")),
                              (int)json_integer_value(json_object_get(j, "height")), 1, 0);
    t->image.negative_prompt = json_string_value(json_object_get(j, "negative_prompt"));
    t->image.steps = (int)json_integer_value(json_object_get(j, "steps"));
    t->image.guidance = (float)json_number_value(json_object_get(j, "guidance_scale"));
    t->image.scheduler = json_string_value(json_object_get(j, "scheduler"));
    t->image.scheduler_config = json_object_get(j, "scheduler_config");
    t->image.latents = *ret_latents;
    t->image.step_noise = *ret_noise;
    t->image.raw = true;
    return t;
}

static void run_case(struct engine *en, const char *model, const char *file, double *worst, int *count)
{
    char path[512], name[64];
    snprintf(path, sizeof path, FOLDER "cases/%s", file);
    json_t *j = json_load_file(path, 0, NULL);
    assert_non_null(j);
    snprintf(name, sizeof name, "%.*s", (int)strlen(file) - 5, file);
    if (!strcmp(json_string_value(json_object_get(j, "model")), model)) {
        struct result r = {0};
        float *latents, *noise;
        err e = {0};
        struct task *t = case_task(j, &latents, &noise);
        if (!client_submit(&r.client, en, t, &e))
            fail_msg("%s: %s", name, e.text);
        client_wait(&r.client);
        if (r.client.error.code)
            fail_msg("%s: %s", name, r.client.error.text);
        ++*count;
        // The blob ends with the picture: its number, bytes and latents.
        size_t pixels = (size_t)(json_integer_value(json_object_get(j, "width")) *
                                 json_integer_value(json_object_get(j, "height")));
        r.nrgb = 3 * pixels;
        free(load(name, ".out", &r.nlatents));
        r.nlatents /= sizeof(float);
        r.latents = (float *)(void *)(r.client.blob.data + r.client.blob.len - r.nlatents * sizeof(float));
        r.rgb = (uint8_t *)r.client.blob.data + r.client.blob.len - r.nlatents * sizeof(float) - r.nrgb;
        compare(name, &r, worst);
        client_done(&r.client);
        free(latents);
        free(noise);
    }
    json_decref(j);
}

static void as_diffusers(void **state)
{
    (void)state;
    static const char *const models[] = {"tiny-sd1", "tiny-sd2", "tiny-odd"};
    double worst = 0;
    int count = 0;
    for (int i = 0; i < 3; i++) {
        struct engine *en = open_engine(models[i], 2, NULL);
        DIR *d = opendir(FOLDER "cases");
        for (struct dirent *f; (f = readdir(d));)
            if (strstr(f->d_name, ".json"))
                run_case(en, models[i], f->d_name, &worst, &count);
        closedir(d);
        engine_close(en);
    }
    print_message("%d cases, latents within %.2g of their largest value\n", count, worst);
    assert_int_equal(count, 10);
}

// ---- exactness

static void make(struct engine *en, struct client *c, int n, uint64_t seed, int partials)
{
    struct task *t = new_task("a cat on the moon", 72, 40, n, seed);
    t->image.partial_images = partials;
    t->image.raw = true;
    run(c, en, t);
    assert_int_equal(c->error.code, ERR_OK);
}

static void same_blob(const struct client *a, const struct client *b)
{
    assert_int_equal(a->blob.len, b->blob.len);
    assert_memory_equal(a->blob.data, b->blob.data, a->blob.len);
}

static void same_bits_on_any_machine(void **state)
{
    (void)state;
    static const struct {
        int threads;
        const char *isa;
    } ways[] = {{2, NULL}, {1, "scalar"}, {2, "avx2"}, {1, "avx512"}};
    static const char *const models[] = {"tiny-sd1", "tiny-sd2"};
    for (int m = 0; m < 2; m++) {
        struct client first = {0};
        struct engine *en = open_engine(models[m], 1, NULL);
        make(en, &first, 2, 11, 1);
        engine_close(en);
        for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
            err e = {0};
            if (engine_check_isa(ways[i].isa, &e))
                continue;
            struct client c = {0};
            en = open_engine(models[m], ways[i].threads, ways[i].isa);
            make(en, &c, 2, 11, 1);
            same_blob(&first, &c);
            client_done(&c);
            engine_close(en);
        }
        client_done(&first);
    }
}

enum { NUMBERS = 5 * sizeof(double), PICTURE = 72 * 40 * 3 + 72 * 40 / 16 * sizeof(float) };

// Picture k in the blob of n without previews: a number for the first progress; then for each picture one for each step, one
// for the event and one for its kind, and its bytes and latents.
static const char *part(const struct client *c, int n, int k)
{
    assert_int_equal(c->blob.len, sizeof(double) + (size_t)n * (NUMBERS + PICTURE));
    return c->blob.data + sizeof(double) + (size_t)k * (NUMBERS + PICTURE) + NUMBERS;
}

static void IMG_04_picture_k_alone(void **state)
{
    (void)state;
    struct engine *en = open_engine("tiny-sd1", 2, NULL);
    struct client batch = {0};
    make(en, &batch, 4, 7, 0);
    for (int k = 0; k < 4; k++) {
        struct client one = {0};
        make(en, &one, 1, 7 + (uint64_t)k, 0);
        assert_memory_equal(part(&batch, 4, k), part(&one, 1, 0), PICTURE);
        client_done(&one);
        for (int other = 0; other < k; other++)  // IMG-05
            assert_memory_not_equal(part(&batch, 4, k), part(&batch, 4, other), PICTURE);
    }
    client_done(&batch);
    engine_close(en);
}

static void beside_others(void **state)
{
    (void)state;
    struct engine *en = open_engine("tiny-sd2", 2, NULL);
    struct client alone = {0}, many[6] = {0};
    make(en, &alone, 1, 3, 2);
    err e = {0};
    for (int i = 0; i < 6; i++) {
        struct task *t = new_task("a cat on the moon", 72, 40, 1, i % 2 ? 3 : 100 + (uint64_t)i);
        t->image.partial_images = 2;
        t->image.raw = true;
        assert_true(client_submit(&many[i], en, t, &e));
    }
    for (int i = 0; i < 6; i++) {
        client_wait(&many[i]);
        assert_int_equal(many[i].error.code, ERR_OK);
        if (i % 2)
            same_blob(&alone, &many[i]);
        client_done(&many[i]);
    }
    client_done(&alone);
    engine_close(en);
}

static void cancel_at_every_event(void **state)
{
    (void)state;
    struct engine *en = open_engine("tiny-sd1", 2, NULL);
    for (int at = 0; at < 12; at++) {
        struct client c = {.cancel_on = en, .cancel_at = at};
        struct task *t = new_task("a cat", 16, 16, 2, 1);
        t->image.partial_images = 1;
        err e = {0};
        assert_true(client_submit(&c, en, t, &e));
        client_wait(&c);
        assert_int_equal(c.ends, 1);
        assert_true(c.error.code == ERR_CANCELLED || (at >= 11 && !c.error.code));
        client_done(&c);
    }
    assert_true(engine_check(en, true));
    struct engine_stats stats;
    engine_stats(en, &stats);
    assert_int_equal(stats.running + stats.waiting, 0);
    engine_close(en);
}

// ---- what is refused, and how

static void refusals_name_what_is_wrong(void **state)
{
    (void)state;
    struct engine *en = open_engine("tiny-sd1", 1, NULL);
    client_refused(en, new_task("x", 513, 512, 1, 0), ERR_INVALID, "size", "512 or 520");
    client_refused(en, new_task("x", 64, 20, 1, 0), ERR_INVALID, "size", "16 or 24");
    client_refused(en, new_task("x", 0, 64, 1, 0), ERR_INVALID, "size", "multiple of 8");
    client_refused(en, new_task("x", 64, -64, 1, 0), ERR_INVALID, "size", "multiple of 8");
    client_refused(en, new_task("x", 1 << 20, 1 << 20, 1, 0), ERR_INVALID, "size", "limit of 16384");
    client_refused(en, new_task("x", 128, 136, 1, 0), ERR_INVALID, "size", "limit of 16384");
    client_refused(en, new_task("x", 64, 64, 0, 0), ERR_INVALID, "n", "1 to");
    struct task *t = new_task("x", 64, 64, 1, 0);
    t->image.steps = 1001;
    client_refused(en, t, ERR_INVALID, "steps", "1 to 1000");
    t = new_task("x", 64, 64, 1, 0);
    t->image.scheduler = "HeunDiscreteScheduler";
    client_refused(en, t, ERR_UNSUPPORTED, "scheduler", "DPMSolverMultistepScheduler");
    t = new_task("x", 64, 64, 1, 0);
    t->image.guidance = NAN;
    client_refused(en, t, ERR_INVALID, "guidance_scale", "number");
    t = new_task("\xFF", 64, 64, 1, 0);
    client_refused(en, t, ERR_INVALID, "prompt", "UTF-8");
    engine_close(en);
}

// IMG-09: values that are no numbers are an error, never a picture.
static void no_numbers_no_picture(void **state)
{
    (void)state;
    struct engine *en = open_engine("tiny-sd1", 2, NULL);
    float latents[4 * 2 * 2];
    for (int i = 0; i < 16; i++)
        latents[i] = i == 5 ? NAN : 0.5f;
    struct task *t = new_task("x", 16, 16, 1, 0);
    t->image.latents = latents;
    struct client c = {0};
    run(&c, en, t);
    assert_int_equal(c.error.code, ERR_INTERNAL);
    assert_non_null(strstr(c.error.text, "no numbers"));
    client_done(&c);
    engine_close(en);
}

// Cut to 77 with the end token kept, filled up with the pad token of each version; what was cut is counted.
static void prompts_as_transformers(void **state)
{
    (void)state;
    json_t *root = json_load_file(FOLDER "tokenizer.json", JSON_ALLOW_NUL, NULL), *c;
    const struct cpu_ops *ops;
    struct model *models[2];
    err e = {0};
    size_t i, checked = 0;
    assert_int_equal(cpu_select(NULL, &ops, &e), ERR_OK);
    for (int m = 0; m < 2; m++)
        if (model_open(m ? FOLDER "tiny-sd2" : FOLDER "tiny-sd1", &(struct model_options){0}, ops, &models[m], &e))
            fail_msg("%s", e.text);
    json_array_foreach (json_object_get(root, "cases"), i, c) {
        const json_t *want = json_object_get(c, "padded");
        int32_t ids[77];
        int tokens, dropped, second = !strcmp(json_string_value(json_object_get(c, "model")), "tiny-sd2");
        if (!want)
            continue;
        const char *text = json_string_value(json_object_get(c, "text"));
        assert_int_equal(pipeline_encode(models[second]->impl, text, ids, &tokens, &dropped, &e), ERR_OK);
        for (size_t k = 0; k < 77; k++)
            if (ids[k] != json_integer_value(json_array_get(want, k)))
                fail_msg("%.60s: id %zu is %d", text, k, ids[k]);
        assert_int_equal(dropped > 0, strlen(text) > 100);
        assert_in_range(tokens, 2, 77);
        checked++;
    }
    assert_int_equal(checked, 12);
    model_close(models[0]);
    model_close(models[1]);
    json_decref(root);
}

static void describes_itself(void **state)
{
    (void)state;
    struct engine *en = open_engine("tiny-sd2", 1, NULL);
    struct model_info i;
    assert_true(engine_find_model(en, "m", &i));
    assert_int_equal(i.can, CAN_IMAGE);
    assert_int_equal(i.image_size, 96);
    assert_int_equal(i.image_steps, 25);
    assert_string_equal(i.family, "sd");
    assert_true(i.weight_bytes > 1000000);
    engine_close(en);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(as_diffusers),          cmocka_unit_test(same_bits_on_any_machine),
        cmocka_unit_test(IMG_04_picture_k_alone), cmocka_unit_test(beside_others),
        cmocka_unit_test(cancel_at_every_event), cmocka_unit_test(refusals_name_what_is_wrong),
        cmocka_unit_test(no_numbers_no_picture), cmocka_unit_test(describes_itself),
        cmocka_unit_test(prompts_as_transformers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
