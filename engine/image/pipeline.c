// pipeline.c - the work of an image task. prepare runs on a prep thread, begin and after on the scheduler's, step on all
// lanes of the team; each is the only one at its time. See pipeline.h for the order of things.
#include "engine/image/pipeline.h"

#include <jansson.h>
#include <math.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/rng.h"
#include "engine/image/schedule.h"
#include "engine/model.h"
#include "engine/sched/session.h"
#include "engine/tokenizer/tokenizer.h"

enum { SPLIT = 16 };  // lanes take whole cache lines of floats

enum stage { STAGE_TEXT, STAGE_DENOISE, STAGE_PREVIEW, STAGE_DECODE };

struct picturing {
    struct work work;
    const struct pipeline *p;
    const struct image *image;
    struct schedule *schedule;
    float guidance;
    int batch;                    // 2: without and with the prompt, for guidance
    int positions, dropped, dropped_negative;
    int32_t *ids;                 // [batch][positions]

    int h, w, factor;             // of the latents; pixels a latent
    size_t elements;              // of the latents: channels * h * w
    struct net *clip, *unet, *vae;
    float *states, *floats;       // [batch][positions][context]; all that follows
    float *x, *x0, *noise;        // [elements]
    float *input, *out;           // [batch][elements]
    struct schedule_state state;
    float *pixels;                // [3][h * factor][w * factor]
    uint8_t *rgb;                 // [h * factor][w * factor][3]

    bool begun;
    enum stage stage;
    int picture, call, preview;   // next preview's number
    bool stage_done;              // lane 0 writes it, the scheduler thread reads it after the step
    atomic_bool broken;           // some value is no number
};

static struct picturing *of(struct work *w)
{
    return (struct picturing *)w;
}

static const struct pipeline *pipeline_of(const struct model *m)
{
    return m->impl;
}

// ---- random numbers

// Element k of a stream (0: the first latents; i + 1: noise of step i) of the standard normal distribution. Box and Muller:
// elements 2j and 2j + 1 share two uniform numbers.
static float normal(uint64_t seed, uint64_t stream, uint64_t k)
{
    uint64_t j = k & ~(uint64_t)1;
    double u = 1 - rng_unit(seed, stream, j), v = 2 * M_PI * rng_unit(seed, stream, j + 1);
    double r = sqrt(-2 * log(u));
    return (float)(r * (k & 1 ? sin(v) : cos(v)));
}

// ---- what a task asks for

static err_code check_side(const char *side, int value, int factor, err *e)
{
    if (value >= factor && value % factor == 0)
        return ERR_OK;
    int below = value - value % factor, above = below + factor;
    if (value < factor)
        return err_set_param(e, ERR_INVALID, "size", "the %s is %d, expected a multiple of %d from %d up", side, value,
                             factor, factor);
    return err_set_param(e, ERR_INVALID, "size", "the %s is %d, expected a multiple of %d such as %d or %d", side, value,
                         factor, below, above);
}

static err_code check_size(const struct pipeline *p, const struct image *i, err *e)
{
    int factor = vae_info(p->vae)->factor;
    err_code code = check_side("width", i->width, factor, e);
    if (!code)
        code = check_side("height", i->height, factor, e);
    if (!code && (size_t)i->width > p->max_pixels / (size_t)i->height)
        code = err_set_param(e, ERR_INVALID, "size", "%dx%d has more pixels than the limit of %zu (the setting "
                             "max_image_pixels)", i->width, i->height, p->max_pixels);
    return code;
}

static err_code open_schedule(const struct pipeline *p, const struct image *i, struct schedule **ret_schedule, err *e)
{
    int steps = i->steps ? i->steps : p->steps;
    return schedule_open(p->scheduler, i->scheduler_config, i->scheduler, steps, ret_schedule, e);
}

err_code pipeline_check(const struct model *m, const struct task *t, err *e)
{
    const struct pipeline *p = pipeline_of(m);
    const struct image *i = &t->image;
    struct schedule *s;
    err_code code = check_size(p, i, e);
    if (code)
        return code;
    if (i->n < 1 || i->n > PIPELINE_PICTURES_MAX)
        return err_set_param(e, ERR_INVALID, "n", "%d pictures, expected 1 to %d", i->n, PIPELINE_PICTURES_MAX);
    if (i->partial_images < 0 || i->partial_images > PIPELINE_PREVIEWS_MAX)
        return err_set_param(e, ERR_INVALID, "partial_images", "%d partial pictures, expected 0 to %d", i->partial_images,
                             PIPELINE_PREVIEWS_MAX);
    if (!isfinite(i->guidance))
        return err_set_param(e, ERR_INVALID, "guidance_scale", "the guidance is not a number");
    code = open_schedule(p, i, &s, e);
    if (!code)
        schedule_close(s);
    return code;
}

// ---- preparing

err_code pipeline_encode(const struct pipeline *p, const char *text, int32_t *ids, int *ret_tokens, int *ret_dropped,
                         err *e)
{
    int positions = clip_info(p->clip)->positions, room = positions - 2;
    struct ids all = {0};
    // Its writer is the only one the text speaks for, so that it may spell control tokens, as in the reference.
    struct text_span span = {text, strlen(text), true};
    err_code code = tokenizer_encode(p->tokenizer, &span, 1, false, &all, e);
    if (code)
        return code;
    int n = all.len < (size_t)room ? (int)all.len : room;
    ids[0] = p->bos;
    if (n)
        memcpy(ids + 1, all.data, (size_t)n * sizeof *ids);
    ids[n + 1] = p->eos;
    for (int i = n + 2; i < positions; i++)
        ids[i] = p->pad;
    *ret_tokens = n + 2;
    *ret_dropped = (int)(all.len - (size_t)n);
    free(all.data);
    return ERR_OK;
}

static err_code encode_prompts(struct picturing *g, const struct image *i, int *ret_tokens, err *e)
{
    int ignored;
    int32_t *last = g->ids + (g->batch - 1) * g->positions;
    err_code code = pipeline_encode(g->p, i->prompt, last, ret_tokens, &g->dropped, e);
    if (code) {
        snprintf(e->param, sizeof e->param, "prompt");
        return code;
    }
    if (g->batch == 1)
        return ERR_OK;
    code = pipeline_encode(g->p, i->negative_prompt ? i->negative_prompt : "", g->ids, &ignored, &g->dropped_negative, e);
    if (code)
        snprintf(e->param, sizeof e->param, "negative_prompt");
    return code;
}

err_code pipeline_prepare(const struct model *m, const struct task *t, struct work **ret_work, int *ret_prompt_tokens,
                          err *e)
{
    const struct pipeline *p = pipeline_of(m);
    const struct image *i = &t->image;
    struct picturing *g = mem_new(sizeof *g);
    g->p = p;
    g->image = i;
    g->guidance = i->guidance < 0 ? p->guidance : i->guidance;
    g->batch = g->guidance > 1 ? 2 : 1;
    g->positions = clip_info(p->clip)->positions;
    g->ids = mem_new((size_t)(g->batch * g->positions) * sizeof *g->ids);
    g->factor = vae_info(p->vae)->factor;
    g->h = i->height / g->factor;
    g->w = i->width / g->factor;
    g->elements = (size_t)unet_info(p->unet)->in_channels * (size_t)g->h * (size_t)g->w;
    err_code code = open_schedule(p, i, &g->schedule, e);
    if (!code)
        code = encode_prompts(g, i, ret_prompt_tokens, e);
    if (code)
        pipeline_free(&g->work);
    else
        *ret_work = &g->work;
    return code;
}

// ---- memory

static size_t state_floats(const struct pipeline *p, int batch)
{
    return (size_t)batch * (size_t)clip_info(p->clip)->positions * (size_t)clip_info(p->clip)->dim;
}

// Floats of a task apart from the networks'.
static size_t task_floats(size_t elements, size_t pixels, int batch, int buffers, size_t states)
{
    return states + elements * (size_t)(3 + 2 * batch + buffers) + 3 * pixels;
}

// The largest picture allowed, as a square.
size_t pipeline_work_bytes(const struct model *m)
{
    const struct pipeline *p = pipeline_of(m);
    int factor = vae_info(p->vae)->factor, side = (int)sqrt((double)p->max_pixels) / factor, lanes = 1;
    side = side < 1 ? 1 : side;
    size_t latents = (size_t)side * (size_t)side, pixels = latents * (size_t)(factor * factor);
    size_t floats = task_floats(latents * (size_t)unet_info(p->unet)->in_channels, pixels, 2, SCHEDULE_BUFFERS,
                                state_floats(p, 2));
    return unet_bytes(p->unet, side, side, 2, clip_info(p->clip)->positions, lanes) + vae_bytes(p->vae, side, side, lanes) +
           floats * sizeof(float) + 3 * pixels;
}

static err_code take_floats(struct picturing *g, err *e)
{
    int buffers = schedule_buffers(g->schedule);
    size_t n = g->elements, pixels = (size_t)g->h * (size_t)g->w * (size_t)(g->factor * g->factor), bytes;
    size_t states = state_floats(g->p, g->batch), all = task_floats(n, pixels, g->batch, buffers, states);
    bool fits = size_mul(all, sizeof(float), &bytes);
    g->floats = fits ? mem_try(bytes) : NULL;
    g->rgb = mem_try(3 * pixels);
    if (!g->floats || !g->rgb)
        return err_set(e, ERR_MEMORY, "no memory for a picture of %dx%d", g->w * g->factor, g->h * g->factor);
    float *at = g->floats;
    g->states = at;
    g->x = at += states;
    g->x0 = at += n;
    g->noise = at += n;
    g->input = at += n;
    g->out = at += n * (size_t)g->batch;
    at += n * (size_t)g->batch;
    for (int i = 0; i < buffers; i++, at += n)
        g->state.buffer[i] = at;
    g->pixels = at;
    return ERR_OK;
}

err_code pipeline_begin(struct work *w, err *e)
{
    struct picturing *g = of(w);
    const struct pipeline *p = g->p;
    err_code code = take_floats(g, e);
    if (!code)
        code = clip_plan(p->clip, g->batch, w->lanes, &g->clip, e);
    if (!code)
        code = unet_plan(p->unet, g->h, g->w, g->batch, g->positions, w->lanes, &g->unet, e);
    if (!code)
        code = vae_plan(p->vae, g->h, g->w, w->lanes, &g->vae, e);
    return code;
}

void pipeline_free(struct work *w)
{
    struct picturing *g = w ? of(w) : NULL;
    if (!g)
        return;
    net_free(g->clip);
    net_free(g->unet);
    net_free(g->vae);
    schedule_close(g->schedule);
    free(g->floats);
    free(g->rgb);
    free(g->ids);
    free(g);
}

// ---- steps, on every lane

static uint64_t seed_of(const struct picturing *g)
{
    return g->image->seed + (uint64_t)g->picture;
}

static float noise_at(const struct picturing *g, size_t k)
{
    const struct image *i = g->image;
    int steps = i->steps ? i->steps : g->p->steps;
    if (i->step_noise)
        return g->call < steps ? i->step_noise[(size_t)g->call * g->elements + k] : 0;
    return normal(seed_of(g), 1 + (uint64_t)g->call, k);
}

static void scale_input(struct picturing *g, int call, size_t lo, size_t hi)
{
    float scale = (float)schedule_input_scale(g->schedule, call);
    for (int b = 0; b < g->batch; b++)
        for (size_t k = lo; k < hi; k++)
            g->input[(size_t)b * g->elements + k] = g->x[k] * scale;
}

// The denoiser has answered: guidance, the schedule's step, the next input.
static void denoised(struct picturing *g, struct lane *lane)
{
    int lo, hi;
    lane_split(lane, (int)g->elements, SPLIT, &lo, &hi);
    const float *with = g->out + g->elements;
    for (int k = lo; k < hi && g->batch == 2; k++)
        g->out[k] = g->out[k] + g->guidance * (with[k] - g->out[k]);
    bool noisy = schedule_noise_scale(g->schedule, g->call) != 0;
    for (int k = lo; k < hi && noisy; k++)
        g->noise[k] = noise_at(g, (size_t)k);
    schedule_step(g->schedule, g->call, &g->state, g->x, g->out, noisy ? g->noise : NULL, g->x0, (size_t)lo, (size_t)hi);
    if (g->call + 1 < schedule_calls(g->schedule))
        scale_input(g, g->call + 1, (size_t)lo, (size_t)hi);
}

static float unit(float v)
{
    return v < 0 ? 0 : v > 1 ? 1 : v;
}

// The decoder is done: rows of bytes.
static void decoded(struct picturing *g, struct lane *lane)
{
    int lo, hi, width = g->w * g->factor, height = g->h * g->factor;
    size_t plane = (size_t)width * (size_t)height;
    bool broken = false;
    lane_split(lane, height, 1, &lo, &hi);
    for (size_t k = (size_t)lo * (size_t)width; k < (size_t)hi * (size_t)width; k++) {
        for (size_t c = 0; c < 3; c++) {
            float v = g->pixels[c * plane + k];
            broken |= !isfinite(v);
            v = unit(v);
            g->pixels[c * plane + k] = v;
            g->rgb[3 * k + c] = isfinite(v) ? (uint8_t)rintf(v * 255) : 0;
        }
    }
    if (broken)
        atomic_store_explicit(&g->broken, true, memory_order_relaxed);
}

void pipeline_step(struct work *w, struct lane *lane)
{
    struct picturing *g = of(w);
    struct net *net = g->stage == STAGE_TEXT ? g->clip : g->stage == STAGE_DENOISE ? g->unet : g->vae;
    if (!net_step(net, lane, w))
        return;
    if (g->stage == STAGE_DENOISE)
        denoised(g, lane);
    else if (g->stage != STAGE_TEXT)
        decoded(g, lane);
    if (lane->id == 0)
        g->stage_done = true;
}

// ---- between the steps, on the scheduler thread

static void start_text(struct picturing *g)
{
    g->stage = STAGE_TEXT;
    clip_start(g->clip, g->ids, g->states);
}

static void start_call(struct picturing *g)
{
    g->stage = STAGE_DENOISE;
    unet_start(g->unet, g->input, (float)schedule_timestep(g->schedule, g->call), g->states, g->out);
}

static void start_decode(struct picturing *g, enum stage stage, const float *latents)
{
    g->stage = stage;
    vae_start(g->vae, latents, g->pixels);
}

static void start_picture(struct picturing *g)
{
    float initial = (float)schedule_initial(g->schedule);
    const float *given = g->image->latents;
    for (size_t k = 0; k < g->elements; k++)
        g->x[k] = (given ? given[k] : normal(seed_of(g), 0, k)) * initial;
    for (int i = 0; i < schedule_buffers(g->schedule); i++)
        memset(g->state.buffer[i], 0, g->elements * sizeof(float));
    scale_input(g, 0, 0, g->elements);
    g->call = g->preview = 0;
    start_call(g);
}

static void emit_progress(struct picturing *g, struct session *s, int done)
{
    bool first = !g->begun;
    session_emit(s, &(struct event){.kind = EVENT_PROGRESS, .choice = g->picture, .done = done,
                                    .total = schedule_calls(g->schedule), .dropped = first ? g->dropped : 0,
                                    .dropped_negative = first ? g->dropped_negative : 0});
}

static void emit_picture(struct picturing *g, struct session *s, int partial)
{
    bool raw = g->image->raw;
    struct picture p = {.width = g->w * g->factor, .height = g->h * g->factor, .rgb = g->rgb, .partial = partial,
                        .latents = raw ? partial < 0 ? g->x : g->x0 : NULL, .nlatents = raw ? g->elements : 0,
                        .pixels = raw ? g->pixels : NULL};
    session_emit(s, &(struct event){.kind = EVENT_IMAGE, .choice = g->picture, .picture = &p});
}

// Previews divide the calls evenly; there are fewer when there are too few calls.
static bool preview_due(const struct picturing *g)
{
    int calls = schedule_calls(g->schedule), wanted = g->image->partial_images, done = g->call + 1;
    if (g->preview >= wanted || done == calls)
        return false;
    return done * (wanted + 1) >= (g->preview + 1) * calls;
}

static void next_call(struct picturing *g)
{
    if (++g->call < schedule_calls(g->schedule))
        start_call(g);
    else
        start_decode(g, STAGE_DECODE, g->x);
}

static enum work_next stage_over(struct picturing *g, struct session *s)
{
    switch (g->stage) {
    case STAGE_TEXT:
        net_free(g->clip);
        g->clip = NULL;
        start_picture(g);
        return WORK_MORE;
    case STAGE_DENOISE:
        emit_progress(g, s, g->call + 1);
        if (preview_due(g))
            start_decode(g, STAGE_PREVIEW, g->x0);
        else
            next_call(g);
        return WORK_MORE;
    case STAGE_PREVIEW:
        emit_picture(g, s, g->preview++);
        next_call(g);
        return WORK_MORE;
    case STAGE_DECODE:
        emit_picture(g, s, -1);
        if (++g->picture == g->image->n)
            return WORK_DONE;
        start_picture(g);
        return WORK_MORE;
    }
    return WORK_DONE;
}

enum work_next pipeline_after(struct work *w, struct session *s, err *e)
{
    struct picturing *g = of(w);
    if (!g->begun) {
        emit_progress(g, s, 0);
        g->begun = true;
        start_text(g);
        return WORK_MORE;
    }
    if (!g->stage_done)
        return WORK_MORE;
    g->stage_done = false;
    if (atomic_load_explicit(&g->broken, memory_order_relaxed)) {
        err_set(e, ERR_INTERNAL, "the picture has values that are no numbers; the model does not give them for other seeds "
                                 "or fewer steps, or its weights are damaged");
        return WORK_FAIL;
    }
    return stage_over(g, s);
}
