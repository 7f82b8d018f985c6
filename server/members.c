// members.c - see members.h. Any thread.
#include "server/members.h"

#include "base/buf.h"
#include "base/log.h"

static void add_name(struct buf *b, const char *name)
{
    buf_add_str(b, b->len ? ",\"" : "\"");
    buf_add_str(b, name);
    buf_add_str(b, "\":");
}

void members_text(struct buf *b, const char *name, const char *value, size_t most)
{
    if (!value || !*value)
        return;
    char text[6 * MEMBERS_TEXT_MAX + 8];
    add_name(b, name);
    buf_add_char(b, '"');
    buf_add_str(b, log_escape(value, most < MEMBERS_TEXT_MAX ? most : MEMBERS_TEXT_MAX, text, sizeof text));
    buf_add_char(b, '"');
}

void members_int(struct buf *b, const char *name, long long value)
{
    add_name(b, name);
    buf_printf(b, "%lld", value);
}

void members_number(struct buf *b, const char *name, double value, int decimals)
{
    add_name(b, name);
    buf_printf(b, "%.*f", decimals, value);
}

void members_bool(struct buf *b, const char *name, int value)
{
    add_name(b, name);
    buf_add_str(b, value ? "true" : "false");
}
