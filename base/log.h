// log.h - lines on stderr. Only server/ logs above debug; everything else returns an err.
//
// Each line: the sd-daemon priority prefix when stderr is the journal; then the time and the text, or one JSON object with
// time, level and message. One write per line. Any thread.
#pragma once

#include <stdbool.h>
#include <stddef.h>

enum log_level { LOG_LEVEL_ERROR, LOG_LEVEL_WARN, LOG_LEVEL_INFO, LOG_LEVEL_DEBUG };

void log_set_level(enum log_level level);
enum log_level log_get_level(void);
void log_set_json(bool on);
bool log_is_json(void);
void log_write(enum log_level level, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
// A JSON object of time, level and these members, "name":value,... as they are.
void log_members(enum log_level level, const char *members, size_t len);
// At most n bytes of s as the inside of a JSON string, in out[cap]; bytes that are no text become '?'.
const char *log_escape(const char *s, size_t n, char *out, size_t cap);

#define log_error(...) log_write(LOG_LEVEL_ERROR, __VA_ARGS__)
#define log_warn(...) log_write(LOG_LEVEL_WARN, __VA_ARGS__)
#define log_info(...) log_write(LOG_LEVEL_INFO, __VA_ARGS__)
#define log_debug(...) log_write(LOG_LEVEL_DEBUG, __VA_ARGS__)
