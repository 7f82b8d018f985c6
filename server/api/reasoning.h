// reasoning.h - how much a model is asked to think, and whether the answer shows it, in the words of OpenAI, vLLM,
// llama-server, OpenRouter and others.
//
//     reasoning_effort: "none" ... "max"        a variable of the template, its thinking switch, and a budget (see the table)
//     enable_thinking: BOOL                     the switch alone; thinking: {"type": "enabled" | "disabled", "budget_tokens"}
//     thinking_budget, reasoning_budget, thinking_token_budget, thinking_budget_tokens: TOKENS   -1: none; 0 switches it off
//     reasoning: {"effort", "max_tokens", "enabled", "exclude"}
//     include_reasoning: false                  it is left out of the answer
//     reasoning_format: "none"                  the answer's text as the model writes it, nothing told apart
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "server/api/fields.h"

// Rows of a table for api_fields_check.
#define API_REASONING_FIELDS \
    {"reasoning_effort", FIELD_HONOURED, "string"}, {"enable_thinking", FIELD_HONOURED, "boolean"}, \
    {"thinking", FIELD_HONOURED, "object"}, {"thinking_budget", FIELD_HONOURED, "integer"}, \
    {"reasoning_budget", FIELD_HONOURED, "integer"}, {"thinking_token_budget", FIELD_HONOURED, "integer"}, \
    {"thinking_budget_tokens", FIELD_HONOURED, "integer"}, {"reasoning", FIELD_HONOURED, "object"}, \
    {"include_reasoning", FIELD_HONOURED, "boolean"}, \
    {"reasoning_format", FIELD_HONOURED, "string"}

struct api_reasoning {
    const char *effort;  // NULL: not said
    int on;              // the template's switch: 1, 0; -1: not said
    int max;             // tokens; -1: no limit
    bool hidden, raw;
};

void api_reasoning_read(struct fields *f, struct api_reasoning *ret_reasoning);
// What the template is told; a new reference, NULL: nothing.
json_t *api_reasoning_kwargs(const struct api_reasoning *r);
