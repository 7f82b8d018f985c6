// chat_answer.c - how answers to a template's prompts are written: read off what the template makes of a conversation with
// reasoning and calls. At load; the style is immutable then.
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jansson.h>

#include "base/mem.h"
#include "engine/text/answer_int.h"
#include "engine/text/chat_int.h"

enum { PROBE_NOW = 1700000000 };

#define SAID "prb_said"
#define THOUGHT "prb_thought"
#define FIRST "prb_alpha"
#define SECOND "prb_beta"
#define KEY_A "prb_arg_a"
#define KEY_B "prb_arg_b"
#define VALUE_A "prb_val"
#define ID "prbcallid"  // letters and nine: what any template takes
#define VALUE_B "7391"

struct probe {
    const struct chat *c;
    int which;             // of the two templates
    struct answer_style *s;
};

// A stretch of text.
struct cut {
    const char *p;
    size_t n;
};

// ---- conversations

static json_t *user(void)
{
    return json_pack("[{s:s, s:s}]", "role", "user", "content", "prb_user");
}

static json_t *answered(const char *said, bool thought)
{
    json_t *m = user(), *a = json_pack("{s:s, s:s}", "role", "assistant", "content", said);
    if (thought)
        json_object_set_new(a, "reasoning_content", json_string(THOUGHT));
    json_array_append_new(m, a);
    return m;
}

// All calls have one id, so that what is the same in two of them is the template's but for it.
static json_t *call(const struct probe *p, const char *name, int index)
{
    char id[40] = ID;
    if (p->c->traits.named_ids)
        snprintf(id, sizeof id, "functions.%s:%d", name, index);
    return json_pack("{s:s, s:s, s:{s:s, s:{s:s, s:i}}}", "id", id, "type", "function", "function", "name", name,
                     "arguments", KEY_A, VALUE_A, KEY_B, 7391);
}

static json_t *called(const struct probe *p, int ncalls)
{
    json_t *m = answered("", false), *calls = json_pack("[o]", call(p, FIRST, 0));
    if (ncalls > 1)
        json_array_append_new(calls, call(p, SECOND, 1));
    json_object_set_new(json_array_get(m, 1), "tool_calls", calls);
    return m;
}

static json_t *tool(const char *name)
{
    return json_pack("{s:s, s:{s:s, s:s, s:{s:s, s:{s:{s:s, s:s}, s:{s:s, s:s}}, s:[s]}}}", "type", "function", "function",
                     "name", name, "description", "prb", "parameters", "type", "object", "properties", KEY_A, "type",
                     "string", "description", "prb", KEY_B, "type", "integer", "description", "prb", "required", KEY_A);
}

enum { TOOLS = 1, GENERATE = 2, THINK = 4, NO_THINK = 8 };

// Takes the messages. The prompt, freed by the caller; NULL when the template refuses.
static char *render(const struct probe *p, json_t *messages, unsigned flags)
{
    json_t *prepared = NULL, *tools = flags & TOOLS ? json_pack("[o, o]", tool(FIRST), tool(SECOND)) : NULL, *kwargs = NULL;
    if (flags & (THINK | NO_THINK))
        kwargs = json_pack("{s:b, s:b}", "enable_thinking", (flags & THINK) != 0, "thinking", (flags & THINK) != 0);
    struct template_input in = {.tools = tools, .kwargs = kwargs, .bos_token = "<s>", .eos_token = "</s>",
                                .add_generation_prompt = flags & GENERATE, .now = PROBE_NOW};
    struct rendered r = {0};
    err e;
    bool failed = chat_prepare(p->c, messages, NULL, &prepared, &e);
    in.messages = prepared;
    failed = failed || template_render(p->c->template[p->which], &in, &r, &e);
    json_decref(messages);
    json_decref(prepared);
    json_decref(tools);
    json_decref(kwargs);
    free(r.spans);
    return failed ? NULL : r.text;
}

// ---- texts in pieces: tags, white space, words, single characters

static size_t piece(struct cut c)
{
    size_t n = answer_mark_tag(c.p, c.n);
    if (n)
        return n;
    while (n < c.n && answer_mark_space(c.p[n]))
        n++;
    if (n)
        return n;
    while (n < c.n && ((c.p[n] >= 'a' && c.p[n] <= 'z') || (c.p[n] >= 'A' && c.p[n] <= 'Z') || c.p[n] == '_'))
        n++;
    return n ? n : c.n > 0;
}

// How far both are the same, in whole pieces.
static size_t common_start(struct cut a, struct cut b)
{
    size_t at = 0;
    while (at < a.n && at < b.n) {
        size_t n = piece((struct cut){a.p + at, a.n - at});
        if (n != piece((struct cut){b.p + at, b.n - at}) || memcmp(a.p + at, b.p + at, n))
            break;
        at += n;
    }
    return at;
}

// And from their ends.
static size_t common_end(struct cut a, struct cut b)
{
    size_t best = 0;
    for (size_t i = 0; i < a.n; i += piece((struct cut){a.p + i, a.n - i}))
        for (size_t k = 0; k < b.n && !best; k += piece((struct cut){b.p + k, b.n - k}))
            if (a.n - i == b.n - k && !memcmp(a.p + i, b.p + k, a.n - i))
                best = a.n - i;
    return best;
}

// Sections are no sections when they are white space.
static void set(struct probe *p, enum answer_mark mark, struct cut c)
{
    size_t n = 0;
    while (n < c.n && answer_mark_space(c.p[n]))
        n++;
    if (n == c.n && (mark == MARK_SECTION || mark == MARK_SECTION_END))
        c.n = 0;
    answer_style_set(p->s, mark, c.p, c.n);
}

static void set_str(struct probe *p, enum answer_mark mark, const char *text)
{
    answer_style_set(p->s, mark, text, strlen(text));
}

static struct cut between(const char *from, const char *to)
{
    return (struct cut){from, to > from ? (size_t)(to - from) : 0};
}

static const char *find(struct cut c, const char *what)
{
    return c.n ? memmem(c.p, c.n, what, strlen(what)) : NULL;
}

// The last place of a mark's text in c, white space at its ends aside; the place behind it.
static const char *behind_last(struct cut c, const char *mark)
{
    size_t n;
    const char *core = answer_mark_core(mark, &n), *found = NULL;
    for (const char *p = c.p; n && (p = memmem(p, (size_t)(c.p + c.n - p), core, n)); p++)
        found = p + n;
    return found;
}

static const char *skip_space(const char *p, const char *end)
{
    while (p < end && answer_mark_space(*p))
        p++;
    return p;
}

// ---- reasoning

static const struct {
    const char *core[2], *open, *close;
} think_marks[] = {
    {{"<think>", "</think>"}, "<think>\n", "\n</think>\n\n"},
    {{"[THINK]", "[/THINK]"}, "[THINK]", "[/THINK]"},
    {{"<|START_THINKING|>", "<|END_THINKING|>"}, "<|START_THINKING|>", "<|END_THINKING|>"},
    {{"<|channel>", "<channel|>"}, "<|channel>thought\n", "<channel|>"},
    {{"<seed:think>", "</seed:think>"}, "<seed:think>", "</seed:think>"},
    {{"<thought>", "</thought>"}, "<thought>\n", "\n</thought>\n"},
    {{"<thinking>", "</thinking>"}, "<thinking>\n", "\n</thinking>\n"},
    {{"<reasoning>", "</reasoning>"}, "<reasoning>\n", "\n</reasoning>\n"},
    {{"<|begin_of_thought|>", "<|end_of_thought|>"}, "<|begin_of_thought|>", "<|end_of_thought|>"},
};

// The tag that `at` stands behind, with a word and white space in between; NULL: there is none.
static const char *tag_before(const char *from, const char *at)
{
    const char *p = at;
    while (p > from && answer_mark_space(p[-1]))
        p--;
    while (p > from && ((p[-1] >= 'a' && p[-1] <= 'z') || p[-1] == '_'))
        p--;
    if (p == from || (p[-1] != '>' && p[-1] != ']'))
        return NULL;
    for (const char *start = p - 1; start > from && p - start < 64;) {
        start--;
        if (answer_mark_tag(start, (size_t)(p - start)) == (size_t)(p - start))
            return start;
    }
    return NULL;
}

// <A> and </A>, <|START_A|> and <|END_A|>
static bool mirrors(struct cut open, struct cut close)
{
    if (close.n == open.n + 1 && close.p[1] == '/')
        return !memcmp(close.p + 2, open.p + 1, open.n - 1);
    const char *start = find(open, "START"), *end = find(close, "END");
    return start && end && start - open.p == end - close.p && open.n == close.n + 2 &&
           !memcmp(start + 5, end + 3, (size_t)(open.p + open.n - start - 5));
}

// Whether it is what stands around the user's text: then reasoning is a turn of its own, and nothing within the answer.
static bool stands_in_user(const struct probe *p, struct cut open)
{
    char *text = render(p, user(), 0);
    size_t n = answer_mark_tag(open.p, open.n);
    bool yes = text && memmem(text, strlen(text), open.p, n);
    free(text);
    return yes;
}

// Reads the marks around reasoning off a prompt that shows reasoning and content.
static bool read_thinking(struct probe *p, const char *text)
{
    const char *thought = text ? strstr(text, THOUGHT) : NULL, *said = thought ? strstr(thought, SAID) : NULL;
    if (!said)
        return false;
    const char *open = tag_before(text, thought), *close = thought + strlen(THOUGHT);
    const char *tag = skip_space(close, said), *after = said + strlen(SAID);
    size_t n = answer_mark_tag(tag, (size_t)(said - tag)), end = answer_mark_tag(after, strlen(after));
    if (!open || !n || stands_in_user(p, between(open, thought)) || (end == n && !memcmp(tag, after, n)))
        return false;
    const char *rest = skip_space(tag + n, said);
    set(p, MARK_THINK, between(open, thought));
    set(p, MARK_THINK_END, between(close, rest));
    if (rest < said && mirrors(between(rest, said), (struct cut){after, end})) {
        set(p, MARK_SAY, between(rest, said));
        set(p, MARK_SAY_END, (struct cut){after, end});
    }
    return true;
}

// The marks of the list that the template's text has. How it writes the white space is seen where it opens the reasoning, or
// opens and closes it at once, for the model.
static void guess_thinking(struct probe *p)
{
    size_t len;
    const char *source = chat_source(p->c, p->which, &len);
    struct cut whole = {source, len};
    for (size_t i = 0; i < sizeof think_marks / sizeof *think_marks; i++) {
        if (!find(whole, think_marks[i].core[1]))
            continue;
        set_str(p, MARK_THINK, think_marks[i].open);
        set_str(p, MARK_THINK_END, think_marks[i].close);
        for (unsigned flags = 0; flags <= NO_THINK; flags += flags ? flags : THINK) {
            char *text = render(p, user(), GENERATE | flags);
            if (!text)
                continue;
            struct cut t = {text, strlen(text)};
            const char *open = behind_last(t, think_marks[i].core[0]), *close = behind_last(t, think_marks[i].core[1]);
            if (open && !close && skip_space(open, t.p + t.n) == t.p + t.n)
                set(p, MARK_THINK, between(open - strlen(think_marks[i].core[0]), t.p + t.n));
            if (close && skip_space(close, t.p + t.n) == t.p + t.n) {
                char end[80];
                snprintf(end, sizeof end, "%s%s%.16s", *close ? "\n" : "", think_marks[i].core[1], close);
                set_str(p, MARK_THINK_END, end);
            }
            free(text);
        }
        if (find(whole, "<response>") && find(whole, "</response>")) {
            set_str(p, MARK_SAY, "<response>");
            set_str(p, MARK_SAY_END, "</response>");
        }
        return;
    }
}

static void find_thinking(struct probe *p)
{
    bool found = false;
    for (int i = 0; i < 6 && !found; i++) {
        json_t *m = answered(SAID, true);
        if (i >= 4 && p->c->traits.calls)  // some keep it only in turns that call
            json_object_set_new(json_array_get(m, 1), "tool_calls", json_pack("[o]", call(p, FIRST, 0)));
        char *text = render(p, m, (i & 1 ? THINK : 0) | (i & 6 ? TOOLS : 0));
        found = read_thinking(p, text);
        free(text);
    }
    if (!found)
        guess_thinking(p);
}

// Marks around content that a turn without reasoning has too.
static void find_say(struct probe *p)
{
    char *text = render(p, answered(SAID, false), 0);
    const char *said = text ? strstr(text, SAID) : NULL, *open = said ? tag_before(text, said) : NULL;
    if (open && !*p->s->mark[MARK_SAY]) {
        const char *after = said + strlen(SAID);
        struct cut first = {open, answer_mark_tag(open, (size_t)(said - open))};
        struct cut last = {after, answer_mark_tag(after, strlen(after))};
        if (mirrors(first, last) && !memmem(p->s->mark[MARK_TURN], strlen(p->s->mark[MARK_TURN]), first.p, first.n)) {
            set(p, MARK_SAY, between(open, said));
            set(p, MARK_SAY_END, last);
        }
    }
    free(text);
}

// What opens the assistant's turn: what a prompt has that the conversation alone has not, up to reasoning.
static void read_turn(struct probe *p, struct cut with, struct cut without)
{
    size_t n = common_start(with, without);
    struct cut turn = {with.p + n, with.n - n};
    for (int i = MARK_THINK; i <= MARK_THINK_END && turn.n; i++) {
        size_t len;
        const char *core = answer_mark_core(p->s->mark[i], &len), *at = len ? memmem(turn.p, turn.n, core, len) : NULL;
        if (at)
            turn.n = (size_t)(at - turn.p);
    }
    if (turn.n && !find(turn, "prb_user"))
        set(p, MARK_TURN, turn);
}

static void find_turn(struct probe *p, unsigned flags)
{
    char *with = render(p, user(), flags | GENERATE), *without = render(p, user(), flags);
    if (with && without)
        read_turn(p, (struct cut){with, strlen(with)}, (struct cut){without, strlen(without)});
    free(with);
    free(without);
}

// ---- calls

// What a prompt shows of one call.
struct seen {
    const char *from, *to;      // name and arguments and what is between them, or the object that holds both
    const char *name, *name_end, *args, *args_end;
};

// JSON at p, and how long it is; NULL: none. A new reference.
static json_t *json_at(const char *p, const char *end, size_t *ret_len)
{
    json_error_t je;
    json_t *v = json_loadb(p, (size_t)(end - p), JSON_DISABLE_EOF_CHECK | JSON_ALLOW_NUL, &je);
    *ret_len = v ? (size_t)je.position : 0;
    return v;
}

static bool is_arguments(const json_t *v)
{
    json_t *parsed = json_is_string(v) ? json_loads(json_string_value(v), 0, NULL) : NULL;
    bool yes = json_object_get(parsed ? parsed : v, KEY_A) != NULL;
    json_decref(parsed);
    return yes;
}

// The text of the value of `key`, whose own text is value, within from .. to.
static const char *value_of(const char *from, const char *to, const char *key)
{
    char quoted[80];
    snprintf(quoted, sizeof quoted, "\"%s\"", key);
    const char *p = memmem(from, (size_t)(to - from), quoted, strlen(quoted));
    p = p ? skip_space(p + strlen(quoted), to) : NULL;
    return p && p < to && *p == ':' ? skip_space(p + 1, to) : NULL;
}

// The keys of `name` and of the arguments in an object; both must be there.
static bool object_keys(const json_t *object, const char *name, char keys[2][40])
{
    const char *key;
    json_t *v;
    keys[0][0] = keys[1][0] = 0;
    json_object_foreach((json_t *)(uintptr_t)object, key, v) {
        bool is_name = json_is_string(v) && !strcmp(json_string_value(v), name), is_args = is_arguments(v);
        if (is_name || is_args)
            snprintf(keys[is_args], sizeof keys[0], "%s", key);
    }
    return keys[0][0] && keys[1][0];
}

// The innermost JSON object around `name`, which stands at `at`, that has the arguments too.
static bool see_object(const char *from, const char *at, const char *end, const char *name, struct seen *o, char keys[2][40])
{
    for (const char *p = at; p-- > from;) {
        size_t len = 0;
        json_t *v = *p == '{' ? json_at(p, end, &len) : NULL;
        bool both = v && p + len > at && object_keys(v, name, keys);
        json_decref(v);
        if (!both)
            continue;
        const char *args = value_of(p, p + len, keys[1]), *quoted = value_of(p, p + len, keys[0]);
        at = quoted ? quoted + 1 : at;
        *o = (struct seen){.from = p, .to = p + len, .name = at, .name_end = at + strlen(name), .args = args};
        struct answer_json j;
        answer_json_start(&j);
        for (; args && args < o->to && answer_json_step(&j, (unsigned char)*args) == JSON_MORE; args++)
            ;
        o->args_end = args + 1;
        return o->args;
    }
    return false;
}

// The name, and behind it arguments in any form.
static bool see_named(const char *at, const char *end, const char *name, struct seen *o)
{
    *o = (struct seen){.from = at, .name = at, .name_end = at + strlen(name)};
    for (const char *p = o->name_end; p < end; p++) {
        if (!strncmp(p, KEY_A, strlen(KEY_A)))
            break;
        size_t len = 0;
        json_t *v = *p == '{' ? json_at(p, end, &len) : NULL;
        if (is_arguments(v)) {
            o->args = p;
            o->to = o->args_end = p + len;
        }
        json_decref(v);
        if (o->args)
            return true;
    }
    const char *a = strstr(at, KEY_A), *b = a ? strstr(a, VALUE_B) : NULL;
    if (!b || b > end)
        return false;
    o->to = b + strlen(VALUE_B);
    return true;
}

// What two calls have in common where they differ by an id.
static void set_common(struct probe *p, enum answer_mark mark, struct cut a, struct cut b)
{
    size_t start = 0, end = 0;
    char text[256];
    while (start < a.n && start < b.n && a.p[start] == b.p[start])
        start++;
    if (start == a.n && a.n == b.n) {
        set(p, mark, a);
        return;
    }
    while (end < a.n - start && end < b.n - start && a.p[a.n - 1 - end] == b.p[b.n - 1 - end])
        end++;
    // Ids may begin or end alike.
    while (start && (isalnum((unsigned char)a.p[start - 1]) || strchr("._-", a.p[start - 1])))
        start--;
    while (end && (isalnum((unsigned char)a.p[a.n - end]) || strchr("._-", a.p[a.n - end])))
        end--;
    bool number = true;
    for (size_t i = start; i < a.n - end; i++)
        number &= isdigit((unsigned char)a.p[i]) != 0;
    snprintf(text, sizeof text, "%.*s%c%.*s", (int)start, a.p, number ? MARK_INDEX : MARK_ID, (int)end, a.p + a.n - end);
    set_str(p, mark, text);
}

static void set_object(struct probe *p, const struct seen *a, const struct seen *b, char keys[2][40])
{
    p->s->form = FORM_OBJECT;
    set_str(p, MARK_NAME_KEY, keys[0]);
    set_str(p, MARK_ARGUMENTS_KEY, keys[1]);
    if (a->args < a->name)  // then they are read, but how they look to be written is not said
        return;
    set_common(p, MARK_OBJECT, between(a->from, a->name), between(b->from, b->name));
    set_common(p, MARK_MIDDLE, between(a->name_end, a->args), between(b->name_end, b->args));
    set_common(p, MARK_OBJECT_END, between(a->args_end, a->to), between(b->args_end, b->to));
}

// Arguments of their own form: `end` is where the text of the call's turn ends. Moves a->to behind them.
static bool set_members(struct probe *p, struct seen *a)
{
    const char *k1 = strstr(a->name, KEY_A), *v1 = strstr(k1, VALUE_A), *k2 = v1 ? strstr(v1, KEY_B) : NULL;
    const char *v2 = k2 ? strstr(k2, VALUE_B) : NULL;
    if (!v2)
        return false;
    const char *k1_end = k1 + strlen(KEY_A), *v1_end = v1 + strlen(VALUE_A), *k2_end = k2 + strlen(KEY_B);
    struct cut first = between(a->name_end, k1), second = between(v1_end, k2);
    char open = first.n ? *first.p : 0, close = open == '{' ? '}' : open == '(' ? ')' : 0;
    if (close) {
        p->s->form = open == '{' ? FORM_BRACES : FORM_PYTHON;
        set(p, MARK_NAME_END, first);
        set(p, MARK_QUOTE, between(k1_end + 1, v1));
        a->to = *a->to == close ? a->to + 1 : a->to;
        return a->to[-1] == close;
    }
    size_t n = common_end(first, second);
    p->s->form = FORM_TAGS;
    set(p, MARK_KEY, (struct cut){k1 - n, n});
    set(p, MARK_NAME_END, (struct cut){first.p, first.n - n});
    set_common(p, MARK_KEY_END, between(k1_end, v1), between(k2_end, v2));
    set(p, MARK_VALUE_END, (struct cut){second.p, second.n - n});
    size_t end = second.n - n;
    if (!strncmp(a->to, second.p, end))
        a->to += end;
    return n && end;
}

// Up to the first tag: what a template puts behind a section's end is the turn's.
static struct cut one_tag(struct cut c)
{
    for (size_t at = 0, n; at < c.n; at += n) {
        n = piece((struct cut){c.p + at, c.n - at});
        if (answer_mark_tag(c.p + at, c.n - at))
            return (struct cut){c.p, at + n};
    }
    return c;
}

// Marks around calls: x stands in front of the first, y between the first and the second, z behind the last.
static void set_around(struct probe *p, struct cut x, struct cut y, struct cut z)
{
    size_t end = common_start(y, z), start = common_end(x, (struct cut){y.p + end, y.n - end});
    set(p, MARK_CALL_END, (struct cut){y.p, end});
    set(p, MARK_CALL, (struct cut){x.p + x.n - start, start});
    set(p, MARK_SECTION, (struct cut){x.p, x.n - start});
    set(p, MARK_SECTION_END, one_tag((struct cut){z.p + end, z.n - end}));
    set(p, MARK_SEPARATOR, (struct cut){y.p + end, y.n - end - start});
}

// A template that shows one call a message.
static void set_around_one(struct probe *p, struct cut x, struct cut z)
{
    while (x.n && answer_mark_space(x.p[x.n - 1]))
        x.n--;
    bool end = x.n && x.p[x.n - 1] == '[';
    set(p, end ? MARK_SECTION : MARK_CALL, x);
    set(p, end ? MARK_SECTION_END : MARK_CALL_END, z);
}

static bool see(const char *from, const char *end, const char *name, struct seen *o, char keys[2][40])
{
    const char *at = strstr(from, name);
    keys[0][0] = 0;
    if (!at || at >= end)
        return false;
    if (see_object(from, at, end, name, o, keys))
        return true;
    keys[0][0] = 0;
    return see_named(at, end, name, o);
}

// text: two calls, or one; prompt: what stands before the answer; said: a whole turn with SAID.
static bool read_calls(struct probe *p, const char *text, const char *prompt, const char *said, int ncalls)
{
    struct cut all = {text, strlen(text)}, tail = {strstr(said, SAID), 0};
    const char *from = text + common_start(all, (struct cut){prompt, strlen(prompt)}), *end = text + all.n;
    struct seen a, b;
    char keys[2][40], other[2][40];
    if (!tail.p || !see(from, end, FIRST, &a, keys))
        return false;
    tail.p += strlen(SAID);
    tail.n = strlen(tail.p);
    if (keys[0][0] == 0 && !a.args && !set_members(p, &a))
        return false;
    b = a;
    if (ncalls == 2) {
        if (!see(a.to, end, SECOND, &b, other))
            return false;
        if (!keys[0][0] && !a.args) {
            size_t at = strlen(p->s->mark[MARK_VALUE_END]), n = strlen(p->s->mark[MARK_KEY]);
            const char *key = strstr(b.name, KEY_A);
            struct cut own = between(b.name_end, key ? key - n : b.name_end);
            if (p->s->form == FORM_TAGS)
                set_common(p, MARK_NAME_END, (struct cut){a.name_end, strlen(p->s->mark[MARK_NAME_END])}, own);
            b.to += p->s->form == FORM_TAGS ? (strncmp(b.to, p->s->mark[MARK_VALUE_END], at) ? 0 : at) : 1;
        }
    }
    if (keys[0][0]) {
        set_object(p, &a, &b, keys);
    } else if (a.args) {
        p->s->form = FORM_NAMED;
        set_common(p, MARK_NAME_END, between(a.name_end, a.args), between(b.name_end, b.args));
    }
    const char *turn = behind_last(between(text, a.from), p->s->mark[MARK_TURN]);
    from = turn && turn > from ? turn : from;
    const char *inside = behind_last(between(from, a.from), p->s->mark[MARK_THINK_END]);
    inside = inside ? inside : from;
    const char *say = behind_last(between(inside, a.from), p->s->mark[MARK_SAY_END]);
    struct cut x = between(say ? say : inside, a.from), z = between(b.to, end);
    z.n -= common_end(z, tail);
    if (ncalls == 2)
        set_around(p, x, between(a.to, b.from), z);
    else
        set_around_one(p, x, z);
    return true;
}

static bool no_marker(const char *mark)
{
    size_t n;
    const char *core = answer_mark_core(mark, &n);
    return !n || (n == 1 && *core == '[');
}

static void find_lead(struct probe *p)
{
    static const char *const leads[] = {"<|python_tag|>", "<|python_start|>"};
    size_t len;
    const char *source = chat_source(p->c, p->which, &len);
    p->s->bare = no_marker(p->s->mark[MARK_CALL]) && no_marker(p->s->mark[MARK_SECTION]);
    for (int i = 0; i < 2 && p->s->bare; i++)
        if (find((struct cut){source, len}, leads[i]))
            set_str(p, MARK_LEAD, leads[i]);
}

// Ids in marks are any.
static void open_ids(struct answer_style *s)
{
    for (int i = 0; i < MARKS; i++)
        for (char *at; (at = strstr(s->mark[i], ID));) {
            *at = MARK_ID;
            memmove(at + 1, at + strlen(ID), strlen(at + strlen(ID)) + 1);
        }
}

// Names within marks, or calls that nothing tells from text: not read right.
static bool plausible(const struct answer_style *s)
{
    for (int i = 0; i < MARKS; i++)
        if (strstr(s->mark[i], "prb_"))
            return false;
    if (s->form == FORM_TAGS && strchr(s->mark[MARK_NAME_END], MARK_ID))
        return false;
    return !s->bare || s->form == FORM_OBJECT || (s->form == FORM_PYTHON && *s->mark[MARK_SECTION]);
}

static bool find_calls(struct probe *p)
{
    int n = p->c->traits.many_calls ? 2 : 1;
    char *text = render(p, called(p, n), TOOLS), *prompt = render(p, user(), TOOLS | GENERATE);
    char *said = render(p, answered(SAID, false), TOOLS);
    bool found = text && prompt && said && read_calls(p, text, prompt, said, n);
    free(text);
    free(prompt);
    free(said);
    if (found)
        find_lead(p);
    if (!*p->s->mark[MARK_SECTION])
        set_str(p, MARK_SECTION_END, "");
    open_ids(p->s);
    return p->s->calls = found && plausible(p->s);
}

// Templates that list tools and show no calls: what their text says of how to call.
static const struct {
    const char *seen;
    enum answer_form form;
    struct {
        enum answer_mark mark;
        const char *text;
    } marks[8];
} call_marks[] = {
    {"<function=", FORM_TAGS, {{MARK_CALL, "<tool_call>\n<function="}, {MARK_NAME_END, ">"}, {MARK_KEY, "\n<parameter="},
        {MARK_KEY_END, ">\n"}, {MARK_VALUE_END, "\n</parameter>"}, {MARK_CALL_END, "\n</function>\n</tool_call>"},
        {MARK_SEPARATOR, "\n"}}},
    {"<arg_key>", FORM_TAGS, {{MARK_CALL, "<tool_call>"}, {MARK_NAME_END, "\n"}, {MARK_KEY, "<arg_key>"},
        {MARK_KEY_END, "</arg_key>\n<arg_value>"}, {MARK_VALUE_END, "</arg_value>\n"}, {MARK_CALL_END, "</tool_call>"},
        {MARK_SEPARATOR, "\n"}}},
    {"<|tool|>", FORM_OBJECT, {{MARK_SECTION, "<|tool_call|>["}, {MARK_SECTION_END, "]<|/tool_call|>"},
        {MARK_SEPARATOR, ", "}}},
    {"<|tool_call|>", FORM_OBJECT, {{MARK_SECTION, "<|tool_call|>["}, {MARK_SECTION_END, "]"}, {MARK_SEPARATOR, ", "}}},
    {"[TOOL_CALLS]", FORM_OBJECT, {{MARK_SECTION, "[TOOL_CALLS]["}, {MARK_SECTION_END, "]"}, {MARK_SEPARATOR, ", "}}},
    {"functools[", FORM_OBJECT, {{MARK_SECTION, "functools["}, {MARK_SECTION_END, "]"}, {MARK_SEPARATOR, ", "}}},
    {"<|tool_call_start|>", FORM_PYTHON, {{MARK_SECTION, "<|tool_call_start|>["}, {MARK_SECTION_END, "]<|tool_call_end|>"},
        {MARK_SEPARATOR, ", "}, {MARK_NAME_END, "("}}},
    {"<start_function_call>", FORM_BRACES, {{MARK_CALL, "<start_function_call>call:"}, {MARK_CALL_END, "<end_function_call>"},
        {MARK_NAME_END, "{"}, {MARK_QUOTE, "<escape>"}}},
};

// Without a word on it, the model is read as if it had been told our way.
static void guess_calls(struct probe *p)
{
    size_t len;
    const char *source = chat_source(p->c, p->which, &len);
    for (int i = MARK_LEAD; i < MARKS; i++)
        set_str(p, (enum answer_mark)i, "");
    p->s->bare = false;
    answer_style_generic(p->s);
    for (size_t i = 0; p->c->traits.tools && i < sizeof call_marks / sizeof *call_marks; i++) {
        if (!find((struct cut){source, len}, call_marks[i].seen))
            continue;
        set_str(p, MARK_CALL, "");
        set_str(p, MARK_CALL_END, "");
        p->s->form = call_marks[i].form;
        p->s->generic = false;
        for (int k = 0; k < 8 && call_marks[i].marks[k].text; k++)
            set_str(p, call_marks[i].marks[k].mark, call_marks[i].marks[k].text);
        return;
    }
}

static struct answer_style *find_style(const struct chat *c, int which)
{
    struct probe p = {.c = c, .which = which, .s = answer_style_new()};
    find_thinking(&p);
    find_turn(&p, 0);
    if (!*p.s->mark[MARK_TURN])
        find_turn(&p, TOOLS);
    find_say(&p);
    if (!c->traits.calls || !find_calls(&p))
        guess_calls(&p);
    return p.s;
}

void chat_answer_find(struct chat *c)
{
    for (int i = 0; i < 2 && c->template[i]; i++)
        c->style[i] = find_style(c, i);
}

const struct answer_style *chat_answer_style(const struct chat *c, bool with_tools)
{
    return c->style[with_tools && c->style[1]];
}
