// notify.h - what a service manager is told (sd_notify); nothing happens without one.
#pragma once

#include <stdint.h>

void notify_send(const char *state);
// How often the service manager wants to hear WATCHDOG=1 from this process, in microseconds; 0: not at all.
int64_t notify_watchdog_us(void);
