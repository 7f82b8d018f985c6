// added.c - a trie of added tokens and the leftmost-longest search in it. Immutable once the tokenizer is open.

#include "engine/tokenizer/added.h"

#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

#include "base/cancel.h"
#include "base/mem.h"
#include "base/utf8.h"

enum { MAX_TEXT = 4096, MAX_NODES = 1 << 24, LOOK = 1 << 14 };

struct node {
    int32_t child, sibling;  // 0: none (the root is never anybody's child)
    int32_t id;              // -1: no token ends here
    uint8_t byte, flags;
};

struct tokenizer_added {
    struct node *nodes;
    int32_t n, cap;
    int32_t first[256];  // children of the root by byte
};

struct tokenizer_added *tokenizer_added_new(void)
{
    struct tokenizer_added *a = mem_new(sizeof *a);
    a->n = 1;
    return a;
}

void tokenizer_added_free(struct tokenizer_added *a)
{
    if (!a)
        return;
    free(a->nodes);
    free(a);
}

static int32_t find(const struct tokenizer_added *a, int32_t parent, uint8_t byte)
{
    if (parent == 0)
        return a->first[byte];
    int32_t i = a->nodes[parent].child;
    while (i && a->nodes[i].byte != byte)
        i = a->nodes[i].sibling;
    return i;
}

static int32_t insert(struct tokenizer_added *a, int32_t parent, uint8_t byte)
{
    int32_t i = find(a, parent, byte);
    if (i)
        return i;
    if (a->n >= a->cap) {
        int32_t cap = a->cap ? a->cap * 2 : 256;
        struct node *nodes = cap > MAX_NODES ? NULL : realloc(a->nodes, (size_t)cap * sizeof *nodes);
        if (!nodes)
            return 0;
        a->nodes = nodes;
        a->cap = cap;
    }
    i = a->n++;
    a->nodes[i] = (struct node){0, parent ? a->nodes[parent].child : 0, -1, byte, 0};
    if (parent)
        a->nodes[parent].child = i;
    else
        a->first[byte] = i;
    return i;
}

err_code tokenizer_added_put(struct tokenizer_added *a, const char *text, size_t len, int32_t id, unsigned flags,
                             err *e)
{
    if (len > MAX_TEXT)
        return err_set(e, ERR_TOO_LARGE, "added token of %zu bytes, expected at most %d", len, MAX_TEXT);
    int32_t at = 0;
    for (size_t i = 0; i < len; i++)
        if ((at = insert(a, at, (uint8_t)text[i])) == 0)
            return err_set(e, ERR_MEMORY, "no memory for the added tokens");
    if (len && a->nodes[at].id < 0) {
        a->nodes[at].id = id;
        a->nodes[at].flags = (uint8_t)flags;
    }
    return ERR_OK;
}

// ---- which tokens are markers

static bool is_html(const char *text, size_t len)
{
    static const char *const names[] = {
        "table", "caption", "thead", "tbody", "tfoot", "tr", "th", "td", "h1", "h2", "h3", "h4", "h5", "h6",
        "blockquote", "strong", "em", "b", "i", "u", "s", "sub", "sup", "code",
    };
    if (len < 3 || text[0] != '<' || text[len - 1] != '>')
        return false;
    size_t skip = text[1] == '/' ? 2 : 1;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strlen(names[i]) == len - skip - 1 && memcmp(text + skip, names[i], len - skip - 1) == 0)
            return true;
    return false;
}

// Letters, marks and numbers of any kind.
static bool is_ordinary(uint32_t cp)
{
    utf8proc_category_t c = utf8proc_category((utf8proc_int32_t)cp);
    return c >= UTF8PROC_CATEGORY_LU && c <= UTF8PROC_CATEGORY_NO;
}

// What a regular expression calls a word character (Unicode TR 18, annex C).
static bool is_word(uint32_t cp)
{
    utf8proc_category_t c = utf8proc_category((utf8proc_int32_t)cp);
    bool circled = (cp >= 0x24B6 && cp <= 0x24E9) || (cp >= 0x1F130 && cp <= 0x1F189);
    return (c >= UTF8PROC_CATEGORY_LU && c <= UTF8PROC_CATEGORY_NL) || c == UTF8PROC_CATEGORY_PC || cp == 0x200C ||
           cp == 0x200D || circled;
}

static bool is_space(uint32_t cp)
{
    utf8proc_category_t c = utf8proc_category((utf8proc_int32_t)cp);
    return (cp >= 9 && cp <= 13) || cp == 0x85 || c == UTF8PROC_CATEGORY_ZS || c == UTF8PROC_CATEGORY_ZL ||
           c == UTF8PROC_CATEGORY_ZP;
}

bool tokenizer_added_is_marker(const char *text, size_t len)
{
    if (is_html(text, len))
        return false;
    for (size_t i = 0; i < len;) {
        uint32_t cp;
        int k = utf8_decode(text + i, len - i, &cp);
        if (k == 0 || !(is_space(cp) || cp == 0x2581 || is_ordinary(cp)))
            return true;
        i += (size_t)k;
    }
    return false;
}

// ---- matching

// The longest token that starts at s and may be matched there; its node, or 0.
static int32_t longest(const struct tokenizer_added *a, const struct tokenizer_text *t, size_t s, size_t *ret_end)
{
    int32_t best = 0, at = 0;
    bool trusted = true;
    for (size_t i = s; i < t->len; i++) {
        at = find(a, at, (uint8_t)t->data[i]);
        if (!at)
            break;
        trusted = trusted && t->trust[i];
        if (a->nodes[at].id >= 0 && (trusted || !(a->nodes[at].flags & ADDED_GUARDED))) {
            best = at;
            *ret_end = i + 1;
        }
    }
    return best;
}

static size_t char_before(const struct tokenizer_text *t, size_t at, uint32_t *ret_cp)
{
    size_t i = at - 1;
    while (i > 0 && ((unsigned char)t->data[i] & 0xC0) == 0x80)
        i--;
    if (utf8_decode(t->data + i, at - i, ret_cp) == 0)
        *ret_cp = 0xFFFD;
    return i;
}

static bool inside_word(const struct tokenizer_text *t, size_t start, size_t end)
{
    uint32_t cp;
    if (start > 0) {
        char_before(t, start, &cp);
        if (is_word(cp))
            return true;
    }
    return end < t->len && utf8_decode(t->data + end, t->len - end, &cp) > 0 && is_word(cp);
}

static size_t spaces_left(const struct tokenizer_text *t, size_t at, size_t floor)
{
    uint32_t cp;
    while (at > floor) {
        size_t i = char_before(t, at, &cp);
        if (!is_space(cp) || i < floor)
            break;
        at = i;
    }
    return at;
}

static size_t spaces_right(const struct tokenizer_text *t, size_t at)
{
    uint32_t cp;
    int k;
    while (at < t->len && (k = utf8_decode(t->data + at, t->len - at, &cp)) > 0 && is_space(cp))
        at += (size_t)k;
    return at;
}

bool tokenizer_added_next(const struct tokenizer_added *a, const struct tokenizer_text *t, size_t from, size_t done,
                          struct added_match *ret_match)
{
    if (a->n == 1)
        return false;
    for (size_t s = from; s < t->len; s++) {
        if (s % LOOK == LOOK - 1 && cancel_due(LOOK / 4))
            return false;  // what is left is one text, which the next look stops
        if (!a->first[(uint8_t)t->data[s]])
            continue;
        size_t end = 0;
        int32_t node = longest(a, t, s, &end);
        if (!node)
            continue;
        unsigned flags = a->nodes[node].flags;
        if ((flags & ADDED_SINGLE_WORD) && inside_word(t, s, end)) {
            s = end - 1;  // the search goes on behind it, as the reference does
            continue;
        }
        size_t start = s < done ? done : s;
        ret_match->resume = end;
        ret_match->id = a->nodes[node].id;
        ret_match->start = flags & ADDED_LSTRIP ? spaces_left(t, start, done) : start;
        ret_match->end = flags & ADDED_RSTRIP ? spaces_right(t, end) : end;
        return true;
    }
    return false;
}
