// cost.h - how long a step takes, learnt from the steps, and so how many prefill tokens the next one may have.
//
// A step takes  t(decode rows) + k * c  with decode rows, and  a + k * c  without: t is a running average by the number of
// rows (in powers of two); a and c are a least squares line through the recent steps. The fixed part a is small on a quiet
// machine and large on a busy one, where lanes wait for each other at every barrier; without it the budget would shrink
// to nothing there, and make it worse.
//
// The target is scheduling.md §0.2: clamp(5 t, 0.4 T, max(T, 2 t)) with T = 100 ms and t the fixed part, so that a
// prompt stretches a fast step at most fivefold and a slow one twofold; without decode rows max(T, 2 a).
#pragma once

#include <stdbool.h>

enum { COST_BUCKETS = 12 };

struct cost {
    double decode_s[COST_BUCKETS];  // 0: not known
    double w, k, t, kk, kt;         // decaying sums of 1, tokens, seconds, tokens^2, tokens * seconds
    double fixed_s, token_s;        // a and c; token_s 0: not known
};

void cost_init(struct cost *c);
double cost_decode_s(const struct cost *c, int rows);  // 0 while nothing is known
double cost_target_s(const struct cost *c, int decode_rows);
int cost_budget(const struct cost *c, int decode_rows, int most);  // 1 .. most prefill tokens
void cost_learn(struct cost *c, int decode_rows, int prefill_rows, double seconds);
