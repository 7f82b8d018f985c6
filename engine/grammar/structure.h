// structure.h - answers made of several forms: texts, free text up to a marker, JSON of a schema, calls that begin with a
// trigger. GRAMMAR_STRUCTURE; what vLLM and SGLang call a structural tag.
//
//     {"type": "structural_tag", "format": FORMAT}
//
//     FORMAT ::= {"type": "const_string", "value": TEXT}
//              | {"type": "json_schema", "json_schema": SCHEMA, "style": STYLE}     style: how the value is written, see below
//              | {"type": "regex", "pattern": TEXT} | {"type": "grammar", "grammar": GBNF}
//              | {"type": "choice", "values": [TEXT ...]}                           one of many texts, none of them with marks
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
// What follows must begin with texts, or be the end of the answer, which then may come anywhere in the free text.
// Any FORMAT may have "field" and "name": what errors about it name instead of the request's ("tools[1].function.parameters"
// and the function's name; "response_format" and the schema's).
//
// json_schema: STYLE is one of schema.h's: "json" (as when it is missing), "xml_parameter", "arg_key", "gemma" (with "quote":
// TEXT where its strings stand between something else), "python". {"type": "qwen_xml_parameter"} is xml_parameter too.
//
// Markers. A tokenizer has many of these texts as one added or control token, which stands in no ordinary text. The trie
// spells such a token as MARK and its text (token_trie.h), so that no schema, pattern or grammar can write it; texts of a
// structure (const_string, begin, end, triggers) are accepted with and without the mark, wherever in them it stands; free
// text may hold marked tokens but those that end a turn, and their texts count in it like any others.
#pragma once

#include <stddef.h>

#include "base/err.h"
#include "engine/grammar/nodes.h"

// Fills g (nodes_init before) and returns the root in *ret_root. ERR_INVALID, ERR_UNSUPPORTED as schema_compile; the error's
// param is the field of the FORMAT at fault where it has one.
MUST_CHECK err_code structure_compile(const char *text, size_t len, struct nodes *g, uint32_t *ret_root, err *e);
