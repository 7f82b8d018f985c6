// answers.c - see answers.h.
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/rng.h"
#include "engine/text/answer.h"
#include "tests/helpers/answers.h"

struct seen {
    struct buf text;
    enum channel channel;
    int calls;   // begun
    bool open;   // the last of them has not ended
    size_t to;
};

static void close_part(struct seen *s)
{
    if (s->channel == CHANNEL_CALL)
        buf_add_str(&s->text, s->open ? "...}" : "");
    if (s->channel == CHANNEL_REASONING)
        buf_add_str(&s->text, "}");
}

static void on_part(void *ud, const struct answer_part *p)
{
    struct seen *s = ud;
    assert_true(p->from <= p->to);
    assert_true(p->from >= s->to || p->channel == CHANNEL_CALL);
    s->to = p->to;
    if (p->channel != s->channel)
        close_part(s);
    if (p->channel == CHANNEL_REASONING && s->channel != p->channel)
        buf_add_str(&s->text, "{R:");
    if (p->name) {
        assert_int_equal(p->channel, CHANNEL_CALL);
        assert_int_equal(p->call, s->calls);
        assert_false(s->open);
        s->calls++;
        s->open = true;
        buf_printf(&s->text, "{%s:", p->name);
    }
    if (p->channel == CHANNEL_CALL) {
        assert_true(s->open);
        assert_int_equal(p->call, s->calls - 1);
    } else {
        assert_true(p->len > 0);
    }
    buf_add(&s->text, p->text, p->len);
    s->channel = p->channel;
    if (p->call_ends) {
        buf_add_str(&s->text, "}");
        s->open = false;
    }
}

// Pieces end at cuts[0..n); the last is len.
static char *feed(const struct answer_style *s, struct json_t *tools, bool thinking, const char *text, const size_t *cuts, size_t n)
{
    struct answer_ask ask = {.tools = tools, .thinking = thinking};
    struct answer *a = answer_new(s, &ask);
    struct seen seen = {0};
    buf_init(&seen.text, 64 << 20);
    size_t at = 0;
    for (size_t i = 0; i < n; at = cuts[i++]) {
        // A copy of the piece's own, so that reading past it is seen.
        char *piece = test_malloc(cuts[i] - at + 1);
        memcpy(piece, text + at, cuts[i] - at);
        answer_feed(a, piece, cuts[i] - at, false, on_part, &seen);
        test_free(piece);
    }
    answer_finish(a, on_part, &seen);
    close_part(&seen);
    assert_int_equal(answer_ncalls(a), seen.calls - seen.open);
    answer_free(a);
    return buf_take(&seen.text);
}

char *answers_pieces(const struct answer_style *s, struct json_t *tools, bool thinking, const char *const *pieces, size_t n)
{
    struct buf text;
    buf_init(&text, 1 << 20);
    size_t cuts[64];
    assert_true(n <= 64);
    for (size_t i = 0; i < n; i++) {
        buf_add_str(&text, pieces[i]);
        cuts[i] = text.len;
    }
    char *got = feed(s, tools, thinking, text.data, cuts, n);
    buf_done(&text);
    return got;
}

void answers_check_bytes(const struct answer_style *s, struct json_t *tools, bool thinking, const char *text, size_t len,
                         const char *want)
{
    size_t *cuts = test_malloc((len + 1) * sizeof *cuts);
    for (int round = 0; round < 12; round++) {
        size_t n = 0, at = 0;
        while (at < len) {
            size_t left = len - at, most = left < 9 ? left : 9;
            at += round == 0 ? left : round == 1 ? 1 : 1 + rng_u64(len, (uint64_t)round, at) % most;
            cuts[n++] = at;
        }
        char *got = feed(s, tools, thinking, text, cuts, n);
        if (strcmp(got, want))
            fail_msg("round %d of\n  %s\ngave\n  %s\nnot\n  %s", round, text, got, want);
        free(got);
    }
    test_free(cuts);
}

void answers_check(const struct answer_style *s, struct json_t *tools, bool thinking, const char *text, const char *want)
{
    answers_check_bytes(s, tools, thinking, text, strlen(text), want);
}
