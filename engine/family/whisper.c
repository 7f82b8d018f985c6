// whisper.c - OpenAI's Whisper (Radford et al. 2022): speech to text, any size, 80 or 128 mels; also Distil-Whisper.
//
//   log-mel [2P, M] -> gelu(conv3) -> gelu(conv3, stride 2) -> + positions ->
//                                  [ norm -> attention -> + ; norm -> MLP -> + ] x E -> norm
//   ids -> embed -> + positions -> [ norm -> causal attention -> + ; norm -> attention over the encoder's rows -> + ;
//                                    norm -> MLP -> + ] x L -> norm -> embed^T
//
// Unusual: k projections have no bias; the MLP is fc2(gelu(fc1)); a layer's final_layer_norm is the norm before its
// MLP, the stack's is layer_norm. P 1500 positions of 20 ms, so a window is 30 s. The forward passes are in
// audio/whisper_net.c, what turns them into a transcript in audio/whisper_work.c.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "engine/audio/mel.h"
#include "engine/audio/whisper.h"
#include "engine/audio/whisper_tokens.h"
#include "engine/audio/whisper_work.h"
#include "engine/family/family.h"
#include "engine/model.h"
#include "engine/weights/directory.h"

static const char *const archs[] = {"WhisperForConditionalGeneration", "WhisperModel", "whisper", NULL};

enum { LEAST_CONTEXT = 16 };  // room for the tokens a window starts with, behind a prompt of half the context

#define INT_KEY(key, field, fallback, max) \
    {key, NULL, HYPER_INT, offsetof(struct whisper_dims, field), (fallback) == 0, fallback, 1, max, fallback}

static const struct hyper hypers[] = {
    INT_KEY("vocab_size", vocab, 0, 1 << 20),
    INT_KEY("d_model", hidden, 0, 1 << 14),
    INT_KEY("num_mel_bins", mels, 80, 512),
    INT_KEY("max_source_positions", positions, 1500, 1500),
    INT_KEY("max_target_positions", context, 448, 1 << 14),
    INT_KEY("encoder_layers", enc_layers, 0, 256),
    INT_KEY("encoder_attention_heads", enc_heads, 0, 1024),
    INT_KEY("encoder_ffn_dim", enc_ffn, 0, 1 << 16),
    INT_KEY("decoder_layers", dec_layers, 0, 256),
    INT_KEY("decoder_attention_heads", dec_heads, 0, 1024),
    INT_KEY("decoder_ffn_dim", dec_ffn, 0, 1 << 16),
};

// Things a config.json may ask for that would change the numbers.
static err_code refuse(const struct weights *w, const struct whisper_dims *d, err *e)
{
    const char *act;
    size_t n;
    bool scale = false;
    if (meta_string(w, "activation_function", &act, &n) && !(n == 4 && !memcmp(act, "gelu", 4)))
        return err_set_param(e, ERR_UNSUPPORTED, "activation_function", "%s: activation '%.*s' is not built, gelu is",
                             weights_path(w), n > 40 ? 40 : (int)n, act);
    if (meta_bool(w, "scale_embedding", &scale) && scale)
        return err_set_param(e, ERR_UNSUPPORTED, "scale_embedding", "%s: scaled embeddings are not built",
                             weights_path(w));
    if (d->context < LEAST_CONTEXT)
        return err_set_param(e, ERR_CORRUPT, "max_target_positions", "%s: %d decoder positions, expected %d or more",
                             weights_path(w), d->context, LEAST_CONTEXT);
    if (d->hidden % d->enc_heads || d->hidden % d->dec_heads)
        return err_set_param(e, ERR_CORRUPT, "d_model", "%s: d_model %d is no multiple of %d and %d heads",
                             weights_path(w), d->hidden, d->enc_heads, d->dec_heads);
    return ERR_OK;
}

// ---- tensors

struct opening {
    struct model *m;
    struct whisper *w;
    struct loader *ld;
    const char *prefix;  // "model." in a checkpoint of the whole model
    const struct tensor *convs[2];
    err *e;
};

// "<prefix><stack>.layers.N.<part><leaf>", or without the layer when it is below 0.
static void name_of(const struct opening *o, char *out, size_t size, const char *stack, int layer, const char *part,
                    const char *leaf)
{
    if (layer < 0)
        snprintf(out, size, "%s%s.%s%s", o->prefix, stack, part, leaf);
    else
        snprintf(out, size, "%s%s.layers.%d.%s%s", o->prefix, stack, layer, part, leaf);
}

static err_code matrix(const struct opening *o, struct linear *l, const char *stack, int layer, const char *part,
                       int out, int in, bool has_bias)
{
    char weight[160], bias[160];
    name_of(o, weight, sizeof weight, stack, layer, part, ".weight");
    name_of(o, bias, sizeof bias, stack, layer, part, ".bias");
    if (has_bias && !loader_has(o->ld, bias))
        return err_set_param(o->e, ERR_CORRUPT, bias, "%s: tensor '%s' is missing", weights_path(o->m->weights), bias);
    err_code code = linear_open(l, o->ld, weight, has_bias ? bias : NULL, out, in, o->e);
    if (!code)
        o->w->math |= l->w.math;
    return code;
}

static err_code norm(const struct opening *o, struct whisper_norm *n, const char *stack, int layer, const char *part)
{
    char name[160];
    int hidden = o->w->dims.hidden;
    name_of(o, name, sizeof name, stack, layer, part, ".weight");
    err_code code = loader_vector(o->ld, name, hidden, &n->w, o->e);
    name_of(o, name, sizeof name, stack, layer, part, ".bias");
    return code ? code : loader_vector(o->ld, name, hidden, &n->b, o->e);
}

static err_code attention(const struct opening *o, struct whisper_attn *a, const char *stack, int layer,
                          const char *part)
{
    struct {
        struct linear *l;
        const char *leaf;
        bool bias;
    } all[] = {{&a->q, "q_proj", true}, {&a->k, "k_proj", false}, {&a->v, "v_proj", true}, {&a->o, "out_proj", true}};
    char name[96];
    int hidden = o->w->dims.hidden;
    snprintf(name, sizeof name, "%s_layer_norm", part);
    err_code code = norm(o, &a->norm, stack, layer, name);
    for (size_t i = 0; i < sizeof all / sizeof *all && !code; i++) {
        snprintf(name, sizeof name, "%s.%s", part, all[i].leaf);
        code = matrix(o, all[i].l, stack, layer, name, hidden, hidden, all[i].bias);
    }
    return code;
}

static err_code block(const struct opening *o, struct whisper_block *b, const char *stack, int layer, int ffn,
                      bool cross)
{
    int hidden = o->w->dims.hidden;
    err_code code = attention(o, &b->self, stack, layer, "self_attn");
    if (!code && cross)
        code = attention(o, &b->cross, stack, layer, "encoder_attn");
    if (!code)
        code = norm(o, &b->norm, stack, layer, "final_layer_norm");
    if (!code)
        code = matrix(o, &b->fc1, stack, layer, "fc1", ffn, hidden, true);
    return code ? code : matrix(o, &b->fc2, stack, layer, "fc2", hidden, ffn, true);
}

// ---- convolutions: stored [out, in, tap], multiplied as [out, tap, in]

static err_code convolution(struct opening *o, int i, struct linear *l, int in)
{
    char name[160];
    const char *conv = i ? "conv2" : "conv1";
    int out = o->w->dims.hidden;
    const struct weights *w = o->m->weights;
    const struct tensor *t;
    name_of(o, name, sizeof name, "encoder", -1, conv, ".weight");
    err_code code = weights_need(w, name, &t, o->e);
    if (code)
        return code;
    if (t->ndim != 3 || t->shape[0] != out || t->shape[1] != in || t->shape[2] != 3) {
        char found[128];
        return err_set_param(o->e, ERR_CORRUPT, name, "%s: tensor '%s' has shape %s, expected [%d, %d, 3]",
                             weights_path(w), name, directory_shape(t->shape, t->ndim, found, sizeof found), out, in);
    }
    if (t->type != QUANT_F32 && t->type != QUANT_F16 && t->type != QUANT_BF16)
        return err_set_param(o->e, ERR_UNSUPPORTED, name,
                             "%s: tensor '%s' is stored as %s, a convolution may be F32, F16 or BF16",
                             weights_path(w), name, t->dtype);
    l->in = 3 * in;
    l->out = out;
    o->convs[i] = t;
    code = mat_plan(&l->w, t->type, out, 3 * in, MAT_F32, o->e);
    name_of(o, name, sizeof name, "encoder", -1, conv, ".bias");
    return code ? code : loader_vector(o->ld, name, out, &l->bias, o->e);
}

static err_code pack_convolution(struct opening *o, int i, struct linear *l)
{
    const struct tensor *t = o->convs[i];
    size_t size = t->type == QUANT_F32 ? 4 : 2, in = (size_t)l->in / 3;
    uint8_t *turned = mem_try(t->bytes), *packed = aligned_alloc(64, (l->w.bytes + 63) & ~(size_t)63);
    o->w->conv_memory[i] = packed;
    if (!turned || !packed) {
        free(turned);
        return err_set(o->e, ERR_MEMORY, "%s: no memory for a convolution of %zu bytes", o->m->path, t->bytes);
    }
    for (size_t r = 0; r < (size_t)l->out; r++)
        for (size_t c = 0; c < in; c++)
            for (size_t k = 0; k < 3; k++)
                memcpy(turned + ((r * 3 + k) * in + c) * size, (const uint8_t *)t->data + ((r * in + c) * 3 + k) * size,
                       size);
    mat_pack(&l->w, packed, turned, 0, mat_groups(&l->w));
    l->w.data = packed;
    free(turned);
    packed_use(o->m->packed, t, PACKED_AS_PLAIN);
    o->m->resident_bytes += l->w.bytes;
    return ERR_OK;
}

// ---- open

static err_code open_table(const struct opening *o, const char *stack, int rows, struct mat *ret_table)
{
    char name[160];
    name_of(o, name, sizeof name, stack, -1, "embed_positions", ".weight");
    return loader_table(o->ld, name, rows, o->w->dims.hidden, ret_table, o->e);
}

static err_code open_head(const struct opening *o)
{
    struct whisper *w = o->w;
    char name[160];
    bool tie = true;
    meta_bool(o->m->weights, "tie_word_embeddings", &tie);
    w->tied = tie || !loader_has(o->ld, "proj_out.weight");
    name_of(o, name, sizeof name, "decoder", -1, "embed_tokens", ".weight");
    err_code code = w->tied ? ERR_OK : loader_table(o->ld, name, w->dims.vocab, w->dims.hidden, &w->embed, o->e);
    if (!code)
        code = linear_open(&w->head, o->ld, w->tied ? name : "proj_out.weight", NULL, w->dims.vocab, w->dims.hidden,
                           o->e);
    if (!code)
        w->math |= w->head.w.math;
    return code;
}

static err_code open_tensors(struct opening *o)
{
    struct whisper *w = o->w;
    const struct whisper_dims *d = &w->dims;
    err_code code = convolution(o, 0, &w->conv1, d->mels);
    if (!code)
        code = convolution(o, 1, &w->conv2, d->hidden);
    if (!code)
        code = open_table(o, "encoder", d->positions, &w->enc_positions);
    for (int i = 0; i < d->enc_layers && !code; i++)
        code = block(o, &w->enc[i], "encoder", i, d->enc_ffn, false);
    if (!code)
        code = norm(o, &w->enc_norm, "encoder", -1, "layer_norm");
    if (!code)
        code = open_table(o, "decoder", d->context, &w->dec_positions);
    for (int i = 0; i < d->dec_layers && !code; i++)
        code = block(o, &w->dec[i], "decoder", i, d->dec_ffn, true);
    if (!code)
        code = norm(o, &w->dec_norm, "decoder", -1, "layer_norm");
    if (!code)
        code = open_head(o);
    return code ? code : loader_run(o->ld, o->m->options.load_threads, o->e);
}

static err_code open(struct model *m, err *e)
{
    if (weights_container(m->weights) == WEIGHTS_GGUF)
        return err_set(e, ERR_UNSUPPORTED, "%s: Whisper in GGUF is not built; a folder with model.safetensors is",
                       m->path);
    struct whisper *w = mem_new(sizeof *w);
    struct opening o = {.m = m, .w = w, .e = e};
    m->impl = w;
    err_code code = hyper_read(m->weights, hypers, sizeof hypers / sizeof *hypers, &w->dims, e);
    if (!code)
        code = refuse(m->weights, &w->dims, e);
    if (code)
        return code;
    w->math = MAT_F32;
    w->enc = mem_new((size_t)w->dims.enc_layers * sizeof *w->enc);
    w->dec = mem_new((size_t)w->dims.dec_layers * sizeof *w->dec);
    w->mel = mel_new(w->dims.mels);
    o.ld = loader_new(m->weights, m->options.math, m->ops);
    o.prefix = loader_has(o.ld, "model.encoder.conv1.weight") ? "model." : "";
    code = open_tensors(&o);
    if (code) {
        loader_free(o.ld);
        return code;
    }
    m->packed = loader_take(o.ld);
    m->resident_bytes = packed_bytes(m->packed);
    code = pack_convolution(&o, 0, &w->conv1);
    if (!code)
        code = pack_convolution(&o, 1, &w->conv2);
    m->hidden = w->dims.hidden;
    m->vocab = w->dims.vocab;
    m->context = w->dims.context;
    return code;
}

static void close(struct model *m)
{
    struct whisper *w = m->impl;
    if (!w)
        return;
    mel_free(w->mel);
    free(w->conv_memory[0]);
    free(w->conv_memory[1]);
    free(w->enc);
    free(w->dec);
    free(w);
    m->impl = NULL;
}

static void describe(const struct model *m, struct model_info *ret_info)
{
    ret_info->multilingual = whisper_work_multilingual(m);
}

static err_code ready(const struct model *m, err *e)
{
    struct whisper_tokens t;
    return whisper_tokens_find(m, &t, e);
}

const struct family family_whisper = {.name = "whisper", .archs = archs, .open = open, .close = close,
                                      .transcribe = &whisper_work_ops, .describe = describe, .ready = ready};
