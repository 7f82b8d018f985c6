// serve.c - the start of the daemon. The port is bound before models load, so that health checks answer at once; a model
// that fails to load ends the process with its error and a non-zero status.

#include "server/serve.h"

#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "config/config.h"
#include "engine/engine.h"
#include "server/auth.h"
#include "server/endpoints.h"
#include "server/listen.h"
#include "server/modellog.h"
#include "server/hub/modelpath.h"
#include "server/server.h"
#include "server/settings.h"
#include "server/tls.h"
#include "server/upload.h"
#include "server/version.h"

static struct engine_config engine_settings(const struct config *c)
{
    return (struct engine_config){
        .threads = (int)c->threads,
        .isa = c->isa,
        .memory = c->memory > 0 ? (size_t)c->memory : 0,
        .memory_percent = c->memory < 0 ? (int)-c->memory : 0,
        .kv_bytes = c->kv_memory > 0 ? (size_t)c->kv_memory : 0,
        .kv_percent = c->kv_memory < 0 ? (int)-c->kv_memory : 0,
        .load_timeout_s = (int)c->load_timeout_s,
        .idle_unload_s = (int)c->idle_unload_s,
        .max_waiting = (int)c->max_waiting,
        .max_waiting_tokens = (size_t)c->max_waiting_tokens,
        .max_waiting_bytes = (size_t)c->max_waiting_bytes,
        .max_running = (int)c->max_running,
        .prefill_chunk = (int)c->prefill_chunk,
        .pin = c->pin,
        .on_model = modellog_event,
    };
}

static struct server_config server_settings_of(const struct config *c)
{
    return (struct server_config){
        .routes = endpoints,
        .listen = c->listen.items,
        .nlisten = c->listen.len,
        .port_file = *c->port_file ? c->port_file : NULL,
        .api_keys = c->api_key.items,
        .nkeys = c->api_key.len,
        .api_key_file = *c->api_key_file ? c->api_key_file : NULL,
        .store = *c->store ? c->store : NULL,
        .default_rpm = c->default_rpm,
        .default_tpm = c->default_tpm,
        .default_concurrent = c->default_concurrent,
        .tls_cert = *c->tls_cert ? c->tls_cert : NULL,
        .tls_key = *c->tls_key ? c->tls_key : NULL,
        .cors_origins = c->cors_origins.items,
        .ncors = c->cors_origins.len,
        .hosts = c->hosts.items,
        .nhosts = c->hosts.len,
        .allow_public = c->allow_public,
        .max_body = (size_t)c->max_body,
        .max_upload = (size_t)c->max_upload,
        .upload_dir = *c->upload_dir ? c->upload_dir : NULL,
        .max_audio_s = (int)c->max_audio_s,
        .header_timeout_s = (int)c->header_timeout_s,
        .idle_timeout_s = (int)c->idle_timeout_s,
        .drain_timeout_s = c->drain_timeout_s ? (int)c->drain_timeout_s : -1,
        .keepalive_s = (int)c->keepalive_s,
        .max_connections = (int)c->max_connections,
        .max_connections_per_address = (int)c->max_connections_per_address,
        .max_prompts = (int)c->max_waiting,
        .image_url_ttl_s = (int)c->image_url_ttl_s,
        .responses_db = *c->responses_db ? c->responses_db : NULL,
        .max_responses = c->max_responses,
        .max_responses_bytes = (size_t)c->max_responses_bytes,
        .responses_ttl_s = c->responses_ttl_s,
        .no_page = !c->web_page,
        .queue_timeout_s = (int)c->queue_timeout_s,
        .trust_gateway = c->trust_gateway,
        .strict_fields = c->strict_fields,
        .access_log = c->access_log,
        .admin_listen = *c->admin_listen ? c->admin_listen : NULL,
        .admin_key = *c->admin_key ? c->admin_key : NULL,
        .drain_grace_s = (int)c->drain_grace_s,
        .health_is_live = !strcmp(c->health_means, "live"),
        .max_running = (int)c->max_running,
    };
}

static const struct config_model *find_model(const struct config *c, const char *name)
{
    for (int i = 0; i < c->nmodels; i++)
        if (config_is_model(&c->models[i], name))
            return &c->models[i];
    return NULL;
}

static bool listed(const struct config_list *l, const struct config_model *m)
{
    for (int i = 0; i < l->len; i++)
        if (config_is_model(m, l->items[i]) || strcmp(l->items[i], "all") == 0)
            return true;
    return false;
}

static err_code check_names(const struct config *c, const char *setting, const struct config_list *l, err *e)
{
    for (int i = 0; i < l->len; i++)
        if (strcmp(l->items[i], "all") != 0 && !find_model(c, l->items[i]))
            return err_set_param(e, ERR_INVALID, setting, "%s: there is no model '%s'", setting, l->items[i]);
    return ERR_OK;
}

// NAME=MODEL in two; the parts lie in `name`.
static err_code split_alias(const char *item, char name[ENGINE_NAME_MAX + 1], const char **ret_model, err *e)
{
    const char *eq = strchr(item, '=');
    if (!eq || eq == item || eq - item > ENGINE_NAME_MAX)
        return err_set_param(e, ERR_INVALID, "alias", "alias '%s' is not NAME=MODEL, such as gpt-4o=qwen", item);
    memcpy(name, item, (size_t)(eq - item));
    name[eq - item] = 0;
    *ret_model = eq + 1;
    return ERR_OK;
}

// What a browser never sends would be a setting without effect.
static err_code check_addresses(const struct config *c, err *e)
{
    for (int i = 0; i < c->cors_origins.len; i++) {
        const char *origin = c->cors_origins.items[i], *host = strstr(origin, "://");
        if (strcmp(origin, "*") && strcmp(origin, "null") && (!host || !host[3] || strchr(host + 3, '/')))
            return err_set_param(e, ERR_INVALID, "cors_origins",
                                 "cors_origins: '%.200s' is no origin: expected *, or scheme and host without a path, such as "
                                 "https://app.example or http://localhost:3000", origin);
    }
    for (int i = 0; i < c->hosts.len; i++) {
        const char *colon = strchr(c->hosts.items[i], ':');
        if (strchr(c->hosts.items[i], '/') || (colon && !strchr(colon + 1, ':')))
            return err_set_param(e, ERR_INVALID, "hosts", "hosts: '%.200s' is no name of a host without its port, such as llm.example",
                                 c->hosts.items[i]);
    }
    return ERR_OK;
}

static err_code check_lists(const struct config *c, err *e)
{
    char name[ENGINE_NAME_MAX + 1];
    const char *model;
    if (check_names(c, "lazy", &c->lazy, e) || check_names(c, "pinned", &c->pinned, e) || check_addresses(c, e))
        return e->code;
    for (int i = 0; i < c->nmodels; i++)
        if (c->models[i].context == 1)
            return err_set_param(e, ERR_INVALID, "context", "context is 1, expected 0 or at least 2: a token of a prompt and one of its "
                                 "answer");
    for (int i = 0; i < c->alias.len; i++) {
        if (split_alias(c->alias.items[i], name, &model, e))
            return e->code;
        if (!find_model(c, model))
            return err_set_param(e, ERR_INVALID, "alias", "alias '%s': there is no model '%s'", name, model);
        if (find_model(c, name))
            return err_set_param(e, ERR_INVALID, "alias", "alias '%s': there is a model of this name", name);
    }
    return ERR_OK;
}

static struct model_config model_settings(const struct config *c, const struct config_model *m)
{
    return (struct model_config){
        .name = m->name,
        .path = m->path,
        .activations = m->activations,
        .kv = m->kv,
        .context = (int)m->context,
        .chat_template = *m->chat_template ? m->chat_template : NULL,
        .decision = *m->decision ? m->decision : NULL,
        .vocoder = *m->vocoder ? m->vocoder : NULL,
        .max_image_pixels = (size_t)c->max_image_pixels,
        .lazy = listed(&c->lazy, m),
        .pinned = listed(&c->pinned, m),
    };
}

static err_code check_admin(const struct config *c, err *e)
{
    err ignored;
    if (listen_check(c->admin_listen, true, e))
        return e->code;
    if (!*c->admin_key && listen_check(c->admin_listen, false, &ignored))
        return err_set_param(e, ERR_INVALID, "admin_listen", "%s can be reached from other machines, but no admin_key is set",
                             c->admin_listen);
    return ERR_OK;
}

// Reads the keys and forgets them: whether there are any.
static err_code check_keys(const struct config *c, bool *ret_any, err *e)
{
    struct server_config sc = server_settings_of(c);
    struct auth_sources from = {sc.api_keys, sc.nkeys, sc.api_key_file, sc.store};
    struct auth_table *t;
    if (auth_read(&from, &t, e))
        return e->code;
    *ret_any = t->nkeys > 0;
    auth_unref(t);
    return ERR_OK;
}

err_code serve_check(const struct config *c, err *e)
{
    bool keys = false;
    if (check_keys(c, &keys, e))
        return e->code;
    if (c->listen.len == 0)
        return err_set_param(e, ERR_INVALID, "listen", "no address to listen on");
    struct server_config sc = server_settings_of(c);
    struct tls *tls;
    if (tls_open(sc.tls_cert, sc.tls_key, &tls, e))
        return e->code;
    tls_close(tls);
    for (int i = 0; i < c->listen.len && !getenv("LISTEN_FDS"); i++)  // inherited sockets take the place of the setting
        if (listen_check(c->listen.items[i], keys || c->allow_public, e))
            return e->code;
    if (*c->admin_listen && check_admin(c, e))
        return e->code;
    if (upload_check_folder(c->upload_dir, e) || engine_check_isa(c->isa, e) || engine_check_threads((int)c->threads, c->pin, e))
        return e->code;
    for (int i = 0; i < c->nmodels; i++) {
        const struct config_model *m = &c->models[i];
        if (strlen(m->name) > ENGINE_NAME_MAX)
            return err_set_param(e, ERR_INVALID, "model", "model '%.40s...': a name has at most %d bytes", m->name,
                                 ENGINE_NAME_MAX);
        if (modelpath_check(c, m->path, e))
            return err_wrap(e, "model '%s'", m->name);
        if (*m->chat_template && strcmp(m->chat_template, "chatml") != 0 && !file_exists(m->chat_template))
            return err_set_param(e, ERR_NOT_FOUND, "chat_template",
                                 "model '%s': chat_template is neither a file nor 'chatml': '%s'", m->name, m->chat_template);
        if (*m->decision && strcmp(m->decision, "labels") != 0 && !file_is_dir(m->decision))
            return err_set_param(e, ERR_NOT_FOUND, "decision", "model '%s': decision is neither a folder nor 'labels': '%s'",
                                 m->name, m->decision);
        if (*m->vocoder && !file_exists(m->vocoder))
            return err_set_param(e, ERR_NOT_FOUND, "vocoder", "model '%s': there is no vocoder '%s'", m->name, m->vocoder);
    }
    return check_lists(c, e);
}

// Waits for the models of the start, which the engine tells of one by one; a failure takes the process down through its own signal handling.
struct watcher {
    pthread_t thread;
    const struct config *config;
    struct engine *engine;
    err error;
    int64_t start_ns;
};

static void *watch_models(void *arg)
{
    struct watcher *w = arg;
    int lazy = 0;
    for (int i = 0; i < w->config->nmodels; i++) {
        const char *name = w->config->models[i].name;
        if (listed(&w->config->lazy, &w->config->models[i])) {
            lazy++;  // one that a request asked for meanwhile, and that failed, is that request's affair
            continue;
        }
        if (engine_wait_model(w->engine, name, &w->error)) {
            if (w->error.code != ERR_DRAINING) {
                err_wrap(&w->error, "model '%s'", name);
                kill(getpid(), SIGTERM);
            }
            return NULL;
        }
    }
    double took = (double)(clock_ns() - w->start_ns) * 1e-9;
    if (!w->config->nmodels)
        log_warn("no model is served; give one with --model PATH or NAME=PATH");
    else if (lazy)
        log_info("ready after %.2f s; models that are loaded when they are asked for: %d", took, lazy);
    else
        log_info("ready after %.2f s", took);
    return NULL;
}

static void say_addresses(const struct server *s)
{
    char url[256];
    for (int i = 0; server_address(s, i, url, sizeof url); i++)
        log_info("oxinferd %s listening on %s", VERSION, url);
}

static err_code add_models(const struct config *c, struct engine *en, err *e)
{
    char name[ENGINE_NAME_MAX + 1];
    const char *model;
    err_code rc = ERR_OK;
    for (int i = 0; i < c->nmodels && !rc; i++) {
        struct model_config m = model_settings(c, &c->models[i]);
        char *path = NULL;
        rc = modelpath_find(c, m.path, &path, e);
        m.path = path;
        if (!rc)
            rc = engine_add_model(en, &m, e);
        free(path);
    }
    for (int i = 0; i < c->alias.len && !rc; i++) {
        rc = split_alias(c->alias.items[i], name, &model, e);
        if (!rc)
            rc = engine_add_alias(en, name, find_model(c, model)->name, e);
    }
    for (int i = 0; i < c->nmodels && !rc; i++) {
        const struct config_model *m = &c->models[i];
        err why = {0};
        if (*m->short_name && engine_add_alias(en, m->short_name, m->name, &why))
            log_warn("model %s cannot be asked for as %s: %s", m->name, m->short_name, why.text);
    }
    return rc;
}

static bool is_loading(struct engine *en)
{
    struct model_info models[ENGINE_MODELS_MAX];
    int n = engine_models(en, models, ENGINE_MODELS_MAX);
    for (int i = 0; i < n && i < ENGINE_MODELS_MAX; i++)
        if (models[i].state == MODEL_LOADING)
            return true;
    return false;
}

static void set_log(const struct config *c)
{
    static const char *const levels[] = {"error", "warn", "info", "debug"};
    for (int i = 0; i < 4; i++)
        if (strcmp(c->log_level, levels[i]) == 0)
            log_set_level((enum log_level)i);
    log_set_json(strcmp(c->log_format, "json") == 0);
}

static void prepare_settings(const struct config *c, struct server *s)
{
    struct server_config sc = server_settings_of(c);
    server_change_sources(s, &sc);
}

static void use_settings(const struct config *c, struct server *s)
{
    struct server_config sc = server_settings_of(c);
    set_log(c);
    server_change(s, &sc);
}

static err_code run(const struct config *c, struct settings *settings, struct engine *en, int *ret_status, err *e)
{
    struct server_config sc = server_settings_of(c);
    sc.reload = settings_reload(settings);
    struct server *server = NULL;
    struct watcher w = {.config = c, .engine = en, .start_ns = clock_ns()};
    err_code rc = server_open(&sc, en, &server, e);
    if (!rc)
        rc = add_models(c, en, e);
    for (int i = 0; i < c->strays.len && !rc; i++)
        log_warn("%s", c->strays.items[i]);
    if (!rc)
        say_addresses(server);
    if (!rc && pthread_create(&w.thread, NULL, watch_models, &w))
        rc = err_set(e, ERR_INTERNAL, "cannot start a thread");
    if (!rc) {
        *ret_status = server_run(server);
        engine_drain(en);  // wakes the watcher if a model is still loading
        pthread_join(w.thread, NULL);
    }
    server_close(server);
    if (!is_loading(en))  // a large model takes a minute more; the process ends without waiting, nothing is lost
        engine_close(en);
    if (!rc && w.error.code && w.error.code != ERR_DRAINING) {
        *e = w.error;
        rc = w.error.code;
    }
    return rc;
}

err_code serve_run(const struct config *c, char *const *args, int nargs, int *ret_status, err *e)
{
    set_log(c);
    err_code rc = serve_check(c, e);
    if (!rc)
        rc = modelpath_pull_missing(c, e);
    if (rc)
        return rc;
    struct engine_config ec = engine_settings(c);
    struct engine *en = NULL;
    rc = engine_open(&ec, &en, e);
    if (rc)
        return rc;
    struct settings *settings = settings_open(c, args, nargs, serve_check, prepare_settings, use_settings);
    rc = run(c, settings, en, ret_status, e);
    settings_close(settings);
    return rc;
}
