// caller.h - who a request is for and how soon: what every task is told besides its own work.
//
//     struct api_caller c;
//     api_caller_read(&c, &f);                    // key, headers and the shared body fields
//     ... task_new ... api_caller_fill(&c, t);    // copies
//
// From                                                to
//     the API key; with trust_gateway the gateway's   task.account, task.weight
//     fairness id instead; else the peer's address
//     "priority" (vLLM's: below 0 earlier, above      task.class, never better than the key may have
//     later) or "service_tier" (flex, priority ...)
//     the key's group or the key, and "cache_salt"    task.cache_salt: who may see whose cached prefixes
//     "timeout" (s), x-request-timeout-ms             task.deadline_ns, the sooner
//     the setting queue_timeout_s                     task.begin_deadline_ns
//
// Loop thread; what it points to lives as long as the request.
#pragma once

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#include "engine/engine.h"
#include "server/api/fields.h"

struct api_caller {
    const char *account, *cache_salt;
    float weight;
    enum task_class class;
    int64_t arrived_ns, deadline_ns, begin_deadline_ns;
    const char *tier;  // "service_tier" of the answer; NULL when it was not asked for
    const atomic_bool *behind;  // the request's
};

// For api_fields_check; and for a list that has more (generate.c).
#define API_CALLER_FIELDS                                                                                                   \
    {"timeout", FIELD_HONOURED, "number 0.001..604800"}, {"cache_salt", FIELD_HONOURED, "string"},                          \
    {"service_tier", FIELD_HONOURED, "string: auto default flex priority standard scale batch"},                            \
    {"priority", FIELD_HONOURED, "integer -2147483648..2147483647"}
extern const struct field api_caller_fields[];
extern const size_t api_caller_nfields;

void api_caller_read(struct api_caller *c, struct fields *f);
void api_caller_fill(const struct api_caller *c, struct task *t);
