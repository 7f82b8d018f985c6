// schema_int.h - inside of the schema compiler.
//
//     schema.c         items, references, what each keyword is
//     schema_expand.c  a set of schemas that all must hold -> alternatives without $ref, allOf, anyOf, oneOf, not
//     schema_merge.c   what an alternative says about each type, put together
//     schema_build.c   that, as nodes
//     schema_style.c   or as nodes of another style
//     schema_check.c   whether a given value satisfies a schema (for enum and const)
//
// A place in an answer is described by a *set* of schemas that all hold there (a property of an object may be described
// in several). Sets are the unit that is compiled and remembered, so recursion ends where a set comes again.
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/err.h"
#include "base/map.h"
#include "engine/grammar/chardfa.h"
#include "engine/grammar/decimal.h"
#include "engine/grammar/nodes.h"
#include "engine/grammar/schema.h"

enum {
    SCHEMA_MAX_ITEMS = 20000,
    SCHEMA_MAX_FLATS = 64,       // alternatives of one place
    SCHEMA_MAX_DEPTH = 128,      // of the schema itself
    SCHEMA_MAX_PATTERNS = 4,     // patternProperties of one object
    SCHEMA_MAX_VALUES = 5000,    // of an enum
    SCHEMA_MAX_STEPS = 400000,   // items looked at
    SCHEMA_WORK = 12000000,      // of all automata (chardfa_budget)
};

struct schema_list {  // of items or nodes
    uint32_t *v, n, cap;
};
void schema_push(struct schema_list *l, uint32_t id);

struct schema_pending {
    struct schema_list set;
    uint32_t node;
    bool styled;  // schema_style.c fills it
};

// A schema in the document, or one made on the way.
struct schema_item {
    const json_t *schema, *base;  // base: root of the resource its references are relative to
    const char *path;             // "('properties', 'x')"
};

struct schema_id {
    const char *name;
    bool anchor;
    const json_t *schema, *base;
};

struct schema {
    struct nodes *g;
    const json_t *root;
    struct arena arena;
    struct schema_item *items;
    uint32_t nitems, items_cap;
    struct map *by_pointer;   // (schema, base) to item
    struct map *by_set;       // sorted items, and whether styled, to node
    struct map *by_pattern;   // pattern or format to number
    struct chardfa **patterns;
    uint32_t npatterns;
    struct schema_id *ids;
    uint32_t nids, ids_cap;
    struct schema_pending *pending;  // nodes that are opened and not filled
    uint32_t npending, pending_cap;
    enum schema_style style;
    const char *quote;
    uint32_t nothing;         // of styles: a node that writes nothing
    bool old;                 // a draft in which $ref hides what stands beside it and items may be a list
    size_t work, steps, work_given, steps_given;
    int depth;
    err *e;
    bool failed;
};


// A failure; the first one stays. keyword may be NULL.
void schema_fail(struct schema *s, err_code code, uint32_t item, const char *keyword, const char *fmt, ...)
    __attribute__((format(printf, 5, 6)));
// A failure of an automaton, told in terms of a keyword.
void schema_fail_automaton(struct schema *s, uint32_t item, const char *keyword, const err *why);

// The item of a schema below another: key and index (or NULL, -1) for its path.
uint32_t schema_child(struct schema *s, uint32_t item, const char *keyword, const char *name, const json_t *schema);
// Of a schema made on the way; takes the reference.
uint32_t schema_made(struct schema *s, uint32_t item, json_t *schema);
const json_t *schema_get(const struct schema *s, uint32_t item, const char *keyword);
bool schema_is(const struct schema *s, uint32_t item, bool value);  // the boolean schema
// What $ref of an item refers to; false after a failure.
bool schema_resolve(struct schema *s, uint32_t item, const char *ref, uint32_t *ret_item);
bool schema_is_annotation(const char *keyword);  // says nothing about values

// ---- schema_expand.c: alternatives, each a list of items without what was resolved.
struct schema_flats {
    struct schema_list v[SCHEMA_MAX_FLATS];
    uint32_t n;
};
// plain: items taken as they are; set: items to expand.
void schema_expand(struct schema *s, const struct schema_list *plain, const struct schema_list *set,
                   struct schema_flats *ret);
void schema_expand_done(struct schema_flats *f);

// ---- schema_merge.c
enum schema_type {
    TYPE_NULL = 1, TYPE_BOOLEAN = 2, TYPE_INTEGER = 4, TYPE_NUMBER = 8, TYPE_STRING = 16, TYPE_ARRAY = 32, TYPE_OBJECT = 64,
    TYPE_ALL = 127,  // "number" is both of TYPE_NUMBER and TYPE_INTEGER
};
struct schema_merged {
    unsigned types;
    uint32_t values;  // item with enum or const; UINT32_MAX: none
    bool has_min, has_max, exclusive_min, exclusive_max;
    struct decimal min, max;
    uint32_t multiple;
    uint32_t min_length, max_length, min_items, max_items, min_properties, max_properties;
    bool unique, automaton;  // automaton: a pattern, a format or excluded values
};
void schema_merge(struct schema *s, const struct schema_list *flat, struct schema_merged *ret);
// enum or const of an item as a new array; NULL: it has none.
json_t *schema_values(const struct schema *s, uint32_t item);
// The texts that `not` with enum or const takes away, as JSON values in a new array.
json_t *schema_excluded(const struct schema *s, const struct schema_list *flat);
// What strings an alternative allows (enum included). NULL after a failure.
struct chardfa *schema_string(struct schema *s, const struct schema_list *flat, const struct schema_merged *m);
const struct chardfa *schema_pattern(struct schema *s, uint32_t item, const char *keyword, const json_t *text);
// Replaces *d by what is in both (or, minus, in it alone). False after a failure, which is told in terms of keyword.
bool schema_narrow(struct schema *s, uint32_t item, const char *keyword, struct chardfa **d, const struct chardfa *by,
                   bool minus);
// Schemas of a property, of undeclared names matching the patterns in `matched`, of an array's item.
struct schema_patterns {
    const json_t *text[SCHEMA_MAX_PATTERNS];
    const struct chardfa *dfa[SCHEMA_MAX_PATTERNS];
    uint32_t n;
};
void schema_find_patterns(struct schema *s, const struct schema_list *flat, struct schema_patterns *ret);
void schema_property_set(struct schema *s, const struct schema_list *flat, const char *name, size_t len,
                         struct schema_list *ret);
void schema_extra_set(struct schema *s, const struct schema_list *flat, const struct schema_patterns *p, unsigned matched,
                      struct schema_list *ret);
// Index UINT32_MAX: what comes behind every prefix. *ret_said: some schema speaks about it.
void schema_item_set(struct schema *s, const struct schema_list *flat, uint32_t index, struct schema_list *ret,
                     bool *ret_said);
uint32_t schema_prefix_length(struct schema *s, const struct schema_list *flat);
bool schema_has_false(const struct schema *s, const struct schema_list *set);
bool schema_requires(const struct schema *s, const struct schema_list *flat, const char *name);
// No name but the declared ones and those that match patterns.
bool schema_is_closed(const struct schema *s, const struct schema_list *flat);

// ---- schema_build.c: opens the node of a set, or finds it; schema_build_all fills what is open.
uint32_t schema_node(struct schema *s, const struct schema_list *set);
uint32_t schema_styled_node(struct schema *s, const struct schema_list *set);
void schema_build_all(struct schema *s);
// Names of an object's properties: declared ones in the order of their appearance, then those that are only required.
struct schema_names {
    const char **name;
    size_t *len;
    uint32_t n, cap;
};
void schema_find_names(struct schema *s, const struct schema_list *flat, struct schema_names *l);
void schema_names_done(struct schema_names *l);
// Undeclared names there may be; false: none.
bool schema_may_have_extras(const struct schema *s, const struct schema_list *flat, const struct schema_merged *m);
// The numbers an alternative allows; 0, or NULL, after a failure and where there are none.
struct chardfa *schema_number(struct schema *s, const struct schema_list *flat, const struct schema_merged *m);
uint32_t schema_dfa_node(struct schema *s, uint32_t item, struct chardfa *c, bool json, bool tracked);

// ---- schema_style.c
void schema_style_fill(struct schema *s, const struct schema_list *flat, struct schema_list *out);  // a value
uint32_t schema_style_root(struct schema *s, const struct schema_list *set);
enum schema_form schema_style_form(struct schema *s, const struct schema_list *set, const char *name);

// ---- schema_check.c
bool schema_check(struct schema *s, uint32_t item, const json_t *value);
bool schema_check_all(struct schema *s, const struct schema_list *flat, const json_t *value);
