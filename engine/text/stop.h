// stop.h - stop strings over a stream of text: nothing that may be the start of one leaves before it is decided.
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "base/buf.h"

struct stop;

// Copied; empty strings are ignored; NULL when none is left. include: a completed string leaves too.
struct stop *stop_new(const char *const *strings, size_t n, bool include);
// Another matcher of the same strings, which both keep: for the other choices of a request. s NULL: NULL. One thread at a time.
struct stop *stop_share(const struct stop *s);
void stop_free(struct stop *s);
// Feeds text; appends to out what may leave now. Returns true when a stop string was completed: out then ends just before
// it (or with it) and nothing more may be fed. With s == NULL everything passes.
bool stop_feed(struct stop *s, const char *text, size_t len, struct buf *out);
// What was held back leaves: the text ends here, or goes on elsewhere and nothing is matched across.
void stop_flush(struct stop *s, struct buf *out);
