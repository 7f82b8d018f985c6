// admin.h - who may run the server while it runs, and the handlers for it.
//
//     POST /admin/drain     /readyz fails from now on; requests are served as before
//     POST /admin/undrain   and answers again
//     POST /admin/reload    as SIGHUP
//     GET  /admin/status    models, memory, connections, the engine
//
// They are on the admin listener only if there is one, and without an admin key nowhere else.
#pragma once

#include <stdbool.h>

struct exchange;
struct request;

void admin_drain(struct request *r);
void admin_undrain(struct request *r);
void admin_reload(struct request *r);
void admin_status(struct request *r);

// Whether x's route, or with another method its path, is none of its listener's.
bool admin_hides(const struct exchange *x);
// Time depends on the key's length only.
bool admin_key_is(const char *given, const char *key);
