// vocab.c - token table. Built by the thread that opens the model; read-only afterwards, so any thread may read it.

#include "engine/tokenizer/vocab.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "base/map.h"
#include "base/mem.h"
#include "base/utf8.h"

static bool grow(struct vocab *v, int64_t id)
{
    int64_t cap = v->cap ? v->cap : 1024;
    while (cap <= id)
        cap *= 2;
    struct vocab_token *t = realloc(v->tokens, (size_t)cap * sizeof *t);
    if (!t)
        return false;
    memset(t + v->cap, 0, (size_t)(cap - v->cap) * sizeof *t);
    v->tokens = t;
    v->cap = (int)cap;
    return true;
}

const char *tokenizer_vocab_keep(struct vocab *v, const char *p, size_t n)
{
    if (!v->chunk || n + 1 > v->room - v->used) {
        size_t size = n + 1 > 1 << 16 ? n + 1 : 1 << 16;
        char *c = mem_new(size + sizeof c);
        memcpy(c, &v->chunk, sizeof v->chunk);
        v->chunk = c;
        v->used = sizeof c;
        v->room = size + sizeof c;
    }
    char *out = v->chunk + v->used;
    if (n)
        memcpy(out, p, n);
    out[n] = 0;
    v->used += n + 1;
    return out;
}

err_code tokenizer_vocab_set(struct vocab *v, int64_t id, const char *text, size_t len, uint32_t flags, err *e)
{
    if (id < 0 || id >= VOCAB_MAX)
        return err_set(e, ERR_CORRUPT, "token '%.60s' has id %lld, expected 0 to %d", text, (long long)id,
                       VOCAB_MAX - 1);
    if (id >= v->cap && !grow(v, id))
        return err_set(e, ERR_MEMORY, "no memory for %lld tokens", (long long)id + 1);
    if (!v->ids)
        v->ids = map_new(1024);
    struct vocab_token *t = &v->tokens[id];
    if ((t->flags & TOKEN_USED) && (t->len != len || memcmp(t->text, text, len) != 0))
        return err_set(e, ERR_CORRUPT, "id %lld is both '%.60s' and '%.60s'", (long long)id, t->text, text);
    if (!(t->flags & TOKEN_USED)) {
        t->text = tokenizer_vocab_keep(v, text, len);
        t->len = (uint32_t)len;
        uint32_t known;
        if (len && !map_get(v->ids, text, len, &known))  // of equal spellings the one that came first counts
            map_put(v->ids, text, len, (uint32_t)id);
    }
    t->flags |= flags | TOKEN_USED;
    if (id >= v->size)
        v->size = (int)id + 1;
    return ERR_OK;
}

bool tokenizer_vocab_find(const struct vocab *v, const char *text, size_t len, int32_t *ret_id)
{
    uint32_t id;
    if (!v->ids || !map_get(v->ids, text, len, &id))
        return false;
    *ret_id = (int32_t)id;
    return true;
}

err_code tokenizer_vocab_read(struct vocab *v, const struct json_t *vocab, err *e)
{
    const char *key;
    json_t *id;
    if (!json_is_object(vocab))
        return err_set(e, ERR_CORRUPT, "tokenizer.json: model.vocab is not an object");
    json_object_foreach ((json_t *)vocab, key, id) {
        if (!json_is_integer(id))
            return err_set(e, ERR_CORRUPT, "tokenizer.json: id of token '%.60s' is not a number", key);
        err_code rc = tokenizer_vocab_set(v, json_integer_value(id), key, strlen(key), 0, e);
        if (rc)
            return rc;
    }
    return ERR_OK;
}

void tokenizer_vocab_done(struct vocab *v)
{
    for (char *c = v->chunk, *next; c; c = next) {
        memcpy(&next, c, sizeof next);
        free(c);
    }
    map_free(v->ids);
    free(v->tokens);
    *v = (struct vocab){0};
}

static int hex(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    c = (char)(c | 0x20);
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

int tokenizer_vocab_byte(const char *text, size_t len)
{
    if (len != 6 || memcmp(text, "<0x", 3) != 0 || text[5] != '>' || hex(text[3]) < 0 || hex(text[4]) < 0)
        return -1;
    return hex(text[3]) * 16 + hex(text[4]);
}

// Printable bytes stand for themselves; the other 68 take U+0100, U+0101, ... in ascending order.
static bool printable(int b)
{
    return (b >= 0x21 && b <= 0x7E) || (b >= 0xA1 && b <= 0xAC) || b >= 0xAE;
}

static uint32_t letter_of(uint8_t byte)
{
    if (printable(byte))
        return byte;
    return 0x100 + (byte <= 0x20 ? byte : byte <= 0xA0 ? (uint32_t)byte - 0x7F + 0x21 : 0x43);
}

int tokenizer_vocab_letter(uint8_t byte, char *out)
{
    char c[4];
    int n = utf8_encode(letter_of(byte), c);
    memcpy(out, c, (size_t)n);
    return n;
}

bool tokenizer_vocab_unletter(uint32_t cp, uint8_t *ret_byte)
{
    if (cp > 0x143 || (cp < 0x100 && !printable((int)cp)))
        return false;
    uint32_t k = cp - 0x100;
    *ret_byte = (uint8_t)(cp < 0x100 ? cp : k <= 0x20 ? k : k <= 0x42 ? k - 0x21 + 0x7F : 0xAD);
    return true;
}
