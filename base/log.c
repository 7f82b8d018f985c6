#include "base/log.h"

#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static atomic_int threshold = LOG_LEVEL_INFO;

void log_set_level(enum log_level level)
{
    atomic_store_explicit(&threshold, (int)level, memory_order_relaxed);
}

enum log_level log_get_level(void)
{
    return (enum log_level)atomic_load_explicit(&threshold, memory_order_relaxed);
}

void log_write(enum log_level level, const char *fmt, ...)
{
    if (level > log_get_level())
        return;
    static const char *const word[] = {"error", "warn", "info", "debug"};
    static const int priority[] = {3, 4, 6, 7};
    char line[2048];
    size_t n;
    if (getenv("JOURNAL_STREAM")) {
        n = (size_t)snprintf(line, sizeof line, "<%d>", priority[level]);
    } else {
        struct timespec ts;
        struct tm tm;
        clock_gettime(CLOCK_REALTIME, &ts);
        gmtime_r(&ts.tv_sec, &tm);
        n = strftime(line, sizeof line, "%FT%T", &tm);
        n += (size_t)snprintf(line + n, sizeof line - n, ".%03ldZ %s ", ts.tv_nsec / 1000000, word[level]);
    }
    va_list ap;
    va_start(ap, fmt);
    int m = vsnprintf(line + n, sizeof line - n - 1, fmt, ap);
    va_end(ap);
    n += m < 0 ? 0 : (size_t)m;
    if (n > sizeof line - 2)
        n = sizeof line - 2;
    for (char *p = line; p < line + n; p++)
        if (*p == '\n' || *p == '\r')
            *p = ' ';  // text from outside must not forge a line
    line[n++] = '\n';
    (void)!write(STDERR_FILENO, line, n);
}
