// fake_model.c - see the header. forward runs on all lanes: sequences are split over lanes, then rows of logits.
#include "tests/helpers/fake_model.h"

#include <assert.h>
#include <math.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <time.h>

#include "base/mem.h"
#include "base/rng.h"
#include "engine/family/family.h"
#include "engine/text/sampler.h"
#include "kernels/mat.h"
#include "tests/helpers/fake_work.h"

enum { LAYERS = 2, HEADS = 2, HEAD_DIM = 2 };  // f32: a row is 8 bytes, one hash

static _Atomic int64_t now_ns;

struct fake {
    struct fake_cost cost;
    _Atomic int64_t delay_ns;
    atomic_int nan_position;
    struct kv_layout layout;
    int vocab;
};

// A recurrent one's state of a sequence.
struct fake_state {
    uint64_t value;
    int64_t len;  // positions it has seen
};

static uint64_t next_state(uint64_t before, int32_t id, int pos)
{
    return rng_u64(before, (uint64_t)id + 1, (uint64_t)pos);
}

static uint64_t row_value(uint64_t state, int layer, int head, int value)
{
    return layer + head + value == 0 ? state : rng_u64(state, (uint64_t)(layer * HEADS + head), (uint64_t)value);
}

static uint64_t absorb(uint64_t acc, uint64_t row)
{
    return rng_mix(acc ^ row);
}

static int first_seen(int window, int pos)
{
    return window && pos >= window ? pos - window + 1 : 0;
}

static bool is_wanted(const struct batch *b, int group)
{
    return !b->out_groups || (b->out_groups[group / 64] >> group % 64 & 1);
}

// What no lane has computed: nobody may look at it.
static void poison(const struct batch *b, float *logits, int vocab)
{
    for (int v = 0; v < vocab; v++)
        if (!is_wanted(b, v / MAT_GROUP))
            logits[v] = v % 2 ? NAN : 1e30f;
}

static void spread(uint64_t acc, float *logits, int vocab)
{
    for (int v = 0; v < vocab; v++)
        logits[v] = (float)(rng_unit(acc, (uint64_t)v, 7) * 8 - 4);
}

static uint64_t *row_at(const struct fake *f, const struct kv_seq *kv, int pos, int layer, int head, int value)
{
    assert(pos / KV_PAGE_TOKENS < kv->npages && kv->pages[pos / KV_PAGE_TOKENS]);
    char *page = kv->pages[pos / KV_PAGE_TOKENS];
    size_t at = value ? kv_v_offset(&f->layout, 0, layer, head) : kv_k_offset(&f->layout, 0, layer, head);
    return (uint64_t *)(void *)(page + at + (size_t)(pos % KV_PAGE_TOKENS) * sizeof(uint64_t));
}

static void write_rows(const struct fake *f, const struct batch *b, const struct batch_seq *q)
{
    assert(q->pos == q->kv->len);
    struct fake_state *st = q->kv->state;
    assert(!st || st->len == q->pos);
    for (int i = 0; i < q->rows; i++) {
        int pos = q->pos + i;
        assert(b->pos[q->row + i] == pos);
        uint64_t before = pos ? *row_at(f, q->kv, pos - 1, 0, 0, 0) : 1;
        uint64_t state = next_state(before, b->ids[q->row + i], pos);
        for (int l = 0; l < LAYERS; l++)
            for (int h = 0; h < HEADS; h++)
                for (int v = 0; v < 2; v++)
                    *row_at(f, q->kv, pos, l, h, v) = row_value(state, l, h, v);
        if (!st)
            continue;
        st->value = next_state(st->value, b->ids[q->row + i], pos);
        st->len++;
        ((uint64_t *)b->scratch)[q->row + i] = st->value;
    }
}

static void read_logits(const struct fake *f, const struct batch *b, int out)
{
    int row = b->out_rows[out], k = 0;
    while (row >= b->seqs[k].row + b->seqs[k].rows)
        k++;
    const struct kv_seq *kv = b->seqs[k].kv;
    uint64_t acc = 3;
    for (int pos = first_seen(f->layout.groups[0].window, b->pos[row]); pos <= b->pos[row]; pos++)
        for (int l = 0; l < LAYERS; l++)
            for (int h = 0; h < HEADS; h++)
                for (int v = 0; v < 2; v++)
                    acc = absorb(acc, *row_at(f, kv, pos, l, h, v));
    if (kv->state)
        acc = absorb(acc, ((const uint64_t *)b->scratch)[row]);
    float *logits = b->logits + (size_t)out * (size_t)f->vocab;
    spread(acc, logits, f->vocab);
    if (b->pos[row] == atomic_load(&f->nan_position))
        logits[5] = NAN;
    poison(b, logits, f->vocab);
}

int64_t fake_now_ns(void)
{
    return atomic_load(&now_ns);
}

void fake_advance(double seconds)
{
    atomic_fetch_add(&now_ns, (int64_t)(seconds * 1e9));
}

static void spend(const struct fake_cost *c, const struct batch *b, int vocab)
{
    int groups = (vocab + MAT_GROUP - 1) / MAT_GROUP, wanted = 0;
    double keys = 0;
    for (int i = 0; i < b->rows; i++)
        keys += b->pos[i];
    for (int g = 0; g < groups; g++)
        wanted += is_wanted(b, g);
    fake_advance(c->fixed_s + c->row_s * b->rows + c->head_s * b->nout * wanted / groups + c->key_s * keys);
}

static void forward(const struct model *m, const struct batch *b, struct lane *lane)
{
    const struct fake *f = m->impl;
    if (lane->id == 0)
        spend(&f->cost, b, f->vocab);
    int64_t ns = atomic_load(&f->delay_ns) * b->rows;
    if (lane->id == 0 && ns > 0)
        nanosleep(&(struct timespec){ns / 1000000000, ns % 1000000000}, NULL);
    int lo, hi;
    lane_split(lane, b->nseqs, 1, &lo, &hi);
    for (int i = lo; i < hi; i++)
        write_rows(f, b, &b->seqs[i]);
    lane_barrier(lane);
    lane_split(lane, b->nout, 1, &lo, &hi);
    for (int i = lo; i < hi; i++)
        read_logits(f, b, i);
    lane_barrier(lane);
}

static void kv_layout(const struct model *m, struct kv_layout *ret_layout)
{
    *ret_layout = ((const struct fake *)m->impl)->layout;
}

static size_t scratch_bytes(const struct model *m, int max_rows, int max_out, int lanes)
{
    (void)m;
    return sizeof(uint64_t) * (size_t)(max_rows + max_out + lanes);
}

static void close_fake(struct model *m)
{
    free(m->impl);
    m->impl = NULL;
}

static const struct gen_ops gen_table = {kv_layout, scratch_bytes, forward, NULL};
static const struct family family = {.name = "fake", .close = close_fake, .gen = &gen_table, .embed = &fake_embed,
                                     .speak = &fake_speak};

struct model *fake_model(int context)
{
    return fake_model_new(context, (struct fake_kind){0});
}

struct model *fake_model_new(int context, struct fake_kind kind)
{
    struct fake *f = mem_new(sizeof *f);
    f->layout = (struct kv_layout){.type = KV_F32, .ngroups = 1, .groups = {{LAYERS, HEADS, HEAD_DIM, kind.window}},
                                   .state_bytes = kind.recurrent ? sizeof(struct fake_state) : 0};
    f->nan_position = -1;
    struct model *m = mem_new(sizeof *m);
    m->family = &family;
    m->vocab = f->vocab = kind.vocab ? kind.vocab : FAKE_VOCAB;
    m->context = context;
    m->impl = f;
    return m;
}

void fake_model_set_delay(struct model *m, int64_t ns_per_row)
{
    atomic_store(&((struct fake *)m->impl)->delay_ns, ns_per_row);
}

void fake_model_set_cost(struct model *m, const struct fake_cost *c)
{
    ((struct fake *)m->impl)->cost = *c;
    fake_work_set_cost(c->work_s);
}

void fake_model_set_nan(struct model *m, int position)
{
    atomic_store(&((struct fake *)m->impl)->nan_position, position);
}

// ---- the same without pages

static uint64_t absorb_position(uint64_t acc, uint64_t state)
{
    for (int l = 0; l < LAYERS; l++)
        for (int h = 0; h < HEADS; h++)
            for (int v = 0; v < 2; v++)
                acc = absorb(acc, row_value(state, l, h, v));
    return acc;
}

void fake_logits(const int32_t *ids, int n, float *ret_logits)
{
    uint64_t state = 1, acc = 3;
    for (int i = 0; i < n; i++) {
        state = next_state(state, ids[i], i);
        acc = absorb_position(acc, state);
    }
    spread(acc, ret_logits, FAKE_VOCAB);
}

int fake_answer(const int32_t *prompt, int nprompt, const struct sampling *sampling, int choice, int max_out,
                int32_t *ret_ids)
{
    return fake_answer_of((struct fake_kind){0}, prompt, nprompt, sampling, choice, max_out, ret_ids);
}

int fake_answer_of(struct fake_kind kind, const int32_t *prompt, int nprompt, const struct sampling *sampling, int choice,
                   int max_out, int32_t *ret_ids)
{
    struct sampler *s = sampler_new(sampling, FAKE_VOCAB, choice);
    sampler_see_prompt(s, prompt, nprompt);
    uint64_t *states = mem_new((size_t)(nprompt + max_out) * sizeof *states), recurrent = 0, acc = 3;
    for (int i = 0; i < nprompt + max_out - 1; i++) {
        int32_t id = i < nprompt ? prompt[i] : ret_ids[i - nprompt];
        states[i] = next_state(i ? states[i - 1] : 1, id, i);
        recurrent = next_state(recurrent, id, i);
        acc = kind.window ? 3 : absorb_position(acc, states[i]);
        if (i < nprompt - 1)
            continue;
        for (int k = first_seen(kind.window, i); kind.window && k <= i; k++)
            acc = absorb_position(acc, states[k]);
        float logits[FAKE_VOCAB];
        spread(kind.recurrent ? absorb(acc, recurrent) : acc, logits, FAKE_VOCAB);
        ret_ids[i - nprompt + 1] = sampler_pick(s, logits, i - nprompt + 1, NULL, NULL, 0);
    }
    free(states);
    sampler_free(s);
    return max_out;
}
