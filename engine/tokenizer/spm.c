// spm.c - SentencePiece's BPE as GGUF files carry it: no merges, but a score for each token. The neighbouring pair
// whose join is the token with the highest score merges first; characters without a token become bytes.
//
// Kudo, Richardson 2018. Immutable after open.

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/map.h"
#include "base/mem.h"
#include "base/utf8.h"
#include "engine/tokenizer/model.h"

struct spm {
    struct map *pieces;  // normal tokens only: control and user-defined ones never come out of merging
    uint32_t *rank;      // by id; equal scores have equal rank
    int32_t bytes[256];
    int32_t unknown;
    size_t longest;
    bool crosses;  // a token goes over a word's end
};

struct scored {
    float score;
    int32_t id;
};

static int by_score(const void *a, const void *b)
{
    const struct scored *x = a, *y = b;
    return x->score != y->score ? (x->score < y->score ? 1 : -1) : x->id - y->id;
}

static err_code set_ranks(struct spm *m, const struct tokenizer_gguf *g, err *e)
{
    size_t bytes;
    struct scored *s = size_mul(g->ntokens, sizeof *s, &bytes) ? mem_try(bytes + 1) : NULL;
    m->rank = size_mul(g->ntokens, sizeof *m->rank, &bytes) ? mem_try(bytes + 1) : NULL;
    if (!s || !m->rank) {
        free(s);
        return err_set(e, ERR_MEMORY, "no memory for %zu scores", g->ntokens);
    }
    for (size_t i = 0; i < g->ntokens; i++)
        s[i] = (struct scored){isnan(g->scores[i]) ? -INFINITY : g->scores[i], (int32_t)i};
    qsort(s, g->ntokens, sizeof *s, by_score);
    uint32_t rank = 0;
    for (size_t i = 0; i < g->ntokens; i++) {
        if (i && s[i].score != s[i - 1].score)
            rank++;
        m->rank[s[i].id] = rank;
    }
    free(s);
    return ERR_OK;
}

static void index_tokens(struct spm *m, const struct tokenizer_gguf *g)
{
    m->pieces = map_new(g->ntokens);
    for (int b = 0; b < 256; b++)
        m->bytes[b] = -1;
    for (size_t i = 0; i < g->ntokens; i++) {
        const struct gguf_text *t = &g->tokens[i];
        int type = g->types ? g->types[i] : GGUF_NORMAL, byte = tokenizer_vocab_byte(t->p, t->n);
        uint32_t known;
        if (byte >= 0 && m->bytes[byte] < 0)
            m->bytes[byte] = (int32_t)i;
        if (type != GGUF_NORMAL || byte >= 0 || t->n == 0 || map_get(m->pieces, t->p, t->n, &known))
            continue;
        map_put(m->pieces, t->p, t->n, (uint32_t)i);
        m->crosses = m->crosses || tokenizer_merge_crosses(t->p, t->n);
        if (t->n > m->longest)
            m->longest = t->n;
    }
}

static void set_text_rules(struct tokenizer *t, const struct tokenizer_gguf *g)
{
    struct decode_rules *d = &t->decode;
    d->byte_runs = true;
    d->strip = g->add_prefix != 0;
    d->nreplaces = 1;
    strcpy(d->replaces[0].from, "\xE2\x96\x81");
    strcpy(d->replaces[0].to, " ");
    if (g->add_bos != 0 && t->bos != TOKEN_NONE)
        t->before[t->nbefore++] = t->bos;
    if (g->add_eos == 1 && t->eos != TOKEN_NONE)
        t->after[t->nafter++] = t->eos;
}

static err_code open_gguf(struct tokenizer *t, const struct tokenizer_gguf *g, err *e)
{
    if (!g->scores)
        return err_set(e, ERR_CORRUPT, "tokenizer.ggml.scores is missing");
    struct spm *m = t->model = mem_new(sizeof *m);
    m->unknown = g->unknown;
    index_tokens(m, g);
    err_code rc = set_ranks(m, g, e);
    if (rc == ERR_OK)
        rc = tokenizer_normal_spaces(g->add_prefix != 0, &t->normal, e);
    if (rc == ERR_OK)
        set_text_rules(t, g);
    return rc;
}

static int32_t find(const struct spm *m, const char *p, size_t n)
{
    uint32_t id;
    return n <= m->longest && map_get(m->pieces, p, n, &id) ? (int32_t)id : -1;
}

static bool pair_of(const void *model, const struct merge_word *w, const struct merge_sym *l, const struct merge_sym *r,
                    uint32_t *ret_rank, int32_t *ret_id)
{
    const struct spm *m = model;
    int32_t id = find(m, w->text + l->start, (size_t)l->len + r->len);
    if (id < 0)
        return false;
    *ret_rank = m->rank[id];
    *ret_id = id;
    return true;
}

static void add_bytes(const struct spm *m, const char *p, size_t n, struct ids *ids)
{
    for (size_t i = 0; i < n; i++) {
        int32_t id = m->bytes[(uint8_t)p[i]];
        if (id >= 0)
            ids_add(ids, id);
        else if (i == 0 && m->unknown >= 0)
            ids_add(ids, m->unknown);
    }
}

static err_code encode_word(const struct spm *m, struct tokenizer_scratch *s, const char *piece, size_t len,
                            struct ids *ids, err *e)
{
    struct merge_word *w = &s->word;
    tokenizer_merge_start(w, piece);
    for (size_t i = 0; i < len;) {
        uint32_t cp;
        int k = utf8_decode(piece + i, len - i, &cp);
        size_t n = (size_t)(k > 0 ? k : 1);
        tokenizer_merge_add(w, find(m, piece + i, n), (uint32_t)n);
        i += n;
    }
    err_code rc = tokenizer_merge_run(w, pair_of, m, e);
    for (int32_t i = 0; rc == ERR_OK && w->n && i >= 0; i = w->syms[i].next) {
        if (w->syms[i].id >= 0)
            ids_add(ids, w->syms[i].id);
        else
            add_bytes(m, piece + w->syms[i].start, w->syms[i].len, ids);
    }
    return rc;
}

static err_code encode(const struct tokenizer *t, struct tokenizer_scratch *s, const char *piece, size_t len,
                       struct ids *ids, err *e)
{
    const struct spm *m = t->model;
    err_code rc = ERR_OK;
    for (size_t n; rc == ERR_OK && len; piece += n, len -= n) {
        n = m->crosses ? len : tokenizer_merge_word_end(piece, len);
        rc = encode_word(m, s, piece, n, ids, e);
    }
    return rc;
}

static void close_model(void *model)
{
    struct spm *m = model;
    map_free(m->pieces);
    free(m->rank);
    free(m);
}

const struct tokenizer_kind tokenizer_spm_kind = {
    .name = "sentencepiece",
    .gguf_models = "llama",
    .open_gguf = open_gguf,
    .encode = encode,
    .close = close_model,
};
