// body.h - a request's body: collected on the loop thread, parsed there or on the thread pool.
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"

struct exchange;

// Adds bytes; ERR_TOO_LARGE past max_body, ERR_BUSY when all bodies together are too much, ERR_MEMORY.
MUST_CHECK err_code body_add(struct exchange *x, const char *data, size_t n, err *e);
// The same for a form. What is wrong with it goes to x->parse_error and is said when the rest has come; ERR_TOO_LARGE and
// ERR_BUSY end the request now.
MUST_CHECK err_code body_add_upload(struct exchange *x, const char *data, size_t n, err *e);
void body_release(struct exchange *x);  // what it counts for in the server's sums
// Parses x->r.body into x->r.json, or fills x->parse_error (line and column). Any thread, nothing else touching x.
bool body_parse(struct exchange *x);
// More than max values (numbers, strings, names ...) outside strings, or more than max_members of the dear ones (members,
// objects, arrays): parsing would need many times the body's size, and freeing it the loop's time.
bool body_too_many_values(const char *text, size_t n, size_t max, size_t max_members);
// How many of the dear ones there are.
size_t body_members(const char *text, size_t n);
// The field of the object that the first n bytes of a body end in, for an error that names it; "" when there is none, or none
// with a name of our kind (lower-case letters and _).
void body_field_at(const char *text, size_t n, char *out, size_t size);
