// decoder.c - opening and running the shared pre-norm decoder. decoder_open and _close run on the thread that loads the
// model; the stages on every lane of the team, with all memory in the step's scratch.
#include "engine/blocks/decoder.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "engine/blocks/attn.h"

enum {
    FEW_ROWS = 4,
    ALIGN = 64,
    NORM_ROWS = 16,          // normalised and then quantised together
    CHUNK_FLOATS = 1 << 16,  // of gate, and of up, that are computed before they are joined: both stay in L2
};

const struct decoder_names decoder_names_hf = {
    .embed = "model.embed_tokens", .norm = "model.norm", .head = "lm_head", .layer = "model.layers.%d.",
    .attn_norm = "input_layernorm", .q = "self_attn.q_proj", .k = "self_attn.k_proj", .v = "self_attn.v_proj",
    .o = "self_attn.o_proj", .q_norm = "self_attn.q_norm", .k_norm = "self_attn.k_norm",
    .ffn_norm = "post_attention_layernorm", .gate = "mlp.gate_proj", .up = "mlp.up_proj", .down = "mlp.down_proj",
};

const struct decoder_names decoder_names_gguf = {
    .embed = "token_embd", .norm = "output_norm", .head = "output", .layer = "blk.%d.",
    .attn_norm = "attn_norm", .q = "attn_q", .k = "attn_k", .v = "attn_v",
    .o = "attn_output", .q_norm = "attn_q_norm", .k_norm = "attn_k_norm",
    .ffn_norm = "ffn_norm", .gate = "ffn_gate", .up = "ffn_up", .down = "ffn_down",
};

// ---- opening

static bool is_silu(const char *s, size_t n)
{
    return (n == 4 && !memcmp(s, "silu", n)) || (n == 5 && !memcmp(s, "swish", n));
}

// What a GGUF may say that this decoder does not do.
static err_code refuse_gguf(const struct weights *w, bool experts, err *e)
{
    char key[128];
    int64_t n, k;
    snprintf(key, sizeof key, "%s.expert_count", weights_arch(w));
    if (!experts && meta_int(w, key, &n) && n > 0)
        return err_set_param(e, ERR_UNSUPPORTED, key, "%s: '%s' is %lld, a mixture of experts is not built for '%s'",
                             weights_path(w), key, (long long)n, weights_arch(w));
    snprintf(key, sizeof key, "%s.attention.key_length", weights_arch(w));
    bool both = meta_int(w, key, &k);
    snprintf(key, sizeof key, "%s.attention.value_length", weights_arch(w));
    if (both && meta_int(w, key, &n) && n != k)
        return err_set_param(e, ERR_UNSUPPORTED, key, "%s: '%s' is %lld, that of the keys %lld: equal ones are built",
                             weights_path(w), key, (long long)n, (long long)k);
    return ERR_OK;
}

// What the checkpoint may say that this decoder does not do.
static err_code refuse(const struct weights *w, bool experts, err *e)
{
    const char *s;
    size_t n;
    if (meta_string(w, "quantization_config.quant_method", &s, &n))
        return err_set(e, ERR_UNSUPPORTED, "%s: weights quantised by '%.*s' are not built", weights_path(w), (int)n, s);
    if (meta_string(w, "hidden_act", &s, &n) && !is_silu(s, n))
        return err_set(e, ERR_UNSUPPORTED, "%s: hidden_act '%.*s' is not built, expected 'silu'", weights_path(w),
                       (int)n, s);
    if (meta_group(w, "rope_parameters.full_attention") || meta_group(w, "rope_parameters.sliding_attention"))
        return err_set(e, ERR_UNSUPPORTED, "%s: rope_parameters of their own for each type of layer are not built",
                       weights_path(w));
    return weights_container(w) == WEIGHTS_GGUF ? refuse_gguf(w, experts, e) : ERR_OK;
}

static const struct tensor *find_weight(const struct weights *w, const char *part)
{
    char name[128];
    snprintf(name, sizeof name, "%s.weight", part);
    return weights_find_raw(w, name);
}

// Checkpoints of the bare decoder have no "model." in front, and a tied one may have only the head.
static void adapt(struct decoder_names *n, const struct decoder_spec *spec, const struct weights *w, bool tied)
{
    if (weights_container(w) == WEIGHTS_HF && spec->hf_inner && !find_weight(w, n->norm) &&
        find_weight(w, spec->hf_inner->norm))
        *n = *spec->hf_inner;
    static const char prefix[] = "model.";
    size_t skip = sizeof prefix - 1;
    if (weights_container(w) == WEIGHTS_HF && !strncmp(n->embed, prefix, skip) && !find_weight(w, n->norm) &&
        find_weight(w, n->norm + skip)) {
        n->embed += skip;
        n->norm += skip;
        n->layer += skip;
    }
    if (tied && !find_weight(w, n->embed) && find_weight(w, n->head))
        n->embed = n->head;
}

// A GGUF without a head uses the embedding. A config.json says so; but where the file has both and they differ, its
// tensors are right and not the switch, as in transformers.
static bool is_tied(const struct weights *w, const struct decoder_names *names, bool tied)
{
    const struct tensor *embed = find_weight(w, names->embed), *head = find_weight(w, names->head);
    if (weights_container(w) == WEIGHTS_GGUF || !head || !embed)
        return weights_container(w) == WEIGHTS_GGUF ? !head : tied;
    if (!tied || embed == head)
        return tied;
    bool same = embed->type == head->type && embed->bytes == head->bytes && !memcmp(embed->data, head->data, head->bytes);
    weights_release(w, embed);
    weights_release(w, head);
    return same;
}

// Fills what the keys leave open and checks what belongs together.
static err_code complete(struct decoder_dims *d, const struct weights *w, const struct decoder_names *names, err *e)
{
    const struct tensor *embed = find_weight(w, names->embed);
    if (!d->vocab && embed && embed->ndim == 2 && embed->shape[0] > 0 && embed->shape[0] <= 1 << 24)
        d->vocab = (int)embed->shape[0];
    if (!d->vocab)
        return err_set_param(e, ERR_CORRUPT, "vocab_size", "%s: no vocab_size and no tensor '%s.weight'",
                             weights_path(w), names->embed);
    d->tied = is_tied(w, names, d->tied);
    d->kv_heads = d->kv_heads ? d->kv_heads : d->heads;
    d->head_dim = d->head_dim ? d->head_dim : d->hidden / d->heads;
    d->rotary = d->rotary ? d->rotary : d->head_dim;
    if (d->heads % d->kv_heads)
        return err_set(e, ERR_CORRUPT, "%s: %d attention heads and %d KV heads, expected a multiple", weights_path(w),
                       d->heads, d->kv_heads);
    if (d->head_dim < 2 || d->head_dim > 1024 || d->rotary > d->head_dim)
        return err_set(e, ERR_CORRUPT, "%s: heads of %d elements of which %d are rotated", weights_path(w),
                       d->head_dim, d->rotary);
    return ERR_OK;
}

void decoder_name(const struct decoder_opening *o, char *out, size_t size, const char *part, const char *kind)
{
    char prefix[64] = "";
    if (o->layer >= 0) {
        const char *mark = strstr(o->names->layer, "%d");
        snprintf(prefix, sizeof prefix, "%.*s%d%s", (int)(mark - o->names->layer), o->names->layer, o->layer, mark + 2);
    }
    snprintf(out, size, "%s%s%s%s", prefix, part, kind ? "." : "", kind ? kind : "");
}

// bias_there: config.json says that there is one.
err_code decoder_matrix(const struct decoder_opening *o, struct linear *l, const char *part, int out, int in,
                        bool bias_there)
{
    char weight[160], bias[160];
    decoder_name(o, weight, sizeof weight, part, "weight");
    decoder_name(o, bias, sizeof bias, part, "bias");
    if (weights_container(o->m->weights) == WEIGHTS_GGUF)
        bias_there = loader_has(o->ld, bias);
    if (bias_there && !loader_has(o->ld, bias))
        return err_set_param(o->e, ERR_CORRUPT, bias, "%s: tensor '%s' is missing", weights_path(o->m->weights), bias);
    err_code code = linear_open(l, o->ld, weight, bias_there ? bias : NULL, out, in, o->e);
    if (!code)
        o->d->math |= l->w.math;
    return code;
}

err_code decoder_norm(const struct decoder_opening *o, const float **ret_norm, const char *part, int n)
{
    char name[160];
    float *w, add = weights_container(o->m->weights) == WEIGHTS_GGUF ? 0 : o->spec->hf_norm_add;
    decoder_name(o, name, sizeof name, part, "weight");
    err_code code = loader_floats(o->ld, name, (int64_t[]){n}, 1, &w, o->e);
    if (code)
        return code;
    for (int i = 0; i < n && add != 0; i++)
        w[i] += add;
    *ret_norm = w;
    return ERR_OK;
}

// Where GGUF pairs neighbours for RoPE and the checkpoint halves, q and k have their rows in another order.
static void set_order(const struct decoder_opening *o, int heads)
{
    int size = o->d->dims.head_dim, half = size / 2;
    if (weights_container(o->m->weights) != WEIGHTS_GGUF || o->spec->gguf_pairs == o->spec->hf_pairs || !o->m->adapter)
        return;
    int32_t *rows = loader_alloc(o->ld, (size_t)heads * (size_t)size * sizeof *rows);
    for (int r = 0; r < heads * size; r++)
        rows[r] = r / size * size + r % size % 2 * half + r % size / 2;
    loader_set_order(o->ld, &(struct lora_order){.rows = rows});
}

static err_code open_attention(const struct decoder_opening *o, struct decoder_layer *l)
{
    const struct decoder_dims *d = &o->d->dims;
    const struct decoder_names *n = o->names;
    int q = d->heads * d->head_dim, kv = d->kv_heads * d->head_dim;
    set_order(o, d->heads);
    err_code code = decoder_matrix(o, &l->q, n->q, o->spec->gated ? 2 * q : q, d->hidden, d->qkv_bias);
    set_order(o, d->kv_heads);
    if (!code)
        code = decoder_matrix(o, &l->k, n->k, kv, d->hidden, d->qkv_bias);
    if (!code)
        code = decoder_matrix(o, &l->v, n->v, kv, d->hidden, d->qkv_bias);
    if (!code && o->spec->qk_norm)
        code = decoder_norm(o, &l->q_norm, n->q_norm, d->head_dim);
    if (!code && o->spec->qk_norm)
        code = decoder_norm(o, &l->k_norm, n->k_norm, d->head_dim);
    if (!code)
        code = decoder_matrix(o, &l->o, n->o, d->hidden, q, d->o_bias);
    return code;
}

static err_code open_layer(const struct decoder_opening *o, struct decoder_layer *l)
{
    const struct decoder_dims *d = &o->d->dims;
    const struct decoder_names *n = o->names;
    err_code code = decoder_norm(o, &l->attn_norm, n->attn_norm, d->hidden);
    if (!code)
        code = l->own ? o->spec->open_mixer(o, o->layer) : open_attention(o, l);
    if (!code)
        code = decoder_norm(o, &l->ffn_norm, n->ffn_norm, d->hidden);
    if (!code && l->own_mlp)
        return o->spec->open_mlp(o, o->layer);
    if (!code)
        code = decoder_matrix(o, &l->gate, n->gate, d->ffn, d->hidden, d->mlp_bias);
    if (!code)
        code = decoder_matrix(o, &l->up, n->up, d->ffn, d->hidden, d->mlp_bias);
    if (!code)
        code = decoder_matrix(o, &l->down, n->down, d->hidden, d->ffn, d->mlp_bias);
    return code;
}

// A list of layer types, where the file has one, decides over the keys.
static int layer_window(const struct weights *w, const struct decoder_dims *d, int layer)
{
    const char *s;
    size_t n;
    if (!d->window_used)
        return 0;
    if (meta_array_string(w, "layer_types", layer, &s, &n))
        return n == 17 && !memcmp(s, "sliding_attention", n) ? d->window : 0;
    return layer >= d->window_from ? d->window : 0;
}

// A list of layer types must have one of the two known for every layer.
static err_code check_types(const struct weights *w, const struct decoder_dims *d, err *e)
{
    int64_t count = meta_array_length(w, "layer_types");
    const char *s;
    size_t n;
    if (count < 0 || !d->window_used)
        return ERR_OK;
    if (count != d->layers)
        return err_set_param(e, ERR_CORRUPT, "layer_types", "%s: 'layer_types' has %lld items, expected %d",
                             weights_path(w), (long long)count, d->layers);
    for (int i = 0; i < d->layers; i++) {
        if (!meta_array_string(w, "layer_types", i, &s, &n))
            return err_set_param(e, ERR_CORRUPT, "layer_types", "%s: 'layer_types' has no text at %d", weights_path(w),
                                 i);
        if (!(n == 17 && !memcmp(s, "sliding_attention", n)) && !(n == 14 && !memcmp(s, "full_attention", n)))
            return err_set_param(e, ERR_UNSUPPORTED, "layer_types",
                                 "%s: layer type '%.*s' is not built; there are full_attention and sliding_attention",
                                 weights_path(w), n > 40 ? 40 : (int)n, s);
    }
    return ERR_OK;
}

static err_code open_tensors(struct decoder_opening *o)
{
    struct decoder *d = o->d;
    const struct decoder_dims *n = &d->dims;
    char name[160];
    err_code code = ERR_OK;
    decoder_name(o, name, sizeof name, o->names->embed, "weight");
    if (!n->tied)
        code = loader_table(o->ld, name, n->vocab, n->hidden, &d->embed, o->e);
    for (int i = 0; i < n->layers && !code; i++) {
        o->layer = i;
        d->layers[i].window = layer_window(o->m->weights, n, i);
        code = open_layer(o, &d->layers[i]);
    }
    o->layer = -1;
    if (!code)
        code = decoder_norm(o, &d->norm, o->names->norm, n->hidden);
    if (!code)
        code = decoder_matrix(o, &d->head, n->tied ? o->names->embed : o->names->head, n->vocab, n->hidden, false);
    if (!code && n->tied)
        code = linear_adapt(&d->head, o->ld, o->names->head, name, o->e);
    return code ? code : loader_run(o->ld, o->m->options.load_threads, o->e);
}

static void set_layout(struct decoder *d, enum kv_type kv)
{
    int n = 0, windows = 0;
    for (int i = 0; i < d->dims.layers; i++) {
        if (d->layers[i].own)
            continue;
        d->layers[i].kv_layer = n++;
        windows += d->layers[i].window > 0;
    }
    d->layout.type = kv;
    d->layout.ngroups = 1;
    // Layers with and without a window share their pages, which are then all kept.
    d->layout.groups[0] = (struct kv_group){n, d->dims.kv_heads, d->dims.head_dim, windows == n ? d->dims.window : 0};
}

static size_t size_of(const struct linear *l)
{
    return (size_t)l->in * (size_t)l->out;
}

// What one token costs, for bench.
static void count(struct model *m, const struct decoder *d)
{
    for (int i = 0; i < d->dims.layers; i++) {
        const struct decoder_layer *l = &d->layers[i];
        m->token_macs += size_of(&l->q) + size_of(&l->k) + size_of(&l->v) + size_of(&l->o) + size_of(&l->gate) +
                         size_of(&l->up) + size_of(&l->down);
        struct model_attention *a = &m->attention[l->window > 0];
        if (!l->own)
            *a = (struct model_attention){a->layers + 1, d->dims.heads * d->dims.head_dim, l->window};
    }
    m->token_bytes = packed_read_bytes(m->packed);
}

err_code decoder_open(struct model *m, const struct decoder_spec *spec, err *e)
{
    bool gguf = weights_container(m->weights) == WEIGHTS_GGUF;
    struct decoder *d = mem_new(spec->impl_bytes ? spec->impl_bytes : sizeof *d);
    struct decoder_names names = gguf ? *spec->gguf : *spec->hf;
    struct decoder_opening o = {.m = m, .d = d, .spec = spec, .names = &names, .layer = -1, .e = e};
    m->impl = d;
    err_code code = refuse(m->weights, spec->open_mlp != NULL, e);
    if (!code)
        code = hyper_read(m->weights, spec->hyper, spec->nhyper, &d->dims, e);
    if (!code) {
        d->dims.tied |= spec->tied;
        adapt(&names, spec, m->weights, d->dims.tied);
        code = complete(&d->dims, m->weights, &names, e);
    }
    if (!code)
        code = check_types(m->weights, &d->dims, e);
    if (code)
        return code;
    d->layers = mem_new((size_t)d->dims.layers * sizeof *d->layers);
    d->math = MAT_F32;
    d->gated = spec->gated;
    code = spec->prepare ? spec->prepare(m, e) : ERR_OK;
    if (code)
        return code;
    set_layout(d, m->options.kv);
    o.ld = loader_new(m->weights, m->options.math, m->ops);
    loader_set_adapter(o.ld, m->adapter);
    code = rope_open(&d->rope, o.ld, m->weights, d->dims.rotary, d->dims.context, e);
    d->rope.pairs = gguf ? spec->gguf_pairs : spec->hf_pairs;
    if (!code)
        code = open_tensors(&o);
    if (code) {
        loader_free(o.ld);
        return code;
    }
    m->packed = loader_take(o.ld);
    m->resident_bytes = packed_bytes(m->packed);
    m->hidden = d->dims.hidden;
    m->vocab = d->dims.vocab;
    m->context = d->rope.context;
    count(m, d);
    return ERR_OK;
}

void decoder_close(struct model *m)
{
    struct decoder *d = m->impl;
    if (!d)
        return;
    free(d->layers);
    free(d);
    m->impl = NULL;
}

void decoder_kv_layout(const struct model *m, struct kv_layout *ret_layout)
{
    const struct decoder *d = m->impl;
    *ret_layout = d->layout;
}

// ---- step memory

struct plan {
    size_t x, qkv, att, gate, up, mixer, cos, sin, h, acts, parts, lanes;  // offsets; lanes: the first lane's own part
    size_t lane_h, lane_acts, lane_attn, lane_bytes;         // offsets inside a lane's part, and its size
    size_t total;
};

static size_t take(size_t *at, size_t bytes)
{
    size_t here = *at;
    *at += (bytes + ALIGN - 1) & ~(size_t)(ALIGN - 1);
    return here;
}

static size_t acts_need(const struct decoder *d, int rows)
{
    size_t a = acts_bytes(2 * rows, d->dims.hidden, d->math);  // fine, for the head
    size_t b = acts_bytes(rows, d->dims.heads * d->dims.head_dim, d->math);
    size_t c = acts_bytes(rows, d->dims.ffn, d->math);
    size_t w = acts_bytes(rows, d->mixer_cols, d->math);
    a = a > b ? a : b;
    a = a > w ? a : w;
    return a > c ? a : c;
}

// A gated attention has its queries and gates where other layers' mixers have their rows.
static size_t mixer_width(const struct decoder *d)
{
    int gated = d->gated ? 2 * d->dims.heads * d->dims.head_dim : 0;
    return (size_t)(gated > d->mixer_floats ? gated : d->mixer_floats);
}

static struct plan make_plan(const struct decoder *d, int rows, int lanes)
{
    const struct decoder_dims *n = &d->dims;
    size_t r = (size_t)rows, f = sizeof(float), hidden = (size_t)n->hidden, ffn = (size_t)n->ffn;
    size_t heads = (size_t)n->heads * (size_t)n->head_dim, kv = (size_t)n->kv_heads * (size_t)n->head_dim;
    size_t turned = (size_t)(n->rotary / 2);
    struct plan p = {0};
    p.lane_h = take(&p.lane_bytes, FEW_ROWS * hidden * f);
    p.lane_acts = take(&p.lane_bytes, acts_need(d, FEW_ROWS));
    p.lane_attn = take(&p.lane_bytes, (size_t)attn_scratch_floats(n->heads / n->kv_heads, n->head_dim) * f);
    p.x = take(&p.total, r * hidden * f);
    p.qkv = take(&p.total, r * (heads + 2 * kv) * f);
    p.att = take(&p.total, r * heads * f);
    size_t gate = r * ffn * f, products = acts_bytes(rows, n->ffn, d->math);
    p.gate = take(&p.total, gate > products ? gate : products);
    p.up = take(&p.total, r * ffn * f);
    p.mixer = take(&p.total, r * mixer_width(d) * f);
    p.cos = take(&p.total, r * turned * f);
    p.sin = take(&p.total, r * turned * f);
    p.h = take(&p.total, r * hidden * f);
    p.acts = take(&p.total, acts_need(d, rows));
    p.parts = take(&p.total, attn_parts_floats(lanes, n->heads / n->kv_heads, n->head_dim) * f);
    p.lanes = take(&p.total, (size_t)lanes * p.lane_bytes);
    return p;
}

size_t decoder_scratch_bytes(const struct model *m, int max_rows, int max_out, int lanes)
{
    (void)max_out;  // rows of logits are at most the rows of the step, whose memory they use
    return make_plan(m->impl, max_rows, lanes).total;
}

// ---- stages

void decoder_begin(struct step *s, const struct model *m, const struct batch *b, struct lane *lane)
{
    const struct decoder *d = m->impl;
    struct plan p = make_plan(d, b->rows, lane->count);
    uint8_t *base = b->scratch, *own = base + p.lanes + (size_t)lane->id * p.lane_bytes;
    *s = (struct step){.m = m, .d = d, .batch = b, .lane = lane, .few = b->rows <= FEW_ROWS && lane->count > 1};
    s->x = (float *)(base + p.x);
    s->qkv = (float *)(base + p.qkv);
    s->att = (float *)(base + p.att);
    s->gate = (float *)(base + p.gate);
    s->up = (float *)(base + p.up);
    s->mixer = (float *)(base + p.mixer);
    s->cos = (float *)(base + p.cos);
    s->sin = (float *)(base + p.sin);
    s->h = (float *)(s->few ? own + p.lane_h : base + p.h);
    s->acts = s->few ? own + p.lane_acts : base + p.acts;
    s->attn_scratch = (float *)(own + p.lane_attn);
    s->attn_parts = (float *)(base + p.parts);
    const struct mat *embed = d->dims.tied ? &d->head.w : &d->embed;
    int lo, hi, half = d->dims.rotary / 2;
    lane_split(lane, b->rows, 1, &lo, &hi);
    for (int r = lo; r < hi; r++) {
        mat_row(embed, b->ids[r], s->x + (size_t)r * (size_t)d->dims.hidden);
        rope_row(&d->rope, b->pos[r], s->cos + (size_t)r * (size_t)half, s->sin + (size_t)r * (size_t)half);
    }
    lane_barrier(lane);
}

// Rows [lo, hi) of norm x to activations. Without `keep` nobody reads them as floats, and a few rows of memory do.
static void normalise(const struct step *s, struct acts *a, const float *x, int ldx, const float *norm, const int32_t *from,
                      int lo, int hi, bool keep)
{
    const struct cpu_ops *ops = s->m->ops;
    size_t cols = (size_t)a->cols;
    for (int r = lo, n; r < hi; r += n) {
        n = hi - r < NORM_ROWS ? hi - r : NORM_ROWS;
        float *h = s->h + (size_t)(keep ? r : lo) * cols;
        if (!from)
            cpu_rmsnorm_rows(ops, h, a->cols, x + (size_t)r * (size_t)ldx, ldx, norm, n, a->cols, s->d->dims.eps, 0);
        for (int i = 0; i < n && from; i++)
            ops->rmsnorm(h + (size_t)i * cols, x + (size_t)from[r + i] * (size_t)ldx, norm, a->cols, s->d->dims.eps, 0);
        if (keep)
            acts_set(ops, a, s->h, a->cols, r, r + n);
        else
            acts_set_part(ops, a, h, a->cols, r, r + n, 0, a->cols);
    }
}

struct input {
    const float *x;  // rows of ldx floats
    int ldx, cols, rows;
    const float *norm;
    const int32_t *from;
    bool fine;
    bool keep;  // as floats
};

static void make_input(struct step *s, struct acts *a, const struct input *in)
{
    int lo = 0, hi = in->rows;
    if (!s->few)
        lane_split(s->lane, in->rows, 1, &lo, &hi);
    if (in->fine)
        acts_init_fine(a, s->acts, in->rows, in->cols, s->d->math);
    else
        acts_init(a, s->acts, in->rows, in->cols, s->d->math);
    a->adapter = s->batch->adapter;
    a->n = in->rows;
    a->x = !in->norm ? in->x : in->keep ? s->h : NULL;
    a->ldx = in->norm ? in->cols : in->ldx;
    if (in->norm)
        normalise(s, a, in->x, in->ldx, in->norm, in->from, lo, hi, in->keep);
    else
        acts_set(s->m->ops, a, in->x, in->ldx, lo, hi);
    if (!s->few)
        lane_barrier(s->lane);
}

void decoder_input(struct step *s, struct acts *a, const float *x, int ldx, int cols, int rows, const float *norm,
                   const int32_t *from)
{
    make_input(s, a, &(struct input){x, ldx, cols, rows, norm, from, false, true});
}

// Whether products with l read activations as floats.
static bool reads_floats(const struct step *s, const struct linear *l)
{
    return l->w.math == MAT_F32 || (s->batch->adapter && l->pair);
}

// Whether the rows that l multiplies may be made ready a part at a time, by who computes it.
static bool takes_parts(const struct step *s, const struct linear *l, int part)
{
    return !s->few && part % MAT_BLOCK == 0 && !reads_floats(s, l);
}

// The residual stream, normalised, for some linears.
static void input(struct step *s, struct acts *a, const float *norm, const struct linear *const *l, int count)
{
    bool keep = false;
    for (int i = 0; i < count; i++)
        keep |= reads_floats(s, l[i]);
    int hidden = s->d->dims.hidden;
    make_input(s, a, &(struct input){s->x, hidden, hidden, s->batch->rows, norm, NULL, false, keep});
}

void decoder_multiply(struct step *s, const struct linear *l, float *y, int ldy, const struct acts *a, enum mat_write write)
{
    linear_apply(s->lane, s->m->ops, &l, &y, &ldy, 1, a, write);
    lane_barrier(s->lane);
}

static void qkv(struct step *s, const struct decoder_layer *l, int ld)
{
    const struct decoder_dims *d = &s->d->dims;
    const struct linear *const all[] = {&l->q, &l->k, &l->v};
    struct acts a;
    input(s, &a, l->attn_norm, all, 3);
    float *k = s->qkv + d->heads * d->head_dim, *v = k + d->kv_heads * d->head_dim;
    bool gated = s->d->gated;
    linear_apply(s->lane, s->m->ops, all, (float *[]){gated ? s->mixer : s->qkv, k, v}, (int[]){gated ? l->q.out : ld, ld, ld},
                 3, &a, MAT_STORE);
    lane_barrier(s->lane);
}

// Activations that are filled in parts. Every lane has its own struct.
static void init_parts(const struct step *s, struct acts *a, void *memory, int cols)
{
    acts_init(a, memory, s->batch->rows, cols, s->d->math);
    a->n = s->batch->rows;
    a->adapter = s->batch->adapter;
}

void decoder_attention(struct step *s, int layer)
{
    const struct decoder_dims *d = &s->d->dims;
    const struct decoder_layer *l = &s->d->layers[layer];
    int width = d->heads * d->head_dim, ld = width + 2 * d->kv_heads * d->head_dim;
    bool parts = takes_parts(s, &l->o, d->head_dim);
    struct acts a;
    qkv(s, l, ld);
    struct attn at = {
        .ops = s->m->ops, .batch = s->batch, .layout = &s->d->layout, .layer = l->kv_layer,
        .heads = d->heads, .kv_heads = d->kv_heads, .head_dim = d->head_dim, .window = l->window,
        .scale = 1 / sqrtf((float)d->head_dim),
        .q_norm = l->q_norm, .k_norm = l->k_norm, .eps = d->eps,
        .cos = s->cos, .sin = s->sin, .rotary = d->rotary, .pairs = s->d->rope.pairs,
        .qkv = s->qkv, .ldqkv = ld, .out = s->att, .ldout = width, .scratch = s->attn_scratch, .parts = s->attn_parts,
        .gated = s->d->gated ? s->mixer : NULL, .ldgated = 2 * width, .into = parts ? &a : NULL,
    };
    attn_store(s->lane, &at);
    lane_barrier(s->lane);
    if (parts)
        init_parts(s, &a, s->acts, width);
    attn_run(s->lane, &at);
    lane_barrier(s->lane);
    if (!parts)
        decoder_input(s, &a, s->att, width, width, s->batch->rows, NULL, NULL);
    decoder_multiply(s, &l->o, s->x, d->hidden, &a, MAT_ADD);
}

// A lane takes the same rows of gate and up, so that it can join them without waiting for the others.
static void join_all(struct step *s, const struct decoder_layer *l, const struct acts *a)
{
    const struct cpu_ops *ops = s->m->ops;
    int ffn = s->d->dims.ffn, lo, hi;
    lane_split(s->lane, ffn, MAT_GROUP, &lo, &hi);
    int g0 = lo / MAT_GROUP, g1 = (hi + MAT_GROUP - 1) / MAT_GROUP;
    linear_groups(ops, &l->gate, s->gate, ffn, a, g0, g1, MAT_STORE);
    linear_groups(ops, &l->up, s->up, ffn, a, g0, g1, MAT_STORE);
    for (int r = 0; r < s->batch->rows && lo < hi; r++) {
        float *gate = s->gate + (size_t)r * (size_t)ffn + lo;
        ops->silu_mul(gate, gate, s->up + (size_t)r * (size_t)ffn + lo, hi - lo);
    }
}

// Columns [c0, c1) of silu(gate n) * up n: to activations.
static void join_part(const struct step *s, struct acts *products, float *gate, const float *up, int ld, int c0, int c1)
{
    const struct cpu_ops *ops = s->m->ops;
    int rows = s->batch->rows;
    for (int r = 0, n; r < rows; r += n, gate += (size_t)n * (size_t)ld, up += (size_t)n * (size_t)ld) {
        n = rows - r < NORM_ROWS ? rows - r : NORM_ROWS;
        for (int i = 0; i < n; i++) {
            float *to = gate + (size_t)i * (size_t)ld;
            ops->silu_mul(to, to, up + (size_t)i * (size_t)ld, c1 - c0);
        }
        acts_set_part(ops, products, gate, ld, r, r + n, c0, c1);
    }
}

// The same a few columns at a time, which become activations (in the memory of gate) before they have left the cache. Both
// factors are in that of up: a lane's part has the place of its columns.
static void join_parts(struct step *s, const struct decoder_layer *l, const struct acts *a, struct acts *products)
{
    const struct cpu_ops *ops = s->m->ops;
    int ffn = s->d->dims.ffn, lo, hi, rows = s->batch->rows;
    init_parts(s, products, s->gate, ffn);
    lane_split(s->lane, ffn, MAT_BLOCK, &lo, &hi);
    int most = (hi - lo) / 2 / MAT_BLOCK * MAT_BLOCK, ld = CHUNK_FLOATS / rows / MAT_BLOCK * MAT_BLOCK;
    ld = ld < 2 * MAT_BLOCK ? 2 * MAT_BLOCK : ld;
    ld = ld < most ? ld : most;
    for (int c0 = lo, c1; c0 < hi; c0 = c1) {
        c1 = c0 + ld < hi ? c0 + ld : hi;
        float *gate = s->up + (size_t)rows * (size_t)lo, *up = gate + (size_t)rows * (size_t)ld;
        int g0 = c0 / MAT_GROUP, g1 = c1 / MAT_GROUP;
        // Column c0 comes first. Before the beginning of up there is gate.
        linear_groups(ops, &l->gate, gate - c0, ld, a, g0, g1, MAT_STORE);
        linear_groups(ops, &l->up, up - c0, ld, a, g0, g1, MAT_STORE);
        join_part(s, products, gate, up, ld, c0, c1);
    }
}

// Whether whole blocks of columns are shares of nearly the same size.
static bool splits_evenly(const struct step *s, int cols)
{
    int blocks = cols / MAT_BLOCK, lanes = s->lane->count;
    return blocks >= 24 * lanes || (blocks >= 2 * lanes && blocks % lanes == 0);
}

void decoder_mlp(struct step *s, int layer)
{
    const struct decoder_dims *d = &s->d->dims;
    const struct decoder_layer *l = &s->d->layers[layer];
    bool parts = takes_parts(s, &l->down, d->ffn) && splits_evenly(s, d->ffn);
    struct acts a, products;
    input(s, &a, l->ffn_norm, (const struct linear *[]){&l->gate, &l->up}, 2);
    if (parts)
        join_parts(s, l, &a, &products);
    else
        join_all(s, l, &a);
    lane_barrier(s->lane);
    if (!parts)
        decoder_input(s, &products, s->gate, d->ffn, d->ffn, s->batch->rows, NULL, NULL);
    decoder_multiply(s, &l->down, s->x, d->hidden, &products, MAT_ADD);
}

static void hidden_rows(struct step *s)
{
    const struct batch *b = s->batch;
    size_t n = (size_t)s->d->dims.hidden;
    int lo, hi;
    lane_split(s->lane, b->nout, 1, &lo, &hi);
    for (int i = lo; i < hi; i++)
        s->m->ops->rmsnorm(b->hidden + (size_t)i * n, s->x + (size_t)b->out_rows[i] * n, s->d->norm, (int)n,
                           s->d->dims.eps, 0);
    lane_barrier(s->lane);
}

void decoder_head_row(const struct model *m, int32_t id, bool adapter, float *dst)
{
    const struct decoder *d = m->impl;
    linear_row(&d->head, id, adapter, dst);
}

void decoder_logits(struct step *s)
{
    const struct batch *b = s->batch;
    struct acts a;
    if (!b->nout)
        return;
    if (b->hidden) {
        hidden_rows(s);
        return;
    }
    // What the head rounds goes straight into the logits: of int8's error on SmolLM2 it would be a third. So it is of bf16's,
    // which is 25 times smaller.
    int hidden = s->d->dims.hidden;
    make_input(s, &a, &(struct input){s->x, hidden, hidden, b->nout, s->d->norm, b->out_rows, mat_uses_int8(&s->d->head.w), true});
    if (b->out_groups) {
        linear_apply_some(s->lane, s->m->ops, &s->d->head, b->logits, s->d->dims.vocab, &a, b->out_groups);
        lane_barrier(s->lane);
        return;
    }
    decoder_multiply(s, &s->d->head, b->logits, s->d->dims.vocab, &a, MAT_STORE);
}

void decoder_forward(const struct model *m, const struct batch *b, struct lane *lane)
{
    const struct decoder *d = m->impl;
    struct step s;
    decoder_begin(&s, m, b, lane);
    for (int i = 0; i < d->dims.layers; i++) {
        decoder_attention(&s, i);
        decoder_mlp(&s, i);
    }
    decoder_logits(&s);
}
