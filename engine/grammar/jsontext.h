// jsontext.h - JSON values in the one spelling that grammars write: no white space, keys in the order given, characters as
// they are but for the quote, the backslash and control characters, numbers as short as they go.
#pragma once

#include <stddef.h>

struct buf;
struct json_t;

void jsontext_string(const char *text, size_t len, struct buf *out);  // with its quotes
void jsontext_value(const struct json_t *v, struct buf *out);

// What one part of a JSON pointer, as it stands in a URI's fragment (%XX, ~1, ~0), leads to; NULL: nowhere. Borrowed from v.
const struct json_t *jsontext_member(const struct json_t *v, const char *part, size_t n);
