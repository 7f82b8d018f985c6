// prompts.c - see the header.
#include "tests/helpers/prompts.h"

#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/rng.h"

void prompts_init_uneven(struct prompts *p, struct engine *en, int n, int out, int most)
{
    struct model_info info;
    assert_true(engine_find_model(en, "m", &info));
    *p = (struct prompts){n, out, most, info.vocab, NULL, NULL};
    p->ids = mem_new((size_t)n * (size_t)most * sizeof *p->ids);
    p->logprobs = mem_new((size_t)n * (size_t)most * sizeof *p->logprobs);
}

void prompts_init(struct prompts *p, struct engine *en, int n, int out)
{
    prompts_init_uneven(p, en, n, out, out);
}

static int out_of(const struct prompts *p, int i)
{
    return i % 8 == 3 ? p->most : p->out;
}

void prompts_done(struct prompts *p)
{
    free(p->ids);
    free(p->logprobs);
    *p = (struct prompts){0};
}

int prompts_make(int32_t *ids, int i, int vocab)
{
    uint64_t r = rng_u64(77, (uint64_t)i, 0);
    int n = 1 + (int)(r % PROMPTS_LONGEST), stem = i % 4 == 0 ? 150 : 0;
    n = n < stem ? stem + i % 50 : n;
    for (int k = 0; k < n; k++)
        ids[k] = (int32_t)(rng_u64(k < stem ? 1 : r, (uint64_t)k, 5) % (uint64_t)vocab);
    return n;
}

void prompts_submit(const struct prompts *p, struct client *c, struct engine *en, int i, const char *salt)
{
    int32_t ids[PROMPTS_LONGEST];
    struct task *t = client_task("m", ids, prompts_make(ids, i, p->vocab));
    t->generate.max_tokens = out_of(p, i);
    t->generate.ignore_eos = true;
    t->generate.logprobs = 3;
    t->generate.sampling.temperature = i % 2 ? 0.9f : 0;
    t->generate.sampling.seed = (uint64_t)i;
    t->cache_salt = salt;
    err e = {0};
    if (!client_submit(c, en, t, &e))
        fail_msg("%s", e.text);
}

void prompts_collect(struct prompts *p, struct client *c, int i)
{
    client_wait(c);
    if (c->error.code)
        fail_msg("prompt %d: %s", i, c->error.text);
    assert_int_equal(c->ends, 1);
    assert_false(c->wrong);
    if (i >= 0) {
        size_t at = (size_t)i * (size_t)p->most, n = (size_t)out_of(p, i);
        assert_int_equal(c->nids[0], n);
        memcpy(p->ids + at, c->ids[0], n * sizeof *p->ids);
        memcpy(p->logprobs + at, c->logprobs[0], n * sizeof *p->logprobs);
    }
    client_done(c);
}

int prompts_alone(struct prompts *p, struct engine *en, const char *salt)
{
    int cached = 0;
    for (int i = 0; i < p->n; i++) {
        struct client c = {0};
        prompts_submit(p, &c, en, i, salt);
        client_wait(&c);
        cached += c.usage.cached_tokens;
        prompts_collect(p, &c, i);
    }
    return cached;
}

void prompts_same(const char *how, const struct prompts *want, const struct prompts *got)
{
    assert_int_equal(want->n, got->n);
    assert_int_equal(want->most, got->most);
    for (int k = 0; k < want->n * want->most; k++)
        if (want->ids[k] != got->ids[k] || memcmp(&want->logprobs[k], &got->logprobs[k], sizeof(float)) != 0)
            fail_msg("%s: prompt %d token %d is %d (%.9g), expected %d (%.9g)", how, k / want->most, k % want->most, got->ids[k],
                     (double)got->logprobs[k], want->ids[k], (double)want->logprobs[k]);
}
