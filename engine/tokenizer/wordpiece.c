// wordpiece.c - WordPiece (BERT): a word is the longest piece of the vocabulary it begins with, then the longest one
// that continues it (marked "##"), and so on; a word that cannot be spelt so is one unknown token.
//
// A GGUF marks the pieces that begin a word with U+2581 instead and leaves the others bare.
//
// Schuster, Nakajima 2012; corner cases as in Hugging Face's tokenizers. Immutable after open.

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "engine/tokenizer/model.h"

enum { MAX_PREFIX = 15, MAX_SPELLING = 1024 };

struct wordpiece {
    char prefix[2][MAX_PREFIX + 1];  // of pieces that begin a word, and of those inside
    size_t prefix_len[2];
    int32_t unknown;
    int64_t most_chars;  // a longer word is unknown
    size_t longest;      // bytes of the longest spelling
};

static err_code read_options(const struct vocab *v, struct wordpiece *m, const json_t *model, err *e)
{
    const json_t *prefix = json_object_get(model, "continuing_subword_prefix");
    const json_t *unknown = json_object_get(model, "unk_token");
    const json_t *most = json_object_get(model, "max_input_chars_per_word");
    const char *text = prefix ? json_string_value(prefix) : "##", *unk = unknown ? json_string_value(unknown) : "[UNK]";
    if (!text || strlen(text) > MAX_PREFIX)
        return err_set(e, ERR_CORRUPT, "tokenizer.json: continuing_subword_prefix is not a text of at most %d bytes",
                       MAX_PREFIX);
    strcpy(m->prefix[1], text);
    m->prefix_len[1] = strlen(text);
    m->most_chars = json_is_integer(most) ? json_integer_value(most) : 100;
    if (!unk || !tokenizer_vocab_find(v, unk, strlen(unk), &m->unknown))
        return err_set(e, ERR_CORRUPT, "tokenizer.json: unk_token '%.60s' is not in the vocabulary", unk ? unk : "?");
    return ERR_OK;
}

static void measure(const struct vocab *v, struct wordpiece *m)
{
    for (int i = 0; i < v->size; i++)
        m->longest = v->tokens[i].len > m->longest ? v->tokens[i].len : m->longest;
    m->longest = m->longest < MAX_SPELLING ? m->longest : MAX_SPELLING;
}

static err_code open_json(struct tokenizer *t, const json_t *model, err *e)
{
    struct wordpiece *m = t->model = mem_new(sizeof *m);
    err_code rc = tokenizer_vocab_read(&t->vocab, json_object_get(model, "vocab"), e);
    if (rc == ERR_OK)
        rc = read_options(&t->vocab, m, model, e);
    measure(&t->vocab, m);
    return rc;
}

static err_code gguf_frame(struct tokenizer *t, const struct tokenizer_gguf *g, err *e)
{
    // Files that do not say are of uncased models.
    json_t *normal = json_pack("{s:s, s:b, s:b}", "type", "BertNormalizer", "lowercase", g->lowercase != 0, "strip_accents",
                               g->strip_accents < 0 ? g->lowercase != 0 : g->strip_accents);
    json_t *pretok = json_pack("{s:s}", "type", "BertPreTokenizer");
    err_code rc = tokenizer_normal_open(normal, &t->normal, e);
    if (rc == ERR_OK)
        rc = tokenizer_pretok_open(pretok, &t->pretok, e);
    json_decref(normal);
    json_decref(pretok);
    return rc;
}

// An id the file gives, else the token of this spelling.
static err_code gguf_token(const struct vocab *v, int32_t id, const char *spelling, int32_t *ret_id, err *e)
{
    if (id < 0 || id >= v->size) {
        if (!tokenizer_vocab_find(v, spelling, strlen(spelling), &id))
            return err_set(e, ERR_CORRUPT, "tokenizer.ggml.tokens has no '%s', and no key names its id", spelling);
    }
    *ret_id = id;
    return ERR_OK;
}

static err_code open_gguf(struct tokenizer *t, const struct tokenizer_gguf *g, err *e)
{
    struct wordpiece *m = t->model = mem_new(sizeof *m);
    err_code rc = gguf_frame(t, g, e);
    if (rc == ERR_OK)
        rc = gguf_token(&t->vocab, g->unknown, "[UNK]", &m->unknown, e);
    if (rc == ERR_OK)
        rc = gguf_token(&t->vocab, g->cls != TOKEN_NONE ? g->cls : g->bos, "[CLS]", &t->before[0], e);
    if (rc == ERR_OK)
        rc = gguf_token(&t->vocab, g->sep != TOKEN_NONE ? g->sep : g->eos, "[SEP]", &t->after[0], e);
    t->nbefore = t->nafter = 1;
    strcpy(m->prefix[0], "\xE2\x96\x81");
    m->prefix_len[0] = 3;
    m->most_chars = 100;
    t->decode.nreplaces = 1;
    t->decode.strip = true;
    strcpy(t->decode.replaces[0].from, "\xE2\x96\x81");
    strcpy(t->decode.replaces[0].to, " ");
    measure(&t->vocab, m);
    return rc;
}

// The longest piece that text begins with; 0: none. A control token is no piece of a word.
static size_t longest_piece(const struct vocab *v, const struct wordpiece *m, const char *text, size_t len, bool inside,
                            int32_t *ret_id)
{
    char key[MAX_PREFIX + MAX_SPELLING];
    size_t at = m->prefix_len[inside], n = len < m->longest ? len : m->longest;
    memcpy(key, m->prefix[inside], at);
    memcpy(key + at, text, n);
    for (; n > 0; n--) {
        if (n < len && ((unsigned char)text[n] & 0xC0) == 0x80)
            continue;  // inside a character
        if (tokenizer_vocab_find(v, key, at + n, ret_id) && !(v->tokens[*ret_id].flags & (TOKEN_CONTROL | TOKEN_GUARDED)))
            return n;
    }
    return 0;
}

static bool too_long(const struct wordpiece *m, const char *text, size_t len)
{
    int64_t chars = 0;
    for (size_t i = 0; i < len; i++)
        chars += ((unsigned char)text[i] & 0xC0) != 0x80;
    return chars > m->most_chars;
}

static err_code encode(const struct tokenizer *t, struct tokenizer_scratch *s, const char *piece, size_t len,
                       struct ids *ids, err *e)
{
    (void)s, (void)e;
    const struct wordpiece *m = t->model;
    size_t start = ids->len, at = 0;
    bool known = !too_long(m, piece, len);
    while (known && at < len) {
        int32_t id = 0;
        size_t n = longest_piece(&t->vocab, m, piece + at, len - at, at > 0, &id);
        known = n > 0;
        at += n;
        if (known)
            ids_add(ids, id);
    }
    if (!known) {
        ids->len = start;
        ids_add(ids, m->unknown);
    }
    return ERR_OK;
}

const struct tokenizer_kind tokenizer_wordpiece_kind = {
    .name = "wordpiece",
    .json_type = "WordPiece",
    .gguf_models = "bert",
    .open_json = open_json,
    .open_gguf = open_gguf,
    .encode = encode,
    .close = free,
};
