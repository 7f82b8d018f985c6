// Opening pipelines: what is wrong with a folder is named. The folders here are the tiny pipeline with something changed.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "engine/family/family.h"
#include "engine/image/pipeline.h"
#include "engine/model.h"
#include "kernels/cpu.h"

#define TINY "tests/fixtures/sd/tiny-sd1"

static const char *const parts[] = {"text_encoder", "unet", "vae", "tokenizer", "scheduler"};
static char folder[64];

static const char *in_folder(const char *name)
{
    static char path[256];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return path;
}

// The tiny pipeline by links, its model_index.json a copy.
static int set_up(void **state)
{
    (void)state;
    char cwd[2048], target[2200];
    snprintf(folder, sizeof folder, "/tmp/oxinferd-sd-XXXXXX");
    if (!mkdtemp(folder) || !getcwd(cwd, sizeof cwd))
        return -1;
    for (size_t i = 0; i < 5; i++) {
        snprintf(target, sizeof target, "%s/" TINY "/%s", cwd, parts[i]);
        if (symlink(target, in_folder(parts[i])))
            return -1;
    }
    json_t *index = json_load_file(TINY "/model_index.json", 0, NULL);
    int rc = json_dump_file(index, in_folder("model_index.json"), 0);
    json_decref(index);
    return rc;
}

static int tear_down(void **state)
{
    (void)state;
    for (size_t i = 0; i < 5; i++) {
        if (!unlink(in_folder(parts[i])))
            continue;  // a link; what it leads to stays
        unlink(in_folder("scheduler/scheduler_config.json"));
        rmdir(in_folder(parts[i]));
    }
    unlink(in_folder("model_index.json"));
    return rmdir(folder);
}

static err_code open_folder(struct model **ret_model, err *e)
{
    const struct cpu_ops *ops;
    *e = (err){0};
    err_code code = cpu_select(NULL, &ops, e);
    return code ? code : model_open(folder, &(struct model_options){.load_threads = 1}, ops, ret_model, e);
}

static void bad(err_code code, const char *text)
{
    struct model *m;
    err e;
    err_code got = open_folder(&m, &e);
    if (got != code || !strstr(e.text, text))
        fail_msg("%d: %s; expected %d: %s", got, e.text, code, text);
}

// Sets a component of model_index.json; class NULL takes it away.
static void set_component(const char *name, const char *library, const char *class)
{
    json_t *index = json_load_file(in_folder("model_index.json"), 0, NULL);
    if (class)
        json_object_set_new(index, name, json_pack("[s, s]", library, class));
    else
        json_object_del(index, name);
    assert_int_equal(json_dump_file(index, in_folder("model_index.json"), 0), 0);
    json_decref(index);
}

static void defaults(void **state)
{
    (void)state;
    struct model *m;
    err e;
    assert_int_equal(open_folder(&m, &e), ERR_OK);
    const struct pipeline *p = m->impl;
    assert_int_equal(p->steps, 25);
    assert_true(p->guidance == 7.5f);
    assert_int_equal(p->max_pixels, 1024 * 1024);
    assert_int_equal(model_can(m), CAN_IMAGE);
    assert_non_null(m->tokenizer);
    assert_true(m->resident_bytes > 0);
    assert_true(m->family->image->work_bytes(m) > 3 * p->max_pixels);
    model_close(m);
}

static void turbo_by_name(void **state)
{
    (void)state;
    struct model *m;
    err e;
    json_t *index = json_load_file(in_folder("model_index.json"), 0, NULL);
    json_object_set_new(index, "_name_or_path", json_string("stabilityai/SD-Turbo"));
    assert_int_equal(json_dump_file(index, in_folder("model_index.json"), 0), 0);
    json_decref(index);
    assert_int_equal(open_folder(&m, &e), ERR_OK);
    const struct pipeline *p = m->impl;
    assert_int_equal(p->steps, 1);
    assert_true(p->guidance == 0);
    model_close(m);
}

static void components(void **state)
{
    (void)state;
    struct model *m;
    err e;
    set_component("safety_checker", "stable_diffusion", "StableDiffusionSafetyChecker");  // ignored
    set_component("feature_extractor", "transformers", "CLIPImageProcessor");
    assert_int_equal(open_folder(&m, &e), ERR_OK);
    model_close(m);
    set_component("text_encoder_2", "transformers", "CLIPTextModelWithProjection");
    bad(ERR_UNSUPPORTED, "component 'text_encoder_2' (CLIPTextModelWithProjection), which is not built");
    set_component("text_encoder_2", NULL, NULL);
    set_component("unet", "diffusers", "UNet3DConditionModel");
    bad(ERR_UNSUPPORTED, "'unet' is a UNet3DConditionModel, built is UNet2DConditionModel");
    set_component("unet", NULL, NULL);
    bad(ERR_CORRUPT, "no component 'unet'");
    set_component("_class_name", "x", "y");
    bad(ERR_UNSUPPORTED, "known are");
}

static void missing_parts(void **state)
{
    (void)state;
    static const char *const texts[] = {"/text_encoder' is missing", "/unet' is missing", "/vae' is missing",
                                        "/tokenizer' is missing", "/scheduler_config.json' is missing"};
    for (size_t i = 0; i < 5; i++) {
        char away[300], path[256];
        snprintf(path, sizeof path, "%s", in_folder(parts[i]));
        snprintf(away, sizeof away, "%s.away", path);
        assert_int_equal(rename(path, away), 0);
        bad(ERR_NOT_FOUND, texts[i]);
        assert_int_equal(rename(away, path), 0);
    }
}

// A scheduler that is not built is an error of those who use it, not of the model.
static void foreign_scheduler(void **state)
{
    (void)state;
    struct model *m;
    err e;
    assert_int_equal(unlink(in_folder("scheduler")), 0);
    assert_int_equal(mkdir(in_folder("scheduler"), 0700), 0);
    json_t *config = json_pack("{s:s}", "_class_name", "LCMScheduler");
    assert_int_equal(json_dump_file(config, in_folder("scheduler/scheduler_config.json"), 0), 0);
    json_decref(config);
    assert_int_equal(open_folder(&m, &e), ERR_OK);
    struct task t = {.kind = TASK_IMAGE, .image = {.prompt = "x", .width = 8, .height = 8, .n = 1, .guidance = -1}};
    assert_int_equal(m->family->image->check(m, &t, &e), ERR_UNSUPPORTED);
    assert_non_null(strstr(e.text, "'LCMScheduler' is not built; built are EulerDiscreteScheduler"));
    t.image.scheduler = "DDIMScheduler";
    assert_int_equal(m->family->image->check(m, &t, &e), ERR_OK);
    model_close(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(defaults, set_up, tear_down),
        cmocka_unit_test_setup_teardown(turbo_by_name, set_up, tear_down),
        cmocka_unit_test_setup_teardown(components, set_up, tear_down),
        cmocka_unit_test_setup_teardown(missing_parts, set_up, tear_down),
        cmocka_unit_test_setup_teardown(foreign_scheduler, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
