// generate.h - what chat and text completion share: the fields of sampling, the tasks of one request, and the sink that
// turns their events into one JSON answer or a stream of chunks.
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
struct generation;

enum { API_MAX_CHOICES = 128, API_MAX_PROMPTS = 2048, API_MAX_ALL_CHOICES = 4096, API_CHOICE_LISTS = 4 };

struct choice {
    struct buf text;                    // whole answers only
    struct buf lists[API_CHOICE_LISTS]; // logprobs as JSON since the last chunk; what each holds is the format's affair
    size_t characters;                  // text completion: characters of all tokens so far, for text_offset
    bool finished;
    enum finish finish;
};

enum api_part {
    PART_WHOLE,    // the choice of an answer that is not streamed
    PART_OPENING,  // first chunk of a choice
    PART_PIECE,
    PART_LAST,     // carries the finish reason
};

// How one endpoint's JSON looks.
struct api_format {
    const char *id_prefix, *object, *chunk_object;
    const char *context_param;  // what a too long prompt is blamed on; "": null
    bool opens;                 // chunks begin with PART_OPENING
    // Appends one element of "choices".
    void (*choice)(const struct generation *g, int index, enum api_part part, const char *text, size_t len,
                   struct buf *out);
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
    bool stream, include_usage;

    struct task **tasks;  // not yet submitted
    struct part *parts;   // one a task: who it is
    struct ticket *tickets;
    int ntasks, cap;

    const char *head;  // JSON up to the choices, the same in every chunk
    pthread_mutex_t lock;
    int pending;       // tasks without EVENT_END, and the loop thread while it submits
    int submitted, started;
    struct choice *choices;  // ntasks * settings.n
    struct usage usage;
    int64_t first_ns;  // when the first text came
    struct sse *sse;
    bool dead;         // the stream's client is gone
    struct buf held;   // chunks of early tasks while others wait for admission, one a line
    struct buf out;    // scratch
    err error;         // the first one
};

extern const struct field api_generate_fields[];  // shared fields, for api_fields_check
extern const size_t api_generate_nfields;

struct generation *api_generate_new(struct request *r, const struct api_format *format);
void api_generate_read(struct generation *g, struct fields *f, unsigned can);
// The token limit under this name; false when the field is absent.
bool api_generate_limit(struct generation *g, struct fields *f, const char *name, int min);
// After a success of read only. What its prompt points to must be the task's own (its arena).
struct task *api_generate_add(struct generation *g);
void api_generate_start(struct generation *g);

const char *api_generate_finish_name(const struct choice *c);
