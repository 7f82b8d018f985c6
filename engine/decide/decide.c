// decide.c - opens what a model needs to answer decisions and checks that it fits the model. Runs on the thread that loads
// the model, which owns the decider.
#include "engine/decide/decide.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/mem.h"
#include "engine/blocks/lora.h"
#include "engine/decide/bundle.h"
#include "engine/decide/decider.h"
#include "engine/family/family.h"
#include "engine/model.h"
#include "engine/tokenizer/tokenizer.h"
#include "engine/weights/weights.h"

static bool by_labels(const struct model *m)
{
    return m->options.decision && !strcmp(m->options.decision, "labels");
}

static err_code find(const struct model *m, struct bundle *ret_bundle, err *e)
{
    const char *asked = m->options.decision;
    err_code code = bundle_find(asked && asked[0] ? asked : weights_folder(m->weights), ret_bundle, e);
    if (code == ERR_NOT_FOUND && asked && asked[0])
        return err_set_param(e, ERR_INVALID, "decision", "decision is '%.200s', expected \"labels\" or the folder of a "
                             "decision bundle: it holds neither judge_config.json nor decision_head.json", asked);
    return code;
}

err_code decide_find(struct model *m, err *e)
{
    struct bundle b;
    if (by_labels(m) || m->options.adapter)
        return ERR_OK;
    err_code code = find(m, &b, e);
    if (code == ERR_NOT_FOUND) {
        *e = (err){0};
        return ERR_OK;
    }
    if (code)
        return code;
    m->options.adapter = b.adapter ? mem_strdup(b.adapter) : NULL;
    bundle_done(&b);
    return ERR_OK;
}

// ---- does it fit?

static int layers_of(const struct weights *w)
{
    int64_t n = 0;
    char key[96];
    snprintf(key, sizeof key, "%s.block_count", weights_arch(w));
    if (!meta_int(w, weights_container(w) == WEIGHTS_GGUF ? key : "num_hidden_layers", &n))
        (void)meta_int(w, "text_config.num_hidden_layers", &n);
    return (int)n;
}

static int adapter_layers(const struct weights *w)
{
    int most = 0;
    for (size_t i = 0; i < weights_count(w); i++) {
        const char *at = strstr(weights_at(w, i)->name, "layers.");
        int n = at ? atoi(at + strlen("layers.")) + 1 : 0;
        most = n > most ? n : most;
    }
    return most;
}

static err_code check_base(const struct model *m, const struct bundle *b, err *e)
{
    if (b->hidden && b->hidden != m->hidden)
        return err_set_param(e, ERR_CORRUPT, "hidden_size", "%s: hidden_size is %d, expected %d, as %s has", b->file,
                             b->hidden, m->hidden, m->path);
    int base = layers_of(m->weights), own = m->adapter ? adapter_layers(lora_weights(m->adapter)) : 0;
    if (own && own != base)
        return err_set(e, ERR_CORRUPT, "%s: the adapter has %d layers, expected %d, as %s has", b->adapter, own, base,
                       m->path);
    for (int i = 0; i < b->nslots; i++) {
        int32_t id;
        if (b->ids[i] >= m->vocab)
            return err_set_param(e, ERR_CORRUPT, "verbalizer_ids", "%s: token %d is outside the vocabulary of %d of %s",
                                 b->file, b->ids[i], m->vocab, m->path);
        if (!labels_token(m->tokenizer, b->verbalizers[i], &id))
            return err_set_param(e, ERR_CORRUPT, "slots.verbalizers", "%s: verbalizer '%.40s' is more than one token of %s, "
                                 "expected token %d", b->file, b->verbalizers[i], m->path, b->ids[i]);
        if (id != b->ids[i])
            return err_set_param(e, ERR_CORRUPT, "verbalizer_ids", "%s: verbalizer '%.40s' has token %d, expected %d, as %s "
                                 "has", b->file, b->verbalizers[i], b->ids[i], id, m->path);
    }
    return ERR_OK;
}

static err_code check_labels(const struct decider *d, const struct bundle *b, err *e)
{
    int lo = b->lo[DECIDE_ENUM], n = b->hi[DECIDE_ENUM] - lo;
    if (d->labels.n < n)
        return err_set_param(e, ERR_CORRUPT, "slots.ranges", "%s: %d slots for choice, but the tokenizer of %s has %d labels",
                             b->file, n, d->model->path, d->labels.n);
    for (int i = 0; i < n; i++)
        if (d->labels.ids[i] != b->ids[lo + i])
            return err_set_param(e, ERR_CORRUPT, "verbalizer_ids", "%s: option %d of choice is read at token %d, expected %d, "
                                 "the label '%s'", b->file, i, b->ids[lo + i], d->labels.ids[i], d->labels.text[i]);
    return ERR_OK;
}

// ---- the table of options

static void lay_out(struct decider *d)
{
    d->count[DECIDE_BOOL] = BARE_BOOLS;
    d->count[DECIDE_INT] = BARE_INTS;
    d->count[DECIDE_ENUM] = d->labels.n;
    for (int k = 0; k < BARE_KINDS; k++) {
        d->first[k] = d->n;
        d->n += d->count[k];
    }
    d->ids = mem_new((size_t)d->n * sizeof *d->ids);
    for (int i = 0; i < d->labels.n; i++)
        d->ids[d->first[DECIDE_ENUM] + i] = d->labels.ids[i];
}

static err_code check_head(const struct bundle *b, const struct tensor *w, const struct tensor *bias, int hidden, err *e)
{
    if (w->ndim != 2 || w->shape[0] != b->nslots || w->shape[1] != hidden)
        return err_set_param(e, ERR_CORRUPT, w->name, "%s: tensor '%s' is [%lld, %lld], expected [%d, %d]", b->head, w->name,
                             (long long)w->shape[0], (long long)(w->ndim > 1 ? w->shape[1] : 1), b->nslots, hidden);
    if (bias->ndim != 1 || bias->shape[0] != b->nslots)
        return err_set_param(e, ERR_CORRUPT, bias->name, "%s: tensor '%s' has %lld numbers, expected %d", b->head, bias->name,
                             (long long)bias->shape[0], b->nslots);
    return ERR_OK;
}

// Slot s of the bundle's own head as option i.
static void take_slot(struct decider *d, const struct tensor *w, const struct tensor *bias, int s, int i)
{
    const struct quant *q = quant_get(w->type), *qb = quant_get(bias->type);
    size_t hidden = (size_t)d->model->hidden, row = hidden / (size_t)q->block * (size_t)q->block_bytes;
    q->dequantize((const char *)w->data + (size_t)s * row, d->rows + (size_t)i * hidden, hidden);
    qb->dequantize((const char *)bias->data + (size_t)s * (size_t)qb->block_bytes, d->bias + i, 1);
}

static err_code copy_head(struct decider *d, const struct bundle *b, const struct weights *w, err *e)
{
    const struct tensor *proj, *bias;
    if (weights_need(w, "proj.weight", &proj, e) || weights_need(w, "proj.bias", &bias, e) ||
        check_head(b, proj, bias, d->model->hidden, e))
        return e->code;
    if (quant_get(proj->type)->block != 1 || quant_get(bias->type)->block != 1)
        return err_set(e, ERR_UNSUPPORTED, "%s: a head of %s numbers, expected floats", b->head, proj->dtype);
    err_code code = weights_finite(w, proj, 0, proj->data, proj->bytes, e);
    if (!code)
        code = weights_finite(w, bias, 0, bias->data, bias->bytes, e);
    if (code)
        return code;
    for (int k = 0; k < BARE_KINDS; k++)
        for (int s = b->lo[k]; s < b->hi[k]; s++)
            take_slot(d, proj, bias, s, d->first[k] + s - b->lo[k]);
    return ERR_OK;
}

static err_code read_slot_head(struct decider *d, const struct bundle *b, err *e)
{
    struct file_map map;
    struct weights *w;
    if (file_map_open(b->head, &map, e))
        return e->code;
    err_code code = weights_open_memory(b->head, map.data, map.size, &w, e);
    if (!code) {
        code = copy_head(d, b, w, e);
        weights_close(w);
    }
    file_map_close(&map);
    return code;
}

// Options without a slot of their own, and all of a bundle without a head, are rows of the base's output head under the
// adapter. The bias of options past the trained ones is 0.
static err_code read_rows(struct decider *d, const struct bundle *b, err *e)
{
    const struct model *m = d->model;
    size_t bytes;
    if (!size_mul((size_t)d->n * sizeof(float), (size_t)m->hidden, &bytes) || !(d->rows = mem_try(bytes)))
        return err_set(e, ERR_MEMORY, "no memory for %d rows of the decision head", d->n);
    d->bias = mem_new((size_t)d->n * sizeof *d->bias);
    for (int k = 0; k < BARE_KINDS; k++)
        for (int i = 0; i < d->count[k]; i++) {
            int at = d->first[k] + i, slot = b->lo[k] + i;
            bool trained = slot < b->hi[k];
            if (trained)
                d->ids[at] = b->ids[slot];
            if (trained && b->head)
                continue;
            m->family->gen->head_row(m, d->ids[at], true, d->rows + (size_t)at * (size_t)m->hidden);
            d->bias[at] = trained ? b->bias[slot] : 0;
        }
    return b->head ? read_slot_head(d, b, e) : ERR_OK;
}

static err_code open_native(struct decider *d, err *e)
{
    struct bundle b;
    if (find(d->model, &b, e))
        return e->code;
    d->native = true;
    d->trained = b.hi[DECIDE_ENUM] - b.lo[DECIDE_ENUM];
    for (int k = 0; k < BARE_KINDS; k++)
        d->temperature[k] = b.temperature[k];
    err_code code = check_base(d->model, &b, e);
    code = code ? code : check_labels(d, &b, e);
    code = code ? code : read_rows(d, &b, e);
    bundle_done(&b);
    return code;
}

// Every token that says an option counts for it: with or without a space in front, with a capital letter or none.
static void find_forms(struct decider *d)
{
    d->forms = mem_new((size_t)d->n * LABELS_FORMS * sizeof *d->forms);
    for (int k = 0; k < BARE_KINDS; k++)
        for (int i = 0; i < d->count[k]; i++) {
            int32_t *f = d->forms + (size_t)(d->first[k] + i) * LABELS_FORMS;
            const char *word = k == DECIDE_ENUM ? d->labels.text[i] : bare_option((enum decide_kind)k, i);
            for (int n = labels_forms(d->model->tokenizer, word, f); n < LABELS_FORMS; n++)
                f[n] = TOKEN_NONE;
        }
}

static err_code open_labels(struct decider *d, err *e)
{
    const struct model *m = d->model;
    if (d->labels.n < 2)
        return err_set_param(e, ERR_UNSUPPORTED, "decision", "%s: its tokenizer has %d labels (A, B ...) that are one token, "
                             "expected 2 or more", m->path, d->labels.n);
    for (int k = 0; k < BARE_KINDS; k++) {
        d->temperature[k] = 1;
        for (int i = 0; k != DECIDE_ENUM && i < d->count[k]; i++)
            if (!labels_token(m->tokenizer, bare_option((enum decide_kind)k, i), &d->ids[d->first[k] + i]))
                return err_set_param(e, ERR_UNSUPPORTED, "decision", "%s: '%s' is more than one token, so '%s' questions cannot "
                                     "be read from label tokens", m->path, bare_option((enum decide_kind)k, i),
                                     bare_kind((enum decide_kind)k));
    }
    find_forms(d);
    for (int i = 0; i < d->n * LABELS_FORMS; i++)
        if (d->forms[i] >= m->vocab)
            return err_set(e, ERR_CORRUPT, "%s: token %d of a label is outside the vocabulary of %d", m->path, d->forms[i],
                           m->vocab);
    return ERR_OK;
}

static err_code check_ids(const struct decider *d, err *e)
{
    for (int i = 0; i < d->n; i++)
        if (d->ids[i] < 0 || d->ids[i] >= d->model->vocab)
            return err_set(e, ERR_CORRUPT, "%s: token %d of an option is outside the vocabulary of %d", d->model->path,
                           d->ids[i], d->model->vocab);
    return ERR_OK;
}

// Whether there is a bundle at all, if a wrong one, and the model has its adapter and not one its opener chose.
static err_code expect_bundle(const struct model *m, err *e)
{
    struct bundle b;
    if (by_labels(m))
        return ERR_OK;
    err_code code = find(m, &b, e);
    if (code)
        return code;
    if (b.adapter && (!m->options.adapter || strcmp(b.adapter, m->options.adapter)))
        code = err_set(e, ERR_NOT_FOUND, "%s was opened with another adapter than its decision bundle's", m->path);
    bundle_done(&b);
    return code;
}

static err_code open_decider(struct decider *d, err *e)
{
    const struct model *m = d->model;
    if (!m->tokenizer) {
        *e = m->tokenizer_error;
        return err_wrap(e, "decisions need a tokenizer");
    }
    labels_find(m->tokenizer, &d->labels);
    lay_out(d);
    if (check_ids(d, e))
        return e->code;
    return by_labels(m) ? open_labels(d, e) : open_native(d, e);
}

err_code decide_open(struct model *m, struct decider **ret_decider, err *e)
{
    if (expect_bundle(m, e))
        return e->code;
    struct decider *d = mem_new(sizeof *d);
    d->model = m;
    err_code code = open_decider(d, e);
    if (code) {
        decide_close(d);
        e->code = code == ERR_NOT_FOUND ? ERR_CORRUPT : code;  // something of a bundle that is there
        return e->code;
    }
    m->resident_bytes += d->native ? (size_t)d->n * (size_t)m->hidden * sizeof(float) : 0;
    *ret_decider = d;
    return ERR_OK;
}

void decide_close(struct decider *d)
{
    if (!d)
        return;
    free(d->ids);
    free(d->forms);
    free(d->rows);
    free(d->bias);
    free(d);
}

void decide_describe(const struct decider *d, struct model_info *ret_info)
{
    ret_info->max_options = d->count[DECIDE_ENUM];
    ret_info->native_decisions = d->native;
    ret_info->trained_options = d->trained;
    for (int k = 0; k < BARE_KINDS; k++)
        ret_info->temperatures[k] = d->temperature[k];
}

const struct work_ops *decide_work(const struct decider *d)
{
    return d->native ? &asking_native_work : &asking_label_work;
}
