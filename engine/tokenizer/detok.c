// detok.c - token spellings to bytes (once, at open) and ids to text as a stream.
//
// A detok belongs to one sequence. Two rules, as the reference decoders have them. Byte alphabet: the bytes of all
// tokens are one string, in which each maximal invalid part becomes one U+FFFD. Byte runs (SentencePiece): a run of
// <0xHH> tokens is valid as a whole, or every byte of it becomes a U+FFFD; so a run waits until it ends or cannot be
// valid any more. A run that outgrows the tail has its whole characters sent on, and only what comes later can still
// turn out invalid.

#include <jansson.h>
#include <string.h>

#include "base/mem.h"
#include "base/utf8.h"
#include "engine/tokenizer/model.h"

// ---- decoders of tokenizer.json

enum { MAX_DEPTH = 8 };

static err_code open_replace(const json_t *j, struct decode_rules *d, err *e)
{
    const char *from = json_string_value(json_object_get(json_object_get(j, "pattern"), "String"));
    const char *to = json_string_value(json_object_get(j, "content"));
    if (!from || !to || !*from)
        return err_set_param(e, ERR_UNSUPPORTED, "decoder",
                             "decoder Replace without a String pattern is not supported");
    if (d->nreplaces == DECODE_REPLACES || strlen(from) >= sizeof d->replaces[0].from ||
        strlen(to) >= sizeof d->replaces[0].to)
        return err_set_param(e, ERR_UNSUPPORTED, "decoder", "decoder Replace '%.40s' is too long or one too many",
                             from);
    strcpy(d->replaces[d->nreplaces].from, from);
    strcpy(d->replaces[d->nreplaces++].to, to);
    return ERR_OK;
}

static err_code open_strip(const json_t *j, struct decode_rules *d, err *e)
{
    const char *content = json_string_value(json_object_get(j, "content"));
    if (!content || strcmp(content, " ") != 0 || json_integer_value(json_object_get(j, "start")) != 1 ||
        json_integer_value(json_object_get(j, "stop")) != 0)
        return err_set_param(e, ERR_UNSUPPORTED, "decoder",
                             "decoder Strip is supported for one space at the start only");
    d->strip = true;
    return ERR_OK;
}

static err_code open_metaspace(const json_t *j, struct decode_rules *d, err *e)
{
    const char *mark = json_string_value(json_object_get(j, "replacement"));
    const char *scheme = json_string_value(json_object_get(j, "prepend_scheme"));
    if (mark && strlen(mark) >= sizeof d->replaces[0].from)
        return err_set_param(e, ERR_CORRUPT, "decoder", "decoder Metaspace: replacement is not one character");
    if (d->nreplaces == DECODE_REPLACES)
        return err_set_param(e, ERR_UNSUPPORTED, "decoder", "decoder has more than %d replacements", DECODE_REPLACES);
    strcpy(d->replaces[d->nreplaces].from, mark && *mark ? mark : "\xE2\x96\x81");
    strcpy(d->replaces[d->nreplaces++].to, " ");
    d->strip_mark = scheme ? strcmp(scheme, "never") != 0 : !json_is_false(json_object_get(j, "add_prefix_space"));
    return ERR_OK;
}

static err_code open_wordpiece(const json_t *j, struct decode_rules *d, err *e)
{
    const json_t *prefix = json_object_get(j, "prefix");
    const char *text = prefix ? json_string_value(prefix) : "##";
    if (!text || strlen(text) >= sizeof d->prefix)
        return err_set_param(e, ERR_UNSUPPORTED, "decoder", "decoder WordPiece: prefix is missing or too long");
    d->words = true;
    d->cleanup = !json_is_false(json_object_get(j, "cleanup"));
    strcpy(d->prefix, text);
    return ERR_OK;
}

static err_code open_steps(const json_t *j, struct decode_rules *d, int depth, err *e)
{
    const char *type = json_string_value(json_object_get(j, "type"));
    if (!type || depth > MAX_DEPTH)
        return err_set(e, ERR_CORRUPT, type ? "decoder is nested too deep" : "decoder without a type");
    if (strcmp(type, "Sequence") == 0) {
        size_t i;
        json_t *item;
        json_array_foreach (json_object_get(j, "decoders"), i, item) {
            err_code rc = open_steps(item, d, depth + 1, e);
            if (rc)
                return rc;
        }
        return ERR_OK;
    }
    if (strcmp(type, "ByteLevel") == 0)
        d->bytes = true;
    else if (strcmp(type, "ByteFallback") == 0)
        d->byte_runs = true;
    else if (strcmp(type, "Replace") == 0)
        return open_replace(j, d, e);
    else if (strcmp(type, "Strip") == 0)
        return open_strip(j, d, e);
    else if (strcmp(type, "Metaspace") == 0)
        return open_metaspace(j, d, e);
    else if (strcmp(type, "WordPiece") == 0)
        return open_wordpiece(j, d, e);
    else if (strcmp(type, "Fuse") != 0)
        return err_set_param(e, ERR_UNSUPPORTED, "decoder", "decoder '%.60s' is not supported", type);
    return ERR_OK;
}

err_code detok_open(const struct json_t *decoder, struct decode_rules *ret_rules, err *e)
{
    struct decode_rules d = {0};
    err_code rc = open_steps(decoder, &d, 0, e);
    if (rc == ERR_OK && d.bytes && (d.byte_runs || d.nreplaces || d.words))
        rc = err_set_param(e, ERR_UNSUPPORTED, "decoder", "decoder mixes ByteLevel with ByteFallback or replacements");
    if (rc == ERR_OK && d.words && (d.byte_runs || d.nreplaces || d.strip))
        rc = err_set_param(e, ERR_UNSUPPORTED, "decoder", "decoder mixes WordPiece with others");
    if (rc == ERR_OK)
        *ret_rules = d;
    return rc;
}

// ---- pieces

struct source {
    const char *p;
    size_t n;
};

static void letters_to_bytes(struct source s, struct buf *out)
{
    for (size_t i = 0; i < s.n;) {
        uint32_t cp = 0;
        uint8_t byte;
        int n = utf8_decode(s.p + i, s.n - i, &cp);
        if (n == 0 || !tokenizer_vocab_unletter(cp, &byte)) {  // not of the alphabet: the spelling is the text
            buf_clear(out);
            buf_add(out, s.p, s.n);
            return;
        }
        buf_add_char(out, (char)byte);
        i += (size_t)n;
    }
}

static void replace_in(struct buf *text, const char *from, const char *to, struct buf *tmp)
{
    size_t n = strlen(from);
    buf_clear(tmp);
    for (size_t i = 0; i < text->len;) {
        if (text->len - i >= n && memcmp(text->data + i, from, n) == 0) {
            buf_add_str(tmp, to);
            i += n;
        } else {
            buf_add_char(tmp, text->data[i++]);
        }
    }
    struct buf was = *text;
    *text = *tmp;
    *tmp = was;
}

// A continuation without its mark, another word with a space before it. The first token of a text is its spelling.
static void word_piece(const struct decode_rules *d, struct source s, struct buf *text, struct buf *tmp)
{
    static const char *const tidy[][2] = {{" .", "."}, {" ?", "?"}, {" !", "!"}, {" ,", ","}, {" ' ", "'"}, {" n't", "n't"},
                                          {" 'm", "'m"}, {" do not", " don't"}, {" 's", "'s"}, {" 've", "'ve"},
                                          {" 're", "'re"}};
    size_t n = strlen(d->prefix);
    bool inside = s.n >= n && memcmp(s.p, d->prefix, n) == 0;
    if (!inside)
        buf_add_char(text, ' ');
    buf_add(text, s.p + (inside ? n : 0), s.n - (inside ? n : 0));
    for (size_t i = 0; d->cleanup && i < sizeof tidy / sizeof *tidy; i++)
        replace_in(text, tidy[i][0], tidy[i][1], tmp);
}

static void build_piece(const struct decode_rules *d, struct vocab_token *k, struct buf *text, struct buf *tmp)
{
    struct source s = k->piece ? (struct source){k->piece, k->piece_len} : (struct source){k->text, k->len};
    int byte = d->byte_runs ? tokenizer_vocab_byte(s.p, s.n) : -1;
    buf_clear(text);
    if (byte >= 0) {
        k->flags |= TOKEN_BYTE;
        buf_add_char(text, (char)byte);
        return;
    }
    if (d->bytes && !(k->flags & TOKEN_ADDED)) {
        size_t end = strlen(d->suffix);
        bool word = end && s.n > end && memcmp(s.p + s.n - end, d->suffix, end) == 0;
        s.n -= word ? end : 0;
        letters_to_bytes(s, text);
        if (word)
            buf_add_char(text, ' ');
        return;
    }
    if (d->words) {
        word_piece(d, s, text, tmp);
        return;
    }
    buf_add(text, s.p, s.n);
    for (int i = 0; !d->bytes && i < d->nreplaces; i++)
        replace_in(text, d->replaces[i].from, d->replaces[i].to, tmp);
}

err_code detok_build(struct tokenizer *t, err *e)
{
    struct buf text, tmp;
    buf_init(&text, 1 << 26);
    buf_init(&tmp, 1 << 26);
    bool over = false;
    for (int i = 0; i < t->vocab.size; i++) {
        struct vocab_token *k = &t->vocab.tokens[i];
        if (!(k->flags & TOKEN_USED)) {
            k->text = k->piece = "";
            continue;
        }
        build_piece(&t->decode, k, &text, &tmp);
        over = over || text.over || tmp.over;
        bool same = text.len == k->len && (k->len == 0 || memcmp(text.data, k->text, k->len) == 0);
        k->piece = same ? k->text : tokenizer_vocab_keep(&t->vocab, text.data ? text.data : "", text.len);
        k->piece_len = (uint32_t)text.len;
    }
    buf_done(&text);
    buf_done(&tmp);
    return over ? err_set(e, ERR_TOO_LARGE, "a token's spelling is longer than 64 MiB") : ERR_OK;
}

// ---- the stream

static const char REPLACEMENT[] = "\xEF\xBF\xBD";

void detok_init(struct detok *d, const struct tokenizer *t, bool skip_control)
{
    *d = (struct detok){.t = t, .skip_control = skip_control};
}

static void put(struct detok *d, const char *p, size_t n, struct buf *out)
{
    if (n == 0)
        return;
    if (!d->started && d->t->decode.strip && *p == ' ') {
        p++;
        n--;
    }
    d->started = true;
    buf_add(out, p, n);
}

// Whole characters as they are, each maximal invalid part as one U+FFFD.
static void put_lossy(struct detok *d, const char *p, size_t n, struct buf *out)
{
    size_t good = 0;
    for (size_t i = 0; i < n;) {
        uint32_t cp;
        int k = utf8_decode(p + i, n - i, &cp);
        if (k > 0) {
            i += (size_t)k;
            good += (size_t)k;
            continue;
        }
        put(d, p + i - good, good, out);
        put(d, REPLACEMENT, 3, out);
        good = 0;
        i += utf8_bad_length(p + i, n - i);
    }
    put(d, p + n - good, good, out);
}

static void drop_tail(struct detok *d, size_t n)
{
    memmove(d->tail, d->tail + n, d->ntail - n);
    d->ntail -= n;
}

// Byte alphabet: everything that no later byte can change goes out.
static void add_bytes(struct detok *d, const char *p, size_t n, struct buf *out)
{
    while (n) {
        size_t k = sizeof d->tail - d->ntail;
        k = k < n ? k : n;
        memcpy(d->tail + d->ntail, p, k);
        d->ntail += k;
        p += k;
        n -= k;
        size_t whole = utf8_complete((const char *)d->tail, d->ntail);
        put_lossy(d, (const char *)d->tail, whole, out);
        drop_tail(d, whole);
    }
}

static void fail_run(struct detok *d, struct buf *out)
{
    for (size_t i = 0; i < d->ntail; i++)
        put(d, REPLACEMENT, 3, out);
    d->ntail = 0;
    d->broken = true;
}

static void add_run_byte(struct detok *d, char byte, struct buf *out)
{
    const char *tail = (const char *)d->tail;
    d->tail[d->ntail++] = (unsigned char)byte;
    size_t whole = utf8_complete(tail, d->ntail);
    if (d->broken || !utf8_valid(tail, whole)) {
        fail_run(d, out);
    } else if (d->ntail == sizeof d->tail) {
        put(d, tail, whole, out);
        drop_tail(d, whole);
    }
}

static void end_run(struct detok *d, struct buf *out)
{
    if (d->ntail && utf8_valid((const char *)d->tail, d->ntail)) {
        put(d, (const char *)d->tail, d->ntail, out);
        d->ntail = 0;
    } else if (d->ntail) {
        fail_run(d, out);
    }
    d->broken = false;
}

// Metaspace: the first token loses all of its spaces.
static void add_unspaced(struct detok *d, const char *p, size_t n, struct buf *out)
{
    d->started = true;
    for (size_t i = 0, from = 0; i <= n; i++) {
        if (i == n || p[i] == ' ') {
            put_lossy(d, p + from, i - from, out);
            from = i + 1;
        }
    }
}

void detok_add(struct detok *d, int32_t id, struct buf *out)
{
    const struct vocab *v = &d->t->vocab;
    const struct decode_rules *rules = &d->t->decode;
    if (id < 0 || id >= v->size || !(v->tokens[id].flags & TOKEN_USED))
        return;
    const struct vocab_token *k = &v->tokens[id];
    if (d->skip_control && (k->flags & TOKEN_CONTROL))
        return;
    if (rules->bytes) {
        add_bytes(d, k->piece, k->piece_len, out);
        return;
    }
    if (k->flags & TOKEN_BYTE) {
        add_run_byte(d, k->piece[0], out);
        return;
    }
    end_run(d, out);
    if (rules->words && !d->started)
        put_lossy(d, k->text, k->len, out);
    else if (rules->strip_mark && !d->started)
        add_unspaced(d, k->piece, k->piece_len, out);
    else
        put_lossy(d, k->piece, k->piece_len, out);
}

void detok_finish(struct detok *d, struct buf *out)
{
    if (!d->t->decode.bytes) {
        end_run(d, out);
        return;
    }
    put_lossy(d, (const char *)d->tail, d->ntail, out);
    d->ntail = 0;
}
