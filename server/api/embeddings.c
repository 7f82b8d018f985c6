// embeddings.c - POST /v1/embeddings: one engine task with all inputs, whose vectors are written into the answer as they
// come.
//
// The collector lives in the request's arena. The handler fills it on the loop thread; after the start only the job's
// callbacks touch it.
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "codecs/base64.h"
#include "engine/engine.h"
#include "server/api/fields.h"
#include "server/api/handlers.h"
#include "server/api/job.h"
#include "server/api/jsonout.h"
#include "server/api/models.h"
#include "server/request.h"

enum { MAX_INPUTS = 2048, MAX_ANSWER = 512 << 20 };

struct collector {
    struct api_job job;  // first: the job's callbacks are given its address
    struct model_info model;
    bool base64, normalize;
    struct buf out;        // "data" of the answer
    float *vector;         // of unit length
    size_t room;
};

// ---- the answer

// Unit length, unless the vector is 0 everywhere.
static const float *unit(struct collector *c, const float *v, size_t n)
{
    double sum = 0;
    for (size_t i = 0; i < n; i++)
        sum += (double)v[i] * (double)v[i];
    if (!c->normalize || sum == 0 || fabs(sum - 1) < 1e-6)  // has it already
        return v;
    if (n > c->room) {
        c->vector = mem_resize(c->vector, n * sizeof *c->vector);
        c->room = n;
    }
    double norm = sqrt(sum);
    for (size_t i = 0; i < n; i++)
        c->vector[i] = (float)((double)v[i] / norm);
    return c->vector;
}

static void add_base64(struct buf *out, const float *v, size_t n)
{
    size_t bytes = n * sizeof *v, length;
    char *text = base64_length(bytes, &length) ? mem_try(length) : NULL;
    if (!text) {
        out->over = true;
        return;
    }
    base64_encode(v, bytes, text);  // memory is little-endian on every machine this is built for
    buf_add_char(out, '"');
    buf_add(out, text, length);
    buf_add_char(out, '"');
    free(text);
}

static void on_event(struct api_job *job, const struct event *ev)
{
    struct collector *c = (struct collector *)job;
    if (ev->kind != EVENT_VECTOR)
        return;
    const float *v = unit(c, ev->values, ev->nvalues);
    buf_printf(&c->out, "%s{\"object\":\"embedding\",\"index\":%d,\"embedding\":", c->out.len ? "," : "", ev->choice);
    if (c->base64)
        add_base64(&c->out, v, ev->nvalues);
    else
        api_jsonout_floats(&c->out, v, ev->nvalues);
    buf_add_char(&c->out, '}');
}

static void write_answer(const struct collector *c, struct buf *json)
{
    int tokens = c->job.usage.prompt_tokens;
    buf_add_str(json, "{\"object\":\"list\",\"data\":[");
    buf_add(json, c->out.data ? c->out.data : "", c->out.len);
    buf_add_str(json, "],\"model\":");
    api_jsonout_text(json, c->model.name);
    buf_printf(json, ",\"usage\":{\"prompt_tokens\":%d,\"total_tokens\":%d}}", tokens, tokens);
}

static void answer(struct api_job *job)
{
    struct collector *c = (struct collector *)job;
    struct buf json;
    buf_init(&json, MAX_ANSWER);
    if (!job->error.code)
        write_answer(c, &json);
    if (json.over || c->out.over)
        err_set(&job->error, ERR_INTERNAL, "the answer is larger than %d MB", MAX_ANSWER >> 20);
    if (job->error.code) {
        api_fields_clean(job->error.text);
        reply_error(job->r, &job->error);
    } else {
        reply_text(job->r, 200, "application/json", json.data, json.len);
    }
    buf_done(&json);
}

static void release(void *object)
{
    struct collector *c = object;
    buf_done(&c->out);
    free(c->vector);
}

// ---- the request

static bool read_text(struct fields *f, struct task *t, const json_t *v, const char *path, struct embed_input *in)
{
    size_t len = json_string_length(v);
    if (len == 0) {
        api_fields_fail(f, "empty_string", "input",
                        "Invalid '%s': empty string. Expected a text with at least one character.", path);
        return false;
    }
    char *copy = mem_try(len + 1);
    if (!copy) {
        api_fields_fail_status(f, 500, NULL, "input", "No memory for %zu bytes of input.", len);
        return false;
    }
    memcpy(copy, json_string_value(v), len);
    arena_defer(&t->arena, free, copy);
    *in = (struct embed_input){.text = copy, .len = len};
    return true;
}

static bool read_ids(struct fields *f, struct task *t, const json_t *v, const char *path, struct embed_input *in)
{
    size_t n = json_array_size(v), bytes;
    int32_t *ids = size_mul(n + 1, sizeof *ids, &bytes) ? mem_try(bytes) : NULL;
    int64_t id = 0;
    char at[64];
    if (!ids) {
        api_fields_fail_status(f, 500, NULL, "input", "No memory for %zu ids.", n);
        return false;
    }
    arena_defer(&t->arena, free, ids);
    if (n == 0) {
        api_fields_empty(f, path);
        return false;
    }
    for (size_t i = 0; i < n; i++) {
        snprintf(at, sizeof at, "%s[%zu]", path, i);
        if (!api_fields_as_int(f, json_array_get(v, i), at, 0, INT32_MAX, &id))
            return false;
        ids[i] = (int32_t)id;
    }
    *in = (struct embed_input){.ids = ids, .nids = n};
    return true;
}

static void read_list(struct fields *f, struct task *t, const json_t *list, struct embed_input *in)
{
    bool texts = json_is_string(json_array_get(list, 0));
    size_t i;
    json_t *v;
    char path[32];
    json_array_foreach ((json_t *)list, i, v) {
        snprintf(path, sizeof path, "input[%zu]", i);
        if (texts ? !json_is_string(v) : !json_is_array(v)) {
            const char *expected = i ? "an array of integers" : "a string or an array of integers";
            api_fields_wrong_type(f, v, path, texts ? "a string" : expected);
            return;
        }
        if (texts ? !read_text(f, t, v, path, &in[i]) : !read_ids(f, t, v, path, &in[i]))
            return;
    }
    t->embed.ninputs = json_array_size(list);
}

// A text, texts, the ids of one text, or of several.
static void read_input(struct fields *f, struct task *t)
{
    const json_t *v = api_fields_get(f, "input");
    size_t n = json_is_array(v) ? json_array_size(v) : 1;
    bool one = !json_is_array(v) || json_is_number(json_array_get(v, 0));
    if (!json_is_array(v) && !json_is_string(v)) {
        api_fields_wrong_type(f, v, "input", "a string or an array");
        return;
    }
    if (n == 0) {
        api_fields_empty(f, "input");
        return;
    }
    if (!one && n > MAX_INPUTS) {
        api_fields_fail(f, "array_above_max_length", "input",
                        "Invalid 'input': array too long. Expected an array with maximum length %d, but got an array with "
                        "length %zu instead.", MAX_INPUTS, n);
        return;
    }
    struct embed_input *in = arena_alloc(&t->arena, (one ? 1 : n) * sizeof *in);
    t->embed.inputs = in;
    if (!one)
        read_list(f, t, v, in);
    else if (json_is_string(v) ? read_text(f, t, v, "input", in) : read_ids(f, t, v, "input", in))
        t->embed.ninputs = 1;
}

static void read_format(struct fields *f, bool *ret_base64)
{
    const char *format;
    if (!api_fields_string(f, "encoding_format", &format))
        return;
    *ret_base64 = strcmp(format, "base64") == 0;
    if (!*ret_base64 && strcmp(format, "float") != 0)
        api_fields_fail(f, "invalid_value", "encoding_format",
                        "Invalid 'encoding_format': '%.40s'. Expected 'float' or 'base64'.", format);
}

static void read_options(struct fields *f, struct task *t, struct collector *c)
{
    const char *text;
    read_format(f, &c->base64);
    api_fields_bool(f, "truncate", &t->embed.truncate);
    api_fields_bool(f, "normalize", &c->normalize);
    api_fields_small(f, "dimensions", &t->embed.dimensions);
    if (api_fields_string(f, "prompt_name", &text))
        t->embed.prompt_name = arena_strdup(&t->arena, text);
    if (api_fields_string(f, "prompt", &text))
        t->embed.prompt = arena_strdup(&t->arena, text);
}

static const struct field embedding_fields[] = {
    {"model", FIELD_HONOURED, "string"},
    {"input", FIELD_HONOURED, "!string|[string]|[integer]|[[integer]]"},
    {"encoding_format", FIELD_HONOURED, "string: float base64"},
    {"dimensions", FIELD_HONOURED, "integer 1..16777216"},
    {"user", FIELD_ACCEPTED, 0},
    {"prompt_name", FIELD_HONOURED, "string"},
    {"prompt", FIELD_HONOURED, "string"},
    {"truncate", FIELD_HONOURED, "boolean"},
    {"normalize", FIELD_HONOURED, "boolean"},
};
API_BODY(api_embeddings_create, embedding_fields, caller);

void api_embeddings_create(struct request *r)
{
    struct fields f;
    api_fields_init(&f, r);
    api_fields_check(&f, &api_embeddings_create_body);
    struct collector *c = arena_alloc(&r->arena, sizeof *c);
    *c = (struct collector){.normalize = true};
    buf_init(&c->out, MAX_ANSWER);
    arena_defer(&r->arena, release, c);
    api_job_init(&c->job, r, on_event, answer);
    api_job_read(&c->job, &f);
    bool there = !api_fields_missing(&f, "input") && api_models_find(&f, CAN_EMBED, &c->model);
    struct task *t = api_job_task(&c->job, TASK_EMBED, c->model.name);
    read_options(&f, t, c);
    if (there)
        read_input(&f, t);
    if (!f.failed) {
        api_job_start(&c->job, t);
        return;
    }
    task_free(t);
    api_fields_reply(&f);
}
