// bpe.c - byte-pair encoding by ranked merges: over the byte alphabet (GPT-2, Llama 3, Qwen), or over characters with
// byte fallback (tokenizer.json of Llama 2, Gemma). CLIP's words end in a suffix: their last letter starts as "x</w>".
//
// Sennrich, Haddow, Birch 2016; ranks and corner cases as in Hugging Face's tokenizers. The model is immutable after
// open. No cache of words: merges are cheap enough, and threads share nothing.

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/map.h"
#include "base/mem.h"
#include "base/rng.h"
#include "base/utf8.h"
#include "engine/tokenizer/model.h"

struct pair {
    uint64_t key;  // left << 32 | right
    uint32_t rank;
    int32_t id;    // -1: empty slot
};

struct bpe {
    struct pair *pairs;
    size_t mask;
    uint64_t seed;
    int32_t bytes[256];  // ids of the byte alphabet, or of <0xHH>; -1: none
    int32_t ends[256];   // ids of letters that end a word: the suffix behind them, or the same as bytes
    bool letters;        // over the byte alphabet
    bool fallback;       // characters without a token become <0xHH>
    bool ignore_merges, fuse_unknown;
    int32_t unknown;
    size_t longest;  // bytes of the longest spelling
    bool by_words;   // characters: no merge goes over a word's end
};

// ---- the pair table

static struct pair *slot(const struct bpe *m, uint64_t key)
{
    size_t i = rng_mix(key ^ m->seed) & m->mask;
    while (m->pairs[i].id >= 0 && m->pairs[i].key != key)
        i = (i + 1) & m->mask;
    return &m->pairs[i];
}

static bool pair_of(const void *model, const struct merge_word *w, const struct merge_sym *l, const struct merge_sym *r,
                    uint32_t *ret_rank, int32_t *ret_id)
{
    (void)w;
    const struct pair *p = slot(model, (uint64_t)(uint32_t)l->id << 32 | (uint32_t)r->id);
    *ret_rank = p->rank;
    *ret_id = p->id;
    return p->id >= 0;
}

static bool alloc_pairs(struct bpe *m, size_t n)
{
    size_t cap = 16, bytes;
    while (cap < n * 2)
        cap *= 2;
    m->pairs = size_mul(cap, sizeof *m->pairs, &bytes) ? malloc(bytes) : NULL;
    if (!m->pairs)
        return false;
    for (size_t i = 0; i < cap; i++)
        m->pairs[i].id = -1;
    m->mask = cap - 1;
    m->seed = map_hash("pairs", 5);
    return true;
}

// One merge. A merge whose result is a control token or a template's marker is left out: from trusted text such a token
// is cut before merging, and from untrusted text it must not appear.
static err_code add_merge(const struct vocab *v, struct bpe *m, const char *l, size_t ln, const char *r, size_t rn,
                          size_t rank, struct buf *tmp, err *e)
{
    int32_t left, right, both;
    buf_clear(tmp);
    if (!buf_add(tmp, l, ln) || !buf_add(tmp, r, rn))
        return err_set(e, ERR_CORRUPT, "merge %zu is longer than %zu bytes", rank, tmp->max);
    if (!tokenizer_vocab_find(v, l, ln, &left) || !tokenizer_vocab_find(v, r, rn, &right) ||
        !tokenizer_vocab_find(v, tmp->data ? tmp->data : "", tmp->len, &both))
        return err_set(e, ERR_CORRUPT, "merge %zu ('%.*s' and '%.*s') names a token that is not in the vocabulary",
                       rank, (int)(ln < 40 ? ln : 40), l, (int)(rn < 40 ? rn : 40), r);
    if (v->tokens[both].flags & (TOKEN_CONTROL | TOKEN_GUARDED))
        return ERR_OK;
    m->by_words = m->by_words && !tokenizer_merge_crosses(tmp->data, tmp->len);
    struct pair *p = slot(m, (uint64_t)(uint32_t)left << 32 | (uint32_t)right);
    *p = (struct pair){(uint64_t)(uint32_t)left << 32 | (uint32_t)right, (uint32_t)rank, both};
    return ERR_OK;
}

// "a b": the space between is the first one that is not the first character.
static err_code add_merge_line(const struct vocab *v, struct bpe *m, const char *s, size_t n, size_t rank,
                               struct buf *tmp, err *e)
{
    const char *gap = n > 2 ? memchr(s + 1, ' ', n - 1) : NULL;
    if (!gap)
        return err_set(e, ERR_CORRUPT, "merge %zu '%.*s' has no space between two tokens", rank, (int)(n < 60 ? n : 60),
                       s);
    return add_merge(v, m, s, (size_t)(gap - s), gap + 1, n - (size_t)(gap - s) - 1, rank, tmp, e);
}

// ---- ids of single bytes

static void find_bytes(const struct vocab *v, struct bpe *m, const char *suffix)
{
    for (int b = 0; b < 256; b++) {
        char s[8 + DECODE_SUFFIX];
        int n = m->letters ? tokenizer_vocab_letter((uint8_t)b, s) : 6;
        if (!m->letters)
            snprintf(s, sizeof s, "<0x%02X>", b);
        if (!tokenizer_vocab_find(v, s, (size_t)n, &m->bytes[b]))
            m->bytes[b] = -1;
        memcpy(s + n, suffix, strlen(suffix));
        if (!tokenizer_vocab_find(v, s, (size_t)n + strlen(suffix), &m->ends[b]))
            m->ends[b] = -1;
    }
}

static void measure(const struct vocab *v, struct bpe *m)
{
    int32_t mark;
    m->by_words = !m->letters && !m->ignore_merges && tokenizer_vocab_find(v, "\xE2\x96\x81", 3, &mark);
    for (int i = 0; i < v->size; i++)
        if (v->tokens[i].len > m->longest)
            m->longest = v->tokens[i].len;
}

// ---- tokenizer.json

static err_code read_merge(const struct vocab *v, struct bpe *m, const json_t *j, size_t rank, struct buf *tmp, err *e)
{
    if (json_is_string(j))
        return add_merge_line(v, m, json_string_value(j), json_string_length(j), rank, tmp, e);
    const json_t *l = json_array_get(j, 0), *r = json_array_get(j, 1);
    if (json_array_size(j) != 2 || !json_is_string(l) || !json_is_string(r))
        return err_set(e, ERR_CORRUPT, "tokenizer.json: merge %zu is neither a string nor a pair of strings", rank);
    return add_merge(v, m, json_string_value(l), json_string_length(l), json_string_value(r), json_string_length(r),
                     rank, tmp, e);
}

static err_code read_merges(const struct vocab *v, struct bpe *m, const json_t *merges, err *e)
{
    struct buf tmp;
    size_t i;
    json_t *item;
    if (!json_is_array(merges))
        return err_set(e, ERR_CORRUPT, "tokenizer.json: model.merges is not an array");
    if (!alloc_pairs(m, json_array_size(merges)))
        return err_set(e, ERR_MEMORY, "no memory for %zu merges", json_array_size(merges));
    buf_init(&tmp, 1 << 16);
    err_code rc = ERR_OK;
    json_array_foreach (merges, i, item)
        if ((rc = read_merge(v, m, item, i, &tmp, e)))
            break;
    buf_done(&tmp);
    return rc;
}

// Options that change the result and that no model here uses.
static err_code refuse(const json_t *model, bool letters, err *e)
{
    const json_t *prefix = json_object_get(model, "continuing_subword_prefix");
    const json_t *suffix = json_object_get(model, "end_of_word_suffix");
    if (json_is_string(prefix) && json_string_length(prefix) > 0)
        return err_set_param(e, ERR_UNSUPPORTED, "continuing_subword_prefix",
                             "tokenizer.json: continuing_subword_prefix '%.40s' is not supported", json_string_value(prefix));
    if (json_string_length(suffix) >= DECODE_SUFFIX || (json_string_length(suffix) > 0 && !letters))
        return err_set_param(e, ERR_UNSUPPORTED, "end_of_word_suffix",
                             "tokenizer.json: end_of_word_suffix '%.40s' is supported with ByteLevel and up to %d bytes",
                             json_string_value(suffix), DECODE_SUFFIX - 1);
    const json_t *dropout = json_object_get(model, "dropout");
    if (json_is_number(dropout) && json_number_value(dropout) != 0)
        return err_set_param(e, ERR_UNSUPPORTED, "dropout", "tokenizer.json: dropout %g is not supported",
                             json_number_value(dropout));
    return ERR_OK;
}

static err_code open_json(struct tokenizer *t, const json_t *model, err *e)
{
    err_code rc = refuse(model, tokenizer_pretok_is_bytes(t->pretok), e);
    if (rc)
        return rc;
    struct bpe *m = t->model = mem_new(sizeof *m);
    const char *suffix = json_string_value(json_object_get(model, "end_of_word_suffix"));
    m->letters = tokenizer_pretok_is_bytes(t->pretok);
    snprintf(t->decode.suffix, sizeof t->decode.suffix, "%s", suffix ? suffix : "");
    m->fallback = json_is_true(json_object_get(model, "byte_fallback"));
    m->ignore_merges = json_is_true(json_object_get(model, "ignore_merges"));
    m->fuse_unknown = json_is_true(json_object_get(model, "fuse_unk"));
    m->unknown = TOKEN_NONE;
    if ((rc = tokenizer_vocab_read(&t->vocab, json_object_get(model, "vocab"), e)))
        return rc;
    const json_t *unk = json_object_get(model, "unk_token");
    if (json_is_string(unk) &&
        !tokenizer_vocab_find(&t->vocab, json_string_value(unk), json_string_length(unk), &m->unknown))
        return err_set(e, ERR_CORRUPT, "tokenizer.json: unk_token '%.60s' is not in the vocabulary",
                       json_string_value(unk));
    find_bytes(&t->vocab, m, t->decode.suffix);
    measure(&t->vocab, m);
    return read_merges(&t->vocab, m, json_object_get(model, "merges"), e);
}

// ---- GGUF

static void set_decode(struct decode_rules *d, bool raw)
{
    d->bytes = !raw;
    d->byte_runs = raw;
    if (raw) {
        d->nreplaces = 1;
        strcpy(d->replaces[0].from, "\xE2\x96\x81");
        strcpy(d->replaces[0].to, " ");
    }
}

static err_code gguf_merges(struct tokenizer *t, struct bpe *m, const struct tokenizer_gguf *g, err *e)
{
    struct buf tmp;
    if (g->nmerges == 0)
        return err_set(e, ERR_CORRUPT, "tokenizer.ggml.merges is missing");
    if (!alloc_pairs(m, g->nmerges))
        return err_set(e, ERR_MEMORY, "no memory for %zu merges", g->nmerges);
    buf_init(&tmp, 1 << 16);
    err_code rc = ERR_OK;
    for (size_t i = 0; rc == ERR_OK && i < g->nmerges; i++)
        rc = add_merge_line(&t->vocab, m, g->merges[i].p, g->merges[i].n, i, &tmp, e);
    buf_done(&tmp);
    return rc;
}

// BOS unless the file says no, where the pre-tokeniser's models have it by default.
static void gguf_bos(struct tokenizer *t, const struct tokenizer_gguf *g, const struct tokenizer_pretok_traits *traits)
{
    bool add = g->add_bos >= 0 ? g->add_bos : traits->adds_bos;
    if (traits->no_bos)
        t->bos = TOKEN_NONE;
    if (add && t->bos != TOKEN_NONE)
        t->before[t->nbefore++] = t->bos;
    if (g->add_eos == 1 && t->eos != TOKEN_NONE)
        t->after[t->nafter++] = t->eos;
}

static err_code open_gguf(struct tokenizer *t, const struct tokenizer_gguf *g, err *e)
{
    static const char gemma4[] = "gemma4";
    struct gguf_text pre = g->pre;
    struct tokenizer_pretok_traits traits = {0};
    if (pre.n == 0 && g->model.n == strlen(gemma4) && memcmp(g->model.p, gemma4, strlen(gemma4)) == 0)
        pre = (struct gguf_text){gemma4, strlen(gemma4)};
    if (pre.n == 0)
        return err_set_param(e, ERR_UNSUPPORTED, "tokenizer.ggml.pre",
                             "tokenizer.ggml.pre is missing: the file does not say how its text is cut into words");
    err_code rc = tokenizer_pretok_named(pre.p, pre.n, &t->pretok, &traits, e);
    if (rc == ERR_OK && traits.raw)
        rc = tokenizer_normal_spaces(g->add_prefix == 1, &t->normal, e);
    if (rc == ERR_OK && traits.nfc)
        rc = tokenizer_normal_nfc(&t->normal, e);
    if (rc)
        return rc;
    struct bpe *m = t->model = mem_new(sizeof *m);
    m->letters = !traits.raw;
    m->fallback = traits.raw;
    m->ignore_merges = traits.ignore_merges;
    m->unknown = g->unknown;
    set_decode(&t->decode, traits.raw);
    t->decode.strip = traits.raw && g->add_prefix == 1;
    gguf_bos(t, g, &traits);
    find_bytes(&t->vocab, m, "");
    measure(&t->vocab, m);
    return gguf_merges(t, m, g, e);
}

// ---- encoding

static void add_letters(const struct bpe *m, struct merge_word *w, const char *p, size_t len)
{
    for (size_t i = 0; i < len; i++) {
        int32_t id = i + 1 < len ? m->bytes[(uint8_t)p[i]] : m->ends[(uint8_t)p[i]];
        if (id < 0)
            id = m->unknown;
        if (id >= 0)  // without an unknown token the byte is dropped, as the reference does
            tokenizer_merge_add(w, id, 1);
    }
}

static bool add_fallback(const struct bpe *m, struct merge_word *w, const char *p, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (m->bytes[(uint8_t)p[i]] < 0)
            return false;
    for (size_t i = 0; i < n; i++)
        tokenizer_merge_add(w, m->bytes[(uint8_t)p[i]], 1);
    return true;
}

static void add_characters(const struct vocab *v, const struct bpe *m, struct merge_word *w, const char *p, size_t len)
{
    uint32_t unknown = 0, cp;  // bytes of unknown characters that wait to be fused
    for (size_t i = 0; i < len;) {
        int k = utf8_decode(p + i, len - i, &cp);
        size_t n = (size_t)(k > 0 ? k : 1);
        int32_t id;
        bool known = tokenizer_vocab_find(v, p + i, n, &id);
        if (unknown && (known || !m->fuse_unknown)) {
            tokenizer_merge_add(w, m->unknown, unknown);
            unknown = 0;
        }
        if (known)
            tokenizer_merge_add(w, id, (uint32_t)n);
        else if (!(m->fallback && add_fallback(m, w, p + i, n)) && m->unknown >= 0)
            unknown += (uint32_t)n;
        i += n;
    }
    if (unknown)
        tokenizer_merge_add(w, m->unknown, unknown);
}

// The whole piece as one token, without merging.
static bool whole(const struct vocab *v, const struct bpe *m, const char *p, size_t len, int32_t *ret_id)
{
    char small[512];
    if (len > m->longest || len * 2 > sizeof small)
        return false;
    size_t n = 0;
    for (size_t i = 0; m->letters && i < len; i++)
        n += (size_t)tokenizer_vocab_letter((uint8_t)p[i], small + n);
    int32_t id;
    if (!tokenizer_vocab_find(v, m->letters ? small : p, m->letters ? n : len, &id) ||
        (v->tokens[id].flags & (TOKEN_CONTROL | TOKEN_GUARDED)))
        return false;
    *ret_id = id;
    return true;
}

static err_code encode_word(const struct vocab *v, const struct bpe *m, struct merge_word *w, const char *piece,
                            size_t len, struct ids *ids, err *e)
{
    tokenizer_merge_start(w, piece);
    if (m->letters)
        add_letters(m, w, piece, len);
    else
        add_characters(v, m, w, piece, len);
    err_code rc = tokenizer_merge_run(w, pair_of, m, e);
    for (int32_t i = 0; rc == ERR_OK && w->n && i >= 0; i = w->syms[i].next)
        ids_add(ids, w->syms[i].id);
    return rc;
}

static err_code encode(const struct tokenizer *t, struct tokenizer_scratch *s, const char *piece, size_t len,
                       struct ids *ids, err *e)
{
    const struct bpe *m = t->model;
    int32_t id;
    if (m->ignore_merges && whole(&t->vocab, m, piece, len, &id)) {
        ids_add(ids, id);
        return ERR_OK;
    }
    err_code rc = ERR_OK;
    for (size_t n; rc == ERR_OK && len; piece += n, len -= n) {
        n = m->by_words ? tokenizer_merge_word_end(piece, len) : len;
        rc = encode_word(&t->vocab, m, &s->word, piece, n, ids, e);
    }
    return rc;
}

static void close_model(void *model)
{
    struct bpe *m = model;
    free(m->pairs);
    free(m);
}

const struct tokenizer_kind tokenizer_bpe_kind = {
    .name = "bpe",
    .json_type = "BPE",
    .gguf_models = "gpt2 gemma4",
    .open_json = open_json,
    .open_gguf = open_gguf,
    .encode = encode,
    .close = close_model,
};
