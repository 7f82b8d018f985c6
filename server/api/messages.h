// messages.h - the messages of a chat, checked and brought into the one shape chat templates expect.
//
// Out of every message comes an object whose content is a string: text parts are joined, null becomes "". Arguments of
// earlier tool calls are objects when they parse as one (templates print them as JSON), a deprecated function call or
// result becomes its tool twin. Fields that are null are dropped, fields this server does not know go to the template.
#pragma once

struct arena;
struct fields;
struct json_t;
struct prompt;

// Reads messages, documents, chat_template_kwargs, reasoning_effort, add_generation_prompt and continue_final_message.
// What *ret_prompt points to is the arena's own. On a failure f names the path of what is wrong and *ret_prompt is as
// before.
void api_messages_prompt(struct fields *f, struct arena *a, struct prompt *ret_prompt);
// What a template sees beside the messages: chat_template_kwargs and what the fields of reasoning say. A new reference; NULL:
// nothing.
struct json_t *api_messages_kwargs(struct fields *f);
// A copy that is freed with the arena; NULL for NULL. Tasks are freed on other threads than requests, and reference
// counts must not be shared between threads.
struct json_t *api_messages_own(struct arena *a, const struct json_t *v);
