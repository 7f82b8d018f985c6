// server.h - the daemon: configuration in, a running process out.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

struct engine;
struct keep;
struct pool;
struct responses;
struct route;

struct server;

// How settings are read again (reload.h). Both may be NULL.
struct server_reload {
    void *ud;
    err_code (*read)(void *ud, struct server *s, err *e);  // on a thread of the pool; what fails changes nothing
    void (*use)(void *ud, struct server *s);               // then on the loop thread
};

struct server_config {
    const struct route *routes; // endpoints (endpoints.h); a test may have its own. Ends with a NULL path
    const char *const *listen;  // "ADDR:PORT", "[::1]:PORT", "unix:PATH"; port 0 takes a free one
    int nlisten;
    const char *port_file;      // written (atomically) with the first TCP port once bound; NULL: none
    const char *const *api_keys;
    int nkeys;
    const char *api_key_file;   // more keys, one a line (apikey.h); NULL: none
    const char *store;          // SQLite file with more keys; NULL: none
    int64_t default_rpm, default_tpm, default_concurrent;  // limits of keys that have none, and of each address without a key; 0: none
    const char *tls_cert, *tls_key;  // PEM files: TCP listeners speak TLS; NULL: none
    const char *const *cors_origins;
    int ncors;
    const char *const *hosts;   // more names accepted in Host (loopback names and the bound addresses always are)
    int nhosts;
    const char *admin_listen;   // where the metrics and the admin routes are instead; NULL: with the rest
    const char *admin_key;      // what the admin routes ask for; NULL: nothing on admin_listen, and elsewhere there are none
    struct server_reload reload;
    bool allow_public;          // a non-loopback bind without a key was asked for by name
    size_t max_body;            // bytes of a JSON body
    size_t max_upload;          // bytes of the files of one form
    const char *upload_dir;     // for temporary files of larger ones; NULL: $TMPDIR or /tmp
    int max_audio_s;            // seconds of sound in one file
    int header_timeout_s, idle_timeout_s, drain_timeout_s, keepalive_s;  // 0: defaults; drain_timeout_s -1: no time
    int drain_grace_s;          // requests are still accepted for this long after SIGTERM
    int max_connections, max_connections_per_address;  // per address 0: no limit
    int max_prompts;            // of one request, so that a batch fits the queue; 0: the API's own limit
    int image_url_ttl_s;        // how long a picture asked for as a URL can be fetched; 0: such requests are refused
    const char *responses_db;   // SQLite file for responses that are kept; NULL: in memory
    int64_t max_responses, responses_ttl_s;  // how many, and how long after their last use; max_responses 0: none
    size_t max_responses_bytes;
    bool no_page;               // the web page is not served
    int queue_timeout_s;        // a request that has not begun by then fails; 0: none
    bool trust_gateway;         // the fairness id of x-llm-d-inference-fairness-id says who a request is for
    bool strict_fields;         // unknown request fields are refused
    bool access_log;            // a line in the log for each request
    bool health_is_live;        // /health and its aliases say what /livez says instead of /readyz
    int max_running;            // of the engine; for its gauges
};

// Binds, prints nothing, does not yet serve (clients may already connect and wait). Strings and tables of c must
// outlive the server; zero numbers mean defaults. en may be NULL (nothing to drain). Errors: ERR_INVALID (address, a
// public one without a key), ERR_IO (port in use).
MUST_CHECK err_code server_open(const struct server_config *c, struct engine *en, struct server **ret_server, err *e);
// Serves until SIGTERM or SIGINT: then drains (a second signal ends at once). Returns the process's exit status.
int server_run(struct server *s);
// Requests not yet answered stay valid until their handler answers them, so the engine may be closed before or after.
void server_close(struct server *s);

// Reads the API keys and the certificate again: later requests are judged by the new keys, later connections get the new
// certificate, what runs is left alone. What cannot be read stays as it was and is the error; the rest is taken over all
// the same. Any thread but the loop's: it waits for the disk.
MUST_CHECK err_code server_reread(struct server *s, err *e);
// Where server_reread finds the keys from now on; on the thread that calls it.
void server_change_sources(struct server *s, const struct server_config *c);
// Takes over from c what may change while the server runs: timeouts, grace, origins, hosts, the access log, what /health
// means, the admin key. Loop thread; strings and tables must outlive the server.
void server_change(struct server *s, const struct server_config *c);

struct engine *server_engine(struct server *s);
struct pool *server_pool(struct server *s);  // borrowed; for whoever may outlive the server, pool_ref
struct keep *server_keep(struct server *s);  // likewise; NULL: URLs of pictures are refused
struct responses *server_responses(struct server *s);  // likewise; never NULL
const struct server_config *server_settings(const struct server *s);
bool server_unready(const struct server *s);   // requests should be sent elsewhere
bool server_draining(const struct server *s);  // new work is refused
// Where the i-th listener can be reached, for people to read; false: there are no more.
bool server_address(const struct server *s, int i, char *ret_url, size_t size);
// The first TCP port that was bound; 0: only Unix sockets.
int server_port(const struct server *s);
