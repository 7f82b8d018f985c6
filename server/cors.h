// cors.h - web pages of other origins: what a browser is told. Loop thread.
#pragma once

#include <stdbool.h>

struct exchange;

bool cors_allowed(const struct exchange *x);  // the request's Origin is one of the configured ones
// Whether it is what a page of any origin can have a browser send without asking with OPTIONS first: a POST without a body or of
// a form, and without a key. Those of the configured origins and of the server's own page may.
bool cors_refuses(const struct exchange *x);
// Answers OPTIONS with 204; allow: the path's methods, as routes_find gave them. Needs no key: browsers send none.
void cors_preflight(struct exchange *x, unsigned allow);
