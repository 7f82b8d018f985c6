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
// the task. Callbacks run on an engine thread: they must be short, must not wait, and may call only engine_cancel and engine_wake.
// What an event points to lives until the callback returns.
//
// Nothing in an answer depends on what else runs (the exactness rule, README.md): same task, same bits.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "engine/task.h"

struct engine;
struct metrics;
struct model_event;

// ---- set-up

struct engine_config {
    int threads;          // 0: one per usable core
    const char *isa;      // NULL or "auto"
    size_t memory;        // what all models may take (memory.h); 0: decided from the machine
    int memory_percent;   // not 0: instead, of the machine's memory or the cgroup's limit
    size_t kv_bytes;      // of it, for keys and values; 0: half of what weights leave
    int kv_percent;       // not 0: instead, of what all models may take
    int max_waiting;      // requests not yet running; more are refused with ERR_BUSY, or ERR_QUOTA when it is the account's
                          // share that is full (slot.h)
    size_t max_waiting_tokens, max_waiting_bytes;  // of these, their prompt tokens and bytes; 0: no bound
    int max_running;      // sequences in one step
    int prefill_chunk;    // 0: chosen by the scheduler; else the most prefill tokens in one step
    bool pin;             // pin worker threads
    int load_timeout_s;   // a task waits so long for its model to load; 0: 300
    int idle_unload_s;    // a model without tasks is unloaded after this time; 0: never
    // NULL: nobody. Told of each model that came, went or failed; on the loader's thread, one at a time, without a lock. Models
    // wait while it runs, and it must not ask the engine for anything.
    void (*on_model)(void *arg, const struct model_event *ev);
    void *on_model_arg;
};

struct model_config {
    const char *name;           // what requests say
    const char *path;           // file or folder
    const char *activations;    // "int8" (default), "f32" or "bf16"
    const char *kv;             // "f16" (default), "f32", "q8"
    int context;                // 0: the model's own, bounded by memory
    const char *chat_template;  // a file that replaces the model's template; "chatml" for the built-in; NULL: the model's
    const char *vocoder;        // folder of a speech model's vocoder; NULL: its own snac/
    const char *decision;       // "": none but what the model's folder holds; "labels": by label tokens; else a bundle's folder
    size_t max_image_pixels;    // most pixels of a picture; 0: 1024 x 1024
    bool lazy;                  // loaded when a task asks for it, and not at once
    bool pinned;                // never unloaded
};

enum model_state { MODEL_LOADING, MODEL_READY, MODEL_FAILED, MODEL_UNLOADED, MODEL_UNLOADING };

enum task_bits { CAN_CHAT = 1, CAN_COMPLETE = 2, CAN_EMBED = 4, CAN_TRANSCRIBE = 8, CAN_SPEAK = 16, CAN_IMAGE = 32, CAN_DECIDE = 64 };

enum { ENGINE_NAME_MAX = 127, ENGINE_MODELS_MAX = 64, ENGINE_VOICES_MAX = 32 };

struct model_info {
    char name[ENGINE_NAME_MAX + 1], path[512], family[32], format[64];
    char parent[ENGINE_NAME_MAX + 1];  // an alias: the model it is another name of; "": it is a model
    enum model_state state;
    bool lazy, pinned;
    int parked;             // tasks that wait for it to load
    // In memory now: of its weights, of its pool, and all that is charged for it.
    size_t resident_bytes, kv_bytes, memory_bytes;
    // From here on: as it was when it was loaded last, see engine_model_known.
    unsigned can;           // task_bits
    int context, vocab;
    bool fills;             // CAN_COMPLETE: prompt.suffix; the vocabulary has marks for a gap
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

enum model_change { MODEL_CAME, MODEL_WENT, MODEL_BROKE, MODEL_DROPPED };  // the last: nobody waited for it any more

// Why it was to come or to go.
enum model_reason { FOR_START, FOR_TASK, FOR_CALLER, FOR_ROOM, FOR_IDLENESS };  // FOR_CALLER: engine_load_model, engine_unload_model

struct model_event {
    enum model_change change;
    enum model_reason reason;
    const struct model_info *model;  // as it is now; MODEL_WENT: with what it took until now. MODEL_BROKE: its error
    const char *room_for;            // FOR_ROOM: the model that needs it
    double took_s;                   // since it was asked for, or told to go
    double idle_s;                   // MODEL_WENT: without a task when it was told to go
    int retry_ms;                    // MODEL_BROKE: it is not tried again before
};

// Whether its facts are known, that is: it has been loaded once.
static inline bool engine_model_known(const struct model_info *m)
{
    return m->state == MODEL_READY || m->can;
}

// What engine_open would say of an instruction set.
MUST_CHECK err_code engine_check_isa(const char *isa, err *e);
// And of threads.
MUST_CHECK err_code engine_check_threads(int threads, bool pin, err *e);
MUST_CHECK err_code engine_open(const struct engine_config *c, struct engine **ret_engine, err *e);
// Ends every task with ERR_DRAINING, waits for the threads, frees all models.
void engine_close(struct engine *en);

MUST_CHECK err_code engine_add_model(struct engine *en, const struct model_config *c, err *e);
// Another name of a model, for tasks and everything below.
MUST_CHECK err_code engine_add_alias(struct engine *en, const char *alias, const char *name, err *e);
// Copies of the models' state, in the order they were added, then the aliases; returns how many (at most max are written).
int engine_models(struct engine *en, struct model_info *ret_infos, int max);
bool engine_find_model(struct engine *en, const char *name, struct model_info *ret_info);
// The model's numbers (metrics.h), from now until engine_close; NULL: no such model.
const struct metrics *engine_metrics(struct engine *en, const char *name);
// Waits until the model is neither loading nor being unloaded; its error if it failed. ERR_DRAINING when the engine drains first.
// The first call of this, of engine_load_model or of engine_submit starts the loading: add the models that share the
// memory before.
MUST_CHECK err_code engine_wait_model(struct engine *en, const char *name, err *e);
// Asks for it to be in memory. ERR_INTERNAL, with retry_ms: it failed a moment ago.
MUST_CHECK err_code engine_load_model(struct engine *en, const char *name, err *e);
// Asks for it to be out of memory: tasks that have it end first, tasks that come meanwhile wait and load it again.
// ERR_INVALID: it is pinned. Neither waits for its effect.
MUST_CHECK err_code engine_unload_model(struct engine *en, const char *name, err *e);

// ---- tasks (task.h)

// A task for a model that is not in memory waits until it is, and ends with ERR_LOADING when that takes too long.
// Errors come at once and no event follows: ERR_NOT_FOUND (model), ERR_UNSUPPORTED (the model cannot do
// this), ERR_BUSY, ERR_QUOTA, ERR_DRAINING, ERR_INVALID. What only preparation can find (template, context length) ends the task
// with EVENT_END before EVENT_START.
MUST_CHECK err_code engine_submit(struct engine *en, struct task *t, struct ticket *ret_ticket, err *e);
// Whether the queue has room for a task of this account with so many bytes: asked before its samples are decoded, so that a
// crowd costs nothing. ERR_BUSY, ERR_QUOTA, ERR_DRAINING as engine_submit, which may still refuse.
MUST_CHECK err_code engine_room(struct engine *en, const char *account, size_t bytes, err *e);
void engine_cancel(struct engine *en, struct ticket ticket);
// Any thread: something a task waited for has changed (task.held).
void engine_wake(struct engine *en);
// Stops admitting (ERR_DRAINING); running tasks go on.
void engine_drain(struct engine *en);

// Speech recognition's languages. The code ("en") of what a person may write: a code, an English name or a common other
// name in any case, "<|en|>", a code with a region ("en-US"); NULL: none known. And the English name of a code, in lower
// case ("english"); NULL: no such code.
const char *engine_language_code(const char *text);
const char *engine_language_name(const char *code);

// Of the budget that all models share (memory.h), and what is charged to it. Takes a lock for a moment.
struct engine_memory {
    size_t total, weights, kv, step, works;
};
void engine_memory(struct engine *en, struct engine_memory *ret_memory);

// The numbers of all models together (metrics.def), and of what they share.
struct engine_stats {
    int waiting, running, free_slots;
    size_t kv_pages, kv_pages_used, kv_pages_cached;
    uint64_t prompt_tokens, cached_tokens, completion_tokens, steps, cancelled, preempted;
    int64_t heartbeat_ns;  // when the scheduler last went round
    struct engine_memory memory;
    int models_ready;
    uint64_t model_loads, model_unloads, model_evictions, model_failures;
};
void engine_stats(struct engine *en, struct engine_stats *ret_stats);
// When the scheduler last went round, clock_ns(). Takes no lock.
int64_t engine_heartbeat_ns(const struct engine *en);
