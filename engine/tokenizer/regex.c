// regex.c - compiles and runs the patterns of pre-tokenisers and normalisers with PCRE2.
//
// Compiled patterns belong to the tokenizer; match state belongs to one encode call. Every search is bounded: PCRE2's
// match limit stops a pattern that backtracks without end, since patterns come from files and texts from anybody.

#define PCRE2_CODE_UNIT_WIDTH 8
#include "engine/tokenizer/regex.h"

#include <pcre2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/cancel.h"
#include "base/mem.h"

enum {
    MAX_PATTERN = 1 << 16,
    MATCH_LIMIT = 10000000,
    STACK_START = 64 << 10,
    STACK_MAX = 64 << 20,
};

// White_Space without U+180E, which PCRE2's \s (the older Unicode's space separators included) still has.
#define SPACE_CLASS "\\t-\\r\\x{85}\\p{Z}"
// Oniguruma's \w: marks and letter-like numbers and symbols are in, which PCRE2's leaves out; outside a class also six
// signs of Latin-1.
#define WORDS "\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}"
#define WORD_CLASS WORDS "\\x{B2}\\x{B3}\\x{B9}\\x{BC}-\\x{BE}"

struct tokenizer_regex {
    pcre2_code *code;
    bool jit;
};

// The escape \c: true when it was \s, \S, \w, \W, \b or \B and has been written out.
static bool add_class(struct buf *out, char c, bool in_class)
{
    const char *class = c == 's' || c == 'S' ? SPACE_CLASS : in_class ? WORDS : WORD_CLASS;
    if (!c || !strchr(in_class ? "sw" : "sSwWbB", c))
        return false;
    if (in_class)
        buf_add_str(out, class);
    else if (c == 'b')
        buf_add_str(out, "(?:(?<=[" WORD_CLASS "])(?![" WORD_CLASS "])|(?<![" WORD_CLASS "])(?=[" WORD_CLASS "]))");
    else if (c == 'B')
        buf_add_str(out, "(?:(?<=[" WORD_CLASS "])(?=[" WORD_CLASS "])|(?<![" WORD_CLASS "])(?![" WORD_CLASS "]))");
    else
        buf_printf(out, "[%s%s]", c == 'S' || c == 'W' ? "^" : "", class);
    return true;
}

// Whether name[0..n) is a script: then PCRE2's \p{name} also takes the signs that are written with it (the full stop of
// Chinese is one of Han), which nobody else's does.
static bool is_script(const char *name, size_t n)
{
    char pattern[64];
    int code = 0;
    PCRE2_SIZE at = 0;
    for (size_t i = 0; i < n; i++)
        if (!(name[i] == '_' || (name[i] >= 'a' && name[i] <= 'z') || (name[i] >= 'A' && name[i] <= 'Z')))
            return false;
    if (n < 2 || n > 40)
        return false;
    snprintf(pattern, sizeof pattern, "\\p{sc:%.*s}", (int)n, name);
    pcre2_code *c = pcre2_compile((PCRE2_SPTR)pattern, PCRE2_ZERO_TERMINATED, PCRE2_UTF, &code, &at, NULL);
    pcre2_code_free(c);
    return c != NULL;
}

// \p{Name} or \P{Name} of a script at p: its length when it has been written out, else 0.
static size_t add_script(struct buf *out, const char *p, size_t n)
{
    if (n < 5 || (p[1] != 'p' && p[1] != 'P') || p[2] != '{')
        return 0;
    size_t not = p[3] == '^';
    const char *name = p + 3 + not, *end = memchr(name, '}', n - 3 - not);
    if (!end || !is_script(name, (size_t)(end - name)))
        return 0;
    buf_printf(out, "\\%c{%ssc:%.*s}", p[1], not ? "^" : "", (int)(end - name), name);
    return (size_t)(end - p) + 1;
}

// Rewrites \s, \w and what hangs on them to the exact class; inside a class \S cannot be written so and stays. False:
// something that means another thing to Oniguruma (a class in a class, &&, \h, \W in a class).
static bool translate(struct buf *out, const char *p, size_t n)
{
    bool in_class = false;
    size_t open = 0;
    for (size_t i = 0; i < n; i++) {
        if (p[i] == '\\' && i + 1 < n) {
            if (p[i + 1] == 'h' || p[i + 1] == 'H' || (in_class && p[i + 1] == 'W'))
                return false;
            size_t script = add_script(out, p + i, n - i);
            if (script) {
                i += script - 1;
                continue;
            }
            if (!add_class(out, p[i + 1], in_class))
                buf_add(out, p + i, 2);
            i++;
            continue;
        }
        bool first = in_class && (i == open + 1 || (i == open + 2 && p[open + 1] == '^'));
        if (in_class && (p[i] == '[' || (p[i] == '&' && i + 1 < n && p[i + 1] == '&')))
            return false;
        if (!in_class && p[i] == '[') {
            in_class = true;
            open = i;
        } else if (in_class && p[i] == ']' && !first) {
            in_class = false;
        }
        buf_add_char(out, p[i]);
    }
    return true;
}

static void quote(struct buf *out, const char *p, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (strchr("\\^$.|?*+()[]{}#-", p[i]) && p[i])
            buf_add_char(out, '\\');
        buf_add_char(out, p[i]);
    }
}

static bool prepare(struct buf *out, const char *pattern, size_t len, bool literal)
{
    if (literal)
        quote(out, pattern, len);
    // A run of spaces that no line end follows would be searched again from each of its characters; only the first can
    // begin a match, so saying so changes nothing but the time.
    else if (len == 4 && memcmp(pattern, "\\s+$", 4) == 0)
        buf_add_str(out, "(?<![" SPACE_CLASS "])[" SPACE_CLASS "]+$");
    else
        return translate(out, pattern, len);
    return true;
}

static err_code compile(const struct buf *b, struct tokenizer_regex **ret_regex, err *e)
{
    int code = 0;
    PCRE2_SIZE at = 0;
    pcre2_compile_context *context = pcre2_compile_context_create(NULL);
    if (!context)
        return err_set(e, ERR_MEMORY, "no memory for a pattern");
    pcre2_set_newline(context, PCRE2_NEWLINE_LF);
    pcre2_set_parens_nest_limit(context, 100);
    pcre2_code *c =
        pcre2_compile((PCRE2_SPTR)b->data, b->len, PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C,
                      &code, &at, context);
    pcre2_compile_context_free(context);
    if (!c) {
        char why[160];
        pcre2_get_error_message(code, (PCRE2_UCHAR *)why, sizeof why);
        return err_set(e, ERR_UNSUPPORTED, "pattern '%.120s': %s at byte %zu", b->data, why, at);
    }
    struct tokenizer_regex *re = mem_new(sizeof *re);
    re->code = c;
    re->jit = pcre2_jit_compile(c, PCRE2_JIT_COMPLETE) == 0;
    *ret_regex = re;
    return ERR_OK;
}

err_code tokenizer_regex_open(const char *pattern, size_t len, bool literal, struct tokenizer_regex **ret_regex, err *e)
{
    if (len == 0 || len > MAX_PATTERN)
        return err_set(e, ERR_UNSUPPORTED, "pattern of %zu bytes, expected 1 to %d", len, MAX_PATTERN);
    if (memchr(pattern, 0, len))
        return err_set(e, ERR_UNSUPPORTED, "pattern holds a NUL byte");
    struct buf b;
    buf_init(&b, (size_t)MAX_PATTERN * 16);
    err_code rc;
    if (!prepare(&b, pattern, len, literal))
        rc = err_set(e, ERR_UNSUPPORTED, "pattern '%.200s' has a class in a class, \\W in one, && or \\h", pattern);
    else
        rc = b.over ? err_set(e, ERR_UNSUPPORTED, "pattern is too long") : compile(&b, ret_regex, e);
    buf_done(&b);
    return rc;
}

void tokenizer_regex_close(struct tokenizer_regex *re)
{
    if (!re)
        return;
    pcre2_code_free(re->code);
    free(re);
}

static bool match_init(struct tokenizer_regex_match *m)
{
    if (!m->data)
        m->data = pcre2_match_data_create(1, NULL);
    if (!m->context && (m->context = pcre2_match_context_create(NULL))) {
        pcre2_set_match_limit(m->context, MATCH_LIMIT);
        pcre2_set_heap_limit(m->context, STACK_MAX >> 10);
    }
    return m->data && m->context;
}

void tokenizer_regex_match_done(struct tokenizer_regex_match *m)
{
    pcre2_match_data_free(m->data);
    pcre2_match_context_free(m->context);
    if (m->stack)
        pcre2_jit_stack_free(m->stack);
    *m = (struct tokenizer_regex_match){0};
}

// The built-in stack of compiled patterns is small; a long subject may need the large one.
static bool grow_stack(struct tokenizer_regex_match *m)
{
    if (m->stack)
        return false;
    m->stack = pcre2_jit_stack_create(STACK_START, STACK_MAX, NULL);
    if (!m->stack)
        return false;
    pcre2_jit_stack_assign(m->context, NULL, m->stack);
    return true;
}

err_code tokenizer_regex_next(const struct tokenizer_regex *re, struct tokenizer_regex_match *m, const char *text,
                              size_t len, size_t from, bool *ret_found, err *e)
{
    if (!match_init(m))
        return err_set(e, ERR_MEMORY, "no memory to match a pattern");
    if (cancel_check(16, e))
        return e->code;
    int rc;
    do {
        PCRE2_SPTR s = (PCRE2_SPTR)(text ? text : "");
        rc = re->jit ? pcre2_jit_match(re->code, s, len, from, PCRE2_NO_UTF_CHECK, m->data, m->context)
                     : pcre2_match(re->code, s, len, from, PCRE2_NO_UTF_CHECK, m->data, m->context);
    } while (rc == PCRE2_ERROR_JIT_STACKLIMIT && grow_stack(m));
    *ret_found = rc >= 0;
    if (rc == PCRE2_ERROR_NOMATCH)
        return ERR_OK;
    if (rc < 0)
        return err_set(e, ERR_TOO_LARGE, "the pre-tokenizer's pattern gave up on a text of %zu bytes (code %d)", len,
                       rc);
    PCRE2_SIZE *v = pcre2_get_ovector_pointer(m->data);
    m->start = v[0];
    m->end = v[1] > v[0] ? v[1] : v[0];
    return ERR_OK;
}
