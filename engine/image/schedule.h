// schedule.h - the sampler of a diffusion model: at which noise levels the denoiser is asked, and how its answers move
// the latents.
//
//     struct schedule *s;
//     schedule_open(config, NULL, NULL, 25, &s, &e);                // scheduler_config.json, 25 steps
//     x = unit noise * schedule_initial(s);
//     for (int i = 0; i < schedule_calls(s); i++) {
//         input = x * schedule_input_scale(s, i);
//         out = denoiser(input, schedule_timestep(s, i));           // after guidance
//         schedule_step(s, i, &state, x, out, noise of step i, x0, 0, n);
//     }
//     schedule_close(s);
//
// Built: EulerDiscreteScheduler, EulerAncestralDiscreteScheduler, DDIMScheduler, PNDMScheduler,
// DPMSolverMultistepScheduler (DPM-Solver++ and its SDE form, order 1 and 2), with the keys and defaults of diffusers.
// Papers: Karras et al. 2022 (Euler), Song et al. 2020 (DDIM), Liu et al. 2022 (PNDM), Lu et al. 2022 (DPM-Solver++).
//
// Tables are made as diffusers makes them (betas and cumulative products rounded to f32, the rest in f64), so that the
// same noise gives the same latents. A schedule is immutable after open; any thread may read it.
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"

struct json_t;
struct schedule;

enum { SCHEDULE_STEPS_MAX = 1000, SCHEDULE_BUFFERS = 6 };

// What a run keeps between steps: buffers of as many floats as the latents have, zeroed before the first step.
struct schedule_state {
    float *buffer[SCHEDULE_BUFFERS];  // schedule_buffers(s) of them are used
};

// config: scheduler_config.json (NULL: all defaults). override: an object whose keys stand over config's, or NULL. name: a
// class name that replaces the one in config, or NULL. Errors: ERR_UNSUPPORTED names a class or a setting that is not
// built and those that are; ERR_CORRUPT a wrong value; ERR_INVALID (param "steps") a number of steps it cannot take.
MUST_CHECK err_code schedule_open(const struct json_t *config, const struct json_t *override, const char *name,
                                  int steps, struct schedule **ret_schedule, err *e);
void schedule_close(struct schedule *s);

const char *schedule_name(const struct schedule *s);
int schedule_calls(const struct schedule *s);     // of the denoiser: steps, or a few more
int schedule_buffers(const struct schedule *s);
double schedule_initial(const struct schedule *s);                // standard deviation of the first latents
double schedule_timestep(const struct schedule *s, int i);        // what the denoiser is told
double schedule_input_scale(const struct schedule *s, int i);     // the denoiser sees x times this
double schedule_noise_scale(const struct schedule *s, int i);     // 0: step i adds no noise

// Elements lo..hi of step i, which must follow step i-1 on the same elements: x becomes the next latents. noise may be NULL when
// schedule_noise_scale is 0. x0: the denoised latents as predicted by this step; NULL: not wanted.
void schedule_step(const struct schedule *s, int i, const struct schedule_state *state, float *x, const float *out,
                   const float *noise, float *x0, size_t lo, size_t hi);
