// notify.h - sd_notify(3) by one datagram; nothing without NOTIFY_SOCKET.
#pragma once

void notify_send(const char *state);  // "READY=1", "STOPPING=1", lines joined by "\n"
