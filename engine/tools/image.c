// image.c - the offline command image-check: one picture from given noise, for comparing with a reference. It goes
// through the engine's door like any request, on a thread of its own engine; the calling thread waits for the events.
#include <errno.h>
#include <jansson.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/file.h"
#include "base/mem.h"
#include "engine/engine.h"
#include "engine/tools.h"
#include "engine/weights/jsonfile.h"

enum { PATH_ROOM = 4096, SIDE_MAX = 1 << 14, FILE_MAX = 1 << 30 };

struct check {
    const char *case_path, *folder;  // where results go
    json_t *json;
    float *latents, *noise;
    size_t nlatents, nnoise;
    int width, height, steps;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool ended;
    err error;
};

// ---- the case

static err_code need_text(const json_t *j, const char *key, const char *fallback, const char **ret_text, err *e)
{
    const json_t *v = json_object_get(j, key);
    if ((!v || json_is_null(v)) && fallback) {
        *ret_text = *fallback ? fallback : NULL;
        return ERR_OK;
    }
    if (!json_is_string(v))
        return err_set_param(e, ERR_INVALID, key, "the case's '%s' is %s, expected text", key, v ? "no text" : "missing");
    *ret_text = json_string_value(v);
    return ERR_OK;
}

static err_code read_int(const json_t *j, const char *key, int fallback, int *ret_value, err *e)
{
    const json_t *v = json_object_get(j, key);
    *ret_value = fallback;
    if (!v || json_is_null(v))
        return ERR_OK;
    if (!json_is_integer(v) || json_integer_value(v) < 1 || json_integer_value(v) > SIDE_MAX)
        return err_set_param(e, ERR_INVALID, key, "the case's '%s' is no integer from 1 to %d", key, SIDE_MAX);
    *ret_value = (int)json_integer_value(v);
    return ERR_OK;
}

// A relative name counts from the case's folder, else from where the command was started.
static err_code find_file(const struct check *c, const char *name, char *path, err *e)
{
    const char *slash = strrchr(c->case_path, '/');
    int n = slash && name[0] != '/' ? snprintf(path, PATH_ROOM, "%.*s/%s", (int)(slash - c->case_path), c->case_path, name)
                                    : snprintf(path, PATH_ROOM, "%s", name);
    if (n >= PATH_ROOM)
        return err_set(e, ERR_INVALID, "the path of '%.60s' is longer than %d bytes", name, PATH_ROOM - 1);
    if (!file_exists(path))
        snprintf(path, PATH_ROOM, "%s", name);
    return ERR_OK;
}

// f32 little-endian; *ret_values NULL when the case does not name the file.
static err_code read_floats(const struct check *c, const char *key, float **ret_values, size_t *ret_count, err *e)
{
    const char *name;
    char path[PATH_ROOM], *text;
    size_t len;
    err_code code = need_text(c->json, key, "", &name, e);
    if (code || !name)
        return code;
    code = find_file(c, name, path, e);
    if (!code)
        code = file_read(path, FILE_MAX, &text, &len, e);
    if (code)
        return code;
    *ret_values = (float *)(void *)text;
    *ret_count = len / sizeof(float);
    if (len % sizeof(float))
        return err_set_param(e, ERR_INVALID, key, "'%s' has %zu bytes, expected f32 numbers", path, len);
    return ERR_OK;
}

static err_code check_count(const char *key, size_t found, size_t expected, err *e)
{
    if (found == expected)
        return ERR_OK;
    return err_set_param(e, ERR_INVALID, key, "'%s' holds %zu numbers, expected %zu", key, found, expected);
}

static err_code read_case(struct check *c, const struct model_info *info, err *e)
{
    const json_t *j = c->json;
    if (json_array_size(json_object_get(j, "loras")))
        return err_set_param(e, ERR_UNSUPPORTED, "loras", "loras: adapters of image models are not built");
    err_code code = read_int(j, "width", info->image_size, &c->width, e);
    if (!code)
        code = read_int(j, "height", info->image_size, &c->height, e);
    if (!code)
        code = read_int(j, "steps", info->image_steps, &c->steps, e);
    if (!code)
        code = read_floats(c, "latents_in", &c->latents, &c->nlatents, e);
    if (!code)
        code = read_floats(c, "step_noise", &c->noise, &c->nnoise, e);
    if (!code && !c->latents)
        code = err_set_param(e, ERR_INVALID, "latents_in", "the case's 'latents_in' is missing");
    int factor = info->image_factor;
    size_t count = (size_t)info->image_channels * (size_t)(c->width / factor) * (size_t)(c->height / factor);
    if (!code)
        code = check_count("latents_in", c->nlatents, count, e);
    if (!code && c->noise)
        code = check_count("step_noise", c->nnoise, count * (size_t)c->steps, e);
    return code;
}

static err_code fill_task(const struct check *c, struct task *t, err *e)
{
    const json_t *j = c->json, *guidance = json_object_get(j, "guidance_scale");
    const json_t *config = json_object_get(j, "scheduler_config");
    struct image *i = &t->image;
    err_code code = need_text(j, "prompt", NULL, &i->prompt, e);
    if (!code)
        code = need_text(j, "negative_prompt", "", &i->negative_prompt, e);
    if (!code)
        code = need_text(j, "scheduler", "", &i->scheduler, e);
    if (code)
        return code;
    if (guidance && !json_is_null(guidance) && !(json_is_number(guidance) && json_number_value(guidance) >= 0))
        return err_set_param(e, ERR_INVALID, "guidance_scale", "the case's 'guidance_scale' is no number from 0 up");
    if (json_is_number(guidance))
        i->guidance = (float)json_number_value(guidance);
    if (config && !json_is_null(config) && !json_is_object(config))
        return err_set_param(e, ERR_INVALID, "scheduler_config", "the case's 'scheduler_config' is no object");
    i->scheduler_config = json_is_object(config) ? (json_t *)config : NULL;
    i->width = c->width;
    i->height = c->height;
    i->steps = c->steps;
    i->latents = c->latents;
    i->step_noise = c->noise;
    i->raw = true;
    return ERR_OK;
}

// ---- results

static err_code write_floats(const char *folder, const char *name, const float *values, size_t n, err *e)
{
    char path[PATH_ROOM];
    if (snprintf(path, sizeof path, "%s/%s", folder, name) >= PATH_ROOM)
        return err_set(e, ERR_INVALID, "the path of '%s' is longer than %d bytes", name, PATH_ROOM - 1);
    FILE *f = fopen(path, "wb");
    bool ok = f && fwrite(values, sizeof *values, n, f) == n;
    ok = f && fclose(f) == 0 && ok;
    return ok ? ERR_OK : err_set(e, ERR_IO, "cannot write '%s': %s", path, strerror(errno));
}

// On an engine thread; nobody else is served, so it may write files.
static void on_event(struct task *t, const struct event *ev)
{
    struct check *c = t->ud;
    if (ev->kind == EVENT_IMAGE && ev->picture->partial < 0) {
        const struct picture *p = ev->picture;
        size_t pixels = (size_t)p->width * (size_t)p->height;
        if (!write_floats(c->folder, "latents_out.bin", p->latents, p->nlatents, &c->error))
            (void)!write_floats(c->folder, "image.bin", p->pixels, 3 * pixels, &c->error);
    }
    if (ev->kind != EVENT_END)
        return;
    pthread_mutex_lock(&c->lock);
    if (!c->error.code)
        c->error = ev->error;
    c->ended = true;
    pthread_cond_signal(&c->changed);
    pthread_mutex_unlock(&c->lock);
}

static err_code run_task(struct check *c, struct engine *en, err *e)
{
    struct task *t = task_new(TASK_IMAGE);
    struct ticket ticket;
    t->model = "model";
    t->on_event = on_event;
    t->ud = c;
    err_code code = fill_task(c, t, e);
    if (!code)
        code = engine_submit(en, t, &ticket, e);
    if (code) {
        task_free(t);
        return code;
    }
    pthread_mutex_lock(&c->lock);
    while (!c->ended)
        pthread_cond_wait(&c->changed, &c->lock);
    pthread_mutex_unlock(&c->lock);
    *e = c->error;
    return e->code;
}

static err_code run_engine(struct check *c, const struct tools_model *m, err *e)
{
    struct engine_config ec = {.threads = m->threads, .isa = m->isa, .pin = true, .max_waiting = 1, .max_running = 1};
    struct model_config mc = {.name = "model", .path = m->path, .activations = m->activations, .kv = m->kv,
                              .max_image_pixels = (size_t)SIDE_MAX * SIDE_MAX};
    struct engine *en = NULL;
    struct model_info info;
    err_code code = engine_open(&ec, &en, e);
    if (!code)
        code = engine_add_model(en, &mc, e);
    if (!code)
        code = engine_wait_model(en, "model", e);
    if (!code && !engine_find_model(en, "model", &info))
        code = err_set(e, ERR_INTERNAL, "the model is not there");
    if (!code && !(info.can & CAN_IMAGE))
        code = err_set(e, ERR_UNSUPPORTED, "'%s' makes no pictures", m->path);
    if (!code)
        code = read_case(c, &info, e);
    if (!code)
        code = run_task(c, en, e);
    engine_close(en);
    return code;
}

err_code tools_image_check(const struct tools_model *m, const char *case_path, const char *folder, err *e)
{
    struct check c = {.case_path = case_path, .folder = folder};
    err_code code = jsonfile_read(case_path, JSONFILE_LENIENT, &c.json, e);
    if (!code && mkdir(folder, 0777) && errno != EEXIST)
        code = err_set(e, ERR_IO, "cannot make the folder '%s': %s", folder, strerror(errno));
    pthread_mutex_init(&c.lock, NULL);
    pthread_cond_init(&c.changed, NULL);
    if (!code)
        code = run_engine(&c, m, e);
    pthread_cond_destroy(&c.changed);
    pthread_mutex_destroy(&c.lock);
    free(c.latents);
    free(c.noise);
    json_decref(c.json);
    return code;
}
