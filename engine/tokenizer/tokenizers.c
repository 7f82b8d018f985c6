// tokenizers.c - the registry of kinds, and encoding: how text passes through a tokenizer's parts.
//
// A tokenizer is immutable after open; every encode call has its own scratch, so any number may run at once.

#include <stdlib.h>
#include <string.h>

#include "base/cancel.h"
#include "base/mem.h"
#include "base/utf8.h"
#include "engine/tokenizer/model.h"

enum { MAX_TEXT = 1 << 30, PART = 1 << 20, SPAN_COST = 16 };

#define KIND(name) extern const struct tokenizer_kind tokenizer_##name##_kind;
#include "engine/tokenizer/tokenizers.def"
#undef KIND

static const struct tokenizer_kind *const kinds[] = {
#define KIND(name) &tokenizer_##name##_kind,
#include "engine/tokenizer/tokenizers.def"
#undef KIND
};

const struct tokenizer_kind *tokenizer_kind_by_json(const char *type)
{
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (kinds[i]->json_type && strcmp(kinds[i]->json_type, type) == 0)
            return kinds[i];
    return NULL;
}

static bool has_word(const char *words, const char *word, size_t len)
{
    for (const char *p = words; p; p = strchr(p, ' ')) {
        p += *p == ' ';
        if (strncmp(p, word, len) == 0 && (p[len] == ' ' || p[len] == 0))
            return true;
    }
    return false;
}

const struct tokenizer_kind *tokenizer_kind_by_gguf(const char *model, size_t len)
{
    for (size_t i = 0; len && i < sizeof kinds / sizeof *kinds; i++)
        if (kinds[i]->gguf_models && has_word(kinds[i]->gguf_models, model, len))
            return kinds[i];
    return NULL;
}

struct tokenizer *tokenizer_new(void)
{
    struct tokenizer *t = mem_new(sizeof *t);
    t->raw = tokenizer_added_new();
    t->normalised = tokenizer_added_new();
    t->bos = t->eos = TOKEN_NONE;
    return t;
}

void tokenizer_close(struct tokenizer *t)
{
    if (!t)
        return;
    if (t->kind && t->model)
        t->kind->close(t->model);
    tokenizer_added_free(t->raw);
    tokenizer_added_free(t->normalised);
    tokenizer_normal_close(t->normal);
    tokenizer_pretok_close(t->pretok);
    tokenizer_vocab_done(&t->vocab);
    free(t->stops);
    free(t);
}

// A token that is matched on normalised text is itself normalised first, and that is also the text it decodes to.
static err_code add_normalised(struct tokenizer *t, const char *text, size_t len, int32_t id, unsigned flags, err *e)
{
    struct tokenizer_scratch s = {0};
    tokenizer_text_add(&s.text, text, len, NULL, true);
    err_code rc = tokenizer_normal_run(t->normal, &s.text, &s.spare, &s.pieces.match, e);
    if (rc == ERR_OK) {
        struct vocab_token *k = &t->vocab.tokens[id];
        k->piece = tokenizer_vocab_keep(&t->vocab, s.text.data ? s.text.data : "", s.text.len);
        k->piece_len = (uint32_t)s.text.len;
        rc = tokenizer_added_put(t->normalised, k->piece, k->piece_len, id, flags, e);
    }
    tokenizer_text_done(&s.text);
    tokenizer_text_done(&s.spare);
    tokenizer_pretok_done(&s.pieces);
    return rc;
}

err_code tokenizer_add_token(struct tokenizer *t, int64_t id, const char *text, size_t len, bool control,
                             bool normalised, unsigned flags, err *e)
{
    bool guarded = control || tokenizer_added_is_marker(text, len);
    uint32_t token = TOKEN_ADDED | (control ? TOKEN_CONTROL : 0) | (guarded ? TOKEN_GUARDED : 0);
    err_code rc = tokenizer_vocab_set(&t->vocab, id, text, len, token, e);
    if (rc || len == 0)
        return rc;
    flags |= guarded ? ADDED_GUARDED : 0;
    return normalised ? add_normalised(t, text, len, (int32_t)id, flags, e)
                      : tokenizer_added_put(t->raw, text, len, (int32_t)id, flags, e);
}

// ---- encoding

static err_code encode_plain(const struct tokenizer *t, struct tokenizer_scratch *s, const char *text, size_t len,
                             bool first, struct ids *ids, err *e)
{
    err_code rc = tokenizer_pretok_run(t->pretok, text, len, first, &s->pieces, e);
    for (size_t i = 0; rc == ERR_OK && i < s->pieces.n; i++) {
        rc = t->kind->encode(t, s, s->pieces.v[i].text, s->pieces.v[i].len, ids, e);
        ids->over = ids->max && ids->len > ids->max;
        if (rc == ERR_OK)
            rc = cancel_check(s->pieces.v[i].len, e);
        if (rc == ERR_OK && ids->over)
            rc = err_set(e, ERR_TOO_LARGE, "the text has more than %zu tokens", ids->max);
    }
    return rc;
}

typedef err_code fragment_fn(const struct tokenizer *t, struct tokenizer_scratch *s, const struct tokenizer_text *text,
                             bool first, struct ids *ids, err *e);

// Cuts added tokens out of text and hands what lies between them on.
static err_code cut(const struct tokenizer *t, struct tokenizer_scratch *s, const struct tokenizer_added *added,
                    const struct tokenizer_text *text, bool first, fragment_fn *then, struct ids *ids, err *e)
{
    struct added_match m;
    size_t done = 0, from = 0;
    while (done < text->len) {
        bool found = tokenizer_added_next(added, text, from, done, &m);
        size_t end = found ? m.start : text->len;
        if (end > done) {
            struct tokenizer_text part = {text->data + done, text->trust + done, end - done, 0, false};
            err_code rc = then(t, s, &part, first && done == 0, ids, e);
            if (rc)
                return rc;
        }
        if (!found)
            break;
        ids_add(ids, m.id);
        done = m.end;  // may lie before the white space that the token before it swallowed: that is text again
        from = m.resume;
    }
    return ERR_OK;
}

static err_code encode_normalised(const struct tokenizer *t, struct tokenizer_scratch *s,
                                  const struct tokenizer_text *text, bool first, struct ids *ids, err *e)
{
    return encode_plain(t, s, text->data, text->len, first, ids, e);
}

static err_code encode_raw(const struct tokenizer *t, struct tokenizer_scratch *s, const struct tokenizer_text *text,
                           bool first, struct ids *ids, err *e)
{
    if (!t->normal)
        return cut(t, s, t->normalised, text, first, encode_normalised, ids, e);
    s->fragment.len = 0;
    tokenizer_text_add(&s->fragment, text->data, text->len, text->trust, true);
    err_code rc = tokenizer_normal_run(t->normal, &s->fragment, &s->spare, &s->pieces.match, e);
    return rc ? rc : cut(t, s, t->normalised, &s->fragment, first, encode_normalised, ids, e);
}

static err_code gather(struct tokenizer_text *text, const struct text_span *spans, size_t nspans, err *e)
{
    for (size_t i = 0; i < nspans; i++) {
        if (spans[i].len > (size_t)MAX_TEXT - text->len)
            return err_set(e, ERR_TOO_LARGE, "text to tokenise is longer than %d bytes", MAX_TEXT);
        for (size_t at = 0, n = 0; at < spans[i].len && !cancel_due(SPAN_COST + n / 64); at += n) {
            n = spans[i].len - at < PART ? spans[i].len - at : PART;
            tokenizer_text_add(text, spans[i].text + at, n, NULL, spans[i].trusted);
        }
    }
    err_code rc = cancel_check(0, e);
    if (rc == ERR_OK)
        rc = tokenizer_text_check(text, e);
    if (rc == ERR_OK && text->len && !utf8_valid(text->data, text->len))
        rc = err_set(e, ERR_INVALID, "text to tokenise is not UTF-8");
    return rc;
}

static void scratch_done(struct tokenizer_scratch *s)
{
    tokenizer_text_done(&s->text);
    tokenizer_text_done(&s->fragment);
    tokenizer_text_done(&s->spare);
    tokenizer_pretok_done(&s->pieces);
    tokenizer_merge_done(&s->word);
}

// The text may begin with BOS itself (a template prints it); it is never there twice.
static void drop_second_bos(const struct tokenizer *t, struct ids *ids, size_t at)
{
    if (t->nbefore == 0 || t->bos == TOKEN_NONE || t->before[t->nbefore - 1] != t->bos || at >= ids->len ||
        ids->data[at] != t->bos)
        return;
    memmove(ids->data + at, ids->data + at + 1, (ids->len - at - 1) * sizeof *ids->data);
    ids->len--;
}

err_code tokenizer_encode(const struct tokenizer *t, const struct text_span *spans, size_t nspans, bool add_special,
                          struct ids *ids, err *e)
{
    struct tokenizer_scratch s = {0};
    size_t start = ids->len;
    err_code rc = cancel_check(CANCEL_EVERY / 16, e);  // many short texts are long work too
    if (rc == ERR_OK)
        rc = gather(&s.text, spans, nspans, e);
    if (rc)
        goto out;
    for (int i = 0; add_special && i < t->nbefore; i++)
        ids_add(ids, t->before[i]);
    size_t body = ids->len;
    rc = cut(t, &s, t->raw, &s.text, true, encode_raw, ids, e);
    if (rc) {
        ids->len = start;
        goto out;
    }
    if (add_special)
        drop_second_bos(t, ids, body);
    for (int i = 0; add_special && i < t->nafter; i++)
        ids_add(ids, t->after[i]);
out:
    scratch_done(&s);
    return rc;
}

// ---- asking

static const struct vocab_token *token(const struct tokenizer *t, int32_t id)
{
    static const struct vocab_token hole = {.text = "", .piece = ""};
    if (id < 0 || id >= t->vocab.size || !(t->vocab.tokens[id].flags & TOKEN_USED))
        return &hole;
    return &t->vocab.tokens[id];
}

int tokenizer_size(const struct tokenizer *t)
{
    return t->vocab.size;
}

const char *tokenizer_kind(const struct tokenizer *t)
{
    return t->kind->name;
}

const char *tokenizer_piece(const struct tokenizer *t, int32_t id, size_t *ret_len)
{
    *ret_len = token(t, id)->piece_len;
    return token(t, id)->piece;
}

const char *tokenizer_token(const struct tokenizer *t, int32_t id, size_t *ret_len)
{
    *ret_len = token(t, id)->len;
    return token(t, id)->text;
}

bool tokenizer_find(const struct tokenizer *t, const char *text, int32_t *ret_id)
{
    return tokenizer_vocab_find(&t->vocab, text, strlen(text), ret_id);
}

bool tokenizer_is_control(const struct tokenizer *t, int32_t id)
{
    return token(t, id)->flags & TOKEN_CONTROL;
}

bool tokenizer_is_added(const struct tokenizer *t, int32_t id)
{
    return token(t, id)->flags & TOKEN_ADDED;
}

int32_t tokenizer_bos(const struct tokenizer *t)
{
    return t->bos;
}

int32_t tokenizer_eos(const struct tokenizer *t)
{
    return t->eos;
}

int tokenizer_adds_after(const struct tokenizer *t)
{
    return t->nafter;
}

bool tokenizer_adds_bos(const struct tokenizer *t)
{
    for (int i = 0; i < t->nbefore; i++)
        if (t->before[i] == t->bos)
            return true;
    return false;
}

const int32_t *tokenizer_stops(const struct tokenizer *t, size_t *ret_count)
{
    *ret_count = t->nstops;
    return t->stops;
}
