// answer.c - see the header.
#include "bench/load/answer.h"

#include <jansson.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void answer_init(struct answer *a)
{
    memset(a, 0, sizeof *a);
    buf_init(&a->whole, SIZE_MAX);
    for (int i = 0; i < ANSWER_CHOICES; i++) {
        buf_init(&a->choices[i].text, SIZE_MAX);
        buf_init(&a->choices[i].logprobs, SIZE_MAX);
        buf_init(&a->choices[i].ids, SIZE_MAX);
    }
    answer_clear(a);
}

void answer_clear(struct answer *a)
{
    a->status = 0;
    a->stream = a->done = a->failed = false;
    a->prompt_tokens = a->cached_tokens = a->completion_tokens = -1;
    buf_clear(&a->whole);
    for (int i = 0; i < ANSWER_CHOICES; i++) {
        buf_clear(&a->choices[i].text);
        buf_clear(&a->choices[i].logprobs);
        buf_clear(&a->choices[i].ids);
        a->choices[i].finish[0] = 0;
    }
}

void answer_done(struct answer *a)
{
    buf_done(&a->whole);
    for (int i = 0; i < ANSWER_CHOICES; i++) {
        buf_done(&a->choices[i].text);
        buf_done(&a->choices[i].logprobs);
        buf_done(&a->choices[i].ids);
    }
}

static void add_json(struct buf *b, const json_t *j)
{
    char *text = json_dumps(j, JSON_COMPACT | JSON_SORT_KEYS | JSON_ENCODE_ANY);
    buf_add_str(b, text ? text : "?");
    buf_add_char(b, '\n');
    free(text);
}

static int number_of(const json_t *object, const char *key, int otherwise)
{
    const json_t *v = json_object_get(object, key);
    return json_is_integer(v) ? (int)json_integer_value(v) : otherwise;
}

static void take_usage(struct answer *a, const json_t *root)
{
    const json_t *u = json_object_get(root, "usage");
    if (!json_is_object(u))
        return;
    a->prompt_tokens = number_of(u, "prompt_tokens", -1);
    a->completion_tokens = number_of(u, "completion_tokens", -1);
    a->cached_tokens = number_of(json_object_get(u, "prompt_tokens_details"), "cached_tokens", -1);
}

// Chat has {content: [...]}, text completion arrays side by side, which join when those of later events follow.
static void take_logprobs(struct answer_choice *c, const json_t *logprobs)
{
    const json_t *content = json_object_get(logprobs, "content"), *v;
    size_t i;
    if (json_is_array(content)) {
        json_array_foreach(content, i, v)
            add_json(&c->logprobs, v);
    } else if (json_is_object(logprobs)) {
        json_array_foreach(json_object_get(logprobs, "token_logprobs"), i, v) {
            add_json(&c->logprobs, v);
            add_json(&c->logprobs, json_array_get(json_object_get(logprobs, "tokens"), i));
            add_json(&c->logprobs, json_array_get(json_object_get(logprobs, "top_logprobs"), i));
        }
    }
}

static bool take_choice(struct answer *a, const json_t *choice)
{
    int index = number_of(choice, "index", 0);
    if (index < 0 || index >= ANSWER_CHOICES)
        return false;
    struct answer_choice *c = &a->choices[index];
    const json_t *delta = json_object_get(choice, "delta");
    const json_t *text = json_object_get(delta, "content");
    if (!json_is_string(text))
        text = json_object_get(delta, "reasoning_content");
    if (!json_is_string(text))
        text = json_object_get(choice, "text");
    const char *finish = json_string_value(json_object_get(choice, "finish_reason"));
    if (finish)
        snprintf(c->finish, sizeof c->finish, "%s", finish);
    take_logprobs(c, json_object_get(choice, "logprobs"));
    buf_add(&c->text, json_string_value(text), json_string_length(text));
    const json_t *ids = json_object_get(choice, "token_ids"), *id;
    size_t i;
    json_array_foreach(ids, i, id)
        buf_printf(&c->ids, "%lld\n", (long long)json_integer_value(id));
    if (json_is_array(ids))
        return json_array_size(ids) > 0;
    // A token that is no text (prompts of random ids give such) is a text completion's empty piece.
    bool token = json_is_string(json_object_get(choice, "text")) && !finish;
    return json_string_length(text) > 0 || token;
}

int answer_event(struct answer *a, const char *data, size_t len)
{
    if (len == 6 && memcmp(data, "[DONE]", 6) == 0) {
        a->done = true;
        return 0;
    }
    json_t *root = json_loadb(data, len, 0, NULL);
    int n = 0;
    if (!root || json_object_get(root, "error")) {
        a->failed = true;
        buf_add(&a->whole, data, len);
    }
    const json_t *choices = json_object_get(root, "choices"), *choice;
    size_t i;
    json_array_foreach(choices, i, choice)
        n += take_choice(a, choice);
    take_usage(a, root);
    json_decref(root);
    return n;
}

void answer_body(struct answer *a, const char *data, size_t len)
{
    json_t *root = json_loadb(data, len, 0, NULL);
    buf_clear(&a->whole);
    if (!json_is_object(root)) {
        a->failed = a->status == 200 && len > 0 && (*data == '{' || *data == '[');
        buf_add(&a->whole, data, len);
        json_decref(root);
        return;
    }
    take_usage(a, root);
    json_object_del(root, "id");
    json_object_del(root, "created");
    json_object_del(root, "timings");
    json_object_del(json_object_get(root, "usage"), "prompt_tokens_details");
    add_json(&a->whole, root);
    json_decref(root);
}

static bool same(const struct buf *want, const struct buf *got, bool partial)
{
    if (partial ? got->len > want->len : got->len != want->len)
        return false;
    return got->len == 0 || memcmp(want->data, got->data, got->len) == 0;
}

const char *answer_differs(const struct answer *want, const struct answer *got, bool partial)
{
    if (partial && got->status == 0)
        return NULL;
    if (want->status != got->status)
        return "status";
    for (int i = 0; i < ANSWER_CHOICES; i++) {
        const struct answer_choice *w = &want->choices[i], *g = &got->choices[i];
        if (!same(&w->text, &g->text, partial))
            return "text";
        if (!same(&w->logprobs, &g->logprobs, partial))
            return "logprobs";
        if (!same(&w->ids, &g->ids, partial))
            return "token ids";
        if (strcmp(w->finish, g->finish) != 0 && (!partial || *g->finish))
            return "finish_reason";
    }
    if (partial)
        return NULL;
    if (want->done != got->done || want->failed != got->failed)
        return "end of the stream";
    if (want->prompt_tokens != got->prompt_tokens || want->completion_tokens != got->completion_tokens)
        return "usage";
    return same(&want->whole, &got->whole, false) ? NULL : "body";
}
