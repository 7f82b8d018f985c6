// speech.c - the checks of speech: snac-check decodes given codes, speak-check runs a whole speech without a
// scheduler and shows its tokens. They run on the thread that calls them.
#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/mem.h"
#include "engine/audio/snac.h"
#include "engine/blocks/packed.h"
#include "engine/family/family.h"
#include "engine/tools/runner.h"
#include "engine/sched/session.h"
#include "engine/tools.h"
#include "engine/weights/weights.h"
#include "kernels/team.h"

enum { FILE_MAX = 256 << 20, ROWS = 256 };

static err_code put_floats(const float *v, size_t n, FILE *out, err *e)
{
    if (n && fwrite(v, sizeof *v, n, out) != n)
        return err_set(e, ERR_IO, "cannot write samples: %s", strerror(errno));
    return ERR_OK;
}

// ---- snac-check

struct codes {
    int32_t *level[SNAC_LEVELS];
    size_t count[SNAC_LEVELS];
};

static err_code add_code(struct codes *c, int level, int64_t v, const struct snac_shape *h, err *e)
{
    if (v < 0 || v >= h->codebook_size)
        return err_set_param(e, ERR_INVALID, "codes", "code %" PRId64 " of level %d, expected 0 to %d", v, level,
                             h->codebook_size - 1);
    c->level[level][c->count[level]++] = (int32_t)v;
    return ERR_OK;
}

static err_code parse_json(const char *text, const struct snac_shape *h, struct codes *c, err *e)
{
    json_t *j = json_loads(text, 0, NULL);
    err_code code = ERR_OK;
    if (json_array_size(j) != (size_t)h->levels)
        code = err_set_param(e, ERR_INVALID, "codes", "expected a JSON list of %d lists, one a level", h->levels);
    for (int l = 0; l < h->levels && !code; l++) {
        json_t *list = json_array_get(j, (size_t)l), *v;
        size_t i;
        c->level[l] = mem_new((json_array_size(list) + 1) * sizeof *c->level[l]);
        json_array_foreach(list, i, v) {
            if (!code)
                code = add_code(c, l, json_is_integer(v) ? json_integer_value(v) : -1, h, e);
        }
    }
    json_decref(j);
    return code;
}

// Binary: all codes of level 0, then those of level 1 and so on; the number of frames follows from the file's size.
static err_code parse_binary(const char *data, size_t len, size_t width, const struct snac_shape *h, struct codes *c, err *e)
{
    size_t frame = 0;
    for (int l = 0; l < h->levels; l++)
        frame += (size_t)(h->frame_rows / h->strides[l]);
    if (len % (frame * width))
        return err_set_param(e, ERR_INVALID, "codes", "%zu bytes of codes, expected frames of %zu codes of %zu bytes", len,
                             frame, width);
    size_t frames = len / (frame * width);
    err_code code = ERR_OK;
    for (int l = 0; l < h->levels; l++) {
        size_t n = frames * (size_t)(h->frame_rows / h->strides[l]);
        c->level[l] = mem_new((n + 1) * sizeof *c->level[l]);
        for (size_t i = 0; i < n && !code; i++, data += width) {
            uint16_t u;
            int32_t v;
            memcpy(width == 2 ? (void *)&u : &v, data, width);
            code = add_code(c, l, width == 2 ? u : v, h, e);
        }
    }
    return code;
}

static bool ends_with(const char *s, const char *end)
{
    size_t n = strlen(s), m = strlen(end);
    return n >= m && strcmp(s + n - m, end) == 0;
}

static err_code read_codes(const char *path, const struct snac_shape *h, struct codes *c, err *e)
{
    char *text;
    size_t len;
    err_code code = file_read(path, FILE_MAX, &text, &len, e);
    if (code)
        return code;
    size_t width = ends_with(path, ".u16") ? 2 : ends_with(path, ".i32") ? 4 : 0;
    code = width ? parse_binary(text, len, width, h, c, e) : parse_json(text, h, c, e);
    free(text);
    for (int l = 1; l < h->levels && !code; l++)
        if (c->count[l] * (size_t)h->strides[l] != c->count[0] * (size_t)h->strides[0])
            code = err_set_param(e, ERR_INVALID, "codes", "%zu codes at level %d and %zu at level 0, expected whole frames",
                                 c->count[l], l, c->count[0]);
    return code;
}

struct decoding {
    struct weights *weights;
    struct packed *packed;
    struct snac *snac;
    struct team *team;
    struct codes codes;
    char *noise;
    struct snac_stream stream;
    void *scratch;
    float *out;
    int rows;
    bool last;
};

// Noise rows of the blocks lie one block after another.
static err_code read_noise(struct decoding *d, const char *path, size_t rows, err *e)
{
    const struct snac_shape *h = snac_shape(d->snac);
    size_t len, want = 0;
    err_code code = file_read(path, FILE_MAX, &d->noise, &len, e);
    if (code)
        return code;
    for (int i = 0; i < h->blocks; i++) {
        d->stream.given[i] = (const float *)(const void *)d->noise + want;
        rows *= (size_t)h->rates[i];
        want += rows;
    }
    if (len != want * sizeof(float))
        return err_set_param(e, ERR_INVALID, "noise", "%zu bytes of noise, expected %zu: every block's rows", len,
                             want * sizeof(float));
    d->stream.noise = SNAC_NOISE_GIVEN;
    return ERR_OK;
}

static void decode_step(struct lane *lane, void *arg)
{
    struct decoding *d = arg;
    snac_step(&d->stream, lane, (const int32_t *const *)d->codes.level, d->rows, d->last, d->scratch, d->out);
}

static err_code decode(struct decoding *d, int rows, int step, FILE *out, err *e)
{
    const struct snac *s = d->snac;
    err_code code = ERR_OK;
    d->stream.snac = s;
    d->stream.state = mem_try(snac_state_floats(s) * sizeof(float));
    d->scratch = mem_try_pages(snac_scratch_bytes(s));
    if (!d->stream.state || !d->scratch)
        return err_set(e, ERR_MEMORY, "no memory for the decoder");
    snac_start(&d->stream);
    while (!d->last && !code) {
        int left = rows - d->stream.fed;
        d->rows = left < step ? left : step;
        d->last = d->rows == left;
        int n = snac_samples(&d->stream, d->rows, d->last);
        d->out = mem_new(((size_t)n + 1) * sizeof *d->out);
        team_run(d->team, decode_step, d);
        code = put_floats(d->out, (size_t)n, out, e);
        free(d->out);
    }
    return code;
}

static void close_decoding(struct decoding *d)
{
    team_close(d->team);
    free(d->stream.state);
    if (d->scratch)
        mem_free_pages(d->scratch, snac_scratch_bytes(d->snac));
    snac_close(d->snac);
    packed_free(d->packed);
    weights_close(d->weights);
    for (int l = 0; l < SNAC_LEVELS; l++)
        free(d->codes.level[l]);
    free(d->noise);
}

err_code tools_speech_snac(const struct tools_snac *t, FILE *out, err *e)
{
    struct decoding d = {.packed = packed_new()};
    const struct cpu_ops *ops;
    int step = t->step > 0 && t->step < SNAC_STEP_ROWS ? t->step : SNAC_STEP_ROWS;
    err_code code = cpu_select(t->isa, &ops, e);
    if (!code)
        code = weights_open(t->model, &d.weights, e);
    if (!code)
        code = snac_open(d.weights, ops, d.packed, &d.snac, e);
    if (!code)
        code = read_codes(t->codes, snac_shape(d.snac), &d.codes, e);
    size_t rows = code ? 0 : d.codes.count[0] * (size_t)snac_shape(d.snac)->frame_rows;
    if (!code && rows > 1 << 20)
        code = err_set_param(e, ERR_TOO_LARGE, "codes", "more than %d rows of codes", 1 << 20);
    if (!code && t->noise)
        code = read_noise(&d, t->noise, rows, e);
    if (!code)
        code = team_open(t->threads, false, &d.team, e);
    if (!code)
        code = decode(&d, (int)rows, step, out, e);
    close_decoding(&d);
    return code;
}

// ---- speak-check

struct speaking {
    struct runner *r;
    struct task *task;
    struct session session;  // only what events need
    struct work *work;
    FILE *tokens, *sound;
    err error;
};

static void on_event(struct task *t, const struct event *ev)
{
    struct speaking *k = t->ud;
    if (ev->kind == EVENT_AUDIO && k->sound && !k->error.code)
        (void)put_floats(ev->values, ev->nvalues, k->sound, &k->error);
}

static void run_step(struct lane *lane, void *arg)
{
    struct work *w = arg;
    w->ops->step(w, lane);
}

// Runs all steps that are ready.
static err_code run_ready(struct speaking *k, err *e)
{
    enum work_next next;
    while ((next = k->work->ops->after(k->work, &k->session, e)) == WORK_MORE)
        team_run(k->r->team, run_step, k->work);
    if (k->error.code)
        *e = k->error;
    return next == WORK_FAIL || k->error.code ? e->code : ERR_OK;
}

static void print_ids(FILE *out, const char *what, const int32_t *ids, int n, bool end)
{
    fprintf(out, "%s", what);
    for (int i = 0; i < n; i++)
        fprintf(out, " %d", ids[i]);
    if (end)
        fputc('\n', out);
}

static err_code feed(struct speaking *k, struct kv_seq *seq, const int32_t *ids, int n, bool last, err *e)
{
    err_code code = ERR_OK;
    for (int at = 0, some; at < n && !code; at += some) {
        some = n - at < ROWS ? n - at : ROWS;
        code = runner_step(k->r, &(struct piece){seq, ids + at, some, last && at + some == n ? PIECE_LAST : PIECE_NONE}, 1, e);
    }
    return code;
}

// One round, as the scheduler does it: prompt, then mask, sample, tell the work, until it says that it is over.
static err_code run_round(struct speaking *k, int round, const int32_t *ids, int nids, int max_tokens, err *e)
{
    struct work *w = k->work;
    const struct work_rounds *rounds = w->ops->rounds;
    struct sampler *sampler = sampler_new(w->sampling, w->model->vocab, round);
    size_t mask_bytes = ((size_t)w->model->vocab + 63) / 64 * sizeof(uint64_t);
    uint64_t *mask = mem_new(mask_bytes);
    struct kv_seq seq;
    kv_seq_init(&seq, k->r->pool);
    sampler_see_prompt(sampler, w->stem, w->nstem);
    sampler_see_prompt(sampler, ids, nids);
    print_ids(k->tokens, "prompt:", w->stem, w->nstem, false);
    print_ids(k->tokens, "", ids, nids, true);
    fprintf(k->tokens, "tokens:");
    err_code code = feed(k, &seq, w->stem, w->nstem, false, e);
    if (!code)
        code = feed(k, &seq, ids, nids, true, e);
    for (int i = 0; i < max_tokens && !code; i++) {
        memset(mask, 0, mask_bytes);
        rounds->admit(w, mask);
        int32_t id = sampler_pick(sampler, k->r->logits, i, mask, NULL, 0);
        if (id < 0)
            code = err_set(e, ERR_INTERNAL, "the model's logits are not numbers");
        print_ids(k->tokens, "", &id, 1, false);
        if (code || rounds->token(w, id))
            break;
        code = run_ready(k, e);
        if (!code && i + 1 < max_tokens)
            code = feed(k, &seq, &id, 1, true, e);
    }
    fputc('\n', k->tokens);
    kv_seq_done(&seq);
    sampler_free(sampler);
    free(mask);
    rounds->end(w);
    return code;
}

static err_code run_speech(struct speaking *k, err *e)
{
    struct work *w = k->work;
    const int32_t *ids;
    int nids, max_tokens;
    err_code code = w->ops->begin(w, e);
    if (!code)
        code = run_ready(k, e);
    for (int i = 0; !code && w->ops->rounds->next(w, &ids, &nids, &max_tokens); i++)
        code = run_round(k, i, ids, nids, max_tokens, e);
    w->rounds_over = true;
    return code ? code : run_ready(k, e);
}

static void fill_task(struct task *t, const struct tools_speak *s)
{
    t->speak.text = s->text;
    t->speak.len = strlen(s->text);
    t->speak.voice = s->voice;
    t->speak.max_tokens = s->max_tokens;
    t->speak.no_noise = !s->noise;
    t->speak.sampling.seed = s->seed ? strtoull(s->seed, NULL, 10) : 0;
    if (s->greedy)
        t->speak.sampling.temperature = 0;
}

err_code tools_speech_speak(const struct tools_model *m, const struct tools_speak *s, FILE *tokens, FILE *sound, err *e)
{
    struct speaking k = {.task = task_new(TASK_SPEAK), .tokens = tokens, .sound = sound};
    int prompt;
    size_t scratch = 0;
    fill_task(k.task, s);
    k.task->on_event = on_event;
    k.task->ud = &k;
    k.session.task = k.task;
    err_code code = runner_open(m, ROWS, 1, 1, 1 << 14, true, &k.r, e);
    const struct work_ops *ops = code ? NULL : k.r->model->family->speak;
    if (!code && !ops)
        code = err_set(e, ERR_UNSUPPORTED, "%s: a model of family '%s' does not speak", m->path, k.r->model->family->name);
    if (!code)
        code = ops->check(k.r->model, k.task, e);
    if (!code)
        code = ops->prepare(k.r->model, k.task, &k.work, &prompt, e);
    if (!code) {
        k.work->ops = ops;
        scratch = ops->scratch_bytes(k.r->model, team_size(k.r->team));
        k.work->scratch = mem_try_pages(scratch);
        code = k.work->scratch ? run_speech(&k, e) : err_set(e, ERR_MEMORY, "no memory for the vocoder");
    }
    if (k.work) {
        if (k.work->scratch)
            mem_free_pages(k.work->scratch, scratch);
        ops->free(k.work);
    }
    runner_close(k.r);
    task_free(k.task);
    return code;
}
