// trace.c - see trace.h. Pure functions.
#include "server/trace.h"

#include <stdio.h>
#include <string.h>

// n lower-case hex digits at s.
static bool is_hex(const char *s, size_t n)
{
    return strspn(s, "0123456789abcdef") >= n;
}

static bool is_zero(const char *s, size_t n)
{
    return strspn(s, "0") >= n;
}

bool trace_parse(const char *s, uint64_t span, struct trace *ret)
{
    size_t n = strlen(s);
    bool shaped = n >= 55 && is_hex(s, 2) && s[2] == '-' && is_hex(s + 3, 32) && s[35] == '-' && is_hex(s + 36, 16) &&
                  s[52] == '-' && is_hex(s + 53, 2);
    if (!shaped || !memcmp(s, "ff", 2) || is_zero(s + 3, 32) || is_zero(s + 36, 16))
        return false;
    bool first_version = !memcmp(s, "00", 2);
    if (first_version ? n != 55 : n > 55 && s[55] != '-')  // later versions may say more
        return false;
    memcpy(ret->trace_id, s + 3, 32);
    memcpy(ret->parent_id, s + 36, 16);
    memcpy(ret->flags, s + 53, 2);
    ret->trace_id[32] = ret->parent_id[16] = ret->flags[2] = 0;
    snprintf(ret->span_id, sizeof ret->span_id, "%016llx", (unsigned long long)(span ? span : 1));
    return true;
}

void trace_text(const struct trace *t, char *ret_text)
{
    snprintf(ret_text, TRACE_TEXT, "00-%s-%s-%s", t->trace_id, t->span_id, t->flags);
}
