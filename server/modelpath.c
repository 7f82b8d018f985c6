// See the header. Calling thread only; the store is opened anew each time, which costs microseconds.
#include "server/modelpath.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/log.h"
#include "base/mem.h"
#include "config/config.h"
#include "server/modelref.h"
#include "server/modelstore.h"
#include "server/pull.h"

static err_code find_stored(const struct config *c, const struct modelref *r, char **ret_path, err *e)
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
        manifest_done(&m);
    }
    modelstore_close(s);
    return rc;
}

// A path that is missing is not looked for in a store.
static err_code read_reference(const char *value, struct modelref *ret_ref, err *e)
{
    err why;
    if (strchr("/.~", value[0]) || modelref_parse(value, ret_ref, &why))
        return err_set_param(e, ERR_NOT_FOUND, "model", "there is no file or folder '%s'", value);
    return ERR_OK;
}

err_code modelpath_find(const struct config *c, const char *value, char **ret_path, err *e)
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
    err_code rc = find_stored(c, &r, ret_path, &why);
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

err_code modelpath_check(const struct config *c, const char *value, err *e)
{
    char *path = NULL;
    struct modelref r;
    if (strcmp(c->pull, "missing") == 0 && !file_exists(value))
        return read_reference(value, &r, e);
    err_code rc = modelpath_find(c, value, &path, e);
    free(path);
    return rc;
}

static void say(void *ud, const char *text)
{
    (void)ud;
    log_info("%s", text);
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
    struct pull_ui ui = {.say = say, .whole = whole};
    err_code rc = ERR_OK;
    for (int i = 0; i < c->nmodels && !rc && strcmp(c->pull, "missing") == 0; i++) {
        char *path = NULL;
        err why = {0};
        if (!modelpath_find(c, c->models[i].path, &path, &why)) {
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
