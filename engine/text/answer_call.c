// answer_call.c - calls in an answer: where they begin and end, names, and arguments that are JSON. The states are drawn in
// answer_parse.h.
#include "engine/text/answer_parse.h"

#include <stdlib.h>
#include <string.h>

#include <jansson.h>

#include "base/mem.h"

enum { MAX_NAME = 256 };

// ---- where calls begin and end

// The mark calls begin with at `at`.
static enum match find_start(const struct answer *a, bool first, enum answer_mark *ret_mark, size_t *ret_len)
{
    static const enum answer_mark marks[] = {MARK_LEAD, MARK_SECTION, MARK_CALL};
    for (int i = 0; i < 3; i++) {
        // Without markers of its own a call is told from content by standing at the start.
        if (a->s->bare && !first && marks[i] != MARK_LEAD)
            continue;
        if (marks[i] == MARK_CALL && !a->section && a->only_in_section)
            continue;
        size_t len;
        enum match m = answer_match(a, marks[i], &len);
        if (m == MATCH_YES) {
            *ret_mark = marks[i];
            *ret_len = len;
            return m;
        }
        if (m == MATCH_PART)
            return m;
    }
    return MATCH_NO;
}

static bool bare_object(const struct answer *a, bool first)
{
    return a->s->bare && first && a->s->form == FORM_OBJECT && !*a->s->mark[MARK_SECTION] && a->at < a->end &&
           *answer_at(a, a->at) == '{';
}

enum match answer_call_starts(const struct answer *a)
{
    enum answer_mark mark;
    size_t len;
    bool first = !a->said && !a->begun;
    return bare_object(a, first) ? MATCH_YES : find_start(a, first, &mark, &len);
}

// What has come since low belongs to no call.
bool answer_call_fail(struct answer *a)
{
    if (a->open && !a->complete) {
        a->state = ST_BROKEN;
        return true;
    }
    answer_emit(a, CHANNEL_CONTENT, a->at);
    a->said = true;
    a->section = false;
    a->state = ST_SAY;
    return true;
}

static void begin(struct answer *a)
{
    a->open = a->complete = a->escaped = false;
    a->object = OB_OPEN;
    a->early = a->early_end = 0;
    a->nmembers = 0;
    free(a->name);
    a->name = NULL;
    a->state = a->s->form == FORM_OBJECT ? ST_OBJECT : ST_NAME;
    a->fresh = true;
}

// Behind a section's marker, a separator or what leads bare calls.
static bool step_open(struct answer *a)
{
    size_t len, n;
    answer_skip_space(a);
    if (a->at == a->end)
        return a->last && answer_call_fail(a);
    enum match section = a->section ? MATCH_NO : answer_match(a, MARK_SECTION, &len);
    if (section == MATCH_YES) {
        a->section = true;
        a->at += len;
        return true;
    }
    answer_mark_core(a->s->mark[MARK_CALL], &n);
    enum match m = n ? answer_match(a, MARK_CALL, &len) : MATCH_YES;
    if (m == MATCH_PART || section == MATCH_PART)
        return false;
    if (m == MATCH_NO)
        return answer_call_fail(a);
    a->at += n ? len : 0;
    begin(a);
    return true;
}

// What is left at the very end and might have become a marker is one that was cut.
static bool cut_marker(struct answer *a, enum answer_mark mark)
{
    size_t len, n = a->end - a->at;
    if (!a->last || !n || answer_mark_match(a->s->mark[mark], answer_at(a, a->at), n, &len) != MATCH_PART)
        return false;
    a->low = a->at = a->end;
    return true;
}

static bool step_close(struct answer *a)
{
    size_t len;
    answer_skip_space(a);
    if (a->at == a->end && !a->last)
        return false;
    enum match m = answer_match(a, MARK_CALL_END, &len);
    if (m == MATCH_PART)
        return false;
    if (m == MATCH_YES)
        a->at += len;
    else
        cut_marker(a, MARK_CALL_END);
    a->low = a->at;
    a->state = ST_BETWEEN;
    return true;
}

// A separator that is more than white space, or what some models write between bare calls.
static bool separated(const struct answer *a)
{
    size_t n;
    const char *core = answer_mark_core(a->s->mark[MARK_SEPARATOR], &n);
    char c = *answer_at(a, a->at);
    return (n == 1 && c == *core) || (a->s->bare && a->begun && c == ';') || (a->section && c == ',');
}

// Whether calls have a mark in front or a separator: else an object in a section is the next one.
static bool separator_counts(const struct answer *a)
{
    size_t call, separator;
    answer_mark_core(a->s->mark[MARK_CALL], &call);
    answer_mark_core(a->s->mark[MARK_SEPARATOR], &separator);
    return call || separator || a->s->form != FORM_OBJECT;
}

static bool step_between(struct answer *a)
{
    size_t len;
    enum answer_mark mark = MARK_CALL;
    answer_skip_space(a);
    a->low = a->at;
    if (a->at == a->end || (a->section && cut_marker(a, MARK_SECTION_END)))
        return false;
    enum match end = a->section ? answer_match(a, MARK_SECTION_END, &len) : MATCH_NO;
    if (end == MATCH_YES) {
        a->at += len;
        a->low = a->at;
        a->section = false;
        return true;
    }
    bool first = !a->said && (!a->begun || a->complete);
    if (bare_object(a, first)) {
        begin(a);
        return true;
    }
    enum match m = find_start(a, first, &mark, &len);
    if (m == MATCH_PART || end == MATCH_PART)
        return false;
    if (m == MATCH_YES) {
        a->at += len;
        a->section = a->section || mark == MARK_SECTION;
        if (mark == MARK_CALL)
            begin(a);
        else
            a->state = ST_OPEN;
    } else if (a->section && !separator_counts(a) && *answer_at(a, a->at) == '{') {
        begin(a);
    } else if (a->begun && separated(a)) {
        a->at++;
        a->state = ST_OPEN;
    } else {
        answer_to_say(a);
    }
    return true;
}

// ---- a call's name

static bool known(const struct answer *a, const char *name)
{
    json_t *tool;
    size_t i;
    json_array_foreach(a->tools, i, tool) {
        const char *n = json_string_value(json_object_get(json_object_get(tool, "function"), "name"));
        if (n && !strcmp(n, name))
            return true;
    }
    return false;
}

// Whether a->name can be a call's.
static bool name_fits(const struct answer *a)
{
    return a->name && *a->name && (!a->s->bare || known(a, a->name));
}

void answer_call_open(struct answer *a)
{
    a->begun++;
    a->open = true;
    answer_emit_call(a, a->name, NULL, false);
}

bool answer_call_end(struct answer *a, struct buf *out)
{
    a->ended++;
    a->complete = true;
    answer_emit_call(a, NULL, out, true);
    return true;
}

static bool name_char(const struct answer *a, char c)
{
    const char *end = a->s->mark[MARK_NAME_END];
    if (answer_mark_space(c) || (unsigned char)c < 0x20 || strchr("<[({\"'`=,", c))
        return false;
    return c != *end || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

static bool step_name(struct answer *a)
{
    if (a->fresh) {
        answer_skip_space(a);
        a->from = a->at;
        a->fresh = a->at == a->end;
    }
    while (a->at < a->end && name_char(a, *answer_at(a, a->at)))
        a->at++;
    if (a->at - a->from > MAX_NAME)
        return answer_call_fail(a);
    if (a->at == a->end)
        return a->last && answer_call_fail(a);
    a->name = mem_strndup(answer_at(a, a->from), a->at - a->from);
    if (!name_fits(a))
        return answer_call_fail(a);
    a->state = ST_NAME_END;
    return true;
}

// What stands behind the name; an id in it may be missing. *ret_len includes white space in front.
static enum match match_name_end(const struct answer *a, size_t *ret_len)
{
    const char *mark = a->s->mark[MARK_NAME_END], *id = strpbrk(mark, MARK_WILD);
    const char *p = answer_at(a, a->at);
    size_t n = a->end - a->at, core, space = 0, len = 0;
    *ret_len = 0;
    answer_mark_core(mark, &core);
    if (!core)
        return MATCH_YES;
    while (space < n && answer_mark_space(p[space]))
        space++;
    enum match m = answer_mark_match(mark, p + space, n - space, &len);
    enum match without = id && m != MATCH_YES ? answer_mark_match(id + 1, p + space, n - space, &len) : MATCH_NO;
    *ret_len = space + len;
    if (m == MATCH_YES || without == MATCH_YES)
        return MATCH_YES;
    return !a->last && (m == MATCH_PART || without == MATCH_PART) ? MATCH_PART : MATCH_NO;
}

static bool step_name_end(struct answer *a)
{
    size_t len;
    enum match m = match_name_end(a, &len);
    if (m == MATCH_PART)
        return false;
    if (m == MATCH_NO)
        return answer_call_fail(a);
    if (a->s->form == FORM_NAMED) {  // the name comes out when an object begins
        size_t at = a->at;
        a->at += len;
        answer_skip_space(a);
        if (a->at == a->end && !a->last) {
            a->at = at;
            return false;
        }
        if (a->at == a->end || *answer_at(a, a->at) != '{')
            return answer_call_fail(a);
        answer_call_open(a);
        answer_json_start(&a->json);
        a->state = ST_ARGUMENTS;
        return true;
    }
    a->at += len;
    a->state = a->s->form == FORM_TAGS ? ST_KEY : ST_MEMBER;
    return true;
}

// ---- arguments that are JSON

// Bytes from .. to as they are, but for control characters in strings, which no reader of JSON would take.
static void add_json(struct answer *a, size_t from, size_t to)
{
    const char *p = answer_at(a, from);
    for (size_t n = to - from, at = 0; at < n;) {
        size_t plain = at;
        while (plain < n && ((unsigned char)p[plain] >= 0x20 || answer_mark_space(p[plain])))
            plain++;
        buf_add(&a->out, p + at, plain - at);
        at = plain;
        if (at < n)
            answer_value_escape(&a->out, p + at++, 1);
    }
}

static bool step_arguments(struct answer *a)
{
    enum answer_json_step step = JSON_MORE;
    while (a->at < a->end && step == JSON_MORE) {
        unsigned char c = (unsigned char)*answer_at(a, a->at);
        bool raw = c < 0x20 && answer_json_in_string(&a->json);
        step = answer_json_step(&a->json, c);
        if (step == JSON_BAD)
            break;
        if (raw)
            answer_value_escape(&a->out, answer_at(a, a->at), 1);
        else
            buf_add_char(&a->out, (char)c);
        a->at++;
    }
    if (step == JSON_END) {
        answer_call_end(a, &a->out);
        a->object = OB_NEXT;
        a->state = a->s->form == FORM_OBJECT ? ST_OBJECT : ST_CLOSE;
        return true;
    }
    answer_emit_call(a, NULL, &a->out, false);
    return step == JSON_BAD && answer_call_fail(a);
}

// Arguments that are no JSON come out as they are; what ends the call is all that can be looked for.
static bool step_broken(struct answer *a)
{
    for (size_t len; a->at < a->end; a->at++) {
        enum match m = answer_match(a, MARK_CALL_END, &len);
        if (m == MATCH_YES) {
            answer_call_end(a, &a->out);
            a->state = ST_CLOSE;
            return true;
        }
        if (m == MATCH_PART)
            break;
        buf_add(&a->out, answer_at(a, a->at), 1);
    }
    answer_emit_call(a, NULL, &a->out, false);
    return false;
}

// ---- an object that holds name and arguments

// The text of the JSON string at from .. to, freed by the caller; NULL: it is none.
static char *string_at(const struct answer *a, size_t from, size_t to, size_t *ret_len)
{
    json_t *v = json_loadb(answer_at(a, from), to - from, JSON_DECODE_ANY | JSON_ALLOW_NUL, NULL);
    char *text = json_is_string(v) ? mem_strndup(json_string_value(v), *ret_len = json_string_length(v)) : NULL;
    json_decref(v);
    return text;
}

// Gives out arguments that are read already: JSON, or JSON in a string as some templates quote it. False: neither.
static bool whole_arguments(struct answer *a, size_t from, size_t to)
{
    char c = *answer_at(a, from), *text = NULL;
    size_t len = 0;
    if (c == '{') {
        add_json(a, from, to);
    } else if (c == 'n') {
        buf_add_str(&a->out, "{}");
    } else {
        text = string_at(a, from, to, &len);
        json_t *v = text ? json_loadb(text, len, JSON_ALLOW_NUL, NULL) : NULL;
        bool object = json_is_object(v);
        json_decref(v);
        buf_add(&a->out, object ? text : "", object ? len : 0);
        free(text);
        if (!object)
            return false;
    }
    answer_call_open(a);
    return answer_call_end(a, &a->out);
}

static enum answer_key key_of(const struct answer *a, const char *p, size_t n)
{
    static const char *const arguments[] = {"arguments", "parameters"};
    const char *name = a->s->mark[MARK_NAME_KEY], *args = a->s->mark[MARK_ARGUMENTS_KEY];
    if (n == strlen(name) && !memcmp(p, name, n))
        return KEY_NAME;
    if (n == strlen(args) && !memcmp(p, args, n))
        return KEY_ARGUMENTS;
    for (int i = 0; i < 2; i++)
        if (n == strlen(arguments[i]) && !memcmp(p, arguments[i], n))
            return KEY_ARGUMENTS;
    return KEY_OTHER;
}

// Keys a call may have beside the two; with another one a bare object is no call.
static bool key_fits(const struct answer *a, const char *p, size_t n)
{
    static const char *const others[] = {"type", "id", "tool_call_id", "description"};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (n == strlen(others[i]) && !memcmp(p, others[i], n))
            return true;
    return !a->s->bare;
}

static bool object_key(struct answer *a, char c)
{
    if (a->escaped || c != '"') {
        a->escaped = !a->escaped && c == '\\';
        a->at++;
        return a->at - a->from <= MAX_NAME || answer_call_fail(a);
    }
    const char *p = answer_at(a, a->from);
    size_t n = a->at - a->from;
    a->key = key_of(a, p, n);
    if (a->key == KEY_OTHER && !a->complete && !key_fits(a, p, n))
        return answer_call_fail(a);
    a->at++;
    a->object = OB_COLON;
    return true;
}

static bool value_begins(struct answer *a, char c)
{
    a->from = a->at;
    answer_json_start(&a->json);
    a->object = OB_IN_VALUE;
    if (a->complete)
        return true;
    if ((a->key == KEY_NAME && (c != '"' || a->name)) || (a->key == KEY_ARGUMENTS && (!strchr("{\"n", c) || a->early_end)))
        return answer_call_fail(a);
    if (a->key == KEY_ARGUMENTS && c == '{' && a->name) {
        answer_call_open(a);
        a->state = ST_ARGUMENTS;
    }
    return true;
}

// `at` is behind the value.
static bool value_ended(struct answer *a)
{
    a->object = OB_NEXT;
    if (a->complete || a->key == KEY_OTHER)
        return true;
    if (a->key == KEY_NAME) {
        size_t len = 0;
        a->name = a->at - a->from <= MAX_NAME ? string_at(a, a->from, a->at, &len) : NULL;
        if (!name_fits(a) || strlen(a->name) != len)
            return answer_call_fail(a);
    } else {
        a->early = a->from;
        a->early_end = a->at;
    }
    if (a->name && a->early_end && !whole_arguments(a, a->early, a->early_end))
        return answer_call_fail(a);
    return true;
}

static bool object_value(struct answer *a, char c)
{
    switch (answer_json_step(&a->json, (unsigned char)c)) {
    case JSON_MORE: a->at++; return true;
    case JSON_END: a->at++; return value_ended(a);
    case JSON_AFTER: return value_ended(a);
    default: return answer_call_fail(a);
    }
}

static bool object_ended(struct answer *a)
{
    a->at++;
    if (!a->complete && !a->name)
        return answer_call_fail(a);
    if (!a->complete) {  // no arguments at all
        answer_call_open(a);
        buf_add_str(&a->out, "{}");
        answer_call_end(a, &a->out);
    }
    a->low = a->at;
    a->state = ST_CLOSE;
    return true;
}

static bool object_byte(struct answer *a, char c)
{
    if (a->object == OB_IN_KEY)
        return object_key(a, c);
    if (a->object == OB_IN_VALUE)
        return object_value(a, c);
    if (answer_mark_space(c)) {
        a->at++;
        return true;
    }
    if (a->object == OB_VALUE)
        return value_begins(a, c);
    if (c == '}' && (a->object == OB_FIRST_KEY || a->object == OB_NEXT))
        return object_ended(a);
    static const char wanted[] = {[OB_OPEN] = '{', [OB_FIRST_KEY] = '"', [OB_KEY] = '"', [OB_COLON] = ':', [OB_NEXT] = ','};
    static const enum answer_object after[] = {
        [OB_OPEN] = OB_FIRST_KEY, [OB_FIRST_KEY] = OB_IN_KEY, [OB_KEY] = OB_IN_KEY, [OB_COLON] = OB_VALUE, [OB_NEXT] = OB_KEY};
    if (c != wanted[a->object])
        return answer_call_fail(a);
    a->at++;
    a->object = after[a->object];
    a->from = a->at;
    a->escaped = false;
    return true;
}

static bool step_object(struct answer *a)
{
    while (a->state == ST_OBJECT && a->at < a->end)
        object_byte(a, *answer_at(a, a->at));
    if (a->state != ST_OBJECT)
        return true;
    return a->last && !a->complete && answer_call_fail(a);
}

bool answer_call_step(struct answer *a)
{
    switch (a->state) {
    case ST_OPEN: return step_open(a);
    case ST_OBJECT: return step_object(a);
    case ST_NAME: return step_name(a);
    case ST_NAME_END: return step_name_end(a);
    case ST_ARGUMENTS: return step_arguments(a);
    case ST_BROKEN: return step_broken(a);
    case ST_CLOSE: return step_close(a);
    case ST_BETWEEN: return step_between(a);
    default: return answer_args_step(a);
    }
}
