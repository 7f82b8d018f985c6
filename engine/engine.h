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

#include "base/arena.h"
#include "base/err.h"

struct json_t;
struct engine;

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
};

enum model_state { MODEL_LOADING, MODEL_READY, MODEL_FAILED };

enum task_bits { CAN_CHAT = 1, CAN_COMPLETE = 2, CAN_EMBED = 4, CAN_TRANSCRIBE = 8, CAN_SPEAK = 16, CAN_IMAGE = 32, CAN_DECIDE = 64 };

enum { ENGINE_NAME_MAX = 127, ENGINE_MODELS_MAX = 64 };

struct model_info {
    char name[ENGINE_NAME_MAX + 1], path[512], family[32], format[64];
    enum model_state state;
    unsigned can;           // task_bits
    int context, vocab;
    size_t weight_bytes, kv_bytes_per_token;
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
// Waits until the model is ready or failed; its error if failed. ERR_DRAINING when the engine drains first.
MUST_CHECK err_code engine_wait_model(struct engine *en, const char *name, err *e);

// ---- tasks

enum task_kind {
    TASK_GENERATE,    // chat and text completion
    TASK_TOKENIZE,    // text -> ids
    TASK_DETOKENIZE,  // ids -> text
    TASK_RENDER,      // messages -> the prompt the template makes
};

// What a text model is asked. Exactly one of messages, text and ids.
struct prompt {
    struct json_t *messages, *tools, *documents, *kwargs;  // borrowed: the task's arena must hold references
    bool add_generation_prompt, continue_final_message;
    const char *text;  // encoded with the model's BOS rule
    size_t text_len;
    const int32_t *ids;  // used as they are
    size_t nids;
};

struct logit_bias {
    int32_t id;
    float bias;
};

// Field by field as in openai-api.md §2.1; defaults are task_new's.
struct sampling {
    float temperature;  // 1; 0 is greedy
    float top_p;        // 1
    float min_p;        // 0
    int top_k;          // 0: all
    float presence_penalty, frequency_penalty;  // 0
    float repetition_penalty;                   // 1
    uint64_t seed;      // task_new draws one
    const struct logit_bias *bias;
    size_t nbias;
};

struct generate {
    struct prompt prompt;
    struct sampling sampling;
    int max_tokens;    // -1: up to the context
    int min_tokens;
    int n;             // choices; choice i samples with (seed, i)
    const char *const *stop;  // matched on text across tokens; never returned
    size_t nstop;
    bool ignore_eos;
    bool echo;         // text completion: the prompt's text comes first
    int logprobs;      // -1: none; k: each token's log-probability and the k likeliest
};

struct tokenize {
    struct prompt prompt;  // TASK_TOKENIZE: text; TASK_DETOKENIZE: ids; TASK_RENDER: messages
    bool add_special, with_pieces;
};

enum finish { FINISH_STOP, FINISH_LENGTH };

// Every sampled token counts, the one that ends a turn (and is not shown) included; all choices together.
struct usage {
    int prompt_tokens, cached_tokens, completion_tokens;
};

struct token_alternative {
    int32_t id;
    float logprob;
    const char *bytes;  // the token's own bytes
    size_t len;
};

struct token_logprob {
    struct token_alternative token;  // its logprob is NAN for the first token of an echoed prompt, which has none
    const struct token_alternative *top;  // likeliest first
    int ntop;
};

enum event_kind {
    EVENT_START,   // admitted: usage.prompt_tokens and cached_tokens are known
    EVENT_TEXT,    // text of one choice, whole UTF-8 characters, with the tokens that completed it
    EVENT_FINISH,  // a choice ended
    EVENT_IDS,     // TASK_TOKENIZE
    EVENT_END,     // the last one, always; error.code tells how it went
};

struct event {
    enum event_kind kind;
    int choice;
    const char *text;
    size_t len;
    const struct token_logprob *tokens;  // EVENT_TEXT with logprobs
    size_t ntokens;
    const int32_t *ids;                   // EVENT_IDS
    const struct token_alternative *pieces;  // EVENT_IDS with_pieces, nids of them (bytes, len)
    size_t nids;
    enum finish finish;
    struct usage usage;  // EVENT_START, EVENT_END
    err error;           // EVENT_END; ERR_OK, or why it ended
};

struct task;
typedef void task_event_fn(struct task *t, const struct event *ev);

struct task {
    enum task_kind kind;
    struct arena arena;
    const char *model;
    task_event_fn *on_event;
    void *ud;
    int64_t deadline_ns;  // clock_ns() time; 0: none
    const char *cache_salt;  // prefix reuse only among tasks with the same salt; NULL: the common one
    union {
        struct generate generate;
        struct tokenize tokenize;
    };
};

struct ticket {
    uint32_t slot, generation;
};

struct task *task_new(enum task_kind kind);  // defaults filled
void task_free(struct task *t);              // only a task that was not accepted

// Errors come at once and no event follows: ERR_NOT_FOUND (model), ERR_LOADING, ERR_UNSUPPORTED (the model cannot do
// this), ERR_BUSY, ERR_DRAINING, ERR_INVALID. What only preparation can find (template, context length) ends the task
// with EVENT_END before EVENT_START.
MUST_CHECK err_code engine_submit(struct engine *en, struct task *t, struct ticket *ret_ticket, err *e);
void engine_cancel(struct engine *en, struct ticket ticket);
// Stops admitting (ERR_DRAINING); running tasks go on.
void engine_drain(struct engine *en);

struct engine_stats {
    int waiting, running, free_slots;
    size_t kv_pages, kv_pages_used, kv_pages_cached;
    uint64_t prompt_tokens, cached_tokens, completion_tokens, steps, cancelled, preempted;
    double last_cancel_to_free_s, busy_s;
    int64_t heartbeat_ns;  // when the scheduler last went round
};
void engine_stats(struct engine *en, struct engine_stats *ret_stats);
