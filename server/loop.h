// loop.h - libmicrohttpd inside the libuv loop. Loop thread only; server.c owns the handles' lifetime.
#pragma once

#include "base/err.h"

struct listener;
struct server;

MUST_CHECK err_code loop_open(struct server *s, err *e);
// The daemon on l->fd, polled by the loop.
MUST_CHECK err_code loop_add(struct server *s, struct listener *l, err *e);
// Drives every listener that has something resumed.
void loop_drive_wanted(struct server *s);
void loop_tick_start(struct server *s);
void loop_tick_stop(struct server *s);
// Closes daemons and handles; no connection may be suspended any more.
void loop_close(struct server *s);
