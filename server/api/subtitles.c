// subtitles.c - times are rounded half to even to milliseconds and then split, so that 59.9996 s is 00:01:00,000. What
// would end a cue or pass for a time line is replaced: line breaks by blanks, "-->" by "->".
#include "server/api/subtitles.h"

#include <math.h>

void api_subtitles_begin(struct buf *b, enum subtitles_format format)
{
    if (format == SUBTITLES_VTT)
        buf_add_str(b, "WEBVTT\n\n");
}

static void add_time(struct buf *b, enum subtitles_format format, double s)
{
    long long ms = llrint((s > 0 && s < 1e9 ? s : 0) * 1000);
    buf_printf(b, "%02lld:%02lld:%02lld%c%03lld", ms / 3600000, ms / 60000 % 60, ms / 1000 % 60,
               format == SUBTITLES_SRT ? ',' : '.', ms % 1000);
}

static bool is_space(char c)
{
    return c == ' ' || c == '\t' || c == '\r' || c == '\n';
}

static void add_text(struct buf *b, enum subtitles_format format, const char *text, size_t len)
{
    for (size_t i = 0; i < len; i++) {
        char c = text[i];
        if (c == '-' && i + 2 < len && text[i + 1] == '-' && text[i + 2] == '>') {
            buf_add_str(b, "->");
            i += 2;
        } else if (c == '\r' || c == '\n') {
            buf_add_char(b, ' ');
        } else if (format == SUBTITLES_VTT && (c == '&' || c == '<')) {
            buf_add_str(b, c == '&' ? "&amp;" : "&lt;");
        } else if (c) {
            buf_add_char(b, c);
        }
    }
}

bool api_subtitles_add(struct buf *b, enum subtitles_format format, int number, double start_s, double end_s, const char *text,
                       size_t len)
{
    while (len && is_space(*text)) {
        text++;
        len--;
    }
    while (len && is_space(text[len - 1]))
        len--;
    if (!len)
        return false;
    if (format == SUBTITLES_SRT)
        buf_printf(b, "%d\n", number);
    add_time(b, format, start_s);
    buf_add_str(b, " --> ");
    add_time(b, format, end_s);
    buf_add_char(b, '\n');
    add_text(b, format, text, len);
    buf_add_str(b, "\n\n");
    return true;
}
