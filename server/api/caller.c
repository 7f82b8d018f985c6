// See the header. Cache domains are named by an HMAC with a secret of this process: a client that chooses a cache_salt
// narrows its own domain and cannot name another's.
#include "server/api/caller.h"

#include <ctype.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "server/apikey.h"
#include "server/request.h"
#include "server/server.h"

enum { MAX_TIMEOUT_S = 7 * 86400, FAIRNESS_MAX = 128, SALT_MAX = 64 << 10 };

const struct field api_caller_fields[] = {API_CALLER_FIELDS};
const size_t api_caller_nfields = sizeof api_caller_fields / sizeof *api_caller_fields;

static pthread_once_t once = PTHREAD_ONCE_INIT;
static unsigned char secret[32];

static void draw_secret(void)
{
    apikey_random(secret, sizeof secret);
}

// ---- who

static const char *fairness_id(const struct request *r)
{
    const char *id = request_header(r, "x-llm-d-inference-fairness-id");
    return id && *id ? id : request_header(r, "x-gateway-inference-fairness-id");
}

static void read_account(struct api_caller *c, struct request *r)
{
    const char *id = server_settings(r->server)->trust_gateway ? fairness_id(r) : NULL;
    c->weight = r->key ? (float)r->key->weight : 1;
    if (id && *id)
        c->account = arena_printf(&r->arena, "fairness:%.*s", FAIRNESS_MAX, id);
    else if (r->key)
        c->account = r->key_id;  // has no ':'
    else
        c->account = arena_printf(&r->arena, "address:%s", r->peer);
}

static void read_salt(struct api_caller *c, struct fields *f)
{
    struct request *r = f->r;
    const struct apikey *k = r->key;
    const char *salt = NULL;
    char hex[2 * APIKEY_DIGEST + 1];
    struct buf domain;
    api_fields_string(f, "cache_salt", &salt);
    if (!k && !salt)
        return;
    buf_init(&domain, SALT_MAX + 1024);
    buf_add_str(&domain, !k ? "all " : *k->group ? "group " : "key ");
    if (k && *k->group)
        buf_printf(&domain, "%s ", k->group);  // names have no blanks
    else if (k)
        buf_add(&domain, k->digest, sizeof k->digest);  // not the name: that of a plain key is its place in a list
    if (salt)
        buf_printf(&domain, "+%s", salt);
    if (domain.over) {
        api_fields_fail(f, "string_above_max_length", "cache_salt", "Invalid 'cache_salt': at most %d bytes.", SALT_MAX);
    } else {
        pthread_once(&once, draw_secret);
        apikey_hmac_hex(secret, sizeof secret, domain.data, domain.len, hex);
        c->cache_salt = arena_strdup(&r->arena, hex);
    }
    buf_done(&domain);
}

// ---- how urgent

static const struct {
    const char *name;
    enum apikey_class wanted;
} tiers[] = {{"auto", APIKEY_NORMAL}, {"default", APIKEY_NORMAL}, {"standard", APIKEY_NORMAL}, {"scale", APIKEY_NORMAL},
             {"flex", APIKEY_BATCH}, {"batch", APIKEY_BATCH}, {"priority", APIKEY_INTERACTIVE},
             {"fast", APIKEY_INTERACTIVE}, {"ultrafast", APIKEY_INTERACTIVE}};

static enum apikey_class read_tier(struct fields *f, bool *ret_asked)
{
    const char *tier = NULL;
    *ret_asked = api_fields_string(f, "service_tier", &tier);
    for (size_t i = 0; tier && i < sizeof tiers / sizeof *tiers; i++)
        if (!strcmp(tier, tiers[i].name))
            return tiers[i].wanted;
    if (tier)
        api_fields_fail(f, "invalid_value", "service_tier", "Invalid value: '%.40s'. Supported values are: 'auto', "
                        "'default', 'flex' and 'priority'.", tier);
    return APIKEY_NORMAL;
}

static void read_class(struct api_caller *c, struct fields *f)
{
    static const enum task_class classes[] = {
        [APIKEY_BATCH] = CLASS_BATCH, [APIKEY_NORMAL] = CLASS_NORMAL, [APIKEY_INTERACTIVE] = CLASS_INTERACTIVE};
    static const char *const said[] = {
        [APIKEY_BATCH] = "flex", [APIKEY_NORMAL] = "default", [APIKEY_INTERACTIVE] = "priority"};
    bool asked;
    enum apikey_class wanted = read_tier(f, &asked), best = f->r->key ? f->r->key->best : APIKEY_INTERACTIVE;
    int number;
    if (api_fields_small(f, "priority", &number))
        wanted = number < 0 ? APIKEY_INTERACTIVE : number > 0 ? APIKEY_BATCH : APIKEY_NORMAL;
    if (wanted > best)
        wanted = best;
    c->class = classes[wanted];
    c->tier = asked ? said[wanted] : NULL;
}

static int64_t sooner(int64_t a, int64_t b)
{
    return !a || (b && b < a) ? b : a;
}

static void read_deadlines(struct api_caller *c, struct fields *f)
{
    struct request *r = f->r;
    double timeout_s;
    int queue_s = server_settings(r->server)->queue_timeout_s;
    const char *header = request_header(r, "x-request-timeout-ms");
    c->arrived_ns = r->received_ns;
    if (api_fields_number(f, "timeout", &timeout_s))
        c->deadline_ns = r->received_ns + (int64_t)(timeout_s * 1e9);
    if (header) {
        char *end;
        long long ms = strtoll(header, &end, 10);
        if (!isdigit((unsigned char)*header) || *end || ms < 1 || ms > MAX_TIMEOUT_S * 1000LL)
            api_fields_fail(f, "invalid_value", "x-request-timeout-ms", "Invalid header 'x-request-timeout-ms': '%.40s' is not a "
                            "number of milliseconds from 1 to %lld.", header, MAX_TIMEOUT_S * 1000LL);
        else
            c->deadline_ns = sooner(c->deadline_ns, r->received_ns + ms * 1000000);
    }
    if (queue_s > 0)
        c->begin_deadline_ns = r->received_ns + (int64_t)queue_s * 1000000000;
}

void api_caller_read(struct api_caller *c, struct fields *f)
{
    *c = (struct api_caller){.behind = &f->r->behind};
    read_account(c, f->r);
    read_salt(c, f);
    read_class(c, f);
    read_deadlines(c, f);
}

void api_caller_fill(const struct api_caller *c, struct task *t)
{
    t->account = c->account ? arena_strdup(&t->arena, c->account) : NULL;
    t->weight = c->weight;
    t->class = c->class;
    t->cache_salt = c->cache_salt ? arena_strdup(&t->arena, c->cache_salt) : NULL;
    t->arrived_ns = c->arrived_ns;
    t->deadline_ns = c->deadline_ns;
    t->begin_deadline_ns = c->begin_deadline_ns;
    t->held = c->behind;
}
