// The cost model on simulated machines: steps stay near their target from the first ones on, whatever the machine.
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <math.h>

#include "base/rng.h"
#include "engine/sched/cost.h"
#include "engine/sched/kv.h"

static const double target_s = 0.1;

// A step's parts in seconds; keys in seconds for each thousand. As measured on 2 threads.
struct machine {
    const char *name;
    double fixed, first_row, row, head, decode_key, prompt_key;
    struct cost_shape shape;
};

static const struct machine machines[] = {
    {"SmolLM2", 0.3e-3, 0.6e-3, 0.4e-3, 0.2e-3, 1.0e-3, 0.5e-3, {.lanes = 2, .token_macs = 106e6, .token_bytes = 85e6, .key_bytes = 23040}},
    {"Qwen3-0.6B", 0.3e-3, 3.4e-3, 1.8e-3, 1.2e-3, 4.3e-3, 1.6e-3, {.lanes = 2, .token_macs = 440e6, .token_bytes = 330e6, .key_bytes = 114688}},
    {"Llama-1B", 0.3e-3, 6e-3, 4.0e-3, 1.5e-3, 1.6e-3, 0.9e-3, {.lanes = 2, .token_macs = 973e6, .token_bytes = 700e6, .key_bytes = 32768}},
    {"Qwen3-4B", 0.3e-3, 22e-3, 15e-3, 3e-3, 7.1e-3, 4.2e-3, {.lanes = 2, .token_macs = 3600e6, .token_bytes = 2300e6, .key_bytes = 147456}},
    {"unknown", 0.1e-3, 0.05e-3, 0.02e-3, 0.01e-3, 0.1e-3, 0.05e-3, {.lanes = 2, .token_macs = 0}},
    {"lossy", 50e-3, 0.6e-3, 0.4e-3, 0.2e-3, 1.0e-3, 0.5e-3, {.lanes = 2, .token_macs = 106e6, .token_bytes = 85e6, .key_bytes = 23040}},
};
enum { MACHINES = sizeof machines / sizeof *machines };

static double measure(const struct machine *m, const struct cost_step *st)
{
    int few = st->rows < 4 ? st->rows : 4;
    return m->fixed + m->first_row * few + m->row * (st->rows - few) + m->head * st->heads +
           1e-3 * (m->decode_key * st->decode_keys + m->prompt_key * st->prompt_keys);
}

static struct cost_step decode_step(const struct cost *c, int rows, int depth)
{
    struct cost_step st = {0};
    for (int i = 0; i < rows; i++)
        cost_add_decode(c, &st, depth);
    return st;
}

static double noisy(double t, uint64_t i, double noise)
{
    return t * (1 + noise * (2 * rng_unit(9, i, 1) - 1));
}

struct run {
    double worst, tokens, seconds;  // worst: longest step over the longest it may take
    int steps, over;                // steps that took more than 5 % longer
};

// A prompt of `total` tokens in chunks beside `rows` streams at `depth`.
static void prefill(const struct machine *m, struct cost *c, int rows, int depth, int total, double noise,
                    struct run *ret)
{
    for (int at = 0; at < total; ret->steps++) {
        struct cost_step st = decode_step(c, rows, depth);
        double decode = rows ? cost_predict_s(c, &st) : 0, real = rows ? measure(m, &st) : 0;
        int left = total - at, k = cost_fit(c, &st, at, left < 512 ? left : 512, cost_room_s(c, decode, target_s));
        cost_add_prompt(c, &st, at, k, k == left);
        double t = noisy(measure(m, &st), (uint64_t)(at + ret->steps), noise);
        struct cost_step one = decode_step(c, rows, depth);
        cost_add_prompt(c, &one, at, 1, 0);
        double most = cost_target_s(real, target_s), least = measure(m, &one);  // one token is always allowed
        most = most > least ? most : least;
        ret->worst = t / most > ret->worst ? t / most : ret->worst;
        ret->over += t > 1.05 * most;
        cost_learn(c, &st, t);
        ret->tokens += k;
        ret->seconds += t;
        at += k;
    }
}

static void decode(const struct machine *m, struct cost *c, int rows, int depth, int steps)
{
    for (int i = 0; i < steps; i++) {
        struct cost_step st = decode_step(c, rows, depth + i);
        cost_learn(c, &st, noisy(measure(m, &st), (uint64_t)i, 0.05));
    }
}

// Eight streams decode, then a prompt of 4,000 tokens comes: no step is longer than it may be. It was never seen before.
static void test_long_prompt_beside_streams(void **state)
{
    (void)state;
    for (int i = 0; i < MACHINES; i++) {
        const struct machine *m = &machines[i];
        struct cost c;
        cost_init(&c, &m->shape);
        for (int s = 0; s < 8; s++) {
            struct run warm = {0};
            prefill(m, &c, s, 40, 60, 0.05, &warm);
        }
        decode(m, &c, 8, 60, 300);
        struct run r = {0};
        prefill(m, &c, 8, 400, 4000, 0.05, &r);
        print_message("%-12s worst %.2f, %d of %d over, %.0f tok/s\n", m->name, r.worst, r.over, r.steps,
                      r.tokens / r.seconds);
        // Observed: up to 1.04 with noise of 5 %.
        assert_true(r.worst < 1.1);
        assert_true(r.over <= r.steps / 50);
    }
}

// Steps are not much shorter than they may be either.
static void test_uses_what_it_may(void **state)
{
    (void)state;
    for (int i = 0; i < MACHINES; i++)
        for (int rows = 0; rows <= 8; rows += 4) {
            struct cost c;
            cost_init(&c, &machines[i].shape);
            decode(&machines[i], &c, rows ? rows : 1, 100, 50);
            struct run r = {0}, warm = {0};
            prefill(&machines[i], &c, rows, 100, 2000, 0.02, &warm);
            prefill(&machines[i], &c, rows, 100, 3000, 0.02, &r);
            struct cost_step st = decode_step(&c, rows, 100);
            double may = cost_target_s(rows ? measure(&machines[i], &st) : 0, target_s);
            bool full = r.tokens / r.steps > 400;  // the chunk's own limit came first
            assert_true(full || r.seconds / r.steps > 0.5 * may);  // observed: from 0.58 (4 tokens a step) to 0.87
        }
}

// Steps whose rows of logits are parts of the head, some of them small, beside steps with whole ones.
static void test_parts_of_heads(void **state)
{
    (void)state;
    for (int i = 0; i < MACHINES; i++) {
        const struct machine *m = &machines[i];
        struct cost c;
        double worst = 0;
        cost_init(&c, &m->shape);
        for (int k = 0; k < 400; k++) {
            struct cost_step st = decode_step(&c, 1 + k % 3, 100);
            st.heads *= k % 4 == 0 ? 1 : 0.002 * (k % 7);
            double t = measure(m, &st), off = fabs(cost_predict_s(&c, &st) / t - 1);
            worst = k >= 200 && off > worst ? off : worst;
            cost_learn(&c, &st, noisy(t, (uint64_t)k, 0.02));
        }
        print_message("%-12s %.3f\n", m->name, worst);
        assert_true(worst < 0.06);  // observed: up to 0.047
    }
}

// The very first steps of an unknown machine, several times faster than its size says.
static void test_first_steps(void **state)
{
    (void)state;
    for (int i = 0; i < 4; i++) {
        struct cost c;
        cost_init(&c, &machines[i].shape);
        struct run r = {0};
        prefill(&machines[i], &c, 0, 0, 1000, 0.05, &r);
        assert_true(r.worst < 1.1);  // observed: up to 1.01
    }
}

static void test_follows_the_machine(void **state)
{
    (void)state;
    struct machine m = machines[0];
    struct cost c;
    cost_init(&c, &m.shape);
    struct run r = {0};
    prefill(&m, &c, 4, 200, 4000, 0.05, &r);
    double *parts[] = {&m.fixed, &m.first_row, &m.row, &m.head, &m.decode_key, &m.prompt_key};
    for (int i = 0; i < 6; i++)
        *parts[i] *= 3;  // a neighbour takes two thirds
    struct run slow = {0}, settled = {0};
    prefill(&m, &c, 4, 200, 1000, 0.05, &slow);
    prefill(&m, &c, 4, 200, 2000, 0.05, &settled);
    print_message("scale %.2f, worst %.2f then %.2f\n", c.scale, slow.worst, settled.worst);
    assert_true(slow.worst < 2.5);
    assert_true(settled.worst < 1.3);  // observed: 1.05
    for (int i = 0; i < 6; i++)
        *parts[i] /= 3;
    struct run back = {0}, quick = {0};
    prefill(&m, &c, 4, 200, 4000, 0.05, &back);
    prefill(&m, &c, 4, 200, 4000, 0.05, &quick);
    assert_true(quick.tokens / quick.seconds > 0.8 * r.tokens / r.seconds);
}

// Single steps that take three times as long neither stop prompts nor make the others long.
static void test_disturbed_steps(void **state)
{
    (void)state;
    const struct machine *m = &machines[0];
    struct cost c;
    cost_init(&c, &m->shape);
    double tokens = 0, seconds = 0;
    int quiet_over = 0;
    for (uint64_t i = 0; i < 2000; i++) {
        struct cost_step st = decode_step(&c, 4, 200);
        double may = cost_target_s(measure(m, &st), target_s);
        int k = cost_fit(&c, &st, 100, 512, cost_room_s(&c, cost_predict_s(&c, &st), target_s));
        cost_add_prompt(&c, &st, 100, k, 0);
        double t = measure(m, &st);
        if (rng_u64(1, i, 0) % 5 == 0)
            t *= 3;
        else
            quiet_over += i >= 100 && t > 1.05 * may;
        cost_learn(&c, &st, t);
        tokens += k;
        seconds += t;
    }
    print_message("%.0f tok/s\n", tokens / seconds);
    assert_true(tokens / seconds > 700);  // observed 1,200; undisturbed 1,900
    assert_int_equal(quiet_over, 0);
}

static void test_recovers_from_the_disk(void **state)
{
    (void)state;
    struct cost c;
    cost_init(&c, &(struct cost_shape){0});
    struct cost_step st = {0};
    cost_add_prompt(&c, &st, 0, 100, 0);
    cost_learn(&c, &st, 20);  // weights came from the disk
    st = (struct cost_step){0};
    assert_true(cost_fit(&c, &st, 0, 512, cost_room_s(&c, 0, target_s)) < 40);
    int k = 0;
    for (int i = 0; i < 100; i++) {
        st = (struct cost_step){0};
        k = cost_fit(&c, &st, 0, 512, cost_room_s(&c, 0, target_s));
        cost_add_prompt(&c, &st, 0, k, 0);
        cost_learn(&c, &st, k * 1e-6);
    }
    assert_int_equal(k, 512);
}

static void test_target(void **state)
{
    (void)state;
    assert_true(cost_target_s(0, 0.1) == 0.1);
    assert_true(fabs(cost_target_s(0.002, 0.1) - 0.04) < 1e-12);
    assert_true(fabs(cost_target_s(0.010, 0.1) - 0.05) < 1e-12);
    assert_true(fabs(cost_target_s(0.042, 0.1) - 0.1) < 1e-12);
    assert_true(fabs(cost_target_s(0.340, 0.1) - 0.68) < 1e-12);
}

// A prompt always moves; chunks end on a page's border when it is near.
static void test_chunks(void **state)
{
    (void)state;
    struct cost c;
    cost_init(&c, &(struct cost_shape){0});
    struct cost_step st = decode_step(&c, 8, 1000);
    c.widest = 512;
    assert_int_equal(cost_fit(&c, &st, 0, 512, 0), 1);
    assert_int_equal(cost_fit(&c, &st, 0, 7, 100), 7);
    for (int at = 0; at < 200; at += 13)
        for (double room = 0.001; room < 0.3; room *= 1.3) {
            int k = cost_fit(&c, &st, at, 400, room), over = (at + k) % KV_PAGE_TOKENS;
            assert_true(k >= 1 && k <= 400);
            assert_true(k == 400 || over == 0 || over >= k || 4 * over > k);
        }
}

// Layers with a window do not read more keys beyond it.
static void test_windows(void **state)
{
    (void)state;
    struct cost c;
    cost_init(&c, &(struct cost_shape){.ngroups = 2, .groups = {{0.25, 0}, {0.75, 100}}});
    struct cost_step near = decode_step(&c, 1, 80), far = decode_step(&c, 1, 1000);
    assert_true(fabs(near.decode_keys - 80) < 1e-9);
    assert_true(fabs(far.decode_keys - (250 + 75)) < 1e-9);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_long_prompt_beside_streams),
        cmocka_unit_test(test_uses_what_it_may),
        cmocka_unit_test(test_parts_of_heads),
        cmocka_unit_test(test_first_steps),
        cmocka_unit_test(test_follows_the_machine),
        cmocka_unit_test(test_disturbed_steps),
        cmocka_unit_test(test_recovers_from_the_disk),
        cmocka_unit_test(test_target),
        cmocka_unit_test(test_chunks),
        cmocka_unit_test(test_windows),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
