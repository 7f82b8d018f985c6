// fake_work.c - see fake_model.h. What a step leaves in the scratch is spoiled by the next step of anybody; what has to
// survive is the work's own.
#include "tests/helpers/fake_work.h"

#include <assert.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/rng.h"
#include "engine/model.h"
#include "engine/sched/session.h"
#include "engine/text/sampler.h"
#include "tests/helpers/fake_model.h"

enum { HEARD_MAX = 4096, END_ONES = 5 };  // a round ends with its fifth token 1

static atomic_int alive;
static double embed_step_s;  // set before anything runs

void fake_work_set_cost(double step_s)
{
    embed_step_s = step_s;
}

int fake_works_alive(void)
{
    return atomic_load(&alive);
}

// ---- embed

struct embedding {
    struct work work;
    size_t input, byte;
    uint64_t state;
    bool done;  // the last step finished an input
};

static uint64_t absorb(uint64_t state, char byte)
{
    return rng_u64(state, (uint64_t)(unsigned char)byte, 1);
}

static void spread(uint64_t state, float *values)
{
    for (int i = 0; i < FAKE_VALUES; i++)
        values[i] = (float)rng_unit(state, (uint64_t)i, 2);
}

static err_code embed_prepare(const struct model *m, const struct task *t, struct work **ret_work, int *ret_prompt_tokens,
                              err *e)
{
    (void)m;
    for (size_t i = 0; i < t->embed.ninputs; i++) {
        if (t->embed.inputs[i].len == 0)
            return err_set_param(e, ERR_INVALID, "input", "input %zu is empty", i);
        *ret_prompt_tokens += (int)t->embed.inputs[i].len;
    }
    struct embedding *w = mem_new(sizeof *w);
    w->state = 1;
    atomic_fetch_add(&alive, 1);
    *ret_work = &w->work;
    return ERR_OK;
}

static size_t embed_scratch(const struct model *m, int lanes)
{
    (void)m;
    return (size_t)lanes * 64;
}

static void embed_step(struct work *work, struct lane *lane)
{
    struct embedding *w = (struct embedding *)work;
    const struct embed_input *in = &work->task->embed.inputs[w->input];
    uint64_t *mine = (uint64_t *)work->scratch + lane->id * 8;
    *mine = absorb(w->state, in->text[w->byte]);
    lane_barrier(lane);
    if (lane->id > 0)
        return;
    fake_advance(embed_step_s);
    w->state = ((uint64_t *)work->scratch)[(lane->count - 1) * 8];
    w->done = ++w->byte == in->len;
}

static enum work_next embed_after(struct work *work, struct session *s, err *e)
{
    (void)e;
    struct embedding *w = (struct embedding *)work;
    if (w->done) {
        float values[FAKE_VALUES];
        spread(w->state, values);
        session_emit(s, &(struct event){.kind = EVENT_VECTOR, .choice = (int)w->input, .values = values,
                                        .nvalues = FAKE_VALUES});
        w->input++;
        w->byte = 0;
        w->state = 1;
        w->done = false;
    }
    return w->input == work->task->embed.ninputs ? WORK_DONE : WORK_MORE;
}

static void free_work(struct work *work)
{
    atomic_fetch_sub(&alive, 1);
    free(work);
}

const struct work_ops fake_embed = {
    .max_running = 2, .prepare = embed_prepare, .scratch_bytes = embed_scratch, .step = embed_step, .after = embed_after,
    .free = free_work,
};

void fake_vector(const char *text, float *ret_values)
{
    uint64_t state = 1;
    for (; *text; text++)
        state = absorb(state, *text);
    spread(state, ret_values);
}

// ---- speak

struct speech {
    struct work work;
    int32_t stem[FAKE_STEM], ids[64];
    const char *at;       // the rest of the text
    int32_t heard[HEARD_MAX];
    int ones;    // of the round
    int nheard;  // further tokens come while a step waits for its turn
    float out[FAKE_WINDOW];
    int nout;
};

static int32_t letter(char c)
{
    return (int32_t)((unsigned char)c % FAKE_VOCAB);
}

static int word(const char *text, int32_t *ids)
{
    int n = 0;
    while (text[n] && text[n] != ' ' && n < 64) {
        ids[n] = letter(text[n]);
        n++;
    }
    return n;
}

static err_code speak_prepare(const struct model *m, const struct task *t, struct work **ret_work, int *ret_prompt_tokens,
                              err *e)
{
    (void)m, (void)e;
    struct speech *w = mem_new(sizeof *w);
    for (int i = 0; i < FAKE_STEM; i++)
        w->stem[i] = (int32_t)(i % FAKE_VOCAB);
    w->work.stem = w->stem;
    w->work.nstem = FAKE_STEM;
    w->work.sampling = &t->speak.sampling;
    w->at = t->speak.text;
    *ret_prompt_tokens = FAKE_STEM + (int)t->speak.len;
    atomic_fetch_add(&alive, 1);
    *ret_work = &w->work;
    return ERR_OK;
}

static bool speak_next(struct work *work, const int32_t **ret_ids, int *ret_nids, int *ret_max_tokens)
{
    struct speech *w = (struct speech *)work;
    while (*w->at == ' ')
        w->at++;
    int n = word(w->at, w->ids);
    w->at += n;
    *ret_ids = w->ids;
    *ret_nids = n;
    *ret_max_tokens = FAKE_ROUND_TOKENS;
    w->ones = 0;
    return n > 0;
}

// The first tokens are never said, nor the last ones.
static void speak_admit(struct work *work, uint64_t *mask)
{
    (void)work;
    *mask = 0x7ffe;
}

static bool speak_token(struct work *work, int32_t id)
{
    struct speech *w = (struct speech *)work;
    assert(id != 0 && w->nheard < HEARD_MAX);
    w->heard[w->nheard++] = id;
    w->ones += id == 1;
    return w->ones == END_ONES;
}

static void speak_step(struct work *work, struct lane *lane)
{
    struct speech *w = (struct speech *)work;
    int lo, hi, n = w->nheard < FAKE_WINDOW ? w->nheard : FAKE_WINDOW;
    lane_split(lane, n, 1, &lo, &hi);
    for (int i = lo; i < hi; i++)
        w->out[i] = (float)w->heard[i] / FAKE_VOCAB;
    lane_barrier(lane);
    if (lane->id > 0)
        return;
    w->nout = n;
    w->nheard -= n;
    memmove(w->heard, w->heard + n, (size_t)w->nheard * sizeof *w->heard);
}

static enum work_next speak_after(struct work *work, struct session *s, err *e)
{
    (void)e;
    struct speech *w = (struct speech *)work;
    if (w->nout > 0)
        session_emit(s, &(struct event){.kind = EVENT_AUDIO, .values = w->out, .nvalues = (size_t)w->nout});
    w->nout = 0;
    if (w->nheard >= FAKE_WINDOW || (work->rounds_over && w->nheard > 0))
        return WORK_MORE;
    return work->rounds_over ? WORK_DONE : WORK_WAIT;
}

static const struct work_rounds rounds = {.next = speak_next, .admit = speak_admit, .token = speak_token};

const struct work_ops fake_speak = {
    .max_running = 3, .rounds = &rounds, .prepare = speak_prepare, .step = speak_step, .after = speak_after,
    .free = free_work,
};

static int say_round(const int32_t *ids, int nids, const struct sampling *sampling, int number, float *values, int n)
{
    int32_t all[FAKE_STEM + 64 + FAKE_ROUND_TOKENS];
    int len = FAKE_STEM + nids, said = 0, ones = 0;
    for (int i = 0; i < FAKE_STEM; i++)
        all[i] = (int32_t)(i % FAKE_VOCAB);
    memcpy(all + FAKE_STEM, ids, (size_t)nids * sizeof *ids);
    struct sampler *s = sampler_new(sampling, FAKE_VOCAB, number);
    sampler_see_prompt(s, all, len);
    for (; said < FAKE_ROUND_TOKENS && said < n && ones < END_ONES; said++) {
        float logits[FAKE_VOCAB];
        fake_logits(all, len, logits);
        uint64_t mask = 0;
        speak_admit(NULL, &mask);
        int32_t id = sampler_pick(s, logits, said, &mask, NULL, 0);
        ones += id == 1;
        values[said] = (float)id / FAKE_VOCAB;
        all[len++] = id;
    }
    sampler_free(s);
    return said;
}

int fake_audio(const char *text, const struct sampling *sampling, float *ret_values, int n)
{
    int have = 0;
    for (int number = 0; *text; number++) {
        int32_t ids[64];
        int len = word(text, ids);
        text += len;
        have += say_round(ids, len, sampling, number, ret_values + have, n - have);
        while (*text == ' ')
            text++;
    }
    return have;
}
