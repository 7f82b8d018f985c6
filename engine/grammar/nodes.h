// nodes.h - a compiled grammar: nodes that say what may be written next, and refer to each other by number.
//
//     BYTES     an automaton over bytes                 LITERALS   one of a sorted list of texts
//     STRING    a JSON string of so many characters     OBJECT, ARRAY   of JSON, with counters
//     ALT SEQ REPEAT   one of, one after another, so many times
//     FREE      free text that ends at the first of some texts, and what comes behind each (freetext.h)
//
// Objects and arrays are nodes of their own rather than sequences of rules, so that bounds, optional properties and
// required ones are numbers to compare and nothing is unrolled. Built on a prep thread, immutable after nodes_finish.
//
// A node's height is how much deeper the stack must get to finish it; HEIGHT_NEVER: it cannot be finished. The machine
// enters a node only where its height fits under max_depth, so from every state it reaches there is a way to the end.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/err.h"
#include "engine/grammar/bytedfa.h"

enum node_kind {
    NODE_NONE, NODE_BYTES, NODE_LITERALS, NODE_STRING, NODE_OBJECT, NODE_ARRAY, NODE_ALT, NODE_SEQ, NODE_REPEAT,
    NODE_FREE,
};

enum {
    NODES_MAX = 20000,
    NODES_MAX_BYTES = 16 << 20,
    NODES_WORK = 24000000,       // edges of automata that are made on the way: seconds, where each costs most
    NODES_STEPS = 2000000,       // schemas looked at
    NODES_JSON_DEPTH = 128,
    NODES_RULE_DEPTH = 256,
    NODES_MAX_EXTRAS = 16,       // classes of undeclared names of an object
    NODES_MAX_PROPERTIES = 8192,
    NODES_MAX_UNDECLARED = 1024, // undeclared names one object may get
    NODES_MAX_END = 200,         // bytes of the end of a text whose characters are counted
    HEIGHT_NEVER = 1 << 20,
};
#define NODES_NO_LIMIT UINT32_MAX

struct literals {
    uint32_t n;
    const char **texts;  // sorted by bytes, no two the same
    uint32_t *lens;
};

// A JSON string without further rules; lengths in characters.
struct string_def {
    uint32_t min, max;
};

struct property {
    uint32_t node, rank;  // rank: of its name among the sorted ones
    bool required;
};

// Names that are not declared, by what their values must be: automata with disjoint languages.
struct extra {
    uint32_t name, node;  // name: a tracked BYTES node
};

struct object_def {
    uint32_t nproperties, nextras, min, max;
    struct property *properties;  // in the order they are written
    uint32_t names;               // LITERALS: the declared names with their quotes
    uint32_t *by_rank;            // property of a name's rank
    uint32_t *required_from;      // [nproperties + 1]: how many required ones there are from here on
    uint32_t *next_required;      // [nproperties + 1]: the first of them; nproperties: none
    struct extra extras[NODES_MAX_EXTRAS];
};

struct array_def {
    uint32_t nprefix, min, max;
    uint32_t *prefix;
    uint32_t rest;  // 0: nothing after the prefix
    bool unique;    // rest is a tracked BYTES node and there is no prefix
};

struct list_def {
    uint32_t n;
    uint32_t *nodes;
};

struct repeat_def {
    uint32_t node, min, max;
    bool may_be_empty;  // what is repeated
};

// Deterministic: where an end is read its target begins at once, in this node's place.
struct free_def {
    struct bytedfa *dfa;     // starts, and mostly is, where no end and nothing excluded has begun
    uint16_t *ends;          // [dfa->nstates] 1 + which end is read here; 0: none
    uint32_t ntargets, *targets;  // nodes, by end
    bool outer;              // a part of the answer itself: nothing is below
    bool may_end;            // of an outer one: the answer may end in it, wherever the automaton accepts
    // Characters in front of the end, counted where begun is there: of ASCII, one, in which it does not begin again.
    uint32_t min, max;
    uint16_t *begun;         // [dfa->nstates] freetext.h
    uint32_t longest;        // bytes of that end
};

struct node {
    enum node_kind kind;
    bool tracked;  // BYTES: what is written is remembered, because it must differ from others
    uint32_t height;
    union {
        struct bytedfa *bytes;
        struct literals *literals;
        struct string_def *string;
        struct object_def *object;
        struct array_def *array;
        struct list_def *list;
        struct repeat_def *repeat;
        struct free_def *free;
    };
};

struct nodes {
    struct node *list;  // [0] is none
    uint32_t n, cap, root, max_depth;
    bool compact;       // JSON without white space
    struct arena arena;
    size_t bytes;
    size_t work, steps;  // what all schemas and patterns in it may still cost: chardfa_budget, schema_int.h
};

void nodes_init(struct nodes *g, uint32_t max_depth);
void nodes_done(struct nodes *g);

// Each returns the new node's number, 0 when the grammar is too large (nodes_check says so).
uint32_t nodes_bytes(struct nodes *g, struct bytedfa *d, bool tracked);  // takes d
uint32_t nodes_literals(struct nodes *g, const char *const *texts, const size_t *lens, size_t n);  // copies
uint32_t nodes_string(struct nodes *g, uint32_t min, uint32_t max);
uint32_t nodes_list(struct nodes *g, enum node_kind kind, const uint32_t *nodes, uint32_t n);  // ALT or SEQ
uint32_t nodes_repeat(struct nodes *g, uint32_t node, uint32_t min, uint32_t max);
uint32_t nodes_array(struct nodes *g, const struct array_def *d);    // copies
// Properties have node and required set; names are spelt as JSON strings with quotes. Fills the rest of *d.
uint32_t nodes_object(struct nodes *g, struct object_def *d, const char *const *names, const size_t *lens);
// Copies targets; takes dfa, ends and begun (of malloc).
uint32_t nodes_free(struct nodes *g, const struct free_def *d);
// An ALT to be filled later: for what refers to itself.
uint32_t nodes_open(struct nodes *g);
void nodes_fill(struct nodes *g, uint32_t node, const uint32_t *nodes, uint32_t n);

MUST_CHECK err_code nodes_check(const struct nodes *g, err *e);
// Heights; ERR_INVALID when nothing at all can be written.
MUST_CHECK err_code nodes_finish(struct nodes *g, uint32_t root, err *e);
bool nodes_fits(const struct nodes *g, uint32_t node, uint32_t depth);
