// settings.c - see settings.h.
#include "server/settings.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/mem.h"
#include "config/config.h"

// What server_change, the log and the keys take over at once.
static const char *const live[] = {
    "hosts", "cors_origins", "header_timeout_s", "idle_timeout_s", "keepalive_s", "drain_timeout_s", "drain_grace_s",
    "admin_key", "api_key", "api_key_file", "store", "default_rpm", "default_tpm", "default_concurrent",
    "health_means", "log_level", "log_format", "access_log", "termination_log",
};

struct kept {
    struct config c;
    struct kept *next;
};

struct settings {
    char *const *args;
    int nargs;
    const struct config *started;  // what is in force of the settings that need a restart
    struct kept *fresh;  // read and not used yet
    struct kept *used;   // newest first; the server may hold strings of all of them
    err_code (*check)(const struct config *c, err *e);
    void (*prepare)(const struct config *c, struct server *s);
    void (*use)(const struct config *c, struct server *s);
};

// ---- comparing

static bool same_text(const char *a, const char *b)
{
    return strcmp(a, b) == 0;
}

static bool same_list(const struct config_list *a, const struct config_list *b)
{
    bool same = a->len == b->len;
    for (int i = 0; same && i < a->len; i++)
        same = same_text(a->items[i], b->items[i]);
    return same;
}

static bool same_models(const struct config *a, const struct config *b)
{
    bool same = a->nmodels == b->nmodels;
    for (int i = 0; same && i < a->nmodels; i++) {
        const struct config_model *m = &a->models[i], *n = &b->models[i];
        same = same_text(m->name, n->name) && same_text(m->path, n->path) && same_text(m->activations, n->activations) &&
               same_text(m->kv, n->kv) && same_text(m->chat_template, n->chat_template) &&
               same_text(m->decision, n->decision) && same_text(m->vocoder, n->vocoder) && m->context == n->context;
    }
    return same;
}

static bool is_live(const char *name)
{
    for (size_t i = 0; i < sizeof live / sizeof *live; i++)
        if (!strcmp(live[i], name))
            return true;
    return false;
}

static void add_name(const char *name, char *out, size_t size)
{
    size_t n = strlen(out);
    if (!is_live(name))
        snprintf(out + n, size - n, "%s%s", n ? ", " : "", name);
}

#define SAME_TEXT(a, b) same_text(a, b)
#define SAME_CHOICE(a, b) same_text(a, b)
#define SAME_LIST(a, b) same_list(&(a), &(b))
#define SAME_INT(a, b) ((a) == (b))
#define SAME_SIZE(a, b) ((a) == (b))
#define SAME_SHARE(a, b) ((a) == (b))
#define SAME_BOOL(a, b) ((a) == (b))

const char *settings_differences(const struct config *a, const struct config *b, char *out, size_t size)
{
    out[0] = 0;
#define GROUP(title)
#define KEY(kind, name, fallback, lo, hi, choices, help) \
    if (!SAME_##kind(a->name, b->name))                  \
        add_name(#name, out, size);
#include "config/keys.def"
#undef GROUP
#undef KEY
    if (!same_models(a, b) && same_list(&a->model, &b->model))  // a section of one
        add_name("model", out, size);
    return out;
}

// ---- reading again

static void drop(struct kept *k)
{
    if (k)
        config_done(&k->c);
    free(k);
}

static err_code read_again(void *ud, struct server *server, err *e)
{
    struct settings *s = ud;
    struct kept *k = mem_new(sizeof *k);
    if (config_load_models(&k->c, s->args, s->nargs, e)) {
        free(k);
        return e->code;
    }
    if (s->check(&k->c, e)) {
        drop(k);
        return e->code;
    }
    s->prepare(&k->c, server);
    s->fresh = k;  // the one before has been used
    return ERR_OK;
}

static void take(void *ud, struct server *server)
{
    struct settings *s = ud;
    struct kept *k = s->fresh;
    char names[1024];
    if (*settings_differences(s->started, &k->c, names, sizeof names))
        log_warn("changed, but used only after a restart: %s", names);
    s->use(&k->c, server);
    s->fresh = NULL;
    k->next = s->used;
    s->used = k;
}

struct settings *settings_open(const struct config *c, char *const *args, int nargs,
                               err_code (*check)(const struct config *c, err *e),
                               void (*prepare)(const struct config *c, struct server *s),
                               void (*use)(const struct config *c, struct server *s))
{
    struct settings *s = mem_new(sizeof *s);
    *s = (struct settings){.args = args, .nargs = nargs, .started = c, .check = check, .prepare = prepare,
                            .use = use};
    return s;
}

void settings_close(struct settings *s)
{
    if (!s)
        return;
    drop(s->fresh);
    for (struct kept *k = s->used, *next; k; k = next) {
        next = k->next;
        drop(k);
    }
    free(s);
}

struct server_reload settings_reload(struct settings *s)
{
    return (struct server_reload){s, read_again, take};
}
