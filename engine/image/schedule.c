// schedule.c - samplers of diffusion models as tables of coefficients, one row a call of the denoiser.
//
// Every built sampler is linear in the latents, the denoiser's answer, its noise and a short history, so opening one
// means computing the coefficients, and a step is one loop over elements. The loop runs in f64 and rounds once. The
// history of step i lies in buffer i % 4, so that a step needs no counter: where it was cut into ranges does not matter.
#include "engine/image/schedule.h"

#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"

enum { TRAIN_MAX = 100000, HISTORY = 4, SAVED = 4, SUM = 5 };  // numbers of buffers

enum kind { EULER, ANCESTRAL, DDIM, PNDM, DPM };
enum prediction { EPSILON, V_PREDICTION, SAMPLE };
enum spacing { LINSPACE, LEADING, TRAILING };
enum beta_kind { LINEAR, SCALED_LINEAR, COSINE };
enum final_sigma { FINAL_ZERO, FINAL_MIN };
enum solver { MIDPOINT, HEUN };

static const char known[] = "EulerDiscreteScheduler, EulerAncestralDiscreteScheduler, DDIMScheduler, PNDMScheduler, "
                            "DPMSolverMultistepScheduler";

struct call {
    double t, input_scale;
    // x0 = px x + po out (then clipped); the quantity kept in history: kx x + ko out + k0 x0
    double px, po, kx, ko, k0;
    // next = nx base + n0 kept + h[j] history[j steps ago] + noise * nn
    double nx, n0, h[HISTORY], nn;
    int back[HISTORY];      // which buffer h[j] reads; -1: none
    int keep;               // buffer that receives the kept quantity; -1: none
    bool save, from_saved;  // x goes to SAVED first; base is SAVED instead of x
    // Runge-Kutta of PNDM: SUM += add * kept, and the step uses SUM + kept * n0 ... (sum = true)
    double add;
    bool sum, clear;
    double late_kx;         // v-prediction of PNDM: the combined answer e becomes late_ko e + late_kx base
    double late_ko;
};

struct schedule {
    const char *name;
    enum kind kind;
    enum prediction prediction;
    enum spacing spacing;
    enum beta_kind beta;
    enum final_sigma final;
    enum solver solver;
    double beta_start, beta_end, sigma_min, sigma_max, clip_range, lambda_min;
    int train, offset, order, steps;
    bool to_one, skip_prk, karras, clip, lower_final, euler_final, zero_snr, sde;
    float *alphas;          // [train] cumulative products
    double initial;
    int calls;
    struct call *call;
};

// ---- reading the configuration

struct reader {
    const json_t *config, *override;
    err *e;
    err_code code;
};

static const json_t *get(const struct reader *r, const char *key)
{
    const json_t *j = json_object_get(r->override, key);
    j = j ? j : json_object_get(r->config, key);
    return j && !json_is_null(j) ? j : NULL;
}

static void wrong(struct reader *r, const char *key, const char *expected)
{
    if (!r->code)
        r->code = err_set_param(r->e, ERR_CORRUPT, key, "scheduler_config.json: '%s' is no %s", key, expected);
}

static double number(struct reader *r, const char *key, double fallback, double min, double max)
{
    const json_t *j = get(r, key);
    if (!j)
        return fallback;
    double v = json_number_value(j);
    if (!json_is_number(j) || !(v >= min && v <= max)) {
        if (!r->code)
            r->code = err_set_param(r->e, ERR_CORRUPT, key, "scheduler_config.json: '%s' is %g, expected a number from %g to %g",
                                    key, v, min, max);
        return fallback;
    }
    return v;
}

static int integer(struct reader *r, const char *key, int fallback, int min, int max)
{
    double v = number(r, key, fallback, min, max);
    if (v != floor(v))
        wrong(r, key, "integer");
    return (int)v;
}

static bool boolean(struct reader *r, const char *key, bool fallback)
{
    const json_t *j = get(r, key);
    if (j && !json_is_boolean(j))
        wrong(r, key, "true or false");
    return j ? json_is_true(j) : fallback;
}

// One of `words`, separated by '|'; its number. Any other word is not built.
static int word(struct reader *r, const char *key, int fallback, const char *words)
{
    const json_t *j = get(r, key);
    const char *text = json_string_value(j);
    if (!j)
        return fallback;
    if (!text) {
        wrong(r, key, "text");
        return fallback;
    }
    size_t len = strlen(text);
    int n = 0;
    for (const char *p = words; p; n++) {
        size_t w = strcspn(p, "|");
        if (w == len && memcmp(p, text, w) == 0)
            return n;
        p = p[w] ? p + w + 1 : NULL;
    }
    if (!r->code)
        r->code = err_set_param(r->e, ERR_UNSUPPORTED, key, "scheduler_config.json: '%s' is '%.40s', built are %s", key,
                                text, words);
    return fallback;
}

static void refuse(struct reader *r, const char *key)
{
    const json_t *j = get(r, key);
    if (j && !json_is_false(j) && !r->code)
        r->code = err_set_param(r->e, ERR_UNSUPPORTED, key, "scheduler_config.json: '%s' is set, which is not built", key);
}

static void read_common(struct schedule *s, struct reader *r)
{
    bool leading = s->kind == DDIM || s->kind == PNDM;
    s->train = integer(r, "num_train_timesteps", 1000, 2, TRAIN_MAX);
    s->beta_start = number(r, "beta_start", 0.0001, 0, 1);
    s->beta_end = number(r, "beta_end", 0.02, 0, 1);
    s->beta = (enum beta_kind)word(r, "beta_schedule", LINEAR, "linear|scaled_linear|squaredcos_cap_v2");
    s->spacing = (enum spacing)word(r, "timestep_spacing", leading ? LEADING : LINSPACE, "linspace|leading|trailing");
    s->offset = integer(r, "steps_offset", 0, -TRAIN_MAX, TRAIN_MAX);
    s->prediction = (enum prediction)word(r, "prediction_type", EPSILON, "epsilon|v_prediction|sample");
    if ((s->kind == ANCESTRAL || s->kind == PNDM) && s->prediction == SAMPLE)
        word(r, "prediction_type", EPSILON, "epsilon|v_prediction");
    if (s->kind != PNDM)
        s->zero_snr = boolean(r, "rescale_betas_zero_snr", false);
    refuse(r, "trained_betas");
}

static void read_sigmas(struct schedule *s, struct reader *r)
{
    s->karras = boolean(r, "use_karras_sigmas", false);
    s->final = (enum final_sigma)word(r, "final_sigmas_type", FINAL_ZERO, "zero|sigma_min");
    if (s->kind == EULER) {
        s->sigma_min = number(r, "sigma_min", NAN, 0, 1e9);
        s->sigma_max = number(r, "sigma_max", NAN, 0, 1e9);
    } else {
        s->sigma_min = s->sigma_max = NAN;
    }
    refuse(r, "use_exponential_sigmas");
    refuse(r, "use_beta_sigmas");
}

static void read_own(struct schedule *s, struct reader *r)
{
    switch (s->kind) {
    case EULER:
        read_sigmas(s, r);
        word(r, "interpolation_type", 0, "linear");
        word(r, "timestep_type", 0, "discrete");
        break;
    case DDIM:
        s->clip = boolean(r, "clip_sample", true);
        s->clip_range = number(r, "clip_sample_range", 1, 0, 1e9);
        s->to_one = boolean(r, "set_alpha_to_one", true);
        refuse(r, "thresholding");
        break;
    case PNDM:
        s->skip_prk = boolean(r, "skip_prk_steps", false);
        s->to_one = boolean(r, "set_alpha_to_one", false);
        break;
    case DPM:
        read_sigmas(s, r);
        s->sde = word(r, "algorithm_type", 0, "dpmsolver++|sde-dpmsolver++") == 1;
        s->solver = (enum solver)word(r, "solver_type", MIDPOINT, "midpoint|heun");
        s->order = integer(r, "solver_order", 2, 1, 9);
        if (s->order > 2 && !r->code)
            r->code = err_set_param(r->e, ERR_UNSUPPORTED, "solver_order",
                                    "scheduler_config.json: 'solver_order' is %d, built are 1 and 2", s->order);
        s->lower_final = boolean(r, "lower_order_final", true);
        s->euler_final = boolean(r, "euler_at_final", false);
        s->lambda_min = number(r, "lambda_min_clipped", -HUGE_VAL, -HUGE_VAL, HUGE_VAL);
        refuse(r, "use_lu_lambdas");
        refuse(r, "use_flow_sigmas");
        refuse(r, "use_dynamic_shifting");
        refuse(r, "thresholding");
        break;
    case ANCESTRAL:
        break;
    }
}

static err_code find_kind(struct schedule *s, const char *name, err *e)
{
    static const char *const names[] = {"EulerDiscreteScheduler", "EulerAncestralDiscreteScheduler", "DDIMScheduler",
                                        "PNDMScheduler", "DPMSolverMultistepScheduler"};
    for (int i = 0; i < 5; i++) {
        if (strcmp(names[i], name) == 0) {
            s->kind = (enum kind)i;
            s->name = names[i];
            return ERR_OK;
        }
    }
    return err_set_param(e, ERR_UNSUPPORTED, "scheduler", "scheduler '%.60s' is not built; built are %s", name, known);
}

// ---- tables over training time, rounded to f32 where diffusers has f32 tensors

// As torch.linspace: from both ends towards the middle.
static float line(double start, double end, int n, int i)
{
    float a = (float)start, b = (float)end;
    float step = n > 1 ? (b - a) / (float)(n - 1) : 0;
    return i < n / 2 || n == 1 ? a + step * (float)i : b - step * (float)(n - i - 1);
}

static double cosine_bar(double t)
{
    double c = cos((t + 0.008) / 1.008 * M_PI / 2);
    return c * c;
}

static float beta_at(const struct schedule *s, int i)
{
    if (s->beta == LINEAR)
        return line(s->beta_start, s->beta_end, s->train, i);
    if (s->beta == SCALED_LINEAR) {
        float root = line(sqrt(s->beta_start), sqrt(s->beta_end), s->train, i);
        return root * root;
    }
    double b = 1 - cosine_bar((double)(i + 1) / s->train) / cosine_bar((double)i / s->train);
    return (float)(b < 0.999 ? b : 0.999);
}

// Lin et al. 2024: the last step has no signal at all.
static void rescale(struct schedule *s)
{
    float *bar = s->alphas, first = sqrtf(bar[0]), last = sqrtf(bar[s->train - 1]), before = 1;
    double product = 1;
    for (int i = 0; i < s->train; i++) {
        float root = (sqrtf(bar[i]) - last) * (first / (first - last)), now = root * root;
        float beta = 1 - now / before;
        before = now;
        product *= 1 - beta;
        bar[i] = (float)product;
    }
    if (s->kind != DDIM)
        bar[s->train - 1] = 0x1p-24f;
}

static void make_alphas(struct schedule *s)
{
    double product = 1;
    s->alphas = mem_new((size_t)s->train * sizeof *s->alphas);
    for (int i = 0; i < s->train; i++) {
        product *= (double)(1 - beta_at(s, i));
        s->alphas[i] = (float)product;
    }
    if (s->zero_snr)
        rescale(s);
}

static float sigma_of(const struct schedule *s, int t)
{
    return sqrtf((1 - s->alphas[t]) / s->alphas[t]);
}

// ---- timesteps

static double even(double v)  // numpy's round: half to even
{
    return nearbyint(v);
}

static double lin(double stop, int n, int i)  // numpy.linspace from 0
{
    return n == 1 ? 0 : i == n - 1 ? stop : i * (stop / (n - 1));
}

// numpy.arange(top, 0, -ratio), rounded, less one: its step is the difference of its first two elements.
static int trailing(double top, double ratio, double *t, int max)
{
    double delta = (top - ratio) - top;
    int n = (int)ceil(top / ratio);
    n = n < max ? n : max;
    for (int i = 0; i < n; i++)
        t[i] = even(top + i * delta) - 1;
    return n;
}

// Descending; returns how many.
static int make_timesteps(const struct schedule *s, double *t, int max)
{
    int n = s->steps, top = s->train;
    if (s->kind == DPM) {
        int clipped = 0;
        for (int i = 0; i < s->train; i++)
            clipped += logf(sqrtf(s->alphas[i])) - logf(sqrtf(1 - s->alphas[i])) < s->lambda_min;
        top -= clipped;
    }
    if (s->spacing == TRAILING)
        return trailing(top, (double)s->train / n, t, max);
    int points = s->kind == DPM ? n + 1 : n, ratio = top / points;
    for (int i = 0; i < n; i++) {
        int at = points - 1 - i;
        t[i] = s->spacing == LEADING ? (double)at * ratio + s->offset : lin(top - 1, points, at);
        if (s->spacing == LINSPACE)
            t[i] = s->kind == EULER || s->kind == ANCESTRAL ? (double)(float)t[i] : even(t[i]);
    }
    return n;
}

// ---- sigmas: Euler and DPM-Solver

static double sigma_at(const struct schedule *s, double t)  // numpy.interp
{
    if (t <= 0)
        return sigma_of(s, 0);
    if (t >= s->train - 1)
        return sigma_of(s, s->train - 1);
    int i = (int)t;
    double a = sigma_of(s, i), b = sigma_of(s, i + 1);
    return (b - a) * (t - i) + a;
}

// Between the logarithms of the sigmas of training, which ascend.
static double time_of(const float *logs, int n, double sigma)
{
    double log_sigma = log(sigma > 1e-10 ? sigma : 1e-10);
    int low = 0;
    for (int high = n - 1; low < high;) {
        int mid = (low + high + 1) / 2;
        if (log_sigma >= (double)logs[mid])
            low = mid;
        else
            high = mid - 1;
    }
    if (low > n - 2)
        low = n - 2;
    double a = logs[low], b = logs[low + 1], w = (a - log_sigma) / (a - b);
    w = w < 0 ? 0 : w > 1 ? 1 : w;
    return (1 - w) * low + w * (low + 1);
}

static void karras(const struct schedule *s, double *t, double *sigma, int n)
{
    const double rho = 7;
    double low = s->kind == DPM ? (double)sigma_of(s, 0) : isnan(s->sigma_min) ? sigma[n - 1] : s->sigma_min;
    double high = s->kind == DPM ? (double)sigma_of(s, s->train - 1) : isnan(s->sigma_max) ? sigma[0] : s->sigma_max;
    double a = pow(high, 1 / rho), b = pow(low, 1 / rho);
    float *logs = mem_new((size_t)s->train * sizeof *logs);
    for (int i = 0; i < s->train; i++)
        logs[i] = logf(sigma_of(s, i));
    for (int i = 0; i < n; i++) {
        sigma[i] = pow(a + lin(1, n, i) * (b - a), rho);
        t[i] = time_of(logs, s->train, sigma[i]);
        if (s->kind == DPM && s->beta != COSINE)
            t[i] = even(t[i]);
    }
    free(logs);
}

// sigma [n + 1]
static void make_sigmas(const struct schedule *s, double *t, double *sigma, int n)
{
    for (int i = 0; i < n; i++)
        sigma[i] = sigma_at(s, t[i]);
    if (s->karras)
        karras(s, t, sigma, n);
    for (int i = 0; i < n; i++) {
        sigma[i] = (double)(float)sigma[i];
        t[i] = s->kind == DPM ? trunc(t[i]) : (double)(float)t[i];
    }
    sigma[n] = s->kind != ANCESTRAL && s->final == FINAL_MIN ? (double)sigma_of(s, 0) : 0;
}

// x0 from the answer, for latents x = x0 + sigma noise.
static void predict_sigma(const struct schedule *s, struct call *c, double sigma)
{
    switch (s->prediction) {
    case EPSILON:
        c->px = 1;
        c->po = -sigma;
        break;
    case V_PREDICTION:
        c->px = 1 / (sigma * sigma + 1);
        c->po = -sigma / sqrt(sigma * sigma + 1);
        break;
    case SAMPLE:
        c->po = 1;
        break;
    }
}

// x0 from the answer, for latents x = a x0 + b noise.
static void predict_alpha(const struct schedule *s, struct call *c, double a, double b)
{
    switch (s->prediction) {
    case EPSILON:
        c->px = 1 / a;
        c->po = -b / a;
        break;
    case V_PREDICTION:
        c->px = a;
        c->po = -b;
        break;
    case SAMPLE:
        c->po = 1;
        break;
    }
}

static void plan_euler(struct schedule *s, const double *sigma)
{
    for (int i = 0; i < s->calls; i++) {
        struct call *c = &s->call[i];
        double now = sigma[i], next = sigma[i + 1], up = 0, down = next;
        if (s->kind == ANCESTRAL) {
            up = sqrt(next * next * (now * now - next * next) / (now * now));
            down = sqrt(next * next - up * up);
        }
        predict_sigma(s, c, now);
        c->input_scale = 1 / sqrt(now * now + 1);
        c->k0 = 1;
        c->nx = down / now;
        c->n0 = 1 - down / now;
        c->nn = up;
    }
    double top = 0;
    for (int i = 0; i < s->calls; i++)
        top = sigma[i] > top ? sigma[i] : top;
    s->initial = s->spacing == LEADING ? sqrt(top * top + 1) : top;
}

static void alpha_sigma(double sigma, double *ret_a, double *ret_s)
{
    *ret_a = 1 / sqrt(sigma * sigma + 1);
    *ret_s = sigma * *ret_a;
}

// Coefficients of m0 (this x0) and of D1 = (m0 - m1) / r0.
static void dpm_weights(const struct schedule *s, struct call *c, double h, double a_t, double s_t, double s_s,
                        double *ret_d1)
{
    if (s->sde) {
        c->nx = s_t / s_s * exp(-h);
        c->n0 = a_t * (1 - exp(-2 * h));
        c->nn = s_t * sqrt(1 - exp(-2 * h));
        *ret_d1 = s->solver == MIDPOINT ? 0.5 * c->n0 : a_t * ((1 - exp(-2 * h)) / (-2 * h) + 1);
        return;
    }
    c->nx = s_t / s_s;
    c->n0 = -a_t * (exp(-h) - 1);
    *ret_d1 = s->solver == MIDPOINT ? 0.5 * c->n0 : a_t * ((exp(-h) - 1) / h + 1);
}

static err_code plan_dpm(struct schedule *s, const double *sigma, err *e)
{
    int n = s->calls;
    for (int i = 0; i + 1 < n; i++)
        if (sigma[i] == sigma[i + 1])
            return err_set_param(e, ERR_INVALID, "steps", "%d steps are too many: two of them have the same noise level",
                                 s->steps);
    for (int i = 0; i < n; i++) {
        struct call *c = &s->call[i];
        double a_t, s_t, a_s, s_s, a_p, s_p, d1;
        alpha_sigma(sigma[i + 1], &a_t, &s_t);
        alpha_sigma(sigma[i], &a_s, &s_s);
        predict_alpha(s, c, a_s, s_s);
        double lambda_s = log(a_s) - log(s_s), h = log(a_t) - log(s_t) - lambda_s;
        c->input_scale = 1;
        c->k0 = 1;
        c->keep = i % HISTORY;
        dpm_weights(s, c, h, a_t, s_t, s_s, &d1);
        bool final = i == n - 1 && (s->euler_final || (s->lower_final && n < 15) || s->final == FINAL_ZERO);
        if (s->order < 2 || i == 0 || final)
            continue;
        alpha_sigma(sigma[i - 1], &a_p, &s_p);
        double r = (lambda_s - (log(a_p) - log(s_p))) / h;
        c->n0 += d1 / r;
        c->h[0] = -d1 / r;
        c->back[0] = (i - 1) % HISTORY;
    }
    s->initial = 1;
    return ERR_OK;
}

// ---- DDIM and PNDM: by cumulative products

static err_code alpha_at(const struct schedule *s, double t, double *ret_alpha, err *e)
{
    if (t >= s->train)
        return err_set_param(e, ERR_INVALID, "steps", "%s cannot take %d steps of %d with this spacing", s->name, s->steps,
                             s->train);
    *ret_alpha = t >= 0 ? (double)s->alphas[(int)t] : s->to_one ? 1 : (double)s->alphas[0];
    return ERR_OK;
}

static err_code plan_ddim(struct schedule *s, err *e)
{
    for (int i = 0; i < s->calls; i++) {
        struct call *c = &s->call[i];
        double a, p;
        err_code code = alpha_at(s, c->t < 0 ? 0 : c->t, &a, e);
        if (!code)
            code = alpha_at(s, c->t - s->train / s->steps, &p, e);
        if (!code && a == 0 && s->prediction == EPSILON)
            code = err_set_param(e, ERR_UNSUPPORTED, "prediction_type",
                                 "scheduler_config.json: rescale_betas_zero_snr needs v_prediction or sample here");
        if (code)
            return code;
        double b = sqrt(1 - a);
        a = sqrt(a);
        predict_alpha(s, c, a, b);
        c->input_scale = 1;
        double ex = 0, eo = 1, e0 = 0;  // the noise
        if (s->prediction == V_PREDICTION) {
            ex = b;
            eo = a;
        } else if (s->prediction == SAMPLE) {
            ex = 1 / b;
            eo = -a / b;
        }
        double dir = sqrt(1 - p);
        c->kx = dir * ex;
        c->ko = dir * eo;
        c->k0 = dir * e0 + sqrt(p);
        c->n0 = 1;
    }
    s->initial = 1;
    return ERR_OK;
}

// From time t to time prev by formula (9) of the PNDM paper; the combined answer e stands for n0 and h until here.
static err_code plan_transfer(const struct schedule *s, struct call *c, double t, double prev, err *e)
{
    double a, p;
    err_code code = alpha_at(s, t < 0 ? 0 : t, &a, e);
    if (!code)
        code = alpha_at(s, prev, &p, e);
    if (code)
        return code;
    double b = 1 - a, q = 1 - p;
    double scale = -(p - a) / (a * sqrt(q) + sqrt(a * b * p));
    c->nx = sqrt(p / a);
    c->late_ko = scale;
    c->late_kx = 0;
    if (s->prediction == V_PREDICTION) {
        c->late_ko = scale * sqrt(a);
        c->late_kx = scale * sqrt(b);
    }
    if (t == prev)  // nothing moves: 0/0 when both are the last time
        c->late_ko = c->late_kx = 0;
    return ERR_OK;
}

static const double adams[HISTORY][HISTORY] = {
    {1, 0, 0, 0},
    {3.0 / 2, -1.0 / 2, 0, 0},
    {23.0 / 12, -16.0 / 12, 5.0 / 12, 0},
    {55.0 / 24, -59.0 / 24, 37.0 / 24, -9.0 / 24},
};

// PLMS call number i with `known` answers in history: slots are numbered by answers, not by calls.
static err_code plan_plms(const struct schedule *s, struct call *c, int i, int answers, err *e)
{
    int ratio = s->train / s->steps;
    double t = c->t, prev = t - ratio;
    c->ko = 1;
    if (i == 1 && s->skip_prk) {  // the second call repeats the first step with the mean of both answers
        prev = t;
        t += ratio;
        c->n0 = c->h[0] = 0.5;
        c->back[0] = 0;
        c->from_saved = true;
        return plan_transfer(s, c, t, prev, e);
    }
    c->keep = answers % HISTORY;
    c->save = i == 0;
    int order = answers < HISTORY - 1 ? answers : HISTORY - 1;
    c->n0 = adams[order][0];
    for (int k = 1; k <= order; k++) {
        c->h[k - 1] = adams[order][k];
        c->back[k - 1] = (answers - k) % HISTORY;
    }
    return plan_transfer(s, c, t, prev, e);
}

// Runge-Kutta call number i: four of them make one step from the time of the first.
static err_code plan_prk(const struct schedule *s, struct call *c, int i, err *e)
{
    static const double weight[4] = {1.0 / 6, 1.0 / 3, 1.0 / 3, 1.0 / 6};
    double start = s->call[i / 4 * 4].t, prev = c->t - (i % 2 ? 0 : s->train / s->steps / 2);
    c->ko = 1;
    c->n0 = i % 4 == 3 ? weight[3] : 1;
    c->sum = i % 4 == 3;
    c->clear = i % 4 == 0;
    c->add = weight[i % 4];
    c->save = i % 4 == 0;
    c->from_saved = true;
    if (i % 4 == 0)
        c->keep = i / 4;
    return plan_transfer(s, c, start, prev, e);
}

static err_code pndm_times(struct schedule *s, const double *t, int n, err *e)
{
    int at = 0;
    if (s->skip_prk) {  // t0 t1 t1 t2 ...
        for (int i = 0; i < n; i++) {
            s->call[at++].t = t[i];
            if (i == 1)
                s->call[at++].t = t[i];
        }
        s->calls = at;
        return ERR_OK;
    }
    if (n < HISTORY)
        return err_set_param(e, ERR_INVALID, "steps", "%s with Runge-Kutta steps needs at least %d steps, got %d", s->name,
                             HISTORY, n);
    int half = s->train / s->steps / 2;
    for (int k = 0; k < 3; k++) {
        s->call[at++].t = t[k];
        s->call[at++].t = t[k + 1] + half;
        s->call[at++].t = t[k + 1] + half;
        s->call[at++].t = t[k + 1];
    }
    for (int i = 3; i < n; i++)
        s->call[at++].t = t[i];
    s->calls = at;
    return ERR_OK;
}

static err_code plan_pndm(struct schedule *s, const double *t, int n, err *e)
{
    err_code code = pndm_times(s, t, n, e);
    int prk = s->skip_prk ? 0 : 12;
    for (int i = 0; i < s->calls && !code; i++) {
        struct call *c = &s->call[i];
        c->input_scale = 1;
        if (i < prk)
            code = plan_prk(s, c, i, e);
        else
            code = plan_plms(s, c, i, prk ? i - 9 : i < 2 ? i : i - 1, e);
        double a;
        if (!code)
            code = alpha_at(s, c->t < 0 ? 0 : c->t, &a, e);
        if (!code)  // only for previews
            predict_alpha(s, c, sqrt(a), sqrt(1 - a));
    }
    s->initial = 1;
    return code;
}

// ---- opening

static err_code plan(struct schedule *s, err *e)
{
    int max = s->steps + 1;  // the trailing spacing may round to one more
    double *t = mem_new((size_t)max * sizeof *t), *sigma = mem_new((size_t)(max + 1) * sizeof *sigma);
    make_alphas(s);
    int n = make_timesteps(s, t, max);
    s->calls = n;
    s->call = mem_new((size_t)(n + 16) * sizeof *s->call);
    for (int i = 0; i < n + 16; i++) {
        s->call[i].keep = -1;
        for (int k = 0; k < HISTORY; k++)
            s->call[i].back[k] = -1;
    }
    err_code code = ERR_OK;
    if (s->kind == EULER || s->kind == ANCESTRAL || s->kind == DPM)
        make_sigmas(s, t, sigma, n);
    for (int i = 0; i < n; i++)
        s->call[i].t = t[i];
    if (s->kind == DPM)
        code = plan_dpm(s, sigma, e);
    else if (s->kind == DDIM)
        code = plan_ddim(s, e);
    else if (s->kind == PNDM)
        code = plan_pndm(s, t, n, e);
    else
        plan_euler(s, sigma);
    free(t);
    free(sigma);
    return code;
}

static err_code check_steps(const struct schedule *s, err *e)
{
    int most = s->train < SCHEDULE_STEPS_MAX ? s->train : SCHEDULE_STEPS_MAX;
    if (s->kind == DPM && s->spacing == LEADING)
        most--;  // its times are cut into one part more
    if (s->steps < 1 || s->steps > most)
        return err_set_param(e, ERR_INVALID, "steps", "%d steps, %s takes 1 to %d", s->steps, s->name, most);
    return ERR_OK;
}

err_code schedule_open(const struct json_t *config, const struct json_t *override, const char *name, int steps,
                       struct schedule **ret_schedule, err *e)
{
    struct reader r = {config, override, e, ERR_OK};
    const char *class = json_string_value(get(&r, "_class_name"));
    name = name ? name : class;
    if (!name)
        return err_set_param(e, ERR_CORRUPT, "_class_name", "scheduler_config.json names no scheduler");
    struct schedule *s = mem_new(sizeof *s);
    s->steps = steps;
    err_code code = find_kind(s, name, e);
    if (!code) {
        read_common(s, &r);
        read_own(s, &r);
        code = r.code;
    }
    if (!code)
        code = check_steps(s, e);
    if (!code)
        code = plan(s, e);
    if (code)
        schedule_close(s);
    else
        *ret_schedule = s;
    return code;
}

void schedule_close(struct schedule *s)
{
    if (!s)
        return;
    free(s->alphas);
    free(s->call);
    free(s);
}

// ---- asking

const char *schedule_name(const struct schedule *s)
{
    return s->name;
}

int schedule_calls(const struct schedule *s)
{
    return s->calls;
}

int schedule_buffers(const struct schedule *s)
{
    return s->kind == DPM ? HISTORY : s->kind == PNDM ? SCHEDULE_BUFFERS : 0;
}

double schedule_initial(const struct schedule *s)
{
    return s->initial;
}

double schedule_timestep(const struct schedule *s, int i)
{
    return s->call[i].t;
}

double schedule_input_scale(const struct schedule *s, int i)
{
    return s->call[i].input_scale;
}

double schedule_noise_scale(const struct schedule *s, int i)
{
    return s->call[i].nn;
}

// ---- one step

static double clip(double v, double range)
{
    return v < -range ? -range : v > range ? range : v;
}

void schedule_step(const struct schedule *s, int i, const struct schedule_state *state, float *x, const float *out,
                   const float *noise, float *x0, size_t lo, size_t hi)
{
    const struct call *c = &s->call[i];
    float *const *buffer = state->buffer;
    bool late = s->kind == PNDM;
    for (size_t k = lo; k < hi; k++) {
        double now = x[k], answer = out[k], denoised = c->px * now + c->po * answer;
        if (s->clip)
            denoised = clip(denoised, s->clip_range);
        if (x0)
            x0[k] = (float)denoised;
        double kept = c->kx * now + c->ko * answer + c->k0 * denoised;
        if (c->save)
            buffer[SAVED][k] = x[k];
        double base = c->from_saved ? buffer[SAVED][k] : now, sum = c->n0 * kept;
        for (int j = 0; j < HISTORY && c->back[j] >= 0; j++)
            sum += c->h[j] * buffer[c->back[j]][k];
        if (c->sum)
            sum += buffer[SUM][k];
        if (c->add != 0)
            buffer[SUM][k] = (float)((c->clear ? 0 : buffer[SUM][k]) + c->add * kept);
        if (c->keep >= 0)
            buffer[c->keep][k] = (float)kept;
        double next = late ? c->nx * base + c->late_ko * sum + c->late_kx * base : c->nx * base + sum;
        x[k] = (float)(c->nn != 0 && noise ? next + c->nn * noise[k] : next);
    }
}
