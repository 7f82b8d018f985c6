// drive.h - posts requests to the handlers of server/api and plays the engine's part.
//
//     post(api_chat_create, "{...}");          // runs the handler; tasks it submits are fake.tasks[0..]
//     start(0, 5, 0); text(0, 0, "Hi"); finish(0, 0, FINISH_STOP); end(0, 1);
//     assert_string_equal(content(...), ...);  // fake.body, fake.events
//     done();                                  // frees the request and checks that it was answered exactly once
#pragma once

#include "base/buf.h"
#include "server/upload.h"
#include "tests/unit/server/api/fake.h"

static int set_up(void **state)
{
    (void)state;
    memset(&fake, 0, sizeof fake);
    fake.models[0] = (struct model_info){.name = "tiny", .family = "llama", .format = "gguf", .state = MODEL_READY,
                                         .can = CAN_CHAT | CAN_COMPLETE, .context = 512, .vocab = 300,
                                         .loaded_unix_s = 7};
    fake.nmodels = 1;
    return 0;
}

static struct request *new_request(void)
{
    struct request *r = mem_new(sizeof *r);
    r->server = (struct server *)r;
    r->path = "/v1/test";
    r->tail = r->key_id = r->peer = "";
    r->id = "req_1";
    r->received_ns = clock_ns();
    return r;
}

static inline void post(void (*handler)(struct request *r), const char *json)
{
    json_error_t error;
    struct request *r = new_request();
    r->json = json ? json_loads(json, JSON_ALLOW_NUL, &error) : NULL;
    if (json && !r->json)
        fail_msg("test's JSON: %s: %s", error.text, json);
    fake.r = r;
    handler(r);
}

// A form: name, value, name, value ... NULL; and a file unless bytes is NULL.
static inline void post_form(void (*handler)(struct request *r), const void *file, size_t n, const char *const *fields)
{
    struct request *r = new_request();
    struct upload_limits limits = {16 << 20, NULL};
    struct buf b;
    err e = {0};
    buf_init(&b, 64 << 20);
    for (int i = 0; fields && fields[i]; i += 2)
        buf_printf(&b, "--B\r\nContent-Disposition: form-data; name=\"%s\"\r\n\r\n%s\r\n", fields[i], fields[i + 1]);
    if (file) {
        buf_add_str(&b, "--B\r\nContent-Disposition: form-data; name=\"file\"; filename=\"x\"\r\n\r\n");
        buf_add(&b, file, n);
        buf_add_str(&b, "\r\n");
    }
    buf_add_str(&b, "--B--\r\n");
    if (upload_new(&r->arena, "multipart/form-data; boundary=B", &limits, &r->upload, &e) ||
        upload_add(r->upload, b.data, b.len, &e) || upload_finish(r->upload, &e))
        fail_msg("%s", e.text);
    buf_done(&b);
    fake.r = r;
    handler(r);
}

static inline void emit(int task, struct event ev)
{
    struct task *t = fake.tasks[task];
    t->on_event(t, &ev);
}

static inline void start(int task, int prompt, int cached)
{
    emit(task, (struct event){.kind = EVENT_START, .usage = {prompt, cached, 0, 0}});
}

static inline void text(int task, int choice, const char *s)
{
    emit(task, (struct event){.kind = EVENT_TEXT, .choice = choice, .text = s, .len = strlen(s)});
}

static inline void thought(int task, int choice, const char *s)
{
    emit(task, (struct event){.kind = EVENT_TEXT, .choice = choice, .channel = CHANNEL_REASONING, .text = s, .len = strlen(s)});
}

// A piece of a call's arguments; name: it is the first, ends: it is the last.
static inline void call(int task, int choice, int number, const char *name, const char *s, bool ends)
{
    emit(task, (struct event){.kind = EVENT_TEXT, .choice = choice, .channel = CHANNEL_CALL, .call = number, .name = name,
                              .call_ends = ends, .text = s, .len = strlen(s)});
}

static inline void finish(int task, int choice, enum finish how)
{
    emit(task, (struct event){.kind = EVENT_FINISH, .choice = choice, .finish = how});
}

static inline void end_task(int task, struct event ev)
{
    struct task *t = fake.tasks[task];
    ev.kind = EVENT_END;
    t->on_event(t, &ev);
    task_free(t);
}

static inline void end(int task, int prompt, int completion)
{
    end_task(task, (struct event){.usage = {prompt, 0, completion, 0}});
}

static inline void end_badly(int task, err_code code, const char *why)
{
    struct event ev = {0};
    err_set(&ev.error, code, "%s", why);
    end_task(task, ev);
}

static void done(void)
{
    assert_int_equal(fake.answers, 1);
    arena_done(&fake.r->arena);
    json_decref(fake.r->json);
    json_decref(fake.body);
    free(fake.r);
    free(fake.text);
    for (int i = 0; i < fake.nevents; i++)
        free(fake.events[i]);
    set_up(NULL);
}

// Compares a JSON text with what is expected, member order included.
static inline void same_json(const json_t *got, const char *want)
{
    char *text_got = json_dumps(got, JSON_COMPACT | JSON_ENCODE_ANY | JSON_REAL_PRECISION(6));
    assert_string_equal(text_got, want);
    free(text_got);
}

// Part of an event: events[i] without the head that every chunk shares.
static inline const char *chunk(int i)
{
    assert_true(i < fake.nevents);
    const char *at = strstr(fake.events[i], "\"choices\":");
    return at ? at : fake.events[i];
}

static inline void starts_with(const char *text_of, const char *want)
{
    if (strncmp(text_of, want, strlen(want)))
        fail_msg("%s does not start with %s", text_of, want);
}

// Posts, expects a 400 (or `status`) at once with this param and code ("" for null), and no task.
static inline void was_refused(const char *json, int status, const char *param, const char *code)
{
    if (!fake.body)
        fail_msg("accepted: %s", json);
    const json_t *e = json_object_get(fake.body, "error");
    const char *p = json_string_value(json_object_get(e, "param")), *c = json_string_value(json_object_get(e, "code"));
    if (fake.status != status || strcmp(p ? p : "", param) || strcmp(c ? c : "", code))
        fail_msg("%s: %d %s %s: %s", json, fake.status, p, c, json_string_value(json_object_get(e, "message")));
    assert_int_equal(fake.ntasks, 0);
    assert_non_null(json_string_value(json_object_get(e, "message")));
    done();
}

static inline void refused(void (*handler)(struct request *r), const char *json, int status, const char *param,
                           const char *code)
{
    post(handler, json);
    was_refused(json, status, param, code);
}
