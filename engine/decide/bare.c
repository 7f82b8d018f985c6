// bare.c - see bare.h. Any thread; owns nothing.
#include "engine/decide/bare.h"

static const char *const bools[BARE_BOOLS] = {"false", "true"};
static const char *const ints[BARE_INTS] = {"0", "1", "2", "3", "4", "5"};

const char *bare_kind(enum decide_kind k)
{
    static const char *const names[BARE_KINDS] = {
        [DECIDE_BOOL] = "noul", [DECIDE_INT] = "score", [DECIDE_ENUM] = "choice"};
    return names[k];
}

const char *bare_option(enum decide_kind k, int i)
{
    return k == DECIDE_BOOL ? bools[i] : ints[i];
}

int bare_options(const struct decide_question *q)
{
    return q->kind == DECIDE_ENUM ? (int)q->noptions : q->kind == DECIDE_BOOL ? BARE_BOOLS : BARE_INTS;
}

static void add_option(const struct decide_question *q, const struct labels *labels, int i, struct buf *out)
{
    if (q->kind == DECIDE_ENUM) {
        buf_add_str(out, labels->text[i]);
        buf_add_str(out, ") ");
        buf_add_str(out, q->options[i]);
    } else {
        buf_add_str(out, bare_option(q->kind, i));
    }
    buf_add_char(out, '\n');
}

static void add_question(const char *state, const struct decide_question *q, const struct labels *labels, struct buf *out)
{
    const char *const parts[] = {"[kind] ", bare_kind(q->kind), "\n[state] ", state, "\n[question] ", q->text,
                                 "\n[options]\n"};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        buf_add_str(out, parts[i]);
    for (int i = 0; i < bare_options(q); i++)
        add_option(q, labels, i, out);
}

void bare_text(const char *state, const struct decide_question *q, const struct labels *labels, struct buf *out)
{
    add_question(state, q, labels, out);
    buf_add_str(out, "[decision]:");
}

void bare_message(const char *state, const struct decide_question *q, const struct labels *labels, struct buf *out)
{
    static const char *const how[BARE_KINDS] = {
        [DECIDE_BOOL] = "Answer with one word, true or false.", [DECIDE_INT] = "Answer with one digit, 0 to 5.",
        [DECIDE_ENUM] = "Answer with the label of one option and nothing else."};
    add_question(state, q, labels, out);
    buf_add_str(out, how[q->kind]);
}
