// chat_ids.c - see chat_ids.h. Any thread; owns nothing.
#include "engine/text/chat_ids.h"

#include <stdlib.h>
#include <string.h>

#include <jansson.h>

#include "base/clock.h"
#include "base/mem.h"
#include "engine/text/chat.h"

// The spelling of a special token as a string of its own; NULL: the model has none.
static char *special(const struct tokenizer *t, int32_t id)
{
    if (id == TOKEN_NONE)
        return NULL;
    size_t len;
    const char *s = tokenizer_token(t, id, &len);
    return mem_strndup(s, len);
}

err_code chat_ids_render(const struct chat *c, const struct tokenizer *t, const struct prompt *p,
                         struct rendered *ret_rendered, err *e)
{
    char *bos = special(t, tokenizer_bos(t));
    char *eos = special(t, tokenizer_eos(t));
    err_code code = chat_render(c, p, bos, eos, clock_unix_s(), ret_rendered, e);
    free(bos);
    free(eos);
    return code;
}

err_code chat_ids_encode_rendered(const struct tokenizer *t, const struct rendered *r, struct ids *ids, err *e)
{
    if (tokenizer_adds_bos(t)) {
        char *bos = special(t, tokenizer_bos(t));
        if (bos && !rendered_starts_with(r, bos))
            ids_add(ids, tokenizer_bos(t));
        free(bos);
    }
    return tokenizer_encode(t, r->spans, r->nspans, false, ids, e);
}

err_code chat_ids_encode(const struct chat *c, const struct tokenizer *t, const struct prompt *p, struct ids *ids, err *e)
{
    struct rendered r;
    if (chat_ids_render(c, t, p, &r, e))
        return e->code;
    err_code code = chat_ids_encode_rendered(t, &r, ids, e);
    rendered_done(&r);
    return code;
}

// ---- the next turn

static void add_message(json_t *messages, const char *role)
{
    json_t *m = json_object();
    json_object_set_new(m, "role", json_string(role));
    json_object_set_new(m, "content", json_string("x"));
    json_array_append_new(messages, m);
}

// A short conversation at its first or its second answer, with p's own settings. False: the template has something against it.
static bool render_turn(const struct chat *c, const struct tokenizer *t, const struct prompt *p, bool second,
                        struct rendered *ret_rendered)
{
    struct prompt q = {.tools = p->tools, .kwargs = p->kwargs, .add_generation_prompt = true, .messages = json_array()};
    err e;
    add_message(q.messages, "user");
    if (second) {
        add_message(q.messages, "assistant");
        add_message(q.messages, "user");
    }
    bool ok = !chat_ids_render(c, t, &q, ret_rendered, &e);
    json_decref(q.messages);
    return ok;
}

size_t chat_ids_passing(const struct chat *c, const struct tokenizer *t, const struct prompt *p, const struct rendered *r)
{
    struct rendered first = {0}, second = {0};
    struct ids ids = {0};
    err e;
    if (p->add_generation_prompt && render_turn(c, t, p, false, &first) && render_turn(c, t, p, true, &second)) {
        size_t same = 0;
        while (same < first.len && same < second.len && first.text[same] == second.text[same])
            same++;
        size_t rest = first.len - same;
        struct text_span span = {first.text + same, rest, true};
        bool ends = r->len >= rest && memcmp(r->text + r->len - rest, span.text, rest) == 0;
        if (ends && rest && tokenizer_encode(t, &span, 1, false, &ids, &e))
            ids.len = 0;
    }
    rendered_done(&first);
    rendered_done(&second);
    free(ids.data);
    return ids.len;
}
