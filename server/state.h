// state.h - what the server's own files share: the server, its listeners, connections and exchanges.
//
//     server ─┬─ listener (one MHD daemon, its epoll fd polled by the loop)
//             └─ conn (one socket) ── exchange (one request and its answer; the public struct request comes first)
//
// All of it belongs to the loop thread, except what struct exchange marks as shared. MHD is only ever called on the
// loop thread: other threads leave an exchange in the inbox and wake the loop.
//
// An exchange is reference counted. References: MHD (until it reports the request complete), the handler (from the call
// until reply_* or sse_end), the response that reads the ring, the inbox, and work on the thread pool.
//
//     LINE ──▶ BODY ──▶ PARSE ──▶ HANDLER ──▶ SENT          phase, changed in http.c only
//       └────────┴────────┴──────────▲                      (refused: straight to SENT)
#pragma once

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <microhttpd.h>
#include <uv.h>

#include "server/auth.h"
#include "server/guard.h"
#include "server/inbox.h"
#include "server/quota.h"
#include "server/request.h"
#include "server/routes.h"
#include "server/server.h"
#include "server/tls.h"
#include "server/trace.h"
#include "server/uri.h"

enum {
    TARGET_MAX = 8 << 10,        // bytes of a request target
    HEADERS_MAX = 32 << 10,      // bytes of all request headers; MHD's own pool holds twice that
    MHD_POOL = 64 << 10,
    REFUSED_BODY_MAX = 64 << 10, // a refused request's body is read up to this size to keep the connection
    OVERFLOW_MAX = 1 << 20,      // bytes swallowed after a chunked body passed its limit
    BODY_RATE = 16 << 10,        // slowest average upload, bytes a second
    JSON_INLINE_MAX = 64 << 10,  // bigger bodies are parsed on the thread pool
    JSON_VALUES_MAX = 1 << 21,   // values in one body
    JSON_MEMBERS_MAX = 1 << 18,  // members, objects and arrays among them: each costs many times a number
    BODIES_FACTOR = 8,           // all bodies in memory together, in units of max_body
    UPLOADS_FACTOR = 32,         // all uploads together, mostly in temporary files, in units of max_upload
    UPLOAD_FORM_MAX = 2 << 20,   // what an upload may be larger than its files: text fields and boundaries
    SSE_RING_MAX = 256 << 10,    // bytes waiting in one stream of events
    BYTES_RING_MAX = 32 << 20,   // and in one of bytes: sound is made faster than it is played
    SSE_EVENT_MAX = 16 << 20,    // one event on an empty ring
    TICK_MS = 200,
    STUCK_TICKS = 3,
    BEHIND_MAX = 32 << 10,       // unread bytes behind a request that is being answered
};

struct listener {
    struct server *server;
    struct MHD_Daemon *daemon;
    uv_poll_t poll;
    uv_timer_t timer;
    uv_idle_t idle;
    int fd;              // listening socket, ours; -1 once closed
    struct tls *tls;     // connections speak TLS; the server's, NULL: plain
    bool loopback;       // TCP on a loopback address
    bool admin;          // probes, metrics and admin routes only
    bool rerun;          // a connection closed: MHD_run must be called once more to accept again at the limit
    bool wanted;         // something was resumed: drive before going back to sleep
    char *unix_path;     // removed at the end; NULL for TCP and inherited sockets
    char *text;          // as configured
    int port;
};

struct conn {
    struct listener *listener;
    struct conn *prev, *next;
    struct MHD_Connection *mhd;
    struct exchange *x;     // being read or answered; NULL between requests
    uv_poll_t watcher;      // UV_DISCONNECT only
    struct tls_credential *credential;  // with TLS; until MHD has closed the session
    char peer[48];          // IP address, or "unix"
    bool half_closed;       // the client will send nothing more
    bool overrun;           // it sent so much behind the request that is answered that the rest is thrown away
    uint64_t progress;      // of the request, at the last tick
    int ticks_stuck;        // so many ticks without any, while there was something to read
    int fd;
    unsigned requests;
    int64_t deadline_ns;    // the request's head or body must be here by then; 0: none
};

enum phase { PHASE_LINE, PHASE_BODY, PHASE_PARSE, PHASE_HANDLER, PHASE_SENT };

struct out_header {
    struct out_header *next;
    const char *name, *value;
};

struct exchange {
    struct request r;
    atomic_int refs;
    struct inbox *inbox;
    bool posted;  // in the inbox; guarded by the inbox's lock

    // loop thread only
    struct conn *conn;  // NULL once MHD has finished with it
    enum phase phase;
    bool suspended, left, taken, in_handler, streaming, parsed, given_up;
    const char *target;  // as it came
    struct uri uri;
    struct header *headers;
    int nheaders;
    const struct route *route;
    struct auth_table *keys;  // r.key is one of these
    _Atomic(struct quota_account *) quota;  // held until the handler has answered
    int64_t estimate;         // tokens taken from the quota before
    bool cors;              // the origin is allowed
    size_t body_cap, overflow, accounted;
    uv_work_t work;         // parsing, later the handler's
    void (*work_fn)(struct request *r), (*work_done)(struct request *r);
    err parse_error;        // of the body, said once it is complete
    size_t uploaded;        // its share of the server's upload_bytes
    int64_t begun_ns, written_ns;
    uint64_t bytes;
    int status;

    struct trace trace;

    struct out_header *out_headers;  // guarded by lock

    pthread_mutex_t lock;  // guards the answer, the ring and what the log says
    char problem[512];     // "": none
    const char *error_code;
    err_code failure;      // of the answer, or of the stream's end
    struct request_facts facts;
    bool again;            // the handler wants to be called once more
    bool answered;
    bool is_stream;
    bool is_bytes;         // a stream of bytes, not of events
    int reply_status;
    const char *reply_type;
    char *reply_body;
    size_t reply_len;
    char *ring;            // bytes [head, head + len) of a block of cap bytes, wrapping
    size_t head, len, cap;
    size_t ring_max;       // most bytes that may wait
    size_t allowance;      // for one event that alone is larger than ring_max, until the ring is empty again
    bool closed;           // no more events are taken
    bool eof;              // the ring's rest, then an orderly end
    bool failed;           // break off now

    pthread_mutex_t gone_lock;  // recursive; held while on_gone runs
    bool ended;                 // the handler has answered (a stream: ended)
    bool gone;                  // on_gone was due, and ran if set
};

struct server {
    struct server_config config;  // with defaults filled in
    struct engine *engine;
    struct exposition *exposition;
    struct pool *pool;
    struct keep *keep;
    struct responses *responses;
    uv_loop_t loop;
    bool loop_open;
    uv_async_t wake;
    uv_timer_t tick, drain, watchdog;
    uv_signal_t sigterm, sigint, sighup;
    struct inbox *inbox;
    struct auth auth;
    struct quota *quota;
    struct tls *tls;    // NULL: none
    struct listener *listeners;
    int nlisteners;
    struct conn *conns;
    int nconns;
    size_t body_bytes;  // of all requests in memory
    size_t upload_bytes;
    uint64_t id_seed, id_count;
    atomic_bool unready;   // no requests should be sent here any more
    atomic_bool draining;  // and new work is refused
    int stage;          // enum drain_stage
    int64_t stage_deadline_ns, last_beat_ns, limit_said_ns;
    bool has_admin;     // an admin listener
    uv_work_t reload_work;
    bool reloading, reload_again;
    err reload_error, reread_error;
};
