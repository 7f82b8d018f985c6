// normal.c - normalisers, applied step by step to text that carries trust flags.
//
// A character made from several keeps the trust of the least trusted. Immutable after open; scratch is the caller's.
//
// Unicode forms are computed segment by segment: a segment is a character that cannot combine with the one before it
// and all that follow up to the next such character. utf8proc decomposes and composes; the marks are ordered here,
// because its own ordering takes quadratic time on a long run of marks.

#include "engine/tokenizer/normal.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

#include "base/cancel.h"
#include "base/mem.h"
#include "base/utf8.h"
#include "engine/tokenizer/regex.h"

enum { MAX_STEPS = 32, MAX_DEPTH = 8, MAX_CONTENT = 4096 };

enum step_kind { STEP_FORM, STEP_LOWER, STEP_STRIP, STEP_PREPEND, STEP_REPLACE, STEP_CLEAN, STEP_IDEOGRAPHS, STEP_MARKS };

struct step {
    enum step_kind kind;
    bool compose, compat;  // FORM
    bool left, right;      // STRIP
    struct tokenizer_regex *regex;
    char *content;
    size_t content_len;
};

struct tokenizer_normal {
    int n;
    struct step steps[MAX_STEPS];
};

// ---- Unicode forms

struct mark {
    utf8proc_int32_t cp;
    int order;
    uint8_t ccc;
};

struct segment {
    utf8proc_int32_t *cps;
    struct mark *marks;
    size_t n, cap;
};

static bool segment_grow(struct segment *g)
{
    size_t cap = g->cap ? g->cap * 2 : 64;
    utf8proc_int32_t *cps = realloc(g->cps, (cap + 1) * sizeof *cps);
    if (cps)
        g->cps = cps;
    struct mark *marks = realloc(g->marks, cap * sizeof *marks);
    if (marks)
        g->marks = marks;
    if (!cps || !marks)
        return false;
    g->cap = cap;
    return true;
}

static bool starts_segment(uint32_t cp, bool compat)
{
    if (cp < 0x300)
        return true;
    if (compat) {  // what it turns into counts: a half-width voicing mark becomes a combining one
        utf8proc_int32_t out[32];
        int last = 0;
        if (utf8proc_decompose_char((utf8proc_int32_t)cp, out, 32, UTF8PROC_DECOMPOSE | UTF8PROC_COMPAT, &last) > 0)
            cp = (uint32_t)out[0];
    }
    const utf8proc_property_t *p = utf8proc_get_property((utf8proc_int32_t)cp);
    if (p->combining_class != 0 || (cp >= 0x1160 && cp <= 0x11FF))  // the second and third jamo of a syllable
        return false;
    return p->category != UTF8PROC_CATEGORY_MN && p->category != UTF8PROC_CATEGORY_MC &&
           p->category != UTF8PROC_CATEGORY_ME;
}

static int by_class(const void *a, const void *b)
{
    const struct mark *x = a, *y = b;
    return x->ccc != y->ccc ? x->ccc - y->ccc : (x->order > y->order) - (x->order < y->order);
}

static void order_marks(struct segment *g)
{
    for (size_t i = 0; i < g->n;) {
        size_t j = i;
        bool sorted = true;
        for (; j < g->n; j++) {
            uint8_t ccc = (uint8_t)utf8proc_get_property(g->cps[j])->combining_class;
            if (ccc == 0)
                break;
            g->marks[j - i] = (struct mark){g->cps[j], (int)(j - i), ccc};
            sorted = sorted && (j == i || g->marks[j - i - 1].ccc <= ccc);
        }
        if (!sorted) {
            qsort(g->marks, j - i, sizeof *g->marks, by_class);
            for (size_t k = i; k < j; k++)
                g->cps[k] = g->marks[k - i].cp;
        }
        i = j > i ? j : i + 1;
    }
}

static bool decompose(struct segment *g, const char *p, size_t n, bool compat)
{
    int options = UTF8PROC_STABLE | UTF8PROC_DECOMPOSE | (compat ? UTF8PROC_COMPAT : 0), last = 0;
    g->n = 0;
    for (size_t i = 0; i < n;) {
        uint32_t cp = 0;
        int len = utf8_decode(p + i, n - i, &cp);
        utf8proc_int32_t out[32];  // the longest decomposition has 18 characters
        utf8proc_ssize_t k = utf8proc_decompose_char((utf8proc_int32_t)cp, out, 32, options, &last);
        while (g->n + 32 > g->cap)
            if (!segment_grow(g))
                return false;
        for (utf8proc_ssize_t j = 0; j < k && j < 32; j++)
            g->cps[g->n++] = out[j];
        i += (size_t)(len > 0 ? len : 1);
    }
    order_marks(g);
    return true;
}

// One segment. A first character that stays as it was keeps its own trust.
static bool form_segment(const struct step *s, struct segment *g, const char *p, size_t n, const uint8_t *trust,
                         struct tokenizer_text *out)
{
    if (!decompose(g, p, n, s->compat))
        return false;
    if (s->compose)
        g->n = (size_t)utf8proc_normalize_utf32(g->cps, (utf8proc_ssize_t)g->n, UTF8PROC_STABLE | UTF8PROC_COMPOSE);
    bool all = tokenizer_text_trusted(trust, n);
    for (size_t i = 0; i < g->n; i++) {
        char c[4];
        size_t len = (size_t)utf8_encode((uint32_t)g->cps[i], c);
        bool same = i == 0 && len <= n && memcmp(c, p, len) == 0;
        tokenizer_text_add(out, c, len, NULL, same ? trust[0] : all);
    }
    return true;
}

static bool form_keeps_ascii(const char *p, size_t n)
{
    return n == 0 || (unsigned char)*p < 0x80;
}

static err_code run_form(const struct step *s, const struct tokenizer_text *in, struct tokenizer_text *out, err *e)
{
    struct segment g = {0};
    bool ok = true;
    for (size_t i = 0; ok && i < in->len && !cancel_due(8);) {
        const char *p = in->data + i;
        size_t n = in->len - i, len = 0;
        while (len < n && (unsigned char)p[len] < 0x80 && form_keeps_ascii(p + len + 1, n - len - 1))
            len++;  // ASCII before ASCII is its own segment and stays
        if (len) {
            tokenizer_text_add(out, p, len, in->trust + i, true);
            i += len;
            continue;
        }
        uint32_t cp = 0;
        int k = utf8_decode(p, n, &cp);
        for (len = (size_t)(k > 0 ? k : 1); len < n; len += (size_t)(k > 0 ? k : 1)) {
            k = utf8_decode(p + len, n - len, &cp);
            if (starts_segment(cp, s->compat))
                break;
        }
        ok = form_segment(s, &g, p, len, in->trust + i, out);
        i += len;
    }
    free(g.cps);
    free(g.marks);
    return ok ? ERR_OK : err_set(e, ERR_MEMORY, "no memory to normalise %zu bytes", in->len);
}

// ---- the other steps

static void run_lower(const struct tokenizer_text *in, struct tokenizer_text *out)
{
    for (size_t i = 0; i < in->len && !cancel_due(4);) {
        uint32_t cp = 0;
        int k = utf8_decode(in->data + i, in->len - i, &cp);
        size_t len = (size_t)(k > 0 ? k : 1);
        char c[4];
        if (cp == 0x130)  // the one character whose lower case is two
            tokenizer_text_add(out, "i\xCC\x87", 3, NULL, in->trust[i]);
        else
            tokenizer_text_add(out, c, (size_t)utf8_encode((uint32_t)utf8proc_tolower((utf8proc_int32_t)cp), c), NULL,
                               in->trust[i]);
        i += len;
    }
}

static bool is_space(uint32_t cp)
{
    if (cp < 0x80)
        return cp == ' ' || (cp >= 9 && cp <= 13);
    utf8proc_category_t c = utf8proc_category((utf8proc_int32_t)cp);
    return cp == 0x85 || c == UTF8PROC_CATEGORY_ZS || c == UTF8PROC_CATEGORY_ZL || c == UTF8PROC_CATEGORY_ZP;
}

static void run_strip(const struct step *s, const struct tokenizer_text *in, struct tokenizer_text *out)
{
    size_t start = 0, end = in->len;
    uint32_t cp = 0;
    while (s->left && start < end) {
        int k = utf8_decode(in->data + start, end - start, &cp);
        if (k == 0 || !is_space(cp))
            break;
        start += (size_t)k;
    }
    while (s->right && end > start) {
        size_t at = end - 1;
        while (at > start && ((unsigned char)in->data[at] & 0xC0) == 0x80)
            at--;
        if (utf8_decode(in->data + at, end - at, &cp) == 0 || !is_space(cp))
            break;
        end = at;
    }
    if (end > start)
        tokenizer_text_add(out, in->data + start, end - start, in->trust + start, true);
}

static void run_prepend(const struct step *s, const struct tokenizer_text *in, struct tokenizer_text *out)
{
    if (in->len == 0)
        return;
    tokenizer_text_add(out, s->content, s->content_len, NULL, in->trust[0]);
    tokenizer_text_add(out, in->data, in->len, in->trust, true);
}

static err_code run_replace(const struct step *s, const struct tokenizer_text *in, struct tokenizer_text *out,
                            struct tokenizer_regex_match *m, err *e)
{
    size_t done = 0, from = 0;
    while (from <= in->len) {
        bool found;
        err_code rc = tokenizer_regex_next(s->regex, m, in->data, in->len, from, &found, e);
        if (rc)
            return rc;
        if (!found)
            break;
        tokenizer_text_add(out, in->data + done, m->start - done, in->trust + done, true);
        bool all = tokenizer_text_trusted(in->trust + m->start, m->end - m->start);
        tokenizer_text_add(out, s->content, s->content_len, NULL, all);
        done = from = m->end;
        if (m->end == m->start) {  // an empty match: go on after the next character
            uint32_t cp;
            int k = utf8_decode(in->data + from, in->len - from, &cp);
            from += (size_t)(k > 0 ? k : 1);
        }
    }
    if (done < in->len)
        tokenizer_text_add(out, in->data + done, in->len - done, in->trust + done, true);
    return ERR_OK;
}

// ---- BERT

enum clean { CLEAN_KEEP, CLEAN_DROP, CLEAN_SPACE };

// Control, format and private characters go, white space becomes a space.
static enum clean clean_of(uint32_t cp)
{
    if (cp < 0x80)
        return cp == '\t' || cp == '\n' || cp == '\r' ? CLEAN_SPACE : cp < 0x20 || cp == 0x7F ? CLEAN_DROP : CLEAN_KEEP;
    switch (utf8proc_category((utf8proc_int32_t)cp)) {
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CO:
        return CLEAN_DROP;
    case UTF8PROC_CATEGORY_ZS:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP:
        return CLEAN_SPACE;
    default:
        return cp == 0xFFFD ? CLEAN_DROP : CLEAN_KEEP;
    }
}

// The blocks of ideographs as tokenizers has them; U+2B820 to U+2B91F are not among them.
static bool is_ideograph(uint32_t cp)
{
    return (cp >= 0x3400 && cp <= 0x4DBF) || (cp >= 0x4E00 && cp <= 0x9FFF) || (cp >= 0xF900 && cp <= 0xFAFF) ||
           (cp >= 0x20000 && cp <= 0x2A6DF) || (cp >= 0x2A700 && cp <= 0x2B81F) || (cp >= 0x2B920 && cp <= 0x2CEAF) ||
           (cp >= 0x2F800 && cp <= 0x2FA1F);
}

static void run_bert(enum step_kind kind, const struct tokenizer_text *in, struct tokenizer_text *out)
{
    for (size_t i = 0, len; i < in->len && !cancel_due(4); i += len) {
        uint32_t cp = 0;
        int k = utf8_decode(in->data + i, in->len - i, &cp);
        len = (size_t)(k > 0 ? k : 1);
        enum clean clean = kind == STEP_CLEAN ? clean_of(cp) : CLEAN_KEEP;
        if (kind == STEP_MARKS && cp >= 0x300 && utf8proc_category((utf8proc_int32_t)cp) == UTF8PROC_CATEGORY_MN)
            clean = CLEAN_DROP;
        bool alone = kind == STEP_IDEOGRAPHS && is_ideograph(cp);
        if (alone || clean == CLEAN_SPACE)
            tokenizer_text_add(out, " ", 1, NULL, in->trust[i]);
        if (clean == CLEAN_KEEP)
            tokenizer_text_add(out, in->data + i, len, in->trust + i, true);
        if (alone)
            tokenizer_text_add(out, " ", 1, NULL, in->trust[i]);
    }
}

static err_code run_step(const struct step *s, const struct tokenizer_text *in, struct tokenizer_text *out,
                         struct tokenizer_regex_match *m, err *e)
{
    switch (s->kind) {
    case STEP_FORM: return run_form(s, in, out, e);
    case STEP_LOWER: run_lower(in, out); break;
    case STEP_STRIP: run_strip(s, in, out); break;
    case STEP_PREPEND: run_prepend(s, in, out); break;
    case STEP_REPLACE: return run_replace(s, in, out, m, e);
    case STEP_CLEAN: case STEP_IDEOGRAPHS: case STEP_MARKS: run_bert(s->kind, in, out); break;
    }
    return ERR_OK;
}

err_code tokenizer_normal_run(const struct tokenizer_normal *n, struct tokenizer_text *text,
                              struct tokenizer_text *scratch, struct tokenizer_regex_match *m, err *e)
{
    err_code rc = tokenizer_text_check(text, e);
    for (int i = 0; n && rc == ERR_OK && text->len && i < n->n; i++) {
        scratch->len = 0;
        rc = run_step(&n->steps[i], text, scratch, m, e);
        if (rc == ERR_OK)
            rc = tokenizer_text_check(scratch, e);
        if (rc == ERR_OK)
            rc = cancel_check(0, e);
        tokenizer_text_swap(text, scratch);
    }
    return rc;
}

// ---- opening

static err_code add_step(struct tokenizer_normal *n, enum step_kind kind, struct step **ret_step, err *e)
{
    if (n->n == MAX_STEPS)
        return err_set(e, ERR_UNSUPPORTED, "normalizer has more than %d steps", MAX_STEPS);
    *ret_step = &n->steps[n->n++];
    (*ret_step)->kind = kind;
    return ERR_OK;
}

static err_code set_content(struct step *s, const char *p, size_t n, err *e)
{
    if (!p || n > MAX_CONTENT)
        return err_set(e, ERR_UNSUPPORTED, "normalizer's text is missing or over %d bytes", MAX_CONTENT);
    s->content = mem_strndup(p, n);
    s->content_len = n;
    return ERR_OK;
}

static err_code open_form(struct tokenizer_normal *n, bool compose, bool compat, err *e)
{
    struct step *s;
    err_code rc = add_step(n, STEP_FORM, &s, e);
    if (rc == ERR_OK) {
        s->compose = compose;
        s->compat = compat;
    }
    return rc;
}

static err_code open_strip(struct tokenizer_normal *n, const json_t *j, err *e)
{
    struct step *s;
    err_code rc = add_step(n, STEP_STRIP, &s, e);
    if (rc == ERR_OK) {
        s->left = !json_is_false(json_object_get(j, "strip_left"));
        s->right = !json_is_false(json_object_get(j, "strip_right"));
    }
    return rc;
}

static err_code open_prepend(struct tokenizer_normal *n, const json_t *j, err *e)
{
    struct step *s;
    const json_t *p = json_object_get(j, "prepend");
    err_code rc = add_step(n, STEP_PREPEND, &s, e);
    return rc ? rc : set_content(s, json_string_value(p), json_string_length(p), e);
}

static err_code open_replace(struct tokenizer_normal *n, const json_t *j, err *e)
{
    struct step *s;
    const json_t *pattern = json_object_get(j, "pattern"), *content = json_object_get(j, "content");
    const json_t *text = json_object_get(pattern, "String");
    bool literal = text != NULL;
    if (!text)
        text = json_object_get(pattern, "Regex");
    if (!json_is_string(text))
        return err_set(e, ERR_CORRUPT, "normalizer Replace without a String or Regex pattern");
    err_code rc = add_step(n, STEP_REPLACE, &s, e);
    if (rc == ERR_OK)
        rc = set_content(s, json_string_value(content), json_string_length(content), e);
    if (rc == ERR_OK)
        rc = tokenizer_regex_open(json_string_value(text), json_string_length(text), literal, &s->regex, e);
    return rc;
}

// strip_accents null or absent: as lowercase.
static err_code open_bert(struct tokenizer_normal *n, const json_t *j, err *e)
{
    bool lower = !json_is_false(json_object_get(j, "lowercase"));
    const json_t *strip = json_object_get(j, "strip_accents");
    struct step *s;
    err_code rc = ERR_OK;
    if (!json_is_false(json_object_get(j, "clean_text")))
        rc = add_step(n, STEP_CLEAN, &s, e);
    if (rc == ERR_OK && !json_is_false(json_object_get(j, "handle_chinese_chars")))
        rc = add_step(n, STEP_IDEOGRAPHS, &s, e);
    if (rc == ERR_OK && (json_is_boolean(strip) ? json_is_true(strip) : lower)) {
        rc = open_form(n, false, false, e);
        if (rc == ERR_OK)
            rc = add_step(n, STEP_MARKS, &s, e);
    }
    if (rc == ERR_OK && lower)
        rc = add_step(n, STEP_LOWER, &s, e);
    return rc;
}

static err_code open_steps(struct tokenizer_normal *n, const json_t *j, int depth, err *e)
{
    const char *type = json_string_value(json_object_get(j, "type"));
    struct step *s;
    if (!type || depth > MAX_DEPTH)
        return err_set(e, ERR_CORRUPT, type ? "normalizer is nested too deep" : "normalizer without a type");
    if (strcmp(type, "Sequence") == 0) {
        size_t i;
        json_t *item;
        json_array_foreach (json_object_get(j, "normalizers"), i, item) {
            err_code rc = open_steps(n, item, depth + 1, e);
            if (rc)
                return rc;
        }
        return ERR_OK;
    }
    if (type[0] == 'N' && type[1] == 'F' && strlen(type) <= 4)
        if (strcmp(type, "NFC") == 0 || strcmp(type, "NFD") == 0 || strcmp(type, "NFKC") == 0 ||
            strcmp(type, "NFKD") == 0)
            return open_form(n, type[strlen(type) - 1] == 'C', type[2] == 'K', e);
    if (strcmp(type, "Lowercase") == 0)
        return add_step(n, STEP_LOWER, &s, e);
    if (strcmp(type, "BertNormalizer") == 0)
        return open_bert(n, j, e);
    if (strcmp(type, "StripAccents") == 0)
        return add_step(n, STEP_MARKS, &s, e);
    if (strcmp(type, "Strip") == 0)
        return open_strip(n, j, e);
    if (strcmp(type, "Prepend") == 0)
        return open_prepend(n, j, e);
    if (strcmp(type, "Replace") == 0)
        return open_replace(n, j, e);
    return err_set_param(e, ERR_UNSUPPORTED, "normalizer", "normalizer '%.60s' is not supported", type);
}

err_code tokenizer_normal_open(const struct json_t *json, struct tokenizer_normal **ret_normal, err *e)
{
    if (!json || json_is_null(json)) {
        *ret_normal = NULL;
        return ERR_OK;
    }
    struct tokenizer_normal *n = mem_new(sizeof *n);
    err_code rc = open_steps(n, json, 0, e);
    if (rc)
        tokenizer_normal_close(n);
    else
        *ret_normal = n;
    return rc;
}

err_code tokenizer_normal_spaces(bool prefix, struct tokenizer_normal **ret_normal, err *e)
{
    struct tokenizer_normal *n = mem_new(sizeof *n);
    struct step *s;
    err_code rc = ERR_OK;
    if (prefix && (rc = add_step(n, STEP_PREPEND, &s, e)) == ERR_OK)
        rc = set_content(s, "\xE2\x96\x81", 3, e);
    if (rc == ERR_OK && (rc = add_step(n, STEP_REPLACE, &s, e)) == ERR_OK)
        rc = set_content(s, "\xE2\x96\x81", 3, e);
    if (rc == ERR_OK)
        rc = tokenizer_regex_open(" ", 1, true, &s->regex, e);
    if (rc)
        tokenizer_normal_close(n);
    else
        *ret_normal = n;
    return rc;
}

err_code tokenizer_normal_nfc(struct tokenizer_normal **ret_normal, err *e)
{
    struct tokenizer_normal *n = mem_new(sizeof *n);
    err_code rc = open_form(n, true, false, e);
    if (rc)
        tokenizer_normal_close(n);
    else
        *ret_normal = n;
    return rc;
}

void tokenizer_normal_close(struct tokenizer_normal *n)
{
    if (!n)
        return;
    for (int i = 0; i < n->n; i++) {
        tokenizer_regex_close(n->steps[i].regex);
        free(n->steps[i].content);
    }
    free(n);
}
