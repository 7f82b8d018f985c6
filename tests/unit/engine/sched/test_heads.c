// The set of the head's row groups: each token that is added is in it, nothing else is, and past the share where leaving out
// does not pay it is all of them.
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <string.h>

#include "base/rng.h"
#include "engine/sched/heads.h"
#include "kernels/mat.h"

enum { VOCAB = 1003, GROUPS = (VOCAB + MAT_GROUP - 1) / MAT_GROUP, WORDS = (VOCAB + 63) / 64 };

static bool in_set(const struct heads *h, int group)
{
    const uint64_t *set = heads_groups(h);
    assert_non_null(set);
    return set[group / 64] >> group % 64 & 1;
}

static void test_groups_of_tokens(void **state)
{
    (void)state;
    struct heads h;
    heads_init(&h, VOCAB);
    for (uint64_t round = 0; round < 200; round++) {
        bool want[GROUPS] = {0};
        int count = 0;
        heads_clear(&h);
        for (uint64_t part = 0; part < round % 4; part++) {  // of several sequences
            uint64_t mask[WORDS] = {0};
            for (uint64_t i = 0; i <= round % 11; i++) {
                int id = (int)(rng_u64(round, part, i) % VOCAB);
                mask[id / 64] |= 1ull << id % 64;
                want[id / MAT_GROUP] = true;
            }
            heads_add(&h, mask);
        }
        for (int g = 0; g < GROUPS; g++) {
            assert_int_equal(in_set(&h, g), want[g]);
            count += want[g];
        }
        assert_true(heads_share(&h) == (double)count / GROUPS);
    }
    heads_done(&h);
}

static void test_all(void **state)
{
    (void)state;
    struct heads h;
    uint64_t one[WORDS] = {[WORDS - 1] = 1ull << (VOCAB - 1) % 64}, most[WORDS];
    memset(most, 0xff, sizeof most);
    most[WORDS - 1] = (1ull << VOCAB % 64) - 1;
    heads_init(&h, VOCAB);
    heads_clear(&h);
    heads_add(&h, one);
    assert_true(in_set(&h, GROUPS - 1) && heads_share(&h) < 0.01);
    heads_add(&h, most);
    assert_null(heads_groups(&h));
    assert_true(heads_share(&h) == 1);
    heads_clear(&h);
    heads_add_all(&h);
    heads_add(&h, one);
    assert_null(heads_groups(&h));
    assert_true(heads_share(&h) == 1);
    heads_clear(&h);
    assert_true(heads_groups(&h) && heads_share(&h) == 0);
    heads_done(&h);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_groups_of_tokens),
        cmocka_unit_test(test_all),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
