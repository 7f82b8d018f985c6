// chunks.h - answers made of choices: what chat and text completions have in common. The functions of an api_format, for
// formats whose begin calls api_chunks_begin; a stream is one chunk an event, a whole answer all choices in one object.
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "base/buf.h"
#include "server/api/generate.h"

enum api_part {
    PART_WHOLE,    // the choice of an answer that is not streamed
    PART_OPENING,  // first chunk of a choice
    PART_PIECE,
    PART_LAST,     // carries the finish reason
};

struct api_chunk_format {
    const char *object, *chunk_object;
    bool opens;  // chunks begin with PART_OPENING
    bool beside; // what is told of the prompt stands beside the choices, else in each
    // Appends one element of "choices". ev: the event of a PART_PIECE, else NULL.
    void (*choice)(const struct generation *g, int index, enum api_part part, const struct event *ev, struct buf *out);
};

void api_chunks_begin(struct generation *g, const struct api_chunk_format *format);
void api_chunks_open(struct generation *g);
void api_chunks_text(struct generation *g, int index, const struct event *ev);
void api_chunks_finish(struct generation *g, int index);
void api_chunks_progress(struct generation *g, const struct event *ev);
void api_chunks_end(struct generation *g);
void api_chunks_whole(struct generation *g, struct buf *out);
// Appends `,"timings":{...}` as llama-server has it: of the prompt until the first text, of the answer from there until now.
void api_chunks_timings(const struct generation *g, struct buf *out);
