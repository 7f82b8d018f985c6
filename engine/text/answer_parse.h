// answer_parse.h - the state of one answer, shared by answer.c (text) and answer_call.c (calls).
//
// Places are counts of bytes fed. low <= at <= end: what is before low has come out, what is before at has been looked at.
//
//     SAY ---think---> THINK ---think_end---> SAY
//     SAY -> BETWEEN ---section---> OPEN ---call---> a form's states -> CLOSE -> BETWEEN ... -> SAY
//     a form that breaks: before the call's name came out, all since low is content (-> SAY); after it BROKEN
#pragma once

#include "engine/text/answer_int.h"

enum answer_state {
    ST_SAY, ST_THINK,
    ST_OPEN,                                // a call must begin: behind a section's marker or a separator
    ST_OBJECT,                              // FORM_OBJECT but for the arguments
    ST_NAME, ST_NAME_END,                   // the other forms
    ST_ARGUMENTS,                           // JSON as it comes
    ST_KEY, ST_KEY_END, ST_VALUE,           // FORM_TAGS
    ST_MEMBER, ST_MEMBER_VALUE,             // FORM_BRACES, FORM_PYTHON
    ST_BROKEN,                              // arguments that are no JSON, up to the end of the call
    ST_CLOSE, ST_BETWEEN,
};

enum answer_object { OB_OPEN, OB_FIRST_KEY, OB_KEY, OB_IN_KEY, OB_COLON, OB_VALUE, OB_IN_VALUE, OB_NEXT };
enum answer_key { KEY_OTHER, KEY_NAME, KEY_ARGUMENTS };

struct answer {
    const struct answer_style *s;
    const struct json_t *tools;  // NULL: calls are not looked for
    answer_part_fn *on_part;     // while fed
    void *ud;

    char *p;                     // bytes base .. end
    size_t cap, base, low, at, end;
    size_t marker;               // where the last control token began
    bool last;                   // no more will come
    bool only_calls;             // nothing may be said: what is left at the end is a call that was cut

    enum answer_state state;
    bool fresh;                  // behind a marker: white space belongs to it
    bool said;                   // content other than white space came
    bool section;                // within MARK_SECTION
    bool only_in_section;        // MARK_CALL is no tag: outside it would be found in any text

    int begun, ended;            // calls
    bool open;                   // the present call's name came out
    bool complete;               // and its arguments are whole

    struct answer_json json;
    enum answer_object object;
    enum answer_key key;
    bool escaped;
    size_t from;                 // where the key, name or value began
    char *name;                  // of the present call
    size_t early, early_end;     // arguments that came before the name; early == early_end: none

    int nmembers;
    char *member;                // the present argument's name
    size_t member_len;
    const struct json_t *schema, *root;
    bool text_value, quoted;     // the value is a string as it stands; its opening quote came out
    char quote;                  // FORM_PYTHON: of the string we are in; FORM_BRACES: 1
    int depth;
    struct buf out;
};

// answer.c
static inline const char *answer_at(const struct answer *a, size_t place)
{
    return a->p + (place - a->base);
}
// Gives out bytes low .. to of the text and moves low there.
void answer_emit(struct answer *a, enum channel channel, size_t to);
// Gives out text of the present call, made of bytes low .. at; moves low there. Empties `out`.
void answer_emit_call(struct answer *a, const char *name, struct buf *out, bool ends);
// MATCH_YES: *ret_len bytes from `at` are the mark. Never for an empty one. With `last` nothing is MATCH_PART.
enum match answer_match(const struct answer *a, enum answer_mark mark, size_t *ret_len);
void answer_skip_space(struct answer *a);  // low stays
void answer_to_say(struct answer *a);

// answer_call.c
enum match answer_call_starts(const struct answer *a);  // whether calls begin at `at`, in the midst of content
bool answer_call_step(struct answer *a);                // whether anything has changed; false: it needs more
// For answer_args.c.
void answer_call_open(struct answer *a);                // the name comes out
bool answer_call_end(struct answer *a, struct buf *out);   // the arguments are whole
bool answer_call_fail(struct answer *a);                // from `at` on this is no call

// answer_args.c: ST_KEY .. ST_MEMBER_VALUE, arguments that are not written as JSON.
bool answer_args_step(struct answer *a);
