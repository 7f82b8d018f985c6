// settings.h - settings that change while the server runs: read again with the same arguments, compared, and used as far
// as they can be.
//
//     struct settings *s = settings_open(&config, args, nargs, check, use, ud);
//     server_config.reload = settings_reload(s);
#pragma once

#include "base/err.h"
#include "server/server.h"

struct config;
struct settings;

// check says what is wrong with new settings, and prepare is told of good ones, both on a thread of the pool; use takes
// them over on the loop thread. c and the arguments outlive it.
struct settings *settings_open(const struct config *c, char *const *args, int nargs,
                               err_code (*check)(const struct config *c, err *e),
                               void (*prepare)(const struct config *c, struct server *s),
                               void (*use)(const struct config *c, struct server *s));
void settings_close(struct settings *s);  // after the server, which holds strings of all settings it was given
struct server_reload settings_reload(struct settings *s);

// Names of settings that differ and are not used before a restart, split by ", ", into out; returns out.
const char *settings_differences(const struct config *a, const struct config *b, char *out, size_t size);
