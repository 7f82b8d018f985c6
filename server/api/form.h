// form.h - a multipart form's text fields as the JSON object they stand for, so that fields.h reads both alike.
#pragma once

#include <stddef.h>

struct fields;
struct request;

// How a field's text is understood. A text that does not fit its kind stays a string, and reading it fails by name.
enum form_kind { FORM_TEXT, FORM_NUMBER, FORM_BOOL, FORM_LIST };

struct form_field {
    const char *name;
    enum form_kind kind;
};

// r->upload's fields; those not in the table are texts. Empty ones are left out. Lists come as NAME, NAME[] and NAME[0],
// repeated, with commas, or as JSON; "NAME[key]" counts as NAME. Sets f->object (freed with the request). A file that has
// a text field's name is no field.
void api_form_read(struct fields *f, const struct form_field *table, size_t n);
