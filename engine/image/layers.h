// layers.h - the layers that image networks are made of: opening their weights, and adding their operations to a net.
//
// Maps are channels last: [images][h][w][c] floats at a place of the net. A function that "adds" an operation only plans it.
// Places it takes for itself it drops before it returns; a map it returns belongs to the caller.
#pragma once

#include "base/arena.h"
#include "engine/blocks/linear.h"
#include "engine/image/net.h"

struct loader;

struct layers_map {
    size_t at;
    int h, w, c;
};

struct layers_norm {
    const float *w, *b;
    int groups;
    float eps;
};

struct layers_conv {
    struct conv c;
    const float *bias;  // [groups * 16]
};

struct layers_resnet {
    int cin, cout;
    struct layers_norm norm1, norm2;
    struct layers_conv conv1, conv2;
    struct linear time;      // its bias includes conv1's
    struct linear shortcut;  // 1x1
    bool has_shortcut;
};

// ---- opening. `name` is the layer's name in the file, without ".weight".
struct layers_file {
    struct loader *loader;
    struct arena *arena;  // lives as long as the network
    int groups;
    float eps;
};
MUST_CHECK err_code layers_open_norm(const struct layers_file *f, const char *name, int channels,
                                     struct layers_norm *ret_norm, err *e);
MUST_CHECK err_code layers_open_conv(const struct layers_file *f, const char *name, int cout, int cin,
                                     struct layers_conv *c, err *e);
MUST_CHECK err_code layers_open_linear(const struct layers_file *f, const char *name, bool bias, int out, int in,
                                       struct linear *l, err *e);
// time: width of the time embedding, 0: the network has none.
MUST_CHECK err_code layers_open_resnet(const struct layers_file *f, const char *name, int cin, int cout, int time,
                                       struct layers_resnet *r, err *e);

// Options of a configuration that are built for one value only: absent, null, or this. ERR_UNSUPPORTED names the option.
struct layers_option {
    const char *key;
    const char *value;  // as JSON; NULL: only absent, null or false
};
MUST_CHECK err_code layers_check_options(const struct weights *w, const struct layers_option *options, size_t count,
                                         err *e);
// An integer of the configuration in [low, high]; fallback when it is absent or null.
MUST_CHECK err_code layers_config_int(const struct weights *w, const char *key, int fallback, int low, int high,
                                      int *ret_value, err *e);

// ---- adding
struct layers_map layers_new(struct net *n, int h, int w, int c);
void layers_drop(struct net *n, struct layers_map m);

// The net's x, [images][c][h][w] times scale, as a map; and back: out = m * scale + shift.
struct layers_map layers_in(struct net *n, int c, int h, int w, float scale);
void layers_out(struct net *n, struct layers_map m, float scale, float shift);
// The net's states [rows][cols] as a place.
size_t layers_states(struct net *n, int rows, int cols);

// rows x [ldx] times a weight; y += with add.
void layers_linear(struct net *n, const struct linear *l, size_t x, int ldx, size_t y, int ldy, int rows, bool add);
// y [rows][inner] = value * gelu(gate), both halves of l.
void layers_geglu(struct net *n, const struct linear *l, size_t x, size_t y, int rows);
void layers_layernorm(struct net *n, const float *w, const float *b, float eps, size_t x, size_t y, int rows, int cols);
// In place, element by element.
enum layers_act { LAYERS_SILU, LAYERS_GELU, LAYERS_QUICK };
void layers_act(struct net *n, enum layers_act act, size_t x, int rows, int cols);

// out [images * rows][heads * head_dim] of queries q over keys and values of the same image.
struct layers_attn {
    size_t q, k, v, out;
    int rows, keys, heads, head_dim;  // rows and keys of one image
    int ldq, ldk;
    bool causal;
};
void layers_attend(struct net *n, const struct layers_attn *a);

// Group normalisation as a factor and an addend per image and channel: [images][2][c] at the returned place.
size_t layers_stats(struct net *n, const struct layers_norm *norm, struct layers_map m);
// A new map m * factor + addend.
struct layers_map layers_affine(struct net *n, struct layers_map m, size_t stats);

// A 3x3 convolution with padding 1. What it reads may be normalised on the way (and pass through SiLU), and enlarged.
struct layers_input {
    struct layers_map map;
    bool norm;
    size_t stats;      // with norm
    int h, w;          // nearest-neighbour enlargement to this size; 0: as it is
};
// bias: NULL takes the layer's own; else a place of [groups * 16]. add: a map of the output's shape that is added.
void layers_convolve(struct net *n, const struct layers_conv *c, const struct layers_input *in, int stride,
                     const size_t *bias, const struct layers_map *add, struct layers_map out);

// x is dropped, unless keep. time: the place of SiLU(time embedding), NULL: none.
struct layers_map layers_resnet(struct net *n, const struct layers_resnet *r, struct layers_map x, const size_t *time,
                                bool keep);
// [a | b], both dropped.
struct layers_map layers_cat(struct net *n, struct layers_map a, struct layers_map b);
