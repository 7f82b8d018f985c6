// stored.c - see the header. Handlers run on the loop thread and look into the store on the thread pool.
#include "server/api/stored.h"

#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "base/mem.h"
#include "server/api/caller.h"
#include "server/api/fields.h"
#include "server/api/handlers.h"
#include "server/api/responses_items.h"
#include "server/apikey.h"
#include "server/request.h"
#include "server/responses.h"
#include "server/running.h"
#include "server/server.h"

enum {
    MAX_TURNS = 1000,          // of a conversation
    MAX_CONVERSATION = 32 << 20,  // bytes of it, and of what a request refers to
    MAX_LISTED = 100,
    LISTED = 20,
};

const char *api_stored_owner(struct request *r)
{
    char hex[2 * APIKEY_DIGEST + 1];
    const char *key = r->key ? request_given_key(r) : NULL;
    if (!key)
        return "";
    apikey_hmac_hex(responses_secret(server_responses(r->server)), RESPONSES_SECRET, key, strlen(key), hex);
    return arena_strdup(&r->arena, hex);
}

// ---- conversations

static json_t *parse(const char *text)
{
    return json_loads(text, JSON_ALLOW_NUL | JSON_DECODE_ANY, NULL);
}

// Its input items, then those of its output. NULL: what is kept cannot be read.
static json_t *items_of(const struct responses_row *row)
{
    json_t *object = parse(row->object), *items = parse(row->input);
    json_t *output = json_object_get(object, "output");
    bool right = json_is_array(items) && json_is_array(output);
    if (right)
        json_array_extend(items, output);
    json_decref(object);
    if (right)
        return items;
    json_decref(items);
    return NULL;
}

static void problem(struct api_stored_problem *p, int status, const char *code, const char *param, err_code why, const char *fmt,
                    const char *id)
{
    p->status = status;
    p->code = code;
    err_set_param(&p->e, why, param, fmt, id);
}

// What the store says when it cannot answer; the caller has dealt with ERR_NOT_FOUND.
static void broken(struct api_stored_problem *p, const err *e)
{
    p->status = 500;
    p->code = NULL;
    p->e = *e;
}

static void read_failed(struct api_stored_problem *p, const err *e, const char *id)
{
    if (e->code == ERR_NOT_FOUND)
        problem(p, 400, "previous_response_not_found", "previous_response_id", ERR_INVALID,
                "Previous response with id '%.130s' not found.", id);
    else
        broken(p, e);
}

json_t *api_stored_conversation(struct responses *s, const char *owner, const char *id, struct api_stored_problem *ret_problem)
{
    json_t *turns = json_array(), *all = NULL;
    struct responses_row row = {0};
    char *at = mem_strdup(id);
    size_t bytes = 0;
    while (at && !ret_problem->e.code) {
        err e = {0};
        if (responses_get(s, owner, at, &row, &e)) {
            read_failed(ret_problem, &e, at);
            break;
        }
        json_t *items = items_of(&row);
        bytes += strlen(row.object) + strlen(row.input);
        if (!items)
            problem(ret_problem, 500, NULL, "", ERR_CORRUPT, "What is kept of response '%.130s' cannot be read.", at);
        else if (json_array_size(turns) >= MAX_TURNS || bytes > MAX_CONVERSATION)
            problem(ret_problem, 400, "invalid_value", "previous_response_id", ERR_INVALID,
                    "Invalid 'previous_response_id': the conversation before '%.130s' is too long to be continued.", id);
        json_array_append_new(turns, items ? items : json_array());
        free(at);
        at = row.previous;
        row.previous = NULL;
        responses_row_done(&row);
    }
    free(at);
    if (!ret_problem->e.code) {
        all = json_array();
        for (size_t i = json_array_size(turns); i-- > 0;)
            json_array_extend(all, json_array_get(turns, i));
    }
    json_decref(turns);
    return all;
}

static void too_much(struct api_stored_problem *p, const char *id)
{
    problem(p, 400, "invalid_value", "input", ERR_INVALID,
            "Invalid 'input': what its references up to '%.130s' stand for is too much.", id);
}

// All items of the response that has this one, by their ids: the next reference is often to the same response.
static bool fetch(struct responses *s, const char *owner, const char *id, json_t *found, size_t *bytes, struct api_stored_problem *p)
{
    struct responses_row row = {0};
    err e = {0};
    if (responses_find(s, owner, id, &row, &e)) {
        if (e.code == ERR_NOT_FOUND)
            problem(p, 404, NULL, "input", ERR_NOT_FOUND,
                    "Item with id '%.130s' not found. Items are not kept when 'store' is set to false. Try again with 'store' "
                    "set to true, or remove this item from your input.", id);
        else
            broken(p, &e);
        return false;
    }
    *bytes += strlen(row.object) + strlen(row.input);
    json_t *items = items_of(&row), *item;
    size_t i;
    json_array_foreach(items, i, item) {
        const char *name = json_string_value(json_object_get(item, "id"));
        if (name)
            json_object_set(found, name, item);
    }
    json_decref(items);
    responses_row_done(&row);
    if (*bytes > MAX_CONVERSATION)
        too_much(p, id);
    else if (!json_object_get(found, id))
        problem(p, 500, NULL, "", ERR_CORRUPT, "What is kept of item '%.130s' cannot be read.", id);
    return !p->e.code;
}

// What an item takes where it stands. sizes: of those that were asked for, by their ids.
static size_t size_of(json_t *sizes, const char *id, const json_t *item)
{
    if (!json_object_get(sizes, id))
        json_object_set_new(sizes, id, json_integer((json_int_t)json_dumpb(item, NULL, 0, JSON_COMPACT)));
    return (size_t)json_integer_value(json_object_get(sizes, id));
}

// An item is read once, and then copied for each reference to it.
json_t *api_stored_resolve(struct responses *s, const char *owner, const json_t *list, struct api_stored_problem *ret_problem)
{
    json_t *resolved = json_array(), *found = json_object(), *sizes = json_object(), *item;
    size_t i, bytes = 0, referred = 0;
    json_array_foreach((json_t *)list, i, item) {
        const char *id = api_responses_items_reference(item);
        if (id && !json_object_get(found, id) && !fetch(s, owner, id, found, &bytes, ret_problem))
            break;
        json_t *meant = id ? json_object_get(found, id) : item;
        referred += id ? size_of(sizes, id, meant) : 0;
        if (referred > MAX_CONVERSATION) {
            too_much(ret_problem, id);
            break;
        }
        json_array_append(resolved, meant);
    }
    json_decref(sizes);
    json_decref(found);
    if (!ret_problem->e.code)
        return resolved;
    json_decref(resolved);
    return NULL;
}

// ---- one response

struct asked {
    const char *owner, *id;
    bool input_items, ended;
    const char *after;
    size_t limit;
    bool ascending;
    struct responses_row row;
    err e;
};

static void release(void *object)
{
    struct asked *a = object;
    responses_row_done(&a->row);
}

static struct asked *ask(struct request *r, const char *id)
{
    struct asked *a = arena_alloc(&r->arena, sizeof *a);
    a->owner = api_stored_owner(r);
    a->id = id;
    arena_defer(&r->arena, release, a);
    r->ud = a;
    return a;
}

static void reply_unknown(struct request *r, const char *id)
{
    err e = {0};
    err_set(&e, ERR_NOT_FOUND, "Response with id '%.130s' not found.", id);
    reply_problem(r, 404, "invalid_request_error", NULL, &e);
}

static void reply_running(struct request *r, const char *id)
{
    err e = {0};
    err_set(&e, ERR_NOT_FOUND, "Response with id '%.130s' is still running. It is found once it has ended, unless 'store' is false.", id);
    reply_problem(r, 404, "invalid_request_error", NULL, &e);
}

static void reply_failure(struct request *r, const struct asked *a)
{
    if (a->e.code == ERR_NOT_FOUND && running_has(r, a->id))
        reply_running(r, a->id);
    else if (a->e.code == ERR_NOT_FOUND)
        reply_unknown(r, a->id);
    else
        reply_error(r, &a->e);
}

static void refuse(struct request *r, const char *param, const char *code, const char *text)
{
    err e = {0};
    err_set_param(&e, ERR_INVALID, param, "%s", text);
    reply_problem(r, 400, "invalid_request_error", code, &e);
}

static void reply_no_address(struct request *r)
{
    err e = {0};
    err_set(&e, ERR_NOT_FOUND, "Invalid URL (%s %.200s)", r->method, r->path);
    reply_problem(r, 404, "invalid_request_error", "unknown_url", &e);
}

// "ID/rest" -> ID; NULL: the tail ends otherwise.
static const char *id_before(struct request *r, const char *rest)
{
    size_t n = strlen(r->tail), m = strlen(rest);
    return n > m && !strcmp(r->tail + n - m, rest) ? arena_strndup(&r->arena, r->tail, n - m) : NULL;
}

// A file that was damaged may hold anything: what cannot be read is not passed on.
static void look(struct request *r)
{
    struct asked *a = r->ud;
    if (responses_get(server_responses(r->server), a->owner, a->id, &a->row, &a->e))
        return;
    json_t *items = items_of(&a->row);
    if (!items)
        err_set(&a->e, ERR_CORRUPT, "What is kept of response '%.130s' cannot be read.", a->id);
    json_decref(items);
}

static json_t *ids_at(const json_t *data, size_t i)
{
    json_t *id = json_object_get(json_array_get(data, i), "id");
    return id ? json_incref(id) : json_null();
}

// At most limit items after the one named, in the order asked for.
static void reply_list(struct request *r, const struct asked *a, const json_t *items)
{
    json_t *data = json_array();
    size_t n = json_array_size(items), i = 0;
    bool more = false, begun = !a->after;
    for (; i < n && !more; i++) {
        json_t *item = json_array_get(items, a->ascending ? i : n - 1 - i);
        const char *id = json_string_value(json_object_get(item, "id"));
        more = begun && json_array_size(data) == a->limit;
        if (begun && !more)
            json_array_append(data, item);
        begun |= id && a->after && !strcmp(id, a->after);
    }
    json_t *first = ids_at(data, 0), *last = ids_at(data, json_array_size(data) - 1);
    reply_json(r, 200, json_pack("{s:s, s:o, s:o, s:o, s:b}", "object", "list", "data", data, "first_id", first, "last_id", last,
                                 "has_more", more));
}

static void looked(struct request *r)
{
    struct asked *a = r->ud;
    if (a->e.code) {
        reply_failure(r, a);
    } else if (a->input_items) {
        json_t *items = parse(a->row.input);
        reply_list(r, a, items);
        json_decref(items);
    } else {
        reply_text(r, 200, "application/json", a->row.object, strlen(a->row.object));
    }
}

// False after a refusal.
static bool read_listing(struct request *r, struct asked *a)
{
    const char *limit = request_query(r, "limit"), *order = request_query(r, "order");
    char *end = NULL;
    long n = limit && *limit >= '0' && *limit <= '9' ? strtol(limit, &end, 10) : limit ? 0 : LISTED;
    a->input_items = true;
    a->after = request_query(r, "after");
    a->ascending = order && !strcmp(order, "asc");
    a->limit = (size_t)n;
    if (n < 1 || n > MAX_LISTED || (end && *end)) {
        refuse(r, "limit", "invalid_value", "Invalid 'limit': expected a number from 1 to 100.");
        return false;
    }
    if (order && !a->ascending && strcmp(order, "desc") != 0) {
        refuse(r, "order", "invalid_value", "Invalid 'order': expected 'asc' or 'desc'.");
        return false;
    }
    return true;
}

void api_stored_get(struct request *r)
{
    const char *listed = id_before(r, "/input_items"), *stream = request_query(r, "stream");
    struct asked *a = ask(r, listed ? listed : r->tail);
    if (listed && !read_listing(r, a))
        return;
    if (!listed && strchr(r->tail, '/'))
        reply_no_address(r);
    else if (stream && !strcmp(stream, "true"))
        refuse(r, "stream", "unsupported_value", "Unsupported value: a finished response cannot be streamed again.");
    else
        request_work(r, look, looked);
}

static void drop(struct request *r)
{
    struct asked *a = r->ud;
    (void)!responses_delete(server_responses(r->server), a->owner, a->id, &a->e);
}

static void dropped(struct request *r)
{
    const struct asked *a = r->ud;
    if (a->e.code && !(a->e.code == ERR_NOT_FOUND && a->ended))
        reply_failure(r, a);
    else
        reply_json(r, 200, json_pack("{s:s%, s:s, s:b}", "id", a->id, strlen(a->id), "object", "response", "deleted", 1));
}

// One that is still running is ended.
void api_stored_delete(struct request *r)
{
    struct asked *a = ask(r, r->tail);
    a->ended = running_end(r, r->tail) > 0;
    request_work(r, drop, dropped);
}

static void reply_cancelled(struct request *r, const char *id)
{
    reply_json(r, 200, json_pack("{s:s%, s:s, s:s, s:b, s:n, s:n, s:[], s:n}", "id", id, strlen(id), "object", "response",
                                 "status", "cancelled", "background", 0, "error", "incomplete_details", "output", "usage"));
}

static void not_cancelled(struct request *r)
{
    const struct asked *a = r->ud;
    if (a->e.code)
        reply_failure(r, a);
    else
        refuse(r, "", NULL, "Cannot cancel a response that has ended.");
}

void api_stored_cancel(struct request *r)
{
    const char *id = id_before(r, "/cancel");
    if (!id) {
        reply_no_address(r);
        return;
    }
    ask(r, id);
    if (running_end(r, id))
        reply_cancelled(r, id);
    else
        request_work(r, look, not_cancelled);
}

static const struct field compact_fields[] = {
    {"model", FIELD_ACCEPTED, 0},
    {"input", FIELD_ACCEPTED, 0},
};
API_BODY(api_stored_compact, compact_fields, caller);

void api_stored_compact(struct request *r)
{
    reply_no_address(r);
}
