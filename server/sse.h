// sse.h - the loop's side of event streams; the producer's is in request.h.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct exchange;

// Loop thread: one last event (data NULL: none), then the end; the producer's events are refused from now on. A stream of bytes is broken
// off instead.
void sse_abort(struct exchange *x, const char *data, size_t len);
// Loop thread: writes a comment when nothing was sent for idle_ns. True: the reader must be woken.
bool sse_keep_alive(struct exchange *x, int64_t now_ns, int64_t idle_ns);
