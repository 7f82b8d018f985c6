// schema_style.c - values and members as models write them in their calls (schema.h has the styles). Prep threads.
//
// Members are a chain from the last to the first, twice: with something written before and with nothing, for what stands
// between them. Texts that are written as they are must not hold what closes them.
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/mem.h"
#include "engine/grammar/freetext.h"
#include "engine/grammar/jsontext.h"
#include "engine/grammar/regex.h"
#include "engine/grammar/schema_int.h"

static const struct spelling {
    const char *name;
    const char *before, *behind;  // a member's name
    const char *close, *rest;     // a text that stands for itself ends at close; behind any value come both
    const char *between;          // members and items
    const char *words[3];
    bool deep;                    // values too are written in the style
} spellings[] = {
    [SCHEMA_JSON] = {.name = "json"},
    [SCHEMA_XML_PARAMETER] = {"xml_parameter", "<parameter=", ">\n", "\n</parameter>", "\n", "", {0}, false},
    [SCHEMA_ARG_KEY] = {"arg_key", "<arg_key>", "</arg_key>\n<arg_value>", "</arg_value>", "\n", "", {0}, false},
    [SCHEMA_GEMMA] = {"gemma", "", ":", "", "", ",", {"null", "false", "true"}, true},
    [SCHEMA_PYTHON] = {"python", "", "=", "", "", ", ", {"None", "False", "True"}, true},
};
static const struct spelling dictionary = {"python", "\"", "\": ", "", "", ", ", {0}, true};

bool schema_style_find(const char *name, enum schema_style *ret_style)
{
    for (size_t i = 0; i < sizeof spellings / sizeof *spellings; i++)
        if (!strcmp(spellings[i].name, name)) {
            *ret_style = (enum schema_style)i;
            return true;
        }
    return false;
}

// ---- nodes

static uint32_t given(struct schema *s, const char *text, size_t len)
{
    return len ? nodes_bytes(s->g, freetext_given(text, len), false) : s->nothing;
}

static uint32_t word(struct schema *s, const char *text)
{
    return given(s, text, strlen(text));
}

static uint32_t sequence(struct schema *s, uint32_t first, uint32_t second)
{
    if (!first || !second)
        return 0;
    return first == s->nothing ? second : second == s->nothing ? first
         : nodes_list(s->g, NODE_SEQ, (uint32_t[]){first, second}, 2);
}

static uint32_t either(struct schema *s, uint32_t first, uint32_t second)
{
    return !first ? second : !second ? first : nodes_list(s->g, NODE_ALT, (uint32_t[]){first, second}, 2);
}

// ---- texts that stand for themselves

// Any text that holds `close`, as an automaton.
static struct chardfa *with_text(struct schema *s, uint32_t item, const char *close)
{
    struct chardfa_budget b = {CHARDFA_STATES, s->work};
    struct chardfa *d = NULL;
    struct buf p;
    err e = {0};
    buf_init(&p, 4096);
    for (const char *c = close; *c; c++)
        if (*c == '\n')
            buf_add_str(&p, "\\n");
        else
            buf_printf(&p, "%s%c", strchr("\\^$.*+?()[]{}|/", *c) ? "\\" : "", *c);
    if (p.over || regex_compile(p.data, p.len, true, &b, &d, &e))
        schema_fail(s, ERR_UNSUPPORTED, item, NULL, "strings cannot be written in this style.");
    s->work = b.work;
    buf_done(&p);
    return d;
}

static bool has_bounds(const struct schema_merged *m)
{
    return m->min_length > 0 || m->max_length != NODES_NO_LIMIT;
}

static bool is_bounded(const struct schema_merged *m)
{
    return m->automaton || m->values != UINT32_MAX || has_bounds(m);
}

// Any text of so many characters, with `close` behind it.
static uint32_t any_text(struct schema *s, const struct schema_list *flat, const struct schema_merged *m, const char *close)
{
    struct freetext_text end = {close, strlen(close)};
    struct freetext_spec spec = {.ends = &end, .nends = 1, .strict = true};
    struct free_def f = {.ntargets = 1, .targets = &s->nothing, .min = m->min_length, .max = m->max_length, .longest = (uint32_t)end.len};
    err e = {0};
    if (m->min_length > m->max_length)
        return 0;
    if (!freetext_make(&spec, &f.dfa, &f.ends, has_bounds(m) ? &f.begun : NULL, &e))
        return nodes_free(s->g, &f);
    schema_fail(s, ERR_UNSUPPORTED, flat->v[0], NULL, "%s", e.text);
    return 0;
}

// Whether characters in front of a text can be counted (nodes.h).
static bool is_countable(const char *close)
{
    size_t n = strlen(close);
    for (size_t i = 0; i < n; i++)
        if ((unsigned char)close[i] >= 0x80 || (i && !strncmp(close + i, close, n - i)))
            return false;
    return n <= NODES_MAX_END;
}

// A string of an alternative as itself, with `close` behind it. not_null: "null" means something else.
static uint32_t plain_text(struct schema *s, const struct schema_list *flat, const struct schema_merged *m, const char *close,
                           bool not_null)
{
    bool free_text = !m->automaton && m->values == UINT32_MAX && !not_null;
    if (free_text && (!has_bounds(m) || is_countable(close)))
        return any_text(s, flat, m, close);
    uint32_t item = flat->v[0], node = 0;
    struct chardfa *d = schema_string(s, flat, m), *closed = with_text(s, item, close), *null = NULL;
    const char *text = "null";
    size_t len = 4;
    struct chardfa_budget b = {CHARDFA_STATES, s->work};
    const char *keyword = m->max_length != NODES_NO_LIMIT ? "maxLength" : "pattern";
    if (d && closed && schema_narrow(s, item, keyword, &d, closed, true) &&
        (!not_null || (!chardfa_texts(&text, &len, 1, &b, &null, NULL) && schema_narrow(s, item, keyword, &d, null, true))))
        node = sequence(s, schema_dfa_node(s, item, d, false, false), word(s, close));
    chardfa_free(d);
    chardfa_free(closed);
    chardfa_free(null);
    return node;
}

// ---- given values

static void value_text(struct schema *s, uint32_t item, const json_t *v, struct buf *out);

static void string_text(struct schema *s, uint32_t item, const json_t *v, struct buf *out)
{
    if (s->style == SCHEMA_PYTHON) {
        jsontext_string(json_string_value(v), json_string_length(v), out);
        return;
    }
    if (strstr(json_string_value(v), s->quote))
        schema_fail(s, ERR_UNSUPPORTED, item, "enum", "has a string that cannot be written in this style.");
    buf_printf(out, "%s%s%s", s->quote, json_string_value(v), s->quote);
}

static void object_text(struct schema *s, uint32_t item, const json_t *v, struct buf *out)
{
    const char *key, *between = "";
    json_t *one;
    buf_add_char(out, '{');
    json_object_foreach((json_t *)v, key, one) {
        buf_add_str(out, between);
        if (s->style == SCHEMA_PYTHON)
            jsontext_string(key, strlen(key), out);
        else
            buf_add_str(out, key);
        buf_add_str(out, s->style == SCHEMA_PYTHON ? ": " : ":");
        value_text(s, item, one, out);
        between = spellings[s->style].between;
    }
    buf_add_char(out, '}');
}

static void value_text(struct schema *s, uint32_t item, const json_t *v, struct buf *out)
{
    const struct spelling *p = &spellings[s->style];
    switch (json_typeof(v)) {
    case JSON_NULL: buf_add_str(out, p->words[0]); return;
    case JSON_FALSE: buf_add_str(out, p->words[1]); return;
    case JSON_TRUE: buf_add_str(out, p->words[2]); return;
    case JSON_STRING: string_text(s, item, v, out); return;
    case JSON_OBJECT: object_text(s, item, v, out); return;
    case JSON_ARRAY:
        buf_add_char(out, '[');
        for (size_t i = 0; i < json_array_size(v); i++) {
            buf_add_str(out, i ? p->between : "");
            value_text(s, item, json_array_get(v, i), out);
        }
        buf_add_char(out, ']');
        return;
    default: jsontext_value(v, out); return;
    }
}

static void add_values(struct schema *s, const struct schema_list *flat, const struct schema_merged *m,
                       struct schema_list *out)
{
    json_t *list = schema_values(s, m->values);
    struct buf text;
    buf_init(&text, 64 << 10);
    for (size_t i = 0; i < json_array_size(list) && !s->failed; i++) {
        const json_t *v = json_array_get(list, i);
        if (!schema_check_all(s, flat, v))
            continue;
        buf_clear(&text);
        value_text(s, m->values, v, &text);
        if (text.over)
            schema_fail(s, ERR_TOO_LARGE, m->values, "enum", "has a value of more than 64 KB.");
        else
            schema_push(out, given(s, text.data, text.len));
    }
    json_decref(list);
    buf_done(&text);
}

// ---- objects

static enum schema_form form_of(struct schema *s, const struct schema_list *set);

// What a member is, from its value on.
static uint32_t member_value(struct schema *s, const struct schema_list *set, const struct spelling *p)
{
    if (p->deep)
        return schema_styled_node(s, set);
    enum schema_form form = form_of(s, set);
    if (s->failed)
        return 0;
    if (form == SCHEMA_FORM_JSON)
        return sequence(s, schema_node(s, set), sequence(s, word(s, p->close), word(s, p->rest)));
    struct schema_flats *f = mem_new(sizeof *f);
    struct schema_merged m;
    uint32_t node = 0;
    schema_expand(s, NULL, set, f);
    for (uint32_t i = 0; i < f->n && !s->failed; i++) {
        schema_merge(s, &f->v[i], &m);
        // Strings and null, and no more: form_of has looked.
        if (m.types & TYPE_NULL && m.values == UINT32_MAX)
            node = either(s, node, sequence(s, word(s, "null"), word(s, p->close)));
        if (m.types & TYPE_STRING)
            node = either(s, node, plain_text(s, &f->v[i], &m, p->close, form == SCHEMA_FORM_TEXT_OR_NULL));
    }
    schema_expand_done(f);
    free(f);
    return sequence(s, node, word(s, p->rest));
}

// Names are written as they are: no marks of the styles, no blanks; in Python an identifier, but in a dictionary.
static bool is_name(const struct spelling *p, const char *name, size_t len)
{
    bool word = p == &spellings[SCHEMA_PYTHON];
    for (size_t i = 0; i < len; i++) {
        unsigned char c = (unsigned char)name[i];
        bool letter = ((c | 32) >= 'a' && (c | 32) <= 'z') || c == '_' || c >= 0x80 || (i && c >= '0' && c <= '9');
        if (word ? !letter : c <= ' ' || strchr("<>=:,{}[]()\"'|\\", c))
            return false;
    }
    return len > 0;
}

static uint32_t member(struct schema *s, const struct schema_list *set, const struct spelling *p, uint32_t name)
{
    uint32_t value = member_value(s, set, p);
    return sequence(s, word(s, p->before), sequence(s, name, sequence(s, word(s, p->behind), value)));
}

// Members of names that are not declared, any number of them: then `end`. 0: there are none.
static uint32_t others(struct schema *s, const struct schema_list *flat, const struct schema_names *l,
                       const struct spelling *p, bool first, uint32_t end)
{
    const char *pattern = p == &spellings[SCHEMA_PYTHON] ? "^[A-Za-z_][A-Za-z0-9_]*$" : "^[A-Za-z_][A-Za-z0-9_-]*$";
    struct chardfa_budget b = {CHARDFA_STATES, s->work};
    struct chardfa *names = NULL, *declared = NULL;
    struct schema_list set = {0};
    struct schema_patterns none = {.n = 0};
    uint32_t node = 0;
    schema_extra_set(s, flat, &none, 0, &set);
    err e = {0};
    if (schema_has_false(s, &set) || s->failed) {
    } else if (regex_compile(pattern, strlen(pattern), true, &b, &names, &e) ||
               chardfa_texts(l->name, l->len, l->n, &b, &declared, &e)) {
        schema_fail_automaton(s, flat->v[0], "additionalProperties", &e);
    } else if (schema_narrow(s, flat->v[0], "additionalProperties", &names, declared, true)) {
        uint32_t again = nodes_open(s->g), one = member(s, &set, p, schema_dfa_node(s, flat->v[0], names, false, false));
        uint32_t more = sequence(s, word(s, p->between), sequence(s, one, again));
        nodes_fill(s->g, again, (uint32_t[]){end, more}, 2);
        node = first ? sequence(s, one, again) : more;
    }
    chardfa_free(names);
    chardfa_free(declared);
    free(set.v);
    return node;
}

// Bounds that a chain without counters does not keep.
static void refuse(struct schema *s, const struct schema_list *flat, const struct schema_merged *m, uint32_t nrequired,
                   uint32_t most, bool extras)
{
    if (m->min_properties > nrequired)
        schema_fail(s, ERR_UNSUPPORTED, flat->v[0], "minProperties", "is not supported in this style.");
    if (m->max_properties < most || (extras && m->max_properties != NODES_NO_LIMIT))
        schema_fail(s, ERR_UNSUPPORTED, flat->v[0], "maxProperties", "is not supported in this style.");
}

static bool has_extras(const struct schema *s, const struct schema_list *flat, const struct schema_merged *m)
{
    bool open = schema_may_have_extras(s, flat, m) && !schema_is_closed(s, flat);
    for (uint32_t i = 0; i < flat->n; i++) {
        const json_t *more = schema_get(s, flat->v[i], "additionalProperties");
        open &= !schema_get(s, flat->v[i], "patternProperties") && !schema_get(s, flat->v[i], "propertyNames");
        open &= more || !schema_get(s, flat->v[i], "properties");  // a call with no parameters has none
    }
    return open;
}

// An object's members, then `end`.
static uint32_t members(struct schema *s, const struct schema_list *flat, const struct schema_merged *m,
                        const struct spelling *p, uint32_t end)
{
    struct schema_names l = {0};
    uint32_t first = end, next = end, nrequired = 0, most = 0;  // with nothing before, with something
    schema_find_names(s, flat, &l);
    bool extras = !s->failed && has_extras(s, flat, m);
    if (extras) {
        next = either(s, end, others(s, flat, &l, p, false, end));
        first = either(s, end, others(s, flat, &l, p, true, end));
    }
    for (uint32_t i = l.n; i-- > 0 && !s->failed;) {
        struct schema_list set = {0};
        bool required = schema_requires(s, flat, l.name[i]);
        schema_property_set(s, flat, l.name[i], l.len[i], &set);
        if (required || !schema_has_false(s, &set)) {
            if (!is_name(p, l.name[i], l.len[i]))
                schema_fail(s, ERR_UNSUPPORTED, flat->v[0], "properties", "has a name that this style cannot write: '%.60s'.",
                            l.name[i]);
            uint32_t here = sequence(s, member(s, &set, p, given(s, l.name[i], l.len[i])), next);
            uint32_t behind = sequence(s, word(s, p->between), here);
            first = required ? here : either(s, first, here);
            next = required ? behind : either(s, next, behind);
            nrequired += required;
            most++;
        }
        free(set.v);
    }
    refuse(s, flat, m, nrequired, most, extras);
    schema_names_done(&l);
    return s->failed ? 0 : first;
}

// ---- arrays

static uint32_t item_value(struct schema *s, const struct schema_list *flat, uint32_t i, bool *said)
{
    struct schema_list set = {0};
    schema_item_set(s, flat, i, &set, said);
    uint32_t node = schema_has_false(s, &set) ? 0 : schema_styled_node(s, &set);
    free(set.v);
    return node;
}

// Items behind the first `have` ones (one of them at least, or none), then the bracket.
static uint32_t more_items(struct schema *s, const struct schema_merged *m, uint32_t item, uint32_t have)
{
    uint32_t min = m->min_items > have ? m->min_items - have : 0, end = word(s, "]");
    uint32_t max = m->max_items == NODES_NO_LIMIT ? m->max_items : m->max_items > have ? m->max_items - have : 0;
    if (!item || !max)
        return min ? 0 : end;
    if (have)
        return sequence(s, nodes_repeat(s->g, sequence(s, word(s, spellings[s->style].between), item), min, max), end);
    uint32_t some = sequence(s, item, more_items(s, m, item, 1));
    return min ? some : either(s, end, some);
}

static uint32_t array(struct schema *s, const struct schema_list *flat, const struct schema_merged *m)
{
    uint32_t n = schema_prefix_length(s, flat);
    bool said, other;
    if (m->unique && m->max_items > 1)
        schema_fail(s, ERR_UNSUPPORTED, flat->v[0], "uniqueItems", "is not supported in this style.");
    uint32_t rest = item_value(s, flat, UINT32_MAX, &said);
    uint32_t node = more_items(s, m, said || n == 0 || m->min_items > n ? rest : 0, n);
    for (uint32_t i = n; i-- > 0 && !s->failed;) {
        uint32_t one = i < m->max_items ? item_value(s, flat, i, &other) : 0;
        one = sequence(s, i ? word(s, spellings[s->style].between) : s->nothing, sequence(s, one, node));
        node = i >= m->min_items ? either(s, word(s, "]"), one) : one;
    }
    return sequence(s, word(s, "["), node);
}

// ---- values

static uint32_t string(struct schema *s, const struct schema_list *flat, const struct schema_merged *m)
{
    if (s->style == SCHEMA_GEMMA)
        return sequence(s, word(s, s->quote), plain_text(s, flat, m, s->quote, false));
    if (!is_bounded(m))
        return nodes_string(s->g, 0, NODES_NO_LIMIT);
    if (!m->automaton)
        return m->min_length <= m->max_length ? nodes_string(s->g, m->min_length, m->max_length) : 0;
    struct chardfa *d = schema_string(s, flat, m);
    uint32_t node = schema_dfa_node(s, flat->v[0], d, true, false);
    chardfa_free(d);
    return node;
}

static void give(struct schema_list *out, uint32_t node)
{
    if (node)
        schema_push(out, node);
}

static void add_words(struct schema *s, const struct schema_list *flat, const struct schema_merged *m,
                      struct schema_list *out)
{
    json_t *excluded = schema_excluded(s, flat);
    const json_type types[] = {JSON_NULL, JSON_FALSE, JSON_TRUE};
    for (int i = 0; i < 3; i++) {
        bool allowed = m->types & (i ? TYPE_BOOLEAN : TYPE_NULL);
        for (size_t k = 0; k < json_array_size(excluded); k++)
            allowed &= json_typeof(json_array_get(excluded, k)) != types[i];
        if (allowed)
            give(out, word(s, spellings[s->style].words[i]));
    }
    json_decref(excluded);
}

void schema_style_fill(struct schema *s, const struct schema_list *flat, struct schema_list *out)
{
    struct schema_merged m;
    schema_merge(s, flat, &m);
    if (s->failed)
        return;
    if (m.values != UINT32_MAX) {
        add_values(s, flat, &m, out);
        return;
    }
    const struct spelling *p = s->style == SCHEMA_PYTHON ? &dictionary : &spellings[s->style];
    if (m.types & TYPE_OBJECT)
        give(out, sequence(s, word(s, "{"), members(s, flat, &m, p, word(s, "}"))));
    if (m.types & TYPE_ARRAY)
        give(out, array(s, flat, &m));
    if (m.types & TYPE_STRING)
        give(out, string(s, flat, &m));
    if (m.types & (TYPE_NUMBER | TYPE_INTEGER)) {
        struct chardfa *d = schema_number(s, flat, &m);
        give(out, schema_dfa_node(s, flat->v[0], d, false, false));
        chardfa_free(d);
    }
    if (m.types & (TYPE_NULL | TYPE_BOOLEAN))
        add_words(s, flat, &m, out);
}

// ---- the whole

uint32_t schema_style_root(struct schema *s, const struct schema_list *set)
{
    struct schema_flats *f = mem_new(sizeof *f);
    struct schema_list all = {0};
    struct schema_merged m;
    uint32_t node = nodes_open(s->g);
    s->nothing = nodes_list(s->g, NODE_SEQ, NULL, 0);
    schema_expand(s, NULL, set, f);
    for (uint32_t i = 0; i < f->n && !s->failed; i++) {
        const struct spelling *p = &spellings[s->style];
        bool braces = s->style == SCHEMA_GEMMA;
        schema_merge(s, &f->v[i], &m);
        if (m.values != UINT32_MAX)
            schema_fail(s, ERR_UNSUPPORTED, m.values, "enum", "is not supported for the arguments as a whole in this style.");
        if (m.types & TYPE_OBJECT && !s->failed)
            give(&all, sequence(s, word(s, braces ? "{" : ""), members(s, &f->v[i], &m, p, word(s, braces ? "}" : ""))));
    }
    err full;  // the caller says it
    if (!s->failed && !all.n && !nodes_check(s->g, &full))
        schema_fail(s, ERR_INVALID, set->v[0], "type", "must allow an object.");
    nodes_fill(s->g, node, all.v, all.n);
    schema_expand_done(f);
    free(f);
    free(all.v);
    return node;
}

static enum schema_form form_of(struct schema *s, const struct schema_list *set)
{
    struct schema_flats *f = mem_new(sizeof *f);
    struct schema_merged m;
    bool strings = false, nulls = false, more = false;
    schema_expand(s, NULL, set, f);
    for (uint32_t i = 0; i < f->n && !s->failed; i++) {
        schema_merge(s, &f->v[i], &m);
        json_t *list = m.values != UINT32_MAX ? schema_values(s, m.values) : NULL;
        unsigned types = list ? TYPE_STRING : m.types;
        for (size_t k = 0; k < json_array_size(list); k++)
            types = json_is_string(json_array_get(list, k)) ? types : TYPE_ALL;
        json_decref(list);
        strings |= types & TYPE_STRING;
        nulls |= types & TYPE_NULL;
        more |= types & ~(unsigned)(TYPE_STRING | TYPE_NULL);
    }
    schema_expand_done(f);
    free(f);
    return more || !strings ? SCHEMA_FORM_JSON : nulls ? SCHEMA_FORM_TEXT_OR_NULL : SCHEMA_FORM_TEXT;
}

enum schema_form schema_style_form(struct schema *s, const struct schema_list *set, const char *name)
{
    struct schema_flats *f = mem_new(sizeof *f);
    struct schema_list member_set = {0};
    schema_expand(s, NULL, set, f);
    if (!s->failed && f->n)
        schema_property_set(s, &f->v[0], name, strlen(name), &member_set);
    enum schema_form form = s->failed || !member_set.n ? SCHEMA_FORM_JSON : form_of(s, &member_set);
    schema_expand_done(f);
    free(f);
    free(member_set.v);
    return s->failed ? SCHEMA_FORM_JSON : form;
}
