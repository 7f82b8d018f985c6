// sd.c - Stable Diffusion 1.x, 2.x and Turbo: a diffusers pipeline folder (model_index.json).
//
//   text_encoder/  CLIP, last hidden state          unet/  noise prediction            vae/  decoder
//   tokenizer/     CLIP BPE                         scheduler/  scheduler_config.json
//
// Unusual: the model's folder has no weights of its own, each network is a part. Guidance and steps are no part of the
// files: 7.5 and 25, and for Turbo models, which are known by their name only, none and 1. The safety checker and what
// feeds it are not loaded. Version 2 fills short prompts up with "!" instead of the end token; its tokenizer's files say so.
#include <ctype.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/mem.h"
#include "engine/family/family.h"
#include "engine/image/pipeline.h"
#include "engine/image/schedule.h"
#include "engine/model.h"
#include "engine/tokenizer/tokenizer.h"
#include "engine/weights/jsonfile.h"

enum { PIXELS = 1024 * 1024, STEPS = 25, TURBO_STEPS = 1, PATH_ROOM = 4096 };

static const char *const archs[] = {"StableDiffusionPipeline", NULL};

struct sd {
    struct pipeline pipeline;  // first: pipeline.h
};

// ---- model_index.json

static const struct component {
    const char *name, *class;  // class NULL: not used, whatever it is
} components[] = {
    {"text_encoder", "CLIPTextModel"}, {"unet", "UNet2DConditionModel"}, {"vae", "AutoencoderKL"},
    {"tokenizer", "CLIPTokenizer"},    {"scheduler", ""},                {"safety_checker", NULL},
    {"feature_extractor", NULL},       {"image_encoder", NULL},
};

static const struct component *component(const char *name)
{
    for (size_t i = 0; i < sizeof components / sizeof *components; i++)
        if (strcmp(components[i].name, name) == 0)
            return &components[i];
    return NULL;
}

static const char *class_of(const json_t *index, const char *name)
{
    const char *class = json_string_value(json_array_get(json_object_get(index, name), 1));
    return class ? class : "";
}

// Everything the pipeline has must be something that is built; everything that is needed must be there.
static err_code check_index(const struct model *m, const json_t *index, err *e)
{
    const char *name;
    json_t *value;
    json_object_foreach((json_t *)index, name, value) {
        if (name[0] != '_' && json_is_array(value) && *class_of(index, name) && !component(name))
            return err_set_param(e, ERR_UNSUPPORTED, name,
                                 "%s: model_index.json has a component '%.40s' (%.60s), which is not built", m->path, name,
                                 class_of(index, name));
    }
    for (size_t i = 0; i < sizeof components / sizeof *components; i++) {
        const struct component *c = &components[i];
        const char *class = class_of(index, c->name);
        if (!c->class)
            continue;
        if (!*class)
            return err_set_param(e, ERR_CORRUPT, c->name, "%s: model_index.json has no component '%s'", m->path, c->name);
        if (strncmp(class, c->class, strlen(c->class)) != 0)
            return err_set_param(e, ERR_UNSUPPORTED, c->name,
                                 "%s: model_index.json: '%s' is a %.60s, built is %s", m->path, c->name, class, c->class);
    }
    return ERR_OK;
}

// ---- parts

static err_code part_path(const struct model *m, const char *part, char *path, err *e)
{
    if (snprintf(path, PATH_ROOM, "%s/%s", m->path, part) >= PATH_ROOM)
        return err_set(e, ERR_INVALID, "the path of '%s' is longer than %d bytes", part, PATH_ROOM - 1);
    if (!file_exists(path))
        return err_set_param(e, ERR_NOT_FOUND, part, "'%s' is missing: model_index.json names it", path);
    return ERR_OK;
}

static err_code open_part(struct model *m, const char *name, struct model_part **ret_part, err *e)
{
    char path[PATH_ROOM];
    err_code code = part_path(m, name, path, e);
    return code ? code : model_add_part(m, name, path, ret_part, e);
}

static err_code open_networks(struct model *m, struct pipeline *p, err *e)
{
    struct model_part *part;
    int threads = m->options.load_threads;
    err_code code = open_part(m, "text_encoder", &part, e);
    if (!code)
        code = clip_open(part->weights, m->ops, threads, &p->clip, &part->packed, e);
    if (!code)
        code = open_part(m, "unet", &part, e);
    if (!code)
        code = unet_open(part->weights, m->ops, threads, &p->unet, &part->packed, e);
    if (!code)
        code = open_part(m, "vae", &part, e);
    if (!code)
        code = vae_open(part->weights, m->ops, threads, &p->vae, &part->packed, e);
    return code;
}

static err_code check_networks(const struct model *m, const struct pipeline *p, err *e)
{
    const struct clip_info *c = clip_info(p->clip);
    const struct unet_info *u = unet_info(p->unet);
    const struct vae_info *v = vae_info(p->vae);
    if (u->context != c->dim)
        return err_set(e, ERR_CORRUPT, "%s: unet reads text states of %d numbers, text_encoder gives %d", m->path, u->context,
                       c->dim);
    if (u->in_channels != v->latent_channels || u->out_channels != v->latent_channels)
        return err_set(e, ERR_UNSUPPORTED, "%s: unet has %d input and %d output channels, vae %d: only equal ones are built",
                       m->path, u->in_channels, u->out_channels, v->latent_channels);
    if (v->out_channels != 3)
        return err_set(e, ERR_UNSUPPORTED, "%s: vae gives %d channels, expected 3", m->path, v->out_channels);
    if (c->positions < 3)
        return err_set(e, ERR_CORRUPT, "%s: text_encoder has %d positions, expected 3 or more", m->path, c->positions);
    return ERR_OK;
}

static err_code open_tokenizer(struct model *m, struct pipeline *p, err *e)
{
    char path[PATH_ROOM];
    err_code code = part_path(m, "tokenizer", path, e);
    if (!code)
        code = tokenizer_folder_open(path, &m->tokenizer, &p->pad, e);
    if (code)
        return code;
    p->tokenizer = m->tokenizer;
    p->bos = tokenizer_bos(m->tokenizer);
    p->eos = tokenizer_eos(m->tokenizer);
    p->pad = p->pad == TOKEN_NONE ? p->eos : p->pad;
    if (p->bos == TOKEN_NONE || p->eos == TOKEN_NONE)
        return err_set(e, ERR_CORRUPT, "%s: no begin or end token is named", path);
    int vocab = clip_info(p->clip)->vocab;
    if (tokenizer_size(m->tokenizer) > vocab)
        return err_set(e, ERR_CORRUPT, "%s has %d tokens, text_encoder %d", path, tokenizer_size(m->tokenizer), vocab);
    return ERR_OK;
}

static err_code open_scheduler(const struct model *m, struct pipeline *p, err *e)
{
    char path[PATH_ROOM];
    err_code code = part_path(m, "scheduler/scheduler_config.json", path, e);
    return code ? code : jsonfile_read(path, JSONFILE_LENIENT, &p->scheduler, e);
}

// ---- defaults

static bool has_word(const char *text, const char *word)
{
    size_t n = strlen(word);
    for (; text && *text; text++) {
        size_t i = 0;
        while (i < n && tolower((unsigned char)text[i]) == word[i])
            i++;
        if (i == n)
            return true;
    }
    return false;
}

// Whoever converted a model leaves its name in the configuration; a folder is mostly called like it.
static bool is_turbo(const struct model *m)
{
    const json_t *index = weights_config(m->weights);
    if (has_word(m->path, "turbo") || has_word(json_string_value(json_object_get(index, "_name_or_path")), "turbo"))
        return true;
    for (int i = 0; i < m->nparts; i++) {
        const json_t *config = weights_config(m->parts[i].weights);
        if (has_word(json_string_value(json_object_get(config, "_name_or_path")), "turbo"))
            return true;
    }
    return false;
}

static void set_defaults(struct model *m, struct pipeline *p)
{
    bool turbo = is_turbo(m);
    p->steps = turbo ? TURBO_STEPS : STEPS;
    p->guidance = turbo ? 0 : 7.5f;
    p->max_pixels = m->options.max_image_pixels ? m->options.max_image_pixels : PIXELS;
    m->vocab = clip_info(p->clip)->vocab;
    m->context = clip_info(p->clip)->positions;
    for (int i = 0; i < m->nparts; i++)
        m->resident_bytes += packed_bytes(m->parts[i].packed);
}

// A scheduler that cannot be made with the model's own settings is found now, not by the first who asks for a picture.
static err_code check_scheduler(const struct pipeline *p, err *e)
{
    struct schedule *s;
    err_code code = schedule_open(p->scheduler, NULL, NULL, p->steps, &s, e);
    if (!code)
        schedule_close(s);
    return code == ERR_UNSUPPORTED ? ERR_OK : code;  // a request may name another
}

// ---- the record

static err_code open(struct model *m, err *e)
{
    struct sd *sd = m->impl = mem_new(sizeof *sd);
    struct pipeline *p = &sd->pipeline;
    err_code code = check_index(m, weights_config(m->weights), e);
    if (!code)
        code = open_scheduler(m, p, e);
    if (!code)
        code = open_networks(m, p, e);
    if (!code)
        code = check_networks(m, p, e);
    if (!code)
        code = open_tokenizer(m, p, e);
    if (code)
        return code;
    set_defaults(m, p);
    return check_scheduler(p, e);
}

static void close(struct model *m)
{
    struct sd *sd = m->impl;
    if (!sd)
        return;
    clip_close(sd->pipeline.clip);
    unet_close(sd->pipeline.unet);
    vae_close(sd->pipeline.vae);
    json_decref(sd->pipeline.scheduler);
    free(sd);
}

static void describe(const struct model *m, struct model_info *ret_info)
{
    const struct pipeline *p = m->impl;
    ret_info->image_size = unet_info(p->unet)->sample_size * vae_info(p->vae)->factor;
    ret_info->image_factor = vae_info(p->vae)->factor;
    ret_info->image_channels = vae_info(p->vae)->latent_channels;
    ret_info->image_steps = p->steps;
    ret_info->weight_bytes = 0;
    for (int i = 0; i < m->nparts; i++)
        ret_info->weight_bytes += weights_bytes(m->parts[i].weights);
}

static const struct work_ops image = {
    .max_running = 1,  // two at once would each take twice as long, and twice the memory
    .check = pipeline_check,
    .prepare = pipeline_prepare,
    .work_bytes = pipeline_work_bytes,
    .begin = pipeline_begin,
    .step = pipeline_step,
    .after = pipeline_after,
    .free = pipeline_free,
};

const struct family family_sd = {
    .name = "sd", .archs = archs, .open = open, .close = close, .image = &image, .describe = describe,
};
