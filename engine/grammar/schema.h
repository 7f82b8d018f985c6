// schema.h - a JSON Schema (2020-12, and what older drafts spell otherwise) as nodes that write only values it accepts.
//
// Every keyword is enforced, an annotation, or refused by name (ERR_UNSUPPORTED); nothing is ignored that says something.
// Where the specification leaves more values than anyone wants, fewer are written: properties in the order given and
// declared ones only when `properties` is there and `additionalProperties` is not; arrays with `prefixItems` and no
// `items` end behind them. A schema that no value satisfies is ERR_INVALID.
#pragma once

#include "base/err.h"
#include "engine/grammar/nodes.h"

struct json_t;

// Fills g (nodes_init before). The schema is only read.
MUST_CHECK err_code schema_compile(const struct json_t *schema, struct nodes *g, uint32_t *ret_root, err *e);
