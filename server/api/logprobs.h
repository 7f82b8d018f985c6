// logprobs.h - tokens of an answer's content as chat and responses show them: {"token", "logprob", "bytes", "top_logprobs"}.
#pragma once

struct choice;
struct event;

// An api_format's logprobs: lists[0] has the elements, split by commas, of what came since it was emptied.
void api_logprobs_add(struct choice *c, const struct event *ev);
