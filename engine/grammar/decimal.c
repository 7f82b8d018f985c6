// decimal.c - see the header.
#include "engine/grammar/decimal.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void strip(struct decimal *d)
{
    int zeros = 0;
    while (zeros < d->nint && d->integer[zeros] == '0')
        zeros++;
    d->nint -= zeros;
    memmove(d->integer, d->integer + zeros, (size_t)d->nint);
    while (d->nfraction > 0 && d->fraction[d->nfraction - 1] == '0')
        d->nfraction--;
    if (d->nint == 0 && d->nfraction == 0)
        d->negative = false;
}

bool decimal_parse(const char *text, struct decimal *ret)
{
    char digits[64];
    int n = 0, point = -1;
    struct decimal d = {.negative = *text == '-'};
    text += d.negative;
    for (; (*text >= '0' && *text <= '9') || (*text == '.' && point < 0); text++) {
        if (*text == '.')
            point = n;
        else if (n == (int)sizeof digits)
            return false;
        else
            digits[n++] = *text;
    }
    if (n == 0)
        return false;
    point = point < 0 ? n : point;
    if (*text == 'e' || *text == 'E') {
        char *end;
        long e = strtol(text + 1, &end, 10);
        if (end == text + 1 || *end || e > 400 || e < -400)
            return false;
        point += (int)e;
    } else if (*text) {
        return false;
    }
    for (int i = point < 0 ? point : 0; i < (point > n ? point : n); i++) {
        char c = i >= 0 && i < n ? digits[i] : '0';
        if (i < point && d.nint < DECIMAL_INT)
            d.integer[d.nint++] = c;
        else if (i >= point && d.nfraction < DECIMAL_FRACTION)
            d.fraction[d.nfraction++] = c;
        else
            return false;
    }
    strip(&d);
    *ret = d;
    return true;
}

bool decimal_of_json(const json_t *v, struct decimal *ret)
{
    char text[64];
    if (json_is_integer(v)) {
        snprintf(text, sizeof text, "%lld", (long long)json_integer_value(v));
        return decimal_parse(text, ret);
    }
    double x = json_real_value(v);
    for (int digits = 15; digits <= 17; digits++) {
        snprintf(text, sizeof text, "%.*e", digits - 1, x);
        if (strtod(text, NULL) == x)
            break;
    }
    return decimal_parse(text, ret);
}

static int by_size(const struct decimal *a, const struct decimal *b)
{
    if (a->nint != b->nint)
        return a->nint < b->nint ? -1 : 1;
    int c = memcmp(a->integer, b->integer, (size_t)a->nint);
    int n = a->nfraction < b->nfraction ? a->nfraction : b->nfraction;
    if (!c)
        c = memcmp(a->fraction, b->fraction, (size_t)n);
    return c ? c : (a->nfraction > b->nfraction) - (a->nfraction < b->nfraction);
}

int decimal_compare(const struct decimal *a, const struct decimal *b)
{
    if (a->negative != b->negative)
        return a->negative ? -1 : 1;
    int c = by_size(a, b);
    return a->negative ? -c : c;
}

bool decimal_is_integer(const struct decimal *d)
{
    return d->nfraction == 0;
}

bool decimal_is_multiple(const struct decimal *d, unsigned of)
{
    unsigned long rest = 0;
    for (int i = 0; i < d->nint; i++)
        rest = (rest * 10 + (unsigned long)(d->integer[i] - '0')) % of;
    return d->nfraction == 0 && rest == 0;
}
