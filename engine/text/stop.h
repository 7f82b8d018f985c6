// stop.h - stop strings over a stream of text: nothing that may be the start of one leaves before it is decided.
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "base/buf.h"

struct stop;

struct stop *stop_new(const char *const *strings, size_t n);  // copied; empty strings are ignored; NULL when none is left
void stop_free(struct stop *s);
// Feeds text; appends to out what may leave now. Returns true when a stop string was completed: out then ends just before
// it and nothing more may be fed. With s == NULL everything passes.
bool stop_feed(struct stop *s, const char *text, size_t len, struct buf *out);
void stop_flush(struct stop *s, struct buf *out);  // at the end without a match: what was held back
