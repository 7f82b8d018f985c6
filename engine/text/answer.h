// answer.h - the parts of a chat model's answer: what it thinks, what it says, what it calls.
//
//     style = chat_answer_style(chat, with_tools)             at load: found by probing the template; immutable
//     answer_structure(style, &ask, &text, &e)                prep thread: what the answer may be, for the grammar
//     a = answer_new(style, &ask)                             one for each choice
//     answer_feed(a, text, len, marker, on_part, ud)          whole UTF-8 characters, as they are detokenised
//     answer_finish(a, on_part, ud)                           what was held back; then answer_free
//
// A style is a description, never a flag of the user's: which markers stand around reasoning and calls, and how a call is
// written between them. It is read off the text that the template itself makes of a conversation with reasoning and calls.
//
// The parser holds back what may become a marker, and nothing else. Whatever it is given comes out: as content, reasoning,
// the name and arguments of a call, or, markup that turns out to be no call, as content. The white space that a template
// puts around its markers belongs to them and comes out nowhere; nor does the beginning of a call that was asked for and cut.
//
// Owned by one choice; no locks.
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "base/buf.h"
#include "base/err.h"
#include "engine/task.h"

struct answer_style;
struct answer;

// What an answer is asked to be. Borrowed; must live as long as the answer.
struct answer_ask {
    const struct json_t *tools;     // as in the request; NULL or empty: calls are not looked for
    const struct tool_rules *rules; // NULL: any tool, as many calls as it likes
    const struct grammar_request *content;  // the form its content must have; NULL or GRAMMAR_NONE: any
    bool thinking;                  // the rendered prompt ends inside the reasoning: answer_opens says so
};

// Whether an answer to a prompt that ends with this text begins inside the reasoning.
bool answer_opens(const struct answer_style *s, const char *prompt, size_t len);
// Whether the model thinks at all, and whether answers can hold calls.
bool answer_thinks(const struct answer_style *s);
// The text that closes the reasoning ("\n</think>\n\n"); NULL: the model has none.
const char *answer_close(const struct answer_style *s);
// Whether this text is a marker of the style: of a control token it is fed to the parser, any other one is not seen.
bool answer_is_marker(const struct answer_style *s, const char *text, size_t len);

// The form of the whole answer, reasoning and calls included, as the text of a GRAMMAR_STRUCTURE (grammar/structure.h);
// *ret_text is NULL when anything goes. The caller frees it. Errors name the tool ("tools[1].function.parameters").
MUST_CHECK err_code answer_structure(const struct answer_style *s, const struct answer_ask *ask, char **ret_text, err *e);

// A call's name comes in a part of its own, without text, before its arguments; its last part may have no text either.
struct answer_part {
    enum channel channel;
    int call;          // CHANNEL_CALL as in struct event
    const char *name;
    bool call_ends;
    const char *text;
    size_t len;
    size_t from, to;   // bytes fed before the first byte this part is made of and after its last: which tokens it came from
};
typedef void answer_part_fn(void *ud, const struct answer_part *p);

struct answer *answer_new(const struct answer_style *s, const struct answer_ask *ask);
void answer_free(struct answer *a);
// marker: the text is one control token's spelling.
void answer_feed(struct answer *a, const char *text, size_t len, bool marker, answer_part_fn *on_part, void *ud);
void answer_finish(struct answer *a, answer_part_fn *on_part, void *ud);
// What has come so far.
bool answer_in_reasoning(const struct answer *a);
int answer_ncalls(const struct answer *a);  // complete ones
bool answer_in_call(const struct answer *a);  // a marker has begun one, and its name has not come out
