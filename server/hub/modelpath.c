// See the header. Calling thread only; the store is opened anew each time, which costs microseconds.
#include "server/hub/modelpath.h"

#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "base/mem.h"
#include "config/config.h"
#include "server/hub/modelref.h"
#include "server/hub/modelstore.h"
#include "server/notify.h"
#include "server/hub/pull.h"

enum { NOTIFY_S = 10, LOG_S = 30 };

struct start {
    int64_t notified_ns, logged_ns;
};

static err_code find_stored(const struct config *c, const struct modelref *r, bool use, char **ret_path, err *e)
{
    struct modelstore *s;
    struct manifest m;
    if (modelstore_open(c->store_dir, false, &s, e))
        return e->code;
    err_code rc = modelstore_find(s, r, false, &m, e);
    if (!rc) {
        rc = modelstore_check(s, &m, -1, false, NULL, NULL, e);
        if (!rc)
            *ret_path = modelstore_serve_path(s, &m);
        if (!rc && use)
            modelstore_used(s, &m);
        manifest_done(&m);
    }
    modelstore_close(s);
    return rc;
}

// A path that is missing is not looked for in a store; FOLDER/FILE.gguf is one.
static err_code read_reference(const char *value, struct modelref *ret_ref, err *e)
{
    err why;
    if (strchr(value, ' ') && strchr(value, '='))
        return err_set_param(e, ERR_NOT_FOUND, "model", "there is no file or folder '%s'; models are separated by commas", value);
    const char *slash = strchr(value, '/');
    bool file = slash && !strchr(slash + 1, '/') && strlen(slash) > 6 && !strcasecmp(value + strlen(value) - 5, ".gguf");
    if (strchr("/.~", value[0]) || file || modelref_parse(value, ret_ref, &why))
        return err_set_param(e, ERR_NOT_FOUND, "model", "there is no file or folder '%s'", value);
    return ERR_OK;
}

static err_code find(const struct config *c, const char *value, bool use, char **ret_path, err *e)
{
    struct modelref r;
    char name[MODELREF_TEXT];
    err why = {0};
    if (file_exists(value)) {
        *ret_path = mem_strdup(value);
        return ERR_OK;
    }
    if (read_reference(value, &r, e))
        return e->code;
    err_code rc = find_stored(c, &r, use, ret_path, &why);
    if (rc == ERR_NOT_FOUND || rc == ERR_CORRUPT)
        return err_set_param(e, ERR_NOT_FOUND, "model",
                             "there is no file or folder '%s'; to fetch the model of that name: oxinferd pull %s%s%s",
                             value, modelref_text(&r, name), rc == ERR_CORRUPT ? ". " : "",
                             rc == ERR_CORRUPT ? why.text : "");
    if (rc) {
        *e = why;
        return rc;
    }
    return ERR_OK;
}

err_code modelpath_find(const struct config *c, const char *value, char **ret_path, err *e)
{
    return find(c, value, true, ret_path, e);
}

err_code modelpath_check(const struct config *c, const char *value, err *e)
{
    char *path = NULL;
    struct modelref r;
    if (strcmp(c->pull, "missing") == 0 && !file_exists(value))
        return read_reference(value, &r, e);
    err_code rc = find(c, value, false, &path, e);
    free(path);
    return rc;
}

static void say(void *ud, const char *text)
{
    (void)ud;
    log_info("%s", text);
}

// A service manager waits longer while bytes come; the log shows that they do.
static void progress(void *ud, const struct pull_progress *p)
{
    struct start *s = ud;
    int64_t now = clock_ns();
    if (now - s->notified_ns > NOTIFY_S * 1000000000LL) {
        notify_send("EXTEND_TIMEOUT_USEC=120000000");
        s->notified_ns = now;
    }
    if (now - s->logged_ns > LOG_S * 1000000000LL) {
        log_info("fetching %s: %.0f of %.0f MB", p->path, (double)p->have * 1e-6, (double)p->size * 1e-6);
        s->logged_ns = now;
    }
}

static void whole(void *ud, const struct pull_progress *p)
{
    (void)ud;
    log_info("fetched %s, %.1f MB", p->path, (double)p->size * 1e-6);
}

static err_code pull_one(struct pull *p, const char *value, err *e)
{
    struct modelref r;
    struct manifest m;
    bool fresh;
    if (read_reference(value, &r, e))
        return e->code;
    log_info("fetching %s", value);
    err_code rc = pull_run(p, &r, false, &m, &fresh, e);
    if (!rc)
        manifest_done(&m);
    return rc ? err_wrap(e, "cannot fetch %s", value) : ERR_OK;
}

err_code modelpath_pull_missing(const struct config *c, err *e)
{
    struct pull *p = NULL;
    struct start start = {0, clock_ns()};
    struct pull_ui ui = {.say = say, .progress = progress, .whole = whole, .ud = &start};
    err_code rc = ERR_OK;
    signal(SIGPIPE, SIG_IGN);  // as the server will; the hub may close a connection
    for (int i = 0; i < c->nmodels && !rc && strcmp(c->pull, "missing") == 0; i++) {
        char *path = NULL;
        err why = {0};
        if (!find(c, c->models[i].path, false, &path, &why)) {
            free(path);
            continue;
        }
        if (!p)
            rc = pull_open(c, &ui, &p, e);
        if (!rc)
            rc = pull_one(p, c->models[i].path, e);
    }
    pull_close(p);
    return rc;
}
