// trace.h - W3C trace context: what a caller's traceparent says, and what is answered.
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct trace {
    char trace_id[33], parent_id[17], span_id[17], flags[3];  // all empty: the request belongs to no trace
};

// False, and *ret untouched, for what the specification calls invalid. The new span's id is made of span, which is not 0.
bool trace_parse(const char *traceparent, uint64_t span, struct trace *ret);
// "00-TRACE-SPAN-FLAGS", ours being the span.
enum { TRACE_TEXT = 56 };
void trace_text(const struct trace *t, char *ret_text);
