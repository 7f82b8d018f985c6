// answer_style.c - a style as data: markers and the form of calls. Made at load by chat_answer.c; immutable then.
#include "engine/text/answer_int.h"

#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/mem.h"

static const char *const mark_names[MARKS] = {
    [MARK_TURN] = "turn", [MARK_THINK] = "think", [MARK_THINK_END] = "think_end", [MARK_SAY] = "say",
    [MARK_SAY_END] = "say_end", [MARK_LEAD] = "lead", [MARK_SECTION] = "section", [MARK_SECTION_END] = "section_end",
    [MARK_CALL] = "call", [MARK_CALL_END] = "call_end", [MARK_SEPARATOR] = "separator", [MARK_NAME_KEY] = "name_key",
    [MARK_ARGUMENTS_KEY] = "arguments_key", [MARK_OBJECT] = "object", [MARK_MIDDLE] = "middle",
    [MARK_OBJECT_END] = "object_end", [MARK_NAME_END] = "name_end", [MARK_KEY] = "key", [MARK_KEY_END] = "key_end",
    [MARK_VALUE_END] = "value_end", [MARK_QUOTE] = "quote",
};
static const char *const form_names[] = {
    [FORM_OBJECT] = "object", [FORM_NAMED] = "named", [FORM_TAGS] = "tags", [FORM_BRACES] = "braces",
    [FORM_PYTHON] = "python",
};

struct answer_style *answer_style_new(void)
{
    struct answer_style *s = mem_new(sizeof *s);
    for (int i = 0; i < MARKS; i++)
        s->mark[i] = mem_strdup("");
    return s;
}

void answer_style_free(struct answer_style *s)
{
    if (!s)
        return;
    for (int i = 0; i < MARKS; i++)
        free(s->mark[i]);
    free(s);
}

void answer_style_set(struct answer_style *s, enum answer_mark mark, const char *text, size_t len)
{
    free(s->mark[mark]);
    s->mark[mark] = mem_strndup(text, len);
}

void answer_style_generic(struct answer_style *s)
{
    static const struct {
        enum answer_mark mark;
        const char *text;
    } marks[] = {
        {MARK_CALL, ANSWER_GENERIC_CALL}, {MARK_CALL_END, ANSWER_GENERIC_CALL_END}, {MARK_SEPARATOR, "\n"},
        {MARK_NAME_KEY, "name"}, {MARK_ARGUMENTS_KEY, "arguments"}, {MARK_OBJECT, "{\"name\": \""},
        {MARK_MIDDLE, "\", \"arguments\": "}, {MARK_OBJECT_END, "}"},
    };
    for (size_t i = 0; i < sizeof marks / sizeof *marks; i++)
        answer_style_set(s, marks[i].mark, marks[i].text, strlen(marks[i].text));
    s->form = FORM_OBJECT;
    s->calls = s->generic = true;
}

char *answer_style_text(const struct answer_style *s)
{
    struct buf b;
    buf_init(&b, 1 << 16);
    buf_add_str(&b, s->calls ? form_names[s->form] : "none");
    if (s->calls)
        buf_printf(&b, "%s%s", s->bare ? " bare" : "", s->generic ? " generic" : "");
    for (int i = 0; i < MARKS; i++) {
        if (!*s->mark[i])
            continue;
        buf_printf(&b, " %s=\"", mark_names[i]);
        for (const char *p = s->mark[i]; *p; p++)
            if (*p == '\n')
                buf_add_str(&b, "\\n");
            else
                buf_add_char(&b, *p == MARK_ID ? '*' : *p == MARK_INDEX ? '#' : *p);
        buf_add_char(&b, '"');
    }
    return buf_take(&b);
}

// ---- what prompts and callers ask of it

bool answer_thinks(const struct answer_style *s)
{
    return *s->mark[MARK_THINK_END];
}

const char *answer_close(const struct answer_style *s)
{
    return answer_thinks(s) ? s->mark[MARK_THINK_END] : NULL;
}

static bool ends_with(const char *p, size_t len, const char *core, size_t n)
{
    while (len && answer_mark_space(p[len - 1]))
        len--;
    return n && len >= n && !memcmp(p + len - n, core, n);
}

// What follows where `core` stands last; NULL: nowhere.
static const char *behind_last(const char *p, size_t len, const char *core, size_t n)
{
    for (size_t at = n && len >= n ? len - n + 1 : 0; at-- > 0;)
        if (!memcmp(p + at, core, n))
            return p + at + n;
    return NULL;
}

// A user's text, or a tool's, may hold any marker: only what opens a turn, and comes first in the last one, is the
// template's own. (Or the client's, who has the model go on in the midst of reasoning.)
bool answer_opens(const struct answer_style *s, const char *prompt, size_t len)
{
    size_t open_len, close_len, turn_len;
    const char *open = answer_mark_core(s->mark[MARK_THINK], &open_len);
    const char *close = answer_mark_core(s->mark[MARK_THINK_END], &close_len);
    const char *turn = answer_mark_core(s->mark[MARK_TURN], &turn_len), *end = prompt + len;
    if (!close_len || !open_len)
        return false;
    if (ends_with(prompt, len, open, open_len))
        return true;
    const char *p = behind_last(prompt, len, turn, turn_len);
    while (p && p < end && answer_mark_space(*p))
        p++;
    size_t left = p ? (size_t)(end - p) : 0;
    return left >= open_len && !memcmp(p, open, open_len) && !memmem(p, left, close, close_len);
}

bool answer_is_marker(const struct answer_style *s, const char *text, size_t len)
{
    for (int i = MARK_THINK; i < MARKS && len; i++) {
        const char *m = s->mark[i];
        for (size_t n = strlen(m); n >= len; m++, n--)
            if (!memcmp(m, text, len) && answer_mark_tag(m, n) == len)
                return true;
    }
    return false;
}
