// models.c - GET /v1/models and /v1/models/{id}: OpenAI's fields, and under "meta" what this server knows. Loop thread.
#include "server/api/models.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "server/api/fields.h"
#include "server/api/handlers.h"
#include "server/request.h"
#include "server/server.h"

enum { MAX_MODELS = 64 };

static const struct {
    unsigned bit;
    const char *name;
} tasks[] = {
    {CAN_CHAT, "chat"},    {CAN_COMPLETE, "completion"}, {CAN_EMBED, "embedding"},  {CAN_TRANSCRIBE, "transcription"},
    {CAN_SPEAK, "speech"}, {CAN_IMAGE, "image"},         {CAN_DECIDE, "decision"},
};

static json_t *task_names(unsigned can)
{
    json_t *list = json_array();
    for (size_t i = 0; i < sizeof tasks / sizeof *tasks; i++)
        if (can & tasks[i].bit)
            json_array_append_new(list, json_string(tasks[i].name));
    return list;
}

static json_t *model_json(const struct model_info *m)
{
    static const char *const states[] = {
        [MODEL_LOADING] = "loading", [MODEL_READY] = "ready", [MODEL_FAILED] = "failed"};
    json_t *meta = json_pack("{s:s, s:s, s:s, s:o, s:i, s:i, s:I, s:I}", "state", states[m->state], "family", m->family,
                             "format", m->format, "tasks", task_names(m->can), "context", m->context, "vocab", m->vocab,
                             "weight_bytes", (json_int_t)m->weight_bytes, "kv_bytes_per_token",
                             (json_int_t)m->kv_bytes_per_token);
    return json_pack("{s:s, s:s, s:I, s:s, s:i, s:o}", "id", m->name, "object", "model", "created",
                     (json_int_t)m->loaded_unix_s, "owned_by", "oxinferd", "max_model_len", m->context, "meta", meta);
}

// All models; the caller frees the array.
static struct model_info *all_models(struct request *r, int *ret_count)
{
    struct model_info *infos = mem_new(MAX_MODELS * sizeof *infos);
    int n = engine_models(server_engine(r->server), infos, MAX_MODELS);
    *ret_count = n < MAX_MODELS ? n : MAX_MODELS;
    return infos;
}

void api_models_list(struct request *r)
{
    int n;
    struct model_info *infos = all_models(r, &n);
    json_t *data = json_array();
    for (int i = 0; i < n; i++)
        json_array_append_new(data, model_json(&infos[i]));
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

void api_models_get(struct request *r)
{
    struct model_info info;
    if (engine_find_model(server_engine(r->server), r->tail, &info)) {
        reply_json(r, 200, model_json(&info));
        return;
    }
    struct fields f;
    api_fields_init(&f, r);
    fail_unknown(&f, r->tail);
    api_fields_reply(&f);
}

static bool find_only(struct fields *f, struct model_info *ret_info)
{
    int n;
    struct model_info *infos = all_models(f->r, &n);
    char names[300] = "none";
    list_names(infos, n, names, sizeof names);
    if (n == 1)
        *ret_info = infos[0];
    else
        api_fields_fail(f, "missing_required_parameter", "model",
                        "Missing required parameter: 'model'; models served: %s.", names);
    free(infos);
    return n == 1;
}

bool api_models_find(struct fields *f, unsigned can, struct model_info *ret_info)
{
    const char *name;
    struct model_info info;
    if (!api_fields_get(f, "model")) {
        if (!find_only(f, &info))
            return false;
    } else if (!api_fields_string(f, "model", &name)) {
        return false;
    } else if (!engine_find_model(server_engine(f->r->server), name, &info)) {
        fail_unknown(f, name);
        return false;
    }
    // While a model loads it is not known what it can do; the engine then answers that it is loading.
    if (info.state == MODEL_READY && can && !(info.can & can)) {
        api_fields_fail_status(f, 404, NULL, "model", "The model '%s' does not support %s.", info.name, f->r->path);
        return false;
    }
    *ret_info = info;
    return true;
}
