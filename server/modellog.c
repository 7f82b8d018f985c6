// modellog.c - see modellog.h. On the engine's loader thread, also while the server is already gone: it uses nothing but the log.
#include "server/modellog.h"

#include <stdio.h>

#include "base/buf.h"
#include "base/log.h"
#include "engine/engine.h"
#include "server/members.h"

enum { TEXT_MAX = 1024, LINE_MAX_BYTES = 8 << 10 };

static const char *const changes[] = {[MODEL_CAME] = "model_loaded", [MODEL_WENT] = "model_unloaded",
                                      [MODEL_BROKE] = "model_failed", [MODEL_DROPPED] = "model_dropped"};
static const char *const reasons[] = {[FOR_START] = "start", [FOR_TASK] = "request", [FOR_CALLER] = "call",
                                      [FOR_ROOM] = "room", [FOR_IDLENESS] = "idle"};
static const char *const asked[] = {[FOR_START] = "at the start", [FOR_TASK] = "asked for by a request",
                                    [FOR_CALLER] = "asked for by /models/load"};

static void say_came(const struct model_event *ev, char *out, size_t size)
{
    const struct model_info *m = ev->model;
    char why[128] = "";
    if (ev->reason != FOR_START)
        snprintf(why, sizeof why, "; %s %.2f s ago", asked[ev->reason], ev->took_s);
    snprintf(out, size, "model %s is ready: %s, %s, a request may have %d tokens; up to %.0f MB, of these %.0f MB of weights, loaded "
             "in %.2f s%s", m->name, m->family, m->format, m->context, (double)m->memory_bytes / 1e6, (double)m->resident_bytes / 1e6,
             m->load_s, why);
}

static void say_went(const struct model_event *ev, char *out, size_t size)
{
    char why[ENGINE_NAME_MAX + 64];
    if (ev->reason == FOR_ROOM)
        snprintf(why, sizeof why, "to make room for %s; it had been idle for %.0f s", ev->room_for, ev->idle_s);
    else if (ev->reason == FOR_IDLENESS)
        snprintf(why, sizeof why, "it had been idle for %.0f s", ev->idle_s);
    else
        snprintf(why, sizeof why, "asked for by /models/unload");
    snprintf(out, size, "model %s was unloaded in %.2f s, %.0f MB are free again: %s", ev->model->name, ev->took_s,
             (double)ev->model->memory_bytes / 1e6, why);
}

static void say(const struct model_event *ev, char *out, size_t size)
{
    const char *name = ev->model->name;
    switch (ev->change) {
    case MODEL_CAME:
        say_came(ev, out, size);
        break;
    case MODEL_WENT:
        say_went(ev, out, size);
        break;
    case MODEL_BROKE:
        snprintf(out, size, "model %s could not be loaded, %s %.2f s ago, and is not tried again for %.0f s: %s", name,
                 asked[ev->reason], ev->took_s, ev->retry_ms / 1000.0, ev->model->error.text);
        break;
    case MODEL_DROPPED:
        snprintf(out, size, "model %s is not loaded after all: nobody waits for it any more; %s %.2f s ago", name, asked[ev->reason],
                 ev->took_s);
        break;
    }
}

static void write_json(const struct model_event *ev, enum log_level level, const char *text)
{
    struct buf b;
    buf_init(&b, LINE_MAX_BYTES);
    members_text(&b, "message", text, MEMBERS_TEXT_MAX);
    members_text(&b, "event", changes[ev->change], MEMBERS_TEXT_MAX);
    members_text(&b, "model", ev->model->name, MEMBERS_TEXT_MAX);
    members_text(&b, "reason", reasons[ev->reason], MEMBERS_TEXT_MAX);
    members_text(&b, "room_for", ev->room_for, MEMBERS_TEXT_MAX);
    members_number(&b, "seconds", ev->took_s, 3);
    if (ev->change == MODEL_CAME)
        members_number(&b, "load_seconds", ev->model->load_s, 3);
    if (ev->change == MODEL_WENT)
        members_number(&b, "idle_seconds", ev->idle_s, 3);
    if (ev->change == MODEL_CAME || ev->change == MODEL_WENT)
        members_int(&b, "bytes", (long long)ev->model->memory_bytes);
    if (ev->change == MODEL_BROKE) {
        members_int(&b, "retry_ms", ev->retry_ms);
        members_text(&b, "error", ev->model->error.text, MEMBERS_TEXT_MAX);
    }
    if (!b.over)
        log_members(level, b.data, b.len);
    buf_done(&b);
}

void modellog_event(void *arg, const struct model_event *ev)
{
    char text[TEXT_MAX];
    enum log_level level = ev->change == MODEL_BROKE ? LOG_LEVEL_ERROR : LOG_LEVEL_INFO;
    (void)arg;
    if (level > log_get_level() || (ev->change == MODEL_BROKE && ev->reason == FOR_START))
        return;  // the process ends with the error of a model of the start
    say(ev, text, sizeof text);
    if (log_is_json())
        write_json(ev, level, text);
    else
        log_write(level, "%s", text);
}
