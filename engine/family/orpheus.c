// orpheus.c - Orpheus: a Llama that speaks. Its tokens are codes of a SNAC vocoder, which is a part of the model.
//
//   text -> spans -> [ <3> "voice: text" <|eot_id|> <4> <5> <1> -> Llama -> codes, 7 a frame -> <2> ] a span
//   frame c0 .. c6 -> levels c0 | c1 c4 | c2 c3 c5 c6 -> SNAC -> hop * 4 samples
//
// <N> is the token spelled <custom_token_N>; ids follow each other from <0> (128256 in the released models, so that a
// prompt is 128259, BOS and the text, 128009 128260 128261 128257, and speech ends with 128258). Code c at position p of
// a frame is <10 + p * codebook_size + c>.
//
// A checkpoint of the Llama architecture is Orpheus when it has a vocoder (the setting, or a folder snac/ of its own)
// and its tokenizer has <custom_token_0>. Tensors and hyper-parameters are Llama's, in safetensors and in GGUF.
//
// Sampling sees the codebook_size rows of the frame's position and, after the first whole frame (a text is never
// silence), the end token, at any position, as in training; an unfinished frame makes no sound. A text is cut into spans
// of at most SPAN_BYTES at ends of sentences (12 s of speech, inside max_tokens); their sounds follow each other. Every
// span has a vocoder stream of its own, flushed at its end: frames * hop * 4 samples each, the same bits however long the
// text around it is, except for the noise, whose rows count on through the whole text.
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/mem.h"
#include "engine/audio/snac.h"
#include "engine/blocks/decoder.h"
#include "engine/blocks/packed.h"
#include "engine/sched/session.h"
#include "engine/text/sentences.h"
#include "engine/tokenizer/tokenizer.h"

enum {
    FRAME = 7,           // codes
    FRAME_ROWS = 4,      // latent rows
    LEVELS = 3,
    STEP_FRAMES = SNAC_STEP_ROWS / FRAME_ROWS,
    FIRST_FRAMES = 3,    // exact sound starts after so many: 2.32 frames of context
    NEXT_FRAMES = 2,     // decoded together: the weights are read once for both
    MAX_TOKENS = 1200,   // of a span
    SPAN_BYTES = 180,
    MAX_RUNNING = 16,
};

extern const struct family family_llama;  // the language model

static const char *const archs[] = {"llama", "LlamaForCausalLM", NULL};

static const char *const voices[] = {"tara", "leah", "jess", "leo", "dan", "mia", "zac", "zoe"};

enum { VOICES = sizeof voices / sizeof *voices };

static const char *const specials[] = {"<custom_token_0>", "<|eot_id|>"};

struct orpheus {
    struct snac *snac;
    int32_t base, eot;  // of the two specials
    int codes;          // codebook_size
};

// ---- opening

// The id of a special token, from the files: the tokenizer is opened after the family.
static int32_t find_token(const struct weights *w, const char *name)
{
    const char *s;
    size_t len, want = strlen(name);
    int64_t n = weights_container(w) == WEIGHTS_GGUF ? meta_array_length(w, "tokenizer.ggml.tokens") : 0;
    for (int64_t i = 0; i < n; i++)
        if (meta_array_string(w, "tokenizer.ggml.tokens", i, &s, &len) && len == want && !memcmp(s, name, len))
            return (int32_t)i;
    json_t *j = weights_json(w, "tokenizer.json"), *added = json_object_get(j, "added_tokens"), *t;
    size_t i;
    json_array_foreach(added, i, t) {
        const char *content = json_string_value(json_object_get(t, "content"));
        if (content && strcmp(content, name) == 0)
            return (int32_t)json_integer_value(json_object_get(t, "id"));
    }
    json_t *id = json_object_get(json_object_get(json_object_get(j, "model"), "vocab"), name);
    return id ? (int32_t)json_integer_value(id) : TOKEN_NONE;
}

static char *vocoder_path(const struct weights *w, const struct model_options *o)
{
    struct arena a = {0};
    char *path = mem_strdup(o->vocoder ? o->vocoder : arena_printf(&a, "%s/snac", weights_folder(w)));
    arena_done(&a);
    return path;
}

static bool claims(const struct weights *w, const struct model_options *o)
{
    char *path = vocoder_path(w, o);
    bool there = o->vocoder || file_is_dir(path);
    free(path);
    return there && find_token(w, specials[0]) != TOKEN_NONE;
}

static err_code check_vocoder(const struct model *m, const struct orpheus *o, const char *path, err *e)
{
    const struct snac_shape *s = snac_shape(o->snac);
    if (s->levels != LEVELS || s->strides[0] != 4 || s->strides[1] != 2 || s->strides[2] != 1)
        return err_set(e, ERR_UNSUPPORTED, "%s: a vocoder of %d levels, expected 3 of strides 4, 2 and 1", path, s->levels);
    int64_t last = (int64_t)o->base + 10 + (int64_t)FRAME * s->codebook_size;
    if (o->base < 0 || last > m->vocab)
        return err_set(e, ERR_CORRUPT, "%s: %d tokens, expected %lld: %s is %d and the vocoder has %d codes at 7 positions",
                       m->path, m->vocab, (long long)last, specials[0], o->base, s->codebook_size);
    if (o->eot < 0 || o->eot >= m->vocab)
        return err_set(e, ERR_CORRUPT, "%s: the tokenizer has no %s", m->path, specials[1]);
    return ERR_OK;
}

static err_code open_vocoder(struct model *m, const char *path, err *e)
{
    struct model_part *part;
    if (model_add_part(m, "snac", path, &part, e)) {
        if (e->code == ERR_UNSUPPORTED)
            return err_wrap(e, "vocoder (convert pytorch_model.bin with safetensors.torch.save_file)");
        return err_wrap(e, "vocoder");
    }
    struct orpheus *o = mem_new(sizeof *o);
    part->impl = o;
    part->packed = packed_new();
    o->base = find_token(m->weights, specials[0]);
    o->eot = find_token(m->weights, specials[1]);
    err_code code = snac_open(part->weights, m->ops, part->packed, &o->snac, e);
    if (code)
        return err_wrap(e, "vocoder");
    o->codes = snac_shape(o->snac)->codebook_size;
    m->resident_bytes += snac_shape(o->snac)->bytes;
    return check_vocoder(m, o, path, e);
}

static err_code open(struct model *m, err *e)
{
    err_code code = family_llama.open(m, e);
    if (code)
        return code;
    char *path = vocoder_path(m->weights, &m->options);
    code = open_vocoder(m, path, e);
    free(path);
    return code;
}

static struct orpheus *orpheus_of(const struct model *m)
{
    for (int i = 0; i < m->nparts; i++)
        if (!strcmp(m->parts[i].name, "snac"))
            return m->parts[i].impl;
    return NULL;
}

static void close(struct model *m)
{
    struct orpheus *o = orpheus_of(m);
    if (o)
        snac_close(o->snac);
    free(o);
    decoder_close(m);
}

static void describe(const struct model *m, struct model_info *ret_info)
{
    ret_info->sample_rate = snac_shape(orpheus_of(m)->snac)->sample_rate;
    ret_info->nvoices = VOICES;
    for (int i = 0; i < VOICES; i++)
        snprintf(ret_info->voices[i], sizeof ret_info->voices[i], "%s", voices[i]);
}

// ---- a speech

struct span {
    struct ids prompt;
    int32_t *codes[LEVELS];  // of whole frames
    int32_t frame[FRAME];
    int ncodes, cap;         // accepted codes; frames there is room for
    bool ended;
};

struct speech {
    struct work work;
    const struct orpheus *orpheus;
    struct span *spans;
    int nspans;
    int asked, said;         // spans given to the language model; finished by the vocoder
    // Vocoder: the stream of span `said`, and the step that is planned or was run.
    struct snac_stream stream;
    float *state, *out;
    int rows, nout;
    bool last, stepped, flushed;
    long samples;            // sent
};

static err_code check(const struct model *m, const struct task *t, err *e)
{
    const struct speak *k = &t->speak;
    (void)m;
    bool known = !k->voice, blank = true;
    for (int i = 0; i < VOICES && !known; i++)
        known = strcmp(voices[i], k->voice) == 0;
    if (!known)
        return err_set_param(e, ERR_INVALID, "voice",
                             "voice '%.40s' is unknown; there are tara, leah, jess, leo, dan, mia, zac and zoe", k->voice);
    for (size_t i = 0; i < k->len && blank; i++)
        blank = strchr(" \t\r\n\v\f", k->text[i]) != NULL;
    if (blank)
        return err_set_param(e, ERR_INVALID, "input", "the input has nothing to say");
    if (k->max_tokens > 0 && k->max_tokens < FRAME)
        return err_set_param(e, ERR_INVALID, "max_tokens", "max_tokens is %d, expected %d or more: the codes of one frame",
                             k->max_tokens, FRAME);
    return ERR_OK;
}

// Text from outside is untrusted: a marker written in it is spoken as characters.
static err_code make_prompt(const struct model *m, const struct orpheus *o, const char *voice, const char *text, size_t len,
                            struct ids *ids, err *e)
{
    struct buf b;
    buf_init(&b, SIZE_MAX);
    buf_printf(&b, "%s: ", voice);
    buf_add(&b, text, len);
    struct text_span said = {b.data, b.len, false};
    ids_add(ids, o->base + 3);
    err_code code = tokenizer_encode(m->tokenizer, &said, 1, true, ids, e);
    buf_done(&b);
    if (code)
        return code;
    ids_add(ids, o->eot);
    ids_add(ids, o->base + 4);
    ids_add(ids, o->base + 5);
    ids_add(ids, o->base + 1);
    for (size_t i = 0; i < ids->len; i++)
        if (ids->data[i] < 0 || ids->data[i] >= m->vocab)
            return err_set(e, ERR_CORRUPT, "%s: the tokenizer makes token %d of %d", m->path, ids->data[i], m->vocab);
    if (ids->len + FRAME > (size_t)m->context)
        return err_set_param(e, ERR_CONTEXT, "input", "a sentence of %zu tokens leaves no room for speech in a context of %d",
                             ids->len, m->context);
    return ERR_OK;
}

static bool is_blank(char c)
{
    return c == ' ' || (c >= 9 && c <= 13);
}

static err_code make_spans(const struct model *m, struct speech *p, const struct speak *k, err *e)
{
    const char *voice = k->voice ? k->voice : voices[0];
    int cap = 0;
    for (size_t at = 0, n; at < k->len; at += n) {
        n = sentences_next(k->text + at, k->len - at, SPAN_BYTES);
        size_t from = at, to = at + n;
        while (from < to && is_blank(k->text[from]))
            from++;
        while (from < to && is_blank(k->text[to - 1]))
            to--;
        if (from == to)
            continue;
        if (p->nspans == cap) {
            cap = cap ? 2 * cap : 8;
            p->spans = mem_resize(p->spans, (size_t)cap * sizeof *p->spans);
        }
        struct span *s = &p->spans[p->nspans++];
        *s = (struct span){0};
        err_code code = make_prompt(m, p->orpheus, voice, k->text + from, to - from, &s->prompt, e);
        if (code)
            return code;
    }
    return ERR_OK;
}

// What all prompts begin with; every round has at least one token of its own.
static int common(const struct speech *p)
{
    const struct ids *first = &p->spans[0].prompt;
    size_t n = first->len - 1;
    for (int i = 1; i < p->nspans; i++) {
        const struct ids *v = &p->spans[i].prompt;
        n = v->len - 1 < n ? v->len - 1 : n;
        for (size_t k = 0; k < n; k++)
            if (v->data[k] != first->data[k])
                n = k;
    }
    return (int)n;
}

static void free_speech(struct work *w)
{
    struct speech *p = (struct speech *)w;
    for (int i = 0; i < p->nspans; i++) {
        free(p->spans[i].prompt.data);
        for (int l = 0; l < LEVELS; l++)
            free(p->spans[i].codes[l]);
    }
    free(p->spans);
    free(p->state);
    free(p->out);
    free(p);
}

static err_code ready(const struct model *m, err *e)
{
    if (m->tokenizer)
        return ERR_OK;
    return err_set(e, m->tokenizer_error.code, "%s cannot speak: %s", m->path, m->tokenizer_error.text);
}

static err_code prepare(const struct model *m, const struct task *t, struct work **ret_work, int *ret_prompt_tokens, err *e)
{
    struct speech *p = mem_new(sizeof *p);
    p->orpheus = orpheus_of(m);
    p->work.model = m;
    p->work.task = t;
    err_code code = check(m, t, e);
    if (!code)
        code = make_spans(m, p, &t->speak, e);
    if (!code && p->nspans == 0)
        code = err_set_param(e, ERR_INVALID, "input", "the input has nothing to say");
    if (code) {
        free_speech(&p->work);
        return code;
    }
    p->work.stem = p->spans[0].prompt.data;
    p->work.nstem = common(p);
    p->work.sampling = &t->speak.sampling;
    int tokens = 0;
    for (int i = 0; i < p->nspans; i++)
        tokens += (int)p->spans[i].prompt.len;
    *ret_work = &p->work;
    *ret_prompt_tokens = tokens;
    return ERR_OK;
}

// ---- rounds: a span each

static bool next(struct work *w, const int32_t **ret_ids, int *ret_nids, int *ret_max_tokens)
{
    struct speech *p = (struct speech *)w;
    if (p->asked == p->nspans)
        return false;
    const struct ids *ids = &p->spans[p->asked++].prompt;
    int want = w->task->speak.max_tokens > 0 ? w->task->speak.max_tokens : MAX_TOKENS, room = w->model->context - (int)ids->len;
    *ret_ids = ids->data + w->nstem;
    *ret_nids = (int)ids->len - w->nstem;
    *ret_max_tokens = want < room ? want : room;
    return true;
}

static void admit(struct work *w, uint64_t *mask)
{
    struct speech *p = (struct speech *)w;
    const struct orpheus *o = p->orpheus;
    int codes = p->spans[p->asked - 1].ncodes, end = o->base + 2, low = o->base + 10 + o->codes * (codes % FRAME);
    for (int i = low; i < low + o->codes; i++)
        mask[i / 64] |= 1ull << i % 64;
    if (codes >= FRAME)
        mask[end / 64] |= 1ull << end % 64;
}

// A frame is complete: its codes go to the three levels.
static void add_frame(struct span *s)
{
    int f = s->ncodes / FRAME - 1;
    const int32_t *c = s->frame;
    if (f == s->cap) {
        s->cap = s->cap ? 2 * s->cap : 32;
        for (int l = 0; l < LEVELS; l++)
            s->codes[l] = mem_resize(s->codes[l], ((size_t)s->cap << l) * sizeof *s->codes[l]);
    }
    s->codes[0][f] = c[0];
    memcpy(s->codes[1] + 2 * f, (int32_t[]){c[1], c[4]}, 2 * sizeof *c);
    memcpy(s->codes[2] + 4 * f, (int32_t[]){c[2], c[3], c[5], c[6]}, 4 * sizeof *c);
}

static bool token(struct work *w, int32_t id)
{
    struct speech *p = (struct speech *)w;
    struct span *s = &p->spans[p->asked - 1];
    int32_t code = id - (p->orpheus->base + 10 + p->orpheus->codes * (s->ncodes % FRAME));
    if (code < 0 || code >= p->orpheus->codes)
        return true;
    s->frame[s->ncodes++ % FRAME] = code;
    if (s->ncodes % FRAME == 0)
        add_frame(s);
    return false;
}

static void end(struct work *w)
{
    struct speech *p = (struct speech *)w;
    p->spans[p->asked - 1].ended = true;
}

static const struct work_rounds rounds = {.next = next, .admit = admit, .token = token, .end = end};

// ---- steps: the vocoder

static size_t out_samples(const struct snac *s)
{
    struct snac_stream st = {.snac = s, .fed = 1 << 16};  // long after the start: what the last step gives
    return (size_t)snac_samples(&st, SNAC_STEP_ROWS, true);
}

static size_t work_bytes(const struct model *m)
{
    const struct snac *s = orpheus_of(m)->snac;
    return (snac_state_floats(s) + out_samples(s)) * sizeof(float) + 2 * MAX_TOKENS * sizeof(int32_t);
}

static size_t scratch_bytes(const struct model *m, int lanes)
{
    (void)lanes;
    return snac_scratch_bytes(orpheus_of(m)->snac);
}

static void next_stream(struct speech *p)
{
    int rows = p->stream.fed;
    snac_start(&p->stream);
    p->stream.first += (uint64_t)rows;
    p->flushed = false;
}

static err_code begin(struct work *w, err *e)
{
    struct speech *p = (struct speech *)w;
    const struct snac *s = p->orpheus->snac;
    p->state = mem_try(snac_state_floats(s) * sizeof *p->state);
    p->out = mem_try(out_samples(s) * sizeof *p->out);
    if (!p->state || !p->out)
        return err_set(e, ERR_MEMORY, "no memory for the vocoder");
    p->stream = (struct snac_stream){.snac = s, .state = p->state, .seed = w->task->speak.sampling.seed,
        .noise = w->task->speak.no_noise ? SNAC_NOISE_OFF : SNAC_NOISE_DRAWN};
    next_stream(p);
    return ERR_OK;
}

static void step(struct work *w, struct lane *lane)
{
    struct speech *p = (struct speech *)w;
    const struct span *s = &p->spans[p->said];
    snac_step(&p->stream, lane, (const int32_t *const *)s->codes, p->rows, p->last, w->scratch, p->out);
    if (lane->id == 0)
        p->stepped = true;
}

// The next step, if the codes for one are there.
static enum work_next plan(struct speech *p)
{
    for (; p->said < p->nspans; p->said++, next_stream(p)) {
        const struct span *s = &p->spans[p->said];
        int fed = p->stream.fed / FRAME_ROWS, ready = s->ncodes / FRAME - fed;
        if (s->ended && (p->flushed || s->ncodes < FRAME))
            continue;
        if (!s->ended && ready < (fed ? NEXT_FRAMES : FIRST_FRAMES))
            return WORK_WAIT;
        int frames = ready < STEP_FRAMES ? ready : STEP_FRAMES;
        p->rows = frames * FRAME_ROWS;
        p->last = s->ended && frames == ready;
        p->nout = snac_samples(&p->stream, p->rows, p->last);
        return WORK_MORE;
    }
    return WORK_DONE;
}

static bool all_finite(const float *v, int n)
{
    int i = 0;
    while (i < n && isfinite(v[i]))
        i++;
    return i == n;
}

static enum work_next after(struct work *w, struct session *s, err *e)
{
    struct speech *p = (struct speech *)w;
    if (p->stepped && !all_finite(p->out, p->nout)) {
        err_set(e, ERR_CORRUPT, "the vocoder's samples are not numbers: its weights are damaged");
        return WORK_FAIL;
    }
    if (p->stepped && p->nout > 0)
        session_emit(s, &(struct event){.kind = EVENT_AUDIO, .values = p->out, .nvalues = (size_t)p->nout});
    if (p->stepped) {
        p->samples += p->nout;
        p->flushed = p->last;
        p->stepped = false;
    }
    enum work_next n = plan(p);
    if (n == WORK_DONE && p->samples == 0) {
        err_set(e, ERR_INTERNAL, "no audio was produced: the model gave no whole frame of %d codes", FRAME);
        return WORK_FAIL;
    }
    return n;
}

static const struct work_ops speak = {
    .max_running = MAX_RUNNING,
    .rounds = &rounds,
    .check = check,
    .prepare = prepare,
    .work_bytes = work_bytes,
    .scratch_bytes = scratch_bytes,
    .begin = begin,
    .step = step,
    .after = after,
    .free = free_speech,
};

static const struct gen_ops gen = {decoder_kv_layout, decoder_scratch_bytes, decoder_forward, decoder_head_row};

const struct family family_orpheus = {
    .name = "orpheus", .archs = archs, .claims = claims, .open = open, .close = close, .gen = &gen, .speak = &speak,
    .describe = describe, .ready = ready};
