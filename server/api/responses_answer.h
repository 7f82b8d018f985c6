// responses_answer.h - the answer of a responses request: items in the order in which the model wrote them (reasoning, message,
// function_call ...), one open at a time, whole in one object or as a stream of named events with sequence numbers.
//
//     closed ──text of another channel──▶ reasoning | message | call ──its end, or text of another channel──▶ closed
//
// The same machine runs for whole answers: their events are not sent. What is kept is the object as the client got it, and the
// input's items (server/responses.h). Under the generation's lock, but for what the header of generate.h says of begin.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "server/api/generate.h"
#include "server/api/reasoning.h"
#include "server/api/responses_items.h"
#include "server/api/tools.h"

struct responses;

enum api_item { API_ITEM_NONE, API_ITEM_REASONING, API_ITEM_MESSAGE, API_ITEM_CALL, API_ITEM_CUSTOM };

// g->own. The first part is filled by the handler before api_generate_start.
struct api_answer {
    struct api_tools tools;
    struct api_reasoning reasoning;
    bool store, summary, encrypted;
    struct responses *kept;   // a reference; NULL: nothing is stored
    const char *owner, *previous;  // previous NULL: none
    const char *echo;         // members of the object that repeat the request: ,"name":value ...
    const json_t *input;      // its items as they are kept
    const char **input_ids;
    size_t ninput;

    int64_t created;
    int sequence;
    enum api_item open;
    char id[API_RESPONSES_ID];     // of the open item
    int nitems;                    // finished and open ones
    bool spoke;                    // there is a message or a call
    struct buf text, logprobs;     // of the open item
    struct buf output;             // finished items, split by commas
    struct buf event;              // scratch
    const char **ids;              // of the output's items
    int nids, ids_cap;
};

extern const struct api_format api_responses_answer_format;
struct api_answer *api_responses_answer_new(struct generation *g);
