// schema.h - a JSON Schema (2020-12, and what older drafts spell otherwise) as nodes that write only values it accepts.
//
// Every keyword is enforced, an annotation, or refused by name (ERR_UNSUPPORTED); nothing is ignored that says something.
// Where the specification leaves more values than anyone wants, fewer are written: properties in the order given and
// declared ones only when `properties` is there and `additionalProperties` is not; arrays with `prefixItems` and no
// `items` end behind them. A schema that no value satisfies is ERR_INVALID.
//
// Styles. Models write the arguments of a call in forms of their own; the same schema then says what the members of its
// object may be. They write what JSON writes or less, and refuse what they cannot enforce.
//
//     xml_parameter   <parameter=NAME>\nVALUE\n</parameter>\n ...                        values: text, or JSON
//     arg_key         <arg_key>NAME</arg_key>\n<arg_value>VALUE</arg_value>\n ...         the same
//     gemma           {NAME:VALUE,...}      strings between quotes of their own (<|"|>), objects and arrays as deep as need be
//     python          NAME=VALUE, ...       True, False, None; below, dictionaries and lists; strings as in JSON
//
// In the first two a member whose schema allows only strings is the text itself, up to what closes it; one that allows
// null too is that text, or `null`, which then is no string; any other is JSON. schema_form_of tells which.
#pragma once

#include <stdbool.h>

#include "base/err.h"
#include "engine/grammar/nodes.h"

struct json_t;

enum schema_style { SCHEMA_JSON, SCHEMA_XML_PARAMETER, SCHEMA_ARG_KEY, SCHEMA_GEMMA, SCHEMA_PYTHON };
bool schema_style_find(const char *name, enum schema_style *ret_style);

// Fills g (nodes_init before). The schema is only read.
MUST_CHECK err_code schema_compile(const struct json_t *schema, struct nodes *g, uint32_t *ret_root, err *e);
// quote: around the strings of gemma; NULL: <|"|>.
MUST_CHECK err_code schema_compile_styled(const struct json_t *schema, enum schema_style style, const char *quote,
                                          struct nodes *g, uint32_t *ret_root, err *e);

enum schema_form { SCHEMA_FORM_JSON, SCHEMA_FORM_TEXT, SCHEMA_FORM_TEXT_OR_NULL };
// How xml_parameter and arg_key write a member of an object. What cannot be told, or is not declared, is JSON.
enum schema_form schema_form_of(const struct json_t *schema, const char *name);
