// session_text.h - from a choice's tokens to the text that leaves: the middle part of session.c.
//
//   token ──detokeniser──▶ text ──▶ the parser of answers ──▶ content ──▶ stop strings ──▶ EVENT_TEXT
//                                        └──▶ reasoning, calls ─────────────────────────▶ EVENT_TEXT
//
// Without generate.split, and for models whose template has no style, all text is content.
//
// A token leaves with the text it made, in an event of that text's channel: with the first event that brings the last of its
// bytes, or a later one. Tokens whose text is nowhere (markers) leave with the next event. Ids (generate.token_ids) wait for
// no text: every event has those that are new, and a step that brings no text an empty event of content.
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "base/buf.h"
#include "engine/task.h"
#include "engine/tokenizer/tokenizer.h"

struct answer;
struct choice;
struct session;
struct stop;

// A sampled token whose text has not left yet.
struct session_token {
    struct token_logprob logprob;
    size_t start, end;  // bytes of the choice's text before and after it
};

// Where a stretch of content stands in the text.
struct session_place {
    size_t end, len;    // bytes of content up to its end, and in it
    size_t from, to;    // bytes of the text
};

struct session_text {
    struct detok detok;
    struct answer *answer;      // NULL: all is content
    struct stop *stop;
    struct buf piece, content;  // of this token, as detokenised; of this step, as it may leave
    size_t fed;                 // bytes of text so far
    size_t content_in, content_out;  // bytes of content so far; of these, not held back
    size_t released;            // place in the text up to which everything has left
    struct session_place *places;    // of content that is held back
    int nplaces, places_cap;
    struct session_token *tokens;    // with logprobs: waiting for their text
    int ntokens, tokens_cap;
    int reasoned;               // tokens of reasoning
    bool hit;                   // a stop string was completed
    bool beside;                // the last part was none of the content
    int told;                   // tokens whose ids have left
};

void session_text_init(struct session *s, struct choice *c);
void session_text_done(struct choice *c);
// Adds the token's text; lp NULL: without logprobs. True: a stop string was completed.
bool session_text_say(struct session *s, struct choice *c, int32_t id, const struct token_logprob *lp);
void session_text_send(struct session *s, struct choice *c);  // the end of a step: what may leave
// The end of the answer. cut: the token limit ends it; a call that has only begun is then not shown as content.
void session_text_finish(struct session *s, struct choice *c, bool cut);
// The ids that have not left yet, where they are asked for, leave with this event.
void session_text_ids(const struct session *s, struct choice *c, struct event *ev);
// The text of the prompt by the same decoder as the answer's, to every choice; tokens NULL: without them.
void session_text_echo(struct session *s, const struct token_logprob *tokens);
