// template_format.c - values as Python prints them: str(), repr(), the % operator and str.format().
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <utf8proc.h>

#include "engine/text/template_int.h"

// Shortest digits that read back as f, laid out as Python does: exponent from 1e16 up and below 1e-4.
int template_format_float(double f, char out[40])
{
    char digits[40], *d;
    int precision = 1;
    if (isnan(f) || isinf(f))
        return snprintf(out, 40, "%s", isnan(f) ? "nan" : f < 0 ? "-inf" : "inf");
    for (; precision <= 17; precision++) {
        snprintf(digits, sizeof digits, "%.*e", precision - 1, f);
        if (strtod(digits, NULL) == f)
            break;
    }
    int exponent = atoi(strchr(digits, 'e') + 1);
    *strchr(digits, 'e') = 0;
    if (exponent >= 16 || exponent < -4)
        return snprintf(out, 40, "%se%c%02d", digits, exponent < 0 ? '-' : '+', abs(exponent));
    int decimals = precision - 1 - exponent;
    int n = snprintf(out, 40, "%.*f", decimals > 0 ? decimals : 0, f);
    d = strchr(out, '.');
    return d ? n : n + snprintf(out + n, (size_t)(40 - n), ".0");
}

static void text(struct run *r, struct out *o, const char *s, bool untrusted)
{
    template_value_out(r, o, s, strlen(s), untrusted);
}

static bool printable(uint32_t cp)
{
    if (cp < 0x7F)
        return cp >= 0x20;
    utf8proc_category_t c = utf8proc_category((utf8proc_int32_t)cp);
    return !(c >= UTF8PROC_CATEGORY_ZS) && c != UTF8PROC_CATEGORY_CN;
}

static void repr_str(struct run *r, struct out *o, const struct str *s)
{
    bool single = memchr(s->p, '\'', s->len) != NULL, dbl = memchr(s->p, '"', s->len) != NULL;
    char quote = single && !dbl ? '"' : '\'', esc[16];
    bool first = s->mask && s->len ? s->mask[0] : s->untrusted;
    template_value_out(r, o, &quote, 1, first);
    for (size_t i = 0, n; i < s->len && !r->failed; i += n) {
        uint32_t cp;
        n = (size_t)utf8_decode(s->p + i, s->len - i, &cp);
        if (!n) {
            n = 1;
            cp = 0xFFFD;
        }
        esc[0] = 0;
        if (cp == (unsigned char)quote || cp == '\\')
            snprintf(esc, sizeof esc, "\\%c", (int)cp);
        else if (cp == '\n' || cp == '\r' || cp == '\t')
            snprintf(esc, sizeof esc, "\\%c", cp == '\n' ? 'n' : cp == '\r' ? 'r' : 't');
        else if (!printable(cp))
            snprintf(esc, sizeof esc,
                     cp < 0x100     ? "\\x%02" PRIx32
                     : cp < 0x10000 ? "\\u%04" PRIx32
                                    : "\\U%08" PRIx32,
                     cp);
        if (*esc)
            text(r, o, esc, s->mask ? s->mask[i] : s->untrusted);
        else
            template_value_out_sub(r, o, s, i, i + n);
    }
    template_value_out(r, o, &quote, 1, first);
}

static void repr_value(struct run *r, struct out *o, struct value v, bool untrusted);

static void repr_dict(struct run *r, struct out *o, const struct dict *d, bool untrusted)
{
    untrusted |= d->untrusted;
    text(r, o, "{", untrusted);
    for (size_t i = 0; i < d->n && !r->failed; i++) {
        if (i)
            text(r, o, ", ", untrusted);
        repr_value(r, o, d->e[i].k, untrusted);
        text(r, o, ": ", untrusted);
        repr_value(r, o, d->e[i].v, untrusted);
    }
    text(r, o, "}", untrusted);
}

static void repr_range(struct run *r, struct out *o, const struct seq *s)
{
    char line[80];
    if (s->range[2] == 1)
        snprintf(line, sizeof line, "range(%" PRId64 ", %" PRId64 ")", s->range[0], s->range[1]);
    else
        snprintf(line, sizeof line, "range(%" PRId64 ", %" PRId64 ", %" PRId64 ")", s->range[0], s->range[1],
                 s->range[2]);
    text(r, o, line, false);
}

static void repr_seq(struct run *r, struct out *o, const struct seq *s, bool untrusted)
{
    static const char *const open[] = {"[", "(", "", "", "dict_items([", "dict_keys([", "dict_values(["};
    static const char *const close[] = {"]", ")", "", "", "])", "])", "])"};
    untrusted |= s->untrusted;
    if (s->kind == SEQ_RANGE) {
        repr_range(r, o, s);
        return;
    }
    if (s->kind == SEQ_ITER) {
        text(r, o, "<generator object>", false);
        return;
    }
    text(r, o, open[s->kind], untrusted);
    for (size_t i = 0; i < s->n && !r->failed; i++) {
        if (i)
            text(r, o, ", ", untrusted);
        repr_value(r, o, s->v[i], untrusted);
    }
    if (s->kind == SEQ_TUPLE && s->n == 1)
        text(r, o, ",", untrusted);
    text(r, o, close[s->kind], untrusted);
}

static void repr_value(struct run *r, struct out *o, struct value v, bool untrusted)
{
    char number[40];
    if (template_value_enter(r) && template_value_charge(r, 0)) {
        switch (v.type) {
        case V_UNDEF:
            text(r, o, "Undefined", untrusted);
            break;
        case V_NONE:
            text(r, o, "None", untrusted);
            break;
        case V_BOOL:
            text(r, o, v.b ? "True" : "False", untrusted);
            break;
        case V_INT:
            snprintf(number, sizeof number, "%" PRId64, v.i);
            text(r, o, number, untrusted);
            break;
        case V_FLOAT:
            template_format_float(v.f, number);
            text(r, o, number, untrusted);
            break;
        case V_STR:
            if (v.s->markup)
                text(r, o, "Markup(", untrusted);
            repr_str(r, o, v.s);
            if (v.s->markup)
                text(r, o, ")", untrusted);
            break;
        case V_SEQ:
            repr_seq(r, o, v.seq, untrusted);
            break;
        case V_DICT:
            repr_dict(r, o, v.dict, untrusted);
            break;
        case V_NAMESPACE:
            text(r, o, "<Namespace ", false);
            repr_dict(r, o, v.dict, untrusted);
            text(r, o, ">", false);
            break;
        case V_MACRO:
            text(r, o, "<Macro '", false);
            template_value_out_str(r, o, v.macro->node->value.s);
            text(r, o, "'>", false);
            break;
        default:
            text(r, o, "<", false);
            text(r, o, template_value_type(v), false);
            text(r, o, ">", false);
        }
    }
    r->depth--;
}

void template_format_print(struct run *r, struct out *o, struct value v)
{
    if (v.type == V_STR)
        template_value_out_str(r, o, v.s);
    else if (v.type != V_UNDEF)
        repr_value(r, o, v, false);
}

struct value template_format_str(struct run *r, struct value v)
{
    struct out o = {0};
    if (v.type == V_STR)
        return v;
    template_format_print(r, &o, v);
    return template_value_out_take(r, &o);
}

// ---- one field: [[fill]align][sign][#][0][width][,][.precision][type], also what % needs

struct spec {
    struct str fill;
    char align, sign, type;
    bool alt, comma;
    int64_t width, precision;  // precision -1: none
};

static void group_thousands(char *number, size_t room)
{
    char *digits = number + (*number == '-' || *number == '+' || *number == ' ');
    size_t whole = strspn(digits, "0123456789"), len = strlen(digits), commas = whole ? (whole - 1) / 3 : 0;
    if (len + commas + 2 >= room)
        return;
    memmove(digits + whole + commas, digits + whole, len - whole + 1);
    for (size_t i = whole, to = whole + commas, k = 0; i-- > 0; k++) {
        if (k && k % 3 == 0)
            digits[--to] = ',';
        digits[--to] = digits[i];
    }
}

static bool format_integer(int64_t i, const struct spec *s, char *out, size_t room)
{
    uint64_t u = i < 0 ? 0 - (uint64_t)i : (uint64_t)i;
    const char *sign = i < 0 ? "-" : s->sign == '+' ? "+" : s->sign == ' ' ? " " : "";
    int k = snprintf(out, room, "%s", sign);
    switch (s->type) {
    case 0:
    case 'd':
    case 'i':
    case 'u':
        snprintf(out + k, room - (size_t)k, "%" PRIu64, u);
        return true;
    case 'x':
        snprintf(out + k, room - (size_t)k, s->alt ? "0x%" PRIx64 : "%" PRIx64, u);
        return true;
    case 'X':
        snprintf(out + k, room - (size_t)k, s->alt ? "0X%" PRIX64 : "%" PRIX64, u);
        return true;
    case 'o':
        snprintf(out + k, room - (size_t)k, s->alt ? "0o%" PRIo64 : "%" PRIo64, u);
        return true;
    case 'b':
        k += snprintf(out + k, room - (size_t)k, "%s", s->alt ? "0b" : "");
        for (int bit = u ? 63 - __builtin_clzll(u) : 0; bit >= 0; bit--)
            out[k++] = (char)('0' + (u >> bit & 1));
        out[k] = 0;
        return true;
    default:
        return false;
    }
}

static bool format_double(double f, const struct spec *s, char *out, size_t room)
{
    const char *sign = signbit(f) && !isnan(f) ? "-" : s->sign == '+' ? "+" : s->sign == ' ' ? " " : "";
    char fmt[8] = "%.*", number[40];
    int precision = s->precision < 0 ? 6 : s->precision > 100 ? 100 : (int)s->precision;
    if (!s->type && s->precision < 0) {
        template_format_float(fabs(f), number);
        snprintf(out, room, "%s%s", sign, number);
        return true;
    }
    if (s->type && !strchr("eEfFgG%", s->type))
        return false;
    fmt[3] = s->type == '%' ? 'f' : s->type ? s->type : 'g';
    int k = snprintf(out, room, "%s", sign);
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
    snprintf(out + k, room - (size_t)k, fmt, precision, fabs(s->type == '%' ? f * 100 : f));
#pragma GCC diagnostic pop
    if (s->type == '%')
        strncat(out, "%", room - strlen(out) - 1);
    return true;
}

static void put_padded(struct run *r, struct out *o, const struct str *s, const struct spec *spec, char align)
{
    if (align == '=') {  // padding goes behind the sign
        size_t k = s->len && (*s->p == '-' || *s->p == '+' || *s->p == ' ');
        struct spec rest = *spec;
        rest.width -= (int64_t)k;
        template_value_out_sub(r, o, s, 0, k);
        struct value tail = template_value_sub(r, s, k, s->len);
        put_padded(r, o, tail.s, &rest, '>');
        return;
    }
    struct value v = template_text_pad(r, s, spec->width, align, &spec->fill);
    if (v.type == V_STR)
        template_value_out_str(r, o, v.s);
}

static void put_number(struct run *r, struct out *o, const char *number, const struct spec *s)
{
    struct str text_of = {.p = number, .len = strlen(number)};
    put_padded(r, o, &text_of, s, s->align ? s->align : '>');
}

static void put_field(struct run *r, struct out *o, struct value v, const struct spec *s)
{
    char number[512];
    int64_t i;
    double f;
    bool ok = false;
    if (v.type == V_INT && (!s->type || !strchr("eEfFgG%", s->type)) && template_ops_as_int(v, &i))
        ok = format_integer(i, s, number, sizeof number);
    else if (v.type == V_BOOL && (s->type ? strchr("dxXob", s->type) != NULL : s->width > 0) &&
             template_ops_as_int(v, &i))
        ok = format_integer(i, s, number, sizeof number);
    else if (v.type == V_INT || v.type == V_FLOAT)
        ok = template_ops_as_float(v, &f) && format_double(f, s, number, sizeof number);
    if (ok) {
        if (s->comma)
            group_thousands(number, sizeof number);
        put_number(r, o, number, s);
        return;
    }
    struct value str = template_format_str(r, v);
    bool number_as_text = s->type == 's' && v.type != V_STR;
    if ((s->type && s->type != 's') || number_as_text || r->failed || s->sign || s->comma) {
        template_value_fail(r, ERR_INVALID, "this format does not fit an object of type '%s'", template_value_type(v));
        return;
    }
    if (s->precision >= 0)
        str = template_value_sub(r, str.s, 0, template_value_offset(str.s, (size_t)s->precision));
    put_padded(r, o, str.s, s, s->align && s->align != '=' ? s->align : '<');
}

static int64_t read_number(const struct str *s, size_t *i)
{
    int64_t n = 0;
    for (; *i < s->len && s->p[*i] >= '0' && s->p[*i] <= '9'; ++*i)
        n = n <= TEMPLATE_MAX_OUTPUT ? n * 10 + s->p[*i] - '0' : n;
    return n;
}

// ---- the % operator

struct percent {
    struct value args;
    size_t next;
    bool tuple, mapping;
};

static struct value percent_arg(struct run *r, struct percent *p)
{
    if (p->tuple ? p->next < p->args.seq->n : p->next == 0) {
        p->next++;
        return p->tuple ? p->args.seq->v[p->next - 1] : p->args;
    }
    return template_value_fail(r, ERR_INVALID, "not enough arguments for format string");
}

static struct value percent_key(struct run *r, const struct str *fmt, size_t *i, struct percent *p)
{
    size_t from = ++*i;
    while (*i < fmt->len && fmt->p[*i] != ')')
        ++*i;
    struct value key = template_value_sub(r, fmt, from, *i < fmt->len ? *i : fmt->len);
    ++*i;
    const struct value *v = p->args.type == V_DICT ? template_value_find(r, p->args.dict, key) : NULL;
    p->mapping = true;
    return v ? *v : template_value_fail(r, ERR_INVALID, "format requires a mapping with the key it names");
}

static void percent_field(struct run *r, struct out *o, const struct str *fmt, size_t *i, struct percent *p)
{
    struct spec s = {.fill = {.p = " ", .len = 1}, .precision = -1};
    struct value v = {.type = V_ABSENT};
    double f;
    bool zero = false;
    if (*i < fmt->len && fmt->p[*i] == '(')
        v = percent_key(r, fmt, i, p);
    for (; *i < fmt->len && fmt->p[*i] && strchr("-+ #0", fmt->p[*i]); ++*i) {
        char c = fmt->p[*i];
        if (c == '-')
            s.align = '<';
        else if (c == '+' || c == ' ')
            s.sign = c;
        s.alt |= c == '#';
        zero |= c == '0';
    }
    s.width = read_number(fmt, i);
    if (*i < fmt->len && fmt->p[*i] == '.') {
        ++*i;
        s.precision = read_number(fmt, i);
    }
    s.type = *i < fmt->len ? fmt->p[(*i)++] : 0;
    if (s.type == '%') {
        template_value_out_sub(r, o, fmt, *i - 1, *i);
        return;
    }
    if (!s.type || !strchr("sdiuxXorfFeEgGc", s.type)) {
        template_value_fail(r, ERR_INVALID, "unsupported format character or incomplete format");
        return;
    }
    if (v.type == V_ABSENT)
        v = percent_arg(r, p);
    bool number = !strchr("src", s.type);
    if (number && !template_ops_as_float(v, &f) && !r->failed)
        template_value_fail(r, ERR_INVALID, "%%%c format: a real number is required, not %s", s.type,
                            template_value_type(v));
    if (number && strchr("diu", s.type) && v.type == V_FLOAT)
        v = fabs(v.f) < 9e18 ? (struct value){.type = V_INT, .i = (int64_t)v.f}
                             : template_value_fail(r, ERR_INVALID, "cannot convert this float to integer");
    if (r->failed)
        return;
    if (zero && number && !s.align) {
        s.fill.p = "0";
        s.align = '=';
    }
    if (!s.align)
        s.align = '>';
    if (s.type == 'r') {
        struct out repr = {0};
        repr_value(r, &repr, v, false);
        v = template_value_out_take(r, &repr);
    } else if (s.type == 's') {
        v = template_format_str(r, v);
    }
    if (s.type == 'r' || s.type == 's' || s.type == 'c')
        s.type = s.sign = 0;
    else if (v.type == V_BOOL)
        v = (struct value){.type = V_INT, .i = v.b};
    s.precision = s.type && strchr("diuxXo", s.type) ? -1 : s.precision;
    put_field(r, o, v, &s);
}

struct value template_format_percent(struct run *r, const struct str *fmt, struct value args)
{
    struct percent p = {.args = args, .tuple = args.type == V_SEQ && args.seq->kind == SEQ_TUPLE};
    struct out o = {0};
    for (size_t i = 0; i < fmt->len && !r->failed;) {
        const char *hit = memchr(fmt->p + i, '%', fmt->len - i);
        size_t at = hit ? (size_t)(hit - fmt->p) : fmt->len;
        template_value_out_sub(r, &o, fmt, i, at);
        i = at + 1;
        if (hit)
            percent_field(r, &o, fmt, &i, &p);
    }
    bool all =
        p.mapping || (p.tuple ? p.next == args.seq->n : p.next == 1 || args.type == V_DICT || args.type == V_SEQ);
    if (!all)
        template_value_fail(r, ERR_INVALID, "not all arguments converted during string formatting");
    return template_value_out_take(r, &o);
}

// ---- str.format

static void read_spec(struct run *r, const struct str *t, struct spec *s)
{
    size_t i = 0;
    *s = (struct spec){.fill = {.p = " ", .len = 1}, .precision = -1};
    size_t first = t->len ? template_value_offset(t, 1) : 0;
    if (first < t->len && t->len && strchr("<>^=", t->p[first]) && t->p[first]) {
        s->fill = (struct str){.p = t->p, .len = first, .untrusted = t->mask ? t->mask[0] : t->untrusted};
        s->align = t->p[first];
        i = first + 1;
    } else if (t->len && t->p[0] && strchr("<>^=", t->p[0])) {
        s->align = t->p[i++];
    }
    if (i < t->len && t->p[i] && strchr("+- ", t->p[i]))
        s->sign = t->p[i++];
    if (i < t->len && t->p[i] == '#') {
        s->alt = true;
        i++;
    }
    if (i < t->len && t->p[i] == '0') {
        i++;
        if (!s->align) {
            s->align = '=';
            s->fill = (struct str){.p = "0", .len = 1};
        }
    }
    s->width = read_number(t, &i);
    if (i < t->len && t->p[i] == ',') {
        s->comma = true;
        i++;
    }
    if (i < t->len && t->p[i] == '.') {
        i++;
        s->precision = read_number(t, &i);
    }
    if (i < t->len)
        s->type = t->p[i++];
    if (i != t->len)
        template_value_fail(r, ERR_INVALID, "invalid format specifier");
}

enum { NUMBERED = -1 };  // in place of the count of automatic fields once a field said its number

static struct value first_arg(struct run *r, const struct str *name, const struct args *a, int64_t *automatic)
{
    size_t i = 0;
    if (!name->len || (name->p[0] >= '0' && name->p[0] <= '9')) {
        if (name->len ? *automatic > 0 : *automatic == NUMBERED)
            return template_value_fail(r, ERR_INVALID, "a format string cannot mix numbered and automatic fields");
        size_t n = name->len ? (size_t)read_number(name, &i) : (size_t)(*automatic)++;
        if (name->len)
            *automatic = NUMBERED;
        if (i == name->len && n < a->npos)
            return a->pos[n];
        return template_value_fail(r, ERR_INVALID, "replacement index %zu out of range for positional args", n);
    }
    for (size_t k = 0; k < a->nkw; k++)
        if (a->kw[k].name->len == name->len && !memcmp(a->kw[k].name->p, name->p, name->len))
            return a->kw[k].v;
    return template_value_fail(r, ERR_INVALID, "format has no argument '%.*s'", (int)(name->len & 0xFF), name->p);
}

static struct value field_value(struct run *r, const struct str *name, const struct args *a, int64_t *automatic)
{
    size_t i = 0, from;
    while (i < name->len && name->p[i] != '.' && name->p[i] != '[')
        i++;
    struct str part = {.p = name->p, .len = i};
    struct value v = first_arg(r, &part, a, automatic);
    while (i < name->len && !r->failed) {
        bool attr = name->p[i++] == '.';
        for (from = i; i < name->len && (attr ? name->p[i] != '.' && name->p[i] != '[' : name->p[i] != ']');)
            i++;
        struct value key = template_value_sub(r, name, from, i);
        size_t k = 0;
        int64_t n = read_number(key.s, &k);
        if (attr)
            v = template_ops_attr(r, v, key.s);
        else
            v = template_ops_item(r, v, key.s->len && k == key.s->len ? (struct value){.type = V_INT, .i = n} : key);
        i += !attr && i < name->len;
    }
    return v;
}

static void braces_field(struct run *r, struct out *o, const struct str *field, const struct args *a,
                         int64_t *automatic)
{
    size_t end = 0;
    char conversion = 0;
    while (end < field->len && field->p[end] != ':' && field->p[end] != '!')
        end++;
    struct str name = {.p = field->p, .len = end}, spec_text = {.p = ""};
    if (end + 1 < field->len && field->p[end] == '!') {
        conversion = field->p[end + 1];
        end += 2;
    }
    if (end < field->len)
        spec_text = (struct str){.p = field->p + end + 1, .len = field->len - end - 1};
    struct value v = field_value(r, &name, a, automatic);
    struct spec s;
    read_spec(r, &spec_text, &s);
    if (r->failed)
        return;
    struct out text_of = {0};
    if (conversion == 'r' || conversion == 'a')
        repr_value(r, &text_of, v, false);
    else if (conversion == 's' || !spec_text.len)
        template_format_print(r, &text_of, v);
    else {
        put_field(r, o, v, &s);
        return;
    }
    v = template_value_out_take(r, &text_of);
    put_field(r, o, v, &s);
}

struct value template_format_braces(struct run *r, const struct str *fmt, const struct args *a)
{
    struct out o = {0};
    int64_t automatic = 0;
    for (size_t i = 0; i < fmt->len && !r->failed;) {
        char c = fmt->p[i];
        if (c != '{' && c != '}') {
            size_t from = i;
            while (i < fmt->len && fmt->p[i] != '{' && fmt->p[i] != '}')
                i++;
            template_value_out_sub(r, &o, fmt, from, i);
            continue;
        }
        if (i + 1 < fmt->len && fmt->p[i + 1] == c) {
            template_value_out_sub(r, &o, fmt, i, i + 1);
            i += 2;
            continue;
        }
        const char *end = c == '{' ? memchr(fmt->p + i, '}', fmt->len - i) : NULL;
        if (!end) {
            template_value_fail(r, ERR_INVALID, "single '%c' encountered in format string", c);
            break;
        }
        if (memchr(fmt->p + i + 1, '{', (size_t)(end - fmt->p) - i - 1)) {
            template_value_fail(r, ERR_UNSUPPORTED, "fields inside fields of a format string are not supported");
            break;
        }
        struct str field = {.p = fmt->p + i + 1, .len = (size_t)(end - fmt->p) - i - 1};
        braces_field(r, &o, &field, a, &automatic);
        i = (size_t)(end - fmt->p) + 1;
    }
    return template_value_out_take(r, &o);
}
