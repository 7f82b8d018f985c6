// template_text.c - what Python's str does with characters: whitespace, case, splitting, searching. Results are cut
// from their sources, so every byte keeps its origin.
#include <string.h>

#include <utf8proc.h>

#include "engine/text/template_int.h"

bool template_text_space(uint32_t cp)
{
    return (cp >= 9 && cp <= 13) || (cp >= 0x1C && cp <= 0x20) || cp == 0x85 || cp == 0xA0 || cp == 0x1680 ||
           (cp >= 0x2000 && cp <= 0x200A) || cp == 0x2028 || cp == 0x2029 || cp == 0x202F || cp == 0x205F ||
           cp == 0x3000;
}

// The character at i and its length; bytes that are none count as U+FFFD of length 1.
static int step(const struct str *s, size_t i, uint32_t *ret_cp)
{
    int n = utf8_decode(s->p + i, s->len - i, ret_cp);
    if (n)
        return n;
    *ret_cp = 0xFFFD;
    return 1;
}

static size_t before(const struct str *s, size_t i)  // start of the character that ends at i
{
    do
        i--;
    while (i && ((unsigned char)s->p[i] & 0xC0) == 0x80);
    return i;
}

static bool strips(uint32_t cp, const struct str *chars)
{
    if (!chars)
        return template_text_space(cp);
    uint32_t c;
    for (size_t i = 0; i < chars->len; i += (size_t)step(chars, i, &c)) {
        step(chars, i, &c);
        if (c == cp)
            return true;
    }
    return false;
}

struct value template_text_strip(struct run *r, const struct str *s, const struct str *chars, int sides)
{
    size_t from = 0, to = s->len;
    uint32_t cp;
    while ((sides & STRIP_LEFT) && from < to && template_value_charge(r, chars ? chars->len : 0)) {
        int n = step(s, from, &cp);
        if (!strips(cp, chars))
            break;
        from += (size_t)n;
    }
    while ((sides & STRIP_RIGHT) && to > from && template_value_charge(r, chars ? chars->len : 0)) {
        size_t at = before(s, to);
        step(s, at, &cp);
        if (!strips(cp, chars))
            break;
        to = at;
    }
    return template_value_sub(r, s, from, to);
}

enum { SHORT = 16 };  // up to so many bytes, looking for the first one is quicker than memmem

int64_t template_text_find(const struct str *s, const struct str *sub, size_t from, size_t to)
{
    if (to > s->len)
        to = s->len;
    if (from > to || sub->len > to - from)
        return -1;
    if (!sub->len)
        return (int64_t)from;
    const char *p = s->p + from, *end = s->p + to - sub->len + 1;
    if (sub->len > SHORT)
        p = memmem(p, to - from, sub->p, sub->len);
    else
        while ((p = memchr(p, sub->p[0], (size_t)(end - p))) && memcmp(p, sub->p, sub->len))
            if (++p == end)
                return -1;
    return p ? (int64_t)(p - s->p) : -1;
}

int64_t template_text_rfind(struct run *r, const struct str *s, const struct str *sub, size_t from, size_t to)
{
    if (to > s->len)
        to = s->len;
    if (from > to || sub->len > to - from)
        return -1;
    if (!sub->len)
        return (int64_t)to;
    size_t n = to - from - sub->len + 1;  // places to look at; each may cost a whole comparison
    if (r && !template_value_charge(r, sub->len > SHORT ? n * (sub->len / 8) : n))
        return -1;
    for (const char *p; n && (p = memrchr(s->p + from, sub->p[0], n)); n = (size_t)(p - s->p) - from)
        if (!memcmp(p, sub->p, sub->len))
            return p - s->p;
    return -1;
}

struct value template_text_replace(struct run *r, const struct str *s, const struct str *from, const struct str *to,
                                   int64_t count)
{
    struct out o = {0};
    size_t i = 0;
    template_value_charge(r, s->len);
    if (!from->len) {  // between all characters
        for (; count && !r->failed; count--) {
            template_value_out_str(r, &o, to);
            if (i == s->len)
                break;
            uint32_t cp;
            size_t n = (size_t)step(s, i, &cp);
            template_value_out_sub(r, &o, s, i, i + n);
            i += n;
        }
    }
    while (from->len && count && !r->failed) {
        int64_t hit = template_text_find(s, from, i, s->len);
        if (hit < 0)
            break;
        template_value_out_sub(r, &o, s, i, (size_t)hit);
        template_value_out_str(r, &o, to);
        template_value_charge(r, 0);
        i = (size_t)hit + from->len;
        count -= count > 0;
    }
    template_value_out_sub(r, &o, s, i, s->len);
    return template_value_out_take(r, &o);
}

static void reverse(struct seq *s)
{
    for (size_t i = 0; i < s->n / 2; i++) {
        struct value v = s->v[i];
        s->v[i] = s->v[s->n - 1 - i];
        s->v[s->n - 1 - i] = v;
    }
}

static void split_space(struct run *r, struct seq *parts, const struct str *s, int64_t max)
{
    uint32_t cp;
    size_t i = 0, n;
    while (!r->failed) {
        while (i < s->len && (n = (size_t)step(s, i, &cp), template_text_space(cp)))
            i += n;
        if (i >= s->len)
            return;
        size_t from = i;
        if (max >= 0 && (int64_t)parts->n >= max) {
            template_value_push(r, parts, template_value_sub(r, s, from, s->len));
            return;
        }
        while (i < s->len && (n = (size_t)step(s, i, &cp), !template_text_space(cp)))
            i += n;
        template_value_push(r, parts, template_value_sub(r, s, from, i));
    }
}

static void rsplit_space(struct run *r, struct seq *parts, const struct str *s, int64_t max)
{
    uint32_t cp;
    size_t to = s->len, at;
    while (!r->failed) {
        while (to && (at = before(s, to), step(s, at, &cp), template_text_space(cp)))
            to = at;
        if (!to)
            break;
        size_t from = to;
        if (max >= 0 && (int64_t)parts->n >= max) {
            template_value_push(r, parts, template_value_sub(r, s, 0, to));
            break;
        }
        while (from && (at = before(s, from), step(s, at, &cp), !template_text_space(cp)))
            from = at;
        template_value_push(r, parts, template_value_sub(r, s, from, to));
        to = from;
    }
    reverse(parts);
}

struct value template_text_split(struct run *r, const struct str *s, const struct str *sep, int64_t max, bool right)
{
    struct seq *parts = template_value_seq(r, SEQ_LIST, 0);
    size_t from = 0, to = s->len;
    template_value_charge(r, s->len);
    if (!sep) {
        right ? rsplit_space(r, parts, s, max) : split_space(r, parts, s, max);
        return template_value_of_seq(parts);
    }
    if (!sep->len)
        return template_value_fail(r, ERR_INVALID, "empty separator");
    while ((max < 0 || (int64_t)parts->n < max) && !r->failed) {
        int64_t hit = right ? template_text_rfind(r, s, sep, from, to) : template_text_find(s, sep, from, to);
        if (hit < 0)
            break;
        size_t at = (size_t)hit;
        template_value_push(r, parts,
                            right ? template_value_sub(r, s, at + sep->len, to) : template_value_sub(r, s, from, at));
        if (right)
            to = at;
        else
            from = at + sep->len;
    }
    template_value_push(r, parts, template_value_sub(r, s, from, to));
    if (right)
        reverse(parts);
    return template_value_of_seq(parts);
}

static bool line_end(uint32_t cp)
{
    return (cp >= 10 && cp <= 13) || (cp >= 0x1C && cp <= 0x1E) || cp == 0x85 || cp == 0x2028 || cp == 0x2029;
}

struct value template_text_lines(struct run *r, const struct str *s, bool keep)
{
    struct seq *lines = template_value_seq(r, SEQ_LIST, 0);
    uint32_t cp;
    template_value_charge(r, s->len);
    for (size_t i = 0; i < s->len && !r->failed;) {
        size_t from = i, end, n = 0;
        while (i < s->len && (n = (size_t)step(s, i, &cp), !line_end(cp)))
            i += n;
        end = i;
        if (i < s->len)
            i += cp == '\r' && i + 1 < s->len && s->p[i + 1] == '\n' ? 2 : n;
        template_value_push(r, lines, template_value_sub(r, s, from, keep ? i : end));
    }
    return template_value_of_seq(lines);
}

// ---- case. Simple mappings by utf8proc, and the few that change the length.

static int upper_of(uint32_t cp, uint32_t out[3])
{
    static const struct { uint32_t from, to[3];
    } special[] = {{0xDF, {'S', 'S'}},   {0x149, {0x2BC, 'N'}}, {0x1F0, {'J', 0x30C}},     {0xFB00, {'F', 'F'}},
                   {0xFB01, {'F', 'I'}}, {0xFB02, {'F', 'L'}},  {0xFB03, {'F', 'F', 'I'}}, {0xFB04, {'F', 'F', 'L'}},
                   {0xFB05, {'S', 'T'}}, {0xFB06, {'S', 'T'}}};
    for (size_t i = 0; i < sizeof special / sizeof *special; i++)
        if (special[i].from == cp) {
            memcpy(out, special[i].to, sizeof special[i].to);
            return out[2] ? 3 : 2;
        }
    out[0] = (uint32_t)utf8proc_toupper((utf8proc_int32_t)cp);
    return 1;
}

static utf8proc_category_t category(uint32_t cp)
{
    return utf8proc_category((utf8proc_int32_t)cp);
}

static bool is_letter(uint32_t cp)
{
    utf8proc_category_t c = category(cp);
    return c >= UTF8PROC_CATEGORY_LU && c <= UTF8PROC_CATEGORY_LO;
}

static bool is_cased(uint32_t cp)
{
    utf8proc_category_t c = category(cp);
    return c == UTF8PROC_CATEGORY_LU || c == UTF8PROC_CATEGORY_LL || c == UTF8PROC_CATEGORY_LT;
}

// Small sigma at the end of a word has a form of its own.
static bool final_sigma(const struct str *s, size_t i, bool after_cased)
{
    uint32_t cp;
    if (!after_cased || i >= s->len)
        return after_cased;
    step(s, i, &cp);
    return !is_cased(cp);
}

static int convert(const struct str *s, size_t next, uint32_t cp, bool up, bool title, bool after_cased,
                   uint32_t out[3])
{
    if (up) {
        int n = upper_of(cp, out);
        if (title && n > 1) {  // only the first of them is large
            for (int i = 1; i < n; i++)
                out[i] = (uint32_t)utf8proc_tolower((utf8proc_int32_t)out[i]);
        } else if (title) {
            out[0] = (uint32_t)utf8proc_totitle((utf8proc_int32_t)cp);
        }
        return n;
    }
    if (cp == 0x3A3) {
        out[0] = final_sigma(s, next, after_cased) ? 0x3C2 : 0x3C3;
        return 1;
    }
    if (cp == 0x130) {
        out[0] = 'i';
        out[1] = 0x307;
        return 2;
    }
    out[0] = (uint32_t)utf8proc_tolower((utf8proc_int32_t)cp);
    return 1;
}

static bool word_break(uint32_t cp)  // of the title filter
{
    return cp == '-' || cp == '(' || cp == '{' || cp == '[' || cp == '<' || template_text_space(cp);
}

struct value template_text_case(struct run *r, const struct str *s, enum text_case how)
{
    struct out o = {0};
    bool after_cased = false, start = true;
    for (size_t i = 0, n; i < s->len && !r->failed; i += n) {
        uint32_t cp, c[3];
        n = (size_t)step(s, i, &cp);
        bool title = how == CASE_TITLE ? !after_cased : how == CASE_CAPITALIZE && i == 0;
        bool up = how == CASE_UPPER || title || (how == CASE_TITLE_FILTER && start) ||
                  (how == CASE_SWAP && category(cp) == UTF8PROC_CATEGORY_LL);
        int m = convert(s, i + n, cp, up, title, after_cased, c);
        for (int k = 0; k < m; k++) {
            char bytes[4];
            size_t len = (size_t)utf8_encode(c[k], bytes);
            template_value_out(r, &o, bytes, len, s->mask ? s->mask[i] : s->untrusted);
        }
        after_cased = is_cased(cp);
        start = word_break(cp);
    }
    return template_value_out_take(r, &o);
}

static bool is_digit(uint32_t cp)
{
    return category(cp) == UTF8PROC_CATEGORY_ND || cp == 0xB2 || cp == 0xB3 || cp == 0xB9;
}

static bool char_is(uint32_t cp, char kind)
{
    utf8proc_category_t c = category(cp);
    switch (kind) {
    case 'a':
        return is_letter(cp);
    case 'd':
        return is_digit(cp);
    case 'D':
        return c == UTF8PROC_CATEGORY_ND;
    case 'N':
        return c == UTF8PROC_CATEGORY_ND || c == UTF8PROC_CATEGORY_NL || c == UTF8PROC_CATEGORY_NO;
    case 's':
        return template_text_space(cp);
    default:
        return is_letter(cp) || is_digit(cp) || c == UTF8PROC_CATEGORY_NL || c == UTF8PROC_CATEGORY_NO;
    }
}

bool template_text_is(const struct str *s, const char *what)
{
    bool cased = false;
    char kind = !strcmp(what, "alpha") ? 'a' : !strcmp(what, "digit") ? 'd' : !strcmp(what, "decimal") ? 'D'
              : !strcmp(what, "numeric") ? 'N' : !strcmp(what, "space") ? 's' : !strcmp(what, "alnum") ? 'n' : 0;
    bool lower = !strcmp(what, "lower");
    for (size_t i = 0; i < s->len;) {
        uint32_t cp;
        i += (size_t)step(s, i, &cp);
        if (kind) {
            if (!char_is(cp, kind))
                return false;
            cased = true;
        } else if (is_cased(cp)) {
            if ((category(cp) == UTF8PROC_CATEGORY_LL) != lower)
                return false;
            cased = true;
        }
    }
    return cased;
}

struct value template_text_pad(struct run *r, const struct str *s, int64_t width, char align, const struct str *fill)
{
    size_t have = template_value_chars(s);
    if (width <= 0 || (size_t)width <= have || r->failed)
        return template_value_sub(r, s, 0, s->len);
    if (width > TEMPLATE_MAX_OUTPUT)
        return template_value_fail(r, ERR_TOO_LARGE, "a text grows over %d MiB", TEMPLATE_MAX_OUTPUT >> 20);
    size_t all = (size_t)width - have, left = align == '<' ? 0 : align == '>' ? all : all / 2;
    if (align == 'c')  // str.center puts the odd one on the left when the width is odd
        left = all / 2 + (all & (size_t)width & 1);
    struct out o = {0};
    for (size_t i = 0; i < left && !r->failed; i++)
        template_value_out_str(r, &o, fill);
    template_value_out_str(r, &o, s);
    for (size_t i = left; i < all && !r->failed; i++)
        template_value_out_str(r, &o, fill);
    return template_value_out_take(r, &o);
}
