// stored.h - what was kept of earlier responses: finding it for a request that goes on with it, and the addresses of one
// response (get, input_items, delete, cancel).
#pragma once

#include <stddef.h>

#include <jansson.h>

#include "base/err.h"

struct request;
struct responses;

// The name of whoever sent the request, in the store: nobody else's; without API keys everybody's. In its arena.
const char *api_stored_owner(struct request *r);

struct api_stored_problem {
    int status;
    const char *code;  // NULL: null
    err e;             // e.code ERR_OK: all is well
};
// The items of a response's whole conversation, its own last: of each response on the way its input, then its output. NULL
// after a failure, else a new reference. Waits for the disk.
json_t *api_stored_conversation(struct responses *s, const char *owner, const char *id, struct api_stored_problem *ret_problem);
// The list with what its references stand for in their place. NULL after a failure. Waits for the disk.
json_t *api_stored_resolve(struct responses *s, const char *owner, const json_t *list, struct api_stored_problem *ret_problem);
