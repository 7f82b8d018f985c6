// answer.h - what came back for one request, in a form in which two answers to the same request can be compared: without
// ids and times, and however the text was cut into events.
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "base/buf.h"

enum { ANSWER_CHOICES = 8 };

struct answer_choice {
    struct buf text;      // all of it
    struct buf logprobs;  // of the tokens, one line each, as they came
    struct buf ids;       // of the tokens, where the server tells them, one line each
    char finish[20];
};

struct answer {
    int status;
    bool stream;          // the body is a stream of events
    bool done;            // [DONE] came
    bool failed;          // an error event came, or what came is no JSON
    int prompt_tokens, cached_tokens, completion_tokens;  // of usage; -1: none came
    struct answer_choice choices[ANSWER_CHOICES];
    struct buf whole;     // no stream: the body; a stream: the error event
};

void answer_init(struct answer *a);
void answer_clear(struct answer *a);
void answer_done(struct answer *a);
// The payload of one event; returns the number of choices that it brings tokens of: by their ids where the server tells them,
// else by their text, which a token need not have.
int answer_event(struct answer *a, const char *data, size_t len);
void answer_body(struct answer *a, const char *data, size_t len);
// Why got is not the answer that want is; NULL: it is. partial: got may be the beginning of it.
const char *answer_differs(const struct answer *want, const struct answer *got, bool partial);
