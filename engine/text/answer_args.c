// answer_args.c - arguments that are not written as JSON, put into JSON as they become known. The values come one by one;
// texts of parameters that take nothing else come as they are written.
#include "engine/text/answer_parse.h"

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"

enum { MAX_KEY = 256, MAX_DEPTH = 100000 };

static bool need_more(struct answer *a)
{
    return a->last && !a->open && answer_call_fail(a);
}

// `{"key": ` or `, "key": `; and the call's name in front of the first.
static void open_member(struct answer *a)
{
    if (!a->open)
        answer_call_open(a);
    buf_add_str(&a->out, a->nmembers++ ? ", \"" : "{\"");
    answer_value_escape(&a->out, a->member, a->member_len);
    buf_add_str(&a->out, "\": ");
    a->schema = answer_value_schema(a->tools, a->name, a->member, a->member_len, &a->root);
}

static void take_member(struct answer *a)
{
    free(a->member);
    a->member_len = a->at - a->from;
    a->member = mem_strndup(answer_at(a, a->from), a->member_len);
}

static bool end_members(struct answer *a)
{
    if (!a->open)
        answer_call_open(a);
    buf_add_str(&a->out, a->nmembers ? "}" : "{}");
    answer_call_end(a, &a->out);
    a->state = ST_CLOSE;
    return true;
}

// What follows is no argument. The name is out: the call ends here, and what is left is content.
static bool stray(struct answer *a)
{
    if (!a->open)
        return answer_call_fail(a);
    end_members(a);
    return answer_call_fail(a);
}

// ---- FORM_TAGS

static bool ends_line(const char *mark)
{
    size_t n = strlen(mark);
    return n && mark[n - 1] == '\n';
}

static bool step_key(struct answer *a)
{
    size_t len;
    answer_skip_space(a);
    if (a->at == a->end)
        return need_more(a);
    enum match key = answer_match(a, MARK_KEY, &len);
    if (key == MATCH_YES) {
        a->at += len;
        a->from = a->at;
        a->state = ST_KEY_END;
        return true;
    }
    // The end's first tag will do: step_close takes all of it.
    const char *end = a->s->mark[MARK_CALL_END];
    size_t n, core;
    const char *text = answer_mark_core(end, &core);
    size_t tag = answer_mark_tag(text, core), left = a->end - a->at;
    n = tag ? tag : core;
    if (left >= n && !memcmp(answer_at(a, a->at), text, n))
        return end_members(a);
    if (!a->last && (key == MATCH_PART || (left < n && !memcmp(answer_at(a, a->at), text, left))))
        return false;
    return stray(a);
}

static bool step_key_end(struct answer *a)
{
    for (size_t len; a->at < a->end; a->at++) {
        enum match m = answer_match(a, MARK_KEY_END, &len);
        if (m == MATCH_PART)
            return false;
        if (m == MATCH_YES) {
            take_member(a);
            a->at += len;
            a->from = a->at;
            a->fresh = ends_line(a->s->mark[MARK_KEY_END]);
            a->state = ST_VALUE;
            open_member(a);
            a->text_value = answer_value_text_only(a->schema, a->root);
            if (a->text_value)
                buf_add_char(&a->out, '"');
            answer_emit_call(a, NULL, &a->out, false);
            return true;
        }
        if (a->at - a->from > MAX_KEY || *answer_at(a, a->at) == '\n')
            return stray(a);
    }
    return need_more(a);
}

// The value's last byte but for the line feed that belongs to the mark behind it.
static size_t value_end(const struct answer *a)
{
    bool line = a->s->mark[MARK_VALUE_END][0] == '\n';
    return a->at - (line && a->at > a->from && *answer_at(a, a->at - 1) == '\n');
}

// Text comes out up to `to`.
static void pass_text(struct answer *a, size_t to)
{
    answer_value_escape(&a->out, answer_at(a, a->from), to - a->from);
    a->from = to;
}

static bool step_value(struct answer *a)
{
    if (a->fresh && a->at < a->end) {
        if (*answer_at(a, a->at) == '\n')
            a->from = ++a->at;
        a->fresh = false;
    }
    for (size_t len; a->at < a->end; a->at++) {
        enum match m = answer_match(a, MARK_VALUE_END, &len);
        if (m == MATCH_PART)
            break;
        if (m == MATCH_NO)
            continue;
        if (a->text_value) {
            pass_text(a, value_end(a));
            buf_add_char(&a->out, '"');
        } else {
            answer_value_text(&a->out, a->schema, a->root, answer_at(a, a->from), value_end(a) - a->from);
        }
        a->at += len;
        a->state = ST_KEY;
        answer_emit_call(a, NULL, &a->out, false);
        return true;
    }
    if (a->text_value) {
        size_t at = a->at;
        pass_text(a, a->at = value_end(a));
        answer_emit_call(a, NULL, &a->out, false);
        a->at = at;
    }
    return false;
}

// ---- FORM_BRACES, FORM_PYTHON

static char closing(const struct answer *a)
{
    return a->s->form == FORM_BRACES ? '}' : ')';
}

static bool step_member(struct answer *a)
{
    char assign = a->s->form == FORM_BRACES ? ':' : '=';
    answer_skip_space(a);
    if (a->at == a->end)
        return need_more(a);
    if (*answer_at(a, a->at) == closing(a)) {
        a->at++;
        return end_members(a);
    }
    a->from = a->at;
    size_t at = a->at;
    for (; at < a->end && *answer_at(a, at) != assign; at++)
        if (at - a->from > MAX_KEY || strchr("\n,(){}[]", *answer_at(a, at)))
            return stray(a);
    if (at == a->end)
        return need_more(a);
    a->at = at;
    while (at > a->from && answer_mark_space(*answer_at(a, at - 1)))
        at--;
    a->member_len = at - a->from;
    free(a->member);
    a->member = mem_strndup(answer_at(a, a->from), a->member_len);
    a->at++;
    a->from = a->at;
    a->depth = 0;
    a->quote = 0;
    a->escaped = false;
    open_member(a);
    answer_emit_call(a, NULL, &a->out, false);
    a->state = ST_MEMBER_VALUE;
    return true;
}

// Whether the byte at `at` ends the value; moves over it when not. MATCH_PART: a quote may begin here.
static enum match value_byte(struct answer *a)
{
    char c = *answer_at(a, a->at);
    size_t len = 1;
    if (a->s->form == FORM_BRACES) {
        enum match m = answer_match(a, MARK_QUOTE, &len);
        if (m == MATCH_PART)
            return m;
        if (m == MATCH_YES)
            a->quote = !a->quote;
        len = m == MATCH_YES ? len : 1;
        if (m == MATCH_YES || a->quote) {
            a->at += len;
            return MATCH_NO;
        }
    } else if (a->quote) {
        if (!a->escaped && c == a->quote)
            a->quote = 0;
        a->escaped = !a->escaped && c == '\\';
        a->at++;
        return MATCH_NO;
    } else if (c == '"' || c == '\'') {
        a->quote = c;
    }
    if (!a->depth && !a->quote && (c == ',' || c == closing(a)))
        return MATCH_YES;
    if (c == '{' || c == '[' || c == '(')
        a->depth += a->depth < MAX_DEPTH;
    else if (c == '}' || c == ']' || c == ')')
        a->depth -= a->depth > 0;
    a->at++;
    return MATCH_NO;
}

static bool step_member_value(struct answer *a)
{
    enum match m = MATCH_NO;
    while (a->at < a->end && (m = value_byte(a)) == MATCH_NO)
        ;
    if (m != MATCH_YES)
        return false;
    const char *p = answer_at(a, a->from);
    size_t n = a->at - a->from;
    if (a->s->form == FORM_BRACES)
        answer_value_braces(&a->out, a->s->mark[MARK_QUOTE], p, n);
    else
        answer_value_python(&a->out, p, n);
    if (*answer_at(a, a->at) == ',') {
        a->at++;
        answer_emit_call(a, NULL, &a->out, false);
    }
    a->state = ST_MEMBER;
    return true;
}

bool answer_args_step(struct answer *a)
{
    switch (a->state) {
    case ST_KEY: return step_key(a);
    case ST_KEY_END: return step_key_end(a);
    case ST_VALUE: return step_value(a);
    case ST_MEMBER: return step_member(a);
    default: return step_member_value(a);
    }
}
