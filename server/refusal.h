// refusal.h - the HTTP library's own refusals, as error objects.
#pragma once

#include <microhttpd.h>

// MHD_queue_response for this server's own answers, which are sent as they are. Loop thread.
enum MHD_Result refusal_queue(struct MHD_Connection *mhd, unsigned status, struct MHD_Response *response);
