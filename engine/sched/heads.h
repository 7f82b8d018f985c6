// heads.h - which logits of a step are read by anybody: a set of the output head's row groups, so that the others need not be
// computed. Those of a free sequence are all; under a grammar they are those of the tokens that it admits.
//
//     heads_clear(&h);
//     heads_add(&h, mask); heads_add_all(&h);    // for each sequence whose logits are wanted
//     batch.out_groups = heads_groups(&h);       // NULL: all, also where leaving some out would not pay
//
// Scheduler thread; lanes read the groups.
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct heads {
    uint64_t *groups;       // bit g of word g / 64: group g
    int ntokens, ngroups, count;  // count: groups in the set
    bool all;
};

void heads_init(struct heads *h, int vocab);
void heads_done(struct heads *h);
void heads_clear(struct heads *h);
void heads_add_all(struct heads *h);
void heads_add(struct heads *h, const uint64_t *mask);  // bits of token ids, as grammar_mask has them
const uint64_t *heads_groups(const struct heads *h);
double heads_share(const struct heads *h);  // of the head that is computed for each row of logits
