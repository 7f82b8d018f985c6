// sparse.c - opening and running a decoder with mixtures of experts. sparse_forward runs on every lane, the rest on the
// thread that loads the model.
#include "engine/blocks/sparse.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/mem.h"

// ---- hyper-parameters

static bool is_gguf(const struct weights *w)
{
    return weights_container(w) == WEIGHTS_GGUF;
}

// num_local_experts is what newer transformers writes, num_experts what it wrote before and most files have.
static err_code count_experts(struct sparse *p, const struct weights *w, int experts, err *e)
{
    char key[128];
    snprintf(key, sizeof key, "%s.expert_count", weights_arch(w));
    if (is_gguf(w) && !meta_has(w, key))
        return err_set_param(e, ERR_CORRUPT, key, "%s: '%s' is missing, expected an integer", weights_path(w), key);
    bool named = meta_has(w, "num_experts"), local = meta_has(w, "num_local_experts");
    if (named && local && p->dims.experts != p->local_experts)
        return err_set_param(e, ERR_CORRUPT, "num_local_experts", "%s: 'num_local_experts' is %d and 'num_experts' %d",
                             weights_path(w), p->local_experts, p->dims.experts);
    if (!named && !is_gguf(w))
        p->dims.experts = local ? p->local_experts : experts;
    return ERR_OK;
}

// What a GGUF may say that this router does not do.
static err_code refuse(const struct sparse *p, const struct weights *w, err *e)
{
    char key[128];
    snprintf(key, sizeof key, "%s.expert_weights_scale", weights_arch(w));
    if (p->weights_scale < 0 || (p->weights_scale > 0 && p->weights_scale < 1) || p->weights_scale > 1)
        return err_set_param(e, ERR_UNSUPPORTED, key, "%s: '%s' is %g, 1 is built", weights_path(w), key,
                             (double)p->weights_scale);
    snprintf(key, sizeof key, "%s.expert_gating_func", weights_arch(w));
    if (p->gating > 1)
        return err_set_param(e, ERR_UNSUPPORTED, key, "%s: '%s' is %d, 1 (softmax) is built", weights_path(w), key,
                             p->gating);
    return ERR_OK;
}

// ---- which layers are mixtures

static err_code listed(const struct weights *w, int layer, bool *ret_dense, err *e)
{
    int64_t n = meta_array_length(w, "mlp_only_layers"), at;
    for (int64_t i = 0; i < n; i++) {
        if (!meta_array_int(w, "mlp_only_layers", i, &at))
            return err_set_param(e, ERR_CORRUPT, "mlp_only_layers", "%s: 'mlp_only_layers' has no integer at %lld",
                                 weights_path(w), (long long)i);
        if (at == layer) {
            *ret_dense = true;
            return ERR_OK;
        }
    }
    *ret_dense = false;
    return ERR_OK;
}

static err_code is_dense(const struct sparse *p, const struct weights *w, int layer, bool *ret_dense, err *e)
{
    char name[64];
    snprintf(name, sizeof name, "blk.%d.ffn_gate.weight", layer);
    *ret_dense = true;
    if (p->dims.experts == 0)
        return ERR_OK;
    if (is_gguf(w)) {
        *ret_dense = weights_find_raw(w, name) != NULL;
        return ERR_OK;
    }
    return (layer + 1) % p->step ? ERR_OK : listed(w, layer, ret_dense, e);
}

static err_code mark_layers(struct sparse *p, const struct weights *w, err *e)
{
    int layers = p->base.dims.layers, dense = 0;
    for (int i = 0; i < layers; i++) {
        bool is;
        err_code code = is_dense(p, w, i, &is, e);
        if (code)
            return code;
        p->base.layers[i].own_mlp = !is;
        dense += is;
    }
    if (!dense)
        p->base.dims.ffn = 0;  // a step needs no memory for it
    return dense < layers ? moe_check(&p->dims, weights_path(w), e) : ERR_OK;
}

err_code sparse_prepare(struct model *m, const struct hyper *table, size_t n, int experts, err *e)
{
    struct sparse *p = m->impl;
    struct moe_dims *d = &p->dims;
    err_code code = hyper_read(m->weights, table, n, p, e);
    if (!code)
        code = count_experts(p, m->weights, experts, e);
    if (!code)
        code = refuse(p, m->weights, e);
    if (code)
        return code;
    d->hidden = p->base.dims.hidden;
    if (is_gguf(m->weights) && !d->ffn && d->top_k)
        d->ffn = p->base.dims.ffn / d->top_k;
    p->moe = mem_new((size_t)p->base.dims.layers * sizeof *p->moe);
    return mark_layers(p, m->weights, e);
}

// ---- opening

err_code sparse_open_mlp(const struct decoder_opening *o, int layer)
{
    struct sparse *p = o->m->impl;
    return moe_open(&p->moe[layer], &p->dims, o, is_gguf(o->m->weights) ? &moe_names_gguf : &moe_names_hf);
}

err_code sparse_open(struct model *m, const struct decoder_spec *spec, err *e)
{
    err_code code = decoder_open(m, spec, e);
    if (code)
        return code;
    const struct sparse *p = m->impl;
    for (int i = 0; i < p->base.dims.layers; i++) {
        if (p->base.layers[i].own_mlp) {
            m->token_macs += moe_macs(&p->dims);
            m->idle_macs += moe_idle_macs(&p->dims);
            m->token_bytes -= moe_unread_bytes(&p->moe[i]);
        }
    }
    return ERR_OK;
}

void sparse_close(struct model *m)
{
    struct sparse *p = m->impl;
    if (p)
        free(p->moe);
    decoder_close(m);
}

// ---- running

size_t sparse_scratch_bytes(const struct model *m, int max_rows, int max_out, int lanes)
{
    const struct sparse *p = m->impl;
    size_t bytes = decoder_scratch_bytes(m, max_rows, max_out, lanes);
    return p->dims.experts ? bytes + moe_scratch_bytes(&p->dims, p->base.math, max_rows, lanes) : bytes;
}

// The mixture's memory lies behind the decoder's.
static void mixture(struct step *s, int layer)
{
    const struct sparse *p = s->m->impl;
    const struct batch *b = s->batch;
    int hidden = p->dims.hidden;
    struct acts a;
    struct moe_step moe;
    decoder_input(s, &a, s->x, hidden, hidden, b->rows, p->base.layers[layer].ffn_norm, NULL);
    moe_begin(&moe, &p->moe[layer], s->m->ops, s->lane, p->base.math, b->rows,
              (uint8_t *)b->scratch + decoder_scratch_bytes(s->m, b->rows, b->nout, s->lane->count));
    moe_route(&moe, &a);
    moe_experts(&moe, &a, s->x, hidden);
}

void sparse_forward(const struct model *m, const struct batch *b, struct lane *lane)
{
    const struct sparse *p = m->impl;
    struct step s;
    decoder_begin(&s, m, b, lane);
    for (int i = 0; i < p->base.dims.layers; i++) {
        decoder_attention(&s, i);
        if (p->base.layers[i].own_mlp)
            mixture(&s, i);
        else
            decoder_mlp(&s, i);
    }
    decoder_logits(&s);
}
