// charset.c - see the header.
#include "engine/grammar/charset.h"

#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

#include "base/mem.h"

enum { LAST = 0x10FFFF };

void charset_add(struct charset *s, uint32_t lo, uint32_t hi)
{
    if (lo > hi)
        return;
    if (s->n == s->cap) {
        s->cap = s->cap ? 2 * s->cap : 8;
        s->ranges = mem_resize(s->ranges, s->cap * sizeof *s->ranges);
    }
    s->ranges[s->n++] = (struct char_range){lo, hi};
}

static void add_set(struct charset *s, const struct charset *other)
{
    for (uint32_t i = 0; i < other->n; i++)
        charset_add(s, other->ranges[i].lo, other->ranges[i].hi);
}

static int ascending(const void *a, const void *b)
{
    const struct char_range *x = a, *y = b;
    return (x->lo > y->lo) - (x->lo < y->lo);
}

void charset_settle(struct charset *s)
{
    if (s->n == 0)
        return;
    qsort(s->ranges, s->n, sizeof *s->ranges, ascending);
    uint32_t n = 1;
    for (uint32_t i = 1; i < s->n; i++) {
        struct char_range *last = &s->ranges[n - 1], r = s->ranges[i];
        if (r.lo > last->hi + 1)
            s->ranges[n++] = r;
        else if (r.hi > last->hi)
            last->hi = r.hi;
    }
    s->n = n;
}

void charset_negate(struct charset *s)
{
    struct charset out = {0};
    uint32_t from = 0;
    for (uint32_t i = 0; i < s->n; i++) {
        if (s->ranges[i].lo > from)
            charset_add(&out, from, s->ranges[i].lo - 1);
        from = s->ranges[i].hi + 1;
    }
    if (from <= LAST)
        charset_add(&out, from, LAST);
    charset_done(s);
    *s = out;
}

void charset_fold(struct charset *s)
{
    uint32_t n = s->n;
    for (uint32_t i = 0; i < n; i++) {
        struct char_range r = s->ranges[i];
        if (r.hi - r.lo > 0x3000)
            continue;  // such a range has both cases already
        for (uint32_t c = r.lo; c <= r.hi; c++) {
            uint32_t up = (uint32_t)utf8proc_toupper((utf8proc_int32_t)c);
            uint32_t down = (uint32_t)utf8proc_tolower((utf8proc_int32_t)c);
            if (up != c)
                charset_add(s, up, up);
            if (down != c)
                charset_add(s, down, down);
        }
    }
    charset_settle(s);
}

void charset_done(struct charset *s)
{
    free(s->ranges);
    *s = (struct charset){0};
}

bool charset_add_escape(struct charset *s, char letter)
{
    static const struct char_range digits[] = {{'0', '9'}};
    static const struct char_range words[] = {{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}};
    // ECMA's white space and line ends.
    static const struct char_range spaces[] = {{9, 13}, {32, 32}, {0xA0, 0xA0}, {0x1680, 0x1680}, {0x2000, 0x200A},
                                               {0x2028, 0x2029}, {0x202F, 0x202F}, {0x205F, 0x205F}, {0x3000, 0x3000},
                                               {0xFEFF, 0xFEFF}};
    const struct char_range *r;
    size_t n;
    switch (letter | 0x20) {
    case 'd': r = digits; n = 1; break;
    case 'w': r = words; n = 4; break;
    case 's': r = spaces; n = 10; break;
    default: return false;
    }
    struct charset set = {0};
    for (size_t i = 0; i < n; i++)
        charset_add(&set, r[i].lo, r[i].hi);
    if (!(letter & 0x20))
        charset_negate(&set);
    add_set(s, &set);
    charset_done(&set);
    return true;
}

// Names of general categories; the first letter alone stands for the group.
static const struct {
    const char *shorter, *longer;
    utf8proc_category_t category;
} categories[] = {
    {"Lu", "Uppercase_Letter", UTF8PROC_CATEGORY_LU}, {"Ll", "Lowercase_Letter", UTF8PROC_CATEGORY_LL},
    {"Lt", "Titlecase_Letter", UTF8PROC_CATEGORY_LT}, {"Lm", "Modifier_Letter", UTF8PROC_CATEGORY_LM},
    {"Lo", "Other_Letter", UTF8PROC_CATEGORY_LO}, {"Mn", "Nonspacing_Mark", UTF8PROC_CATEGORY_MN},
    {"Mc", "Spacing_Mark", UTF8PROC_CATEGORY_MC}, {"Me", "Enclosing_Mark", UTF8PROC_CATEGORY_ME},
    {"Nd", "Decimal_Number", UTF8PROC_CATEGORY_ND}, {"Nl", "Letter_Number", UTF8PROC_CATEGORY_NL},
    {"No", "Other_Number", UTF8PROC_CATEGORY_NO}, {"Pc", "Connector_Punctuation", UTF8PROC_CATEGORY_PC},
    {"Pd", "Dash_Punctuation", UTF8PROC_CATEGORY_PD}, {"Ps", "Open_Punctuation", UTF8PROC_CATEGORY_PS},
    {"Pe", "Close_Punctuation", UTF8PROC_CATEGORY_PE}, {"Pi", "Initial_Punctuation", UTF8PROC_CATEGORY_PI},
    {"Pf", "Final_Punctuation", UTF8PROC_CATEGORY_PF}, {"Po", "Other_Punctuation", UTF8PROC_CATEGORY_PO},
    {"Sm", "Math_Symbol", UTF8PROC_CATEGORY_SM}, {"Sc", "Currency_Symbol", UTF8PROC_CATEGORY_SC},
    {"Sk", "Modifier_Symbol", UTF8PROC_CATEGORY_SK}, {"So", "Other_Symbol", UTF8PROC_CATEGORY_SO},
    {"Zs", "Space_Separator", UTF8PROC_CATEGORY_ZS}, {"Zl", "Line_Separator", UTF8PROC_CATEGORY_ZL},
    {"Zp", "Paragraph_Separator", UTF8PROC_CATEGORY_ZP}, {"Cc", "Control", UTF8PROC_CATEGORY_CC},
    {"Cf", "Format", UTF8PROC_CATEGORY_CF}, {"Cs", "Surrogate", UTF8PROC_CATEGORY_CS},
    {"Co", "Private_Use", UTF8PROC_CATEGORY_CO}, {"Cn", "Unassigned", UTF8PROC_CATEGORY_CN},
};
static const char *const groups[][2] = {{"L", "Letter"}, {"M", "Mark"}, {"N", "Number"}, {"P", "Punctuation"},
                                        {"S", "Symbol"}, {"Z", "Separator"}, {"C", "Other"}};

static bool is(const char *name, size_t len, const char *text)
{
    return strlen(text) == len && memcmp(name, text, len) == 0;
}

static uint32_t category_bits(const char *name, size_t len)
{
    uint32_t bits = 0;
    char group = 0;
    for (size_t i = 0; i < sizeof groups / sizeof *groups; i++)
        if (is(name, len, groups[i][0]) || is(name, len, groups[i][1]))
            group = groups[i][0][0];
    for (size_t i = 0; i < sizeof categories / sizeof *categories; i++)
        if (is(name, len, categories[i].shorter) || is(name, len, categories[i].longer) ||
            categories[i].shorter[0] == group)
            bits |= 1u << categories[i].category;
    return bits;
}

bool charset_add_category(struct charset *s, const char *name, size_t len, bool negated)
{
    static const char *const prefixes[] = {"General_Category=", "gc="};
    for (size_t i = 0; i < 2; i++)
        if (len > strlen(prefixes[i]) && memcmp(name, prefixes[i], strlen(prefixes[i])) == 0) {
            name += strlen(prefixes[i]);
            len -= strlen(prefixes[i]);
        }
    uint32_t bits = category_bits(name, len);
    if (!bits)
        return false;
    uint32_t start = 0;
    bool in = false;
    for (uint32_t c = 0; c <= LAST; c++) {
        bool now = (bits >> utf8proc_category((utf8proc_int32_t)c) & 1) != negated;
        if (now && !in)
            start = c;
        if (!now && in)
            charset_add(s, start, c - 1);
        in = now;
    }
    if (in)
        charset_add(s, start, LAST);
    return true;
}
