// metrics.c - see metrics.h. Numbers are written by hand: a page has a few hundred lines a model.
#include "server/metrics.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/utf8.h"
#include "engine/engine.h"
#include "engine/metrics.h"
#include "server/request.h"
#include "server/routes.h"
#include "server/state.h"
#include "server/version.h"

enum { PAGE_MAX = 16 << 20, CLASSES = 5, FAMILIES_MAX = 128, MILLION = 1000000 };
enum kind { KIND_COUNTER, KIND_GAUGE, KIND_HISTOGRAM };

static const char *const kinds[] = {"counter", "gauge", "histogram"};

// One number of each model.
struct family {
    const char *name, *label, *help;
    enum kind kind;
    size_t at;  // in struct metrics
};

static const struct family named[] = {
#define COUNTER(name, label, field, help) {name, label, help, KIND_COUNTER, offsetof(struct metrics, field)},
#define GAUGE(name, label, field, help) {name, label, help, KIND_GAUGE, offsetof(struct metrics, field)},
#define HISTOGRAM(name, label, field, help) {name, label, help, KIND_HISTOGRAM, offsetof(struct metrics, field)},
#include "server/metrics.def"
#undef COUNTER
#undef GAUGE
#undef HISTOGRAM
};

static const struct family all[] = {
#define COUNT(field, help) {#field, "", help, KIND_COUNTER, offsetof(struct metrics, field)},
#define GAUGE(field, help) {#field, "", help, KIND_GAUGE, offsetof(struct metrics, field)},
#define HIST(field, bounds, help) {#field, "", help, KIND_HISTOGRAM, offsetof(struct metrics, field)},
#include "engine/metrics.def"
#undef COUNT
#undef GAUGE
#undef HIST
};

enum { NAMED = sizeof named / sizeof *named, ALL = sizeof all / sizeof *all };

static const struct refusal {
    err_code code;
    const char *reason;
} refusals[] = {{ERR_BUSY, "capacity"}, {ERR_MEMORY, "memory"}, {ERR_QUOTA, "quota"}, {ERR_LATE, "deadline"},
                {ERR_DRAINING, "draining"}, {ERR_LOADING, "loading"}};
enum { REFUSALS = sizeof refusals / sizeof *refusals };

struct labelled {
    char *labels;  // model_name="...",engine="0"
    const struct metrics *m;
};

struct exposition {
    const struct route *routes;
    int nroutes, max_running;
    uint64_t (*answers)[CLASSES + 1];  // by route, the last one for none; by hundreds of the status, 0 for those that left
    uint64_t refused[REFUSALS];
    struct labelled *models;
    int nmodels;
    char *together;  // labels of what is said of all models
    struct family families[FAMILIES_MAX];
    int nfamilies;
    char le[ALL][HIST_BUCKETS][20];  // bounds as text, by number in `all`
    int bounds[NAMED + ALL];         // of each family: its number in `all`
    int64_t start_unix_s;
    int statm;
    struct buf page;
};

// ---- text

static void put(struct buf *b, const char *s)
{
    buf_add_str(b, s);
}

static void put_u64(struct buf *b, uint64_t v)
{
    char text[20];
    size_t i = sizeof text;
    do
        text[--i] = (char)('0' + v % 10);
    while (v /= 10);
    buf_add(b, text + i, sizeof text - i);
}

static void put_i64(struct buf *b, int64_t v)
{
    if (v < 0)
        buf_add_char(b, '-');
    put_u64(b, v < 0 ? 0 - (uint64_t)v : (uint64_t)v);
}

static void put_millionths(struct buf *b, int64_t v)
{
    uint64_t u = v < 0 ? 0 - (uint64_t)v : (uint64_t)v;
    char text[7] = ".000000";
    for (uint64_t rest = u % MILLION, i = 6; i > 0; i--, rest /= 10)
        text[i] = (char)('0' + rest % 10);
    if (v < 0)
        buf_add_char(b, '-');
    put_u64(b, u / MILLION);
    buf_add(b, text, sizeof text);
}

static void head(struct buf *b, const char *name, enum kind kind, const char *help)
{
    put(b, "# HELP ");
    put(b, name);
    put(b, " ");
    put(b, help);
    put(b, "\n# TYPE ");
    put(b, name);
    put(b, " ");
    put(b, kinds[kind]);
    put(b, "\n");
}

// name{labels,extra}, up to the value.
static void series(struct buf *b, const char *name, const char *labels, const char *extra)
{
    put(b, name);
    if (*labels || *extra) {
        put(b, "{");
        put(b, labels);
        put(b, *labels && *extra ? "," : "");
        put(b, extra);
        put(b, "}");
    }
    put(b, " ");
}

static void gauge(struct buf *b, const char *name, const char *help, const char *labels, int64_t v)
{
    head(b, name, KIND_GAUGE, help);
    series(b, name, labels, "");
    put_i64(b, v);
    put(b, "\n");
}

static void gauge_millionths(struct buf *b, const char *name, enum kind kind, const char *help, const char *labels,
                             int64_t v)
{
    head(b, name, kind, help);
    series(b, name, labels, "");
    put_millionths(b, v);
    put(b, "\n");
}

// A label's value: quotes, backslashes and line ends escaped, bytes that are no text as '?'.
static void put_value(struct buf *b, const char *s)
{
    bool valid = utf8_valid(s, strlen(s));
    for (; *s; s++)
        if (*s == '\n')
            put(b, "\\n");
        else if (*s == '"' || *s == '\\')
            buf_add(b, (char[]){'\\', *s}, 2);
        else
            buf_add_char(b, !valid && (*s & 0x80) ? '?' : *s);
}

static char *model_labels(const char *name)
{
    struct buf b;
    buf_init(&b, 4096);
    put(&b, "model_name=\"");
    put_value(&b, name);
    put(&b, "\",engine=\"0\"");
    return buf_take(&b);
}

// ---- the models' numbers

static const void *number(const struct metrics *m, size_t at)
{
    return (const char *)m + at;
}

static void part_of(struct buf *b, const char *name, const char *part, const char *labels)
{
    put(b, name);
    put(b, part);
    put(b, "{");
    put(b, labels);
    put(b, "} ");
}

static void put_hist(struct exposition *x, int family, const struct labelled *l)
{
    const struct family *f = &x->families[family];
    const struct hist *h = number(l->m, f->at);
    struct buf *b = &x->page;
    uint64_t n = 0;
    int64_t sum = atomic_load_explicit(&h->sum_millionths, memory_order_relaxed);
    for (int i = 0; h->bounds && i <= h->bounds->n; i++) {
        n += atomic_load_explicit(&h->counts[i], memory_order_relaxed);
        put(b, f->name);
        put(b, "_bucket{");
        put(b, l->labels);
        put(b, ",le=\"");
        put(b, i < h->bounds->n ? x->le[x->bounds[family]][i] : "+Inf");
        put(b, "\"} ");
        put_u64(b, n);
        put(b, "\n");
    }
    part_of(b, f->name, "_sum", l->labels);
    put_millionths(b, sum);
    put(b, "\n");
    part_of(b, f->name, "_count", l->labels);
    put_u64(b, n);
    put(b, "\n");
}

static void put_number(struct exposition *x, int family, const struct labelled *l)
{
    const struct family *f = &x->families[family];
    struct buf *b = &x->page;
    if (f->kind == KIND_HISTOGRAM) {
        put_hist(x, family, l);
        return;
    }
    series(b, f->name, l->labels, f->label);
    if (f->kind == KIND_COUNTER)
        put_u64(b, atomic_load_explicit((const _Atomic uint64_t *)number(l->m, f->at), memory_order_relaxed));
    else
        put_i64(b, atomic_load_explicit((const _Atomic int64_t *)number(l->m, f->at), memory_order_relaxed));
    put(b, "\n");
}

static void put_families(struct exposition *x)
{
    for (int i = 0; i < x->nfamilies; i++) {
        const struct family *f = &x->families[i];
        if (i == 0 || strcmp(f->name, f[-1].name) != 0)
            head(&x->page, f->name, f->kind, f->help);
        for (int k = 0; k < x->nmodels; k++)
            put_number(x, i, &x->models[k]);
    }
}

// ---- what routers read

static int64_t read_gauge(const _Atomic int64_t *g)
{
    return atomic_load_explicit(g, memory_order_relaxed);
}

int64_t metrics_running(const struct exposition *x)
{
    int64_t n = 0;
    for (int i = 0; i < x->nmodels; i++)
        n += read_gauge(&x->models[i].m->running);
    return n;
}

int64_t metrics_waiting(const struct exposition *x)
{
    int64_t n = 0;
    for (int i = 0; i < x->nmodels; i++)
        n += read_gauge(&x->models[i].m->waiting);
    return n;
}

// The share of the pools' bytes that is in use; without any pool the share of the places to run in.
static double kv_usage(const struct exposition *x)
{
    double used = 0, size = 0;
    for (int i = 0; i < x->nmodels; i++) {
        const struct metrics *m = x->models[i].m;
        int64_t pages = read_gauge(&m->kv_pages);
        double bytes = (double)read_gauge(&m->kv_bytes);
        if (pages > 0) {
            used += bytes * (double)read_gauge(&m->kv_pages_used) / (double)pages;
            size += bytes;
        }
    }
    double share = size > 0 ? used / size : x->max_running > 0 ? (double)metrics_running(x) / x->max_running : 0;
    return share < 0 ? 0 : share > 1 ? 1 : share;
}

static void put_cache_config(struct exposition *x)
{
    int64_t pages = 0, tokens = 0;
    for (int i = 0; i < x->nmodels; i++) {
        pages += read_gauge(&x->models[i].m->kv_pages);
        int64_t page = read_gauge(&x->models[i].m->kv_page_tokens);
        tokens = page > tokens ? page : tokens;
    }
    struct buf *b = &x->page;
    head(b, "vllm:cache_config_info", KIND_GAUGE, "Pages of key and value memory.");
    put(b, "vllm:cache_config_info{block_size=\"");
    put_i64(b, tokens);
    put(b, "\",num_gpu_blocks=\"");
    put_i64(b, pages);
    put(b, "\",");
    put(b, x->together);
    put(b, "} 1\n");
}

static void put_router(struct exposition *x)
{
    struct buf *b = &x->page;
    gauge(b, "vllm:num_requests_waiting", "Requests accepted that do not run.", x->together, metrics_waiting(x));
    gauge(b, "vllm:num_requests_running", "Requests that run.", x->together, metrics_running(x));
    gauge_millionths(b, "vllm:kv_cache_usage_perc", KIND_GAUGE, "Share of key and value memory in use, 0 to 1.",
                     x->together, (int64_t)(kv_usage(x) * MILLION));
    put_cache_config(x);
    head(b, "vllm:lora_requests_info", KIND_GAUGE, "Adapters that run and wait.");
    series(b, "vllm:lora_requests_info", "max_lora=\"0\",running_lora_adapters=\"\",waiting_lora_adapters=\"\"", x->together);
    put_i64(b, x->start_unix_s);
    put(b, "\n");
}

// ---- the server's own

static int64_t resident_bytes(const struct exposition *x)
{
    char text[128] = "";
    long pages = 0;
    if (x->statm < 0 || pread(x->statm, text, sizeof text - 1, 0) <= 0 || sscanf(text, "%*d %ld", &pages) != 1)
        return 0;
    return (int64_t)pages * sysconf(_SC_PAGESIZE);
}

static void put_process(struct exposition *x, const struct metrics_now *now)
{
    struct buf *b = &x->page;
    struct timespec cpu = {0};
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &cpu);
    gauge(b, "oxinferd:build_info", "The version that runs.", "version=\"" VERSION "\"", 1);
    gauge(b, "oxinferd:draining", "Whether requests should go elsewhere.", "", now->draining);
    gauge(b, "oxinferd:connections_open", "Open connections.", "", now->connections);
    if (now->heartbeat_ns)
        gauge_millionths(b, "oxinferd:engine_heartbeat_age_seconds", KIND_GAUGE, "Since the scheduler last went round.",
                         "", (now->now_ns - now->heartbeat_ns) / 1000);
    gauge(b, "process_start_time_seconds", "When the process started, Unix time.", "", x->start_unix_s);
    gauge(b, "process_resident_memory_bytes", "Memory of the process.", "", resident_bytes(x));
    gauge_millionths(b, "process_cpu_seconds_total", KIND_COUNTER, "Processor time used.", "",
                     (int64_t)cpu.tv_sec * MILLION + cpu.tv_nsec / 1000);
}

static void put_memory(struct exposition *x, const struct engine_memory *m)
{
    static const char name[] = "oxinferd:memory_used_bytes";
    const struct {
        const char *kind;
        size_t bytes;
    } used[] = {{"kind=\"weights\"", m->weights}, {"kind=\"kv\"", m->kv}, {"kind=\"step\"", m->step}, {"kind=\"works\"", m->works}};
    if (!m->total)
        return;
    gauge(&x->page, "oxinferd:memory_budget_bytes", "What all models together may take.", "", (int64_t)m->total);
    head(&x->page, name, KIND_GAUGE, "What is charged to the budget, by what for.");
    for (size_t i = 0; i < sizeof used / sizeof *used; i++) {
        series(&x->page, name, used[i].kind, "");
        put_u64(&x->page, used[i].bytes);
        put(&x->page, "\n");
    }
}

// Numbers vLLM has by reason or state; a model waits for itself while it is loaded, and is asleep while it is not.
static void put_states(struct exposition *x)
{
    static const char waiting[] = "vllm:num_requests_waiting_by_reason", sleep[] = "vllm:engine_sleep_state";
    static const char *const states[] = {"sleep_state=\"awake\"", "sleep_state=\"weights_offloaded\"", "sleep_state=\"discard_all\""};
    struct buf *b = &x->page;
    head(b, waiting, KIND_GAUGE, "Requests of a model that wait, for room or for the model itself.");
    for (int i = 0; i < x->nmodels; i++) {
        int64_t parked = read_gauge(&x->models[i].m->parked), all_waiting = read_gauge(&x->models[i].m->waiting);
        series(b, waiting, x->models[i].labels, "reason=\"capacity\"");
        put_i64(b, all_waiting > parked ? all_waiting - parked : 0);
        put(b, "\n");
        series(b, waiting, x->models[i].labels, "reason=\"deferred\"");
        put_i64(b, parked);
        put(b, "\n");
    }
    head(b, sleep, KIND_GAUGE, "Whether a model is in memory.");
    for (int i = 0; i < x->nmodels; i++) {
        bool loaded = read_gauge(&x->models[i].m->loaded);
        for (int k = 0; k < 3; k++) {
            series(b, sleep, x->models[i].labels, states[k]);
            put(b, (k == 0 && loaded) || (k == 2 && !loaded) ? "1\n" : "0\n");
        }
    }
}

static void put_answers(struct exposition *x)
{
    struct buf *b = &x->page;
    head(b, "oxinferd:http_requests_total", KIND_COUNTER, "Answers by route and status; left: the client did not wait.");
    for (int i = 0; i <= x->nroutes; i++)
        for (int k = 0; k <= CLASSES; k++) {
            if (!x->answers[i][k])
                continue;
            put(b, "oxinferd:http_requests_total{method=\"");
            put_value(b, i < x->nroutes ? x->routes[i].method : "");
            put(b, "\",route=\"");
            put_value(b, i < x->nroutes ? x->routes[i].path : "");
            put(b, "\",status=\"");
            if (k)
                buf_add(b, (char[]){(char)('0' + k), 'x', 'x'}, 3);
            else
                put(b, "left");
            put(b, "\"} ");
            put_u64(b, x->answers[i][k]);
            put(b, "\n");
        }
    head(b, "oxinferd:refused_requests_total", KIND_COUNTER, "Requests refused for want of something, by what.");
    for (int i = 0; i < REFUSALS; i++) {
        put(b, "oxinferd:refused_requests_total{reason=\"");
        put(b, refusals[i].reason);
        put(b, "\"} ");
        put_u64(b, x->refused[i]);
        put(b, "\n");
    }
}

void metrics_answered(struct exposition *x, const struct route *route, int status)
{
    int i = route ? (int)(route - x->routes) : x->nroutes;
    x->answers[i][status >= 100 && status < 600 ? status / 100 : 0]++;
}

void metrics_refused(struct exposition *x, err_code why)
{
    for (int i = 0; i < REFUSALS; i++)
        x->refused[i] += refusals[i].code == why;
}

const struct buf *metrics_render(struct exposition *x, const struct metrics_now *now, bool router_only)
{
    buf_clear(&x->page);
    put_router(x);
    if (!router_only) {
        put_process(x, now);
        put_memory(x, &now->memory);
        put_answers(x);
        put_states(x);
        put_families(x);
    }
    return &x->page;
}

// ---- set-up

// "ttft_s" -> "oxinferd:ttft_seconds", with what a counter's name ends with.
static char *own_name(const struct family *f)
{
    struct buf b;
    buf_init(&b, 256);
    size_t n = strlen(f->name);
    bool seconds = n > 2 && !strcmp(f->name + n - 2, "_s");
    put(&b, "oxinferd:");
    buf_add(&b, f->name, seconds ? n - 2 : n);
    put(&b, seconds ? "_seconds" : "");
    put(&b, f->kind == KIND_COUNTER ? "_total" : "");
    return buf_take(&b);
}

static int number_of(size_t at)
{
    int i = 0;
    while (i < ALL && all[i].at != at)
        i++;
    return i;
}

static void list_families(struct exposition *x)
{
    bool done[ALL] = {false};
    _Static_assert((int)NAMED + (int)ALL <= (int)FAMILIES_MAX, "more families than there is room for");
    for (int i = 0; i < NAMED; i++) {
        x->bounds[x->nfamilies] = number_of(named[i].at);
        done[number_of(named[i].at)] = true;
        x->families[x->nfamilies++] = named[i];
    }
    for (int i = 0; i < ALL; i++) {
        if (done[i])
            continue;
        x->bounds[x->nfamilies] = i;
        x->families[x->nfamilies] = all[i];
        x->families[x->nfamilies++].name = own_name(&all[i]);
    }
}

// The bounds of a kind of histogram are the same for every model.
static void write_bounds(struct exposition *x, const struct metrics *m)
{
    for (int i = 0; i < ALL; i++) {
        if (all[i].kind != KIND_HISTOGRAM)
            continue;
        const struct hist *h = number(m, all[i].at);
        for (int k = 0; h->bounds && k < h->bounds->n; k++)
            snprintf(x->le[i][k], sizeof x->le[i][k], "%.10g", h->bounds->le[k]);
    }
}

static void forget_models(struct exposition *x)
{
    for (int i = 0; i < x->nmodels; i++)
        free(x->models[i].labels);
    free(x->models);
    free(x->together);
    x->models = NULL;
    x->together = NULL;
    x->nmodels = 0;
}

void metrics_set_models(struct exposition *x, const struct metrics_model *models, int n)
{
    forget_models(x);
    x->models = mem_new((size_t)(n + 1) * sizeof *x->models);
    for (int i = 0; i < n; i++)
        x->models[i] = (struct labelled){model_labels(models[i].name), models[i].numbers};
    x->nmodels = n;
    x->together = model_labels(n == 1 ? models[0].name : n ? "*" : "");
    if (n)
        write_bounds(x, models[0].numbers);
}

struct exposition *metrics_open(const struct route *routes, int max_running)
{
    struct exposition *x = mem_new(sizeof *x);
    x->routes = routes;
    while (routes && routes[x->nroutes].path)
        x->nroutes++;
    x->answers = mem_new((size_t)(x->nroutes + 1) * sizeof *x->answers);
    x->max_running = max_running;
    x->start_unix_s = clock_unix_s();
    x->statm = open("/proc/self/statm", O_RDONLY | O_CLOEXEC);
    buf_init(&x->page, PAGE_MAX);
    list_families(x);
    metrics_set_models(x, NULL, 0);
    return x;
}

void metrics_close(struct exposition *x)
{
    if (!x)
        return;
    forget_models(x);
    for (int i = NAMED; i < x->nfamilies; i++)
        free((void *)(uintptr_t)x->families[i].name);
    if (x->statm >= 0)
        close(x->statm);
    free(x->answers);
    buf_done(&x->page);
    free(x);
}

// ---- the server's page

void metrics_find_models(struct server *s)
{
    if (!s->engine)
        return;
    struct model_info *infos = mem_new(ENGINE_MODELS_MAX * sizeof *infos);
    struct metrics_model *models = mem_new(ENGINE_MODELS_MAX * sizeof *models);
    int n = engine_models(s->engine, infos, ENGINE_MODELS_MAX), found = 0;
    for (int i = 0; i < n && i < ENGINE_MODELS_MAX; i++) {
        if (infos[i].parent[0])
            continue;  // an alias has its model's numbers, which would count twice
        models[found] = (struct metrics_model){infos[i].name, engine_metrics(s->engine, infos[i].name)};
        found += models[found].numbers != NULL;
    }
    metrics_set_models(s->exposition, models, found);
    free(models);
    free(infos);
}

void metrics_get(struct request *r)
{
    struct server *s = r->server;
    const char *set = request_query(r, "set");
    struct metrics_now now = {.now_ns = clock_ns(), .connections = s->nconns, .draining = server_unready(s)};
    if (set && strcmp(set, "router") != 0) {
        err e;
        err_set_param(&e, ERR_INVALID, "set", "Invalid 'set': '%.40s'. Expected 'router', or none.", set);
        reply_error(r, &e);
        return;
    }
    if (s->engine) {
        now.heartbeat_ns = engine_heartbeat_ns(s->engine);
        engine_memory(s->engine, &now.memory);
    }
    const struct buf *page = metrics_render(s->exposition, &now, set != NULL);
    reply_text(r, 200, "text/plain; version=0.0.4; charset=utf-8", page->data, page->len);
}
