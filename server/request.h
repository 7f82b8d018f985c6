// request.h - one HTTP exchange, as a handler sees it.
//
// A handler runs on the loop thread when the whole body has arrived and the caller has been authenticated. It answers at once with one of the reply_ functions, or keeps the request and answers later from
// any thread. It must answer exactly once, also when the client has gone: the request, its arena and its body live
// until then (until sse_end for a stream). Between taking and answering, on_gone tells a handler once, on the loop
// thread, that nobody waits any more; it may itself answer. After reply_* or sse_end has returned, on_gone neither runs
// nor will run.
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/err.h"

struct apikey;
struct json_t;
struct server;
struct sse;
struct stream;
struct upload;

struct request {
    struct server *server;
    struct arena arena;
    const char *method, *path;  // path without query, percent-decoded, no control characters
    const char *tail;           // what a "/*" route matched after its prefix; else ""
    const char *id;             // "req_" + 32 hex, or the client's own X-Request-Id; sent back as x-request-id
    const char *answer_id;      // the one in the answer ("chatcmpl-..."), set by the handler; NULL: it has none
    const struct apikey *key;   // the API key that was used; NULL without authentication
    const char *key_id;         // its name; "" without
    bool secure;                // came over TLS
    const char *peer;           // the client's IP address; "unix" on a Unix socket
    char *body;                 // NUL-terminated; NULL when there is none
    size_t body_len;            // of an upload: what came of it
    struct upload *upload;      // the form when the route wants one
    struct json_t *json;        // the parsed body when the route wants JSON: always an object
    int64_t received_ns;        // clock_ns() when the last body byte was read
    atomic_bool behind;         // the reader of its stream is far behind: a producer that can should rest (task.held)
    void (*on_gone)(struct request *r);  // set by the handler, may be NULL
    // Set by the handler of a stream that may open before it has anything to say, or NULL. Called on the loop thread, once,
    // when the request has waited for keepalive_s: from the 200 on comments keep proxies from giving up. Not after the answer.
    void (*on_quiet)(struct request *r);
    // Set by the handler of a stream whose last event is not {"error": ...}, or NULL. The request is ended from outside (deleted,
    // drained): called on the loop thread, once, before on_gone, unless it has been answered. True: it has sent the last event.
    bool (*on_ended)(struct request *r, const err *e);
    void *ud;                   // the handler's
};

const char *request_header(const struct request *r, const char *name);  // NULL: absent; any case
// The API key as the client sent it, right or wrong; NULL: none.
const char *request_given_key(const struct request *r);
const char *request_query(const struct request *r, const char *name);   // decoded; NULL: absent

// Slow work before the answer: runs work on a thread pool and then done on the loop thread, both exactly once; the request
// lives until then at least. Loop thread; one at a time. on_gone may run meanwhile.
void request_work(struct request *r, void (*work)(struct request *r), void (*done)(struct request *r));

// Calls the route's handler once more, on the loop thread and as if the request had just come; with an error answer instead when
// the client is not there any more. Any thread, in place of an answer.
void request_again(struct request *r);

// ---- answers; each may be called from any thread, once
// body is stolen (json_decref'ed).
void reply_json(struct request *r, int status, struct json_t *body);
void reply_text(struct request *r, int status, const char *content_type, const char *text, size_t len);  // any bytes
// Status from the code, OpenAI's error object with all four keys, Retry-After where it belongs.
void reply_error(struct request *r, const err *e);
// The same with a finer "code" than the err_code gives ("missing_required_parameter"...); NULL: null.
void reply_error_code(struct request *r, const err *e, const char *code);
// Any status; message and param come from e.
void reply_problem(struct request *r, int status, const char *type, const char *code, const err *e);
// {"error": {message, type, param, code}}: what a stream sends when it fails after its 200. New reference.
struct json_t *reply_error_json(const err *e);
// What the log says of a request that failed through no fault of its caller; replies with a status from 500 up note it
// themselves. Before the answer, or before sse_end.
void request_problem(struct request *r, const err *e);
// What the log says of the work done, and what its tokens take from the quota of its key. Any thread, until the answer or
// sse_end; the last call counts. The texts live as long as the request.
struct request_facts {
    const char *model, *finish;  // NULL: not known
    int prompt_tokens, cached_tokens, completion_tokens;
    int64_t first_ns;            // clock_ns() of the first token; 0: none yet
};
void request_note(struct request *r, const struct request_facts *facts);
// Extra response header; before the answer. Loop thread or the thread that answers.
void request_set_header(struct request *r, const char *name, const char *value);

// ---- a stream of server-sent events
// Sends the 200 and its headers. After this only sse_ functions may be used. Any thread.
struct sse *reply_sse(struct request *r);
// One event: "data: " + json + blank line. Any one thread at a time. False when the client is gone or reads too slowly
// (the stream is then dead and on_gone was or will be called): stop producing.
bool sse_send(struct sse *s, const char *data, size_t len);
bool sse_send_json(struct sse *s, struct json_t *event);  // stolen
// The same with a line "event: NAME" before it; NULL: none.
bool sse_send_named(struct sse *s, const char *name, const char *data, size_t len);
// How many bytes may wait for a slow reader, instead of 256 KB: for events that carry sound or pictures.
void sse_allow(struct sse *s, size_t waiting);
// Ends the stream; with_done sends "data: [DONE]" first. s is gone afterwards. Must be called exactly once, also for a
// dead stream.
void sse_end(struct sse *s, bool with_done);

// ---- a stream of bytes (sound); the same rules
// Sends the 200 and its headers. After this only stream_ functions may be used. Any thread.
struct stream *reply_stream(struct request *r, const char *content_type);
// Any one thread at a time. False: as for sse_send. Up to 32 MB may wait for the reader.
bool stream_send(struct stream *s, const void *p, size_t n);
// Ends the stream; not ok: the connection is broken off, so that the client does not take what it has for all of it.
void stream_end(struct stream *s, bool ok);
