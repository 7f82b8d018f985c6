// cost.c - the fit of a step's time. Scheduler thread only.
//
// Each step is one equation, sum of term * units = seconds, divided by its seconds, so that short and long steps count
// alike. The sums over them decay. Solved by a few rounds of coordinate descent from the last solution, which keeps every
// term above a floor; a small pull towards the last solution holds terms that the equations say nothing about.
#include "engine/sched/cost.h"

#include <string.h>

#include "engine/sched/kv.h"

enum { FIXED, FIRST_ROWS, MORE_ROWS, HEADS, DECODE_KEYS, PROMPT_KEYS };

enum {
    FEW_ROWS = 4,     // up to here a row adds to the weights' way through the caches
    OUTLIER = 4,      // a step this many times off counts as this many times off
    TRUSTED = 4,      // steps after which an outlier is one
    KNOWN = 8,
    PROBE_EVERY = 12,
    FIRST_WIDTH = 32, LEAST_WIDTH = 8,
    SWEEPS = 30,
};

// Before the first step.
static const double fixed_s = 0.5e-3, lane_macs_per_s = 100e9, bytes_per_s = 40e9, key_bytes_per_s = 20e9;
static const double fixed_doubt_s = 10e-3;  // barriers on a busy machine
// Of a model that says nothing of its size.
static const double unknown_row_s = 1e-3;

static const double memory = 0.995;   // of the sums: about 200 steps
static const double pull = 0.02;      // towards the last solution, as a share of what the steps said at their best
static const double fade = 0.999;     // of that best
static const double trust = 0.005;    // in the model's size, in equations
static const double floor_share = 0.02;
static const double usual_off = 0.1;  // steps further off than this count less
static const double forget = 0.97;    // the widest steps
static const double follow = 0.1, settle = 0.03, least_scale = 0.5, most_scale = 4;

void cost_init(struct cost *c, const struct cost_shape *shape)
{
    *c = (struct cost){.shape = *shape, .speed = 1, .scale = 1, .widest = FIRST_WIDTH};
    bool sized = shape->token_macs > 0;
    double macs_per_s = lane_macs_per_s * (shape->lanes > 0 ? shape->lanes : 1);
    double row = shape->token_macs / macs_per_s, read = shape->token_bytes / bytes_per_s / FEW_ROWS;
    if (!sized)
        row = unknown_row_s;
    c->prior[FIXED] = fixed_s;
    c->prior[FIRST_ROWS] = row + read;
    c->prior[MORE_ROWS] = row;
    c->prior[HEADS] = sized && shape->head_macs > 0 ? shape->head_macs / macs_per_s : 0.1 * row;
    c->prior[DECODE_KEYS] = sized && shape->key_bytes > 0 ? shape->key_bytes / key_bytes_per_s : 1e-3 * row;
    c->prior[PROMPT_KEYS] = 0.5 * c->prior[DECODE_KEYS];
    for (int i = 0; i < COST_TERMS; i++)
        c->term[i] = c->prior[i];
}

// Keys that a token at position `depth` reads, on average over the layers.
static double keys(const struct cost *c, double depth)
{
    if (c->shape.ngroups == 0)
        return depth;
    double n = 0;
    for (int g = 0; g < c->shape.ngroups; g++) {
        int window = c->shape.groups[g].window;
        n += c->shape.groups[g].share * (window > 0 && depth > window ? window : depth);
    }
    return n;
}

void cost_add_decode(const struct cost *c, struct cost_step *st, int depth)
{
    st->rows++;
    st->heads++;
    st->decode_keys += keys(c, depth);
}

static double prompt_keys(const struct cost *c, int at, int rows)
{
    return rows * keys(c, at + 0.5 * rows);
}

void cost_add_prompt(const struct cost *c, struct cost_step *st, int at, int rows, int heads)
{
    st->rows += rows;
    st->heads += heads;
    st->prompt_keys += prompt_keys(c, at, rows);
}

static void units(const struct cost_step *st, double *ret_units)
{
    int few = st->rows < FEW_ROWS ? st->rows : FEW_ROWS;
    ret_units[FIXED] = 1;
    ret_units[FIRST_ROWS] = few;
    ret_units[MORE_ROWS] = st->rows - few;
    ret_units[HEADS] = st->heads;
    ret_units[DECODE_KEYS] = st->decode_keys;
    ret_units[PROMPT_KEYS] = st->prompt_keys;
}

static double dot(const double *term, const struct cost_step *st)
{
    double x[COST_TERMS], t = 0;
    units(st, x);
    for (int i = 0; i < COST_TERMS; i++)
        t += term[i] * x[i];
    return t;
}

double cost_predict_s(const struct cost *c, const struct cost_step *st)
{
    return c->scale * dot(c->term, st);
}

static int to_border(int at, int rows)
{
    int over = (at + rows) % KV_PAGE_TOKENS;
    return over < rows && 4 * over <= rows ? rows - over : rows;
}

int cost_fit(const struct cost *c, const struct cost_step *st, int at, int most, double room_s)
{
    double limit = cost_predict_s(c, st) + room_s;
    int wider = (int)(1.5 * c->widest) + LEAST_WIDTH - st->rows;
    most = most < wider ? most : wider > 1 ? wider : 1;
    int low = 1, high = most;  // low fits, or is the least there is
    while (low < high) {
        int k = low + (high - low + 1) / 2;
        struct cost_step with = *st;
        cost_add_prompt(c, &with, at, k, 1);
        if (cost_predict_s(c, &with) <= limit)
            low = k;
        else
            high = k - 1;
    }
    if (c->steps % PROBE_EVERY == PROBE_EVERY - 1 && low > LEAST_WIDTH)
        low /= 2;  // steps of one size would not tell the fixed part from that of the rows
    return low < most ? to_border(at, low) : low;
}

double cost_prompt_s(const struct cost *c, int at, int rows)
{
    double scale = c->scale < 1 ? c->scale : 1;
    return scale * (c->term[FIXED] + rows * c->term[MORE_ROWS] + c->term[PROMPT_KEYS] * prompt_keys(c, at, rows));
}

// ---- learning

static void solve(struct cost *c)
{
    double last[COST_TERMS];
    memcpy(last, c->term, sizeof last);
    for (int sweep = 0; sweep < SWEEPS; sweep++)
        for (int i = 0; i < COST_TERMS; i++) {
            double guess = c->prior[i] * c->speed, far = i == FIXED ? fixed_doubt_s : guess;
            double doubt = trust / (far * far), hold = pull * c->peak[i];
            double rest = c->moment[i] + hold * last[i] + doubt * guess;
            for (int k = 0; k < COST_TERMS; k++)
                rest -= k == i ? 0 : c->normal[i][k] * c->term[k];
            double x = rest / (c->normal[i][i] + hold + doubt), least = floor_share * guess;
            c->term[i] = x > least ? x : least;
            // One more row never costs more than one of the first; also before any step had more.
            if (i == MORE_ROWS && c->term[i] > c->term[FIRST_ROWS])
                c->term[i] = c->term[FIRST_ROWS];
        }
}

static void add_equation(struct cost *c, const struct cost_step *st, double seconds)
{
    double x[COST_TERMS], seen = (double)c->steps, keep = (seen + 1) / (seen + 3);
    double off = seconds / dot(c->term, st) - 1, odd = off / (usual_off + c->spread);
    double weight = c->steps < TRUSTED ? 1 : 1 / (1 + odd * odd);
    units(st, x);
    if (keep > memory)
        keep = memory;
    for (int i = 0; i < COST_TERMS; i++) {
        for (int k = 0; k < COST_TERMS; k++)
            c->normal[i][k] = keep * c->normal[i][k] + weight * x[i] * x[k] / (seconds * seconds);
        c->moment[i] = keep * c->moment[i] + weight * x[i] / seconds;
        c->peak[i] = fade * c->peak[i] > c->normal[i][i] ? fade * c->peak[i] : c->normal[i][i];
    }
}

// How fast this machine is: the first step says it outright, later ones correct.
static void learn_speed(struct cost *c, const struct cost_step *st, double seconds)
{
    double ratio = seconds / dot(c->prior, st);
    if (c->steps > 0) {
        c->speed += follow * (ratio - c->speed);
        return;
    }
    ratio = ratio < OUTLIER ? ratio : OUTLIER;  // weights that come from the disk
    c->speed = ratio;
    for (int i = 0; i < COST_TERMS; i++)
        c->term[i] = c->prior[i] * ratio;
}

// The fit works in the units of a machine with scale 1. Bit by bit the scale moves into the fit, as if the machine had
// always been like this: predictions stay the same.
static void shift(struct cost *c)
{
    double g = 1 + settle * (c->scale - 1);
    c->scale /= g;
    c->speed *= g;
    for (int i = 0; i < COST_TERMS; i++) {
        c->term[i] *= g;
        c->moment[i] /= g;
        c->peak[i] /= g * g;
        for (int k = 0; k < COST_TERMS; k++)
            c->normal[i][k] /= g * g;
    }
}

static void learn_scale(struct cost *c, const struct cost_step *st, double seconds)
{
    double ratio = seconds / dot(c->term, st), off = ratio / c->scale - 1;
    c->spread += follow * ((off < 0 ? -off : off) - c->spread);
    c->scale += follow * (ratio - c->scale);
    c->scale = c->scale < least_scale ? least_scale : c->scale > most_scale ? most_scale : c->scale;
    shift(c);
}

void cost_learn(struct cost *c, const struct cost_step *st, double seconds)
{
    if (seconds < 1e-7 || st->rows == 0)
        return;  // nothing was computed, or the clock stood still
    double predicted = cost_predict_s(c, st);
    if (c->steps >= TRUSTED && seconds > OUTLIER * predicted)
        seconds = OUTLIER * predicted;
    if (c->steps >= TRUSTED)
        learn_scale(c, st, seconds);
    learn_speed(c, st, seconds / c->scale);
    add_equation(c, st, seconds / c->scale);
    if (st->prompt_keys > 0)
        c->widest = forget * c->widest > st->rows ? forget * c->widest : st->rows;
    c->steps++;
    solve(c);
}

bool cost_known(const struct cost *c)
{
    return c->steps >= KNOWN;
}

// ---- the budget

double cost_target_s(double decode_s, double target_s)
{
    if (decode_s <= 0)
        return target_s;
    double want = 5 * decode_s, least = 0.4 * target_s, most = 2 * decode_s > target_s ? 2 * decode_s : target_s;
    want = want > least ? want : least;
    return want < most ? want : most;
}

double cost_room_s(const struct cost *c, double decode_s, double target_s)
{
    double target = cost_target_s(decode_s, target_s);
    // The spread is a mean distance; one step in a hundred is two and a half times as far off.
    double margin = 1 / (1.06 + 2 * (c->spread < 0.25 ? c->spread : 0.25) + (cost_known(c) ? 0 : 0.4));
    double room = margin * target - decode_s;
    return room > 0.25 * target ? room : 0.25 * target;
}
