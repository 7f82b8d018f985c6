// bytes.c - see bytes.h. Any thread.
#include "base/bytes.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

static const char letters[] = "KMGT";

// The power of 1024 that all of s says; -1: it is no unit.
static int read_unit(const char *s)
{
    if (*s == ' ' && s[1])
        s++;
    const char *at = *s ? strchr(letters, toupper((unsigned char)*s)) : NULL;
    if (!at)
        return !*s || !strcasecmp(s, "B") ? 0 : -1;
    return !s[1] || !strcasecmp(s + 1, "B") || !strcasecmp(s + 1, "i") || !strcasecmp(s + 1, "iB") ? (int)(at - letters) + 1 : -1;
}

// Digits behind a point, as a part of `of`.
static int64_t read_part(const char **s, int64_t of)
{
    double part = 0, digit = 1;
    for (; isdigit((unsigned char)**s); (*s)++)
        part += (**s - '0') * (digit /= 10);
    return (int64_t)(part * (double)of);
}

bool bytes_parse(const char *s, int64_t *ret_bytes)
{
    char *end;
    errno = 0;
    long long whole = strtoll(s, &end, 10), sum;
    bool point = *end == '.' && isdigit((unsigned char)end[1]) && whole >= 0;
    if (end == s || errno)
        return false;
    const char *rest = end + point, *part = rest;
    while (point && isdigit((unsigned char)*rest))
        rest++;
    int power = read_unit(rest);
    if (power < 0 || (point && !power))
        return false;
    int64_t unit = (int64_t)1 << (10 * power);
    if (__builtin_mul_overflow(whole, unit, &sum) || __builtin_add_overflow(sum, point ? read_part(&part, unit) : 0, &sum))
        return false;
    *ret_bytes = sum;
    return true;
}

const char *bytes_text(size_t bytes, char out[BYTES_TEXT])
{
    int power = 0;
    double shown = (double)bytes;
    for (; shown >= 1024 && power < 4; power++)
        shown /= 1024;
    if (power)
        snprintf(out, BYTES_TEXT, "%.2f %ciB (%zu bytes)", shown, letters[power - 1], bytes);
    else
        snprintf(out, BYTES_TEXT, "%zu bytes", bytes);
    return out;
}
