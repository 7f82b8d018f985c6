// embedder.c - embedding tasks. Check runs on the submitting thread, prepare on a prep thread, begin and after on the
// scheduler's, step on every lane. A work owns its ids, its texts, and the states of the batch it is at.
#include "engine/blocks/embedder.h"

#include <jansson.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "engine/model.h"
#include "engine/sched/session.h"
#include "engine/tokenizer/tokenizer.h"
#include "engine/weights/weights.h"

enum { MAX_RUNNING = 4, MAX_CONTEXTS = 4 };

struct embedding {
    struct work work;
    const struct embedder *em;
    struct ids ids;           // of all texts
    struct pooling_text *texts;  // [n]: rows in ids; the ones of the batch: rows in x
    size_t n, next;           // next: the batch's first text
    int ntexts, rows, row0;   // of the batch; its first id
    int part;                 // the encoder's next
    float *x, *vectors;       // [rows, hidden], [texts, dims]
    int max_rows, max_texts;
};

static const struct embedder *embedder_of(const struct model *m)
{
    return m->impl;
}

// ---- opening

static const json_t *st_config(const struct model *m)
{
    return weights_json(m->weights, "config_sentence_transformers.json");
}

static int text_limit(const struct model *m, int positions)
{
    const json_t *j = json_object_get(weights_json(m->weights, "sentence_bert_config.json"), "max_seq_length");
    if (!json_is_integer(j))
        j = json_object_get(weights_json(m->weights, "tokenizer_config.json"), "model_max_length");
    json_int_t n = json_is_integer(j) ? json_integer_value(j) : 0;
    return n > 0 && n < positions ? (int)n : positions;
}

err_code embedder_open(struct embedder *em, struct model *m, const struct encoder_ops *encoder, int hidden, int positions,
                       err *e)
{
    em->encoder = encoder;
    em->hidden = hidden;
    m->context = text_limit(m, positions);
    return pooling_open(m, hidden, &em->pool, e);
}

void embedder_close(struct embedder *em)
{
    pooling_close(em->pool);
    em->pool = NULL;
}

void embedder_describe(const struct model *m, struct model_info *ret_info)
{
    ret_info->dimensions = pooling_dims(embedder_of(m)->pool);
}

// ---- what a task may ask for

// The sizes a model's vectors may be cut to: a list in its configuration, or any when it calls itself Matryoshka.
static bool may_cut(const struct model *m, int dims)
{
    const json_t *files[] = {weights_config(m->weights), st_config(m)}, *size;
    for (int i = 0; i < 2; i++) {
        const json_t *list = json_object_get(files[i], "matryoshka_dimensions");
        size_t k;
        json_array_foreach ((json_t *)list, k, size)
            if (json_is_integer(size) && json_integer_value(size) == dims)
                return true;
        if (!json_is_array(list) && json_is_true(json_object_get(files[i], "is_matryoshka")))
            return true;
    }
    return false;
}

static err_code check_dimensions(const struct model *m, int asked, err *e)
{
    int dims = pooling_dims(embedder_of(m)->pool);
    if (asked == 0 || asked == dims)
        return ERR_OK;
    if (asked < 0 || asked > dims)
        return err_set_param(e, ERR_INVALID, "dimensions",
                             "Invalid 'dimensions': %d, expected 1 to %d for this model.", asked, dims);
    if (!may_cut(m, asked))
        return err_set_param(e, ERR_UNSUPPORTED, "dimensions",
                             "This model was not trained for vectors of %d dimensions; it has %d (its configuration "
                             "declares no matryoshka_dimensions with that size).", asked, dims);
    return ERR_OK;
}

// The text put before every input; "" for none.
static err_code find_prompt(const struct model *m, const struct embed *t, const char **ret_prompt, err *e)
{
    const json_t *config = st_config(m), *prompts = json_object_get(config, "prompts");
    const char *name = t->prompt_name ? t->prompt_name : json_string_value(json_object_get(config, "default_prompt_name"));
    *ret_prompt = "";
    if (t->prompt || !name) {
        *ret_prompt = t->prompt ? t->prompt : "";
        return ERR_OK;
    }
    const char *text = json_string_value(json_object_get(prompts, name)), *key;
    if (text) {
        *ret_prompt = text;
        return ERR_OK;
    }
    char known[200] = "none";
    size_t at = 0;
    json_t *j;
    json_object_foreach ((json_t *)prompts, key, j)
        if (at < sizeof known)
            at += (size_t)snprintf(known + at, sizeof known - at, "%s'%s'", at ? ", " : "", key);
    return err_set_param(e, ERR_INVALID, "prompt_name", "Invalid 'prompt_name': '%.60s'; this model has: %s.", name, known);
}

static err_code check(const struct model *m, const struct task *t, err *e)
{
    const char *prompt;
    if (t->embed.ninputs == 0)
        return err_set_param(e, ERR_INVALID, "input", "there is nothing to embed");
    if (find_prompt(m, &t->embed, &prompt, e))
        return e->code;
    return check_dimensions(m, t->embed.dimensions, e);
}

// ---- tokens

static err_code encode(const struct model *m, const char *text, size_t len, bool special, struct ids *ids, err *e)
{
    if (!m->tokenizer) {
        *e = m->tokenizer_error;
        return e->code;
    }
    // As in sentence-transformers, [MASK] or [SEP] written in a text is that token: whoever embeds a text trusts it.
    struct text_span span = {text, len, true};
    return tokenizer_encode(m->tokenizer, &span, 1, special, ids, e);
}

static err_code too_long(const struct model *m, size_t i, size_t tokens, bool more, err *e)
{
    return err_set_param(e, ERR_CONTEXT, "input",
                         "This model's maximum context length is %d tokens, however input %zu has %s%zu tokens. "
                         "Shorten it, or set 'truncate' to true.", m->context, i, more ? "more than " : "", tokens);
}

// Cuts the text itself, not what the tokenizer puts around it.
static void cut(const struct model *m, struct ids *ids, size_t start)
{
    size_t limit = (size_t)m->context, n = ids->len - start;
    size_t after = (size_t)tokenizer_adds_after(m->tokenizer), keep = limit > after ? limit - after : 0;
    if (n <= limit)
        return;
    memmove(ids->data + start + keep, ids->data + ids->len - after, after * sizeof *ids->data);
    ids->len = start + keep + after;
}

static err_code add_text(const struct model *m, const struct embed *t, size_t i, const char *prompt, struct ids *ids,
                         err *e)
{
    const struct embed_input *in = &t->inputs[i];
    size_t start = ids->len, plen = strlen(prompt), most = (size_t)MAX_CONTEXTS * (size_t)m->context, len;
    char *joined = NULL;
    const char *text = in->text;
    if (!size_add(plen, in->len, &len) || (plen && !(joined = mem_try(len + 1))))
        return err_set_param(e, ERR_MEMORY, "input", "no memory for input %zu", i);
    if (joined) {
        memcpy(joined, prompt, plen);
        memcpy(joined + plen, in->text, in->len);
        text = joined;
    }
    // A text that is far too long is not tokenised to its end: that takes seconds others would wait for.
    ids->max = t->truncate ? 0 : start + most;
    ids->over = false;
    err_code code = encode(m, text, len, true, ids, e);
    free(joined);
    if (code && ids->over)
        return too_long(m, i, most, true, e);
    if (code)
        return code;
    if (t->truncate)
        cut(m, ids, start);
    return ERR_OK;
}

static err_code add_ids(const struct model *m, const struct embed *t, size_t i, struct ids *ids, err *e)
{
    const struct embed_input *in = &t->inputs[i];
    size_t n = t->truncate && in->nids > (size_t)m->context ? (size_t)m->context : in->nids;
    if (n > (size_t)m->context)
        return too_long(m, i, n, false, e);
    for (size_t k = 0; k < n; k++) {
        if (in->ids[k] < 0 || in->ids[k] >= m->vocab)
            return err_set_param(e, ERR_INVALID, "input",
                                 "Token id %d in input %zu is outside this model's vocabulary of %d. Ids of another "
                                 "tokenizer mean nothing here: send text (in LangChain, set "
                                 "check_embedding_ctx_length=False).", in->ids[k], i, m->vocab);
        ids_add(ids, in->ids[k]);
    }
    return ERR_OK;
}

// How many tokens at the start of a text belong to the prompt, when pooling leaves them out.
static err_code prompt_tokens(const struct model *m, const char *prompt, int *ret_n, err *e)
{
    struct ids ids = {0};
    *ret_n = 0;
    if (!*prompt || pooling_includes_prompt(embedder_of(m)->pool))
        return ERR_OK;
    err_code code = encode(m, prompt, strlen(prompt), true, &ids, e);
    if (!code && ids.len)
        *ret_n = (int)ids.len - tokenizer_is_control(m->tokenizer, ids.data[ids.len - 1]);
    free(ids.data);
    return code;
}

static err_code add_input(const struct model *m, const struct embed *t, struct embedding *w, size_t i, const char *prompt,
                          int skip, err *e)
{
    bool is_text = t->inputs[i].text != NULL;
    size_t start = w->ids.len;
    err_code code = is_text ? add_text(m, t, i, prompt, &w->ids, e) : add_ids(m, t, i, &w->ids, e);
    if (code)
        return code;
    size_t rows = w->ids.len - start;
    skip = is_text ? skip : 0;
    if (rows > (size_t)m->context)
        return too_long(m, i, rows, false, e);
    if (rows == 0 || (size_t)skip >= rows)
        return err_set_param(e, ERR_INVALID, "input", "input %zu has no tokens", i);
    for (size_t k = start; k < w->ids.len; k++)
        if (w->ids.data[k] >= m->vocab)
            return err_set(e, ERR_CORRUPT, "%s: the tokenizer gives id %d, the model has %d", m->path, w->ids.data[k],
                           m->vocab);
    if (w->ids.len > INT_MAX)
        return err_set_param(e, ERR_TOO_LARGE, "input", "all inputs together have more than %d tokens", INT_MAX);
    w->texts[i] = (struct pooling_text){(int)start, (int)rows, skip};
    return ERR_OK;
}

static void free_work(struct work *work)
{
    struct embedding *w = (struct embedding *)work;
    free(w->ids.data);
    free(w->texts);
    free(w->x);
    free(w->vectors);
    free(w);
}

static err_code prepare(const struct model *m, const struct task *t, struct work **ret_work, int *ret_prompt_tokens, err *e)
{
    const char *prompt;
    int skip;
    if (find_prompt(m, &t->embed, &prompt, e) || prompt_tokens(m, prompt, &skip, e))
        return e->code;
    struct embedding *w = mem_new(sizeof *w);
    size_t bytes;
    err_code code = ERR_OK;
    w->em = embedder_of(m);
    w->n = t->embed.ninputs;
    w->texts = size_mul(w->n, sizeof *w->texts, &bytes) ? mem_try(bytes) : NULL;
    if (!w->texts)
        code = err_set(e, ERR_MEMORY, "no memory for %zu inputs", w->n);
    for (size_t i = 0; !code && i < w->n; i++)
        code = add_input(m, &t->embed, w, i, prompt, skip, e);
    if (code) {
        free_work(&w->work);
        return code;
    }
    *ret_prompt_tokens = (int)w->ids.len;
    *ret_work = &w->work;
    return ERR_OK;
}

// ---- steps

static int most_rows(const struct model *m)
{
    return m->context > EMBEDDER_ROWS ? m->context : EMBEDDER_ROWS;
}

static size_t state_bytes(const struct embedder *em, int rows, int texts)
{
    return ((size_t)rows * (size_t)em->hidden + (size_t)texts * (size_t)pooling_dims(em->pool)) * sizeof(float);
}

static size_t work_bytes(const struct model *m)
{
    return state_bytes(embedder_of(m), most_rows(m), most_rows(m));
}

static size_t align(size_t bytes)
{
    return (bytes + 63) & ~(size_t)63;
}

// The encoder's and the pool's, which are not used at the same time.
static size_t scratch_bytes(const struct model *m, int lanes)
{
    const struct embedder *em = embedder_of(m);
    size_t encoder = em->encoder->scratch_bytes(m, most_rows(m), lanes);
    size_t pool = pooling_scratch_bytes(em->pool, most_rows(m));
    return align(encoder > pool ? encoder : pool);
}

// The texts that come next, as many as fit.
static void next_batch(struct embedding *w)
{
    w->ntexts = w->rows = w->part = 0;
    w->row0 = w->texts[w->next].first;
    for (size_t i = w->next; i < w->n && (w->ntexts == 0 || w->rows + w->texts[i].rows <= EMBEDDER_ROWS); i++) {
        w->texts[i].first -= w->row0;
        w->rows += w->texts[i].rows;
        w->ntexts++;
    }
}

// Room for the largest batch there will be.
static err_code begin(struct work *work, err *e)
{
    struct embedding *w = (struct embedding *)work;
    size_t all = w->ids.len, most = (size_t)most_rows(work->model);
    size_t rows = all < most ? all : most, texts = w->n < rows ? w->n : rows;
    w->x = mem_try(rows * (size_t)w->em->hidden * sizeof *w->x);
    w->vectors = mem_try(texts * (size_t)pooling_dims(w->em->pool) * sizeof *w->vectors);
    if (!w->x || !w->vectors)
        return err_set(e, ERR_MEMORY, "no memory for the states of %zu tokens", rows);
    next_batch(w);
    return ERR_OK;
}

static void step(struct work *work, struct lane *lane)
{
    struct embedding *w = (struct embedding *)work;
    const struct model *m = work->model;
    struct encoder_rows r = {
        .ids = w->ids.data + w->row0, .texts = w->texts + w->next, .ntexts = w->ntexts, .rows = w->rows, .x = w->x,
        .scratch = work->scratch,
    };
    int part = w->part, parts = w->em->encoder->parts(m);
    bool over = false;
    while (part < parts && !over) {
        w->em->encoder->part(m, &r, part++, lane);
        over = work_slice(work, lane);
    }
    if (part == parts)
        pooling_run(lane, w->em->pool, m->ops, w->x, r.texts, r.ntexts, work->scratch, w->vectors);
    if (lane->id == 0)
        w->part = part;
}

// ---- vectors

static bool all_finite(const float *v, int n)
{
    for (int i = 0; i < n; i++)
        if (!isfinite(v[i]))
            return false;
    return true;
}

static void shorten(float *v, int n)
{
    double sum = 0;
    for (int i = 0; i < n; i++)
        sum += (double)v[i] * (double)v[i];
    float norm = (float)sqrt(sum);
    for (int i = 0; norm > 0 && i < n; i++)
        v[i] /= norm;
}

static err_code send(struct embedding *w, struct session *s, int k, err *e)
{
    int dims = pooling_dims(w->em->pool), asked = w->work.task->embed.dimensions;
    float *v = w->vectors + (size_t)k * (size_t)dims;
    size_t input = w->next + (size_t)k;
    if (!all_finite(v, dims))
        return err_set(e, ERR_INTERNAL, "the vector of input %zu is not finite: the model's numbers overflow", input);
    if (asked) {
        dims = asked;
        shorten(v, dims);
    }
    session_emit(s, &(struct event){.kind = EVENT_VECTOR, .choice = (int)input, .values = v, .nvalues = (size_t)dims});
    return ERR_OK;
}

static enum work_next after(struct work *work, struct session *s, err *e)
{
    struct embedding *w = (struct embedding *)work;
    if (w->part < w->em->encoder->parts(work->model))
        return WORK_MORE;
    for (int k = 0; k < w->ntexts; k++)
        if (send(w, s, k, e))
            return WORK_FAIL;
    w->next += (size_t)w->ntexts;
    if (w->next == w->n)
        return WORK_DONE;
    next_batch(w);
    return WORK_MORE;
}

const struct work_ops embedder_work = {
    .max_running = MAX_RUNNING, .check = check, .prepare = prepare, .work_bytes = work_bytes,
    .scratch_bytes = scratch_bytes, .begin = begin, .step = step, .after = after, .free = free_work,
};
