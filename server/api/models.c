// models.c - GET /v1/models and /v1/models/{id}: OpenAI's fields, and under "meta" what this server knows; POST /models/load
// and /models/unload, as llama-server has them. Names are looked up in the engine's table and are never paths. Loop thread.
#include "server/api/models.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "server/api/fields.h"
#include "server/api/job.h"
#include "server/api/handlers.h"
#include "server/apikey.h"
#include "server/request.h"
#include "server/server.h"

// What each task is called, where it is asked for, and what goes in and comes out.
static const struct {
    unsigned bit;
    const char *name, *endpoint, *input, *output;
} tasks[] = {
    {CAN_CHAT, "chat", "/v1/chat/completions", "text", "text"},
    {CAN_COMPLETE, "completion", "/v1/completions", "text", "text"},
    {CAN_EMBED, "embedding", "/v1/embeddings", "text", "embedding"},
    {CAN_TRANSCRIBE, "transcription", "/v1/audio/transcriptions", "audio", "text"},
    {CAN_SPEAK, "speech", "/v1/audio/speech", "text", "audio"},
    {CAN_IMAGE, "image", "/v1/images/generations", "text", "image"},
    {CAN_DECIDE, "decision", "/v1/decide", "text", "decision"},
};
enum { TASKS = sizeof tasks / sizeof *tasks };

static json_t *task_names(unsigned can)
{
    json_t *list = json_array();
    for (int i = 0; i < TASKS; i++)
        if (can & tasks[i].bit)
            json_array_append_new(list, json_string(tasks[i].name));
    return list;
}

static void add_once(json_t *list, const char *text)
{
    size_t i;
    json_t *have;
    json_array_foreach(list, i, have)
        if (!strcmp(json_string_value(have), text))
            return;
    json_array_append_new(list, json_string(text));
}

static json_t *modalities(unsigned can, bool output)
{
    json_t *list = json_array();
    for (int i = 0; i < TASKS; i++)
        if (can & tasks[i].bit)
            add_once(list, output ? tasks[i].output : tasks[i].input);
    return list;
}

// What only models with some task have.
static void add_details(json_t *meta, const struct model_info *m)
{
    if (m->can & CAN_COMPLETE)
        json_object_set_new(meta, "suffix", json_boolean(m->fills));
    if (m->can & CAN_EMBED)
        json_object_set_new(meta, "dimensions", json_integer(m->dimensions));
    if (m->can & CAN_TRANSCRIBE)
        json_object_set_new(meta, "multilingual", json_boolean(m->multilingual));
    if (m->can & CAN_IMAGE)
        json_object_set_new(meta, "image_size", json_integer(m->image_size));
    if (m->can & CAN_DECIDE) {
        json_object_set_new(meta, "max_options", json_integer(m->max_options));
        json_object_set_new(meta, "native_decisions", json_boolean(m->native_decisions));
    }
    if (!(m->can & CAN_SPEAK))
        return;
    json_t *voices = json_array();
    for (int i = 0; i < m->nvoices; i++)
        json_array_append_new(voices, json_string(m->voices[i]));
    json_object_set_new(meta, "voices", voices);
    json_object_set_new(meta, "sample_rate", json_integer(m->sample_rate));
}

static const char *state_of(const struct model_info *m)
{
    static const char *const states[] = {
        [MODEL_LOADING] = "loading", [MODEL_READY] = "ready", [MODEL_FAILED] = "failed", [MODEL_UNLOADED] = "unloaded",
        [MODEL_UNLOADING] = "unloading"};
    return states[m->state];
}

// Memory and state, which come and go; what a model is stays known when it is unloaded.
static void add_state(json_t *meta, const struct model_info *m)
{
    json_object_set_new(meta, "resident_bytes", json_integer((json_int_t)m->resident_bytes));
    json_object_set_new(meta, "kv_bytes", json_integer((json_int_t)m->kv_bytes));
    json_object_set_new(meta, "memory_bytes", json_integer((json_int_t)m->memory_bytes));
    json_object_set_new(meta, "pinned", json_boolean(m->pinned));
    json_object_set_new(meta, "lazy", json_boolean(m->lazy));
    json_object_set_new(meta, "waiting", json_integer(m->parked));
    if (m->state == MODEL_FAILED)
        json_object_set_new(meta, "error", json_string(m->error.code == ERR_MEMORY ? m->error.text : err_name(m->error.code)));
}

// The other names of a model.
static json_t *aliases_of(const struct model_info *infos, int n, const char *name)
{
    json_t *list = json_array();
    for (int i = 0; i < n; i++)
        if (!strcmp(infos[i].parent, name))
            json_array_append_new(list, json_string(infos[i].name));
    return list;
}

static json_t *model_json(const struct model_info *m, const struct model_info *infos, int n)
{
    json_t *meta = json_pack("{s:s, s:s, s:s, s:o, s:i, s:i, s:I, s:I}", "state", state_of(m), "family", m->family,
                             "format", m->format, "tasks", task_names(m->can), "context", m->context, "vocab", m->vocab,
                             "weight_bytes", (json_int_t)m->weight_bytes, "kv_bytes_per_token",
                             (json_int_t)m->kv_bytes_per_token);
    json_object_set_new(meta, "input_modalities", modalities(m->can, false));
    json_object_set_new(meta, "output_modalities", modalities(m->can, true));
    add_details(meta, m);
    add_state(meta, m);
    return json_pack("{s:s, s:s, s:I, s:s, s:s?, s:o, s:i, s:o}", "id", m->name, "object", "model", "created",
                     (json_int_t)m->loaded_unix_s, "owned_by", "oxinferd", "parent", m->parent[0] ? m->parent : NULL, "aliases",
                     aliases_of(infos, n, m->name), "max_model_len", m->context, "meta", meta);
}

// A key that may use a model may use its other names.
static bool may_use(const struct request *r, const struct model_info *m)
{
    return apikey_may_use(r->key, m->name) || (m->parent[0] && apikey_may_use(r->key, m->parent));
}

// All models that the caller may use; the caller frees the array.
static struct model_info *all_models(struct request *r, int *ret_count)
{
    struct model_info *infos = mem_new(ENGINE_MODELS_MAX * sizeof *infos);
    int n = engine_models(server_engine(r->server), infos, ENGINE_MODELS_MAX);
    int fit = 0;
    for (int i = 0; i < n && i < ENGINE_MODELS_MAX; i++)
        if (may_use(r, &infos[i]))
            infos[fit++] = infos[i];
    *ret_count = fit;
    return infos;
}

void api_models_list(struct request *r)
{
    int n;
    struct model_info *infos = all_models(r, &n);
    json_t *data = json_array();
    for (int i = 0; i < n; i++)
        json_array_append_new(data, model_json(&infos[i], infos, n));
    free(infos);
    reply_json(r, 200, json_pack("{s:s, s:o}", "object", "list", "data", data));
}

// "a, b and c", as far as it fits.
static void list_names(const struct model_info *infos, int n, char *text, size_t size)
{
    size_t used = 0;
    for (int i = 0; i < n; i++) {
        const char *before = !i ? "" : i == n - 1 ? " and " : ", ";
        int len = snprintf(text + used, size - used, "%s'%s'", before, infos[i].name);
        if (len < 0 || (size_t)len >= size - used) {
            snprintf(text + used, size - used, " ...");
            return;
        }
        used += (size_t)len;
    }
}

static void fail_unknown(struct fields *f, const char *name)
{
    int n;
    struct model_info *infos = all_models(f->r, &n);
    char names[300] = "none";
    list_names(infos, n, names, sizeof names);
    free(infos);
    api_fields_fail_status(f, 404, "model_not_found", NULL, "The model '%.100s' does not exist; models served: %s.",
                           name, names);
}

// What the caller's key may not use does not exist for it.
static bool find(const struct request *r, const char *name, struct model_info *ret_info)
{
    struct model_info info;
    if (!engine_find_model(server_engine(r->server), name, &info) || !may_use(r, &info))
        return false;
    *ret_info = info;
    return true;
}

void api_models_get(struct request *r)
{
    int n, i = 0;
    struct model_info *infos = all_models(r, &n);
    while (i < n && strcmp(infos[i].name, r->tail) != 0)
        i++;
    json_t *found = i < n ? model_json(&infos[i], infos, n) : NULL;
    free(infos);
    if (found) {
        reply_json(r, 200, found);
        return;
    }
    struct fields f;
    api_fields_init(&f, r);
    fail_unknown(&f, r->tail);
    api_fields_reply(&f);
}

// The field "model"; a text with a NUL in it names nothing, though what stands before the NUL might.
static bool read_name(struct fields *f, const char **ret_name)
{
    const json_t *v = api_fields_get(f, "model");
    if (!api_fields_string(f, "model", ret_name))
        return false;
    if (json_string_length(v) == strlen(*ret_name))
        return true;
    fail_unknown(f, *ret_name);
    return false;
}

// ---- in and out of memory

static const struct field model_fields[] = {
    {"model", FIELD_HONOURED, "!string"},
};
static const size_t none = 0;
const struct api_body api_models_load_body = {model_fields, 1, NULL, &none};
const struct api_body api_models_unload_body = {model_fields, 1, NULL, &none};

static bool has_failed(struct engine *en, const char *name)
{
    struct model_info info;
    return engine_find_model(en, name, &info) && info.state == MODEL_FAILED;
}

static void change(struct request *r, err_code (*ask)(struct engine *en, const char *name, err *e))
{
    struct engine *en = server_engine(r->server);
    struct model_info info;
    struct fields f;
    const char *name = NULL;
    err e = {0};
    api_fields_init(&f, r);
    api_fields_check(&f, &api_models_load_body);
    if (!api_fields_missing(&f, "model") && read_name(&f, &name) && !find(r, name, &info))
        fail_unknown(&f, name);
    if (f.failed) {
        api_fields_reply(&f);
    } else if (ask(en, name, &e) || (ask == engine_load_model && has_failed(en, name) && ask(en, name, &e))) {
        reply_error(r, &e);  // one that fails at once is asked for again to learn why
    } else {
        (void)engine_find_model(en, name, &info);
        reply_json(r, 200, json_pack("{s:b, s:s, s:s}", "success", 1, "model", name, "state", state_of(&info)));
    }
}

void api_models_load(struct request *r)
{
    change(r, engine_load_model);
}

void api_models_unload(struct request *r)
{
    change(r, engine_unload_model);
}

struct waiting {
    struct api_job job;
};

static void on_event(struct api_job *job, const struct event *ev)
{
    (void)job;
    (void)ev;
}

static void waited(struct api_job *job)
{
    err e = job->error;
    if (e.code)
        reply_error(job->r, &e);
    else
        request_again(job->r);
}

void api_models_await(struct fields *f)
{
    struct waiting *w = arena_alloc(&f->r->arena, sizeof *w);
    struct fields own = *f;  // f has failed, for want of the model alone
    own.failed = false;
    own.await = NULL;
    api_job_init(&w->job, f->r, on_event, waited);
    api_job_read(&w->job, &own);
    if (own.failed) {
        api_fields_reply(&own);
        return;
    }
    api_job_start(&w->job, api_job_task(&w->job, TASK_LOAD, f->await));
}

// No model is named: the only one there is, or the only one that can do it (of those never loaded that is not known).
static bool find_only(struct fields *f, unsigned can, struct model_info *ret_info)
{
    int n, models = 0, fit = 0;
    struct model_info *infos = all_models(f->r, &n);
    char names[300] = "none";
    while (models < n && !infos[models].parent[0])  // aliases stand at the end
        models++;
    for (int i = 0; i < models && models > 1; i++)
        if (!can || (engine_model_known(&infos[i]) ? (infos[i].can & can) != 0 : infos[i].state != MODEL_FAILED))
            infos[fit++] = infos[i];
    bool ok = models == 1 || fit == 1;
    list_names(infos, fit, names, sizeof names);
    if (ok)
        *ret_info = infos[0];
    else
        api_fields_fail(f, "missing_required_parameter", "model",
                        "Missing required parameter: 'model'; models served at %s: %s.", f->r->path, names);
    free(infos);
    return ok;
}

// The setting with which it would, where there is one.
static const char *setting_for(const struct model_info *m, unsigned can)
{
    if (!(m->can & CAN_COMPLETE))
        return "";
    return can & CAN_DECIDE  ? " With the setting 'decision = labels' it decides too."
           : can & CAN_SPEAK ? " A speech model needs its vocoder: a folder snac/ in its own, or the setting 'vocoder'."
                             : "";
}

// A model that exists but does something else: says what, and where.
static void fail_other_task(struct fields *f, const struct model_info *m, unsigned can)
{
    char where[300] = "";
    size_t used = 0;
    for (int i = 0; i < TASKS; i++) {
        if (!(m->can & tasks[i].bit))
            continue;
        int n = snprintf(where + used, sizeof where - used, "%s%s (%s)", used ? ", " : "", tasks[i].endpoint,
                         tasks[i].name);
        used += (size_t)n < sizeof where - used ? (size_t)n : 0;
    }
    api_fields_fail(f, "model_not_supported", "model", "The model '%s' does not support %s. It serves %s.%s", m->name,
                    f->r->path, where[0] ? where : "nothing", setting_for(m, can));
}

bool api_models_find(struct fields *f, unsigned can, struct model_info *ret_info)
{
    const char *name;
    struct model_info info;
    if (!api_fields_get(f, "model")) {
        if (!find_only(f, can, &info))
            return false;
    } else if (!read_name(f, &name)) {
        return false;
    } else if (!find(f->r, name, &info)) {
        fail_unknown(f, name);
        return false;
    }
    if (!engine_model_known(&info)) {
        if (!f->failed)
            f->await = arena_strdup(&f->r->arena, info.name);
        f->failed = true;
        return false;
    }
    if (can && !(info.can & can)) {
        fail_other_task(f, &info, can);
        return false;
    }
    *ret_info = info;
    return true;
}
