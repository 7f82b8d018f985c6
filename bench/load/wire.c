// wire.c - see the header. One thread; the loop that owns the epoll calls.
#include "bench/load/wire.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/epoll.h>
#include <unistd.h>

void wire_init(struct wire *w, int epoll, const struct wire_address *to, const struct wire_handler *handler, void *ud)
{
    memset(w, 0, sizeof *w);
    w->epoll = epoll;
    w->fd = -1;
    w->to = to;
    w->handler = handler;
    w->ud = ud;
}

void wire_close(struct wire *w, bool reset)
{
    if (w->fd >= 0) {
        if (reset)
            setsockopt(w->fd, SOL_SOCKET, SO_LINGER, &(struct linger){1, 0}, sizeof(struct linger));
        close(w->fd);
    }
    w->fd = -1;
    w->state = WIRE_IDLE;
    w->again = false;
    w->interest = 0;
}

static void end(struct wire *w, enum wire_end how)
{
    if (how != WIRE_WHOLE || !w->keep)
        wire_close(w, false);
    w->state = WIRE_IDLE;
    w->again = w->fd >= 0;
    w->handler->on_end(w->ud, how);
}

static void watch(struct wire *w, unsigned interest)
{
    struct epoll_event ev = {.events = interest, .data.ptr = w};
    if (interest == w->interest)
        return;
    epoll_ctl(w->epoll, w->interest ? EPOLL_CTL_MOD : EPOLL_CTL_ADD, w->fd, &ev);
    w->interest = interest;
}

static void send_rest(struct wire *w)
{
    while (w->sent < w->out_len) {
        ssize_t n = send(w->fd, w->out + w->sent, w->out_len - w->sent, MSG_NOSIGNAL);
        if (n < 0 && errno == EINTR)
            continue;
        w->refused |= n < 0 && errno == ECONNREFUSED;  // is told once
        if (n < 0)
            break;  // EAGAIN waits; what is broken shows when it is read, after what the server said before
        w->sent += (size_t)n;
    }
    watch(w, EPOLLIN | (w->sent < w->out_len ? (unsigned)EPOLLOUT : 0));
}

static bool open_socket(struct wire *w)
{
    w->fd = socket(w->to->a.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (w->fd < 0)
        return false;
    w->connects++;
    if (w->to->a.ss_family != AF_UNIX)
        setsockopt(w->fd, IPPROTO_TCP, TCP_NODELAY, &(int){1}, sizeof(int));
    if (connect(w->fd, (const struct sockaddr *)&w->to->a, w->to->len) == 0 || errno == EINPROGRESS)
        return true;
    wire_close(w, false);
    return false;
}

void wire_start(struct wire *w, const char *bytes, size_t len)
{
    w->out = bytes;
    w->out_len = len;
    w->sent = 0;
    w->nline = 0;
    w->refused = false;
    w->state = WIRE_HEAD;
    if (w->fd < 0 && !open_socket(w))
        end(w, WIRE_REFUSED);
    else
        send_rest(w);
}

static bool starts(const char *line, const char *name)
{
    return strncasecmp(line, name, strlen(name)) == 0;
}

// A line of the head; the empty one ends it. False: not HTTP.
static bool head_line(struct wire *w, int *status, bool *chunked)
{
    const char *line = w->line;
    if (starts(line, "HTTP/1.") && !*status) {
        *status = atoi(line + 9);
        w->keep = line[7] == '1';
        w->to_close = true;
        *chunked = false;
        w->left = 0;
    } else if (starts(line, "content-length:")) {
        w->left = strtoull(line + 15, NULL, 10);
        w->to_close = false;
    } else if (starts(line, "transfer-encoding:")) {
        *chunked = strcasestr(line, "chunked") != NULL;
    } else if (starts(line, "connection:")) {
        w->keep = strcasestr(line, "close") == NULL && w->keep;
    }
    return *status >= 100;
}

// Takes the head when all of it is there; how many bytes of data were used.
static size_t take_head(struct wire *w, const char *data, size_t len)
{
    size_t before = w->nline, n = len < sizeof w->line - 1 - before ? len : sizeof w->line - 1 - before;
    memcpy(w->line + before, data, n);
    w->line[before + n] = 0;
    char *stop = strstr(w->line, "\r\n\r\n");
    if (!stop) {
        w->nline += n;
        return w->nline + 1 < sizeof w->line ? n : 0;
    }
    size_t used = (size_t)(stop + 4 - w->line) - before;
    int status = 0;
    bool chunked = false, good = true;
    stop[2] = 0;
    char all[sizeof w->line];
    memcpy(all, w->line, (size_t)(stop + 3 - w->line));
    for (char *p = all, *eol; good && (eol = strstr(p, "\r\n")); p = eol + 2) {
        *eol = 0;
        memcpy(w->line, p, (size_t)(eol - p) + 1);
        good = head_line(w, &status, &chunked);
    }
    if (!good)
        return 0;
    w->nline = 0;
    if (status / 100 == 1)  // an interim answer: the real one follows
        return used;
    if (status == 204 || status == 304)
        w->to_close = false;
    w->state = chunked ? WIRE_SIZE : WIRE_BODY;
    w->to_close = w->to_close && !chunked;
    w->keep = w->keep && !w->to_close;
    w->handler->on_head(w->ud, status);
    return used;
}

// Collects a line of the chunked form; true when it is whole.
static bool take_line(struct wire *w, char c)
{
    if (c != '\n') {
        if (c != '\r' && w->nline + 1 < sizeof w->line)
            w->line[w->nline++] = c;
        return false;
    }
    w->line[w->nline] = 0;
    return true;
}

static size_t take_framing(struct wire *w, char c)
{
    if (!take_line(w, c))
        return 1;
    bool empty = w->nline == 0;
    w->nline = 0;
    if (w->state == WIRE_CHUNK_END) {
        w->state = WIRE_SIZE;
    } else if (w->state == WIRE_TRAILER) {
        if (empty)
            end(w, WIRE_WHOLE);
    } else {
        char *after;
        w->left = strtoull(w->line, &after, 16);
        if (after == w->line)
            return 0;
        w->state = w->left ? WIRE_CHUNK : WIRE_TRAILER;
    }
    return 1;
}

static size_t take_body(struct wire *w, const char *data, size_t len)
{
    size_t n = w->to_close || len < w->left ? len : w->left;
    if (!w->to_close)
        w->left -= n;
    if (n)
        w->handler->on_body(w->ud, data, n);
    if (w->state == WIRE_CHUNK && !w->left)
        w->state = WIRE_CHUNK_END;
    return n;
}

static void take(struct wire *w, const char *data, size_t len)
{
    size_t used = 1;
    int fd = w->fd;
    while (used && len && w->state != WIRE_IDLE && w->fd == fd) {
        used = w->state == WIRE_HEAD ? take_head(w, data, len)
               : w->state == WIRE_BODY || w->state == WIRE_CHUNK ? take_body(w, data, len) : take_framing(w, *data);
        data += used;
        len -= used;
        if (w->state == WIRE_BODY && !w->to_close && !w->left) {
            end(w, WIRE_WHOLE);
            return;  // the next request may already be on its way
        }
        if (!used)
            end(w, WIRE_BAD);
    }
}

static void closed(struct wire *w, bool broken)
{
    bool unheard = w->state == WIRE_HEAD && w->nline == 0 && w->again;
    if (w->state == WIRE_IDLE) {
        wire_close(w, false);
    } else if (w->refused) {
        end(w, WIRE_REFUSED);
    } else if (unheard) {  // the server had closed the kept connection before the request came: once more, as clients do
        w->repeats++;
        wire_close(w, false);
        wire_start(w, w->out, w->out_len);
    } else {
        end(w, w->state == WIRE_BODY && w->to_close && !broken ? WIRE_WHOLE : broken ? WIRE_RESET : WIRE_CUT);
    }
}

void wire_ready(struct wire *w, unsigned events)
{
    static char data[65536];
    if (w->fd < 0)
        return;
    if ((events & EPOLLOUT) && w->state != WIRE_IDLE && w->sent < w->out_len)
        send_rest(w);
    if (!(events & (EPOLLIN | EPOLLERR | EPOLLHUP)))
        return;
    ssize_t n = recv(w->fd, data, sizeof data, 0);
    if (n > 0)
        take(w, data, (size_t)n);
    else if (n == 0)
        closed(w, false);
    else if (errno == ECONNREFUSED)
        end(w, WIRE_REFUSED);
    else if (errno != EAGAIN && errno != EINTR)
        closed(w, true);
}
