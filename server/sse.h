// sse.h - the loop's side of event streams; the producer's is in request.h.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct exchange;
struct MHD_Response;

// A response that reads x's ring; holds a reference to x.
struct MHD_Response *sse_response(struct exchange *x);
// Loop thread: one last event, then the end; the producer's events are refused from now on.
void sse_abort(struct exchange *x, const char *data, size_t len);
// Loop thread: writes a comment when nothing was sent for idle_ns. True: the reader must be woken.
bool sse_keep_alive(struct exchange *x, int64_t now_ns, int64_t idle_ns);
// Loop thread: takes bytes out of the ring. 0: empty, more may come; MHD_CONTENT_READER_END_OF_STREAM, _END_WITH_ERROR.
ssize_t sse_read(struct exchange *x, char *out, size_t max);
