// pipeline.h - text to pictures with a diffusion model: what a loaded pipeline consists of, and the work of one task.
//
//     prompts -> ids (prep thread) -> CLIP -> states
//     noise -> [ UNet -> guidance -> schedule ] x calls -> latents -> VAE -> picture        once a picture
//
// The networks run in slices (networks.h); what lies between two of them is done by all lanes at the end of a slice, each
// on its own elements. All memory of a task is taken when it begins, so that what cannot be done fails before any work.
//
// Random numbers are functions of (seed + picture, place): picture k of a task is picture 0 of a task with seed + k.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "engine/image/networks.h"
#include "engine/sched/work.h"

struct json_t;
struct tokenizer;

enum { PIPELINE_PICTURES_MAX = 64, PIPELINE_PREVIEWS_MAX = 8 };

// Owned by the model; immutable once open.
struct pipeline {
    struct clip *clip;
    struct unet *unet;
    struct vae *vae;
    const struct tokenizer *tokenizer;
    int32_t bos, eos, pad;
    struct json_t *scheduler;  // scheduler_config.json; shared by threads that only read it
    size_t max_pixels;
    int steps;                 // of a task that does not say
    float guidance;
};

// work_ops of a model whose impl begins with a struct pipeline.
err_code pipeline_check(const struct model *m, const struct task *t, err *e);
err_code pipeline_prepare(const struct model *m, const struct task *t, struct work **ret_work, int *ret_prompt_tokens,
                          err *e);
size_t pipeline_work_bytes(const struct model *m);
err_code pipeline_begin(struct work *w, err *e);
void pipeline_step(struct work *w, struct lane *lane);
enum work_next pipeline_after(struct work *w, struct session *s, err *e);
void pipeline_free(struct work *w);

// The ids of one prompt as the text encoder reads them: begin, text, end, padding; positions of them. *ret_tokens: how
// many of the text were there, with begin and end; *ret_dropped: how many did not fit and were left out.
MUST_CHECK err_code pipeline_encode(const struct pipeline *p, const char *text, int32_t *ids, int *ret_tokens,
                                    int *ret_dropped, err *e);
