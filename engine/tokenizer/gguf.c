// gguf.c - opens a tokenizer from GGUF metadata. Borrows strings from the file while it builds; keeps nothing of them.

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "engine/tokenizer/model.h"
#include "engine/weights/weights.h"

enum { MAX_MERGES = 1 << 24 };

// ---- building

static bool name_has(const struct gguf_text *name, const char *what)
{
    size_t n = strlen(what);
    for (size_t i = 0; i + n <= name->n; i++) {
        size_t k = 0;
        while (k < n && tolower((unsigned char)name->p[i + k]) == what[k])
            k++;
        if (k == n)
            return true;
    }
    return false;
}

static bool is(const struct gguf_text *t, const char *text)
{
    return t->n == strlen(text) && memcmp(t->p, text, t->n) == 0;
}

// GGUF keeps no strip flags. Phi-3's tokens swallow the white space after them, all but these.
static unsigned strip_flags(const struct tokenizer_gguf *g, const struct gguf_text *t)
{
    bool phi3 = name_has(&g->name, "phi-3") || name_has(&g->name, "phi3");
    return phi3 && !is(t, "<unk>") && !is(t, "<s>") && !is(t, "<|endoftext|>") ? ADDED_RSTRIP : 0;
}

// Some converters lose the type of end markers. Gemma 4 has </s> as an ordinary token: HTML's struck-out text.
static bool lost_its_type(const struct tokenizer_gguf *g, const struct gguf_text *t)
{
    return tokenizer_stops_is_end(t->p, t->n) && !(is(t, "</s>") && is(&g->model, "gemma4"));
}

static err_code add_token(struct tokenizer *t, const struct tokenizer_gguf *g, size_t i, err *e)
{
    const struct gguf_text *k = &g->tokens[i];
    int type = g->types ? g->types[i] : GGUF_NORMAL;
    if (type == GGUF_NORMAL && lost_its_type(g, k))
        type = GGUF_CONTROL;
    if (type == GGUF_CONTROL || type == GGUF_UNKNOWN || type == GGUF_USER_DEFINED)
        return tokenizer_add_token(t, (int64_t)i, k->p, k->n, type != GGUF_USER_DEFINED, false, strip_flags(g, k), e);
    return tokenizer_vocab_set(&t->vocab, (int64_t)i, k->p, k->n, type == GGUF_BYTE ? TOKEN_BYTE : 0, e);
}

static int32_t in_range(int32_t id, const struct tokenizer *t)
{
    return id >= 0 && id < t->vocab.size ? id : TOKEN_NONE;
}

static err_code build(struct tokenizer *t, const struct tokenizer_gguf *g, err *e)
{
    err_code rc = ERR_OK;
    for (size_t i = 0; rc == ERR_OK && i < g->ntokens; i++)
        rc = add_token(t, g, i, e);
    t->bos = in_range(g->bos, t);
    t->eos = in_range(g->eos, t);
    if (rc == ERR_OK)
        rc = t->kind->open_gguf(t, g, e);
    if (rc)
        return rc;
    for (size_t i = 0; i < g->nstops; i++)
        tokenizer_stops_add(t, g->stops[i]);
    tokenizer_stops_finish(t);
    tokenizer_fim_find(t, &g->fim);
    return detok_build(t, e);
}

err_code tokenizer_gguf_build(const struct tokenizer_gguf *g, struct tokenizer **ret_tokenizer, err *e)
{
    const struct tokenizer_kind *kind = tokenizer_kind_by_gguf(g->model.p, g->model.n);
    if (!kind || !kind->open_gguf)
        return err_set_param(e, ERR_UNSUPPORTED, "tokenizer.ggml.model", "tokenizer model '%.*s' is not supported",
                             (int)(g->model.n < 60 ? g->model.n : 60), g->model.p);
    if (g->ntokens == 0)
        return err_set_param(e, ERR_CORRUPT, "tokenizer.ggml.tokens", "tokenizer.ggml.tokens is missing or empty");
    struct tokenizer *t = tokenizer_new();
    t->kind = kind;
    err_code rc = build(t, g, e);
    if (rc)
        tokenizer_close(t);
    else
        *ret_tokenizer = t;
    return rc;
}

// ---- reading

static void read_text(const struct weights *w, const char *key, struct gguf_text *out)
{
    if (!meta_string(w, key, &out->p, &out->n))
        *out = (struct gguf_text){"", 0};
}

static err_code read_texts(const struct weights *w, const char *key, int64_t max, struct gguf_text **out, size_t *n,
                           err *e)
{
    int64_t len = meta_array_length(w, key);
    if (len <= 0)
        return ERR_OK;
    if (len > max)
        return err_set_param(e, ERR_TOO_LARGE, key, "%s has %lld entries, expected at most %lld", key, (long long)len,
                             (long long)max);
    *out = mem_try((size_t)len * sizeof **out);
    if (!*out)
        return err_set(e, ERR_MEMORY, "no memory for %lld entries of %s", (long long)len, key);
    for (int64_t i = 0; i < len; i++)
        if (!meta_array_string(w, key, i, &(*out)[i].p, &(*out)[i].n))
            return err_set_param(e, ERR_CORRUPT, key, "%s: entry %lld is no string", key, (long long)i);
    *n = (size_t)len;
    return ERR_OK;
}

static err_code bad_length(const char *key, int64_t len, size_t want, err *e)
{
    return err_set_param(e, ERR_CORRUPT, key, "%s has %lld entries, expected %zu as in tokens", key, (long long)len,
                         want);
}

static err_code read_scores(const struct weights *w, struct tokenizer_gguf *g, err *e)
{
    static const char key[] = "tokenizer.ggml.scores";
    int64_t len = meta_array_length(w, key);
    if (len < 0)
        return ERR_OK;
    if ((size_t)len != g->ntokens)
        return bad_length(key, len, g->ntokens, e);
    if (!(g->scores = mem_try(g->ntokens * sizeof *g->scores + 1)))
        return err_set(e, ERR_MEMORY, "no memory for the scores");
    for (int64_t i = 0; i < len; i++) {
        double x;
        if (!meta_array_float(w, key, i, &x))
            return err_set_param(e, ERR_CORRUPT, key, "%s: entry %lld is no number", key, (long long)i);
        g->scores[i] = (float)x;
    }
    return ERR_OK;
}

static err_code read_types(const struct weights *w, struct tokenizer_gguf *g, err *e)
{
    static const char key[] = "tokenizer.ggml.token_type";
    int64_t len = meta_array_length(w, key);
    if (len < 0)
        return ERR_OK;
    if ((size_t)len != g->ntokens)
        return bad_length(key, len, g->ntokens, e);
    if (!(g->types = mem_try(g->ntokens * sizeof *g->types + 1)))
        return err_set(e, ERR_MEMORY, "no memory for the token types");
    for (int64_t i = 0; i < len; i++) {
        int64_t x;
        if (!meta_array_int(w, key, i, &x))
            return err_set_param(e, ERR_CORRUPT, key, "%s: entry %lld is no number", key, (long long)i);
        g->types[i] = x >= 0 && x <= GGUF_BYTE ? (int32_t)x : GGUF_NORMAL;
    }
    return ERR_OK;
}

static int32_t read_id(const struct weights *w, const char *key)
{
    int64_t x;
    return meta_int(w, key, &x) && x >= 0 && x < VOCAB_MAX ? (int32_t)x : TOKEN_NONE;
}

// Newer files say what the mark is for, older ones what stands behind it.
static int32_t read_mark(const struct weights *w, const char *key, const char *old_key)
{
    int32_t id = read_id(w, key);
    return id != TOKEN_NONE ? id : read_id(w, old_key);
}

static int read_flag(const struct weights *w, const char *key)
{
    bool x;
    return meta_bool(w, key, &x) ? x : -1;
}

static void read_ids(const struct weights *w, struct tokenizer_gguf *g)
{
    static const char *const stops[] = {
        "tokenizer.ggml.eot_token_id", "tokenizer.ggml.eom_token_id", "tokenizer.ggml.fim_pad_token_id",
        "tokenizer.ggml.fim_rep_token_id", "tokenizer.ggml.fim_sep_token_id",
    };
    g->bos = read_id(w, "tokenizer.ggml.bos_token_id");
    g->eos = read_id(w, "tokenizer.ggml.eos_token_id");
    g->unknown = read_id(w, "tokenizer.ggml.unknown_token_id");
    g->cls = read_id(w, "tokenizer.ggml.cls_token_id");
    g->sep = read_id(w, "tokenizer.ggml.seperator_token_id");  // sic
    for (size_t i = 0; i < sizeof stops / sizeof *stops; i++) {
        int32_t id = read_id(w, stops[i]);
        if (id != TOKEN_NONE)
            g->stops[g->nstops++] = id;
    }
    g->fim.prefix = read_mark(w, "tokenizer.ggml.fim_pre_token_id", "tokenizer.ggml.prefix_token_id");
    g->fim.suffix = read_mark(w, "tokenizer.ggml.fim_suf_token_id", "tokenizer.ggml.suffix_token_id");
    g->fim.middle = read_mark(w, "tokenizer.ggml.fim_mid_token_id", "tokenizer.ggml.middle_token_id");
    int64_t n = meta_array_length(w, "tokenizer.ggml.eos_token_ids");
    for (int64_t i = 0; i < n && g->nstops < sizeof g->stops / sizeof *g->stops; i++) {
        int64_t id;
        if (meta_array_int(w, "tokenizer.ggml.eos_token_ids", i, &id) && id >= 0 && id < VOCAB_MAX)
            g->stops[g->nstops++] = (int32_t)id;
    }
    g->add_bos = read_flag(w, "tokenizer.ggml.add_bos_token");
    g->add_eos = read_flag(w, "tokenizer.ggml.add_eos_token");
    g->add_prefix = read_flag(w, "tokenizer.ggml.add_space_prefix");
    g->lowercase = read_flag(w, "tokenizer.ggml.normalizer.lowercase");
    g->strip_accents = read_flag(w, "tokenizer.ggml.normalizer.strip_accents");
}

static err_code read(const struct weights *w, struct tokenizer_gguf *g, err *e)
{
    read_text(w, "tokenizer.ggml.model", &g->model);
    read_text(w, "tokenizer.ggml.pre", &g->pre);
    read_text(w, "general.name", &g->name);
    if (g->model.n == 0)
        return err_set_param(e, ERR_NOT_FOUND, "tokenizer.ggml.model", "the GGUF file has no tokenizer");
    err_code rc = read_texts(w, "tokenizer.ggml.tokens", VOCAB_MAX, &g->tokens, &g->ntokens, e);
    if (rc == ERR_OK)
        rc = read_texts(w, "tokenizer.ggml.merges", MAX_MERGES, &g->merges, &g->nmerges, e);
    if (rc == ERR_OK)
        rc = read_scores(w, g, e);
    if (rc == ERR_OK)
        rc = read_types(w, g, e);
    read_ids(w, g);
    return rc;
}

err_code tokenizer_gguf_open(const struct weights *w, struct tokenizer **ret_tokenizer, err *e)
{
    struct tokenizer_gguf g = {0};
    err_code rc = read(w, &g, e);
    if (rc == ERR_OK)
        rc = tokenizer_gguf_build(&g, ret_tokenizer, e);
    free(g.tokens);
    free(g.merges);
    free(g.scores);
    free(g.types);
    return rc;
}
