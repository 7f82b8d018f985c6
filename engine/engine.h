// engine.h - the only door between the server and the models.
//
//     engine_open(&config, &engine, &e);
//     engine_add_model(engine, &model, &e);               // registered at once, loaded in the background
//
//     struct task *t = task_new(TASK_GENERATE);           // the request's memory is t->arena
//     t->model = arena_strdup(&t->arena, "smollm2");
//     t->on_event = on_event; t->ud = stream;
//     ... fill t->generate ...
//     if (engine_submit(engine, t, &ticket, &e)) ...      // refused: the task is still the caller's (task_free)
//     engine_cancel(engine, ticket);                      // any time, any thread, any number of times
//
// After a successful submit the task belongs to the engine. Its events come one at a time: EVENT_START once (unless it
// failed before), then what the kind of task produces, then exactly one EVENT_END, after whose callback the engine frees
// the task. Callbacks run on an engine thread: they must be short, must not wait, and may call only engine_cancel.
// What an event points to lives until the callback returns.
//
// Nothing in an answer depends on what else runs (ARCHITECTURE §3): same task, same bits.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "engine/task.h"

struct engine;
struct metrics;

// ---- set-up

struct engine_config {
    int threads;          // 0: one per usable core
    const char *isa;      // NULL or "auto"
    size_t kv_bytes;      // 0: decided from memory; all models together
    int max_waiting;      // requests not yet running; more are refused with ERR_BUSY
    int max_running;      // sequences in one step
    int prefill_chunk;    // 0: chosen by the scheduler; else the most prefill tokens in one step
    bool pin;             // pin worker threads
};

struct model_config {
    const char *name;           // what requests say
    const char *path;           // file or folder
    const char *activations;    // "int8" (default) or "f32"
    const char *kv;             // "f16" (default), "f32", "q8"
    int context;                // 0: the model's own, bounded by memory
    const char *chat_template;  // a file that replaces the model's template; "chatml" for the built-in; NULL: the model's
    const char *vocoder;        // folder of a speech model's vocoder; NULL: its own snac/
    const char *decision;       // "": none but what the model's folder holds; "labels": by label tokens; else a bundle's folder
    size_t max_image_pixels;    // most pixels of a picture; 0: 1024 x 1024
};

enum model_state { MODEL_LOADING, MODEL_READY, MODEL_FAILED };

enum task_bits { CAN_CHAT = 1, CAN_COMPLETE = 2, CAN_EMBED = 4, CAN_TRANSCRIBE = 8, CAN_SPEAK = 16, CAN_IMAGE = 32, CAN_DECIDE = 64 };

enum { ENGINE_NAME_MAX = 127, ENGINE_MODELS_MAX = 64, ENGINE_VOICES_MAX = 32 };

struct model_info {
    char name[ENGINE_NAME_MAX + 1], path[512], family[32], format[64];
    enum model_state state;
    unsigned can;           // task_bits
    int context, vocab;
    size_t weight_bytes, kv_bytes_per_token;
    int dimensions;         // CAN_EMBED: of its vectors
    int sample_rate;        // CAN_SPEAK: of its audio, Hz
    bool multilingual;      // CAN_TRANSCRIBE: knows languages and translates
    int image_size;         // CAN_IMAGE: pixels of a side it was trained for
    int image_factor;       // CAN_IMAGE: pixels of a side of a latent
    int image_channels;     // CAN_IMAGE: numbers of a latent
    int image_steps;        // CAN_IMAGE: denoise steps of a task that does not say
    int max_options;        // CAN_DECIDE: of one choice
    bool native_decisions;  // CAN_DECIDE: trained for them; else it reads label tokens
    int trained_options;    // CAN_DECIDE: of one choice; 0 with label tokens
    double temperatures[3]; // CAN_DECIDE: by enum decide_kind
    int nvoices;            // CAN_SPEAK
    char voices[ENGINE_VOICES_MAX][24];
    int64_t loaded_unix_s;
    double load_s;
    err error;              // MODEL_FAILED
};

// What engine_open would say of an instruction set.
MUST_CHECK err_code engine_check_isa(const char *isa, err *e);
MUST_CHECK err_code engine_open(const struct engine_config *c, struct engine **ret_engine, err *e);
// Ends every task with ERR_DRAINING, waits for the threads, frees all models.
void engine_close(struct engine *en);

MUST_CHECK err_code engine_add_model(struct engine *en, const struct model_config *c, err *e);
// Copies of the models' state, in the order they were added; returns how many (at most max are written).
int engine_models(struct engine *en, struct model_info *ret_infos, int max);
bool engine_find_model(struct engine *en, const char *name, struct model_info *ret_info);
// The model's numbers (metrics.h), from now until engine_close; NULL: no such model.
const struct metrics *engine_metrics(struct engine *en, const char *name);
// Waits until the model is ready or failed; its error if failed. ERR_DRAINING when the engine drains first.
MUST_CHECK err_code engine_wait_model(struct engine *en, const char *name, err *e);

// ---- tasks (task.h)

// Errors come at once and no event follows: ERR_NOT_FOUND (model), ERR_LOADING, ERR_UNSUPPORTED (the model cannot do
// this), ERR_BUSY, ERR_DRAINING, ERR_INVALID. What only preparation can find (template, context length) ends the task
// with EVENT_END before EVENT_START.
MUST_CHECK err_code engine_submit(struct engine *en, struct task *t, struct ticket *ret_ticket, err *e);
void engine_cancel(struct engine *en, struct ticket ticket);
// Stops admitting (ERR_DRAINING); running tasks go on.
void engine_drain(struct engine *en);

// Speech recognition's languages. The code ("en") of what a person may write: a code, an English name or a common other
// name in any case, "<|en|>", a code with a region ("en-US"); NULL: none known. And the English name of a code, in lower
// case ("english"); NULL: no such code.
const char *engine_language_code(const char *text);
const char *engine_language_name(const char *code);

struct engine_stats {
    int waiting, running, free_slots;
    size_t kv_pages, kv_pages_used, kv_pages_cached;
    uint64_t prompt_tokens, cached_tokens, completion_tokens, steps, cancelled, preempted;
    double last_cancel_to_free_s, busy_s;
    int64_t heartbeat_ns;  // when the scheduler last went round
};
void engine_stats(struct engine *en, struct engine_stats *ret_stats);
// When the scheduler last went round, clock_ns(). Takes no lock.
int64_t engine_heartbeat_ns(const struct engine *en);
