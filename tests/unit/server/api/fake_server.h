// fake_server.h - the server's half of fake.h: requests, answers, streams. Included by it alone.
#pragma once

#include "tests/unit/server/api/fake_state.h"

// ---- server

struct engine *server_engine(struct server *s)
{
    return (struct engine *)s;
}

const struct server_config *server_settings(const struct server *s)
{
    (void)s;
    return &fake.settings;
}

const char *request_header(const struct request *r, const char *name)
{
    (void)r;
    return fake.header_name && !strcmp(name, fake.header_name) ? fake.header : NULL;
}

const char *request_query(const struct request *r, const char *name)
{
    (void)r;
    for (int i = 0; i < 4 && fake.query[i][0]; i++)
        if (!strcmp(fake.query[i][0], name))
            return fake.query[i][1];
    return NULL;
}

const char *request_given_key(const struct request *r)
{
    (void)r;
    return fake.given_key;
}

struct responses *server_responses(struct server *s)
{
    (void)s;
    return fake.responses;
}

bool running_has(struct request *by, const char *id)
{
    (void)by;
    return fake.running && !strcmp(fake.running, id);
}

int running_end(struct request *by, const char *id)
{
    (void)by;
    return fake.running && !strcmp(fake.running, id);
}

void request_set_header(struct request *r, const char *name, const char *value)
{
    (void)r;
    assert_string_equal(name, "x-ignored-fields");
    snprintf(fake.ignored, sizeof fake.ignored, "%s", value);
}

void request_problem(struct request *r, const err *e)
{
    (void)r;
    assert_true(*e->text);
}

void request_note(struct request *r, const struct request_facts *facts)
{
    (void)r;
    assert_non_null(facts->model);
    fake.usage = (int64_t)facts->prompt_tokens + facts->completion_tokens;
}

void reply_json(struct request *r, int status, struct json_t *body)
{
    (void)r;
    fake.answers++;
    fake.status = status;
    fake.body = body;
}

void reply_text(struct request *r, int status, const char *content_type, const char *text, size_t len)
{
    json_error_t error;
    if (strcmp(content_type, "application/json")) {
        snprintf(fake.content_type, sizeof fake.content_type, "%s", content_type);
        fake.text = mem_strndup(text, len);
        fake.text_len = len;
        fake.answers++;
        fake.status = status;
        return;
    }
    json_t *body = json_loadb(text, len, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, &error);
    if (!body)
        fail_msg("not JSON: %s in %s", error.text, text);
    reply_json(r, status, body);
}

void reply_problem(struct request *r, int status, const char *type, const char *code, const err *e)
{
    fake.type = type;
    reply_json(r, status, json_pack("{s:{s:s, s:s, s:s?, s:s?}}", "error", "message", e->text, "type", type, "param",
                                    *e->param ? e->param : NULL, "code", code));
}

struct json_t *reply_error_json(const err *e)
{
    return json_pack("{s:{s:s, s:s, s:s?, s:s}}", "error", "message", e->text, "type", "server_error", "param",
                     *e->param ? e->param : NULL, "code", err_name(e->code));
}

void reply_error(struct request *r, const err *e)
{
    int status = e->code == ERR_BUSY ? 503 : e->code == ERR_CONTEXT || e->code == ERR_INVALID ? 400
                 : e->code == ERR_TIMEOUT ? 504 : 500;
    reply_json(r, status, reply_error_json(e));
}

void reply_error_code(struct request *r, const err *e, const char *code)
{
    reply_problem(r, e->code == ERR_INVALID || e->code == ERR_UNSUPPORTED ? 400 : 500, "server_error", code, e);
}

int reply_status_of(err_code code, const char **ret_type, const char **ret_code)
{
    *ret_type = "server_error";
    *ret_code = err_name(code);
    return 500;
}

struct sse *reply_sse(struct request *r)
{
    assert_false(fake.stream);
    assert_int_equal(fake.answers, 0);
    fake.stream = true;
    return (struct sse *)r;
}

bool sse_send_named(struct sse *s, const char *name, const char *data, size_t len)
{
    (void)s;
    assert_true(fake.stream);
    assert_false(fake.ended);
    assert_null(memchr(data, '\n', len));
    if (fake.client_gone)
        return false;
    assert_true(fake.nevents < FAKE_EVENTS);
    fake.names[fake.nevents] = name;
    fake.events[fake.nevents++] = mem_strndup(data, len);
    return true;
}

bool sse_send(struct sse *s, const char *data, size_t len)
{
    return sse_send_named(s, NULL, data, len);
}

bool sse_send_json(struct sse *s, struct json_t *event)
{
    char *text = json_dumps(event, JSON_COMPACT);
    bool sent = sse_send(s, text, strlen(text));
    free(text);
    json_decref(event);
    return sent;
}

void sse_allow(struct sse *s, size_t waiting)
{
    (void)s;
    assert_true(waiting >= 256 << 10);
}

struct stream *reply_stream(struct request *r, const char *content_type)
{
    assert_false(fake.stream || fake.bytes);
    assert_int_equal(fake.answers, 0);
    fake.bytes = true;
    snprintf(fake.content_type, sizeof fake.content_type, "%s", content_type);
    return (struct stream *)r;
}

bool stream_send(struct stream *s, const void *p, size_t n)
{
    (void)s;
    assert_true(fake.bytes && !fake.ended);
    if (fake.client_gone)
        return false;
    fake.text = mem_resize(fake.text, fake.text_len + n + 1);
    memcpy(fake.text + fake.text_len, p, n);
    fake.text_len += n;
    return true;
}

void stream_end(struct stream *s, bool ok)
{
    (void)s;
    assert_false(fake.ended);
    fake.ended = true;
    fake.bytes_ok = ok;
    fake.answers++;
}

void request_again(struct request *r)
{
    (void)r;
    fake.again++;
}

void request_work(struct request *r, void (*work)(struct request *r), void (*done)(struct request *r))
{
    if (fake.work_waits) {
        fake.work = work;
        fake.work_done = done;
        return;
    }
    work(r);
    done(r);
}

void sse_end(struct sse *s, bool with_done)
{
    (void)s;
    assert_false(fake.ended);
    fake.ended = true;
    fake.with_done = with_done;
    fake.answers++;
}
