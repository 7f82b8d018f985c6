// answer_mark.c - markers in a text. Models put white space around markers now and then differently from the template, so
// that is not what a marker is recognised by. Any thread.
#include <string.h>

#include "engine/text/answer_int.h"

enum { MAX_GAP = 16, MAX_ID = 64, MAX_TAG = 64 };

bool answer_mark_space(char c)
{
    return c == ' ' || c == '\n' || c == '\t' || c == '\r';
}

const char *answer_mark_core(const char *mark, size_t *ret_len)
{
    size_t n = strlen(mark);
    while (n && answer_mark_space(mark[n - 1]))
        n--;
    while (n && answer_mark_space(*mark)) {
        mark++;
        n--;
    }
    *ret_len = n;
    return mark;
}

static bool id_char(char c)
{
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || c == '-';
}

static bool border(const char *core, size_t i)
{
    return i && (core[i - 1] == '>' || core[i - 1] == ']' || core[i] == '<' || core[i] == '[');
}

// Skips up to MAX bytes for which is() holds; MATCH_PART at the text's end, MATCH_NO when there are more.
static enum match skip(bool (*is)(char), size_t max, const char *p, size_t n, size_t *at)
{
    size_t from = *at;
    while (*at < n && is(p[*at]))
        if (++*at - from > max)
            return MATCH_NO;
    return *at == n ? MATCH_PART : MATCH_YES;
}

enum match answer_mark_match(const char *mark, const char *p, size_t n, size_t *ret_len)
{
    size_t len, i = 0, at = 0;
    const char *core = answer_mark_core(mark, &len);
    enum match m;
    while (i < len) {
        if (answer_mark_space(core[i])) {
            while (answer_mark_space(core[i]))
                i++;
            m = skip(answer_mark_space, MAX_GAP, p, n, &at);
        } else if (core[i] == MARK_ID || core[i] == MARK_INDEX) {
            i++;
            m = skip(id_char, MAX_ID, p, n, &at);
        } else if (at == n) {
            m = MATCH_PART;
        } else if (p[at] == core[i]) {
            i++;
            at++;
            continue;
        } else if (border(core, i) && answer_mark_space(p[at])) {
            m = skip(answer_mark_space, MAX_GAP, p, n, &at);
        } else {
            m = MATCH_NO;
        }
        // White space of the mark may be missing: then the text's end says nothing yet either.
        if (m != MATCH_YES)
            return m;
    }
    *ret_len = at;
    return MATCH_YES;
}

size_t answer_mark_tag(const char *p, size_t n)
{
    if (n < 3 || (*p != '<' && (*p != '[' || !((p[1] >= 'A' && p[1] <= 'Z') || p[1] == '/'))))
        return 0;
    char end = *p == '<' ? '>' : ']';
    for (size_t i = 1; i < n && i < MAX_TAG; i++) {
        if (p[i] == end)
            return i > 1 ? i + 1 : 0;
        if (answer_mark_space(p[i]) || p[i] == *p || (p[i] == '"' && p[1] != '|') || p[i] == '{')
            return 0;
    }
    return 0;
}
