// pretok.c - pre-tokenisers as a list of steps; each cuts (or rewrites) every piece that the step before it left.
//
// Steps are immutable after open. Pieces and rewritten text live in the caller's struct tokenizer_pieces.
//
// The byte alphabet (a space becomes U+0120) is not applied to the text: the model maps bytes to ids itself. So
// ByteLevel here only cuts, and nothing may follow it.

#include "engine/tokenizer/pretok.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/utf8.h"
#include "engine/tokenizer/patterns.h"

// \w of the regular expressions that the library uses where a tokenizer.json gives no pattern.
#define RUST_WORD "\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}\\x{200C}\\x{200D}"

enum { MAX_STEPS = 16, MAX_DEPTH = 8 };

enum behaviour { ISOLATED, REMOVED, MERGED_WITH_PREVIOUS, MERGED_WITH_NEXT, CONTIGUOUS };
enum step_kind { STEP_SPLIT, STEP_PREFIX_SPACE, STEP_METASPACE };
enum prepend { PREPEND_ALWAYS, PREPEND_FIRST, PREPEND_NEVER };

struct step {
    enum step_kind kind;
    struct tokenizer_regex *regex;  // SPLIT; METASPACE: a space
    enum behaviour behaviour;
    bool invert;
    enum prepend prepend;  // METASPACE
    char mark[8];          // METASPACE: what stands for a space
};

struct tokenizer_pretok {
    int n;
    bool bytes;
    struct step steps[MAX_STEPS];
};

// ---- the caller's memory

static void free_blocks(struct tokenizer_pieces *p)
{
    for (char *b = p->blocks, *next; b; b = next) {
        memcpy(&next, b, sizeof next);
        free(b);
    }
    p->blocks = NULL;
}

void tokenizer_pretok_done(struct tokenizer_pieces *p)
{
    free_blocks(p);
    free(p->v);
    free(p->other);
    tokenizer_regex_match_done(&p->match);
    *p = (struct tokenizer_pieces){0};
}

static char *block(struct tokenizer_pieces *p, size_t n)
{
    size_t size;
    char *b = size_add(n, sizeof b, &size) ? malloc(size) : NULL;
    if (!b) {
        p->failed = true;
        return NULL;
    }
    memcpy(b, &p->blocks, sizeof p->blocks);
    p->blocks = b;
    return b + sizeof b;
}

static void emit(struct tokenizer_pieces *p, const char *text, size_t len)
{
    if (len == 0 || p->failed)
        return;
    if (p->n == p->cap) {
        size_t cap = p->cap ? p->cap * 2 : 64;
        struct tokenizer_piece *v = realloc(p->v, cap * sizeof *v);
        if (!v) {
            p->failed = true;
            return;
        }
        p->v = v;
        p->cap = cap;
    }
    p->v[p->n++] = (struct tokenizer_piece){text, len};
}

// ---- cutting

// Joins parts (match or gap, in text order) into pieces by a behaviour. `start` is where the open piece begins.
struct joiner {
    struct tokenizer_pieces *out;
    const char *text;
    enum behaviour how;
    size_t start;
    bool open, last_match;
};

static void join(struct joiner *j, size_t from, size_t to, bool match)
{
    bool glue = false;
    switch (j->how) {
    case ISOLATED: case REMOVED: break;
    case MERGED_WITH_PREVIOUS: glue = match && !j->last_match; break;
    case MERGED_WITH_NEXT: glue = !match && j->last_match; break;
    case CONTIGUOUS: glue = match == j->last_match; break;
    }
    if (j->open && !glue)
        emit(j->out, j->text + j->start, from - j->start);
    if (!j->open || !glue)
        j->start = from;
    j->open = true;
    if (j->how == REMOVED && match) {
        j->open = false;
        j->start = to;
    }
    j->last_match = match;
}

static err_code split(const struct step *s, const char *text, size_t len, struct tokenizer_pieces *out, err *e)
{
    struct joiner j = {out, text, s->behaviour, 0, false, false};
    struct tokenizer_regex_match *m = &out->match;
    size_t done = 0, from = 0;
    while (from < len) {
        bool found;
        err_code rc = tokenizer_regex_next(s->regex, m, text, len, from, &found, e);
        if (rc)
            return rc;
        if (!found)
            break;
        if (m->start > done)
            join(&j, done, m->start, s->invert);
        join(&j, m->start, m->end, !s->invert);
        done = from = m->end;
        if (m->end == m->start) {  // an empty match is a border; search on after the next character
            uint32_t cp;
            int k = utf8_decode(text + from, len - from, &cp);
            from += (size_t)(k > 0 ? k : 1);
        }
    }
    if (done < len)
        join(&j, done, len, s->invert);
    if (j.open)
        emit(out, text + j.start, len - j.start);
    return ERR_OK;
}

// ---- rewriting

static void prefix_space(const char *text, size_t len, struct tokenizer_pieces *out)
{
    if (text[0] == ' ') {
        emit(out, text, len);
        return;
    }
    char *b = block(out, len + 1);
    if (!b)
        return;
    b[0] = ' ';
    memcpy(b + 1, text, len);
    emit(out, b, len + 1);
}

static bool starts_with(const char *text, size_t len, const char *mark, size_t n)
{
    return len >= n && memcmp(text, mark, n) == 0;
}

static err_code metaspace(const struct step *s, const char *text, size_t len, bool first, struct tokenizer_pieces *out,
                          err *e)
{
    size_t n = strlen(s->mark), k = 0, size;
    if (!size_mul(len + 1, n, &size))
        return err_set(e, ERR_TOO_LARGE, "text of %zu bytes", len);
    char *b = block(out, size);
    if (!b)
        return ERR_OK;  // the caller looks at out->failed
    bool marked = text[0] == ' ' || starts_with(text, len, s->mark, n);
    if (!marked && (s->prepend == PREPEND_ALWAYS || (s->prepend == PREPEND_FIRST && first))) {
        memcpy(b, s->mark, n);
        k = n;
    }
    for (size_t i = 0; i < len; i++) {
        if (text[i] == ' ') {
            memcpy(b + k, s->mark, n);
            k += n;
        } else {
            b[k++] = text[i];
        }
    }
    if (s->regex)
        return split(s, b, k, out, e);
    emit(out, b, k);
    return ERR_OK;
}

static err_code run_step(const struct step *s, const struct tokenizer_piece *p, bool first,
                         struct tokenizer_pieces *out, err *e)
{
    switch (s->kind) {
    case STEP_SPLIT: return split(s, p->text, p->len, out, e);
    case STEP_PREFIX_SPACE: prefix_space(p->text, p->len, out); break;
    case STEP_METASPACE: return metaspace(s, p->text, p->len, first, out, e);
    }
    return ERR_OK;
}

static void swap_lists(struct tokenizer_pieces *p)
{
    struct tokenizer_piece *v = p->v;
    size_t n = p->n, cap = p->cap;
    p->v = p->other, p->n = p->other_n, p->cap = p->other_cap;
    p->other = v, p->other_n = n, p->other_cap = cap;
}

err_code tokenizer_pretok_run(const struct tokenizer_pretok *p, const char *text, size_t len, bool first,
                              struct tokenizer_pieces *out, err *e)
{
    free_blocks(out);
    out->n = 0;
    emit(out, text, len);
    for (int i = 0; p && i < p->n; i++) {
        swap_lists(out);
        out->n = 0;
        for (size_t k = 0; k < out->other_n; k++) {
            err_code rc = run_step(&p->steps[i], &out->other[k], first && k == 0, out, e);
            if (rc)
                return rc;
        }
    }
    return out->failed ? err_set(e, ERR_MEMORY, "no memory for the words of %zu bytes", len) : ERR_OK;
}

bool tokenizer_pretok_is_bytes(const struct tokenizer_pretok *p)
{
    return p && p->bytes;
}

// ---- opening

static err_code add_step(struct tokenizer_pretok *p, enum step_kind kind, struct step **ret_step, err *e)
{
    if (p->n == MAX_STEPS)
        return err_set(e, ERR_UNSUPPORTED, "pre_tokenizer has more than %d steps", MAX_STEPS);
    if (p->bytes)
        return err_set(e, ERR_UNSUPPORTED, "pre_tokenizer has a step after ByteLevel");
    *ret_step = &p->steps[p->n++];
    (*ret_step)->kind = kind;
    return ERR_OK;
}

static err_code add_split(struct tokenizer_pretok *p, const char *pattern, size_t len, bool literal, enum behaviour how,
                          bool invert, err *e)
{
    struct step *s;
    err_code rc = add_step(p, STEP_SPLIT, &s, e);
    if (rc)
        return rc;
    s->behaviour = how;
    s->invert = invert;
    return tokenizer_regex_open(pattern, len, literal, &s->regex, e);
}

static err_code add_regex(struct tokenizer_pretok *p, const char *pattern, enum behaviour how, bool invert, err *e)
{
    return add_split(p, pattern, strlen(pattern), false, how, invert, e);
}

static err_code parse_behaviour(const json_t *j, enum behaviour *ret_how, err *e)
{
    static const char *const names[] = {"Isolated", "Removed", "MergedWithPrevious", "MergedWithNext", "Contiguous"};
    const char *name = json_string_value(j);
    if (!j) {
        *ret_how = ISOLATED;
        return ERR_OK;
    }
    for (int i = 0; name && i < 5; i++) {
        if (strcmp(name, names[i]) == 0) {
            *ret_how = (enum behaviour)i;
            return ERR_OK;
        }
    }
    return err_set(e, ERR_UNSUPPORTED, "pre_tokenizer behavior '%.60s' is not known", name ? name : "?");
}

static err_code open_split(struct tokenizer_pretok *p, const json_t *j, err *e)
{
    const json_t *pattern = json_object_get(j, "pattern"), *text = json_object_get(pattern, "String");
    bool literal = text != NULL;
    if (!text)
        text = json_object_get(pattern, "Regex");
    if (!json_is_string(text))
        return err_set(e, ERR_CORRUPT, "pre_tokenizer Split without a String or Regex pattern");
    enum behaviour how;
    err_code rc = parse_behaviour(json_object_get(j, "behavior"), &how, e);
    return rc ? rc : add_split(p, json_string_value(text), json_string_length(text), literal, how,
                               json_is_true(json_object_get(j, "invert")), e);
}

static err_code open_byte_level(struct tokenizer_pretok *p, const json_t *j, err *e)
{
    struct step *s;
    err_code rc = ERR_OK;
    if (!json_is_false(json_object_get(j, "add_prefix_space")))
        rc = add_step(p, STEP_PREFIX_SPACE, &s, e);
    if (rc == ERR_OK && !json_is_false(json_object_get(j, "use_regex")))
        rc = add_regex(p, PATTERN_GPT2, ISOLATED, false, e);
    if (rc == ERR_OK && p->bytes)
        rc = err_set(e, ERR_UNSUPPORTED, "pre_tokenizer has two ByteLevel steps");
    p->bytes = true;
    return rc;
}

static err_code open_metaspace(struct tokenizer_pretok *p, const json_t *j, err *e)
{
    const json_t *mark = json_object_get(j, "replacement"), *scheme = json_object_get(j, "prepend_scheme");
    const char *text = mark ? json_string_value(mark) : "\xE2\x96\x81";
    const char *when = json_string_value(scheme);
    struct step *s;
    uint32_t cp;
    if (!text || strlen(text) == 0 || utf8_decode(text, strlen(text), &cp) != (int)strlen(text))
        return err_set(e, ERR_CORRUPT, "pre_tokenizer Metaspace: replacement is not one character");
    err_code rc = add_step(p, STEP_METASPACE, &s, e);
    if (rc)
        return rc;
    memcpy(s->mark, text, strlen(text));
    s->prepend = json_is_false(json_object_get(j, "add_prefix_space")) ? PREPEND_NEVER : PREPEND_ALWAYS;
    if (when && strcmp(when, "first") == 0)
        s->prepend = PREPEND_FIRST;
    else if (when && strcmp(when, "never") == 0)
        s->prepend = PREPEND_NEVER;
    else if (when && strcmp(when, "always") != 0)
        return err_set(e, ERR_UNSUPPORTED, "pre_tokenizer Metaspace: prepend_scheme '%.60s' is not known", when);
    if (json_is_false(json_object_get(j, "split")))
        return ERR_OK;
    s->behaviour = MERGED_WITH_NEXT;
    return tokenizer_regex_open(text, strlen(text), true, &s->regex, e);
}

static err_code open_steps(struct tokenizer_pretok *p, const json_t *j, int depth, err *e);

static err_code open_sequence(struct tokenizer_pretok *p, const json_t *j, int depth, err *e)
{
    size_t i;
    json_t *item;
    json_array_foreach (json_object_get(j, "pretokenizers"), i, item) {
        err_code rc = open_steps(p, item, depth + 1, e);
        if (rc)
            return rc;
    }
    return ERR_OK;
}

static err_code open_steps(struct tokenizer_pretok *p, const json_t *j, int depth, err *e)
{
    const char *type = json_string_value(json_object_get(j, "type"));
    enum behaviour how;
    if (!type || depth > MAX_DEPTH)
        return err_set(e, ERR_CORRUPT, type ? "pre_tokenizer is nested too deep" : "pre_tokenizer without a type");
    if (strcmp(type, "Sequence") == 0)
        return open_sequence(p, j, depth, e);
    if (strcmp(type, "Split") == 0)
        return open_split(p, j, e);
    if (strcmp(type, "ByteLevel") == 0)
        return open_byte_level(p, j, e);
    if (strcmp(type, "Metaspace") == 0)
        return open_metaspace(p, j, e);
    if (strcmp(type, "Digits") == 0)
        return add_regex(p, json_is_true(json_object_get(j, "individual_digits")) ? "\\p{N}" : "\\p{N}+", ISOLATED,
                         false, e);
    if (strcmp(type, "Punctuation") == 0) {
        err_code rc = parse_behaviour(json_object_get(j, "behavior"), &how, e);
        return rc ? rc : add_regex(p, "[!-/:-@\\[-`{-~\\p{P}]", how, false, e);
    }
    if (strcmp(type, "BertPreTokenizer") == 0) {  // its table of punctuation is older than Unicode 12
        err_code rc = add_regex(p, "\\s", REMOVED, false, e);
        return rc ? rc : add_regex(p, "[!-/:-@\\[-`{-~\\p{P}\\x{166D}]", ISOLATED, false, e);
    }
    if (strcmp(type, "Whitespace") == 0)
        return add_regex(p, "[" RUST_WORD "]+|[^" RUST_WORD "\\s]+", REMOVED, true, e);
    if (strcmp(type, "WhitespaceSplit") == 0)
        return add_regex(p, "\\s", REMOVED, false, e);
    return err_set_param(e, ERR_UNSUPPORTED, "pre_tokenizer", "pre_tokenizer '%.60s' is not supported", type);
}

static err_code finish(struct tokenizer_pretok *p, err_code rc, struct tokenizer_pretok **ret_pretok)
{
    if (rc)
        tokenizer_pretok_close(p);
    else
        *ret_pretok = p;
    return rc;
}

err_code tokenizer_pretok_open(const struct json_t *json, struct tokenizer_pretok **ret_pretok, err *e)
{
    if (!json || json_is_null(json)) {
        *ret_pretok = NULL;
        return ERR_OK;
    }
    struct tokenizer_pretok *p = mem_new(sizeof *p);
    return finish(p, open_steps(p, json, 0, e), ret_pretok);
}

err_code tokenizer_pretok_named(const char *name, size_t len, struct tokenizer_pretok **ret_pretok,
                                struct tokenizer_pretok_traits *ret_traits, err *e)
{
    const struct tokenizer_pattern *t = tokenizer_patterns_find(name, len);
    if (!t)
        return err_set_param(e, ERR_UNSUPPORTED, "tokenizer.ggml.pre", "pre-tokenizer '%.*s' is not known",
                             (int)(len < 80 ? len : 80), name);
    struct tokenizer_pretok *p = mem_new(sizeof *p);
    err_code rc = ERR_OK;
    for (int i = 0; rc == ERR_OK && i < PATTERN_PASSES && t->passes[i]; i++)
        rc = add_regex(p, t->passes[i], ISOLATED, false, e);
    *ret_traits = t->traits;
    p->bytes = !t->traits.raw;
    return finish(p, rc, ret_pretok);
}

void tokenizer_pretok_close(struct tokenizer_pretok *p)
{
    if (!p)
        return;
    for (int i = 0; i < p->n; i++)
        tokenizer_regex_close(p->steps[i].regex);
    free(p);
}
