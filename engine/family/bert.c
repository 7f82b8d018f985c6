// bert.c - BERT as a text encoder: all-MiniLM, bge, e5, gte and every sentence-transformers folder around a BertModel.
//
//   ids -> word + type 0 + position -> norm -> [ q,k,v -> attention -> o -> + -> norm ;
//                                               up -> GELU -> down -> + -> norm ] x L -> pooling (blocks/pooling.h)
//
// Unusual: norms come after the sums (post-norm) and have biases, as all linears do; no causal mask. Checkpoints of the
// bare encoder have no "bert." in front, old ones call a norm's weight gamma and its bias beta. The pooler, the heads for
// training and position_ids are not used. (Devlin et al. 2018.)
//
// R rows, H hidden, A heads, F feed-forward. One part of an encoder is half a layer: attention, or the feed-forward.
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "engine/blocks/embedder.h"
#include "engine/blocks/linear.h"
#include "engine/blocks/mha.h"
#include "engine/family/family.h"
#include "engine/model.h"

enum { MAX_LAYERS = 512 };

static const char *const archs[] = {"bert", "BertModel", "BertForMaskedLM", "BertForPreTraining", NULL};

struct dims {
    int hidden, layers, heads, ffn, positions, types, vocab;
    float eps;
    bool decoder;
};

static const struct hyper hypers[] = {
    {"hidden_size", "embedding_length", HYPER_INT, offsetof(struct dims, hidden), true, 0, 1, 1 << 16, 0},
    {"num_hidden_layers", "block_count", HYPER_INT, offsetof(struct dims, layers), true, 0, 1, MAX_LAYERS, 0},
    {"num_attention_heads", "attention.head_count", HYPER_INT, offsetof(struct dims, heads), true, 0, 1, 1 << 12, 0},
    {"intermediate_size", "feed_forward_length", HYPER_INT, offsetof(struct dims, ffn), true, 0, 1, 1 << 18, 0},
    {"max_position_embeddings", "context_length", HYPER_INT, offsetof(struct dims, positions), false, 512, 1, 1 << 20, 512},
    {"vocab_size", NULL, HYPER_INT, offsetof(struct dims, vocab), false, 0, 0, 1 << 24, 0},
    {"type_vocab_size", NULL, HYPER_INT, offsetof(struct dims, types), false, 2, 0, 1 << 16, 0},
    {"layer_norm_eps", "attention.layer_norm_epsilon", HYPER_FLOAT, offsetof(struct dims, eps), false, 1e-12, 0, 1, 1e-12},
    {"is_decoder", "attention.causal", HYPER_BOOL, offsetof(struct dims, decoder), false, 0, 0, 1, 0},
};

struct norm {
    const float *weight, *bias;
};

struct layer {
    struct linear q, k, v, o, up, down;
    struct norm attn_norm, ffn_norm;
};

struct bert {
    struct embedder embedder;  // first: blocks/embedder.c takes it from here
    struct dims dims;
    enum activation { ACT_GELU, ACT_GELU_TANH, ACT_GELU_QUICK, ACT_SILU, ACT_RELU } act;
    struct mat words, positions, types;
    float *type;  // row 0 of the token types: texts are single
    struct norm norm;
    struct layer *layers;
};

struct names {
    const char *words, *positions, *types, *norm, *layer;
    const char *q, *k, *v, *o, *attn_norm, *up, *down, *ffn_norm;
};

static const struct names names_hf = {
    .words = "embeddings.word_embeddings", .positions = "embeddings.position_embeddings",
    .types = "embeddings.token_type_embeddings", .norm = "embeddings.LayerNorm", .layer = "encoder.layer.%d.",
    .q = "attention.self.query", .k = "attention.self.key", .v = "attention.self.value", .o = "attention.output.dense",
    .attn_norm = "attention.output.LayerNorm", .up = "intermediate.dense", .down = "output.dense",
    .ffn_norm = "output.LayerNorm",
};

static const struct names names_gguf = {
    .words = "token_embd", .positions = "position_embd", .types = "token_types", .norm = "token_embd_norm",
    .layer = "blk.%d.",
    .q = "attn_q", .k = "attn_k", .v = "attn_v", .o = "attn_output", .attn_norm = "attn_output_norm",
    .up = "ffn_up", .down = "ffn_down", .ffn_norm = "layer_output_norm",
};

// ---- opening

struct opening {
    struct model *m;
    struct bert *b;
    const struct names *names;
    const char *prefix;
    struct loader *ld;
    int layer;  // -1: outside the layers
    err *e;
};

static void full_name(const struct opening *o, char *out, size_t size, const char *part, const char *kind)
{
    char layer[64] = "";
    if (o->layer >= 0)
        snprintf(layer, sizeof layer, o->names->layer, o->layer);
    snprintf(out, size, "%s%s%s.%s", o->prefix, layer, part, kind);
}

static err_code open_linear(struct opening *o, struct linear *l, const char *part, int out, int in)
{
    char weight[160], bias[160];
    full_name(o, weight, sizeof weight, part, "weight");
    full_name(o, bias, sizeof bias, part, "bias");
    return linear_open(l, o->ld, weight, bias, out, in, o->e);
}

static err_code open_vector(struct opening *o, const char *part, const char *kind, const char *old, const float **ret_vector)
{
    char name[160], older[160];
    full_name(o, name, sizeof name, part, kind);
    full_name(o, older, sizeof older, part, old);
    bool use_old = !loader_has(o->ld, name) && loader_has(o->ld, older);
    return loader_vector(o->ld, use_old ? older : name, o->b->dims.hidden, ret_vector, o->e);
}

static err_code open_norm(struct opening *o, struct norm *n, const char *part)
{
    err_code code = open_vector(o, part, "weight", "gamma", &n->weight);
    return code ? code : open_vector(o, part, "bias", "beta", &n->bias);
}

static err_code open_table(struct opening *o, struct mat *t, const char *part, int rows)
{
    char name[160];
    full_name(o, name, sizeof name, part, "weight");
    return loader_table(o->ld, name, rows, o->b->dims.hidden, t, o->e);
}

// Rows of a table in the file; 0: it is not there.
static int rows_of(const struct opening *o, const char *part)
{
    char name[160];
    full_name(o, name, sizeof name, part, "weight");
    const struct tensor *t = weights_find_raw(o->m->weights, name);
    return t && t->ndim == 2 && t->shape[0] > 0 && t->shape[0] <= 1 << 24 ? (int)t->shape[0] : 0;
}

static err_code open_embeddings(struct opening *o)
{
    struct dims *d = &o->b->dims;
    const struct names *n = o->names;
    d->vocab = d->vocab ? d->vocab : rows_of(o, n->words);
    // A GGUF does not say how many types there are, and may have none.
    d->types = weights_container(o->m->weights) == WEIGHTS_GGUF ? rows_of(o, n->types) : d->types;
    err_code code = open_table(o, &o->b->words, n->words, d->vocab ? d->vocab : 1);
    if (!code)
        code = open_table(o, &o->b->positions, n->positions, d->positions);
    if (!code && d->types)
        code = open_table(o, &o->b->types, n->types, d->types);
    if (!code)
        code = open_norm(o, &o->b->norm, n->norm);
    o->b->type = mem_new((size_t)d->hidden * sizeof *o->b->type);
    if (!code && d->types)
        mat_row(&o->b->types, 0, o->b->type);
    return code;
}

static err_code open_layer(struct opening *o, struct layer *l)
{
    const struct dims *d = &o->b->dims;
    const struct names *n = o->names;
    err_code code = open_linear(o, &l->q, n->q, d->hidden, d->hidden);
    if (!code)
        code = open_linear(o, &l->k, n->k, d->hidden, d->hidden);
    if (!code)
        code = open_linear(o, &l->v, n->v, d->hidden, d->hidden);
    if (!code)
        code = open_linear(o, &l->o, n->o, d->hidden, d->hidden);
    if (!code)
        code = open_norm(o, &l->attn_norm, n->attn_norm);
    if (!code)
        code = open_linear(o, &l->up, n->up, d->ffn, d->hidden);
    if (!code)
        code = open_linear(o, &l->down, n->down, d->hidden, d->ffn);
    return code ? code : open_norm(o, &l->ffn_norm, n->ffn_norm);
}

static err_code open_weights(struct opening *o)
{
    struct model *m = o->m;
    err_code code = open_embeddings(o);
    for (o->layer = 0; !code && o->layer < o->b->dims.layers; o->layer++)
        code = open_layer(o, &o->b->layers[o->layer]);
    if (!code)
        code = loader_run(o->ld, m->options.load_threads, o->e);
    if (code)
        return code;
    m->packed = loader_take(o->ld);
    o->ld = NULL;
    m->resident_bytes = packed_bytes(m->packed);
    m->vocab = o->b->dims.vocab;
    m->hidden = o->b->dims.hidden;
    return ERR_OK;
}

static err_code read_activation(const struct weights *w, enum activation *ret_act, err *e)
{
    static const struct {
        const char *name;
        enum activation act;
    } known[] = {{"gelu", ACT_GELU},           {"gelu_new", ACT_GELU_TANH},    {"gelu_pytorch_tanh", ACT_GELU_TANH},
                 {"gelu_fast", ACT_GELU_TANH}, {"quick_gelu", ACT_GELU_QUICK}, {"silu", ACT_SILU},
                 {"swish", ACT_SILU},          {"relu", ACT_RELU}};
    const char *s;
    size_t n;
    *ret_act = ACT_GELU;
    if (!meta_string(w, "hidden_act", &s, &n))
        return ERR_OK;
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (strlen(known[i].name) == n && !memcmp(known[i].name, s, n)) {
            *ret_act = known[i].act;
            return ERR_OK;
        }
    return err_set_param(e, ERR_UNSUPPORTED, "hidden_act", "%s: hidden_act '%.*s' is not built", weights_path(w),
                         (int)(n < 60 ? n : 60), s);
}

// What the checkpoint may say that this encoder does not do.
static err_code refuse(const struct weights *w, const struct dims *d, err *e)
{
    const char *s;
    size_t n;
    if (meta_string(w, "position_embedding_type", &s, &n) && (n != 8 || memcmp(s, "absolute", 8)))
        return err_set_param(e, ERR_UNSUPPORTED, "position_embedding_type",
                             "%s: position_embedding_type '%.*s' is not built, expected 'absolute'", weights_path(w),
                             (int)(n < 60 ? n : 60), s);
    if (d->decoder)
        return err_set_param(e, ERR_UNSUPPORTED, "is_decoder", "%s: BERT as a decoder is not built", weights_path(w));
    if (d->hidden % d->heads)
        return err_set(e, ERR_CORRUPT, "%s: %d hidden numbers for %d heads, expected a multiple", weights_path(w), d->hidden,
                       d->heads);
    return ERR_OK;
}

static void close_model(struct model *m)
{
    struct bert *b = m->impl;
    if (!b)
        return;
    embedder_close(&b->embedder);
    free(b->type);
    free(b->layers);
    free(b);
    m->impl = NULL;
}

static const struct encoder_ops encoder;

static err_code open_model(struct model *m, err *e)
{
    bool gguf = weights_container(m->weights) == WEIGHTS_GGUF;
    struct bert *b = m->impl = mem_new(sizeof *b);
    struct opening o = {.m = m, .b = b, .names = gguf ? &names_gguf : &names_hf, .prefix = "", .layer = -1, .e = e};
    if (hyper_read(m->weights, hypers, sizeof hypers / sizeof *hypers, &b->dims, e) || refuse(m->weights, &b->dims, e) ||
        read_activation(m->weights, &b->act, e))
        return e->code;
    b->layers = mem_new((size_t)b->dims.layers * sizeof *b->layers);
    o.ld = loader_new(m->weights, m->options.math, m->ops);
    if (loader_has(o.ld, "bert.embeddings.word_embeddings.weight"))
        o.prefix = "bert.";
    err_code code = open_weights(&o);
    loader_free(o.ld);
    if (!code)
        code = embedder_open(&b->embedder, m, &encoder, b->dims.hidden, b->dims.positions, e);
    if (!code)
        m->resident_bytes += pooling_bytes(b->embedder.pool);
    return code;
}

// ---- the encoder

// A step's memory: [R, 3H] q, k and v side by side, [R, H] attention's output, or [R, F]; activations; attention's own.
struct scratch {
    float *qkv, *att, *ffn, *mha;
    void *acts;
};

static size_t align(size_t bytes)
{
    return (bytes + 63) & ~(size_t)63;
}

static size_t wide(const struct dims *d)
{
    size_t attention = 4 * (size_t)d->hidden, ffn = (size_t)d->ffn;
    return attention > ffn ? attention : ffn;
}

static size_t acts_size(const struct model *m, const struct dims *d, int rows)
{
    return align(acts_bytes(rows, d->ffn > d->hidden ? d->ffn : d->hidden, m->options.math));
}

static size_t scratch_bytes(const struct model *m, int rows, int lanes)
{
    const struct dims *d = &((const struct bert *)m->impl)->dims;
    size_t mha = mha_scratch_floats(rows, d->hidden / d->heads, lanes) * sizeof(float);
    return align((size_t)rows * wide(d) * sizeof(float)) + acts_size(m, d, rows) + align(mha);
}

static struct scratch lay_out(const struct model *m, const struct dims *d, const struct encoder_rows *r)
{
    struct scratch s = {.qkv = r->scratch, .ffn = r->scratch};
    char *at = (char *)r->scratch + align((size_t)r->rows * wide(d) * sizeof(float));
    s.att = s.qkv + (size_t)r->rows * 3 * (size_t)d->hidden;
    s.acts = at;
    s.mha = (float *)(void *)(at + acts_size(m, d, r->rows));
    return s;
}

static float *row(float *x, int r, int width)
{
    return x + (size_t)r * (size_t)width;
}

static void embed(const struct model *m, const struct encoder_rows *r, struct lane *lane)
{
    const struct bert *b = m->impl;
    int lo, hi, h = b->dims.hidden, text = 0;
    float *position = (float *)r->scratch + (size_t)lane->id * align((size_t)h);  // far less than the rows' memory
    lane_split(lane, r->rows, 1, &lo, &hi);
    for (int i = lo; i < hi; i++) {
        float *x = row(r->x, i, h);
        while (i >= r->texts[text].first + r->texts[text].rows)
            text++;
        mat_row(&b->words, r->ids[i], x);
        mat_row(&b->positions, i - r->texts[text].first, position);
        m->ops->add(x, b->type, h);
        m->ops->add(x, position, h);
        m->ops->layernorm(x, x, b->norm.weight, b->norm.bias, h, b->dims.eps);
    }
}

static void acts(const struct model *m, struct acts *a, const struct scratch *s, int rows, int cols)
{
    acts_init(a, s->acts, rows, cols, m->options.math);
}

// x += l(in), then the norm. in is complete.
static void add_and_norm(const struct model *m, const struct encoder_rows *r, const struct scratch *s, const float *in,
                         int width, const struct linear *l, const struct norm *n, struct lane *lane)
{
    const struct dims *d = &((const struct bert *)m->impl)->dims;
    struct acts a;
    int lo, hi;
    acts(m, &a, s, r->rows, width);
    linear_input(lane, m->ops, &a, in, width, r->rows);
    linear_apply(lane, m->ops, &l, &(float *){r->x}, &d->hidden, 1, &a, MAT_ADD);
    lane_barrier(lane);
    lane_split(lane, r->rows, 1, &lo, &hi);
    for (int i = lo; i < hi; i++)
        m->ops->layernorm(row(r->x, i, d->hidden), row(r->x, i, d->hidden), n->weight, n->bias, d->hidden, d->eps);
}

static void attention(const struct model *m, const struct encoder_rows *r, const struct layer *l, struct lane *lane)
{
    const struct dims *d = &((const struct bert *)m->impl)->dims;
    struct scratch s = lay_out(m, d, r);
    struct acts a;
    int h = d->hidden, ld = 3 * h, dim = h / d->heads;
    acts(m, &a, &s, r->rows, h);
    linear_input(lane, m->ops, &a, r->x, h, r->rows);
    linear_apply(lane, m->ops, (const struct linear *[]){&l->q, &l->k, &l->v}, (float *[]){s.qkv, s.qkv + h, s.qkv + 2 * h},
                 (int[]){ld, ld, ld}, 3, &a, MAT_STORE);
    lane_barrier(lane);
    struct mha at = {.ops = m->ops, .heads = d->heads, .head_dim = dim, .ldq = ld, .ldk = ld, .ldv = ld, .ldo = h,
                     .scale = 1 / sqrtf((float)dim), .scratch = s.mha};
    struct mha_item items[64];
    for (int i = 0, n; i < r->ntexts; i += n) {
        for (n = 0; n < 64 && i + n < r->ntexts; n++) {
            const struct pooling_text *t = &r->texts[i + n];
            float *q = row(s.qkv, t->first, ld);
            items[n] = (struct mha_item){.q = q, .k = q + h, .v = q + 2 * h, .out = row(s.att, t->first, h), .rows = t->rows,
                                         .keys = t->rows};
        }
        mha_run(lane, &at, items, n);
    }
    lane_barrier(lane);
    add_and_norm(m, r, &s, s.att, h, &l->o, &l->attn_norm, lane);
}

static void activate(const struct cpu_ops *ops, enum activation act, float *v, int n)
{
    if (act == ACT_SILU)
        ops->silu(v, v, n);
    else if (act != ACT_RELU)
        ops->gelu(v, v, n, act == ACT_GELU ? GELU_ERF : act == ACT_GELU_TANH ? GELU_TANH : GELU_QUICK);
    for (int i = 0; act == ACT_RELU && i < n; i++)
        v[i] = v[i] < 0 ? 0 : v[i];
}

static void feed_forward(const struct model *m, const struct encoder_rows *r, const struct layer *l, struct lane *lane)
{
    const struct bert *b = m->impl;
    const struct dims *d = &b->dims;
    struct scratch s = lay_out(m, d, r);
    struct acts a;
    int lo, hi;
    acts(m, &a, &s, r->rows, d->hidden);
    linear_input(lane, m->ops, &a, r->x, d->hidden, r->rows);
    // The activation of what this lane computed itself: nobody has to wait for it.
    lane_split(lane, mat_groups(&l->up.w), 1, &lo, &hi);
    linear_groups(m->ops, &l->up, s.ffn, d->ffn, &a, lo, hi, MAT_STORE);
    int r0 = lo * MAT_GROUP, r1 = hi * MAT_GROUP < d->ffn ? hi * MAT_GROUP : d->ffn;
    for (int i = 0; r0 < r1 && i < r->rows; i++)
        activate(m->ops, b->act, row(s.ffn, i, d->ffn) + r0, r1 - r0);
    lane_barrier(lane);
    add_and_norm(m, r, &s, s.ffn, d->ffn, &l->down, &l->ffn_norm, lane);
}

static int parts(const struct model *m)
{
    return 1 + 2 * ((const struct bert *)m->impl)->dims.layers;
}

static void run_part(const struct model *m, const struct encoder_rows *r, int part, struct lane *lane)
{
    const struct bert *b = m->impl;
    if (part == 0)
        embed(m, r, lane);
    else if (part % 2)
        attention(m, r, &b->layers[part / 2], lane);
    else
        feed_forward(m, r, &b->layers[part / 2 - 1], lane);
}

static const struct encoder_ops encoder = {.parts = parts, .scratch_bytes = scratch_bytes, .part = run_part};

const struct family family_bert = {.name = "bert", .archs = archs, .open = open_model, .close = close_model,
                                   .embed = &embedder_work, .describe = embedder_describe};
