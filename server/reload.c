// reload.c - see reload.h.
#include "server/reload.h"

#include <stdio.h>

#include "base/clock.h"
#include "base/log.h"
#include "server/drain.h"
#include "server/metrics.h"
#include "server/notify.h"
#include "server/state.h"

static void read_again(uv_work_t *w)
{
    struct server *s = w->data;
    const struct server_reload *r = &s->config.reload;
    s->reload_error = (err){0};
    if (r->read)
        (void)!r->read(r->ud, s, &s->reload_error);
    s->reread_error = (err){0};
    if (!s->reload_error.code)
        (void)!server_reread(s, &s->reread_error);
}

static void use(uv_work_t *w, int status)
{
    struct server *s = w->data;
    const struct server_reload *r = &s->config.reload;
    (void)status;
    s->reloading = false;
    if (s->reload_error.code) {
        log_error("the settings were read again and are refused, the old ones stay: %s", s->reload_error.text);
    } else {
        if (r->use)
            r->use(r->ud, s);
        metrics_find_models(s);
        if (s->reread_error.code)
            log_error("keys or the certificate cannot be read again, the old ones stay: %s", s->reread_error.text);
        log_info("the settings were read again");
    }
    if (s->stage == STAGE_SERVING)
        notify_send("READY=1");
    if (s->reload_again)
        reload_start(s);
}

void reload_start(struct server *s)
{
    if (s->stage != STAGE_SERVING)
        return;
    s->reload_again = s->reloading;
    if (s->reloading)
        return;
    char text[64];
    snprintf(text, sizeof text, "RELOADING=1\nMONOTONIC_USEC=%lld", (long long)(clock_ns() / 1000));
    notify_send(text);
    s->reload_work.data = s;
    s->reloading = !uv_queue_work(&s->loop, &s->reload_work, read_again, use);
}
