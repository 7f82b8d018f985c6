// charset.h - sets of characters as sorted ranges, for classes of patterns and grammars. Owned by one compilation.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct char_range {
    uint32_t lo, hi;
};
struct charset {
    struct char_range *ranges;
    uint32_t n, cap;
};

void charset_add(struct charset *s, uint32_t lo, uint32_t hi);
void charset_settle(struct charset *s);   // sorts and joins; the others but add expect it
void charset_negate(struct charset *s);
void charset_fold(struct charset *s);     // adds the other case of every letter
void charset_done(struct charset *s);

// \d \w \s and their complements.
bool charset_add_escape(struct charset *s, char letter);
// A Unicode general category by its short or long name ("L", "Lu", "Letter"). False: no such category.
bool charset_add_category(struct charset *s, const char *name, size_t len, bool negated);
