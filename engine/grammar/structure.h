// structure.h - answers made of several forms: texts, free text up to a marker, JSON of a schema, calls that begin with a
// trigger. GRAMMAR_STRUCTURE; what vLLM and SGLang call a structural tag.
//
//     {"type": "structural_tag", "format": FORMAT}
//
//     FORMAT ::= {"type": "const_string", "value": TEXT}
//              | {"type": "json_schema", "json_schema": SCHEMA, "style": STYLE}     style: how the value is written, see below
//              | {"type": "regex", "pattern": TEXT} | {"type": "grammar", "grammar": GBNF}
//              | {"type": "any_text", "excludes": [TEXT ...]}                       any text in which none of these occurs
//              | {"type": "sequence", "elements": [FORMAT ...]}
//              | {"type": "or", "elements": [FORMAT ...]}
//              | {"type": "optional", "content": FORMAT} | {"type": "plus" | "star", "content": FORMAT}
//              | TAG
//              | {"type": "triggered_tags", "triggers": [TEXT ...], "tags": [TAG ...], "at_least_one": BOOL,
//                 "stop_after_first": BOOL, "excludes": [TEXT ...]}                 free text with tags in it, each begun by a trigger
//              | {"type": "tags_with_separator", "tags": [TAG ...], "separator": TEXT, "at_least_one": BOOL,
//                 "stop_after_first": BOOL}
//     TAG    ::= {"type": "tag", "begin": TEXT, "content": FORMAT, "end": TEXT | [TEXT ...]}
//
// A free text ends at the text that follows it: the first place where its tag's end, or the next constant, can be read.
// Any FORMAT may have "field": what errors about it name instead of the request's field.
//
// Styles of json_schema: "json"; others write an object's members in a form of their own and refuse what they cannot
// enforce: "xml_parameter" (<parameter=NAME>\nVALUE\n</parameter>\n, strings as they are), "arg_key" (<arg_key>NAME</arg_key>\n
// <arg_value>VALUE</arg_value>\n), "gemma" ({NAME:VALUE,...}, strings between quotes of two characters), "python" (NAME=VALUE, ...).
//
// Markers. A tokenizer has many of these texts as one added or control token, which stands in no ordinary text. The trie
// spells such a token as MARK and its text (token_trie.h), so that no schema, pattern or grammar can write it; texts of a
// structure (const_string, begin, end, triggers) are accepted with and without the mark, and free text may hold marked
// tokens but those that end a turn.
#pragma once

#include <stddef.h>

#include "base/err.h"
#include "engine/grammar/nodes.h"

// Fills g (nodes_init before) and returns the root in *ret_root. ERR_INVALID, ERR_UNSUPPORTED as schema_compile; the error's
// param is the field of the FORMAT at fault where it has one.
MUST_CHECK err_code structure_compile(const char *text, size_t len, struct nodes *g, uint32_t *ret_root, err *e);
