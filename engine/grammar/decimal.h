// decimal.h - numbers of JSON compared as they are written, never as doubles.
#pragma once

#include <stdbool.h>

struct json_t;

enum { DECIMAL_INT = 330, DECIMAL_FRACTION = 380 };

// Without leading zeros in front and trailing zeros behind; 0 has no digits at all and is not negative.
struct decimal {
    bool negative;
    int nint, nfraction;
    char integer[DECIMAL_INT], fraction[DECIMAL_FRACTION];  // digits, most significant first
};

bool decimal_parse(const char *text, struct decimal *ret);  // false: no number, or more digits than there is room for
bool decimal_of_json(const struct json_t *v, struct decimal *ret);  // a double as its shortest decimal
int decimal_compare(const struct decimal *a, const struct decimal *b);
bool decimal_is_integer(const struct decimal *d);
bool decimal_is_multiple(const struct decimal *d, unsigned of);
