// number.c - a number is compared with its bounds digit by digit. Prep threads.
//
// A state knows how many digits there are and how they compare with as many of each bound's (only the bounds of its
// sign, as magnitudes). Until the integer part ends its length is open, so a shorter one is smaller whatever its digits.
#include "engine/grammar/number.h"

#include <string.h>

enum { DIGITS = 18, LONG_MULTIPLE_DIGITS = 12, FRACTION = 17, EXPONENT = 2, STATES = 60000 };

enum phase { START, SIGN, ZERO, INTEGER, POINT, FRACTIONAL, E, E_SIGN, E_DIGITS };

struct state {
    uint8_t phase, negative, nonzero;
    int8_t low, high;  // the digits so far against the bounds': -1, 0, 1
    uint16_t n;        // digits of this part
    uint32_t rest;     // of the value divided by multiple
};

// Of one sign, as magnitudes. NULL: none.
struct bounds {
    const struct decimal *low, *high;
    bool exclusive_low, exclusive_high;
    bool none;  // no number of this sign is allowed
};

struct number {
    const struct number_spec *s;
    struct bounds by_sign[2];
    uint32_t digits, fraction;
    bool exponent;
};

static int digit_of_integer(const struct decimal *d, uint32_t i)
{
    return i < (uint32_t)d->nint ? d->integer[i] - '0' : -1;
}

static int digit_of_fraction(const struct decimal *d, uint32_t i)
{
    return i < (uint32_t)d->nfraction ? d->fraction[i] - '0' : 0;
}

static int8_t with_digit(int8_t so_far, int digit, int bound)
{
    return so_far ? so_far : (int8_t)((digit > bound) - (digit < bound));
}

// The integer part has ended with n digits that compare so.
static int8_t whole(int8_t so_far, uint32_t n, const struct decimal *bound)
{
    uint32_t nb = (uint32_t)bound->nint;
    return n < nb ? -1 : n > nb ? 1 : so_far;
}

static int8_t final(const struct state *s, int8_t so_far, const struct decimal *bound)
{
    bool integer = s->phase == ZERO || s->phase == INTEGER;
    int8_t c = integer ? whole(so_far, s->n, bound) : so_far;
    uint32_t seen = integer ? 0 : s->n;
    return c == 0 && (uint32_t)bound->nfraction > seen ? -1 : c;
}

static bool in_bounds(const struct number *a, const struct state *s)
{
    const struct bounds *b = &a->by_sign[s->negative];
    if (b->none)
        return false;
    if (b->low) {
        int8_t c = final(s, s->low, b->low);
        if (c < 0 || (c == 0 && b->exclusive_low))
            return false;
    }
    if (b->high) {
        int8_t c = final(s, s->high, b->high);
        if (c > 0 || (c == 0 && b->exclusive_high))
            return false;
    }
    return true;
}

static bool accepts(void *ud, const void *key, size_t len)
{
    const struct number *a = ud;
    struct state s;
    memcpy(&s, key, len);
    if (s.phase == E_DIGITS)
        return true;
    if (s.phase != ZERO && s.phase != INTEGER && s.phase != FRACTIONAL)
        return false;
    return (!s.negative || s.nonzero) && s.rest == 0 && in_bounds(a, &s);
}

static void go(struct chardfa_explorer *x, char c, const struct state *to)
{
    chardfa_edge(x, (unsigned char)c, (unsigned char)c, to, sizeof *to);
}

static struct state with_phase(const struct state *s, enum phase phase)
{
    struct state to = *s;
    to.phase = (uint8_t)phase;
    return to;
}

static void integer_digit(const struct number *a, const struct state *s, int d, struct chardfa_explorer *x)
{
    const struct bounds *b = &a->by_sign[s->negative];
    struct state to = with_phase(s, d == 0 && s->phase != INTEGER ? ZERO : INTEGER);
    if (to.phase == INTEGER) {
        to.low = b->low ? with_digit(s->low, d, digit_of_integer(b->low, s->n)) : 0;
        to.high = b->high ? with_digit(s->high, d, digit_of_integer(b->high, s->n)) : 0;
        to.n++;
        to.nonzero = 1;
    }
    to.rest = a->s->multiple ? (s->rest * 10 + (uint32_t)d) % a->s->multiple : 0;
    go(x, (char)('0' + d), &to);
}

static void fraction_digit(const struct number *a, const struct state *s, int d, struct chardfa_explorer *x)
{
    const struct bounds *b = &a->by_sign[s->negative];
    struct state to = with_phase(s, FRACTIONAL);
    to.low = b->low ? with_digit(s->low, d, digit_of_fraction(b->low, s->n)) : 0;
    to.high = b->high ? with_digit(s->high, d, digit_of_fraction(b->high, s->n)) : 0;
    to.n++;
    to.nonzero |= d != 0;
    go(x, (char)('0' + d), &to);
}

static void point(const struct number *a, const struct state *s, struct chardfa_explorer *x)
{
    const struct bounds *b = &a->by_sign[s->negative];
    struct state to = with_phase(s, POINT);
    to.low = b->low ? whole(s->low, s->n, b->low) : 0;
    to.high = b->high ? whole(s->high, s->n, b->high) : 0;
    to.n = 0;
    go(x, '.', &to);
}

static void exponent(const struct state *s, struct chardfa_explorer *x)
{
    struct state to = {.phase = E};
    if (s->phase == E)
        to.phase = E_SIGN;
    go(x, s->phase == E ? '+' : 'E', &to);
    if (s->phase == E)
        go(x, '-', &to);
}

// The edges in ascending order: + - . 0-9 E e.
static void edges(void *ud, const void *key, size_t len, struct chardfa_explorer *x)
{
    const struct number *a = ud;
    struct state s, to;
    memcpy(&s, key, len);
    bool in_integer = s.phase == ZERO || s.phase == INTEGER;
    if (s.phase == E)
        exponent(&s, x);
    if (s.phase == START && !a->by_sign[1].none) {
        to = with_phase(&s, SIGN);
        to.negative = 1;
        go(x, '-', &to);
    }
    if (in_integer && !a->s->integer && !a->s->multiple)
        point(a, &s, x);
    for (int d = 0; d <= 9; d++) {
        if (s.phase == START || s.phase == SIGN || (s.phase == INTEGER && s.n < a->digits))
            integer_digit(a, &s, d, x);
        else if (s.phase == POINT || (s.phase == FRACTIONAL && s.n < a->fraction))
            fraction_digit(a, &s, d, x);
        else if (s.phase >= E && s.n < EXPONENT) {
            to = with_phase(&s, E_DIGITS);
            to.n++;
            go(x, (char)('0' + d), &to);
        }
    }
    bool may = (in_integer || s.phase == FRACTIONAL) && (!s.negative || s.nonzero);
    if (a->exponent && may) {
        exponent(&s, x);
        go(x, 'e', &(struct state){.phase = E});
    }
}

static void set_bounds(struct number *a)
{
    static const struct decimal zero = {0};
    const struct number_spec *s = a->s;
    struct bounds *plus = &a->by_sign[0], *minus = &a->by_sign[1];
    *plus = (struct bounds){.low = s->min, .high = s->max, s->exclusive_min, s->exclusive_max, false};
    *minus = (struct bounds){.low = s->max, .high = s->min, s->exclusive_max, s->exclusive_min, false};
    if (s->min && s->min->negative)
        plus->low = NULL;
    plus->none = s->max && s->max->negative;
    if (s->max && !s->max->negative)
        minus->low = NULL;
    minus->none = s->min && !s->min->negative;
    if (!minus->low) {  // never -0
        minus->low = &zero;
        minus->exclusive_low = true;
    }
}

static uint32_t at_least(uint32_t a, int b)
{
    return b > (int)a ? (uint32_t)b : a;
}

err_code number_compile(const struct number_spec *s, struct chardfa_budget *b, struct chardfa **ret_dfa, err *e)
{
    struct number a = {.s = s, .digits = s->multiple > 256 ? LONG_MULTIPLE_DIGITS : DIGITS, .fraction = FRACTION};
    a.exponent = !s->integer && !s->min && !s->max && !s->multiple;
    set_bounds(&a);
    for (int i = 0; i < 2; i++) {
        const struct decimal *d = i ? s->max : s->min;
        if (!d)
            continue;
        if (d->nint >= (int)a.digits)
            a.digits = at_least(a.digits, d->nint + 1);
        a.fraction = at_least(a.fraction, d->nfraction + 1);
    }
    struct state start = {.phase = START};
    struct chardfa_source source = {&a, accepts, edges};
    struct chardfa_budget own = {STATES, b->work};
    err_code code = chardfa_explore(&source, &start, sizeof start, &own, ret_dfa, e);
    b->work = own.work;
    return code;
}
