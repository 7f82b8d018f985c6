// conn.h - one socket: its disconnect watcher and its deadlines. Loop thread.
#pragma once

#include <stdint.h>

struct conn;
struct listener;
struct MHD_Connection;

struct conn *conn_open(struct listener *l, struct MHD_Connection *mhd);
void conn_close(struct conn *c);  // MHD closes the socket after this

// Looks (again) for the client leaving: MHD itself does not notice it while an answer is awaited or streamed.
void conn_watch(struct conn *c);
// Resumes a suspended request and asks for its listener to be driven.
void conn_resume(struct conn *c);
// Makes MHD notice the end of the connection at its next turn.
void conn_kill(struct conn *c);
// code "": null. Writes an error answer past MHD, which refuses to answer while a request is still being read; no writing after that.
void conn_send_error(struct conn *c, int status, const char *reason, const char *code, const char *message);
// Deadlines and keep-alive comments, every TICK_MS.
void conn_tick(struct conn *c, int64_t now_ns);
