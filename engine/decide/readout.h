// readout.h - from scores of options to probabilities. In doubles, in one order, on one thread.
#pragma once

#include <stdbool.h>
#include <stdint.h>

// Chosen among n options with scores l: p_i = softmax_i((l_i + bias_i) / temperature). bias NULL: none. *ret_best is the
// first largest. False: a score is not a number.
bool readout_softmax(const double *l, const float *bias, int n, double temperature, double *ret_p, int *ret_best);

// Share of exp(logits[vocab]) that the n different ids have together.
double readout_mass(const float *logits, int vocab, const int32_t *ids, int n);

// log of the sum of exp(logits[id]) of n ids, n at least 1.
double readout_together(const float *logits, const int32_t *ids, int n);

double readout_dot(const float *a, const float *b, int n);
