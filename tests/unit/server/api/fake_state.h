// fake_state.h - what the fake engine and the fake server note, for the tests to look at.
#pragma once

#include <jansson.h>
#include <pthread.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/mem.h"
#include "engine/engine.h"
#include "server/api/handlers.h"
#include "server/reply.h"
#include "server/request.h"
#include "server/responses.h"
#include "server/running.h"
#include "server/server.h"

enum { FAKE_TASKS = 300, FAKE_EVENTS = 500 };

static struct {
    struct request *r;
    struct task *tasks[FAKE_TASKS];
    bool cancelled[FAKE_TASKS];
    int ntasks;
    err refuse;       // what engine_submit answers, from task refuse_at on
    int refuse_at;
    struct model_info models[3];
    int nmodels;
    struct server_config settings;
    const char *header_name, *header;  // the only one of the next request
    int64_t usage;

    int status, answers;
    const char *type;  // of the error
    json_t *body;
    char ignored[600];
    bool stream, ended, with_done, client_gone;
    const char *names[FAKE_EVENTS];  // of the events; NULL: one without
    char *events[FAKE_EVENTS];
    int nevents;

    char *text;                // an answer that is not JSON, or the bytes of a stream
    size_t text_len;
    char content_type[64];
    bool bytes, bytes_ok;      // a stream of bytes; how it ended
    int again;                 // request_again was called so often
    err room;         // what engine_room answers
    const char *loaded, *unloaded;  // what engine_load_model and engine_unload_model were last called with
    bool work_waits;           // request_work does nothing; the test calls the two itself
    struct responses *responses;
    const char *given_key;     // of the next request
    const char *query[4][2];   // name, value
    const char *running;       // the id of a request that can be ended
    void (*work)(struct request *r), (*work_done)(struct request *r);
} fake;
