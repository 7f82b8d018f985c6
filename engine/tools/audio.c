// audio.c - the offline commands for speech recognition: mel, transcribe, whisper-logits. Calling thread only;
// the second goes through the engine's own door.
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include <jansson.h>

#include "base/clock.h"
#include "base/mem.h"
#include "engine/audio/mel.h"
#include "engine/audio/whisper.h"
#include "engine/audio/whisper_net.h"
#include "engine/engine.h"
#include "engine/family/family.h"
#include "engine/model.h"
#include "engine/tools/runner.h"
#include "engine/tools.h"
#include "kernels/team.h"

static err_code write_floats(const float *x, size_t n, FILE *out, err *e)
{
    if (fwrite(x, sizeof *x, n, out) != n)
        return err_set(e, ERR_IO, "cannot write numbers: %s", strerror(errno));
    return ERR_OK;
}

static err_code open_whisper(const struct tools_model *t, struct model **ret_model, err *e)
{
    struct model_options o;
    const struct cpu_ops *ops;
    struct model *m;
    err_code code = runner_options(t, &o, e);
    if (!code)
        code = cpu_select(t->isa, &ops, e);
    if (!code)
        code = model_open(t->path, &o, ops, &m, e);
    if (code)
        return code;
    if (!m->family->transcribe) {
        code = err_set(e, ERR_UNSUPPORTED, "%s: family '%s' does not transcribe", t->path, m->family->name);
        model_close(m);
        return code;
    }
    *ret_model = m;
    return ERR_OK;
}

// ---- mel

// [mels, frames] of at least one window; frames past the audio's end are those of silence.
static err_code write_mel(const struct whisper *w, const float *samples, size_t n, FILE *out, err *e)
{
    size_t mels = (size_t)w->dims.mels, frames = mel_frames(n), window = 2 * (size_t)w->dims.positions, bytes;
    frames = frames > window ? frames : window;
    float *rows = size_mul(frames, 2 * mels * sizeof *rows, &bytes) ? mem_try(bytes) : NULL;
    if (!rows)
        return err_set(e, ERR_MEMORY, "no memory for %zu frames", frames);
    float *turned = rows + frames * mels;
    mel_power(w->mel, samples, n, 0, frames, rows);
    mel_log(rows, frames * mels, mel_peak(w->mel, samples, n));
    for (size_t f = 0; f < frames; f++)
        for (size_t i = 0; i < mels; i++)
            turned[i * frames + f] = rows[f * mels + i];
    err_code code = write_floats(turned, frames * mels, out, e);
    free(rows);
    return code;
}

err_code tools_audio_mel(const struct tools_model *t, const float *samples, size_t n, FILE *out, err *e)
{
    struct model *m;
    err_code code = open_whisper(t, &m, e);
    if (code)
        return code;
    code = write_mel(m->impl, samples, n, out, e);
    model_close(m);
    return code;
}

// ---- whisper-logits

struct run {
    struct whisper_net net;
    void *memory, *scratch;
    const int32_t *ids;
    int rows;
    double encoder_s;  // of the encoder's parts
};

static void encode(struct lane *lane, void *arg)
{
    struct run *r = arg;
    struct whisper_cursor at = {0};
    while (!whisper_net_encode(&r->net, &at, lane, r->scratch))
        ;
}

static void decode(struct lane *lane, void *arg)
{
    struct run *r = arg;
    whisper_net_decode(&r->net, lane, r->scratch, r->ids, r->rows, true);
}

static err_code check_ids(const struct model *m, const struct tools_whisper *q, err *e)
{
    const struct whisper *w = m->impl;
    size_t want = 2 * (size_t)w->dims.positions * (size_t)w->dims.mels;
    if (q->nfeatures != want)
        return err_set_param(e, ERR_INVALID, "mel", "%zu features, expected %d x %d", q->nfeatures, w->dims.mels,
                             2 * w->dims.positions);
    if (q->nids > (size_t)m->context)
        return err_set_param(e, ERR_CONTEXT, "ids", "%zu ids, the decoder has %d positions", q->nids, m->context);
    for (size_t i = 0; i < q->nids; i++)
        if (q->ids[i] < 0 || q->ids[i] >= m->vocab)
            return err_set_param(e, ERR_INVALID, "ids", "token id %d, expected 0 to %d", q->ids[i], m->vocab - 1);
    return ERR_OK;
}

static void fill_features(const struct whisper *w, const float *features, float *rows)
{
    size_t frames = 2 * (size_t)w->dims.positions, mels = (size_t)w->dims.mels;
    for (size_t f = 0; f < frames; f++)
        for (size_t i = 0; i < mels; i++)
            rows[(f + 1) * mels + i] = features[i * frames + f];
}

static err_code run_all(struct run *r, struct team *team, const struct model *m, const struct tools_whisper *q,
                        FILE *encoder, FILE *out, err *e)
{
    const struct whisper *w = m->impl;
    whisper_net_init(&r->net, m, r->memory);
    for (int i = 0; i < (q->reps > 0 ? q->reps : 1); i++) {
        fill_features(w, q->features, r->net.mel);
        double start = clock_s();
        team_run(team, encode, r);
        double took = clock_s() - start;
        r->encoder_s = i == 0 || took < r->encoder_s ? took : r->encoder_s;
    }
    err_code code = ERR_OK;
    if (encoder)
        code = write_floats(r->net.x, (size_t)w->dims.positions * (size_t)w->dims.hidden, encoder, e);
    r->rows = 1;
    for (size_t i = 0; i < q->nids && !code; i++, r->net.length++) {
        r->ids = q->ids + i;
        team_run(team, decode, r);
        code = write_floats(r->net.logits, (size_t)m->vocab, out, e);
    }
    return code;
}

err_code tools_audio_logits(const struct tools_model *t, const struct tools_whisper *q, FILE *encoder, FILE *out,
                       double *ret_encoder_s, err *e)
{
    struct model *m = NULL;
    struct team *team = NULL;
    struct run r = {0};
    size_t scratch = 0, state = 0;
    err_code code = open_whisper(t, &m, e);
    if (!code)
        code = check_ids(m, q, e);
    if (!code)
        code = team_open(t->threads, true, &team, e);
    if (code)
        goto out;
    scratch = whisper_net_scratch(m->impl, team_size(team));
    state = whisper_net_bytes(m->impl);
    r.scratch = mem_try_pages(scratch);
    r.memory = mem_try_pages(state);
    if (!r.scratch || !r.memory)
        code = err_set(e, ERR_MEMORY, "no memory for a window of %zu bytes", state);
    if (!code)
        code = run_all(&r, team, m, q, encoder, out, e);
    if (!code)
        *ret_encoder_s = r.encoder_s;
out:
    mem_free_pages(r.scratch, scratch);
    mem_free_pages(r.memory, state);
    if (team)
        team_close(team);
    model_close(m);
    return code;
}

// ---- transcribe: the engine thread writes the lines, the caller waits for the end

struct listener {
    FILE *out;
    pthread_mutex_t lock;
    pthread_cond_t ended;
    bool over;
    err error;
};

static void print_segment(FILE *out, const struct segment *g)
{
    json_t *ids = json_array();
    for (int i = 0; i < g->nids; i++)
        json_array_append_new(ids, json_integer(g->ids[i]));
    json_t *line = json_pack("{si si sf sf ss# so sf sf sf sf}", "id", g->id, "seek", g->seek, "start", g->start, "end",
                             g->end, "text", g->text, (int)g->len, "tokens", ids, "temperature",
                             (double)g->temperature, "avg_logprob", (double)g->avg_logprob, "compression_ratio",
                             (double)g->compression_ratio, "no_speech_prob", (double)g->no_speech_prob);
    if (line)
        json_dumpf(line, out, JSON_COMPACT);
    json_decref(line);
    fputc('\n', out);
}

static void on_event(struct task *t, const struct event *ev)
{
    struct listener *l = t->ud;
    if (ev->kind == EVENT_LANGUAGE)
        fprintf(l->out, "{\"language\":\"%.*s\"}\n", (int)ev->len, ev->text);
    if (ev->kind == EVENT_SEGMENT)
        print_segment(l->out, ev->segment);
    if (ev->kind != EVENT_END)
        return;
    if (!ev->error.code)
        fprintf(l->out, "{\"prompt_tokens\":%d,\"completion_tokens\":%d}\n", ev->usage.prompt_tokens,
                ev->usage.completion_tokens);
    pthread_mutex_lock(&l->lock);
    l->error = ev->error;
    l->over = true;
    pthread_cond_signal(&l->ended);
    pthread_mutex_unlock(&l->lock);
}

static err_code run_task(struct engine *en, const struct transcribe *ask, struct listener *l, err *e)
{
    struct ticket ticket;
    struct task *t = task_new(TASK_TRANSCRIBE);
    t->model = "m";
    t->on_event = on_event;
    t->ud = l;
    t->transcribe = *ask;
    err_code code = engine_submit(en, t, &ticket, e);
    if (code) {
        task_free(t);
        return code;
    }
    pthread_mutex_lock(&l->lock);
    while (!l->over)
        pthread_cond_wait(&l->ended, &l->lock);
    pthread_mutex_unlock(&l->lock);
    *e = l->error;
    return l->error.code;
}

err_code tools_audio_transcribe(const struct tools_model *m, const struct transcribe *ask, FILE *out, err *e)
{
    struct engine_config c = {.threads = m->threads, .isa = m->isa, .pin = true, .max_running = 1, .max_waiting = 1};
    struct model_config mc = {.name = "m", .path = m->path, .activations = m->activations, .kv = m->kv,
                              .context = m->context};
    struct listener l = {.out = out, .lock = PTHREAD_MUTEX_INITIALIZER, .ended = PTHREAD_COND_INITIALIZER};
    struct engine *en;
    err_code code = engine_open(&c, &en, e);
    if (code)
        return code;
    code = engine_add_model(en, &mc, e);
    if (!code)
        code = engine_wait_model(en, "m", e);
    if (!code)
        code = run_task(en, ask, &l, e);
    engine_close(en);
    return code;
}
