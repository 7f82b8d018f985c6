// members.h - the members of a log line that is a JSON object (log_members), one after the other into a buffer.
#pragma once

#include <stddef.h>

struct buf;

enum { MEMBERS_TEXT_MAX = 512 };

// At most `most` bytes of value, and MEMBERS_TEXT_MAX; nothing when it is NULL or "".
void members_text(struct buf *b, const char *name, const char *value, size_t most);
void members_int(struct buf *b, const char *name, long long value);
void members_number(struct buf *b, const char *name, double value, int decimals);
void members_bool(struct buf *b, const char *name, int value);
