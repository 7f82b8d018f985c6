// need.c - see the header. Nothing is allocated, and nothing is read twice.
#include "engine/need.h"

#include <string.h>

#include <jansson.h>

enum { BYTES_A_TOKEN = 4, DEEPEST = 64 };

// Bytes of the texts in a value; the parser bounds how deep it is, and so does this.
static size_t text_bytes(const json_t *v, int depth)
{
    size_t sum = 0, i;
    const char *key;
    json_t *member;
    if (json_is_string(v))
        return json_string_length(v);
    if (depth == DEEPEST)
        return 0;
    if (json_is_array(v)) {
        json_array_foreach(v, i, member)
            sum += text_bytes(member, depth + 1);
    } else if (json_is_object(v)) {
        json_object_foreach((json_t *)(uintptr_t)v, key, member)
            sum += text_bytes(member, depth + 1);
    }
    return sum;
}

static void add_text(struct slot_load *l, size_t bytes)
{
    l->bytes += bytes;
    l->tokens += bytes / BYTES_A_TOKEN;
}

static void add_prompt(struct slot_load *l, const struct prompt *p)
{
    add_text(l, text_bytes(p->messages, 0) + text_bytes(p->tools, 0) + text_bytes(p->documents, 0) + p->text_len +
             p->suffix_len);
    l->bytes += p->nids * sizeof *p->ids;
    l->tokens += p->nids;
}

static void add_inputs(struct slot_load *l, const struct embed *q)
{
    for (size_t i = 0; i < q->ninputs; i++) {
        add_text(l, q->inputs[i].len);
        l->bytes += q->inputs[i].nids * sizeof *q->inputs[i].ids;
        l->tokens += q->inputs[i].nids;
    }
}

static void add_questions(struct slot_load *l, const struct decide *d)
{
    add_text(l, d->state ? strlen(d->state) : 0);
    for (size_t i = 0; i < d->nquestions; i++) {
        add_text(l, d->questions[i].text ? strlen(d->questions[i].text) : 0);  // nothing was checked yet
        for (size_t k = 0; k < d->questions[i].noptions; k++)
            add_text(l, strlen(d->questions[i].options[k]));
    }
}

void need_load(const struct task *t, struct slot_load *ret_load)
{
    struct slot_load l = {.account = t->account, .n = 1};
    switch (t->kind) {
    case TASK_GENERATE:
        l.n = t->generate.n;
        add_prompt(&l, &t->generate.prompt);
        if (t->generate.choosing != CHOOSE_BY_TOKEN)  // they are read like a prompt
            add_text(&l, t->generate.grammar.len);
        break;
    case TASK_TOKENIZE:
    case TASK_DETOKENIZE:
    case TASK_RENDER:
        add_prompt(&l, &t->tokenize.prompt);
        l.tokens = 0;  // they compute none
        break;
    case TASK_EMBED:
        add_inputs(&l, &t->embed);
        break;
    case TASK_TRANSCRIBE:
        l.bytes = t->transcribe.nsamples * sizeof *t->transcribe.samples;
        break;
    case TASK_SPEAK:
        add_text(&l, t->speak.len);
        break;
    case TASK_IMAGE:
        l.n = t->image.n;
        add_text(&l, t->image.prompt ? strlen(t->image.prompt) : 0);
        break;
    case TASK_DECIDE:
        add_questions(&l, &t->decide);
        break;
    case TASK_LOAD:
    case TASK_KINDS:
        break;
    }
    *ret_load = l;
}
