// cost.h - how long a step takes, learnt from the steps, and so how many prompt tokens the next one may have.
//
//     cost_init(&c, &shape);                        // what is known of the model before its first step
//     struct cost_step st = {0};
//     cost_add_decode(&c, &st, depth);              // for each decoding row
//     int k = cost_fit(&c, &st, at, most, room_s);  // prompt tokens from position `at` on that take room_s more
//     cost_add_prompt(&c, &st, at, k, last);
//     ... the step ...
//     cost_learn(&c, &st, seconds);
//
// The time of a step is a sum of six terms: a fixed part; each of the first four rows, which read the weights; each row
// after them; each row of logits; each key that a decoding row reads; each key that a prompt token reads. A prompt's
// later tokens read more keys, so a chunk of it costs more the further on it starts. The six numbers are fitted by least
// squares over the recent steps, each weighed by its own length, and are never negative. A term that the recent steps did
// not have (nobody sent a prompt) keeps its number. Before the first step they come from the model's size, and keep
// close to it where the steps leave it open; what a busy machine adds to every step, whatever its size, is the fixed part.
// Steps grow from small ones, each at most half as wide again as those before: so a guess that is too good shows early.
//
// `scale` follows the ratio of measured to predicted time more quickly than the fit does: a busy neighbour shows there.
// All predictions include it.
//
// The target is clamp(5 t, 0.4 T, max(T, 2 t)), t the time of the decoding rows alone and T the
// configured step: a prompt stretches a fast step at most fivefold and a slow one twofold. Without decoding rows it is T.
#pragma once

#include <stdbool.h>
#include <stdint.h>

enum { COST_GROUPS = 4, COST_TERMS = 6 };

// What a model's size says. Zeros: nothing is known.
struct cost_shape {
    int lanes;
    double token_macs, token_bytes;  // of a row: multiplications, weights read
    double head_macs;                // of a row of logits
    double key_bytes;                // keys and values of a position
    int ngroups;                     // layers that read the same keys
    struct cost_group {
        double share;                // of the keys that all layers read
        int window;                  // 0: all positions
    } groups[COST_GROUPS];
};

struct cost {
    struct cost_shape shape;
    double prior[COST_TERMS];  // seconds a unit, before the first step
    double speed;              // steps take so many times what the prior says
    double term[COST_TERMS];   // seconds a unit
    double normal[COST_TERMS][COST_TERMS], moment[COST_TERMS];  // decaying sums
    double peak[COST_TERMS];   // how much a term's sum was at its best, of late
    double widest;             // rows of the largest steps of late: the next one is not much wider
    double scale, spread;      // measured / predicted; how far single steps are from that
    int64_t steps;
};

// What a step is made of.
struct cost_step {
    int rows;
    double heads;  // one of which a part of the rows is computed counts as that part
    double decode_keys, prompt_keys;
};

void cost_init(struct cost *c, const struct cost_shape *shape);
void cost_add_decode(const struct cost *c, struct cost_step *st, int depth);
void cost_add_prompt(const struct cost *c, struct cost_step *st, int at, int rows, int heads);
double cost_predict_s(const struct cost *c, const struct cost_step *st);
// Most prompt tokens from position `at` on that make the step at most room_s longer; at least 1, so that a prompt always
// moves. A chunk ends on a page's border when one is near its end.
int cost_fit(const struct cost *c, const struct cost_step *st, int at, int most, double room_s);
// Alone and undisturbed: the prompt's tokens from position `at` on, in steps of their own.
double cost_prompt_s(const struct cost *c, int at, int rows);
void cost_learn(struct cost *c, const struct cost_step *st, double seconds);
bool cost_known(const struct cost *c);  // enough steps were seen to rely on it

// How long a step may take beside decoding rows that take decode_s alone (0: there are none); target_s is T.
double cost_target_s(double decode_s, double target_s);
// What is left of it for everything else, a margin for what cannot be foreseen kept; at least a quarter.
double cost_room_s(const struct cost *c, double decode_s, double target_s);
