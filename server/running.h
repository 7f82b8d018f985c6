// running.h - requests that are being worked on, by the id the client knows: the one sent back as x-request-id, or the
// one in the answer's chunks ("chatcmpl-...").
#pragma once

#include <stdbool.h>

struct request;

// DELETE .../{id}: ends the caller's requests of this id wherever they are (being read, prepared, queued, computed,
// streamed) and says so; 404 when there is none of the same API key. Who waits for one gets the error "cancelled": as an
// answer with status 499, or as the last event of its stream. Loop thread.
// How many of the caller's requests of this id were ended, `by` not counted. Loop thread.
int running_end(struct request *by, const char *id);
bool running_has(struct request *by, const char *id);
void running_delete(struct request *r);
