// moe.c - opening and running a mixture of experts. moe_open runs on the thread that loads the model, the rest on every
// lane of the team, with all memory in the step's scratch.
#include "engine/blocks/moe.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "engine/blocks/decoder.h"

enum {
    FEW_ROWS = 4,
    ALIGN = 64,
    GATHER = 64,       // tokens gathered together: a tile of activations
    UNIT = 4,          // row groups handed out together; floats are packed so
    COST = 4,          // reading an expert's weights costs as much as multiplying this many tokens by them
    OUT_FLOATS = 4096, // at least, of step.out
};

const struct moe_names moe_names_hf = {
    .router = "mlp.gate.weight",
    .gate = "mlp.experts.%d.gate_proj.weight", .up = "mlp.experts.%d.up_proj.weight",
    .down = "mlp.experts.%d.down_proj.weight",
    .gate_up_stack = "mlp.experts.gate_up_proj", .down_stack = "mlp.experts.down_proj",
    .shared_gate = "mlp.shared_expert.gate_proj.weight", .shared_up = "mlp.shared_expert.up_proj.weight",
    .shared_down = "mlp.shared_expert.down_proj.weight", .shared_switch = "mlp.shared_expert_gate.weight",
};

const struct moe_names moe_names_gguf = {
    .router = "ffn_gate_inp.weight",
    .gate_stack = "ffn_gate_exps.weight", .up_stack = "ffn_up_exps.weight",
    .gate_up_stack = "ffn_gate_up_exps.weight", .down_stack = "ffn_down_exps.weight",
    .shared_gate = "ffn_gate_shexp.weight", .shared_up = "ffn_up_shexp.weight",
    .shared_down = "ffn_down_shexp.weight", .shared_switch = "ffn_gate_inp_shexp.weight",
};

static int all_experts(const struct moe_dims *d)
{
    return d->experts + (d->shared_ffn > 0);
}

// ---- opening

err_code moe_check(const struct moe_dims *d, const char *path, err *e)
{
    if (d->experts < 1 || d->experts > MOE_EXPERTS)
        return err_set(e, ERR_CORRUPT, "%s: %d experts, expected 1 to %d", path, d->experts, MOE_EXPERTS);
    if (d->top_k < 1 || d->top_k > d->experts)
        return err_set(e, ERR_CORRUPT, "%s: %d experts a token, expected 1 to the number of experts, %d", path,
                       d->top_k, d->experts);
    if (d->ffn < 1 || d->shared_ffn < 0)
        return err_set(e, ERR_CORRUPT, "%s: experts of %d and a shared one of %d elements, expected sizes", path,
                       d->ffn, d->shared_ffn);
    return ERR_OK;
}

// part: a name with at most one "%d", which is the expert's number.
static void full_name(const struct decoder_opening *o, char *out, size_t size, const char *part, int expert)
{
    char whole[128];
    const char *mark = strstr(part, "%d");
    if (mark)
        snprintf(whole, sizeof whole, "%.*s%d%s", (int)(mark - part), part, expert, mark + 2);
    else
        snprintf(whole, sizeof whole, "%s", part);
    decoder_name(o, out, size, whole, NULL);
}

static bool has(const struct decoder_opening *o, const char *part, int expert)
{
    char name[192];
    if (!part)
        return false;
    full_name(o, name, sizeof name, part, expert);
    return loader_has(o->ld, name);
}

static void note_math(const struct decoder_opening *o, const struct linear *l)
{
    o->d->math |= l->w.math;
}

// A weight with a tensor of its own, which is no routed expert's: an adapter may have a pair for it.
static err_code open_one(const struct decoder_opening *o, struct linear *l, const char *part, int out, int in)
{
    char name[192];
    full_name(o, name, sizeof name, part, 0);
    err_code code = linear_open(l, o->ld, name, NULL, out, in, o->e);
    if (!code)
        note_math(o, l);
    return code;
}

static err_code open_single(const struct decoder_opening *o, struct linear *l, const char *part, int expert, int out,
                            int in)
{
    char name[192];
    full_name(o, name, sizeof name, part, expert);
    *l = (struct linear){.out = out, .in = in};
    err_code code = loader_matrix(o->ld, name, out, in, &l->w, o->e);
    if (!code)
        note_math(o, l);
    return code;
}

// part is [count, stacked, in], of which each expert's rows first .. first + out are the matrix.
static err_code open_stack(const struct decoder_opening *o, struct linear *l, const char *part, int count, int stacked,
                           int first, int out, int in)
{
    char name[192];
    full_name(o, name, sizeof name, part, 0);
    for (int i = 0; i < count; i++) {
        struct loader_slice s = {.count = count, .out = stacked, .cols = in, .index = i, .first = first, .rows = out};
        l[i] = (struct linear){.out = out, .in = in};
        err_code code = loader_slice(o->ld, name, &s, &l[i].w, o->e);
        if (code)
            return code;
        note_math(o, &l[i]);
    }
    return ERR_OK;
}

static err_code open_stacks(struct moe *l, const struct moe_dims *d, const struct decoder_opening *o,
                            const struct moe_names *n)
{
    err_code code;
    if (!n->gate_stack || has(o, n->gate_up_stack, 0)) {
        code = open_stack(o, l->gate, n->gate_up_stack, d->experts, 2 * d->ffn, 0, d->ffn, d->hidden);
        if (!code)
            code = open_stack(o, l->up, n->gate_up_stack, d->experts, 2 * d->ffn, d->ffn, d->ffn, d->hidden);
    } else {
        code = open_stack(o, l->gate, n->gate_stack, d->experts, d->ffn, 0, d->ffn, d->hidden);
        if (!code)
            code = open_stack(o, l->up, n->up_stack, d->experts, d->ffn, 0, d->ffn, d->hidden);
    }
    return code ? code : open_stack(o, l->down, n->down_stack, d->experts, d->hidden, 0, d->hidden, d->ffn);
}

static err_code open_singles(struct moe *l, const struct moe_dims *d, const struct decoder_opening *o,
                             const struct moe_names *n)
{
    for (int i = 0; i < d->experts; i++) {
        err_code code = open_single(o, &l->gate[i], n->gate, i, d->ffn, d->hidden);
        if (!code)
            code = open_single(o, &l->up[i], n->up, i, d->ffn, d->hidden);
        if (!code)
            code = open_single(o, &l->down[i], n->down, i, d->hidden, d->ffn);
        if (code)
            return code;
    }
    if (!has(o, n->gate, d->experts))
        return ERR_OK;
    char name[192];
    full_name(o, name, sizeof name, n->gate, d->experts);
    return err_set_param(o->e, ERR_CORRUPT, name, "%s: there is a tensor '%s', expected experts 0 to %d",
                         weights_path(o->m->weights), name, d->experts - 1);
}

static err_code open_shared(struct moe *l, const struct moe_dims *d, const struct decoder_opening *o,
                            const struct moe_names *n)
{
    int at = d->experts;
    if (!d->shared_ffn)
        return ERR_OK;
    err_code code = open_one(o, &l->gate[at], n->shared_gate, d->shared_ffn, d->hidden);
    if (!code)
        code = open_one(o, &l->up[at], n->shared_up, d->shared_ffn, d->hidden);
    if (!code)
        code = open_one(o, &l->down[at], n->shared_down, d->hidden, d->shared_ffn);
    if (!code && d->shared_switch)
        code = open_one(o, &l->shared_switch, n->shared_switch, 1, d->hidden);
    return code;
}

err_code moe_open(struct moe *l, const struct moe_dims *d, const struct decoder_opening *o,
                  const struct moe_names *names)
{
    bool stacks = !names->gate || has(o, names->down_stack, 0);
    size_t bytes = (size_t)all_experts(d) * sizeof(struct linear);
    *l = (struct moe){.dims = *d};
    l->gate = loader_alloc(o->ld, bytes);
    l->up = loader_alloc(o->ld, bytes);
    l->down = loader_alloc(o->ld, bytes);
    err_code code = open_one(o, &l->router, names->router, d->experts, d->hidden);
    if (!code)
        code = stacks ? open_stacks(l, d, o, names) : open_singles(l, d, o, names);
    return code ? code : open_shared(l, d, o, names);
}

size_t moe_macs(const struct moe_dims *d)
{
    size_t hidden = (size_t)d->hidden, ffn = (size_t)d->top_k * (size_t)d->ffn + (size_t)d->shared_ffn;
    return hidden * ((size_t)d->experts + 3 * ffn + (d->shared_switch ? 1 : 0));
}

size_t moe_idle_macs(const struct moe_dims *d)
{
    return 3 * (size_t)d->hidden * (size_t)d->ffn * (size_t)(d->experts - d->top_k);
}

size_t moe_unread_bytes(const struct moe *l)
{
    size_t n = 0;
    for (int i = 0; i < l->dims.experts; i++)
        n += l->gate[i].w.bytes + l->up[i].w.bytes + l->down[i].w.bytes;
    return n / (size_t)l->dims.experts * (size_t)(l->dims.experts - l->dims.top_k);
}

// ---- step memory

struct plan {
    size_t logits, gate, up, ids, weights, products, lanes;  // offsets; lanes: the first lane's own part
    // inside a lane's part:
    size_t lane_ids, lane_weights, lane_products, lane_ends, lane_slots, lane_x, lane_gathered, lane_out;
    size_t lane_bytes, total;
};

static size_t take(size_t *at, size_t bytes)
{
    size_t here = *at;
    *at += (bytes + ALIGN - 1) & ~(size_t)(ALIGN - 1);
    return here;
}

// Each expert's activations begin where those of its predecessors' tokens, one by one, would end.
static size_t products_bytes(const struct moe_dims *d, enum mat_math math, size_t rows)
{
    size_t shared = d->shared_ffn ? acts_bytes(1, d->shared_ffn, math) : 0;
    return rows * ((size_t)d->top_k * acts_bytes(1, d->ffn, math) + shared);
}

static size_t out_floats(int rows)
{
    size_t n = (size_t)UNIT * MAT_GROUP * 2 * (size_t)rows;
    return n > OUT_FLOATS ? n : OUT_FLOATS;
}

static struct plan make_plan(const struct moe_dims *d, enum mat_math math, int rows, int lanes)
{
    size_t r = (size_t)rows, f = sizeof(float), k = (size_t)d->top_k, hidden = (size_t)d->hidden;
    size_t products = r * (k * (size_t)d->ffn + (size_t)d->shared_ffn) * f;
    int few = rows < FEW_ROWS ? rows : FEW_ROWS, tile = rows < GATHER ? rows : GATHER;
    struct plan p = {0};
    p.lane_ids = take(&p.lane_bytes, (size_t)few * k * sizeof(int32_t));
    p.lane_weights = take(&p.lane_bytes, (size_t)few * (k + 1) * f);
    p.lane_products = take(&p.lane_bytes, products_bytes(d, math, (size_t)few));
    p.lane_ends = take(&p.lane_bytes, (size_t)(d->experts + 1) * sizeof(int32_t));
    p.lane_slots = take(&p.lane_bytes, r * k * sizeof(int32_t));
    p.lane_x = take(&p.lane_bytes, (size_t)tile * hidden * f);
    p.lane_gathered = take(&p.lane_bytes, acts_bytes(tile, d->hidden, math));
    p.lane_out = take(&p.lane_bytes, (hidden + out_floats(rows)) * f);
    p.logits = take(&p.total, r * (size_t)(d->experts + 1) * f);
    p.gate = take(&p.total, products);
    p.up = take(&p.total, products);
    p.ids = take(&p.total, r * k * sizeof(int32_t));
    p.weights = take(&p.total, r * (k + 1) * f);
    p.products = take(&p.total, products_bytes(d, math, r));
    p.lanes = take(&p.total, (size_t)lanes * p.lane_bytes);
    return p;
}

size_t moe_scratch_bytes(const struct moe_dims *d, enum mat_math math, int rows, int lanes)
{
    return make_plan(d, math, rows, lanes).total;
}

void moe_begin(struct moe_step *s, const struct moe *m, const struct cpu_ops *ops, struct lane *lane,
               enum mat_math math, int rows, void *scratch)
{
    struct plan p = make_plan(&m->dims, math, rows, lane->count);
    uint8_t *base = scratch, *own = base + p.lanes + (size_t)lane->id * p.lane_bytes;
    *s = (struct moe_step){.m = m, .ops = ops, .lane = lane, .math = math, .rows = rows};
    s->few = rows <= FEW_ROWS && lane->count > 1;
    s->ids = (int32_t *)(void *)(s->few ? own + p.lane_ids : base + p.ids);
    s->weights = (float *)(void *)(s->few ? own + p.lane_weights : base + p.weights);
    s->products = s->few ? own + p.lane_products : base + p.products;
    s->logits = (float *)(void *)(base + p.logits);
    s->gate = (float *)(void *)(base + p.gate);
    s->up = (float *)(void *)(base + p.up);
    s->ends = (int32_t *)(void *)(own + p.lane_ends);
    s->slots = (int32_t *)(void *)(own + p.lane_slots);
    s->x = (float *)(void *)(own + p.lane_x);
    s->gathered = own + p.lane_gathered;
    s->out = (float *)(void *)(own + p.lane_out);
}

// ---- the choice of experts

// The k largest of n, the lower index first among equals, in descending order.
static void pick(const float *logits, int n, int k, int32_t *ids)
{
    for (int i = 0, have = 0; i < n; i++) {
        if (have == k && !(logits[i] > logits[ids[k - 1]]))
            continue;
        int at = have < k ? have++ : k - 1;
        for (; at > 0 && logits[i] > logits[ids[at - 1]]; at--)
            ids[at] = ids[at - 1];
        ids[at] = i;
    }
}

static void choose(const struct moe_step *s, int row)
{
    const struct moe_dims *d = &s->m->dims;
    const float *logits = s->logits + (size_t)row * (size_t)(d->experts + 1);
    int32_t *ids = s->ids + (size_t)row * (size_t)d->top_k;
    float *w = s->weights + (size_t)row * (size_t)d->top_k;
    pick(logits, d->experts, d->top_k, ids);
    float max = logits[ids[0]];
    double chosen = 0;
    for (int i = 0; i < d->top_k; i++) {
        w[i] = (float)s->ops->sum_exp(&logits[ids[i]], 1, max);
        chosen += (double)w[i];
    }
    double sum = d->normalise ? chosen : s->ops->sum_exp(logits, d->experts, max);
    for (int i = 0; i < d->top_k; i++)
        w[i] = (float)((double)w[i] / sum);
    if (!d->shared_ffn)
        return;
    float *shared = s->weights + (size_t)s->rows * (size_t)d->top_k + row;
    *shared = 1;
    if (d->shared_switch)
        s->ops->sigmoid_mul(shared, &logits[d->experts], 1);
}

void moe_route(struct moe_step *s, const struct acts *a)
{
    const struct moe *m = s->m;
    int ld = m->dims.experts + 1, lo = 0, hi = s->rows;
    linear_apply(s->lane, s->ops, (const struct linear *[]){&m->router, &m->shared_switch},
                 (float *[]){s->logits, s->logits + m->dims.experts}, (int[]){ld, ld}, m->dims.shared_switch ? 2 : 1, a,
                 MAT_STORE);
    lane_barrier(s->lane);
    if (!s->few)
        lane_split(s->lane, s->rows, 1, &lo, &hi);
    for (int r = lo; r < hi; r++)
        choose(s, r);
    if (!s->few)
        lane_barrier(s->lane);
}

// ---- tokens by expert

// The slots by expert, tokens ascending. Every lane does it for itself: it is less than a barrier's worth.
static void group(const struct moe_step *s)
{
    int experts = s->m->dims.experts, n = s->rows * s->m->dims.top_k;
    memset(s->ends, 0, (size_t)(experts + 1) * sizeof *s->ends);
    for (int i = 0; i < n; i++)
        s->ends[s->ids[i] + 1]++;
    for (int i = 0; i < experts; i++)
        s->ends[i + 1] += s->ends[i];
    for (int i = 0; i < n; i++)
        s->slots[s->ends[s->ids[i]]++] = i;
}

// One expert's share of a step.
struct part {
    const struct linear *gate, *up, *down;
    int ffn, count;           // tokens; 0: none chose it
    int first;                // tokens of the experts before
    size_t products, acts;    // where its rows of gate and up begin, and its activations
    const int32_t *slots;     // of its tokens; NULL: all tokens, in order
};

static struct part part_of(const struct moe_step *s, int e)
{
    const struct moe_dims *d = &s->m->dims;
    struct part p = {.gate = &s->m->gate[e], .up = &s->m->up[e], .down = &s->m->down[e], .ffn = d->ffn};
    if (e < d->experts) {
        p.first = e ? s->ends[e - 1] : 0;
        p.count = s->ends[e] - p.first;
        p.slots = s->slots + p.first;
    } else {
        p.first = s->rows * d->top_k;
        p.count = s->rows;
        p.ffn = d->shared_ffn;
    }
    p.products = (size_t)p.first * (size_t)d->ffn;
    p.acts = (size_t)p.first * acts_bytes(1, d->ffn, s->math);
    return p;
}

static int token_of(const struct moe_step *s, const struct part *p, int i)
{
    return p->slots ? p->slots[i] / s->m->dims.top_k : i;
}

static float weight_of(const struct moe_step *s, const struct part *p, int i)
{
    return s->weights[p->slots ? p->slots[i] : p->first + i];
}

// ---- gate and up

static void activate(const struct moe_step *s, float *gate, const float *up, int n)
{
    if (s->m->dims.act == MOE_SILU) {
        s->ops->silu_mul(gate, gate, up, n);
        return;
    }
    s->ops->gelu(gate, gate, n, GELU_TANH);
    for (int i = 0; i < n; i++)
        gate[i] *= up[i];
}

// Row groups g0..g1 of both for n tokens from the part's token t on.
static void multiply(const struct moe_step *s, const struct part *p, const struct acts *a, int t, int g0, int g1)
{
    size_t at = p->products + (size_t)t * (size_t)p->ffn;
    int r0 = g0 * MAT_GROUP, r1 = g1 * MAT_GROUP < p->ffn ? g1 * MAT_GROUP : p->ffn;
    linear_groups(s->ops, p->gate, s->gate + at, p->ffn, a, g0, g1, MAT_STORE);
    linear_groups(s->ops, p->up, s->up + at, p->ffn, a, g0, g1, MAT_STORE);
    for (int i = 0; i < a->n; i++, at += (size_t)p->ffn)
        activate(s, s->gate + at + r0, s->up + at + r0, r1 - r0);
}

// Tokens t .. t + n of the part as activations of their own.
static struct acts gather(const struct moe_step *s, const struct part *p, const struct acts *a, int t, int n)
{
    int32_t tokens[GATHER];
    bool made = p->gate->w.math || p->up->w.math, floats = !p->gate->w.math || !p->up->w.math;
    struct acts g;
    for (int i = 0; i < n; i++)
        tokens[i] = token_of(s, p, t + i);
    acts_init(&g, s->gathered, n, a->cols, a->math);
    g.n = n;
    g.x = s->x;
    g.ldx = a->cols;
    if (made)
        acts_gather(s->ops, &g, a, tokens, n);
    for (int i = 0; i < n && floats; i++)
        memcpy(s->x + (size_t)i * (size_t)a->cols, a->x + (size_t)tokens[i] * (size_t)a->ldx,
               (size_t)a->cols * sizeof *s->x);
    return g;
}

// An expert that all tokens chose reads the step's activations as they are.
static void gate_up_part(const struct moe_step *s, const struct part *p, const struct acts *a, int g0, int g1)
{
    if (p->count == s->rows) {
        multiply(s, p, a, 0, g0, g1);
        return;
    }
    for (int t = 0, n; t < p->count; t += n) {
        n = p->count - t < GATHER ? p->count - t : GATHER;
        struct acts g = gather(s, p, a, t, n);
        multiply(s, p, &g, t, g0, g1);
    }
}

static long units_of(const struct part *p)
{
    return (p->ffn + UNIT * MAT_GROUP - 1) / (UNIT * MAT_GROUP);
}

static long cost_of(const struct part *p)
{
    return p->count ? p->count + COST : 0;
}

// The first unit at or after `at`, counting from the part's own first.
static int unit_at(long at, long cost, long units)
{
    long n = at <= 0 ? 0 : (at + cost - 1) / cost;
    return (int)(n < units ? n : units);
}

// All units of all experts stand in a row, each as long as it costs; a lane takes those that begin in its share.
static void gate_up(const struct moe_step *s, const struct acts *a)
{
    long total = 0, first = 0;
    int n = all_experts(&s->m->dims);
    for (int e = 0; e < n; e++) {
        struct part p = part_of(s, e);
        total += units_of(&p) * cost_of(&p);
    }
    long lo = total * s->lane->id / s->lane->count, hi = total * (s->lane->id + 1) / s->lane->count;
    for (int e = 0; e < n && first < hi; e++) {
        struct part p = part_of(s, e);
        long units = units_of(&p), cost = cost_of(&p);
        if (cost && first + units * cost > lo) {
            int u0 = unit_at(lo - first, cost, units), u1 = unit_at(hi - first, cost, units);
            int groups = mat_groups(&p.gate->w), g1 = u1 * UNIT < groups ? u1 * UNIT : groups;
            if (u0 < u1)
                gate_up_part(s, &p, a, u0 * UNIT, g1);
        }
        first += units * cost;
    }
}

// ---- down

static struct acts products_of(const struct moe_step *s, const struct part *p, const struct acts *a)
{
    struct acts x;
    assert(acts_bytes(p->count, p->ffn, s->math) <= (size_t)p->count * acts_bytes(1, p->ffn, s->math));
    acts_init(&x, s->products + p->acts, p->count, p->ffn, s->math);
    x.n = p->count;
    x.x = s->gate + p->products;
    x.ldx = p->ffn;
    x.adapter = a->adapter;
    return x;
}

static void quantize_products(const struct moe_step *s, const struct acts *a)
{
    int lo = 0, hi = s->rows * (s->m->dims.top_k + (s->m->dims.shared_ffn > 0));
    if (s->math == MAT_F32)
        return;
    if (!s->few)
        lane_split(s->lane, hi, 1, &lo, &hi);
    for (int e = 0, n = all_experts(&s->m->dims); e < n; e++) {
        struct part p = part_of(s, e);
        if (!p.count)
            continue;
        int t0 = lo > p.first ? lo - p.first : 0, t1 = hi - p.first < p.count ? hi - p.first : p.count;
        struct acts x = products_of(s, &p, a);
        acts_set(s->ops, &x, x.x, x.ldx, t0, t1);
    }
    if (!s->few)
        lane_barrier(s->lane);
}

// y's columns r0..r1 += weight * expert, for all of the part's tokens.
static void down_part(const struct moe_step *s, const struct part *p, const struct acts *x, int r0, int r1, float *y,
                      int ldy)
{
    int width = r1 - r0;
    float *out = s->out + s->m->dims.hidden;  // so that the row's beginning is in the same memory
    linear_groups(s->ops, p->down, out - r0, width, x, r0 / MAT_GROUP, (r1 + MAT_GROUP - 1) / MAT_GROUP, MAT_STORE);
    for (int i = 0; i < p->count; i++, out += width) {
        float w = weight_of(s, p, i), *to = y + (size_t)token_of(s, p, i) * (size_t)ldy + r0;
        for (int r = 0; r < width; r++)
            to[r] += w * out[r];
    }
}

static void down(const struct moe_step *s, const struct acts *a, float *y, int ldy)
{
    int lo, hi, unit = UNIT * MAT_GROUP;
    lane_split(s->lane, s->m->dims.hidden, unit, &lo, &hi);
    for (int e = 0, n = all_experts(&s->m->dims); e < n && lo < hi; e++) {
        struct part p = part_of(s, e);
        if (!p.count)
            continue;
        struct acts x = products_of(s, &p, a);
        int step = (int)(out_floats(s->rows) / (size_t)p.count) / unit * unit;
        for (int r = lo; r < hi; r += step)
            down_part(s, &p, &x, r, r + step < hi ? r + step : hi, y, ldy);
    }
    lane_barrier(s->lane);
}

void moe_experts(struct moe_step *s, const struct acts *a, float *y, int ldy)
{
    assert(a->math == s->math && a->n == s->rows);
    group(s);
    gate_up(s, a);
    lane_barrier(s->lane);
    quantize_products(s, a);
    down(s, a, y, ldy);
}
