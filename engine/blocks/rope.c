// rope.c - reads the scaling keys of config.json and GGUF and makes the frequencies. Runs at load; rope_row on lanes.
#include "engine/blocks/rope.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

// What both containers say, in one form.
struct keys {
    char type[32];  // "default", "linear", ...
    double theta, factor, original, beta_fast, beta_slow, low, high, attention, mscale, mscale_all;
    bool truncate, partial;
};

static void number(const struct weights *w, const char *scope, const char *key, double *ret_value)
{
    char path[160];
    snprintf(path, sizeof path, "%s.%s", scope, key);
    meta_float(w, path, ret_value);
}

static void text(const struct weights *w, const char *scope, const char *key, char *out, size_t size)
{
    char path[160];
    const char *s;
    size_t n;
    snprintf(path, sizeof path, "%s.%s", scope, key);
    if (meta_string(w, path, &s, &n) && n > 0)
        snprintf(out, size, "%.*s", (int)n, s);
}

// Newer files have everything in rope_parameters; older ones rope_theta beside rope_scaling, which goes first. The
// original length beside them goes before the one inside.
static void read_hf(const struct weights *w, struct keys *k)
{
    const char *s = meta_group(w, "rope_scaling") ? "rope_scaling" : "rope_parameters";
    double part = 1;
    meta_float(w, "rope_theta", &k->theta);
    meta_float(w, "partial_rotary_factor", &part);
    text(w, s, "type", k->type, sizeof k->type);
    text(w, s, "rope_type", k->type, sizeof k->type);
    number(w, s, "rope_theta", &k->theta);
    number(w, s, "partial_rotary_factor", &part);
    number(w, s, "factor", &k->factor);
    number(w, s, "original_max_position_embeddings", &k->original);
    number(w, s, "beta_fast", &k->beta_fast);
    number(w, s, "beta_slow", &k->beta_slow);
    number(w, s, "low_freq_factor", &k->low);
    number(w, s, "high_freq_factor", &k->high);
    number(w, s, "attention_factor", &k->attention);
    number(w, s, "mscale", &k->mscale);
    number(w, s, "mscale_all_dim", &k->mscale_all);
    meta_float(w, "original_max_position_embeddings", &k->original);
    meta_bool(w, meta_group(w, "rope_scaling") ? "rope_scaling.truncate" : "rope_parameters.truncate", &k->truncate);
    k->partial = part != 1;
}

static void read_gguf(const struct weights *w, struct keys *k)
{
    const char *arch = weights_arch(w);
    double old = 0, attn = 0;
    number(w, arch, "rope.freq_base", &k->theta);
    number(w, arch, "rope.scale_linear", &old);
    if (old > 0 && old != 1) {
        snprintf(k->type, sizeof k->type, "linear");
        k->factor = old;
    }
    text(w, arch, "rope.scaling.type", k->type, sizeof k->type);
    number(w, arch, "rope.scaling.factor", &k->factor);
    number(w, arch, "rope.scaling.original_context_length", &k->original);
    number(w, arch, "rope.scaling.yarn_beta_fast", &k->beta_fast);
    number(w, arch, "rope.scaling.yarn_beta_slow", &k->beta_slow);
    number(w, arch, "rope.scaling.attn_factor", &attn);
    // GGUF's factor multiplies the one that follows from `factor`; transformers' attention_factor replaces it.
    if (attn > 0)
        k->attention = attn * (k->factor > 1 ? 0.1 * log(k->factor) + 1 : 1);
    if (!strcmp(k->type, "none"))
        snprintf(k->type, sizeof k->type, "default");
}

static double mscale(double factor, double m)
{
    return factor <= 1 ? 1 : 0.1 * m * log(factor) + 1;
}

// The dimension whose wave turns `rotations` times within the trained length.
static double correction(double rotations, int dim, double theta, double original)
{
    return dim * log(original / (rotations * 2 * M_PI)) / (2 * log(theta));
}

// The f32 operations and their order are the reference's: at position 100,000 one unit in the last place of a frequency
// is an angle of 0.01.
static void yarn_range(struct rope *r, const struct keys *k, double *low, double *high)
{
    *low = correction(k->beta_fast, r->rotary, k->theta, k->original);
    *high = correction(k->beta_slow, r->rotary, k->theta, k->original);
    if (k->truncate) {
        *low = floor(*low);
        *high = ceil(*high);
    }
    *low = *low > 0 ? *low : 0;
    *high = *high < r->rotary - 1 ? *high : r->rotary - 1;
    if (*low == *high)
        *high += 0.001;
    double factor = k->mscale > 0 && k->mscale_all > 0 ? mscale(k->factor, k->mscale) / mscale(k->factor, k->mscale_all)
                                                       : mscale(k->factor, 1);
    r->scale = (float)(k->attention > 0 ? k->attention : factor);
}

static void yarn(struct rope *r, const struct keys *k)
{
    double low, high;
    yarn_range(r, k, &low, &high);
    for (int i = 0; i < r->rotary / 2; i++) {
        float ramp = ((float)i - (float)low) / (float)(high - low);
        ramp = ramp < 0 ? 0 : ramp > 1 ? 1 : ramp;
        float plain = 1 - ramp, wave = 1 / r->inv_freq[i];
        r->inv_freq[i] = 1 / ((float)k->factor * wave) * (1 - plain) + r->inv_freq[i] * plain;
    }
}

static void llama3(struct rope *r, const struct keys *k)
{
    double low_wave = k->original / k->low, high_wave = k->original / k->high;
    float low = (float)k->low, factor = (float)k->factor;
    for (int i = 0; i < r->rotary / 2; i++) {
        float f = r->inv_freq[i], wave = (float)(2 * M_PI) / f;
        float smooth = ((float)k->original / wave - low) / (float)(k->high - k->low);
        if (wave > (float)low_wave)
            r->inv_freq[i] = f / factor;
        else if (wave >= (float)high_wave)
            r->inv_freq[i] = (1 - smooth) * f / factor + smooth * f;
    }
}

static err_code scale(struct rope *r, struct keys *k, err *e)
{
    if (!strcmp(k->type, "default"))
        return ERR_OK;
    if (k->partial)
        return err_set_param(e, ERR_UNSUPPORTED, "partial_rotary_factor",
                             "RoPE scaling '%s' of a part of each head is not built", k->type);
    if (!strcmp(k->type, "yarn") && k->factor == 0 && k->original > 0)
        k->factor = r->trained / k->original;
    if (!(k->factor > 0 && k->factor <= 4096))
        return err_set_param(e, ERR_CORRUPT, "rope_scaling.factor",
                             "RoPE scaling '%s' has factor %g, expected more than 0, at most 4096", k->type, k->factor);
    if (!strcmp(k->type, "linear")) {
        for (int i = 0; i < r->rotary / 2; i++)
            r->inv_freq[i] /= (float)k->factor;
        return ERR_OK;
    }
    if (!strcmp(k->type, "dynamic")) {
        r->dynamic = true;
        r->context = (int)fmax(r->context, fmin(k->factor * r->trained, INT32_MAX));
        if (r->rotary <= 2)
            return err_set(e, ERR_CORRUPT, "dynamic RoPE of %d elements, expected more than 2", r->rotary);
        return ERR_OK;
    }
    if (!(k->original >= 1 && k->original <= INT32_MAX))
        return err_set_param(e, ERR_CORRUPT, "original_max_position_embeddings",
                             "RoPE scaling '%s' has original length %g, expected 1 or more", k->type, k->original);
    if (!strcmp(k->type, "yarn")) {
        yarn(r, k);
        r->context = (int)fmax(r->context, fmin(k->original * k->factor, INT32_MAX));
        return ERR_OK;
    }
    if (!strcmp(k->type, "llama3") && k->low > 0 && k->high > k->low) {
        llama3(r, k);
        return ERR_OK;
    }
    if (!strcmp(k->type, "llama3"))
        return err_set_param(e, ERR_CORRUPT, "rope_scaling",
                             "llama3 RoPE has low_freq_factor %g and high_freq_factor %g", k->low, k->high);
    return err_set_param(e, ERR_UNSUPPORTED, "rope_scaling",
                         "RoPE scaling '%s' is not built; there are default, linear, dynamic, yarn, llama3", k->type);
}

// Divisors of the frequencies that a GGUF converter worked out.
static err_code divide(struct rope *r, const struct weights *w, struct loader *ld, err *e)
{
    static const char name[] = "rope_freqs.weight";
    const float *by;
    if (weights_container(w) != WEIGHTS_GGUF || !weights_find(w, name))
        return ERR_OK;
    err_code code = loader_vector(ld, name, r->rotary / 2, &by, e);
    if (code)
        return code;
    for (int i = 0; i < r->rotary / 2; i++) {
        if (!(by[i] > 0) || !isfinite(by[i]))
            return err_set_param(e, ERR_CORRUPT, name, "tensor '%s' has the divisor %g at %d", name, (double)by[i], i);
        r->inv_freq[i] /= by[i];
    }
    return ERR_OK;
}

err_code rope_open(struct rope *r, struct loader *ld, const struct weights *w, int rotary, int context, err *e)
{
    if (rotary < 2 || rotary > ROPE_MAX || rotary % 2)
        return err_set(e, ERR_UNSUPPORTED, "%s: RoPE over %d elements of a head; even numbers 2 to %d are built",
                       weights_path(w), rotary, ROPE_MAX);
    struct keys k = {.type = "default", .theta = 10000, .original = context, .beta_fast = 32, .beta_slow = 1,
                     .truncate = true};
    if (weights_container(w) == WEIGHTS_GGUF)
        read_gguf(w, &k);
    else
        read_hf(w, &k);
    if (!(k.theta > 1 && k.theta <= 1e12))
        return err_set_param(e, ERR_CORRUPT, "rope_theta", "%s: rope_theta is %g, expected 1 to 1e12",
                             weights_path(w), k.theta);
    struct rope made = {.rotary = rotary, .scale = 1, .theta = k.theta, .factor = k.factor, .trained = context,
                        .context = context};
    for (int i = 0; i < rotary / 2; i++)
        made.inv_freq[i] = 1 / powf((float)k.theta, (float)(2 * i) / (float)rotary);
    err_code code = scale(&made, &k, e);
    if (code)
        return err_wrap(e, "%s", weights_path(w));
    code = divide(&made, w, ld, e);
    if (!code)
        *r = made;
    return code;
}

void rope_row(const struct rope *r, int pos, float *cos, float *sin)
{
    double theta = 0;
    bool grown = r->dynamic && pos >= r->trained;
    if (grown)
        theta = r->theta * pow(r->factor * (pos + 1) / r->trained - (r->factor - 1), r->rotary / (r->rotary - 2.0));
    for (int i = 0; i < r->rotary / 2; i++) {
        float f = grown ? (float)pow(theta, -2.0 * i / r->rotary) : r->inv_freq[i];
        float angle = (float)pos * f;
        cos[i] = cosf(angle) * r->scale;
        sin[i] = sinf(angle) * r->scale;
    }
}
