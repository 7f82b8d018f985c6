// judge.h - what the three decision endpoints share: the questions of one request become engine tasks, one for each kind
// (their prompts begin alike, so the state is computed once a kind), and their answers one JSON answer.
//
//     struct judge *j = api_judge_new(r, nquestions);
//     api_judge_model(j, &f);                     // field "model"
//     j->state = ...; j->asks[i].kind = ...;      // strings that live as long as the request
//     j->write = write_answer;
//     api_judge_start(j);                         // answers later, also with the engine's error
//
// The judge lives in the request's arena. Until start it is the loop thread's; then events come on engine threads, of
// several tasks, and `lock` guards what they share. Whoever ends the last one answers.
#pragma once

#include <jansson.h>
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>

#include "base/buf.h"
#include "engine/engine.h"
#include "server/api/caller.h"
#include "server/api/fields.h"

struct request;

enum { API_JUDGE_KINDS = 3, API_JUDGE_MAX_ANSWER = 64 << 20 };

// One question, and after the end its answer.
struct ask {
    enum decide_kind kind;
    const char *text;
    const char **options;  // DECIDE_ENUM
    size_t noptions;
    double *p;             // [n] probabilities
    size_t n;
    int best;
    double mass;           // NAN: the model does not say
    bool native, wide, done;
};

struct judge_part {
    struct judge *judge;
    int *asks;  // numbers in judge.asks, as the task has them
    int n;
};

struct judge {
    struct request *r;
    struct engine *engine;
    struct model_info *model;
    const char *state;
    struct ask *asks;
    int nasks;
    struct api_caller caller;
    void *ud;                                           // the endpoint's own
    void (*write)(const struct judge *j, struct buf *out);  // the whole answer
    void (*fail)(struct judge *j, const err *e);        // NULL: as everywhere

    struct judge_part parts[API_JUDGE_KINDS];
    struct ticket tickets[API_JUDGE_KINDS];
    int nparts, submitted;
    pthread_mutex_t lock;
    int pending;
    struct usage usage;
    err error;
};

struct judge *api_judge_new(struct request *r, int nasks);
// The model that is meant; without the field the first one that decides. Also reads what caller.h says.
bool api_judge_model(struct judge *j, struct fields *f);
void api_judge_start(struct judge *j);

// A string as it is, any other value as Python writes its JSON.
const char *api_judge_text(struct request *r, const json_t *v);
// Text of a buffer that lives as long as the request; the buffer is empty afterwards.
const char *api_judge_keep(struct request *r, struct buf *b);
// Options of a question: 2 to what the model has. False and a failure with the limit in its text.
bool api_judge_count(struct judge *j, struct fields *f, size_t n, const char *path);

// How far the likeliest answer stands out: 0 when all are alike, 1 when it is certain.
double api_judge_confidence(const struct ask *a);
double api_judge_expected(const struct ask *a);  // probability-weighted number of the option
void api_judge_mass(const struct ask *a, struct buf *out);  // a number or null
