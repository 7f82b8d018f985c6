// responses_items.h - the items of a responses request: what a conversation is made of there, and what the chat templates
// make of it.
//
//     list = api_responses_items_list(&f, has_previous)        // "input" as an array of items; a new reference
//     id = api_responses_items_reference(item)                 // of each: an item that lies in the store; or NULL
//     items = ... earlier items, then list with its references replaced
//     messages = api_responses_items_messages(&f, &reader, items, nearlier)
//     kept = api_responses_items_kept(list)                    // as they are stored and listed
//
// A model's turn comes as several items (reasoning, message, function_call ...); adjacent ones become one message of the
// assistant, as templates know it. Errors name input[2].content[0].type. Loop thread, or one that owns the JSON alone.
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include <jansson.h>

struct fields;

// The field "input"; a string is one message of the user. NULL after a failure. A missing one is an empty list with
// has_previous, else a failure.
json_t *api_responses_items_list(struct fields *f, bool has_previous);
// The id that an item refers to; NULL: it is no reference.
const char *api_responses_items_reference(const json_t *item);

struct api_responses_reader {
    const unsigned char *secret;  // of the tokens of reasoning
    size_t secret_len;
};
// Messages in the shape of messages.h; the first nearlier items are what came before "input". NULL after a failure. A new reference.
json_t *api_responses_items_messages(struct fields *f, const struct api_responses_reader *r, const json_t *items,
                                     size_t nearlier);
// The items with all that the store's answers have: ids, statuses, content in parts. A new reference.
json_t *api_responses_items_kept(const json_t *items);
// A fresh id: the prefix ("msg_") and 32 hex digits, at most 64 bytes with its end.
enum { API_RESPONSES_ID = 64 };
void api_responses_items_id(const char *prefix, char ret_id[API_RESPONSES_ID]);
