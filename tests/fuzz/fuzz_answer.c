// Any bytes as a model's answer in a style that the first bytes choose: it comes apart the same whatever pieces it comes in,
// and every byte comes out or is markup.
#include <jansson.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "engine/text/answer_int.h"

static const struct {
    enum answer_form form;
    bool bare;
    const char *marks[MARKS];
} styles[] = {
    {FORM_OBJECT, false, {[MARK_THINK] = "<think>\n", [MARK_THINK_END] = "\n</think>\n\n", [MARK_CALL] = "<tool_call>\n",
        [MARK_CALL_END] = "\n</tool_call>", [MARK_SEPARATOR] = "\n", [MARK_NAME_KEY] = "name", [MARK_ARGUMENTS_KEY] = "arguments"}},
    {FORM_OBJECT, true, {[MARK_LEAD] = "<|python_tag|>", [MARK_NAME_KEY] = "name", [MARK_ARGUMENTS_KEY] = "parameters"}},
    {FORM_OBJECT, false, {[MARK_SECTION] = "[TOOL_CALLS][", [MARK_SECTION_END] = "]", [MARK_SEPARATOR] = ", ",
        [MARK_NAME_KEY] = "name", [MARK_ARGUMENTS_KEY] = "arguments"}},
    {FORM_OBJECT, false, {[MARK_THINK] = "<T>", [MARK_THINK_END] = "</T>", [MARK_SAY] = "<R>", [MARK_SAY_END] = "</R>",
        [MARK_SECTION] = "<A>[", [MARK_SECTION_END] = "\n]</A>", [MARK_CALL] = "\n    ", [MARK_SEPARATOR] = ",",
        [MARK_NAME_KEY] = "tool_name", [MARK_ARGUMENTS_KEY] = "parameters"}},
    {FORM_NAMED, false, {[MARK_CALL] = "[TOOL_CALLS]", [MARK_NAME_END] = "[CALL_ID]\1[ARGS]", [MARK_THINK] = "[THINK]",
        [MARK_THINK_END] = "[/THINK]"}},
    {FORM_NAMED, false, {[MARK_SECTION] = "<S>", [MARK_SECTION_END] = "</S>", [MARK_CALL] = "<C>functions.",
        [MARK_NAME_END] = ":\2<B>", [MARK_CALL_END] = "</C>"}},
    {FORM_TAGS, false, {[MARK_CALL] = "<tool_call>\n<function=", [MARK_CALL_END] = "\n</function>\n</tool_call>",
        [MARK_SEPARATOR] = "\n", [MARK_NAME_END] = ">", [MARK_KEY] = "\n<parameter=", [MARK_KEY_END] = ">\n",
        [MARK_VALUE_END] = "\n</parameter>"}},
    {FORM_TAGS, false, {[MARK_CALL] = "<tool_call>", [MARK_CALL_END] = "\n</tool_call>", [MARK_KEY] = "\n<k>",
        [MARK_KEY_END] = "</k>\n<v>", [MARK_VALUE_END] = "</v>"}},
    {FORM_BRACES, false, {[MARK_CALL] = "<c>call:", [MARK_CALL_END] = "</c>", [MARK_NAME_END] = "{", [MARK_QUOTE] = "<q>"}},
    {FORM_PYTHON, true, {[MARK_SECTION] = "[", [MARK_SECTION_END] = "]", [MARK_SEPARATOR] = ", ", [MARK_NAME_END] = "("}},
};
enum { STYLES = sizeof styles / sizeof *styles };

static const char tool_list[] =
    "[{\"type\":\"function\",\"function\":{\"name\":\"f\",\"parameters\":{\"type\":\"object\",\"properties\":{\"s\":{\"type\":"
    "\"string\"},\"i\":{\"type\":\"integer\"},\"n\":{\"type\":[\"string\",\"null\"]},\"b\":{\"type\":\"boolean\"}}}}}]";

static struct answer_style *style(int which)
{
    struct answer_style *s = answer_style_new();
    for (int i = 0; i < MARKS; i++)
        if (styles[which].marks[i])
            answer_style_set(s, (enum answer_mark)i, styles[which].marks[i], strlen(styles[which].marks[i]));
    s->form = styles[which].form;
    s->bare = styles[which].bare;
    s->calls = true;
    return s;
}

struct seen {
    const char *in;
    size_t len, at;       // bytes before `at` are accounted for
    const struct answer_style *s;
    bool behind_call;     // the last part was a call's
    struct buf parts, arguments;
    int last;             // the kind of the last part
};

// Bytes that came out nowhere are white space and marks, or stand behind arguments.
static void check_markup(struct seen *s, size_t to)
{
    while (s->at < to && !s->behind_call) {
        size_t best = answer_mark_space(s->in[s->at]);
        for (int i = MARK_THINK; i < MARKS && !best; i++) {
            size_t n, core;
            answer_mark_core(s->s->mark[i], &core);
            enum match m = core ? answer_mark_match(s->s->mark[i], s->in + s->at, s->len - s->at, &n) : MATCH_NO;
            best = m == MATCH_YES ? n : m == MATCH_PART ? s->len - s->at : 0;
        }
        if (!best)
            abort();
        s->at += best;
    }
    s->at = to;
}

static void check_arguments(const struct seen *s)
{
    struct answer_json j;
    enum answer_json_step step = JSON_MORE;
    answer_json_start(&j);
    for (size_t i = 0; i < s->arguments.len; i++)
        if (step != JSON_MORE || (step = answer_json_step(&j, (unsigned char)s->arguments.data[i])) == JSON_BAD)
            abort();
    if (step != JSON_END || s->arguments.data[0] != '{')
        abort();
}

static void on_part(void *ud, const struct answer_part *p)
{
    struct seen *s = ud;
    int kind = p->channel == CHANNEL_CALL ? 10 + p->call : (int)p->channel;
    if (p->to < p->from || p->to > s->len || p->from < s->at)
        abort();
    if (p->channel != CHANNEL_CALL) {
        check_markup(s, p->from);
        if (p->to - p->from != p->len || memcmp(p->text, s->in + p->from, p->len))
            abort();
    } else {
        if (p->name && !s->behind_call)
            check_markup(s, p->from);
        if (p->name)
            buf_clear(&s->arguments);
        buf_add(&s->arguments, p->text, p->len);
        if (p->call_ends && s->s->form >= FORM_TAGS)
            check_arguments(s);
    }
    s->at = p->to;
    s->behind_call = p->channel == CHANNEL_CALL;
    if (kind != s->last || p->name)
        buf_printf(&s->parts, "\n%d %s:", kind, p->name ? p->name : "");
    buf_add(&s->parts, p->text, p->len);
    buf_add_str(&s->parts, p->call_ends ? "." : "");
    s->last = kind;
}

static void run(const struct answer_style *s, json_t *tools, bool thinking, const uint8_t *data, size_t size, unsigned step,
                struct seen *seen)
{
    struct answer_ask ask = {.tools = tools, .thinking = thinking};
    struct answer *a = answer_new(s, &ask);
    *seen = (struct seen){.in = (const char *)data, .len = size, .s = s, .last = -1};
    buf_init(&seen->parts, 64 << 20);
    buf_init(&seen->arguments, 64 << 20);
    for (size_t at = 0, n; at < size; at += n) {
        n = step ? 1 + (at * 7 + step) % step : size;
        n = n < size - at ? n : size - at;
        answer_feed(a, (const char *)data + at, n, false, on_part, seen);
    }
    answer_finish(a, on_part, seen);
    check_markup(seen, size);
    answer_free(a);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 2)
        return 0;
    struct answer_style *s = style(data[0] % STYLES);
    json_t *tools = json_loads(tool_list, 0, NULL);
    struct seen whole, cut;
    run(s, tools, data[1] & 1, data + 2, size - 2, 0, &whole);
    for (unsigned step = 1; step <= 9; step += 4) {
        run(s, tools, data[1] & 1, data + 2, size - 2, step, &cut);
        if (cut.parts.len != whole.parts.len || (cut.parts.len && memcmp(cut.parts.data, whole.parts.data, cut.parts.len)))
            abort();
        buf_done(&cut.parts);
        buf_done(&cut.arguments);
    }
    buf_done(&whole.parts);
    buf_done(&whole.arguments);
    json_decref(tools);
    answer_style_free(s);
    return 0;
}
