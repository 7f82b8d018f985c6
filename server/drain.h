// drain.h - the end of the server, and the times when requests should go elsewhere. Loop thread.
//
//     serving ──SIGTERM──▶ grace ──drain_grace_s──▶ draining ──all answered──▶ exit 0
//        │                                             │ second signal, or drain_timeout_s
//        │ /admin/drain, /admin/undrain                ▼
//        ▼                                          aborted: every open request gets an error, then a moment to be read
//     unready, and goes on serving                     ▼
//                                                   forced: exit 0
//
// From grace on /readyz answers 503; all requests are still served, so that whoever routes has time to notice. Draining
// closes the listening sockets, ends idle connections, refuses new work with 503 and lets what runs finish. A second
// signal aborts at once, also in grace. The admin listener stays open to the end, and nobody waits for its connections.
#pragma once

#include <stdbool.h>

struct server;

enum drain_stage { STAGE_SERVING, STAGE_GRACE, STAGE_DRAINING, STAGE_ABORTED, STAGE_FORCED };

// A signal to end; with_grace: there may be someone who routes requests here.
void drain_signal(struct server *s, bool with_grace);
// Requests should go elsewhere, or come again. False: too late, the server is ending.
bool drain_set_unready(struct server *s, bool unready);
const char *drain_state(const struct server *s);  // "serving", "unready", "draining", ...

void drain_stop_listening(struct server *s, bool admin_too);
void drain_force(struct server *s);  // breaks off every connection
