// chat.h - a model's chat template: where it comes from, and messages made ready for it.
//
//     struct chat *c;
//     if (chat_open(weights, options.chat_template, &c, &e)) ...       // at load
//     if (chat_render(c, &prompt, bos, eos, now, &out, &e)) ...        // any thread
//
// Templates disagree about the shape of messages. What a template takes is found at load by rendering small probe
// conversations (chat_traits); chat_render then gives it that shape and nothing else is changed: messages a template
// takes as they are render as transformers renders them.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "engine/task.h"
#include "engine/text/template.h"

struct weights;
struct chat;
struct answer_style;

// What the template does by itself. Where a field is false, chat_render does what stands behind it.
struct chat_traits {
    bool system;            // shows a system message; else its text goes in front of the first user message
    bool late_system;       // takes several, anywhere; else all are joined in order and stand first
    bool developer;         // knows the role; else it becomes system
    bool text_content;      // takes content as a string; else strings become [{"type": "text", "text": ...}]
    bool tools;             // shows the tools; else the system message lists them and says how to call (answer_style_generic)
    bool tools_in_system;   // but only with a system message: without one an empty one is put in front
    bool calls;             // shows tool_calls; else, with tools of ours or if it shows no results either, calls become
                            // content: JSON, a line each, in the markers of those tools
    bool many_calls;        // takes several calls a message; else one message a call, each with its result
    bool any_call_id;       // takes any id; else ids become nine letters and digits
    bool named_ids;         // shows a call's id and not its name: ids become functions.NAME:NUMBER
    bool results;           // shows messages of role tool; else they become user messages, neighbours joined
    bool object_arguments;  // arguments as an object; else as JSON text
    bool null_content;      // shows calls only when content is null: "" of a message with calls becomes null
};

// override: a file that replaces the model's template, "chatml" for the built-in one, NULL for the model's own:
// chat_template.jinja, chat_template.json, tokenizer_config.json, or GGUF metadata; a template named tool_use serves
// requests with tools. A model without one is ERR_NOT_FOUND; one that does not parse is an error too.
MUST_CHECK err_code chat_open(const struct weights *w, const char *override, struct chat **ret_chat, err *e);
// From text. tool_source: the template for requests with tools, NULL: the same.
MUST_CHECK err_code chat_open_source(const char *source, size_t len, const char *tool_source, size_t tool_len,
                                     struct chat **ret_chat, err *e);
void chat_close(struct chat *c);

const struct chat_traits *chat_traits(const struct chat *c);
// The template's text, for who looks for the markers it uses. Borrowed.
const char *chat_source(const struct chat *c, bool with_tools, size_t *ret_len);

// How answers are written: found by rendering, so with a template of its own tools may change it. Lives as long as c.
const struct answer_style *chat_answer_style(const struct chat *c, bool with_tools);

// p->messages through the template. bos, eos: the tokens' spelling, NULL if the model has none.
// Errors: ERR_INVALID with the message or call at fault in param, or with what the template said; ERR_TOO_LARGE.
MUST_CHECK err_code chat_render(const struct chat *c, const struct prompt *p, const char *bos, const char *eos,
                                int64_t now, struct rendered *ret_rendered, err *e);
