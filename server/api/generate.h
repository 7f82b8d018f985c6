// generate.h - what chat, text completion and responses share: the fields of sampling, the tasks of one request, and the sink
// that gathers their events for one whole answer or passes them on to a stream. How either looks is the format's affair.
//
//     struct generation *g = api_generate_new(r, &format);
//     api_generate_read(g, &f, CAN_CHAT);               // model, sampling, n, stop, stream ...
//     struct task *t = api_generate_add(g);             // one for each prompt
//     t->generate.prompt.messages = messages;
//     if (f.failed) ... else api_generate_start(g);
//
// The generation lives in the request's arena. Until start everything happens on the loop thread; from then on events
// come on engine threads, of several tasks at once, and g->lock guards what they share. The answer is given by whoever
// takes the last of g->pending, when no task is left that could touch the request.
//
// A stream's 200 is sent when every task has been admitted (or when much text waits for the last of them, or the client has
// waited for keepalive_s): what goes wrong before is an ordinary error answer, what goes wrong later an event {"error": ...} after which the stream closes
// without [DONE].
#pragma once

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "engine/engine.h"
#include "server/api/caller.h"
#include "server/api/fields.h"

struct request;
struct sse;
struct api_tools;
struct chunks;
struct generation;

enum { API_MAX_PROMPTS = 2048, API_MAX_ALL_CHOICES = 4096, API_CHOICE_LISTS = 4 };

struct choice_call {
    const char *id, *name;  // in the request's arena; no id is like another
    struct buf arguments;
    bool whole;             // else the token limit cut it
};

struct choice {
    struct buf text, reasoning;         // whole answers only; arguments of calls are kept in streams, too
    struct choice_call *calls;
    int ncalls, calls_cap;
    struct buf lists[API_CHOICE_LISTS]; // logprobs as JSON since the last chunk; what each holds is the format's affair
    struct buf ids;                     // with settings.token_ids: of its tokens since the last chunk, as JSON without brackets
    bool prompt_told;                   // a chunk had the prompt's ids
    size_t characters;                  // text completion: characters of all tokens so far, for text_offset
    bool finished;
    enum finish finish;
};

// How one endpoint answers. Everything is called under g->lock; open, text, finish and end only for a stream.
struct api_format {
    const char *id_prefix;
    const char *context_param;  // what a too long prompt is blamed on; "": null
    void (*begin)(struct generation *g);  // before the tasks are submitted, with choices and r->answer_id made; loop thread
    void (*open)(struct generation *g);   // the stream begins: its first events
    // The event's text; its tokens are in the choice's lists already, and its call, if any, is calls[ncalls - 1].
    void (*text)(struct generation *g, int index, const struct event *ev);
    void (*finish)(struct generation *g, int index);
    bool pieces;  // text and finish are called for whole answers, too, and choices gather no text
    void (*progress)(struct generation *g, const struct event *ev);  // EVENT_PROGRESS; NULL: not told
    void (*end)(struct generation *g);    // the last events of an answer that went well
    void (*failed)(struct generation *g, const err *e);  // the last event of one that did not; NULL: {"error": ...}
    bool done;                            // then [DONE]
    bool probabilities;                   // choices say those of the texts (api_generate_probabilities)
    void (*whole)(struct generation *g, struct buf *out);
    void (*word)(const struct generation *g, err *e);  // brings an error into the endpoint's words; NULL: nothing to do
    // Appends an event's tokens to the choice's lists.
    void (*logprobs)(struct choice *c, const struct event *ev);
};

struct generation {
    struct request *r;
    struct engine *engine;
    const struct api_format *format;
    struct model_info *model;
    struct generate settings;  // copied into each task
    struct api_caller caller;
    const struct api_tools *tools;  // whose names errors are worded with; NULL: none
    bool stream, include_usage;
    bool continuous;   // usage in every chunk
    bool timings;      // of the whole answer, at its end

    struct task **tasks;  // not yet submitted
    struct part *parts;   // one a task: who it is
    struct ticket *tickets;
    int ntasks, cap;

    void *own;         // the format's
    struct chunks *chunks;  // chunks.c's
    pthread_mutex_t lock;
    int pending;       // tasks without EVENT_END, and the loop thread while it submits
    int submitted, started;
    struct choice *choices;  // ntasks * settings.n
    int nchoices;      // as many as were made: a format may lower settings.n at the end and so show fewer, the first ones
    struct buf *prompts;     // [ntasks] with prompt_logprobs: those of each prompt, as JSON
    struct buf *scores;      // [ntasks] with CHOOSE_SCORED: of the texts, as JSON
    struct buf *prompt_ids;  // [ntasks] with settings.token_ids, from EVENT_START on: as those of a choice
    struct usage usage;      // of all tasks, so far
    int64_t first_ns;  // when the first text came
    struct sse *sse;
    bool dead;         // the stream's client is gone
    struct buf held;   // events of early tasks while others wait for admission, one a line
    struct buf out;    // scratch
    err error;         // the first one
};

extern const struct field api_generate_fields[];  // shared fields, for api_fields_check
extern const size_t api_generate_nfields;

struct generation *api_generate_new(struct request *r, const struct api_format *format);
void api_generate_read(struct generation *g, struct fields *f, unsigned can);
// The token limit under this name; false when the field is absent.
bool api_generate_limit(struct generation *g, struct fields *f, const char *name);
// After a success of read only. What its prompt points to must be the task's own (its arena).
struct task *api_generate_add(struct generation *g);
void api_generate_start(struct generation *g);

// ---- for formats
// "stop", "length", "tool_calls"; NULL: not finished.
const char *api_generate_finish_name(const struct choice *c);
// Appends `,"probabilities":[...]` of a choice to its last brace, when they were asked for: ends of choices have them.
void api_generate_probabilities(const struct generation *g, int index, struct buf *out);
// What a task has counted so far.
const struct usage *api_generate_usage(const struct generation *g, int task);
// Changes when the model does, so that equal fingerprints and seeds mean equal answers.
uint64_t api_generate_fingerprint(const struct generation *g);
// An event of the stream, in one line: `name` NULL for one without. Kept while the stream is not open.
void api_generate_send(struct generation *g, const char *name, const char *data, size_t len);
