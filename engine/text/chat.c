// chat.c - finds a model's template, and renders a prompt with it. A chat is immutable after open; any thread may
// render.
#include "engine/text/chat.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jansson.h>

#include "base/buf.h"
#include "base/file.h"
#include "base/mem.h"
#include "engine/text/answer_int.h"
#include "engine/text/chat_int.h"
#include "engine/text/template_int.h"
#include "engine/weights/weights.h"

static const char chatml[] =
    "{%- for message in messages %}"
    "{{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>\\n' }}"
    "{%- endfor %}"
    "{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{%- endif %}";

// Text of the default template and of the one for tools; freed by the caller.
struct sources {
    char *text[2];
    size_t len[2];
};

static bool take(struct sources *s, int which, const char *text, size_t len)
{
    if (!text || s->text[which])
        return false;
    s->text[which] = mem_strndup(text, len);
    s->len[which] = len;
    return true;
}

static void take_json(struct sources *s, int which, const json_t *v)
{
    if (json_is_string(v))
        take(s, which, json_string_value(v), json_string_length(v));
}

// "chat_template": a string, {"default": ..., "tool_use": ...}, or [{"name": ..., "template": ...}, ...]
static void take_any(struct sources *s, const json_t *v)
{
    const json_t *item;
    size_t i;
    take_json(s, 0, v);
    if (json_is_object(v)) {
        take_json(s, 0, json_object_get(v, "default"));
        take_json(s, 1, json_object_get(v, "tool_use"));
    }
    json_array_foreach(v, i, item) {
        const char *name = json_string_value(json_object_get(item, "name"));
        bool only = json_array_size(v) == 1;
        if (name && (only || !strcmp(name, "default")))
            take_json(s, 0, json_object_get(item, "template"));
        else if (name && !strcmp(name, "tool_use"))
            take_json(s, 1, json_object_get(item, "template"));
    }
}

static err_code take_file(struct sources *s, int which, const char *folder, const char *name, err *e)
{
    char path[4096], *text;
    size_t len;
    snprintf(path, sizeof path, "%s%s%s", folder, *folder ? "/" : "", name);
    if (s->text[which] || !file_exists(path))
        return ERR_OK;
    if (file_read(path, TEMPLATE_MAX_SOURCE, &text, &len, e))
        return e->code;
    s->text[which] = text;
    s->len[which] = len;
    return ERR_OK;
}

static void take_gguf(struct sources *s, const struct weights *w)
{
    static const char *const keys[] = {"tokenizer.chat_template", "tokenizer.chat_template.tool_use"};
    const char *text;
    size_t len;
    for (int i = 0; i < 2; i++)
        if (meta_string(w, keys[i], &text, &len))
            take(s, i, text, len);
}

static err_code find_sources(const struct weights *w, struct sources *s, err *e)
{
    const char *folder = weights_folder(w);
    if (weights_container(w) == WEIGHTS_GGUF)
        take_gguf(s, w);
    if (take_file(s, 0, folder, "chat_template.jinja", e) ||
        take_file(s, 1, folder, "additional_chat_templates/tool_use.jinja", e))
        return e->code;
    take_any(s, json_object_get(weights_json(w, "chat_template.json"), "chat_template"));
    take_any(s, json_object_get(weights_json(w, "tokenizer_config.json"), "chat_template"));
    if (s->text[0])
        return ERR_OK;
    return err_set_param(e, ERR_NOT_FOUND, "chat_template",
                         "%s has no chat template: set chat_template to a file with one, or to 'chatml'",
                         weights_path(w));
}

err_code chat_open_source(const char *source, size_t len, const char *tool_source, size_t tool_len,
                          struct chat **ret_chat, err *e)
{
    static const char dump[] = "{{ value|tojson }}";
    const char *text[2] = {source, tool_source};
    const size_t lens[2] = {len, tool_len};
    struct chat *c = mem_new(sizeof *c);
    err_code code = template_parse(dump, strlen(dump), &c->dump, e);
    for (int i = 0; i < 2 && text[i] && !code; i++) {
        c->source[i] = mem_strndup(text[i], lens[i]);
        c->len[i] = lens[i];
        code = template_parse(text[i], lens[i], &c->template[i], e);
    }
    if (code) {
        chat_close(c);
        return code;
    }
    chat_probe(c);
    chat_answer_find(c);
    *ret_chat = c;
    return ERR_OK;
}

err_code chat_open(const struct weights *w, const char *override, struct chat **ret_chat, err *e)
{
    struct sources s = {0};
    err_code code = ERR_OK;
    if (override && !strcmp(override, "chatml"))
        take(&s, 0, chatml, strlen(chatml));
    else if (override)
        code = file_read(override, TEMPLATE_MAX_SOURCE, &s.text[0], &s.len[0], e);
    else
        code = find_sources(w, &s, e);
    if (!code)
        code = chat_open_source(s.text[0], s.len[0], s.text[1], s.len[1], ret_chat, e);
    free(s.text[0]);
    free(s.text[1]);
    return code;
}

void chat_close(struct chat *c)
{
    if (!c)
        return;
    for (int i = 0; i < 2; i++) {
        template_free(c->template[i]);
        answer_style_free(c->style[i]);
        free(c->source[i]);
    }
    template_free(c->dump);
    free(c);
}

const struct chat_traits *chat_traits(const struct chat *c)
{
    return &c->traits;
}

const char *chat_source(const struct chat *c, bool with_tools, size_t *ret_len)
{
    int i = with_tools && c->source[1];
    *ret_len = c->len[i];
    return c->source[i];
}

// ---- continuing the last message: a mark behind its text shows where the prompt must end

static const char mark[] = "CONTINUE_FINAL_MESSAGE_TAG ";
enum { MARK = sizeof mark - 2 };  // without the blank, which shows whether the template trims

static json_t *marked(const json_t *text)
{
    struct buf b;
    buf_init(&b, TEMPLATE_MAX_OUTPUT);
    buf_add(&b, json_string_value(text), json_string_length(text));
    buf_add_str(&b, mark);
    json_t *v = b.over ? NULL : json_stringn(b.data, b.len);
    buf_done(&b);
    return v;
}

// Puts the mark into the last message (a copy made by chat_prepare); the text before it goes to *ret_text.
static err_code mark_last(json_t *messages, const json_t **ret_text, err *e)
{
    size_t n = json_array_size(messages);
    json_t *last = json_array_get(messages, n - 1), *content = json_object_get(last, "content"), *holder = last;
    const char *key = "content";
    if (json_is_array(content)) {
        json_t *parts = json_deep_copy(content);
        json_object_set_new(last, "content", parts);
        key = "text";
        for (size_t i = json_array_size(parts); i-- > 0;) {
            holder = json_array_get(parts, i);
            content = json_object_get(holder, key);
            if (json_is_string(content))
                break;
        }
    }
    json_t *v = json_is_string(content) ? marked(content) : NULL;
    if (!v)
        return err_set_param(e, ERR_INVALID, "continue_final_message", "the last message has no text to continue");
    *ret_text = json_incref(content);
    json_object_set_new(holder, key, v);
    return ERR_OK;
}

static void cut(struct rendered *r, size_t len)
{
    r->len = len;
    r->text[len] = 0;
    size_t at = 0, n = 0;
    for (; n < r->nspans && at < len; n++) {
        if (r->spans[n].len > len - at)
            r->spans[n].len = len - at;
        at += r->spans[n].len;
    }
    r->nspans = n;
}

// Length of s without the whitespace at its end.
static size_t trimmed(const char *s, size_t len)
{
    while (len) {
        size_t at = len - 1;
        uint32_t cp;
        while (at && ((unsigned char)s[at] & 0xC0) == 0x80)
            at--;
        if (!utf8_decode(s + at, len - at, &cp) || !template_text_space(cp))
            break;
        len = at;
    }
    return len;
}

static err_code cut_at_mark(struct rendered *r, const json_t *text, err *e)
{
    struct str all = {.p = r->text, .len = r->len}, tag = {.p = mark, .len = MARK};
    struct str said = {.p = json_string_value(text), .len = trimmed(json_string_value(text), json_string_length(text))};
    uint32_t cp;
    for (int n; said.len && (n = utf8_decode(said.p, said.len, &cp)) && template_text_space(cp);) {
        said.p += n;
        said.len -= (size_t)n;
    }
    int64_t at = template_text_rfind(NULL, &all, &tag, 0, all.len);
    if (at < 0 || template_text_find(&all, &said, 0, (size_t)at) < 0)
        return err_set_param(e, ERR_INVALID, "continue_final_message",
                             "the last message cannot be continued: the chat template does not show its text as it is");
    size_t end = (size_t)at;
    if (end + MARK >= r->len || r->text[end + MARK] != ' ')
        end = trimmed(r->text, end);
    cut(r, end);
    return ERR_OK;
}

err_code chat_render(const struct chat *c, const struct prompt *p, const char *bos, const char *eos, int64_t now,
                     struct rendered *ret_rendered, err *e)
{
    json_t *messages = NULL, *tools = json_array_size(p->tools) ? p->tools : NULL;
    const json_t *text = NULL;
    struct rendered r = {0};
    err own = {0};
    err_code code = chat_prepare(c, p->messages, tools, &messages, &own);
    if (!code && p->continue_final_message)
        code = mark_last(messages, &text, &own);
    if (!code) {
        struct template_input in = {.messages = messages,
                                    .tools = tools,
                                    .documents = p->documents,
                                    .kwargs = p->kwargs,
                                    .bos_token = bos,
                                    .eos_token = eos,
                                    .now = now,
                                    .add_generation_prompt = p->add_generation_prompt && !p->continue_final_message};
        code = template_render(c->template[tools && c->template[1]], &in, &r, &own);
    }
    if (!code && text)
        code = cut_at_mark(&r, text, &own);
    json_decref(messages);
    json_decref((json_t *)(uintptr_t)text);
    if (code) {
        rendered_done(&r);
        if (e)
            *e = own;
        return code;
    }
    *ret_rendered = r;
    return ERR_OK;
}
