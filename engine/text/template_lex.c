// template_lex.c - template source to tokens, with Jinja's whitespace control (trim_blocks, lstrip_blocks, - and +).
// Runs once at parse; tokens live in the template's arena.
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "engine/text/template_int.h"

enum { LEX_MAX_NESTING = TEMPLATE_MAX_DEPTH };

struct lex {
    struct arena *arena;
    const char *s;
    size_t len, pos;
    int line;
    bool line_start;  // what was matched last ended a line
    struct token *tok;
    size_t n, cap;
    char open[LEX_MAX_NESTING];
    int nopen;
    err *e;
};

static err_code lex_fail(struct lex *x, const char *what)
{
    return err_set(x->e, ERR_INVALID, "chat template, line %d: %s", x->line, what);
}

static struct token *add(struct lex *x, enum token_type type)
{
    if (x->n == x->cap) {
        size_t cap = x->cap ? x->cap * 2 : 256;
        struct token *bigger = arena_alloc(x->arena, cap * sizeof *bigger);
        if (x->n)
            memcpy(bigger, x->tok, x->n * sizeof *bigger);
        x->tok = bigger;
        x->cap = cap;
    }
    struct token *t = &x->tok[x->n++];
    *t = (struct token){.type = type, .line = x->line};
    return t;
}

static bool at(const struct lex *x, const char *what)
{
    size_t n = strlen(what);
    return x->len - x->pos >= n && !memcmp(x->s + x->pos, what, n);
}

// Moves over n bytes, counting lines.
static void skip(struct lex *x, size_t n)
{
    for (size_t i = 0; i < n; i++)
        x->line += x->s[x->pos + i] == '\n';
    x->pos += n;
    if (n)
        x->line_start = x->s[x->pos - 1] == '\n';
}

static size_t space_length(const struct lex *x, size_t pos)
{
    uint32_t cp;
    int n = pos < x->len ? utf8_decode(x->s + pos, x->len - pos, &cp) : 0;
    return n && template_text_space(cp) ? (size_t)n : 0;
}

static void skip_space(struct lex *x)
{
    for (size_t n; (n = space_length(x, x->pos)) != 0;)
        skip(x, n);
}

// End of s[from..to) without its trailing whitespace.
static size_t trim_end(const struct lex *x, size_t from, size_t to)
{
    while (to > from) {
        size_t start = to - 1;
        while (start > from && (x->s[start] & 0xC0) == 0x80)
            start--;
        if (!space_length(x, start))
            break;
        to = start;
    }
    return to;
}

// Text before a tag: sign is what follows the tag's opening; blocks and comments lose the blanks that indent them.
static void add_text(struct lex *x, size_t from, size_t to, char sign, bool variable, bool line_start)
{
    if (sign == '-') {
        to = trim_end(x, from, to);
    } else if (sign != '+' && !variable) {
        size_t line = to;
        while (line > from && x->s[line - 1] != '\n')
            line--;
        if ((line > from || line_start) && trim_end(x, line, to) == line)
            to = line;
    }
    if (to > from)
        add(x, T_TEXT)->s = (struct str){.p = x->s + from, .len = to - from};
}

// After the end of a block or comment: "-" eats all whitespace, otherwise one newline goes unless "+" stood there.
static bool close_tag(struct lex *x, const char *end, bool trim)
{
    char minus[4] = {'-', end[0], end[1], 0}, plus[4] = {'+', end[0], end[1], 0};
    if (at(x, minus)) {
        skip(x, 3);
        skip_space(x);
        return true;
    }
    if (trim && at(x, plus)) {
        skip(x, 3);
        return true;
    }
    if (!at(x, end))
        return false;
    skip(x, 2);
    if (trim && at(x, "\n"))
        skip(x, 1);
    return true;
}

static err_code lex_comment(struct lex *x)
{
    while (x->pos < x->len) {
        if (close_tag(x, "#}", true))
            return ERR_OK;
        skip(x, 1);
    }
    return lex_fail(x, "missing end of comment tag '#}'");
}

// At "{%", sign and blanks "raw" blanks "%}": returns the length of that, 0 if it is another tag.
static size_t raw_begin(const struct lex *x, const char *word)
{
    size_t p = x->pos + 2;
    if (p < x->len && (x->s[p] == '-' || x->s[p] == '+'))
        p++;
    for (size_t n; (n = space_length(x, p)) != 0;)
        p += n;
    size_t w = strlen(word);
    if (x->len - p < w || memcmp(x->s + p, word, w))
        return 0;
    p += w;
    for (size_t n; (n = space_length(x, p)) != 0;)
        p += n;
    size_t q = p + (p < x->len && (x->s[p] == '-' || (*word == 'e' && x->s[p] == '+')));
    return x->len - q >= 2 && !memcmp(x->s + q, "%}", 2) ? p - x->pos : 0;
}

static char sign_at(const struct lex *x, size_t pos)
{
    return pos < x->len && (x->s[pos] == '-' || x->s[pos] == '+') ? x->s[pos] : 0;
}

static err_code lex_raw(struct lex *x, size_t head)
{
    skip(x, head);
    if (at(x, "-%}")) {
        skip(x, 3);
        skip_space(x);
    } else {
        skip(x, 2);
    }
    size_t from = x->pos;
    bool line_start = x->line_start;
    for (; x->pos < x->len; skip(x, 1)) {
        size_t tail = at(x, "{%") ? raw_begin(x, "endraw") : 0;
        if (!tail)
            continue;
        add_text(x, from, x->pos, sign_at(x, x->pos + 2), false, line_start);
        skip(x, tail);
        close_tag(x, "%}", true);
        return ERR_OK;
    }
    return lex_fail(x, "missing end of raw block");
}

// ---- inside a tag

static size_t digits(const struct lex *x, size_t p, const char *set)
{
    size_t start = p;
    while (p < x->len && x->s[p]) {
        bool joint = x->s[p] == '_' && p > start && p + 1 < x->len && x->s[p + 1] && strchr(set, x->s[p + 1]);
        if (!joint && !strchr(set, x->s[p]))
            break;
        p++;
    }
    return p - start;
}

static size_t exponent(const struct lex *x, size_t p)
{
    if (p >= x->len || (x->s[p] | 32) != 'e')
        return 0;
    size_t q = p + 1 + (p + 1 < x->len && (x->s[p + 1] == '+' || x->s[p + 1] == '-'));
    size_t n = digits(x, q, "0123456789");
    return n ? q + n - p : 0;
}

static err_code number_text(struct lex *x, size_t n, char *out, size_t room)
{
    size_t k = 0;
    for (size_t i = 0; i < n; i++)
        if (x->s[x->pos + i] != '_') {
            if (k + 1 >= room)
                return lex_fail(x, "a number is too long");
            out[k++] = x->s[x->pos + i];
        }
    out[k] = 0;
    return ERR_OK;
}

static err_code lex_integer(struct lex *x)
{
    static const struct { char letter; const char *set; int base; } kinds[] = {
        {'b', "01", 2}, {'o', "01234567", 8}, {'x', "0123456789abcdefABCDEF", 16}};
    char text[80];
    size_t n = 0;
    int base = 10;
    for (size_t i = 0; i < 3 && x->pos + 2 < x->len && x->s[x->pos] == '0'; i++)
        if ((x->s[x->pos + 1] | 32) == kinds[i].letter && digits(x, x->pos + 2, kinds[i].set)) {
            n = 2 + digits(x, x->pos + 2, kinds[i].set);
            base = kinds[i].base;
        }
    if (!n)
        n = digits(x, x->pos, x->s[x->pos] == '0' ? "0" : "0123456789");
    if (number_text(x, n, text, sizeof text))
        return x->e->code;
    errno = 0;
    int64_t i = strtoll(text + (base == 10 ? 0 : 2), NULL, base);
    if (errno)
        return lex_fail(x, "an integer does not fit 64 bits");
    add(x, T_INT)->i = i;
    skip(x, n);
    return ERR_OK;
}

static err_code lex_number(struct lex *x)
{
    size_t n = digits(x, x->pos, "0123456789"), frac = 0;
    bool after_dot = x->pos && x->s[x->pos - 1] == '.';
    if (x->pos + n < x->len && x->s[x->pos + n] == '.')
        frac = digits(x, x->pos + n + 1, "0123456789");
    size_t whole = n + (frac ? frac + 1 : 0), ex = exponent(x, x->pos + whole);
    if (after_dot || (!frac && !ex))
        return lex_integer(x);
    char text[80];
    if (number_text(x, whole + ex, text, sizeof text))
        return x->e->code;
    add(x, T_FLOAT)->f = strtod(text, NULL);
    skip(x, whole + ex);
    return ERR_OK;
}

static int hex_value(const char *s, int n)
{
    int v = 0;
    for (int i = 0; i < n; i++) {
        int c = s[i] | 32, d = s[i] >= '0' && s[i] <= '9' ? s[i] - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
        if (d < 0 || v > 0x10FFFF)
            return -1;
        v = v * 16 + d;
    }
    return v;
}

// One escape at s[0] == '\\' (n bytes left): bytes to out, *used bytes read. Unknown escapes stay as they are.
static int unescape(const char *s, size_t n, char *out, size_t *used)
{
    static const char from[] = "abfnrtv\\'\"", to[] = "\a\b\f\n\r\t\v\\'\"";
    *used = 2;
    if (n < 2)
        return -1;
    if (s[1] == '\n')
        return 0;
    const char *k = s[1] ? strchr(from, s[1]) : NULL;
    if (k) {
        out[0] = to[k - from];
        return 1;
    }
    if (s[1] >= '0' && s[1] <= '7') {
        uint32_t v = 0;
        size_t i = 1;
        for (; i < 4 && i < n && s[i] >= '0' && s[i] <= '7'; i++)
            v = v * 8 + (uint32_t)(s[i] - '0');
        *used = i;
        return utf8_encode(v, out);
    }
    int want = s[1] == 'x' ? 2 : s[1] == 'u' ? 4 : s[1] == 'U' ? 8 : 0;
    if (want) {
        int v = n >= (size_t)want + 2 ? hex_value(s + 2, want) : -1;
        *used = (size_t)want + 2;
        return v < 0 ? -1 : utf8_encode((uint32_t)v, out);
    }
    out[0] = '\\';  // the next character follows by itself
    *used = 1;
    return 1;
}

static err_code lex_string(struct lex *x)
{
    char quote = x->s[x->pos];
    size_t end = x->pos + 1;
    while (end < x->len && x->s[end] != quote)
        end += x->s[end] == '\\' ? 2 : 1;
    if (end >= x->len)
        return lex_fail(x, "a string is not closed");
    const char *s = x->s + x->pos + 1;
    size_t n = end - x->pos - 1, k = 0;
    char *out = arena_alloc(x->arena, n * 2 + 8);
    for (size_t i = 0; i < n;) {
        if (s[i] != '\\') {
            out[k++] = s[i++];
            continue;
        }
        size_t used;
        int m = unescape(s + i, n - i, out + k, &used);
        if (m < 0)
            return lex_fail(x, "a string holds a broken escape");
        i += used;
        k += (size_t)m;
        if (used == 1)
            out[k++] = s[i++];
    }
    add(x, T_STRING)->s = (struct str){.p = out, .len = k};
    skip(x, end + 1 - x->pos);
    return ERR_OK;
}

static size_t name_length(const struct lex *x)
{
    size_t p = x->pos;
    while (p < x->len) {
        unsigned char c = (unsigned char)x->s[p];
        bool alpha = (c | 32) >= 'a' && (c | 32) <= 'z';
        if (!alpha && c != '_' && c < 0x80 && !(p > x->pos && c >= '0' && c <= '9'))
            break;
        if (c >= 0x80 && space_length(x, p))
            break;
        p++;
    }
    return p - x->pos;
}

static err_code balance(struct lex *x, enum token_type type)
{
    static const char opens[] = "[({", closes[] = "])}";
    int i = type == T_LBRACKET || type == T_RBRACKET ? 0 : type == T_LPAREN || type == T_RPAREN ? 1 : 2;
    if (type == T_LBRACKET || type == T_LPAREN || type == T_LBRACE) {
        if (x->nopen == LEX_MAX_NESTING)
            return err_set(x->e, ERR_TOO_LARGE, "chat template, line %d: brackets are nested deeper than %d", x->line,
                           LEX_MAX_NESTING);
        x->open[x->nopen++] = opens[i];
        return ERR_OK;
    }
    if (!x->nopen)
        return err_set(x->e, ERR_INVALID, "chat template, line %d: unexpected '%c'", x->line, closes[i]);
    char open = x->open[--x->nopen];
    if (open != opens[i])
        return err_set(x->e, ERR_INVALID, "chat template, line %d: unexpected '%c', expected '%c'", x->line, closes[i],
                       closes[strchr(opens, open) - opens]);
    return ERR_OK;
}

static err_code lex_operator(struct lex *x)
{
    static const struct { char text[3]; enum token_type type; } ops[] = {
        {"**", T_POW}, {"//", T_FLOORDIV}, {"==", T_EQ}, {"!=", T_NE}, {">=", T_GE}, {"<=", T_LE}, {"+", T_ADD},
        {"-", T_SUB}, {"*", T_MUL}, {"/", T_DIV}, {"%", T_MOD}, {"~", T_TILDE}, {"[", T_LBRACKET}, {"]", T_RBRACKET},
        {"(", T_LPAREN}, {")", T_RPAREN}, {"{", T_LBRACE}, {"}", T_RBRACE}, {">", T_GT}, {"<", T_LT}, {"=", T_ASSIGN},
        {".", T_DOT}, {":", T_COLON}, {"|", T_PIPE}, {",", T_COMMA}, {";", T_SEMICOLON}};
    for (size_t i = 0; i < sizeof ops / sizeof *ops; i++) {
        if (!at(x, ops[i].text))
            continue;
        add(x, ops[i].type);
        if (ops[i].type >= T_LBRACKET && ops[i].type <= T_RBRACE && balance(x, ops[i].type))
            return x->e->code;
        skip(x, strlen(ops[i].text));
        return ERR_OK;
    }
    return err_set(x->e, ERR_INVALID, "chat template, line %d: unexpected character '%c'", x->line, x->s[x->pos]);
}

static err_code lex_tag(struct lex *x, bool variable)
{
    x->nopen = 0;
    for (;;) {
        skip_space(x);
        if (x->pos >= x->len)
            return ERR_OK;  // the parser says what is missing
        int line = x->line;
        if (!x->nopen && close_tag(x, variable ? "}}" : "%}", !variable)) {
            add(x, variable ? T_VAR_END : T_BLOCK_END)->line = line;
            return ERR_OK;
        }
        unsigned char c = (unsigned char)x->s[x->pos];
        err_code code;
        size_t n;
        if (c >= '0' && c <= '9') {
            code = lex_number(x);
        } else if ((n = name_length(x)) != 0) {
            add(x, T_NAME)->s = (struct str){.p = x->s + x->pos, .len = n};
            skip(x, n);
            code = ERR_OK;
        } else if (c == '\'' || c == '"') {
            code = lex_string(x);
        } else {
            code = lex_operator(x);
        }
        if (code)
            return code;
    }
}

static err_code lex_root(struct lex *x)
{
    size_t from = x->pos;
    bool line_start = x->line_start;
    const char *hit = x->s + x->pos, *end = x->s + x->len;
    while ((hit = memchr(hit, '{', (size_t)(end - hit))) && (hit + 1 == end || !strchr("%{#", hit[1]) || !hit[1]))
        if (++hit == end) {
            hit = NULL;
            break;
        }
    if (!hit) {
        add(x, T_TEXT)->s = (struct str){.p = x->s + from, .len = x->len - from};
        x->pos = x->len;
        return ERR_OK;
    }
    char kind = hit[1];
    skip(x, (size_t)(hit - x->s) - from);
    char sign = sign_at(x, x->pos + 2);
    add_text(x, from, x->pos, sign, kind == '{', line_start);
    size_t raw = kind == '%' ? raw_begin(x, "raw") : 0;
    if (raw)
        return lex_raw(x, raw);
    if (kind != '#')
        add(x, kind == '%' ? T_BLOCK_BEGIN : T_VAR_BEGIN);
    skip(x, sign ? 3 : 2);
    return kind == '#' ? lex_comment(x) : lex_tag(x, kind == '{');
}

err_code template_lex(struct arena *arena, const char *source, size_t len, struct token **ret_tokens, size_t *ret_n,
                      err *e)
{
    struct lex x = {.arena = arena, .s = source, .len = len, .line = 1, .line_start = true, .e = e};
    while (x.pos < x.len)
        if (lex_root(&x))
            return e->code;
    add(&x, T_EOF);
    *ret_tokens = x.tok;
    *ret_n = x.n;
    return ERR_OK;
}
