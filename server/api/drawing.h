// drawing.h - one request for pictures on its way: the engine's events become files, and those the answer.
//
//     struct drawing *d = api_drawing_new(r);
//     ... fill d->task, d->format ... ; r->ud = d;
//     api_drawing_start(d);                      // submits; from here on it answers by itself
//
// What an event carries is copied and put into a list; a thread of the pool takes it out in order, encodes and sends. So
// the engine is never kept waiting, and at most one thread works on a drawing. The drawing is the engine task's until its
// last event and the list's until the answer; the later one frees it.
//
// A stream's 200 is sent with the first progress, before any denoising but after every check.
#pragma once

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "codecs/image_write.h"
#include "engine/engine.h"

struct keep;
struct pool;
struct request;
struct sse;

#define API_PICTURES_MAX 10

struct drawing_item;

struct drawing {
    struct request *r;
    struct engine *engine;
    struct task *task;         // until it is submitted
    struct ticket ticket;
    struct pool *pool;
    struct keep *keep;         // with url
    enum image_format format;
    int compression, n;
    bool stream, url, progress;
    const char *quality;       // as the answer says it
    const char *base_url;      // "http://host" of the request; with url
    char size[24];
    uint64_t seed;
    int latents;               // of one picture: what usage counts
    size_t reserved;           // bytes in keep

    atomic_int refs;
    atomic_bool unwanted;      // nobody waits: what still comes is not encoded
    pthread_mutex_t lock;      // guards the list
    struct drawing_item *first, *last;
    bool busy;                 // a thread works on the list

    // only the thread that works on the list:
    struct sse *sse;
    bool dead;                 // the stream's client is gone
    const char *model;
    int dropped, dropped_negative, tokens;
    char *files[API_PICTURES_MAX];   // base64, or a URL
    size_t lengths[API_PICTURES_MAX];
    err error;
};

struct drawing *api_drawing_new(struct request *r);
void api_drawing_free(struct drawing *d);  // one that was not started
// Submits d->task; answers at once when it is refused.
void api_drawing_start(struct drawing *d);
