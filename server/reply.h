// reply.h - what http.c and server.c need of answers beyond request.h.
#pragma once

#include <stdbool.h>

#include "base/err.h"

struct exchange;
struct MHD_Response;

// Loop thread: gives up on an exchange whose connection is still there: an error answer, or an error event and the end
// of the stream. The handler's on_gone runs.
void reply_abort(struct exchange *x, const err *e);
// The answer of x as MHD wants it, with its headers; takes the body. x has answered.
struct MHD_Response *reply_response(struct exchange *x);
// Status, type and default code of an error.
int reply_status_of(err_code code, const char **ret_type, const char **ret_code);
