// reload.h - settings, keys and certificates are read again while the server runs: on SIGHUP and POST /admin/reload.
//
// Reading waits for the disk, so it happens on the thread pool; what was read is used on the loop thread. What cannot be
// read or is wrong changes nothing, and is logged.
#pragma once

struct server;

void reload_start(struct server *s);  // loop thread
