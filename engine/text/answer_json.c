// answer_json.c - is this JSON? One byte at a time, without building anything: arguments of a call are passed on as they
// are written, and where they end must be known at once. Any thread; the state is the caller's.
#include <string.h>

#include "engine/text/answer_int.h"

enum {
    J_VALUE, J_FIRST,       // a value; a value or the end of an empty array
    J_KEY, J_FIRST_KEY,     // a key; a key or the end of an empty object
    J_COLON, J_NEXT,        // behind a value in an array or object
    J_STRING, J_KEY_STRING, J_ESCAPE, J_KEY_ESCAPE, J_HEX, J_KEY_HEX,
    J_MINUS, J_ZERO, J_DIGITS, J_POINT, J_FRACTION, J_E, J_E_SIGN, J_EXPONENT,
    J_LITERAL, J_DONE,
};

void answer_json_start(struct answer_json *j)
{
    memset(j, 0, sizeof *j);
    j->state = J_VALUE;
}

bool answer_json_in_string(const struct answer_json *j)
{
    return j->state == J_STRING || j->state == J_KEY_STRING;
}

static bool space(unsigned char c)
{
    return c == ' ' || c == '\n' || c == '\t' || c == '\r';
}

static bool digit(unsigned char c)
{
    return c >= '0' && c <= '9';
}

static bool in_object(const struct answer_json *j)
{
    int at = j->depth - 1;
    return j->objects[at / 64] >> (at % 64) & 1;
}

static enum answer_json_step value_ended(struct answer_json *j)
{
    j->state = j->depth ? J_NEXT : J_DONE;
    return j->depth ? JSON_MORE : JSON_END;
}

static enum answer_json_step open_bracket(struct answer_json *j, bool object)
{
    if (j->depth == ANSWER_JSON_DEPTH)
        return JSON_BAD;
    uint64_t bit = (uint64_t)1 << (j->depth % 64), *word = &j->objects[j->depth / 64];
    *word = object ? *word | bit : *word & ~bit;
    j->depth++;
    j->state = object ? J_FIRST_KEY : J_FIRST;
    return JSON_MORE;
}

static enum answer_json_step close_bracket(struct answer_json *j)
{
    j->depth--;
    return value_ended(j);
}

static enum answer_json_step literal(struct answer_json *j, const char *rest)
{
    j->literal = rest;
    j->state = J_LITERAL;
    return JSON_MORE;
}

static enum answer_json_step to(struct answer_json *j, unsigned char state)
{
    j->state = state;
    return JSON_MORE;
}

static enum answer_json_step value(struct answer_json *j, unsigned char c)
{
    switch (c) {
    case '{': return open_bracket(j, true);
    case '[': return open_bracket(j, false);
    case '"': return to(j, J_STRING);
    case 't': return literal(j, "rue");
    case 'f': return literal(j, "alse");
    case 'n': return literal(j, "ull");
    case '-': return to(j, J_MINUS);
    case '0': return to(j, J_ZERO);
    default: return digit(c) ? to(j, J_DIGITS) : space(c) ? JSON_MORE : JSON_BAD;
    }
}

// Raw control characters are taken: models write them, and who passes the text on escapes them.
static enum answer_json_step string(struct answer_json *j, unsigned char c)
{
    bool key = j->state == J_KEY_STRING;
    if (c == '\\')
        return to(j, key ? J_KEY_ESCAPE : J_ESCAPE);
    if (c != '"')
        return JSON_MORE;
    return key ? to(j, J_COLON) : value_ended(j);
}

static enum answer_json_step escape(struct answer_json *j, unsigned char c)
{
    bool key = j->state == J_KEY_ESCAPE;
    if (c == 'u') {
        j->left = 4;
        return to(j, key ? J_KEY_HEX : J_HEX);
    }
    return c && strchr("\"\\/bfnrt", c) ? to(j, key ? J_KEY_STRING : J_STRING) : JSON_BAD;
}

static enum answer_json_step hex(struct answer_json *j, unsigned char c)
{
    if (!c || !strchr("0123456789abcdefABCDEF", c))
        return JSON_BAD;
    return --j->left ? JSON_MORE : to(j, j->state == J_KEY_HEX ? J_KEY_STRING : J_STRING);
}

static enum answer_json_step next(struct answer_json *j, unsigned char c)
{
    if (space(c))
        return JSON_MORE;
    if (c == ',')
        return to(j, in_object(j) ? J_KEY : J_VALUE);
    return c == (in_object(j) ? '}' : ']') ? close_bracket(j) : JSON_BAD;
}

// A number ends before a byte that is not its own.
static enum answer_json_step number_ended(struct answer_json *j, unsigned char c)
{
    if (value_ended(j) == JSON_END)
        return JSON_AFTER;
    return next(j, c);
}

static enum answer_json_step number(struct answer_json *j, unsigned char c)
{
    switch (j->state) {
    case J_MINUS: return c == '0' ? to(j, J_ZERO) : digit(c) ? to(j, J_DIGITS) : JSON_BAD;
    case J_DIGITS:
        if (digit(c))
            return JSON_MORE;
        // fall through
    case J_ZERO:
        return c == '.' ? to(j, J_POINT) : c == 'e' || c == 'E' ? to(j, J_E) : number_ended(j, c);
    case J_POINT: return digit(c) ? to(j, J_FRACTION) : JSON_BAD;
    case J_FRACTION: return digit(c) ? JSON_MORE : c == 'e' || c == 'E' ? to(j, J_E) : number_ended(j, c);
    case J_E: return c == '+' || c == '-' ? to(j, J_E_SIGN) : digit(c) ? to(j, J_EXPONENT) : JSON_BAD;
    case J_E_SIGN: return digit(c) ? to(j, J_EXPONENT) : JSON_BAD;
    default: return digit(c) ? JSON_MORE : number_ended(j, c);
    }
}

enum answer_json_step answer_json_step(struct answer_json *j, unsigned char c)
{
    switch (j->state) {
    case J_VALUE: return value(j, c);
    case J_FIRST: return c == ']' ? close_bracket(j) : value(j, c);
    case J_FIRST_KEY:
        if (c == '}')
            return close_bracket(j);
        // fall through
    case J_KEY: return c == '"' ? to(j, J_KEY_STRING) : space(c) ? JSON_MORE : JSON_BAD;
    case J_COLON: return c == ':' ? to(j, J_VALUE) : space(c) ? JSON_MORE : JSON_BAD;
    case J_NEXT: return next(j, c);
    case J_STRING: case J_KEY_STRING: return string(j, c);
    case J_ESCAPE: case J_KEY_ESCAPE: return escape(j, c);
    case J_HEX: case J_KEY_HEX: return hex(j, c);
    case J_LITERAL:
        if (c != (unsigned char)*j->literal)
            return JSON_BAD;
        return *++j->literal ? JSON_MORE : value_ended(j);
    case J_DONE: return JSON_BAD;
    default: return number(j, c);
    }
}
