// sentences.c - finds where a text may be cut. Pure functions of any thread.
#include "engine/text/sentences.h"

#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <strings.h>

#include "base/utf8.h"

enum border { BORDER_NEVER = -1, BORDER_CHAR, BORDER_SPACE, BORDER_CLAUSE, BORDER_SENTENCE, BORDERS };

struct scan {
    const char *text;
    uint32_t prev, solid;      // last character; last one that is neither space nor closes a quotation
    size_t word, solid_end;    // where its word began and where it ends
    bool space, line;          // white space since then; a line break among it
};

static bool among(uint32_t c, const char *set)
{
    uint32_t m;
    for (int n; *set && (n = utf8_decode(set, strlen(set), &m)) > 0; set += n)
        if (m == c)
            return true;
    return false;
}

static bool is_space(uint32_t c)
{
    return c == ' ' || (c >= 9 && c <= 13) || c == 0x85 || c == 0xA0 || (c >= 0x2000 && c <= 0x200A) || c == 0x2028 ||
           c == 0x2029 || c == 0x202F || c == 0x3000;
}

static bool is_line(uint32_t c)
{
    return c == '\n' || c == '\r' || c == 0x85 || c == 0x2028 || c == 0x2029;
}

static bool closes(uint32_t c)
{
    return among(c, "\"')]}”’»」』）】〉》");
}

static bool ends_wide(uint32_t c)  // needs no space after it
{
    return among(c, "。！？｡‼⁇⁈⁉");
}

static bool ends_sentence(uint32_t c)
{
    return among(c, ".!?…।॥؟۔") || ends_wide(c);
}

static bool is_mark(uint32_t c)
{
    return (c >= 0x300 && c <= 0x36F) || (c >= 0x1AB0 && c <= 0x1AFF) || (c >= 0x20D0 && c <= 0x20FF) || c == 0x200D ||
           (c >= 0xFE00 && c <= 0xFE0F) || (c >= 0x1F3FB && c <= 0x1F3FF) || (c >= 0x93C && c <= 0x94D) || c == 0x3099 ||
           c == 0x309A;
}

// Whether the full stop at the end of the word is part of it.
static bool is_abbreviation(const struct scan *s, uint32_t next)
{
    static const char *const known[] = {"mr", "mrs", "ms", "mx", "dr", "prof", "sr", "jr", "st", "vs", "inc", "ltd", "co",
        "fig", "approx", "dept", "est", "gen", "col", "sgt", "capt", "lt", "rev", "hon", "mt", "bzw", "ca", "nr", "z.b",
        "d.h", "e.g", "i.e", "u.s", "u.k", "m", "mme", "mlle"};
    static const char *const numbered[] = {"no", "nos", "p", "pp", "art", "sec", "vol", "ch", "eq"};
    size_t n = s->solid_end - s->word - 1;
    const char *w = s->text + s->word;
    while (n > 0 && among((unsigned char)*w, "\"'([{")) {
        w++;
        n--;
    }
    bool letter = n == 1 && ((*w >= 'A' && *w <= 'Z' && *w != 'I') || (*w >= 'a' && *w <= 'z'));
    if (letter || (next >= 'a' && next <= 'z'))
        return true;
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (strlen(known[i]) == n && strncasecmp(known[i], w, n) == 0)
            return true;
    for (size_t i = 0; i < sizeof numbered / sizeof *numbered && next >= '0' && next <= '9'; i++)
        if (strlen(numbered[i]) == n && strncasecmp(numbered[i], w, n) == 0)
            return true;
    return false;
}

// The border before character c.
static enum border border_before(const struct scan *s, uint32_t c)
{
    if (is_space(c) || is_mark(c) || s->prev == 0x200D)
        return BORDER_NEVER;
    if (s->space) {
        if (s->line)
            return BORDER_SENTENCE;
        if (ends_sentence(s->solid))
            return s->solid == '.' && is_abbreviation(s, c) ? BORDER_SPACE : BORDER_SENTENCE;
        return among(s->solid, ",;:—–،؛、，；：") ? BORDER_CLAUSE : BORDER_SPACE;
    }
    if (closes(c) || ends_sentence(c))
        return BORDER_NEVER;
    if (ends_wide(s->solid))
        return BORDER_SENTENCE;
    return among(s->prev, "、，；：—") ? BORDER_CLAUSE : BORDER_CHAR;
}

static void pass(struct scan *s, uint32_t c, size_t at, size_t n)
{
    if (is_space(c)) {
        s->space = true;
        s->line = s->line || is_line(c);
    } else {
        if (s->space || at == 0)
            s->word = at;
        if (s->space || !closes(c)) {
            s->solid = c;
            s->solid_end = at + n;
        }
        s->space = s->line = false;
    }
    s->prev = c;
}

size_t sentences_next(const char *text, size_t len, size_t max)
{
    if (len <= max)
        return len;
    struct scan s = {.text = text};
    size_t last[BORDERS] = {0}, first = 0;
    for (size_t at = 0, n; at < len; at += n) {
        uint32_t c = 0xFFFD;
        int got = utf8_decode(text + at, len - at, &c);
        n = got > 0 ? (size_t)got : 1;
        if (at > max)
            break;
        enum border b = at ? border_before(&s, c) : BORDER_NEVER;
        if (b != BORDER_NEVER)
            last[b] = at;
        first = first ? first : n;
        pass(&s, c, at, n);
    }
    for (int b = BORDER_SENTENCE; b >= 0; b--)
        if (last[b])
            return last[b];
    // White space or marks without end: cut at a character all the same.
    size_t at = max;
    while (at > first && ((unsigned char)text[at] & 0xC0) == 0x80)
        at--;
    return at > first ? at : first;
}
