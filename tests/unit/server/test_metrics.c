// The metrics page: every line is Prometheus text, families stand together, buckets add up, counters never fall, and what
// a router reads comes first, as one series each.
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <ctype.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/metrics.h"
#include "server/metrics.h"
#include "server/routes.h"

static const struct route routes[] = {
    {"GET", "/metrics", ROUTE_OPEN, ROUTE_NO_BODY, metrics_get},
    {"POST", "/v1/chat/completions", ROUTE_KEY, ROUTE_JSON, metrics_get},
    {NULL, NULL, ROUTE_OPEN, ROUTE_NO_BODY, NULL},
};

// ---- a parser of the format, of its own

enum { SERIES_MAX = 4000, FAMILIES_MAX = 400 };

struct sample {
    char series[400];  // name and labels
    char name[100];
    double value;
    int family;
};

struct page {
    struct sample s[SERIES_MAX];
    int n, nfamilies;
    char family[FAMILIES_MAX][100], type[FAMILIES_MAX][12];
};

static size_t name_length(const char *s, bool colon)
{
    size_t n = 0;
    while (isalpha((unsigned char)s[n]) || s[n] == '_' || (colon && s[n] == ':') || (n && isdigit((unsigned char)s[n])))
        n++;
    return n;
}

// Behind the closing brace; NULL: not a list of labels.
static const char *skip_labels(const char *s)
{
    for (;;) {
        size_t n = name_length(s, false);
        if (!n || strncmp(s + n, "=\"", 2))
            return NULL;
        for (s += n + 2; *s != '"'; s++) {
            if (!*s || *s == '\n')
                return NULL;
            if (*s == '\\' && *++s != '\\' && *s != '"' && *s != 'n')
                return NULL;
        }
        s++;
        if (*s == '}')
            return s + 1;
        if (*s++ != ',')
            return NULL;
    }
}

// The family a sample's name belongs to is the one announced last.
static void check_family(struct page *p, struct sample *s)
{
    assert_true(p->nfamilies > 0);
    s->family = p->nfamilies - 1;
    const char *family = p->family[s->family], *rest = s->name + strlen(family);
    assert_memory_equal(s->name, family, strlen(family));
    if (!strcmp(p->type[s->family], "histogram"))
        assert_true(!strcmp(rest, "_bucket") || !strcmp(rest, "_sum") || !strcmp(rest, "_count"));
    else
        assert_string_equal(rest, "");
}

static void parse_sample(struct page *p, const char *line)
{
    struct sample *s = &p->s[p->n++];
    assert_true(p->n < SERIES_MAX);
    size_t n = name_length(line, true);
    assert_true(n > 0 && n < sizeof s->name);
    memcpy(s->name, line, n);
    s->name[n] = 0;
    const char *end = line[n] == '{' ? skip_labels(line + n + 1) : line + n;
    assert_non_null(end);
    assert_true(*end == ' ' && (size_t)(end - line) < sizeof s->series);
    memcpy(s->series, line, (size_t)(end - line));
    s->series[end - line] = 0;
    char *rest;
    s->value = strtod(end + 1, &rest);
    assert_true(rest > end + 1 && *rest == 0);
    for (int i = 0; i < p->n - 1; i++)
        assert_string_not_equal(p->s[i].series, s->series);
    check_family(p, s);
}

static void parse_comment(struct page *p, const char *line, char *help)
{
    char word[8] = "", name[100] = "", type[12] = "";
    assert_true(sscanf(line, "# %7s %99s %11s", word, name, type) == 3);
    if (!strcmp(word, "HELP")) {
        snprintf(help, 100, "%s", name);
        for (int i = 0; i < p->nfamilies; i++)  // a family that was left does not come back
            assert_string_not_equal(p->family[i], name);
        return;
    }
    assert_string_equal(word, "TYPE");
    assert_string_equal(name, help);
    assert_true(!strcmp(type, "counter") || !strcmp(type, "gauge") || !strcmp(type, "histogram"));
    strcpy(p->family[p->nfamilies], name);
    strcpy(p->type[p->nfamilies++], type);
}

static struct page *parse(const struct buf *text)
{
    assert_false(text->over);
    assert_true(text->len > 0 && text->data[text->len - 1] == '\n');
    struct page *p = calloc(1, sizeof *p);
    char *copy = strdup(text->data), *save = NULL, help[100] = "";
    assert_int_equal(strlen(copy), text->len);
    for (char *line = strtok_r(copy, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
        if (*line == '#')
            parse_comment(p, line, help);
        else
            parse_sample(p, line);
    }
    free(copy);
    return p;
}

static double value(const struct page *p, const char *series)
{
    for (int i = 0; i < p->n; i++)
        if (!strcmp(p->s[i].series, series))
            return p->s[i].value;
    fail_msg("no series %s", series);
    return 0;
}

// ---- tests

static const struct metrics_now now = {.now_ns = 5000000000, .heartbeat_ns = 4750000000, .connections = 3};

static struct exposition *open_page(struct metrics *m, int n, const char *const *names)
{
    struct metrics_model models[4];
    struct exposition *x = metrics_open(routes, 8);
    for (int i = 0; i < n; i++) {
        metrics_init(&m[i]);
        models[i] = (struct metrics_model){names[i], &m[i]};
    }
    metrics_set_models(x, models, n);
    return x;
}

static void test_router(void **state)
{
    (void)state;
    struct metrics m[1] = {0};
    struct exposition *x = open_page(m, 1, (const char *[]){"m"});
    metrics_set(&m->running, 1);
    metrics_set(&m->kv_pages, 2048);
    metrics_set(&m->kv_pages_used, 245);
    metrics_set(&m->kv_bytes, 2048 * 1000);
    metrics_set(&m->kv_page_tokens, 64);
    const char *text = metrics_render(x, &now, true)->data;
    static const char *const lines[] = {
        "# TYPE vllm:num_requests_waiting gauge\nvllm:num_requests_waiting{model_name=\"m\",engine=\"0\"} 0\n",
        "# TYPE vllm:num_requests_running gauge\nvllm:num_requests_running{model_name=\"m\",engine=\"0\"} 1\n",
        "# TYPE vllm:kv_cache_usage_perc gauge\nvllm:kv_cache_usage_perc{model_name=\"m\",engine=\"0\"} 0.11962",
        "# TYPE vllm:cache_config_info gauge\n"
        "vllm:cache_config_info{block_size=\"64\",num_gpu_blocks=\"2048\",model_name=\"m\",engine=\"0\"} 1\n",
        "# TYPE vllm:lora_requests_info gauge\nvllm:lora_requests_info{max_lora=\"0\",running_lora_adapters=\"\","
        "waiting_lora_adapters=\"\",model_name=\"m\",engine=\"0\"} ",
    };
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++)
        assert_non_null(strstr(text, lines[i]));
    struct page *p = parse(metrics_render(x, &now, true));
    assert_int_equal(p->n, 5);
    free(p);
    metrics_close(x);
}

// With several models a router still sees one series of each gauge, for all together; their own stand elsewhere.
static void test_several_models(void **state)
{
    (void)state;
    struct metrics m[2] = {0};
    struct exposition *x = open_page(m, 2, (const char *[]){"one", "t\"w\\o\n\xff"});
    metrics_set(&m[0].running, 2);
    metrics_set(&m[1].running, 3);
    metrics_set(&m[1].waiting, 7);
    metrics_set(&m[0].kv_pages, 10);
    metrics_set(&m[0].kv_pages_used, 5);
    metrics_set(&m[0].kv_bytes, 1000);
    metrics_set(&m[1].kv_pages, 10);  // three times as large
    metrics_set(&m[1].kv_bytes, 3000);
    metrics_count(&m[1].ended_stop, 4);
    struct page *p = parse(metrics_render(x, &now, false));
    assert_true(value(p, "vllm:num_requests_running{model_name=\"*\",engine=\"0\"}") == 5);
    assert_true(value(p, "vllm:num_requests_waiting{model_name=\"*\",engine=\"0\"}") == 7);
    assert_true(value(p, "vllm:kv_cache_usage_perc{model_name=\"*\",engine=\"0\"}") == .125);
    for (int i = 0; i < p->n; i++)
        if (!strcmp(p->s[i].name, "vllm:num_requests_running"))
            assert_non_null(strstr(p->s[i].series, "\"*\""));
    assert_true(value(p, "oxinferd:requests_running{model_name=\"one\",engine=\"0\"}") == 2);
    assert_true(value(p, "vllm:request_success_total{model_name=\"t\\\"w\\\\o\\n?\",engine=\"0\",finished_reason=\"stop\"}") == 4);
    free(p);
    metrics_set(&m[0].kv_pages, 0);
    metrics_set(&m[1].kv_pages, 0);
    p = parse(metrics_render(x, &now, true));  // no language model: places to run in, 8 of them
    assert_true(value(p, "vllm:kv_cache_usage_perc{model_name=\"*\",engine=\"0\"}") == .625);
    free(p);
    metrics_close(x);
}

static void test_states(void **state)
{
    (void)state;
    struct metrics m[1] = {0};
    struct exposition *x = open_page(m, 1, (const char *[]){"m"});
    metrics_set(&m->waiting, 5);
    metrics_set(&m->parked, 2);
    struct metrics_now then = now;
    then.memory = (struct engine_memory){100, 40, 30, 20, 1};
    struct page *p = parse(metrics_render(x, &then, false));
#define OF "{model_name=\"m\",engine=\"0\","
    assert_true(value(p, "vllm:num_requests_waiting_by_reason" OF "reason=\"capacity\"}") == 3);
    assert_true(value(p, "vllm:num_requests_waiting_by_reason" OF "reason=\"deferred\"}") == 2);
    assert_true(value(p, "vllm:engine_sleep_state" OF "sleep_state=\"awake\"}") == 0);
    assert_true(value(p, "vllm:engine_sleep_state" OF "sleep_state=\"discard_all\"}") == 1);
    assert_true(value(p, "oxinferd:memory_budget_bytes") == 100);
    assert_true(value(p, "oxinferd:memory_used_bytes{kind=\"step\"}") == 20);
    free(p);
    metrics_set(&m->loaded, 1);
    p = parse(metrics_render(x, &now, false));
    assert_true(value(p, "vllm:engine_sleep_state" OF "sleep_state=\"awake\"}") == 1);
    assert_true(value(p, "vllm:engine_sleep_state" OF "sleep_state=\"discard_all\"}") == 0);
#undef OF
    free(p);
    metrics_close(x);
}

// Whatever the engine counts is there, under one name or another.
static void test_everything_is_there(void **state)
{
    (void)state;
    struct metrics m[1] = {0};
    struct exposition *x = open_page(m, 1, (const char *[]){"m"});
    struct page *before = parse(metrics_render(x, &now, false));
    int n = before->n;
#define COUNT(name, help) metrics_count(&m->name, 1);
#define GAUGE(name, help) metrics_set(&m->name, 1);
#define HIST(name, bounds, help) hist_add(&m->name, .5);
#include "engine/metrics.def"
#undef COUNT
#undef GAUGE
#undef HIST
    struct page *after = parse(metrics_render(x, &now, false));
    assert_int_equal(after->n, n);  // the page has its size from the start
    for (int i = 0; i < n; i++) {
        bool of_models = strstr(after->s[i].series, "model_name=\"m\"") && strcmp(after->s[i].name, "vllm:cache_config_info") &&
                         strcmp(after->s[i].name, "vllm:lora_requests_info") &&
                         strcmp(after->s[i].name, "vllm:num_requests_waiting_by_reason") &&
                         strcmp(after->s[i].name, "vllm:engine_sleep_state");
        bool bucket = strstr(after->s[i].series, "le=\"");
        if (of_models && !bucket)
            assert_true(after->s[i].value > before->s[i].value);
    }
    free(before);
    free(after);
    metrics_close(x);
}

struct pusher {
    struct metrics *m;
    atomic_bool stop;
};

static void *push(void *arg)
{
    struct pusher *p = arg;
    for (unsigned i = 0; !atomic_load(&p->stop); i++) {
        metrics_count(&p->m->generation_tokens, 3);
        hist_add(&p->m->itl_s, (i % 300) * .3);  // beyond the last bound too
        hist_add(&p->m->request_prompt_tokens, i % 5000);
    }
    return NULL;
}

// Buckets are cumulative and end with the count; nothing falls from one page to the next.
static void check_histograms(const struct page *p)
{
    for (int i = 0; i < p->n; i++) {
        if (!strstr(p->s[i].series, "le=\""))
            continue;
        bool first = i == 0 || p->s[i - 1].family != p->s[i].family || !strstr(p->s[i - 1].series, "le=\"");
        if (!first)
            assert_true(p->s[i].value >= p->s[i - 1].value);
        if (strstr(p->s[i].series, "le=\"+Inf\""))
            assert_true(p->s[i].value == p->s[i + 2].value);  // _sum, _count
    }
}

static void test_under_load(void **state)
{
    (void)state;
    struct metrics m[1] = {0};
    struct exposition *x = open_page(m, 1, (const char *[]){"m"});
    struct pusher pusher = {.m = m};
    pthread_t t;
    assert_int_equal(pthread_create(&t, NULL, push, &pusher), 0);
    struct page *last = NULL;
    for (int round = 0; round < 20; round++) {
        metrics_answered(x, &routes[round % 2], 200 + 100 * (round % 4));
        struct page *p = parse(metrics_render(x, &now, false));
        check_histograms(p);
        for (int i = 0; last && i < last->n; i++)
            if (strcmp(last->type[last->s[i].family], "gauge"))
                assert_true(value(p, last->s[i].series) >= last->s[i].value);
        free(last);
        last = p;
    }
    atomic_store(&pusher.stop, true);
    pthread_join(t, NULL);
    free(last);
    metrics_close(x);
}

static void test_answers(void **state)
{
    (void)state;
    struct exposition *x = metrics_open(routes, 8);
    metrics_answered(x, &routes[1], 200);
    metrics_answered(x, &routes[1], 200);
    metrics_answered(x, &routes[1], 503);
    metrics_answered(x, &routes[1], 0);
    metrics_answered(x, NULL, 404);
    metrics_refused(x, ERR_OK);
    metrics_refused(x, ERR_BUSY);
    metrics_refused(x, ERR_QUOTA);
    metrics_refused(x, ERR_QUOTA);
    struct page *p = parse(metrics_render(x, &now, false));
#define ANSWERS "oxinferd:http_requests_total"
    assert_true(value(p, ANSWERS "{method=\"POST\",route=\"/v1/chat/completions\",status=\"2xx\"}") == 2);
    assert_true(value(p, ANSWERS "{method=\"POST\",route=\"/v1/chat/completions\",status=\"5xx\"}") == 1);
    assert_true(value(p, ANSWERS "{method=\"POST\",route=\"/v1/chat/completions\",status=\"left\"}") == 1);
    assert_true(value(p, ANSWERS "{method=\"\",route=\"\",status=\"4xx\"}") == 1);
    assert_true(value(p, "oxinferd:refused_requests_total{reason=\"quota\"}") == 2);
    assert_true(value(p, "oxinferd:refused_requests_total{reason=\"capacity\"}") == 1);
    assert_true(value(p, "oxinferd:engine_heartbeat_age_seconds") == .25);
    assert_true(value(p, "oxinferd:connections_open") == 3);
    assert_true(value(p, "process_resident_memory_bytes") > 1 << 20);
    free(p);
    metrics_close(x);
}

// A page costs the same after a billion tokens as after none: as many lines, no more memory once it was rendered.
static void test_cost(void **state)
{
    (void)state;
    struct metrics m[1] = {0};
    struct exposition *x = open_page(m, 1, (const char *[]){"m"});
    assert_true(metrics_render(x, &now, true)->len < 1500);  // 938
    const struct buf *page = metrics_render(x, &now, false);
    size_t len = page->len, cap = page->cap;
    assert_true(len < 64 << 10);  // 37 KB with 48 families
    const char *data = page->data;
    metrics_count(&m->generation_tokens, 1000000000);
    for (int i = 0; i < 100000; i++)
        hist_add(&m->ttft_s, .1);
    page = metrics_render(x, &now, false);
    assert_true(page->len - len < 200);  // more digits
    assert_true(page->cap == cap && page->data == data);
    metrics_close(x);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_router),     cmocka_unit_test(test_several_models), cmocka_unit_test(test_states), cmocka_unit_test(test_everything_is_there),
        cmocka_unit_test(test_under_load), cmocka_unit_test(test_answers),        cmocka_unit_test(test_cost),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
