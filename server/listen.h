// listen.h - listening sockets: bound from text, or inherited from systemd.
//
//     "127.0.0.1:8080"  "[::1]:8080"  "localhost:0"  ":8080" (all IPv4)  "unix:/run/oxinferd.sock"
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

struct listener;

// Fills l->fd, text, port, loopback, unix_path. Errors: ERR_INVALID (address), ERR_IO (in use, not permitted).
MUST_CHECK err_code listen_open(const char *text, struct listener *l, err *e);
// Sockets passed by systemd (LISTEN_FDS); 0 when there are none. The variables are removed from the environment.
// Bit i of *ret_admin: the i-th is called "admin" (FileDescriptorName=).
int listen_inherited(uint64_t *ret_admin);
// The i-th inherited socket.
MUST_CHECK err_code listen_adopt(int i, struct listener *l, err *e);
// Refuses a socket that others than this machine can reach, unless public_ok.
MUST_CHECK err_code listen_check_public(const struct listener *l, bool public_ok, err *e);
// What listen_open and listen_check_public would say of the text alone; nothing is bound.
MUST_CHECK err_code listen_check(const char *text, bool public_ok, err *e);
void listen_close(struct listener *l);  // the socket file goes too
// Writes "PORT\n" to a file that appears whole or not at all.
MUST_CHECK err_code listen_write_port(const char *path, int port, err *e);
