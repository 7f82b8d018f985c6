// answer.c - an answer told apart while it comes: content and reasoning here, calls in answer_call.c. Owned by one choice.
#include "engine/text/answer_parse.h"

#include <stdlib.h>
#include <string.h>

#include <jansson.h>

#include "base/mem.h"

enum { MAX_HELD_SPACE = 16, MAX_PIECE = 64 << 20 };

struct answer *answer_new(const struct answer_style *s, const struct answer_ask *ask)
{
    struct answer *a = mem_new(sizeof *a);
    a->s = s;
    a->tools = s->calls && json_array_size(ask->tools) ? ask->tools : NULL;
    a->only_calls = a->tools && ask->rules && ask->rules->choice == TOOLS_REQUIRED;
    a->marker = SIZE_MAX;
    size_t section, call;
    answer_mark_core(s->mark[MARK_SECTION], &section);
    const char *mark = answer_mark_core(s->mark[MARK_CALL], &call);
    a->only_in_section = section && !answer_mark_tag(mark, call);
    buf_init(&a->out, MAX_PIECE);
    if (ask->thinking && answer_thinks(s)) {
        a->state = ST_THINK;
        a->fresh = true;
    }
    return a;
}

void answer_free(struct answer *a)
{
    if (!a)
        return;
    buf_done(&a->out);
    free(a->name);
    free(a->member);
    free(a->p);
    free(a);
}

bool answer_in_reasoning(const struct answer *a)
{
    return a->state == ST_THINK;
}

int answer_ncalls(const struct answer *a)
{
    return a->ended;
}

bool answer_in_call(const struct answer *a)
{
    size_t n;
    answer_mark_core(a->s->mark[a->section ? MARK_SECTION : MARK_CALL], &n);
    return n > 0 && !a->open && a->state > ST_THINK && a->state < ST_CLOSE;
}

// ---- giving out

void answer_emit(struct answer *a, enum channel channel, size_t to)
{
    bool cut = a->last && a->only_calls && channel == CHANNEL_CONTENT;  // the beginning of a call that was to come
    if (to > a->low && !cut) {
        struct answer_part part = {.channel = channel, .text = answer_at(a, a->low), .len = to - a->low, .from = a->low,
                                   .to = to};
        a->on_part(a->ud, &part);
    }
    a->low = to;
}

void answer_emit_call(struct answer *a, const char *name, struct buf *out, bool ends)
{
    struct answer_part part = {.channel = CHANNEL_CALL, .call = a->begun - 1, .name = name, .call_ends = ends,
                               .text = out && out->len ? out->data : "", .len = out ? out->len : 0, .from = a->low,
                               .to = a->at};
    a->low = a->at;
    if (name || ends || part.len)
        a->on_part(a->ud, &part);
    if (out)
        buf_clear(out);
}

enum match answer_match(const struct answer *a, enum answer_mark mark, size_t *ret_len)
{
    const char *text = a->s->mark[mark];
    size_t n;
    answer_mark_core(text, &n);
    if (!n)
        return MATCH_NO;
    enum match m = answer_mark_match(text, answer_at(a, a->at), a->end - a->at, ret_len);
    return m == MATCH_PART && a->last ? MATCH_NO : m;
}

void answer_skip_space(struct answer *a)
{
    while (a->at < a->end && answer_mark_space(*answer_at(a, a->at)))
        a->at++;
}

void answer_to_say(struct answer *a)
{
    a->state = ST_SAY;
    a->fresh = true;
}

// The end of what comes out whatever follows: white space before `at` may belong to a marker.
static size_t safe_end(const struct answer *a)
{
    size_t to = a->at;
    while (to > a->low && a->at - to < MAX_HELD_SPACE && answer_mark_space(*answer_at(a, to - 1)))
        to--;
    return to;
}

static void pass(struct answer *a, enum channel channel, size_t len)
{
    answer_emit(a, channel, safe_end(a));
    a->at += len;
    a->low = a->at;
    a->fresh = true;
}

// ---- reasoning

static bool skip_fresh(struct answer *a)
{
    if (!a->fresh)
        return true;
    answer_skip_space(a);
    a->low = a->at;
    a->fresh = a->at == a->end;
    return !a->fresh;
}

static bool step_think(struct answer *a)
{
    size_t len;
    bool first = a->fresh;
    if (!skip_fresh(a))
        return false;
    for (; a->at < a->end; a->at++, first = false) {
        enum match m = answer_match(a, MARK_THINK_END, &len);
        if (m == MATCH_YES) {
            pass(a, CHANNEL_REASONING, len);
            a->state = ST_SAY;
            return true;
        }
        enum match again = first && m == MATCH_NO ? answer_match(a, MARK_THINK, &len) : MATCH_NO;
        if (again == MATCH_YES) {  // the prompt has opened it, and the model does so once more
            pass(a, CHANNEL_REASONING, len);
            return true;
        }
        if (m == MATCH_PART || again == MATCH_PART) {
            a->fresh = first;
            break;
        }
    }
    answer_emit(a, CHANNEL_REASONING, a->last ? a->at : safe_end(a));
    return false;
}

// ---- content

// A marker that stands in no call. MATCH_YES: it has been dealt with. One that may still come goes before those behind it in
// the list, so that it does not matter in which pieces a text comes.
static enum match plain_marker(struct answer *a)
{
    static const enum answer_mark marks[] = {MARK_THINK, MARK_THINK_END, MARK_SAY, MARK_SAY_END};
    for (int i = 0; i < 4; i++) {
        // Reasoning comes first. Later such a text is something said, but for a token that nobody can say.
        if (i < 2 && a->said && a->marker != a->at)
            continue;
        size_t len;
        enum match m = answer_match(a, marks[i], &len);
        if (m == MATCH_YES) {
            pass(a, CHANNEL_CONTENT, len);
            if (marks[i] == MARK_THINK)
                a->state = ST_THINK;
            return MATCH_YES;
        }
        if (m == MATCH_PART)
            return m;
    }
    return MATCH_NO;
}

static bool step_say(struct answer *a)
{
    if (!skip_fresh(a))
        return false;
    for (; a->at < a->end; a->at++) {
        enum match m = plain_marker(a);
        if (m == MATCH_YES)
            return true;
        enum match call = a->tools && m == MATCH_NO ? answer_call_starts(a) : MATCH_NO;
        if (call == MATCH_YES) {
            answer_emit(a, CHANNEL_CONTENT, safe_end(a));
            a->low = a->at;
            a->state = ST_BETWEEN;
            return true;
        }
        if (m == MATCH_PART || call == MATCH_PART)
            break;
        if (!answer_mark_space(*answer_at(a, a->at)))
            a->said = true;
    }
    answer_emit(a, CHANNEL_CONTENT, a->last ? a->at : safe_end(a));
    return false;
}

// ---- the door

static void run(struct answer *a)
{
    bool more = true;
    while (more)
        switch (a->state) {
        case ST_SAY: more = step_say(a); break;
        case ST_THINK: more = step_think(a); break;
        default: more = answer_call_step(a);
        }
}

// Bytes that have come out are dropped once they are half of what is kept.
static void make_room(struct answer *a, size_t len)
{
    size_t done = a->low - a->base, kept = a->end - a->low;
    if (done && done >= kept) {
        memmove(a->p, a->p + done, kept);
        a->base = a->low;
    }
    size_t need = a->end - a->base + len;
    if (need > a->cap)
        a->p = mem_resize(a->p, a->cap = need * 2);
}

void answer_feed(struct answer *a, const char *text, size_t len, bool marker, answer_part_fn *on_part, void *ud)
{
    if (!len)
        return;
    make_room(a, len);
    memcpy(a->p + (a->end - a->base), text, len);
    if (marker)
        a->marker = a->end;
    a->end += len;
    a->on_part = on_part;
    a->ud = ud;
    run(a);
}

void answer_finish(struct answer *a, answer_part_fn *on_part, void *ud)
{
    if (!a->p)
        make_room(a, 1);
    a->last = true;
    a->on_part = on_part;
    a->ud = ud;
    run(a);
}
