// client.h - a caller of the engine for tests: submits a task, collects its events, checks their order, waits.
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "engine/engine.h"

enum { CLIENT_MAX_CHOICES = 8 };

struct client_prompt {  // a token of EVENT_PROMPT
    int32_t id, first;  // first: the likeliest; -1: none
    float logprob;
    int rank, ntop;
};

struct client {
    struct ticket ticket;
    atomic_bool done;      // EVENT_END was sent; everything else may be read then
    int starts, ends;
    int place;             // among all clients, in the order in which they ended
    const _Atomic uint64_t *counter;  // NULL, or a number of metrics.h
    uint64_t counted;                 // what it was when the task ended
    bool wrong;            // an event out of order, or text that is not whole UTF-8
    struct usage usage;
    err error;
    struct buf text[CLIENT_MAX_CHOICES];   // of all channels
    struct buf parts[CLIENT_MAX_CHOICES];  // the same told apart: "{R:reasoning}content{name:arguments}"
    enum channel channel[CLIENT_MAX_CHOICES];
    int reasoned[CLIENT_MAX_CHOICES], said[CLIENT_MAX_CHOICES];  // with logprobs: tokens that came with reasoning, with content
    struct buf blob;       // what all other events carried, one after another: equal answers have equal blobs
    struct client_prompt *prompt;          // EVENT_PROMPT
    int nprompt;
    struct scored_text *scores;            // EVENT_SCORES, the texts not
    int nscores;
    int32_t *ids[CLIENT_MAX_CHOICES];     // with logprobs, or EVENT_IDS (choice 0)
    float *logprobs[CLIENT_MAX_CHOICES];
    int nids[CLIENT_MAX_CHOICES], finishes[CLIENT_MAX_CHOICES];
    enum finish finish[CLIENT_MAX_CHOICES];
    struct engine *cancel_on;  // cancels itself at event number cancel_at
    int cancel_at, events;
};

// t->on_event and t->ud are set here. False: refused, *e says why and the task is freed.
bool client_submit(struct client *c, struct engine *en, struct task *t, err *e);
void client_wait(struct client *c);
// These two fail the running test when it is refused, or ends otherwise than well.
void client_must_submit(struct client *c, struct engine *en, struct task *t);
void client_ended_well(struct client *c);
// Fails it unless t is refused, at once or before it began, with this code and a text that has `text` in it. param: NULL for any.
void client_refused(struct engine *en, struct task *t, err_code code, const char *param, const char *text);
void client_done(struct client *c);

struct task *client_task(const char *model, const int32_t *ids, int n);  // TASK_GENERATE; ids are copied
