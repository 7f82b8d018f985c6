// libmicrohttpd answers what it cannot parse (a head over 64 KB, an unknown version, a Content-Length that is no number)
// itself, with a page of HTML that no client of this API expects, and has no hook for it. It queues these answers through
// its own public function by way of the dynamic linker, so the definition here takes the place of the library's: our own
// answers pass through, the library's get the error object for a body. Were it linked otherwise (statically, or bound to
// itself), clients would see the HTML again, and nothing else would change. Loop thread.
#include "server/refusal.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#include "server/conn.h"
#include "server/state.h"

typedef enum MHD_Result queue_fn(struct MHD_Connection *mhd, unsigned status, struct MHD_Response *response);

static bool ours;

static queue_fn *library_queue(void)
{
    static queue_fn *f;
    if (!f) {
        void *symbol = dlsym(RTLD_NEXT, "MHD_queue_response");
        memcpy(&f, &symbol, sizeof f);  // ISO C has no cast from an object to a function pointer
    }
    return f;
}

enum MHD_Result refusal_queue(struct MHD_Connection *mhd, unsigned status, struct MHD_Response *response)
{
    ours = true;
    enum MHD_Result ok = MHD_queue_response(mhd, status, response);
    ours = false;
    return ok;
}

static const char *message_of(unsigned status)
{
    switch (status) {
    case 413:
        return "The request body is larger than this server can count.";
    case 414:
        return "The request target is too long.";
    case 431:
        return "The request's headers are too long.";
    case 505:
        return "This server speaks HTTP/1.1 and HTTP/1.0.";
    default:
        return status < 500 ? "The request is not valid HTTP." : "The request could not be handled.";
    }
}

static struct MHD_Response *error_object(unsigned status, const char *id)
{
    char text[300];
    int n = snprintf(text, sizeof text, "{\"error\":{\"message\":\"%s\",\"type\":\"%s\",\"param\":null,\"code\":null}}",
                     message_of(status), status < 500 || status == 505 ? "invalid_request_error" : "server_error");
    struct MHD_Response *m = MHD_create_response_from_buffer((size_t)n, text, MHD_RESPMEM_MUST_COPY);
    if (!m)
        return NULL;
    (void)MHD_add_response_header(m, "content-type", "application/json");
    if (*id)
        (void)MHD_add_response_header(m, "x-request-id", id);
    return m;
}

enum MHD_Result MHD_queue_response(struct MHD_Connection *mhd, unsigned status, struct MHD_Response *response)
{
    queue_fn *queue = library_queue();
    if (ours || status < 400)
        return queue(mhd, status, response);
    struct conn *c = MHD_get_connection_info(mhd, MHD_CONNECTION_INFO_SOCKET_CONTEXT)->socket_context;
    if (c && c->x)
        c->x->status = (int)status;
    if (c && c->x && (status == 400 || status == 413)) {  // of a wrong length the library sends the head twice
        conn_send_error(c, (int)status, status == 400 ? "Bad Request" : "Content Too Large", "", message_of(status));
        return MHD_NO;
    }
    struct MHD_Response *m = error_object(status, c && c->x ? c->x->r.id : "");
    enum MHD_Result ok = queue(mhd, status, m ? m : response);
    if (m)
        MHD_destroy_response(m);
    return ok;
}
