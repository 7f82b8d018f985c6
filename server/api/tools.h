// tools.h - what a request says about tools: tools, tool_choice, parallel_tool_calls, and the deprecated functions and
// function_call. One place for both nestings: chat's {"type": "function", "function": {"name": ...}} and the flat one of
// responses.
//
//     struct api_tools tools;
//     api_tools_read(&f, &r->arena, TOOLS_NESTED, &tools);
//     g->tools = &tools (in the request's arena); g->settings.tools = tools.rules;
//     t->generate.prompt.tools = api_messages_own(&t->arena, tools.list);
//
// The engine knows functions only. A custom tool, whose input is any text, goes to it as a function with one string argument
// "input"; api_tools_custom says which calls must be turned back, api_tools_input how.
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "base/buf.h"
#include "base/err.h"
#include "engine/engine.h"

struct arena;
struct fields;
struct json_t;

enum api_tools_nesting {
    TOOLS_NESTED,  // and the deprecated fields
    TOOLS_FLAT,    // accepts the other one, too: bridges between the two endpoints send it
};

struct api_tool {
    const char *name;
    bool custom;
};

struct api_tools {
    struct json_t *list;       // in chat's nesting, element by element the request's; NULL: no tools are shown or called
    struct tool_rules rules;
    const struct api_tool *all;
    size_t n;
    enum api_tools_nesting nesting;
    bool functions;            // asked with the deprecated fields: answers are worded like them
};

// What *ret_tools points to lies in the arena. On a failure f names what is wrong and *ret_tools shows no tools.
void api_tools_read(struct fields *f, struct arena *a, enum api_tools_nesting nesting, struct api_tools *ret_tools);
bool api_tools_custom(const struct api_tools *t, const char *name);
// Appends the input of a custom call whose arguments, complete ones, are these.
void api_tools_input(const char *arguments, size_t len, struct buf *out);
// The engine names tools[i] as list has them: brings an error's param and text into the request's words. Returns the code that
// belongs to it, NULL: the usual one.
const char *api_tools_word(const struct api_tools *t, err *e);
