// answer_int.h - what the files of answer.h share: the style as data, markers in a text, JSON byte by byte.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "engine/text/answer.h"

// How a call is written between its markers.
enum answer_form {
    FORM_OBJECT,  // {"name": "f", "arguments": {...}}, keys in any order, others skipped
    FORM_NAMED,   // f MARK_NAME_END {...}
    FORM_TAGS,    // f MARK_NAME_END, then MARK_KEY k MARK_KEY_END value MARK_VALUE_END for each argument
    FORM_BRACES,  // f{k:v,...}: JSON but for names and for strings, which stand between MARK_QUOTE
    FORM_PYTHON,  // f(k=v, ...): Python's literals
};

// Texts as the template writes them, white space included; "" where there is none. What a text finds of them is in
// answer_mark_match.
enum answer_mark {
    MARK_TURN,                           // what opens the assistant's turn in a prompt
    MARK_THINK, MARK_THINK_END,          // around reasoning
    MARK_SAY, MARK_SAY_END,              // around content
    MARK_LEAD,                           // may stand in front of calls that need no marker
    MARK_SECTION, MARK_SECTION_END,      // around all calls
    MARK_CALL, MARK_CALL_END,            // around each
    MARK_SEPARATOR,                      // between two
    MARK_NAME_KEY, MARK_ARGUMENTS_KEY,   // FORM_OBJECT: the keys
    MARK_OBJECT, MARK_MIDDLE, MARK_OBJECT_END,  // FORM_OBJECT: in front of the name, up to the arguments, behind them
    MARK_NAME_END,
    MARK_KEY, MARK_KEY_END, MARK_VALUE_END,
    MARK_QUOTE,
    MARKS
};
// In a mark: any id, and any number.
#define MARK_ID '\1'
#define MARK_INDEX '\2'
#define MARK_WILD "\1\2"

struct answer_style {
    bool calls;       // else no call is looked for
    bool bare;        // a call begins without a marker: as the first thing said, and only with the name of a tool
    bool generic;     // calls as answer_style_generic has them: the template knows none
    enum answer_form form;
    char *mark[MARKS];
};

// answer_style.c
struct answer_style *answer_style_new(void);
void answer_style_free(struct answer_style *s);
void answer_style_set(struct answer_style *s, enum answer_mark mark, const char *text, size_t len);
// Calls for templates that know none: a JSON object between markers.
#define ANSWER_GENERIC_CALL "<tool_call>\n"
#define ANSWER_GENERIC_CALL_END "\n</tool_call>"
void answer_style_generic(struct answer_style *s);
// The style in one line, for tests and logs. The caller frees it.
char *answer_style_text(const struct answer_style *s);

// answer_mark.c
enum match { MATCH_NO, MATCH_PART, MATCH_YES };
// Whether p[0..n) begins with the mark. White space in the mark may be any or none; between tags (<a>, [A]) there may be
// some; at both ends it is not looked at. MATCH_PART: it does so far.
enum match answer_mark_match(const char *mark, const char *p, size_t n, size_t *ret_len);
bool answer_mark_space(char c);
// The mark without white space at its ends.
const char *answer_mark_core(const char *mark, size_t *ret_len);
// Length of the tag at p: <...>, [A...], 0: none.
size_t answer_mark_tag(const char *p, size_t n);

// answer_json.c: checks JSON a byte at a time.
enum { ANSWER_JSON_DEPTH = 512 };
struct answer_json {
    unsigned char state, left;
    const char *literal;
    int depth;
    uint64_t objects[ANSWER_JSON_DEPTH / 64];  // a bit for each open bracket: it is an object's
};
enum answer_json_step {
    JSON_MORE,
    JSON_END,    // the value ends with this byte
    JSON_AFTER,  // it ended before this byte: only numbers
    JSON_BAD,
};
void answer_json_start(struct answer_json *j);
enum answer_json_step answer_json_step(struct answer_json *j, unsigned char c);
bool answer_json_in_string(const struct answer_json *j);

// answer_value.c: values that are not written as JSON.
struct json_t;
// The schema of a function's parameter; NULL: it has none. *ret_root is where its $ref start.
const struct json_t *answer_value_schema(const struct json_t *tools, const char *name, const char *key, size_t len,
                                         const struct json_t **ret_root);
// Whether the schema takes nothing but strings: then a text is one as it is.
bool answer_value_text_only(const struct json_t *schema, const struct json_t *root);
// A text as JSON of a type the schema takes; else as a JSON string.
void answer_value_text(struct buf *out, const struct json_t *schema, const struct json_t *root, const char *p, size_t n);
// A value of FORM_BRACES or FORM_PYTHON as JSON; what is no value becomes a string.
void answer_value_braces(struct buf *out, const char *quote, const char *p, size_t n);
void answer_value_python(struct buf *out, const char *p, size_t n);
// p[0..n) with the escapes of a JSON string, without quotes.
void answer_value_escape(struct buf *out, const char *p, size_t n);
