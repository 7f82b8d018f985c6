// structure.c - structural tags to nodes. Prep threads; one compilation owns everything.
//
// From the end to the beginning: each FORMAT is compiled with what comes behind it, so that a free text knows the texts
// that end it and goes on behind them without a choice.
#include "engine/grammar/structure.h"

#include <jansson.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cancel.h"
#include "base/mem.h"
#include "engine/grammar/freetext.h"
#include "engine/grammar/gbnf.h"
#include "engine/grammar/regex.h"
#include "engine/grammar/schema.h"

enum { MAX_DEPTH = 64, MAX_FORMATS = 5000, MAX_TEXTS = 1000, MAX_CHOICES = 10000, GIVEN_BYTES = 2048, FORMAT_COST = 512 };

struct start {
    const char *text;
    size_t len;
    uint32_t node;  // what comes behind it
};

// A rest of the answer.
struct rest {
    uint32_t node;
    bool end;    // the answer may end before it
    bool known;  // it begins with one of starts, or ends
    bool empty;  // its first FORMAT may write nothing
    const struct start *starts;
    size_t nstarts;
};

struct compiler {
    struct nodes *g;
    struct arena arena;
    err *e;
    const char *field, *name;  // of the FORMAT at hand, for errors
    uint32_t nothing;          // a node that writes nothing
    int depth, count;
    bool failed;
};

static struct rest compile_format(struct compiler *c, const json_t *f, const struct rest *k);

// ---- failures

static void tell(struct compiler *c, err_code code, const char *prefix, const char *why)
{
    bool tool = c->field && !strncmp(c->field, "tools", 5);
    const char *field = c->field ? c->field : "";
    if (!c->failed && c->name)
        err_fill(c->e, code, field, "Invalid %s %s '%s': %s", prefix, tool ? "function" : field, c->name, why);
    else if (!c->failed && c->field)
        err_fill(c->e, code, field, "Invalid %s '%s': %s", prefix, field, why);
    else if (!c->failed)
        err_fill(c->e, code, "", "%s", why);
    c->failed = true;
}

static struct rest fail(struct compiler *c, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static struct rest fail(struct compiler *c, const char *fmt, ...)
{
    char text[256];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    tell(c, ERR_INVALID, "structural tag in", text);
    return (struct rest){0};
}

// ---- texts and lists of a FORMAT

static bool get_text(struct compiler *c, const json_t *f, const char *key, struct freetext_text *ret)
{
    const json_t *v = json_object_get(f, key);
    if (!json_is_string(v)) {
        fail(c, "'%s' of a %s must be a string", key, json_string_value(json_object_get(f, "type")));
        return false;
    }
    ret->len = json_string_length(v);
    ret->text = arena_strndup(&c->arena, json_string_value(v), ret->len);
    return true;
}

static bool get_flag(struct compiler *c, const json_t *f, const char *key)
{
    const json_t *v = json_object_get(f, key);
    if (v && !json_is_boolean(v) && !json_is_null(v))
        fail(c, "'%s' must be a boolean", key);
    return json_is_true(v);
}

static const json_t *get_list(struct compiler *c, const json_t *f, const char *key)
{
    const json_t *v = json_object_get(f, key);
    if (!json_array_size(v))
        fail(c, "'%s' of a %s must be a non-empty array", key, json_string_value(json_object_get(f, "type")));
    return c->failed ? NULL : v;
}

// Texts of an array that may be missing; none is empty.
static struct freetext_text *get_texts(struct compiler *c, const json_t *f, const char *key, size_t *ret_n)
{
    const json_t *v = json_object_get(f, key);
    size_t n = json_array_size(v);
    struct freetext_text *list = arena_alloc(&c->arena, (n + 1) * sizeof *list);
    *ret_n = n;
    if ((v && !json_is_array(v) && !json_is_null(v)) || n > MAX_TEXTS)
        fail(c, "'%s' must be an array of at most %d strings", key, MAX_TEXTS);
    for (size_t i = 0; i < n && !c->failed; i++) {
        const json_t *one = json_array_get(v, i);
        if (json_string_length(one) == 0)
            fail(c, "'%s' must hold strings that are not empty", key);
        else
            list[i] = (struct freetext_text){arena_strndup(&c->arena, json_string_value(one), json_string_length(one)),
                                             json_string_length(one)};
    }
    return list;
}

// ---- putting rests together

static uint32_t sequence(struct compiler *c, uint32_t first, uint32_t second)
{
    return second == c->nothing ? first : nodes_list(c->g, NODE_SEQ, (uint32_t[]){first, second}, 2);
}

static uint32_t either(struct compiler *c, uint32_t first, uint32_t second)
{
    return first == second ? first : nodes_list(c->g, NODE_ALT, (uint32_t[]){first, second}, 2);
}

// A given text, then a node.
static uint32_t given(struct compiler *c, const char *text, size_t len, uint32_t then)
{
    while (len > 0) {  // in pieces, from behind
        size_t n = (len - 1) % GIVEN_BYTES + 1;
        then = sequence(c, nodes_bytes(c->g, freetext_given(text + len - n, n), false), then);
        len -= n;
    }
    return then;
}

static struct rest with_text(struct compiler *c, const struct freetext_text *t, const struct rest *k)
{
    if (t->len == 0)
        return *k;
    struct start *s = arena_alloc(&c->arena, sizeof *s);
    *s = (struct start){t->text, t->len, k->node};
    return (struct rest){.node = given(c, t->text, t->len, k->node), .known = true, .starts = s, .nstarts = 1};
}

static struct rest join(struct compiler *c, const struct rest *a, const struct rest *b)
{
    struct start *s = arena_alloc(&c->arena, (a->nstarts + b->nstarts + 1) * sizeof *s);
    if (a->nstarts)
        memcpy(s, a->starts, a->nstarts * sizeof *s);
    if (b->nstarts)
        memcpy(s + a->nstarts, b->starts, b->nstarts * sizeof *s);
    return (struct rest){either(c, a->node, b->node), a->end || b->end, a->known && b->known, a->empty || b->empty, s,
                         a->nstarts + b->nstarts};
}

// A node of unknown beginnings, then the rest.
static struct rest with_node(struct compiler *c, uint32_t node, bool empty, const struct rest *k)
{
    return (struct rest){.node = sequence(c, node, k->node), .end = empty && k->end, .empty = empty};
}

// ---- free text

static bool begins_with(const struct start *s, const struct start *with)
{
    return s->len >= with->len && !memcmp(s->text, with->text, with->len);
}

// Whether an earlier one, or a shorter one anywhere, is the beginning of s[i]: then that is what ends the text.
static bool is_covered(const struct start *s, size_t n, size_t i)
{
    for (size_t k = 0; k < n; k++)
        if (k != i && begins_with(&s[i], &s[k]) && (s[k].len < s[i].len || k < i))
            return true;
    return false;
}

// What comes behind the end s[i]: its own node and those of texts that begin with it.
static uint32_t target(struct compiler *c, const struct start *s, size_t n, size_t i)
{
    uint32_t *nodes = mem_new(n * sizeof *nodes), count = 0;
    for (size_t k = 0; k < n; k++)
        if (begins_with(&s[k], &s[i]))
            nodes[count++] = given(c, s[k].text + s[i].len, s[k].len - s[i].len, s[k].node);
    uint32_t node = nodes_list(c->g, NODE_ALT, nodes, count);
    free(nodes);
    return node;
}

static uint32_t free_text(struct compiler *c, const struct start *s, size_t n, const struct freetext_text *excludes,
                          size_t nexcludes, bool may_end)
{
    struct freetext_text *ends = mem_new((n + 1) * sizeof *ends);
    uint32_t *targets = mem_new((n + 1) * sizeof *targets), count = 0, node = 0;
    for (size_t i = 0; i < n; i++) {
        if (is_covered(s, n, i))
            continue;
        ends[count] = (struct freetext_text){s[i].text, s[i].len};
        targets[count++] = target(c, s, n, i);
    }
    struct freetext_spec spec = {.ends = ends, .nends = count, .excludes = excludes, .nexcludes = nexcludes};
    struct free_def d = {.ntargets = count, .targets = targets, .outer = true, .may_end = may_end};
    err why = {0};
    if (count == 0 && !may_end)
        fail(c, "a free text has no end: a text must follow it");
    else if (freetext_make(&spec, &d.dfa, &d.ends, NULL, &why))
        fail(c, "%s", why.text);
    else
        node = nodes_free(c->g, &d);
    free(ends);
    free(targets);
    return node;
}

static struct rest compile_any_text(struct compiler *c, const json_t *f, const struct rest *k)
{
    size_t n;
    const struct freetext_text *excludes = get_texts(c, f, "excludes", &n);
    if (!c->failed && !k->known)
        fail(c, "a free text must be followed by a text, or by nothing");
    if (c->failed)
        return *k;
    return (struct rest){.node = free_text(c, k->starts, k->nstarts, excludes, n, k->end), .end = k->end, .empty = true};
}

// ---- values

static struct rest compile_schema(struct compiler *c, const json_t *f, const struct rest *k, const char *style)
{
    const json_t *schema = json_object_get(f, "json_schema");
    enum schema_style how = SCHEMA_JSON;
    uint32_t node = 0;
    err why = {0};
    if (!schema)
        return fail(c, "a json_schema has no 'json_schema'");
    if (style && !schema_style_find(style, &how))
        return fail(c, "'%.40s' is no style of a json_schema that is supported", style);
    if (schema_compile_styled(schema, how, json_string_value(json_object_get(f, "quote")), c->g, &node, &why)) {
        tell(c, why.code, "schema for", why.text);
        return *k;
    }
    return with_node(c, node, how != SCHEMA_JSON, k);
}

static struct rest compile_regex(struct compiler *c, const json_t *f, const struct rest *k)
{
    struct chardfa_budget b = {CHARDFA_STATES, c->g->work < CHARDFA_WORK ? c->g->work : CHARDFA_WORK};
    size_t given = b.work;
    struct chardfa *d = NULL;
    struct bytedfa *bytes = NULL;
    struct freetext_text t;
    err why = {0};
    if (!get_text(c, f, "pattern", &t))
        return *k;
    err_code code = regex_compile(t.text, t.len, false, &b, &d, &why);
    c->g->work -= given - b.work;
    if (!code)
        code = bytedfa_make(d, false, false, &bytes, &why);
    chardfa_free(d);
    if (code) {
        tell(c, code, "regular expression in", why.text);
        return *k;
    }
    bool empty = bytes->flags[BYTEDFA_START] & BYTEDFA_ACCEPT;
    return with_node(c, nodes_bytes(c->g, bytes, false), empty, k);
}

static struct rest compile_grammar(struct compiler *c, const json_t *f, const struct rest *k)
{
    struct freetext_text t;
    uint32_t node = 0;
    err why = {0};
    if (!get_text(c, f, "grammar", &t))
        return *k;
    if (gbnf_compile(t.text, t.len, c->g, &node, &why)) {
        tell(c, why.code, "grammar in", why.text);
        return *k;
    }
    return with_node(c, node, true, k);  // for all that is known here
}

static struct rest compile_choice(struct compiler *c, const json_t *f, const struct rest *k)
{
    const json_t *list = get_list(c, f, "values");
    size_t n = json_array_size(list);
    bool empty = false;
    if (n > MAX_CHOICES)
        fail(c, "%zu choices, at most %d", n, MAX_CHOICES);
    const char **texts = mem_new((n + 1) * sizeof *texts);
    size_t *lens = mem_new((n + 1) * sizeof *lens);
    for (size_t i = 0; i < n && !c->failed; i++) {
        const json_t *v = json_array_get(list, i);
        if (!json_is_string(v))
            fail(c, "choice %zu is not a string", i);
        texts[i] = json_string_value(v);
        lens[i] = json_string_length(v);
        empty |= lens[i] == 0;
    }
    struct rest r = c->failed ? *k : with_node(c, nodes_literals(c->g, texts, lens, n), empty, k);
    free(texts);
    free(lens);
    return r;
}

// ---- several

static struct rest compile_sequence(struct compiler *c, const json_t *f, const struct rest *k)
{
    const json_t *list = get_list(c, f, "elements");
    struct rest r = *k;
    bool empty = true;
    for (size_t i = json_array_size(list); i-- > 0 && !c->failed;) {
        r = compile_format(c, json_array_get(list, i), &r);
        empty &= r.empty;
    }
    r.empty = empty;
    return r;
}

static struct rest compile_or(struct compiler *c, const json_t *f, const struct rest *k)
{
    const json_t *list = get_list(c, f, "elements");
    struct rest all = {0};
    for (size_t i = 0; i < json_array_size(list) && !c->failed; i++) {
        struct rest one = compile_format(c, json_array_get(list, i), k);
        all = i ? join(c, &all, &one) : one;
    }
    return all;
}

static struct rest compile_optional(struct compiler *c, const json_t *f, const struct rest *k)
{
    struct rest one = compile_format(c, json_object_get(f, "content"), k), without = *k;
    without.empty = true;
    return join(c, &one, &without);
}

static struct rest compile_loop(struct compiler *c, const json_t *f, const struct rest *k, bool once)
{
    uint32_t again = nodes_open(c->g);
    struct rest next = {.node = again, .end = k->end}, without = *k;
    struct rest one = compile_format(c, json_object_get(f, "content"), &next);
    if (one.empty && !c->failed)
        fail(c, "what is repeated must not be empty");
    if (c->failed)
        return *k;
    nodes_fill(c->g, again, (uint32_t[]){one.node, k->node}, 2);
    without.empty = true;
    return once ? one : join(c, &one, &without);
}

// ---- tags

// What may end a tag, then the rest.
static struct rest tag_ends(struct compiler *c, const json_t *f, const struct rest *k)
{
    const json_t *v = json_object_get(f, "end");
    struct rest all = {0};
    size_t n = json_is_array(v) ? json_array_size(v) : 1;
    for (size_t i = 0; i < n && !c->failed; i++) {
        const json_t *one = json_is_array(v) ? json_array_get(v, i) : v;
        if (!json_is_string(one))
            return fail(c, "'end' of a tag must be a string or an array of strings");
        size_t len = json_string_length(one);
        struct rest r = with_text(c, &(struct freetext_text){arena_strndup(&c->arena, json_string_value(one), len), len}, k);
        all = i ? join(c, &all, &r) : r;
    }
    if (n == 0)
        return fail(c, "'end' of a tag must not be an empty array");
    return all;
}

// All of a tag but its beginning.
static struct rest tag_inside(struct compiler *c, const json_t *f, const struct rest *k)
{
    struct rest end = tag_ends(c, f, k);
    return c->failed ? *k : compile_format(c, json_object_get(f, "content"), &end);
}

static struct rest compile_tag(struct compiler *c, const json_t *f, const struct rest *k)
{
    struct freetext_text begin;
    if (!get_text(c, f, "begin", &begin))
        return *k;
    struct rest inside = tag_inside(c, f, k);
    if (c->failed || begin.len == 0)
        return inside;
    inside.empty = false;
    return with_text(c, &begin, &inside);
}

static bool is_tag(struct compiler *c, const json_t *f)
{
    const char *type = json_string_value(json_object_get(f, "type"));
    if (!json_is_object(f) || (type && strcmp(type, "tag") != 0))
        fail(c, "'tags' must be an array of tags");
    return !c->failed;
}

// The shortest trigger that a tag begins with: the one that is read first.
static const struct freetext_text *trigger_of(const struct freetext_text *triggers, size_t n, const struct freetext_text *begin)
{
    const struct freetext_text *found = NULL;
    for (size_t i = 0; i < n; i++)
        if (triggers[i].len <= begin->len && !memcmp(triggers[i].text, begin->text, triggers[i].len) &&
            (!found || triggers[i].len < found->len))
            found = &triggers[i];
    return found;
}

// Triggers of a FORMAT with what comes behind each; then those of k.
static struct start *triggered(struct compiler *c, const json_t *f, const struct rest *next, const struct rest *k,
                               size_t *ret_n)
{
    const json_t *tags = get_list(c, f, "tags");
    size_t ntriggers, n = json_array_size(tags);
    const struct freetext_text *triggers = get_texts(c, f, "triggers", &ntriggers);
    struct start *s = arena_alloc(&c->arena, (n + k->nstarts + 1) * sizeof *s);
    for (size_t i = 0; i < n && !c->failed; i++) {
        const json_t *tag = json_array_get(tags, i);
        struct freetext_text begin;
        if (!is_tag(c, tag) || !get_text(c, tag, "begin", &begin))
            break;
        const struct freetext_text *t = trigger_of(triggers, ntriggers, &begin);
        struct rest inside = {0};
        if (t)
            inside = tag_inside(c, tag, next);
        else
            fail(c, "the tag '%.80s' begins with no trigger", begin.text);
        if (!c->failed)
            s[i] = (struct start){t->text, t->len, given(c, begin.text + t->len, begin.len - t->len, inside.node)};
    }
    if (k->nstarts)
        memcpy(s + n, k->starts, k->nstarts * sizeof *s);
    *ret_n = n;
    return s;
}

static struct rest compile_triggered(struct compiler *c, const json_t *f, const struct rest *k)
{
    bool once = get_flag(c, f, "at_least_one"), stop = get_flag(c, f, "stop_after_first");
    size_t ntags = 0, nexcludes;
    const struct freetext_text *excludes = get_texts(c, f, "excludes", &nexcludes);
    if (!c->failed && !k->known)
        fail(c, "triggered_tags must be followed by a text, or by nothing");
    if (c->failed)
        return *k;
    uint32_t text = nodes_open(c->g), first;
    struct rest next = stop ? *k : (struct rest){.node = text, .end = k->end};
    struct start *s = triggered(c, f, &next, k, &ntags);
    if (c->failed)
        return *k;
    first = free_text(c, s, ntags + k->nstarts, excludes, nexcludes, k->end);
    nodes_fill(c->g, text, &first, 1);
    if (once) {
        // The texts that end the whole cannot come before the first tag.
        struct freetext_text *more = arena_alloc(&c->arena, (nexcludes + k->nstarts + 1) * sizeof *more);
        for (size_t i = 0; i < nexcludes; i++)
            more[i] = excludes[i];
        for (size_t i = 0; i < k->nstarts; i++)
            more[nexcludes + i] = (struct freetext_text){k->starts[i].text, k->starts[i].len};
        first = free_text(c, s, ntags, more, nexcludes + k->nstarts, false);
    }
    return (struct rest){.node = first, .end = k->end && !once, .empty = true};
}

static struct rest compile_separated(struct compiler *c, const json_t *f, const struct rest *k)
{
    bool once = get_flag(c, f, "at_least_one"), stop = get_flag(c, f, "stop_after_first");
    const json_t *tags = get_list(c, f, "tags");
    struct freetext_text separator;
    if (c->failed || !get_text(c, f, "separator", &separator))
        return *k;
    uint32_t all = nodes_open(c->g), again = nodes_open(c->g);
    struct rest tag = {.node = all}, more = with_text(c, &separator, &tag), after = join(c, &more, k), any = {0};
    uint32_t both[] = {more.node, k->node};
    nodes_fill(c->g, again, both, 2);
    after.node = again;
    for (size_t i = 0; i < json_array_size(tags) && !c->failed; i++) {
        const json_t *t = json_array_get(tags, i);
        struct rest one = is_tag(c, t) ? compile_tag(c, t, stop ? k : &after) : any;
        if (one.empty && !c->failed)
            fail(c, "a tag must not be empty");
        any = i ? join(c, &any, &one) : one;
    }
    nodes_fill(c->g, all, &any.node, 1);
    struct rest without = *k;
    without.empty = true;
    return once ? any : join(c, &any, &without);
}

// ---- the whole

// The form before `format` was there: {"structures": [{"begin", "schema", "end"}], "triggers": [TEXT]}.
static json_t *of_structures(struct compiler *c, const json_t *tag)
{
    json_t *tags = json_array(), *one;
    size_t i;
    json_array_foreach(json_object_get(tag, "structures"), i, one) {
        json_t *schema = json_object_get(one, "schema");
        json_t *t = json_pack("{s:s, s:O*, s:O*, s:{s:s, s:O*}}", "type", "tag", "begin", json_object_get(one, "begin"), "end",
                              json_object_get(one, "end"), "content", "type", "json_schema", "json_schema", schema);
        json_array_append_new(tags, t);
    }
    if (!json_array_size(tags))
        fail(c, "it has no 'format', and no 'structures'");
    return json_pack("{s:s, s:o, s:O*}", "type", "triggered_tags", "tags", tags, "triggers", json_object_get(tag, "triggers"));
}

// One in a format: what it becomes lives as long as it does.
static struct rest compile_structures(struct compiler *c, const json_t *f, const struct rest *k)
{
    json_t *format = of_structures(c, f);
    json_object_set_new((json_t *)f, "format", format);
    return c->failed ? *k : compile_format(c, format, k);
}

static struct rest compile_type(struct compiler *c, const char *type, const json_t *f, const struct rest *k)
{
    struct freetext_text t;
    if (!strcmp(type, "const_string"))
        return get_text(c, f, "value", &t) ? with_text(c, &t, k) : *k;
    if (!strcmp(type, "json_schema"))
        return compile_schema(c, f, k, json_string_value(json_object_get(f, "style")));
    if (!strcmp(type, "qwen_xml_parameter"))
        return compile_schema(c, f, k, "xml_parameter");
    if (!strcmp(type, "regex"))
        return compile_regex(c, f, k);
    if (!strcmp(type, "grammar"))
        return compile_grammar(c, f, k);
    if (!strcmp(type, "choice"))
        return compile_choice(c, f, k);
    if (!strcmp(type, "any_text"))
        return compile_any_text(c, f, k);
    if (!strcmp(type, "sequence"))
        return compile_sequence(c, f, k);
    if (!strcmp(type, "or"))
        return compile_or(c, f, k);
    if (!strcmp(type, "optional"))
        return compile_optional(c, f, k);
    if (!strcmp(type, "plus") || !strcmp(type, "star"))
        return compile_loop(c, f, k, *type == 'p');
    if (!strcmp(type, "tag"))
        return compile_tag(c, f, k);
    if (!strcmp(type, "triggered_tags"))
        return compile_triggered(c, f, k);
    if (!strcmp(type, "tags_with_separator"))
        return compile_separated(c, f, k);
    if (!strcmp(type, "structural_tag"))
        return compile_structures(c, f, k);
    return fail(c, "'%.40s' is no type of a format that is supported", type);
}

static struct rest compile_format(struct compiler *c, const json_t *f, const struct rest *k)
{
    const char *type = json_string_value(json_object_get(f, "type"));
    const char *field = json_string_value(json_object_get(f, "field")), *name = json_string_value(json_object_get(f, "name"));
    const char *outer[] = {c->field, c->name};
    if (c->failed)
        return *k;
    c->depth++;
    if (field) {
        c->field = field;
        c->name = name;
    }
    struct rest r = *k;
    if (!type)
        fail(c, "a format must be an object with a 'type'");
    else if (cancel_due(FORMAT_COST))
        tell(c, ERR_CANCELLED, "structural tag in", "nobody waits for it any more");
    else if (c->depth > MAX_DEPTH || ++c->count > MAX_FORMATS)
        tell(c, ERR_TOO_LARGE, "structural tag in", "its formats are too many, or nested too deep");
    else
        r = compile_type(c, type, f, k);
    c->depth--;
    c->field = outer[0];
    c->name = outer[1];
    return r;
}

err_code structure_compile(const char *text, size_t len, struct nodes *g, uint32_t *ret_root, err *e)
{
    err local = {0};
    json_error_t je;
    json_t *tag = json_loadb(text, len, 0, &je);
    struct compiler c = {.g = g, .e = e ? e : &local};
    if (!tag)
        return err_set(e, ERR_INVALID, "the structural tag is not a JSON object: %s", je.text);
    c.nothing = nodes_list(g, NODE_SEQ, NULL, 0);
    const json_t *format = json_object_get(tag, "format");
    if (!format)
        fail(&c, "it has no 'format'");
    struct rest k = {.node = c.nothing, .end = true, .known = true};
    struct rest all = compile_format(&c, format, &k);
    if (!c.failed && nodes_check(g, c.e))
        c.failed = true;
    if (!c.failed)
        *ret_root = all.node;
    json_decref(tag);
    arena_done(&c.arena);
    return c.failed ? c.e->code : ERR_OK;
}
