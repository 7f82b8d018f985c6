// err.h - the one error type. A fallible function returns an err_code and fills the caller's err:
//
//     err e = {0};
//     if (gguf_open(path, &g, &e))            // non-zero is failure
//         return err_wrap(&e, "model '%s'", name);
//
// The text says what was found and what was expected. Outputs named ret_* are written only on success.
// Nothing here allocates; an err may be copied and kept. The server alone maps codes to HTTP statuses.
#pragma once

#define ERR_MAP(X)                                                        \
    X(ERR_OK, "ok")                                                       \
    X(ERR_INVALID, "invalid value")          /* the caller's input */     \
    X(ERR_NOT_FOUND, "not found")                                         \
    X(ERR_UNSUPPORTED, "not supported")      /* known, not built here */  \
    X(ERR_TOO_LARGE, "too large")                                         \
    X(ERR_CONTEXT, "context length exceeded")                             \
    X(ERR_CORRUPT, "damaged file")                                        \
    X(ERR_IO, "input/output error")                                       \
    X(ERR_MEMORY, "out of memory")                                        \
    X(ERR_QUOTA, "caller's own limit reached")                            \
    X(ERR_BUSY, "server is full")                                         \
    X(ERR_LOADING, "model is loading")                                    \
    X(ERR_DRAINING, "server is shutting down")                            \
    X(ERR_TIMEOUT, "deadline passed")                                     \
    X(ERR_LATE, "waited too long to begin")                               \
    X(ERR_CANCELLED, "cancelled")                                         \
    X(ERR_INTERNAL, "internal error")

typedef enum err_code {
#define X(code, text) code,
    ERR_MAP(X)
#undef X
} err_code;

typedef struct err {
    err_code code;
    int retry_ms;    // when trying again is worth it; 0: not known
    char param[96];  // the field, setting or tensor at fault; "" when none
    char text[512];  // one sentence, UTF-8, no newline
} err;

#define MUST_CHECK __attribute__((warn_unused_result))

// Short fixed text of a code, for logs.
const char *err_name(err_code code);

// Fills *e and yields code, so that a caller can write `return err_set(e, ERR_IO, "...", ...)`; e may be NULL. Text that
// does not fit is cut at a character border. (Macros, so that the compiler sees that the result is not ERR_OK.)
#define err_set(e, code, ...) err_same((err_fill(e, code, "", __VA_ARGS__), (code)))
// The same, naming the field (or tensor) that is wrong.
#define err_set_param(e, code, param, ...) err_same((err_fill(e, code, param, __VA_ARGS__), (code)))

// The same for a refusal that ends by itself, after about so many milliseconds.
#define err_set_retry(e, code, ms, ...) err_same((err_fill(e, code, "", __VA_ARGS__), err_fill_retry(e, ms), (code)))

static inline err_code err_same(err_code code)  // a call, so that a result nobody wants is no warning
{
    return code;
}
void err_fill(err *e, err_code code, const char *param, const char *fmt, ...) __attribute__((format(printf, 4, 5)));

void err_fill_retry(err *e, int ms);

// Puts "context: " in front of the text of a filled error; returns its code.
err_code err_wrap(err *e, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

// Puts `instead` in the place of a path wherever the text names it. For texts that leave the machine. A path without '/'
// stays: it tells nothing, and might be a word of the text. NULL: nothing.
void err_hide_path(err *e, const char *path, const char *instead);
