// fields.h - reading the fields of a JSON request with OpenAI's rules and error texts.
//
//     struct fields f;
//     api_fields_init(&f, r);
//     api_fields_check(&f, &api_chat_create_body);            // unknown and refused fields
//     double t = 1;
//     api_fields_number(&f, "temperature", &t);               // absent or null: t stays
//     if (f.failed)
//         return api_fields_reply(&f);                        // the first thing that was wrong
//
// A failure is remembered and the first one wins, so a handler reads all its fields and looks once. Loop thread only.
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

struct request;

struct fields {
    struct request *r;
    const json_t *object;
    const struct api_body *body;  // whose rows say what a field may be; NULL before api_fields_check
    bool failed;
    int status;
    const char *code;  // OpenAI's code string; NULL: null
    err e;             // param and text
    size_t members;    // in JSON that stood in strings, so far: api_fields_json
    const char *await; // failed for want of this model, which is not in memory yet; NULL: something was wrong
};

// What is done with a known field.
enum field_use {
    FIELD_HONOURED,  // read by the handler
    FIELD_ACCEPTED,  // has no influence on the answer: read by nobody
    FIELD_REFUSED,   // not built: an error, unless the value asks for nothing
};

// Values of a refused field that ask for nothing. null always does.
#define NEUTRAL_NULL "null"    // only null
#define NEUTRAL_EMPTY "empty"  // an empty string, array or object
#define NEUTRAL_FALSE "false"
#define NEUTRAL_TRUE "true"
#define NEUTRAL_ZERO "zero"    // or false
#define NEUTRAL_ONE "one"
#define NEUTRAL_NO_CALL "no call"  // "none" and "auto": without tools both mean that nothing is called
#define NEUTRAL_TEXT "text"        // {"type": "text"} and ["text"]

// A number that is a macro, for a row's text.
#define FIELD_TEXT(number) FIELD_TEXT_OF(number)
#define FIELD_TEXT_OF(digits) #digits

struct field {
    const char *name;
    enum field_use use;
    // FIELD_REFUSED: what asks for nothing. Else what it may be, as /openapi.json says it (0: anything):
    //     "string"  "boolean"  "object"  "any"  "integer 1..128"  "number 0..2"  "integer -1.."  "string: auto none" (one of these)
    //     "object {a string, b [integer]}" with these members; others are told as unknown fields are
    //     "[string]" an array of strings  "string|[string]" either  "!string" must be there, all others may be null or absent
    // Reading a number enforces the range that stands here.
    const char *what;
};

// All that the body of an endpoint may have: its own fields, then those it shares with other endpoints. A route whose body has
// fields has one (routes.h); it is called as its handler with _body behind: API_BODY(api_chat_create, chat_fields, generate).
struct api_body {
    const struct field *own;
    size_t nown;
    const struct field *shared;
    const size_t *nshared;
};
#define API_BODY(handler, fields, with)                                                                       \
    const struct api_body handler##_body = {fields, sizeof(fields) / sizeof *(fields), api_##with##_fields, \
                                            &api_##with##_nfields}

void api_fields_init(struct fields *f, struct request *r);

// Refused fields fail by name. Unknown fields are listed in the answer's header x-ignored-fields; with strict_fields
// they fail.
void api_fields_check(struct fields *f, const struct api_body *body);

// Records a failure with status 400 unless there is one already. Clients look for words in the text (api_fields_clean): what would
// mislead them is cut.
void api_fields_fail(struct fields *f, const char *code, const char *param, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));
void api_fields_fail_status(struct fields *f, int status, const char *code, const char *param, const char *fmt, ...)
    __attribute__((format(printf, 5, 6)));
// Sends the recorded failure; or waits for the model, after which the handler is called again.
void api_fields_reply(struct fields *f);
// Cuts what clients would take for another error than it is ("429", "rate limit") out of a message.
void api_fields_clean(char *text);

// The field's value; NULL when it is absent or null.
const json_t *api_fields_get(const struct fields *f, const char *name);
bool api_fields_missing(struct fields *f, const char *name);  // true and a failure when it is absent or null

// Each writes *ret_value and returns true only when the field is there and right. Numbers: within the range of its row; a
// field without a row fails.
bool api_fields_int(struct fields *f, const char *name, int64_t *ret_value);
bool api_fields_small(struct fields *f, const char *name, int *ret_value);  // nor may it be more than an int holds
bool api_fields_number(struct fields *f, const char *name, double *ret_value);
bool api_fields_float(struct fields *f, const char *name, float *ret_value);
bool api_fields_bool(struct fields *f, const char *name, bool *ret_value);
bool api_fields_string(struct fields *f, const char *name, const char **ret_value);
bool api_fields_array(struct fields *f, const char *name, const json_t **ret_value);
bool api_fields_object(struct fields *f, const char *name, const json_t **ret_value);

// The same for a value inside the request, whose path is given for the error.
bool api_fields_as_int(struct fields *f, const json_t *v, const char *path, int64_t min, int64_t max,
                       int64_t *ret_value);
bool api_fields_as_number(struct fields *f, const json_t *v, const char *path, double min, double max,
                          double *ret_value);
bool api_fields_as_string(struct fields *f, const json_t *v, const char *path, const char **ret_value);
// JSON that a string of the request holds; NULL: it is none (f has not failed), or the request holds too much of it. What
// stands in a string was not counted with the body's values.
json_t *api_fields_json(struct fields *f, const char *path, const char *text, size_t len);
void api_fields_empty(struct fields *f, const char *path);  // an array that needs an element
void api_fields_wrong_type(struct fields *f, const json_t *v, const char *path, const char *expected);
