// cors.h - web pages of other origins: what a browser is told. Loop thread.
#pragma once

#include <stdbool.h>

struct exchange;

bool cors_allowed(const struct exchange *x);  // the request's Origin is one of the configured ones
// Answers OPTIONS with 204; allow: the path's methods, as routes_find gave them. Needs no key: browsers send none.
void cors_preflight(struct exchange *x, unsigned allow);
