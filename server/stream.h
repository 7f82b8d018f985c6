// stream.h - the loop's side of streamed answers: a ring of bytes between a producer on any thread and MHD's reader on
// the loop thread. What a producer of plain bytes calls is in request.h; events are framed in sse.c.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

struct exchange;
struct MHD_Response;

// A response that reads x's ring; holds a reference to x.
struct MHD_Response *stream_response(struct exchange *x);
// Loop thread: takes bytes out of the ring. 0: empty, more may come; MHD_CONTENT_READER_END_OF_STREAM, _END_WITH_ERROR.
ssize_t stream_read(struct exchange *x, char *out, size_t max);

// Room for n bytes more; false: the reader is too far behind, or no memory. x->lock held, as for stream_put.
bool stream_reserve(struct exchange *x, size_t n);
void stream_put(struct exchange *x, const char *p, size_t n);  // reserved before
