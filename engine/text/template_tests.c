// template_tests.c - the tests: v is name(arguments). One function each, and the table at the end.
#include <string.h>

#include "engine/text/template_int.h"

static struct value boolean(bool b)
{
    return (struct value){.type = V_BOOL, .b = b};
}

#define TEST(name, condition)                                                                    \
    static struct value name(struct run *r, const struct value *v, const struct args *a)        \
    {                                                                                            \
        (void)r;                                                                                 \
        (void)a;                                                                                 \
        return boolean(condition);                                                               \
    }

TEST(t_defined, v->type != V_UNDEF)
TEST(t_undefined, v->type == V_UNDEF)
TEST(t_none, v->type == V_NONE)
TEST(t_boolean, v->type == V_BOOL)
TEST(t_true, v->type == V_BOOL && v->b)
TEST(t_false, v->type == V_BOOL && !v->b)
TEST(t_integer, v->type == V_INT)
TEST(t_float, v->type == V_FLOAT)
TEST(t_number, v->type == V_INT || v->type == V_FLOAT || v->type == V_BOOL)
TEST(t_string, v->type == V_STR)
TEST(t_mapping, v->type == V_DICT)
TEST(t_iterable, v->type == V_STR || v->type == V_SEQ || v->type == V_DICT || v->type == V_UNDEF || v->type == V_LOOP)
TEST(t_sequence,
     v->type == V_STR || (v->type == V_SEQ && v->seq->kind <= SEQ_RANGE) || v->type == V_DICT || v->type == V_UNDEF)
TEST(t_callable, v->type == V_FUNC || v->type == V_MACRO || v->type == V_LOOP || v->type == V_UNDEF)
TEST(t_escaped, v->type == V_STR && v->s->markup)
TEST(t_lower, template_text_is(template_format_str(r, *v).s, "lower"))
TEST(t_upper, template_text_is(template_format_str(r, *v).s, "upper"))
TEST(t_filter, v->type == V_STR && template_filters_find(v->s->p, v->s->len))
TEST(t_test, v->type == V_STR && template_tests_find(v->s->p, v->s->len))
TEST(t_in, template_value_contains(r, v[0], v[1]))
TEST(t_eq, template_value_equal(r, v[0], v[1]))
TEST(t_ne, !template_value_equal(r, v[0], v[1]))

TEST(t_lt, template_ops_compare(r, T_LT, v[0], v[1]))
TEST(t_le, template_ops_compare(r, T_LE, v[0], v[1]))
TEST(t_gt, template_ops_compare(r, T_GT, v[0], v[1]))
TEST(t_ge, template_ops_compare(r, T_GE, v[0], v[1]))

static bool same_object(const struct value *v)
{
    if (v[0].type != v[1].type)
        return false;
    switch (v->type) {
    case V_BOOL:
        return v[0].b == v[1].b;
    case V_INT:
        return v[0].i == v[1].i;
    case V_NONE:
        return true;
    case V_FLOAT:
    case V_UNDEF:
        return false;
    case V_STR:
        return v[0].s == v[1].s || (v[0].s->len == v[1].s->len && !memcmp(v[0].s->p, v[1].s->p, v[0].s->len));
    default:
        return v[0].func == v[1].func;
    }
}

TEST(t_sameas, same_object(v))

static struct value remainder_is(struct run *r, struct value v, struct value by, int64_t want)
{
    struct value m = template_ops_binary(r, T_MOD, v, by);
    return boolean(template_value_equal(r, m, (struct value){.type = V_INT, .i = want}));
}

static struct value t_odd(struct run *r, const struct value *v, const struct args *a)
{
    (void)a;
    return remainder_is(r, *v, (struct value){.type = V_INT, .i = 2}, 1);
}

static struct value t_even(struct run *r, const struct value *v, const struct args *a)
{
    (void)a;
    return remainder_is(r, *v, (struct value){.type = V_INT, .i = 2}, 0);
}

static struct value t_divisibleby(struct run *r, const struct value *v, const struct args *a)
{
    (void)a;
    return remainder_is(r, v[0], v[1], 0);
}

static const struct fn_def tests[] = {
    {"boolean", t_boolean, "", 0},
    {"callable", t_callable, "", 0},
    {"defined", t_defined, "", 0},
    {"divisibleby", t_divisibleby, "num", 1},
    {"eq", t_eq, "b", 1},
    {"equalto", t_eq, "b", 1},
    {"==", t_eq, "b", 1},
    {"escaped", t_escaped, "", 0},
    {"even", t_even, "", 0},
    {"false", t_false, "", 0},
    {"filter", t_filter, "", 0},
    {"float", t_float, "", 0},
    {"ge", t_ge, "b", 1},
    {">=", t_ge, "b", 1},
    {"greaterthan", t_gt, "b", 1},
    {"gt", t_gt, "b", 1},
    {">", t_gt, "b", 1},
    {"in", t_in, "seq", 1},
    {"integer", t_integer, "", 0},
    {"iterable", t_iterable, "", 0},
    {"le", t_le, "b", 1},
    {"<=", t_le, "b", 1},
    {"lessthan", t_lt, "b", 1},
    {"lower", t_lower, "", 0},
    {"lt", t_lt, "b", 1},
    {"<", t_lt, "b", 1},
    {"mapping", t_mapping, "", 0},
    {"ne", t_ne, "b", 1},
    {"!=", t_ne, "b", 1},
    {"none", t_none, "", 0},
    {"number", t_number, "", 0},
    {"odd", t_odd, "", 0},
    {"sameas", t_sameas, "other", 1},
    {"sequence", t_sequence, "", 0},
    {"string", t_string, "", 0},
    {"test", t_test, "", 0},
    {"true", t_true, "", 0},
    {"undefined", t_undefined, "", 0},
    {"upper", t_upper, "", 0},
};

const struct fn_def *template_tests_find(const char *name, size_t len)
{
    return template_methods_among(tests, sizeof tests / sizeof *tests, name, len);
}
