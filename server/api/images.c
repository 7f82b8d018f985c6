// images.c - POST /v1/images/generations: its fields into a task; GET /v1/images/files/{id}: a picture that was asked for
// as a URL. Loop thread; what happens to the task is drawing.c's.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "server/api/caller.h"
#include "server/api/drawing.h"
#include "server/api/fields.h"
#include "server/api/handlers.h"
#include "server/api/models.h"
#include "server/keep.h"
#include "server/request.h"
#include "server/server.h"

enum { SIDE_MAX = 65536, DEFAULT_SIDE = 512 };

static const struct field known[] = {
    {"model", FIELD_HONOURED, "string"},
    {"prompt", FIELD_HONOURED, "!string"},
    {"n", FIELD_HONOURED, "integer 1.." FIELD_TEXT(API_PICTURES_MAX)},
    {"size", FIELD_HONOURED, "string"},
    {"quality", FIELD_HONOURED, "string"},
    {"response_format", FIELD_HONOURED, "string: b64_json url"},
    {"output_format", FIELD_HONOURED, "string: png jpeg webp"},
    {"output_compression", FIELD_HONOURED, "integer 0..100"},
    {"background", FIELD_HONOURED, "string: auto opaque"},
    {"stream", FIELD_HONOURED, "boolean"},
    {"partial_images", FIELD_HONOURED, "integer 0..3"},

    {"negative_prompt", FIELD_HONOURED, "string"},
    {"seed", FIELD_HONOURED, "integer -1.."},
    {"steps", FIELD_HONOURED, "integer 1..1000"},
    {"guidance_scale", FIELD_HONOURED, "number 0..1000"},
    {"scheduler", FIELD_HONOURED, "string"},
    {"progress", FIELD_HONOURED, "boolean"},

    {"user", FIELD_ACCEPTED, 0},
    {"safety_identifier", FIELD_ACCEPTED, 0},
    {"moderation", FIELD_ACCEPTED, 0},
    {"style", FIELD_ACCEPTED, 0},

    // Extensions of other servers that would change the picture.
    {"cfg_scale", FIELD_REFUSED, NEUTRAL_NULL},
    {"num_inference_steps", FIELD_REFUSED, NEUTRAL_NULL},
    {"sample_method", FIELD_REFUSED, NEUTRAL_NULL},
    {"sampler", FIELD_REFUSED, NEUTRAL_NULL},
    {"sampler_name", FIELD_REFUSED, NEUTRAL_NULL},
    {"clip_skip", FIELD_REFUSED, NEUTRAL_ZERO},
    {"lora", FIELD_REFUSED, NEUTRAL_EMPTY},
    {"loras", FIELD_REFUSED, NEUTRAL_EMPTY},
};
API_BODY(api_images_create, known, caller);

// Steps of a quality, in fifths of the model's own number.
static const struct {
    const char *name, *shown;
    int fifths;
} qualities[] = {
    {"auto", "medium", 5}, {"medium", "medium", 5}, {"standard", "medium", 5}, {"low", "low", 3},
    {"high", "high", 8},   {"hd", "high", 8},       {"xhigh", "xhigh", 10},   {"max", "max", 15},
};

// ---- fields

static void unsupported(struct fields *f, const char *name, const char *value, const char *expected)
{
    api_fields_fail(f, "invalid_value", name, "Invalid value: '%.40s'. Supported values of '%s' are: %s.", value, name,
                    expected);
}

static void read_texts(struct fields *f, struct drawing *d)
{
    struct image *i = &d->task->image;
    struct arena *a = &d->task->arena;
    const char *text;
    if (!api_fields_missing(f, "prompt") && api_fields_string(f, "prompt", &text))
        i->prompt = arena_strdup(a, text);
    if (api_fields_string(f, "negative_prompt", &text))
        i->negative_prompt = arena_strdup(a, text);
    if (api_fields_string(f, "scheduler", &text))
        i->scheduler = arena_strdup(a, text);
}

// Digits of a side, without sign or leading zero; 0: there are none.
static int read_side(const char **at)
{
    int v = 0, digits = 0;
    for (; **at >= '0' && **at <= '9' && digits < 6; (*at)++, digits++) {
        if (digits == 1 && v == 0)
            return 0;
        v = v * 10 + (**at - '0');
    }
    return v <= SIDE_MAX ? v : 0;
}

static void read_size(struct fields *f, struct drawing *d, const struct model_info *m)
{
    struct image *i = &d->task->image;
    const char *text = "auto", *at;
    i->width = i->height = m->image_size > 0 ? m->image_size : DEFAULT_SIDE;
    api_fields_string(f, "size", &text);
    if (strcmp(text, "auto") != 0) {
        at = text;
        i->width = read_side(&at);
        bool cross = *at == 'x';
        at += cross;
        i->height = read_side(&at);
        if (!cross || *at || !i->width || !i->height)
            api_fields_fail(f, "invalid_value", "size",
                            "Invalid 'size': '%.40s'. Expected WIDTHxHEIGHT in pixels such as 512x768, or auto.", text);
    }
    snprintf(d->size, sizeof d->size, "%dx%d", i->width, i->height);
    int factor = m->image_factor > 0 ? m->image_factor : 8;
    d->latents = (i->width / factor) * (i->height / factor);
}

static void read_steps(struct fields *f, struct drawing *d, const struct model_info *m)
{
    const char *text = "auto";
    size_t k = 0, n = sizeof qualities / sizeof *qualities;
    api_fields_string(f, "quality", &text);
    while (k < n && strcmp(qualities[k].name, text) != 0)
        k++;
    if (k == n) {
        unsupported(f, "quality", text, "low, medium, high, xhigh, max, auto, standard and hd");
        return;
    }
    d->quality = qualities[k].shown;
    int own = m->image_steps * qualities[k].fifths / 5;
    d->task->image.steps = own > 0 ? own : m->image_steps;
    api_fields_small(f, "steps", &d->task->image.steps);
}

static void read_output(struct fields *f, struct drawing *d)
{
    const char *text;
    if (api_fields_string(f, "output_format", &text) && !image_write_find(text, &d->format))
        unsupported(f, "output_format", text, "png, jpeg and webp");
    api_fields_small(f, "output_compression", &d->compression);
    if (!api_fields_string(f, "background", &text) || !strcmp(text, "opaque") || !strcmp(text, "auto"))
        return;
    if (!strcmp(text, "transparent"))
        api_fields_fail(f, "unsupported_value", "background",
                        "Unsupported value: 'background' does not support 'transparent' with this model.");
    else
        unsupported(f, "background", text, "opaque and auto");
}

static void read_stream(struct fields *f, struct drawing *d)
{
    int partials = 0, n = 1;
    api_fields_bool(f, "stream", &d->stream);
    api_fields_bool(f, "progress", &d->progress);
    api_fields_small(f, "n", &n);
    api_fields_small(f, "partial_images", &partials);
    d->n = d->task->image.n = n;
    d->task->image.partial_images = d->stream ? partials : 0;
    if (d->stream && n != 1)
        api_fields_fail(f, "invalid_value", "n", "Invalid 'n': with 'stream' only one picture can be made.");
}

static void read_numbers(struct fields *f, struct drawing *d)
{
    struct image *i = &d->task->image;
    int64_t seed = -1;
    api_fields_float(f, "guidance_scale", &i->guidance);
    api_fields_int(f, "seed", &seed);
    i->seed = seed < 0 ? rng_os() >> 11 : (uint64_t)seed;  // one that JavaScript can hold, since it is told
    d->seed = i->seed;
}

// Where the client found this server. Host was checked before.
static const char *base_url(struct request *r)
{
    const char *host = request_header(r, "Host"), *proto = request_header(r, "X-Forwarded-Proto");
    char own[256];
    if (host && strlen(host) < 300)
        return arena_printf(&r->arena, "%s://%s", r->secure || (proto && !strcmp(proto, "https")) ? "https" : "http", host);
    if (!server_address(r->server, 0, own, sizeof own) || strncmp(own, "http", 4) != 0)
        return "http://localhost";
    return arena_strdup(&r->arena, own);
}

// Room for pictures that do not compress at all.
static void reserve(struct fields *f, struct drawing *d)
{
    struct keep *k = server_keep(d->r->server);
    const struct image *i = &d->task->image;
    if (!k) {
        api_fields_fail(f, "unsupported_value", "response_format",
                        "Unsupported value: 'url' is switched off on this server; use b64_json.");
        return;
    }
    size_t bytes = ((size_t)i->width * (size_t)i->height * 4 + 65536) * (size_t)d->n;
    if (f->failed)
        return;
    if (!keep_reserve(k, (size_t)d->n, bytes)) {
        api_fields_fail_status(f, 503, "server_is_overloaded", "response_format",
                               "There is no room for more pictures that can be fetched; they are kept for %d s. Use b64_json.",
                               keep_ttl_s(k));
        return;
    }
    d->keep = keep_ref(k);
    d->reserved = bytes;
    d->base_url = base_url(d->r);
}

static void read_response(struct fields *f, struct drawing *d)
{
    const char *text = "b64_json";
    api_fields_string(f, "response_format", &text);
    d->url = !strcmp(text, "url");
    if (!d->url && strcmp(text, "b64_json") != 0)
        unsupported(f, "response_format", text, "b64_json and url");
    else if (d->url && d->stream)
        api_fields_fail(f, "unsupported_value", "response_format",
                        "Unsupported value: 'response_format' does not support 'url' with 'stream'.");
    else if (d->url)
        reserve(f, d);
}

void api_images_create(struct request *r)
{
    struct fields f;
    struct model_info model = {0};
    api_fields_init(&f, r);
    api_fields_check(&f, &api_images_create_body);
    struct drawing *d = api_drawing_new(r);
    if (api_models_find(&f, CAN_IMAGE, &model)) {
        d->task->model = arena_strdup(&d->task->arena, model.name);
        read_texts(&f, d);
        read_size(&f, d, &model);
        read_steps(&f, d, &model);
        read_output(&f, d);
        read_stream(&f, d);
        read_numbers(&f, d);
        read_response(&f, d);
        struct api_caller caller;
        api_caller_read(&caller, &f);
        api_caller_fill(&caller, d->task);
    }
    if (f.failed) {
        api_drawing_free(d);
        api_fields_reply(&f);
    } else {
        api_drawing_start(d);
    }
}

void api_images_file(struct request *r)
{
    struct keep *k = server_keep(r->server);
    const char *type;
    void *data;
    size_t len;
    if (!k || !keep_find(k, r->tail, &type, &data, &len)) {
        err e;
        err_set(&e, ERR_NOT_FOUND, "There is no picture '%.50s' (any more).", r->tail);
        reply_problem(r, 404, "invalid_request_error", NULL, &e);
        return;
    }
    request_set_header(r, "cache-control", "private, max-age=300");
    reply_text(r, 200, type, data, len);
    free(data);
}
