#include "base/log.h"

#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#include "base/utf8.h"

enum { LINE_BYTES = 2048 };

static atomic_int threshold = LOG_LEVEL_INFO;
static atomic_bool json;

static const char *const word[] = {"error", "warn", "info", "debug"};

void log_set_level(enum log_level level)
{
    atomic_store_explicit(&threshold, (int)level, memory_order_relaxed);
}

enum log_level log_get_level(void)
{
    return (enum log_level)atomic_load_explicit(&threshold, memory_order_relaxed);
}

void log_set_json(bool on)
{
    atomic_store_explicit(&json, on, memory_order_relaxed);
}

bool log_is_json(void)
{
    return atomic_load_explicit(&json, memory_order_relaxed);
}

static size_t put_time(char *out, size_t cap)
{
    struct timespec ts;
    struct tm tm;
    clock_gettime(CLOCK_REALTIME, &ts);
    gmtime_r(&ts.tv_sec, &tm);
    size_t n = strftime(out, cap, "%FT%T", &tm);
    return n + (size_t)snprintf(out + n, cap - n, ".%03ldZ", ts.tv_nsec / 1000000);
}

// The journal's prefix, if it reads.
static size_t put_priority(char *out, size_t cap, enum log_level level)
{
    static const int priority[] = {3, 4, 6, 7};
    return getenv("JOURNAL_STREAM") ? (size_t)snprintf(out, cap, "<%d>", priority[level]) : 0;
}

const char *log_escape(const char *s, size_t n, char *out, size_t cap)
{
    size_t len = strnlen(s, n), at = 0;
    len = utf8_complete(s, len);
    for (size_t i = 0; i < len && at + 7 < cap;) {
        uint32_t cp;
        int step = utf8_decode(s + i, len - i, &cp);
        unsigned char c = (unsigned char)s[i];
        if (step > 1)
            memcpy(out + at, s + i, (size_t)step);
        if (step > 1)
            at += (size_t)step;
        else if (!step)
            out[at++] = '?';
        else if (c == '"' || c == '\\')
            at += (size_t)snprintf(out + at, cap - at, "\\%c", c);
        else if (c < 0x20 || c == 0x7F)
            at += (size_t)snprintf(out + at, cap - at, "\\u%04x", c);
        else
            out[at++] = (char)c;
        i += step ? (size_t)step : 1;
    }
    out[at] = 0;
    return out;
}

void log_members(enum log_level level, const char *members, size_t len)
{
    char head[96], time[40];
    if (level > log_get_level())
        return;
    put_time(time, sizeof time);
    size_t n = put_priority(head, sizeof head, level);
    n += (size_t)snprintf(head + n, sizeof head - n, "{\"time\":\"%s\",\"level\":\"%s\",", time, word[level]);
    struct iovec line[] = {{head, n}, {(void *)(uintptr_t)members, len}, {"}\n", 2}};
    (void)!writev(STDERR_FILENO, line, 3);
}

static void write_message(enum log_level level, const char *fmt, va_list ap)
{
    char text[LINE_BYTES], members[2 * LINE_BYTES] = "\"message\":\"";
    vsnprintf(text, sizeof text, fmt, ap);
    size_t n = strlen(members);
    log_escape(text, sizeof text, members + n, sizeof members - n - 2);
    n = strlen(members);
    members[n] = '"';
    log_members(level, members, n + 1);
}

static void write_line(enum log_level level, const char *fmt, va_list ap)
{
    char line[LINE_BYTES];
    size_t n = put_priority(line, sizeof line, level);
    if (n == 0) {
        n = put_time(line, sizeof line);
        n += (size_t)snprintf(line + n, sizeof line - n, " %s ", word[level]);
    }
    int m = vsnprintf(line + n, sizeof line - n - 1, fmt, ap);
    n += m < 0 ? 0 : (size_t)m;
    if (n > sizeof line - 2)
        n = sizeof line - 2;
    for (char *p = line; p < line + n; p++)
        if ((unsigned char)*p < ' ' || *p == 127)
            *p = ' ';  // text from outside forges no line, and says nothing to a terminal
    line[n++] = '\n';
    (void)!write(STDERR_FILENO, line, n);
}

void log_write(enum log_level level, const char *fmt, ...)
{
    if (level > log_get_level())
        return;
    va_list ap;
    va_start(ap, fmt);
    if (log_is_json())
        write_message(level, fmt, ap);
    else
        write_line(level, fmt, ap);
    va_end(ap);
}
