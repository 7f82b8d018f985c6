// The state machine of multipart/form-data.
//
//     CONTENT ──"\r\n--boundary"──▶ BORDER ──"\r\n"──▶ HEADERS ──empty line──▶ CONTENT
//        ▲         (as content: something else follows)│ "--"
//        └─────────────────────────────────────────────┴──▶ EPILOGUE
//
// What stands before the first boundary is CONTENT of no part. The delimiter has its only CR in front, so after a
// mismatch matching can only start again at the byte that did not match: no table of fall-backs is needed.
#include "server/multipart.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/mem.h"

enum { PADDING_MAX = 64 };  // blanks after a boundary

enum state { CONTENT, BORDER, HEADERS, EPILOGUE };

struct multipart {
    const struct multipart_sink *sink;
    void *ud;
    enum state state;
    bool in_part;
    int parts;
    char delimiter[MULTIPART_BOUNDARY_MAX + 5];
    size_t delimiter_len, matched;
    char border[PADDING_MAX];  // what followed a boundary so far
    size_t border_len;
    char *header;              // lines of the part so far, MULTIPART_HEADER_MAX + 1 bytes
    size_t header_len;
};

// ---- parameters of header values

static bool is_blank(char c)
{
    return c == ' ' || c == '\t';
}

static const char *skip_blanks(const char *s)
{
    while (is_blank(*s))
        s++;
    return s;
}

// Reads a value at s, quoted or a token, into out; returns where it ended, NULL when it does not fit or never ends.
// In quotes only \" and \\ are escapes: browsers write %22 and leave the backslashes of a path alone.
static const char *read_value(const char *s, char *out, size_t size)
{
    size_t n = 0;
    bool quoted = *s == '"';
    for (s += quoted; *s; s++) {
        if (quoted ? *s == '"' : *s == ';' || is_blank(*s))
            break;
        if (quoted && *s == '\\' && (s[1] == '"' || s[1] == '\\'))
            s++;
        if (n + 1 >= size)
            return NULL;
        out[n++] = *s;
    }
    out[n] = 0;
    if (!quoted)
        return s;
    return *s == '"' ? s + 1 : NULL;
}

// Finds parameter `name` behind the first ';' of a header's value.
static bool find_parameter(const char *value, const char *name, char *out, size_t size)
{
    char other[MULTIPART_HEADER_MAX + 1];
    size_t len = strlen(name);
    const char *s = value + strcspn(value, ";");
    while (*s == ';') {
        s = skip_blanks(s + 1);
        size_t n = strcspn(s, "=; \t");
        bool mine = n == len && !strncasecmp(s, name, n);
        s = skip_blanks(s + n);
        if (*s == '=') {
            const char *end = read_value(skip_blanks(s + 1), mine ? out : other, mine ? size : sizeof other);
            if (!end || mine)
                return end != NULL;
            s = end;
        }
        s += strcspn(s, ";");
    }
    return false;
}

static bool is_boundary_char(char c)
{
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
           (c && strchr("'()+_,-./:=? *$!#%&^`|~{}", c));
}

err_code multipart_boundary(const char *content_type, char ret_boundary[MULTIPART_BOUNDARY_MAX + 1], err *e)
{
    static const char type[] = "multipart/form-data";
    size_t n = strcspn(content_type, "; \t");
    if (n != sizeof type - 1 || strncasecmp(content_type, type, n))
        return err_set(e, ERR_INVALID, "Unsupported content type '%.100s'; expected 'multipart/form-data'.", content_type);
    char boundary[MULTIPART_BOUNDARY_MAX + 1];
    if (!find_parameter(content_type, "boundary", boundary, sizeof boundary) || !*boundary)
        return err_set(e, ERR_INVALID, "The content type 'multipart/form-data' needs a boundary of 1 to %d characters.",
                       MULTIPART_BOUNDARY_MAX);
    size_t len = strlen(boundary);
    for (size_t i = 0; i < len; i++)
        if (!is_boundary_char(boundary[i]))
            return err_set(e, ERR_INVALID, "The boundary in the content type has a character that is not allowed there.");
    memcpy(ret_boundary, boundary, len + 1);
    return ERR_OK;
}

// ---- a part's header lines

static int hex(char c)
{
    return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

// RFC 5987: charset'language'percent-encoded. In place; other charsets than UTF-8 keep their bytes.
static void decode_extended(char *s)
{
    char *in = strchr(s, '\''), *out = s;
    in = in ? strchr(in + 1, '\'') : NULL;
    in = in ? in + 1 : s;
    while (*in) {
        int hi = *in == '%' ? hex(in[1]) : -1, lo = hi >= 0 ? hex(in[2]) : -1;
        if (lo >= 0 && (hi || lo)) {
            *out++ = (char)(hi << 4 | lo);
            in += 3;
        } else {
            *out++ = *in++;
        }
    }
    *out = 0;
}

struct head {
    char name[MULTIPART_HEADER_MAX + 1], filename[MULTIPART_HEADER_MAX + 1], type[MULTIPART_HEADER_MAX + 1];
    bool has_filename;
};

static err_code read_disposition(const char *value, struct head *h, err *e)
{
    size_t n = strcspn(value, "; \t");
    if (n != 9 || strncasecmp(value, "form-data", n))
        return err_set(e, ERR_INVALID, "A part of the form has the disposition '%.60s'; expected 'form-data'.", value);
    if (!find_parameter(value, "name", h->name, sizeof h->name))
        h->name[0] = 0;
    h->has_filename = find_parameter(value, "filename*", h->filename, sizeof h->filename);
    if (h->has_filename)
        decode_extended(h->filename);
    else
        h->has_filename = find_parameter(value, "filename", h->filename, sizeof h->filename);
    return ERR_OK;
}

static err_code read_line(char *line, struct head *h, err *e)
{
    char *colon = strchr(line, ':');
    if (!colon)
        return err_set(e, ERR_INVALID, "A header line of a part of the form has no colon.");
    *colon = 0;
    const char *value = skip_blanks(colon + 1);
    if (!strcasecmp(line, "content-disposition"))
        return read_disposition(value, h, e);
    if (!strcasecmp(line, "content-type"))
        strcpy(h->type, value);  // both as large as all header lines together
    if (!strcasecmp(line, "content-transfer-encoding") && strcasecmp(value, "binary") && strcasecmp(value, "8bit") &&
        strcasecmp(value, "7bit"))
        return err_set(e, ERR_INVALID, "A part of the form has the transfer encoding '%.40s'; expected 'binary'.", value);
    return ERR_OK;
}

static err_code begin_part(struct multipart *m, err *e)
{
    struct head *h = mem_new(sizeof *h);
    err_code rc = ERR_OK;
    m->header[m->header_len] = 0;
    if (strlen(m->header) != m->header_len)
        rc = err_set(e, ERR_INVALID, "A header line of a part of the form contains a NUL.");
    for (char *line = m->header, *end; !rc && *line; line = end + 2) {
        end = strstr(line, "\r\n");
        *end = 0;
        rc = read_line(line, h, e);
    }
    if (!rc && ++m->parts > MULTIPART_PARTS_MAX)
        rc = err_set(e, ERR_INVALID, "The form has more than %d parts.", MULTIPART_PARTS_MAX);
    struct multipart_part p = {h->name, h->has_filename ? h->filename : NULL, h->type};
    if (!rc)
        rc = m->sink->part(m->ud, &p, e);
    free(h);
    m->in_part = true;
    m->state = CONTENT;
    m->header_len = 0;
    return rc;
}

// Collects lines; a line that starts with a blank goes on from the one before.
static err_code feed_header(struct multipart *m, char c, err *e)
{
    char *h = m->header;
    size_t n = m->header_len;
    if (n >= MULTIPART_HEADER_MAX)
        return err_set(e, ERR_INVALID, "The headers of a part of the form are larger than %d bytes.",
                       MULTIPART_HEADER_MAX);
    if (is_blank(c) && n >= 2 && h[n - 1] == '\n') {
        m->header_len = n - 1;
        h[n - 2] = ' ';
        return ERR_OK;
    }
    if (c == '\n' && !(n && h[n - 1] == '\r'))
        return err_set(e, ERR_INVALID, "A header line of a part of the form does not end in CR LF.");
    h[m->header_len++] = c;
    n++;
    bool line_end = n >= 2 && h[n - 2] == '\r' && c == '\n';
    if (!line_end || (n > 2 && !(n >= 4 && h[n - 3] == '\n' && h[n - 4] == '\r')))
        return ERR_OK;
    m->header_len = n - 2;
    return begin_part(m, e);
}

// ---- content

static err_code emit(struct multipart *m, const char *data, size_t n, err *e)
{
    return m->in_part && n ? m->sink->data(m->ud, data, n, e) : ERR_OK;
}

static err_code end_part(struct multipart *m, err *e)
{
    bool was = m->in_part;
    m->in_part = false;
    return was ? m->sink->end(m->ud, e) : ERR_OK;
}

// Takes bytes of content up to the next place where a delimiter may begin or goes on; returns how many.
static err_code feed_content(struct multipart *m, const char *data, size_t n, size_t *ret_used, err *e)
{
    if (m->matched == 0) {
        const char *cr = memchr(data, '\r', n);
        size_t run = cr ? (size_t)(cr - data) : n;
        m->matched = cr != NULL;
        *ret_used = run + (cr != NULL);
        return emit(m, data, run, e);
    }
    if (*data == m->delimiter[m->matched]) {
        *ret_used = 1;
        if (++m->matched == m->delimiter_len) {
            m->state = BORDER;
            m->border_len = 0;
        }
        return ERR_OK;
    }
    size_t false_start = m->matched;
    m->matched = 0;
    *ret_used = 0;  // looked at again as content
    return emit(m, m->delimiter, false_start, e);
}

// The boundary was only the beginning of something else: it belongs to the content.
static err_code not_a_border(struct multipart *m, err *e)
{
    m->state = CONTENT;
    m->matched = 0;
    err_code rc = emit(m, m->delimiter, m->delimiter_len, e);
    return rc ? rc : emit(m, m->border, m->border_len, e);
}

static err_code feed_border(struct multipart *m, char c, size_t *ret_used, err *e)
{
    char last = m->border_len ? m->border[m->border_len - 1] : 0;
    bool dashes = m->border_len == 1 && last == '-';
    if (dashes ? c == '-' : last == '\r' && c == '\n') {
        m->state = dashes ? EPILOGUE : HEADERS;
        m->matched = 0;
        return end_part(m, e);
    }
    bool goes_on = !dashes && last != '\r' && (is_blank(c) || c == '\r' || (c == '-' && m->border_len == 0));
    if (goes_on && m->border_len < PADDING_MAX) {
        m->border[m->border_len++] = c;
        return ERR_OK;
    }
    // A CR at its end may begin the real delimiter; the byte c is looked at again behind it.
    bool again = last == '\r';
    m->border_len -= again;
    err_code rc = not_a_border(m, e);
    m->matched = again;
    *ret_used = 0;
    return rc;
}

// ---- the interface

struct multipart *multipart_new(const char *boundary, const struct multipart_sink *sink, void *ud)
{
    struct multipart *m = mem_new(sizeof *m);
    m->sink = sink;
    m->ud = ud;
    m->header = mem_new(MULTIPART_HEADER_MAX + 1);
    size_t n = strnlen(boundary, MULTIPART_BOUNDARY_MAX);
    memcpy(m->delimiter, "\r\n--", 4);
    memcpy(m->delimiter + 4, boundary, n);
    m->delimiter_len = n + 4;
    m->matched = 2;  // the first boundary needs no line before it
    return m;
}

void multipart_free(struct multipart *m)
{
    if (!m)
        return;
    free(m->header);
    free(m);
}

err_code multipart_feed(struct multipart *m, const char *data, size_t n, err *e)
{
    err_code rc = ERR_OK;
    while (n && !rc && m->state != EPILOGUE) {
        size_t used = 1;
        if (m->state == CONTENT)
            rc = feed_content(m, data, n, &used, e);
        else if (m->state == BORDER)
            rc = feed_border(m, *data, &used, e);
        else
            rc = feed_header(m, *data, e);
        data += used;
        n -= used;
    }
    return rc;
}

err_code multipart_finish(struct multipart *m, err *e)
{
    if (m->state == EPILOGUE)
        return ERR_OK;
    return err_set(e, ERR_INVALID, m->parts ? "The form ends before its last boundary."
                                            : "The body holds no part of a form; the boundary of the content type was not found.");
}
