// wire.h - one client connection of HTTP/1.1 on an epoll: sends a request, hands over what comes back, and keeps the
// connection for the next one when the server does.
//
//     struct wire w;
//     wire_init(&w, epoll, &address, &handler, ud);
//     wire_start(&w, bytes, len);          // the bytes stay the caller's until on_end
//     ... epoll_wait gives &w in data.ptr: wire_ready(&w, events) ...
//
// on_end comes exactly once for each start, unless wire_close was called; it may start the next request. on_body may call
// wire_close, but start nothing.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>

enum wire_end {
    WIRE_WHOLE,    // the response came to its end
    WIRE_REFUSED,  // no connection
    WIRE_RESET,    // an error of the socket
    WIRE_CUT,      // the server closed before the end
    WIRE_BAD       // not HTTP
};

struct wire_handler {
    void (*on_head)(void *ud, int status);
    void (*on_body)(void *ud, const char *data, size_t len);
    void (*on_end)(void *ud, enum wire_end how);
};

struct wire_address {
    struct sockaddr_storage a;
    socklen_t len;
};

enum wire_state { WIRE_IDLE, WIRE_HEAD, WIRE_BODY, WIRE_SIZE, WIRE_CHUNK, WIRE_CHUNK_END, WIRE_TRAILER };

struct wire {
    int epoll, fd;
    unsigned interest;
    const struct wire_address *to;
    const struct wire_handler *handler;
    void *ud;
    const char *out;
    size_t out_len, sent;
    enum wire_state state;
    bool again;    // the connection served a request before, so it may have been closed meanwhile
    bool to_close; // the body ends with the connection
    bool keep, refused;
    size_t left;   // of the body or chunk
    char line[8192];
    size_t nline;
    unsigned connects, repeats;  // repeats: requests sent again because a kept connection had been closed
};

void wire_init(struct wire *w, int epoll, const struct wire_address *to, const struct wire_handler *handler, void *ud);
void wire_start(struct wire *w, const char *bytes, size_t len);
void wire_ready(struct wire *w, unsigned events);
void wire_close(struct wire *w, bool reset);  // reset: RST instead of FIN
