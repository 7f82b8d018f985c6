// From a choice's tokens to events: parts of an answer in their channels, stop strings in content only, every token once and with
// the text it made, however the text is cut into tokens.
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "engine/model.h"
#include "engine/sched/session.h"
#include "engine/text/answer_int.h"
#include "engine/tokenizer/tokenizer.h"
#include "tests/helpers/byte_tokenizer.h"

static struct answer_style *hermes(void)
{
    struct answer_style *s = answer_style_new();
    answer_style_generic(s);
    answer_style_set(s, MARK_THINK, "<think>\n", 8);
    answer_style_set(s, MARK_THINK_END, "\n</think>\n\n", 11);
    return s;
}

// ---- what came

struct seen {
    struct buf text;  // "{R:reasoning}content{name:arguments}"
    enum channel channel;
    int tokens, nids;
    int32_t ids[4096];
    unsigned char with[4096];  // channel of the event that brought token i
};

static void leave(struct seen *s, enum channel next)
{
    if (s->channel == CHANNEL_REASONING && next != CHANNEL_REASONING)
        buf_add_str(&s->text, "}");
    if (next == CHANNEL_REASONING && s->channel != CHANNEL_REASONING)
        buf_add_str(&s->text, "{R:");
    s->channel = next;
}

static void on_event(struct task *t, const struct event *ev)
{
    struct seen *s = t->ud;
    assert_int_equal(ev->kind, EVENT_TEXT);
    if (ev->len > 0 || ev->name || ev->call_ends) {
        leave(s, ev->channel);
        if (ev->name)
            buf_printf(&s->text, "{%s:", ev->name);
        buf_add(&s->text, ev->text, ev->len);
        buf_add_str(&s->text, ev->call_ends ? "}" : "");
    }
    if (ev->nids)
        memcpy(s->ids + s->nids, ev->ids, ev->nids * sizeof *ev->ids);
    s->nids += (int)ev->nids;
    for (size_t i = 0; i < ev->ntokens; i++) {
        assert_int_equal(ev->tokens[i].token.logprob, s->tokens);  // in order, none left out
        s->with[s->tokens++] = (unsigned char)ev->channel;
    }
}

// ---- one answer

struct run {
    struct session s;
    struct task *t;
    struct choice c;
    struct model model;
    struct seen seen;
    int32_t ids[4096];
    size_t start[4096];
    int n;
};

static void cut(struct run *r, const char *text, uint64_t seed)
{
    size_t len = strlen(text), n;
    for (size_t at = 0; at < len; at += n, r->n++) {
        r->start[r->n] = at;
        r->ids[r->n] = byte_tokenizer_at(text + at, len - at, rng_u64(seed, at, 0), &n);
    }
    r->start[r->n] = len;
}

static struct run *begin(const struct tokenizer *t, const struct answer_style *style, const json_t *tools, const char *stop,
                         bool include)
{
    struct run *r = calloc(1, sizeof *r);
    assert_non_null(r);
    r->t = task_new(TASK_GENERATE);
    r->t->on_event = on_event;
    r->t->ud = &r->seen;
    r->t->generate.prompt.messages = (json_t *)tools;  // only that there are some
    const char **stops = arena_alloc(&r->t->arena, sizeof *stops);
    stops[0] = stop;
    r->t->generate.stop = stops;
    r->t->generate.nstop = stop ? 1 : 0;
    r->t->generate.include_stop = include;
    r->model.tokenizer = (struct tokenizer *)t;
    r->s = (struct session){.task = r->t, .model = &r->model, .style = style, .ask = {.tools = tools}};
    buf_init(&r->seen.text, SIZE_MAX);
    buf_add_str(&r->seen.text, "");
    session_text_init(&r->s, &r->c);
    return r;
}

static void play(struct run *r)
{
    bool hit = false;
    for (int i = 0; i < r->n && !hit; i++) {
        struct token_logprob lp = {.token = {.id = r->ids[i], .logprob = (float)i}};
        hit = session_text_say(&r->s, &r->c, r->ids[i], &lp);
        if (!hit)
            session_text_send(&r->s, &r->c);
    }
    session_text_finish(&r->s, &r->c, false);
    leave(&r->seen, CHANNEL_CONTENT);
}

static void end(struct run *r)
{
    session_text_done(&r->c);
    buf_done(&r->seen.text);
    task_free(r->t);
    free(r);
}

#define TOOLS "[{\"type\":\"function\",\"function\":{\"name\":\"f\"}}]"

struct row {
    const char *text, *want, *stop;
    bool include, cut;                // cut: by the stop string
    const char *reasoning, *content;  // places in text: tokens inside come with that channel
};

static const struct row rows[] = {
    {"Hello done", "Hello done", NULL, false, false, NULL, "Hello done"},
    {"<think>\nhm hm\n</think>\n\nHello", "{R:hm hm}Hello", NULL, false, false, "hm hm", "Hello"},
    {"<think>\nhm\n</think>\n\nHello\n<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": 1}}\n</tool_call>",
     "{R:hm}Hello{f:{\"a\": 1}}", NULL, false, false, "hm", "Hello"},
    {"<think>\nzq,w\n</think>\n\na zq,w b", "{R:zq,w}a ", "zq,w", false, true, "zq,w", "a "},        // stops look at content only
    {"<think>\nzq,w\n</think>\n\na zq,w b", "{R:zq,w}a zq,w", "zq,w", true, true, "zq,w", "a zq,w"},
    {"zq<tool_call>{\"name\":\"f\"}</tool_call>,w", "zq{f:{}},w", "zq,w", false, false, NULL, "zq"},  // and not across other parts
    {"<think>\nh\xC3\xA9\n</think>\n\n\xC3\xA9\xC3\xA9", "{R:h\xC3\xA9}\xC3\xA9\xC3\xA9", NULL, false, false, "h\xC3\xA9", "\xC3\xA9\xC3\xA9"},
    {"see <thi", "see <thi", NULL, false, false, NULL, "see <thi"},
};

static void check_tokens(const struct run *r, const struct row *row, const char *part, enum channel channel)
{
    const char *at = part ? strstr(row->text, part) : NULL;
    size_t from = part ? (size_t)(at - row->text) : 0, to = part ? from + strlen(part) : 0;
    for (int i = 0; i < r->seen.tokens; i++)
        if (r->start[i] >= from && r->start[i + 1] <= to)
            assert_int_equal(r->seen.with[i], channel);
}

static void test_channels(void **state)
{
    (void)state;
    struct tokenizer *t = byte_tokenizer();
    struct answer_style *style = hermes();
    json_t *tools = json_loads(TOOLS, 0, NULL);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        for (uint64_t seed = 0; seed < 60; seed++) {
            const struct row *row = &rows[i];
            struct run *r = begin(t, style, tools, row->stop, row->include);
            cut(r, row->text, seed);
            play(r);
            if (strcmp(r->seen.text.data, row->want))
                fail_msg("%s gave %s", row->text, r->seen.text.data);
            if (!row->cut)
                assert_int_equal(r->seen.tokens, r->n);
            check_tokens(r, row, row->reasoning, CHANNEL_REASONING);
            check_tokens(r, row, row->content, CHANNEL_CONTENT);
            end(r);
        }
    json_decref(tools);
    answer_style_free(style);
    tokenizer_close(t);
}

// CHAT-17: a stop string that does not occur changes nothing, although all of its beginnings do.
static void test_unused_stop(void **state)
{
    (void)state;
    static const char text[] = "<think>\nhm </thin zq,\n</think>\n\ndone zq, zq <to zq,\n<tool_call>{\"name\":\"f\"}</tool_call>";
    struct tokenizer *t = byte_tokenizer();
    struct answer_style *style = hermes();
    json_t *tools = json_loads(TOOLS, 0, NULL);
    for (uint64_t seed = 0; seed < 100; seed++) {
        struct run *a = begin(t, style, tools, NULL, false), *b = begin(t, style, tools, "zq,w", false);
        cut(a, text, seed);
        cut(b, text, seed);
        play(a);
        play(b);
        assert_string_equal(a->seen.text.data, b->seen.text.data);
        assert_string_equal(a->seen.text.data, "{R:hm </thin zq,}done zq, zq <to zq,{f:{}}");
        assert_int_equal(a->seen.tokens, a->n);
        assert_int_equal(b->seen.tokens, b->n);
        end(a);
        end(b);
    }
    json_decref(tools);
    answer_style_free(style);
    tokenizer_close(t);
}

// Control tokens that are markers are seen by the parser and by nobody else; what counts is the tokens inside.
static void test_control_markers(void **state)
{
    (void)state;
    struct tokenizer *t = byte_tokenizer();
    struct answer_style *style = hermes();
    json_t *tools = json_loads(TOOLS, 0, NULL);
    for (int half = 0; half < 2; half++) {
        struct run *r = begin(t, style, tools, NULL, false);
        const int32_t ids[] = {BYTE_THINK, '\n', 'h', half ? 0xC3 : 'm', BYTE_THINK_END, '\n', '\n', 'o', 'k'};
        memcpy(r->ids, ids, sizeof ids);
        r->n = 9;
        play(r);
        assert_string_equal(r->seen.text.data, half ? "{R:h\xEF\xBF\xBD}ok" : "{R:hm}ok");
        assert_int_equal(r->seen.tokens, r->n);
        assert_int_equal(r->s.reasoning_tokens, 4);  // the marker that closes is one, the one that opens is not
        end(r);
        r = begin(t, NULL, tools, NULL, false);  // without a style they are not seen
        memcpy(r->ids, ids, sizeof ids);
        r->n = 9;
        play(r);
        assert_string_equal(r->seen.text.data, half ? "\nh\xEF\xBF\xBD\n\nok" : "\nhm\n\nok");
        end(r);
    }
    json_decref(tools);
    answer_style_free(style);
    tokenizer_close(t);
}

// Ids wait for no text: after each step all are told, in order, and the text is what it is without them.
static void test_ids(void **state)
{
    (void)state;
    struct tokenizer *t = byte_tokenizer();
    struct answer_style *style = hermes();
    json_t *tools = json_loads(TOOLS, 0, NULL);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        for (uint64_t seed = 0; seed < 60; seed++) {
            const struct row *row = &rows[i];
            struct run *r = begin(t, style, tools, row->stop, row->include);
            bool hit = false;
            r->t->generate.token_ids = true;
            r->s.nprompt = 2;
            session_add_id(&r->c, 7);
            session_add_id(&r->c, 8);
            cut(r, row->text, seed);
            for (int k = 0; k < r->n && !hit; k++) {
                session_add_id(&r->c, r->ids[k]);
                hit = session_text_say(&r->s, &r->c, r->ids[k], NULL);
                if (hit)
                    break;
                session_text_send(&r->s, &r->c);
                assert_int_equal(r->seen.nids, k + 1);
            }
            session_text_finish(&r->s, &r->c, false);
            struct event last = {0};
            session_text_ids(&r->s, &r->c, &last);
            leave(&r->seen, CHANNEL_CONTENT);
            assert_string_equal(r->seen.text.data, row->want);
            int n = r->c.nids - 2;
            assert_int_equal(r->seen.nids + (int)last.nids, n);
            if (last.nids)
                assert_int_equal(last.ids[0], r->ids[n - 1]);
            assert_memory_equal(r->seen.ids, r->ids, (size_t)r->seen.nids * sizeof *r->ids);
            free(r->c.ids);
            end(r);
        }
    json_decref(tools);
    answer_style_free(style);
    tokenizer_close(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_channels),
        cmocka_unit_test(test_unused_stop),
        cmocka_unit_test(test_control_markers),
        cmocka_unit_test(test_ids),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
