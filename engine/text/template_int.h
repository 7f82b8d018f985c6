// template_int.h - what the files of the template interpreter share; nobody else includes it.
// lex -> parse -> (struct template, immutable) -> eval with one struct run a render. Values of a run live in its arena.
// Errors are sticky: template_value_fail records the first one and everything after it returns at once, so functions return
// values, and loops look at r->failed. Text is UTF-8; indexes and lengths a template sees count characters.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/err.h"
#include "base/utf8.h"
#include "engine/text/template.h"

enum {
    TEMPLATE_MAX_MEMORY = 256 << 20,  // bytes a render may hold
    TEMPLATE_MAX_RANGE = 100000,      // as Jinja's sandbox
    TEMPLATE_SMALL = 4096,            // an allocation up to this size never fails
    TEMPLATE_EVAL_DEPTH = TEMPLATE_MAX_DEPTH * 4,  // nodes within nodes; macros count to TEMPLATE_MAX_DEPTH
    FN_PARAMS = 6,
};

// ---- values

enum value_type {
    V_UNDEF, V_NONE, V_BOOL, V_INT, V_FLOAT, V_STR, V_SEQ, V_DICT, V_NAMESPACE, V_MACRO, V_FUNC, V_LOOP, V_ABSENT
};

// Bytes with their origin: mask NULL means all bytes are as `untrusted` says, else one byte of mask a byte of text.
struct str {
    const char *p;
    size_t len;
    const uint8_t *mask;
    bool untrusted, markup;
};

struct value {
    uint8_t type;
    uint8_t of;  // V_UNDEF: type of the object that lacks `name`, V_ABSENT for a plain variable
    union {
        bool b;
        int64_t i;
        double f;
        const struct str *s;  // V_UNDEF: the name, may be NULL
        struct seq *seq;
        struct dict *dict;  // V_DICT, V_NAMESPACE
        struct macro *macro;
        struct func *func;
        struct loop *loop;
    };
};

enum seq_kind { SEQ_LIST, SEQ_TUPLE, SEQ_RANGE, SEQ_ITER, SEQ_ITEMS, SEQ_KEYS, SEQ_VALUES };
struct seq {
    struct value *v;
    size_t n, cap;
    enum seq_kind kind;
    bool untrusted;  // its punctuation, when printed
    bool consumed;   // SEQ_ITER gives its items once
    int64_t range[3];  // SEQ_RANGE: start, stop, step
};

struct dict_entry {
    struct value k, v;
    uint64_t hash;
};
struct dict {
    struct dict_entry *e;  // insertion order
    size_t n, cap;
    uint32_t *index;  // open addressing, entry + 1; NULL while small
    size_t nindex;
    bool untrusted;
};

struct args {
    struct value *pos;
    size_t npos;
    struct kwarg {
        const struct str *name;
        struct value v;
    } *kw;
    size_t nkw;
};

struct run;
// v[0] is the filtered or tested value or the object of a method; v[1..] the bound parameters, V_ABSENT if not given.
typedef struct value template_fn(struct run *r, const struct value *v, const struct args *a);
struct fn_def {
    const char *name;
    template_fn *fn;
    const char *params;  // "width,first"; "" none; NULL: anything goes, read from args
    int min;             // how many of them must be given
};
struct func {
    const struct fn_def *def;
    struct value self;
};

struct frame {
    struct frame *up;
    struct frame_slot {
        int name;
        struct value v;
    } *slots;
    int n, cap;
};

struct macro {
    const struct node *node;
    struct frame *frame;  // where it was defined
};

struct loop {
    const struct node *node;
    struct frame *frame;  // around the loop
    struct seq *items;
    size_t i;
    int depth0;
    struct value changed;
};

// ---- syntax

enum token_type {
    T_EOF, T_TEXT, T_BLOCK_BEGIN, T_BLOCK_END, T_VAR_BEGIN, T_VAR_END, T_NAME, T_STRING, T_INT, T_FLOAT,
    T_ADD, T_SUB, T_MUL, T_DIV, T_FLOORDIV, T_MOD, T_POW, T_TILDE, T_LBRACKET, T_RBRACKET, T_LPAREN, T_RPAREN, T_LBRACE,
    T_RBRACE, T_EQ, T_NE, T_GT, T_GE, T_LT, T_LE, T_ASSIGN, T_DOT, T_COLON, T_PIPE, T_COMMA, T_SEMICOLON,
};

struct token {
    enum token_type type;
    int line;
    union {
        struct str s;
        int64_t i;
        double f;
    };
};

enum node_kind {
    N_TEXT, N_PRINT, N_IF, N_FOR, N_SET, N_SETBLOCK, N_MACRO, N_CALLBLOCK, N_FILTERBLOCK, N_WITH, N_SCOPE, N_BREAK,
    N_CONTINUE, N_BODY,
    N_CONST, N_NAME, N_NSREF, N_TUPLE, N_LIST, N_DICT, N_COND, N_OR, N_AND, N_NOT, N_COMPARE, N_BINARY, N_CONCAT, N_NEG,
    N_POS, N_ATTR, N_ITEM, N_SLICE, N_CALL, N_FILTER, N_TEST,
};

// What the fields hold for each kind is said where template_parse.c makes it.
struct node {
    enum node_kind kind;
    int line;
    int name;         // interned variable name
    int op;           // enum token_type of an operator
    bool flag;        // N_FOR: bodies define macros or call blocks
    bool caller, varargs, kwargs;  // N_MACRO: the body mentions them
    struct value value;            // N_CONST, N_TEXT; name text of N_ATTR, N_FILTER, N_TEST, N_MACRO
    const struct fn_def *def;      // N_FILTER, N_TEST; NULL: there is none of that name
    struct node *a, *b, *c;
    struct node **kids;
    int nkids;
    struct node_kw {
        struct value name;
        struct node *node;
    } *kw;
    int nkw;
    struct node *dyn_args, *dyn_kwargs;
};

enum special_name { NAME_LOOP, NAME_CALLER, NAME_VARARGS, NAME_KWARGS, SPECIAL_NAMES };
struct template {
    struct arena arena;
    struct node *body;
    struct str **names;  // interned variable names
    int nnames;
};

// Tokens of a template in the arena, the last one T_EOF. The source is already checked UTF-8 with LF line ends.
err_code template_lex(struct arena *arena, const char *source, size_t len, struct token **ret_tokens, size_t *ret_n,
                      err *e);

// ---- one render

struct out {
    char *p;
    size_t len, cap;
    uint8_t *mask;
    bool untrusted;
};

struct run {
    const struct template *t;
    const struct template_input *in;
    struct arena arena;
    struct value *context;  // by name; V_ABSENT: none
    struct out *out;        // where printing goes now
    size_t bytes;
    int64_t steps;
    int depth, calls, line;
    bool failed;
    char *tail;  // end of the newest concatenation, which may grow in place
    size_t tail_room;
    err e;
};

// ---- template_value.c: memory, text, containers, comparison
struct value template_value_fail(struct run *r, err_code code, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
bool template_value_charge(struct run *r, size_t bytes);  // counts steps for work over so many bytes; false: over
bool template_value_enter(struct run *r);                 // one level deeper; false: too deep. Pair with r->depth--
void *template_value_alloc(struct run *r, size_t bytes);  // NULL only above TEMPLATE_SMALL

void template_value_out(struct run *r, struct out *o, const char *p, size_t n, bool untrusted);
void template_value_out_str(struct run *r, struct out *o, const struct str *s);
void template_value_out_sub(struct run *r, struct out *o, const struct str *s, size_t from, size_t to);  // bytes
struct value template_value_out_take(struct run *r, struct out *o);  // as a string; o is empty again

struct value template_value_str(struct run *r, const char *p, size_t len, bool untrusted);  // borrows p
struct value template_value_text(struct run *r, const char *s);  // trusted, borrows s
struct value template_value_sub(struct run *r, const struct str *s, size_t from, size_t to);  // bytes from..to
struct value template_value_concat(struct run *r, const struct str *a, const struct str *b);
size_t template_value_chars(const struct str *s);
size_t template_value_offset(const struct str *s, size_t chars);  // byte offset of a character
struct value template_value_char(struct run *r, const struct str *s, size_t *pos);  // the character there; moves pos

struct seq *template_value_seq(struct run *r, enum seq_kind kind, size_t room);
void template_value_push(struct run *r, struct seq *s, struct value v);
struct value template_value_of_seq(struct seq *s);
struct dict *template_value_dict(struct run *r);
void template_value_put(struct run *r, struct dict *d, struct value k, struct value v);
void template_value_put_text(struct run *r, struct dict *d, const char *k, struct value v);
const struct value *template_value_find(struct run *r, const struct dict *d, struct value k);
const struct value *template_value_find_text(struct run *r, const struct dict *d, const struct str *k);
void template_value_remove(struct run *r, struct dict *d, struct value k);
struct value template_value_view(struct run *r, const struct dict *d, enum seq_kind kind);
struct seq *template_value_iterate(struct run *r, struct value v);  // never NULL; empty after a failure

bool template_value_truth(struct value v);
bool template_value_equal(struct run *r, struct value a, struct value b);
// -1, 0, 1; 2 with a NaN. Fails when they have no order.
int template_value_order(struct run *r, struct value a, struct value b);
bool template_value_contains(struct run *r, struct value item, struct value in);
// Stable order of n keys as Python's sorted (reverse keeps equal ones in place); NULL after a failure.
size_t *template_value_sort(struct run *r, const struct value *keys, size_t n, bool reverse);
const char *template_value_type(struct value v);  // Python's name of the type
struct value template_value_undefined(struct run *r, struct value v);  // fails with what is undefined

void template_format_print(struct run *r, struct out *o, struct value v);  // str(v)
struct value template_format_str(struct run *r, struct value v);
int template_format_float(double f, char out[40]);
struct value template_format_percent(struct run *r, const struct str *fmt, struct value args);
struct value template_format_braces(struct run *r, const struct str *fmt, const struct args *a);

// ---- template_json.c
struct value template_json_value(struct run *r, const struct json_t *j);  // untrusted
struct value template_json_messages(struct run *r, const struct json_t *j);  // and role names trusted
struct value template_json_dump(struct run *r, const struct value *v, const struct args *a);
struct value template_json_parse(struct run *r, const struct value *v, const struct args *a);

// ---- template_ops.c: operators, attributes, calls of built-in functions
struct value template_ops_binary(struct run *r, int op, struct value a, struct value b);
struct value template_ops_negate(struct run *r, struct value v, bool minus);
bool template_ops_compare(struct run *r, int op, struct value a, struct value b);  // T_EQ .. T_LE
struct value template_ops_attr(struct run *r, struct value v, const struct str *name);  // v.name
struct value template_ops_item(struct run *r, struct value v, struct value key);        // v[key]
struct value template_ops_slice(struct run *r, struct value v, const struct value part[3]);
struct value template_ops_call(struct run *r, const struct fn_def *def, struct value self, const struct args *a);
struct value template_ops_int(struct run *r, struct value v, int64_t *ret_i);  // an index or count; fails otherwise
bool template_ops_as_int(struct value v, int64_t *ret_i);                      // int or bool
bool template_ops_as_float(struct value v, double *ret_f);                     // number

// ---- tables
const struct fn_def *template_filters_find(const char *name, size_t len);
const struct fn_def *template_tests_find(const char *name, size_t len);
const struct fn_def *template_methods_find(enum value_type type, enum seq_kind kind, const struct str *name);
const struct fn_def *template_methods_global(const struct str *name);
const struct fn_def *template_methods_among(const struct fn_def *defs, size_t n, const char *name, size_t len);

// ---- template_text.c: what Python does with characters
bool template_text_space(uint32_t cp);
enum { STRIP_LEFT = 1, STRIP_RIGHT = 2 };
struct value template_text_strip(struct run *r, const struct str *s, const struct str *chars, int sides);
struct value template_text_replace(struct run *r, const struct str *s, const struct str *from, const struct str *to,
                                   int64_t count);
struct value template_text_split(struct run *r, const struct str *s, const struct str *sep, int64_t max, bool right);
struct value template_text_lines(struct run *r, const struct str *s, bool keep);
enum text_case { CASE_UPPER, CASE_LOWER, CASE_CAPITALIZE, CASE_TITLE, CASE_TITLE_FILTER, CASE_SWAP };
struct value template_text_case(struct run *r, const struct str *s, enum text_case how);
// Byte offset of the first (last) occurrence within [from, to), -1: none. rfind counts its own steps; r may be NULL.
int64_t template_text_find(const struct str *s, const struct str *sub, size_t from, size_t to);
int64_t template_text_rfind(struct run *r, const struct str *s, const struct str *sub, size_t from, size_t to);
bool template_text_is(const struct str *s, const char *what);  // "digit", "alpha", "alnum", "lower" ...
struct value template_text_pad(struct run *r, const struct str *s, int64_t width, char align, const struct str *fill);

// ---- template_eval.c
void template_eval_body(struct run *r, const struct node *body, struct frame *f);
