// load.c - requests to a server with OpenAI's HTTP interface: how fast they are answered, and whether rightly.
//
// One thread, one epoll. A client is a connection with at most one request on it. A closed loop (--clients N) asks again
// when the answer came; an open one (--rate R) asks when its time has come, and a request that finds no free client waits
// for one, with its time running. The last line of the output is JSON; what went wrong is shown on the error output.
//
// --variants N: N different requests are sent alone first, one after another; afterwards they come at random and every
// answer, streamed or not, must be the one that came alone (of a client that leaves: its beginning).
#include <errno.h>
#include <getopt.h>
#include <math.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/rng.h"
#include "base/thread.h"
#include "bench/load/answer.h"
#include "bench/load/ask.h"
#include "bench/load/figures.h"
#include "bench/load/wire.h"

#define FAILURES(X) X(refused) X(reset) X(cut) X(no_http) X(status) X(busy) X(error_event) X(unfinished) X(wrong) X(lost)
enum failure {
#define X(name) FAIL_##name,
    FAILURES(X)
#undef X
    FAILURE_KINDS,
    FAIL_none = FAILURE_KINDS
};
static const char *const failure_names[] = {
#define X(name) #name,
    FAILURES(X)
#undef X
};

enum { PROBES = 4, MAX_CLIENTS = 4096, MAX_LINE = 16 << 20, SHOWN = 5 };

struct options {
    struct ask_options ask;
    struct wire_address address;
    char *probes[PROBES];    // paths
    int clients;
    double rate, think_s, duration_s, timeout_s;
    long requests;
    int variants;
    bool mixed;
    int long_tokens;
    int probe_ms;
    double step_s, prefill_rate;  // of goodput
    const char *label;
};

// One of the requests whose answer is known.
struct variant {
    struct ask ask;
    struct answer answer;
};

enum client_state { CLIENT_FREE, CLIENT_THINKS, CLIENT_BUSY };

struct client {
    struct run *run;
    struct wire wire;
    enum client_state state;
    struct ask own;              // without variants
    const struct ask *ask;
    const struct variant *variant;
    struct answer answer;
    struct buf text;             // a line of the stream that is not whole yet, or the body
    bool leaves;
    int pieces;                  // events with tokens so far
    int64_t wake_ns;             // thinks until, or leaves at; 0: neither
    int64_t asked_ns, heard_ns, first_ns, last_ns;
    double longest_s;            // gap
};

struct run {
    struct options o;
    int epoll;
    struct client *clients, longer, probe;
    struct ask probe_asks[PROBES];
    struct variant *variants;
    bool alone;                  // the variants are asked for the first time
    uint64_t next;               // number of the next request
    long asked, ended, left, good;
    long failures[FAILURE_KINDS];
    uint64_t tokens, prompt_tokens, cached_tokens;
    struct figures ttft, gaps, whole, probes[PROBES];
    int64_t start_ns, stop_ns, end_ns, arrival_ns, probe_ns;
    double *backlog;             // arrival times of requests that wait for a client
    size_t nbacklog, backlog_cap;
    int64_t long_asked_ns, long_first_ns, long_ended_ns;
    int shown;
};

// ---- what an answer means

static void complain(struct client *c, enum failure f, const char *why)
{
    struct run *r = c->run;
    r->failures[f]++;
    if (r->shown++ >= SHOWN)
        return;
    fprintf(stderr, "load: %s, %s: %s (status %d, %d pieces): %.300s\n", c->ask->what, failure_names[f], why, c->answer.status,
            c->pieces, c->answer.whole.len ? c->answer.whole.data : c->answer.choices[0].text.len ? c->answer.choices[0].text.data : "");
    for (int i = 0; f == FAIL_wrong && c->variant && i < c->ask->choices; i++)
        fprintf(stderr, "load:   choice %d was \"%.200s\" %s, is \"%.200s\" %s\n", i,
                c->variant->answer.choices[i].text.len ? c->variant->answer.choices[i].text.data : "",
                c->variant->answer.choices[i].finish, c->answer.choices[i].text.len ? c->answer.choices[i].text.data : "",
                c->answer.choices[i].finish);
}

static enum failure judge(struct client *c, enum wire_end how, const char **ret_why)
{
    static const enum failure ends[] = {[WIRE_REFUSED] = FAIL_refused, [WIRE_RESET] = FAIL_reset, [WIRE_CUT] = FAIL_cut,
                                        [WIRE_BAD] = FAIL_no_http};
    const struct answer *a = &c->answer;
    *ret_why = "the connection";
    if (how != WIRE_WHOLE)
        return ends[how];
    *ret_why = "not the status that was expected";
    if (a->status != c->ask->status)
        return a->status == 429 || a->status == 503 ? FAIL_busy : FAIL_status;
    *ret_why = "an error event, or no JSON";
    if (a->failed)
        return FAIL_error_event;
    *ret_why = "no end of the stream";
    if (a->stream && !a->done)
        return FAIL_unfinished;
    *ret_why = c->variant && !c->run->alone ? answer_differs(&c->variant->answer, a, false) : NULL;
    return *ret_why ? FAIL_wrong : FAIL_none;
}

// Goodput: the first token within 2 s and 1.5 times what prefilling takes, and no gap over 2.5 steps.
static bool is_good(const struct client *c)
{
    const struct options *o = &c->run->o;
    int fresh = c->answer.prompt_tokens - (c->answer.cached_tokens > 0 ? c->answer.cached_tokens : 0);
    double most_s = 2 + (fresh > 0 ? 1.5 * fresh / o->prefill_rate : 0);
    return c->first_ns && (double)(c->first_ns - c->asked_ns) * 1e-9 <= most_s && c->longest_s <= 2.5 * o->step_s;
}

static void think(struct client *c)
{
    struct run *r = c->run;
    c->state = r->o.rate > 0 || c == &r->longer ? CLIENT_FREE : CLIENT_THINKS;
    c->wake_ns = clock_ns();
    if (r->o.think_s > 0)
        c->wake_ns += (int64_t)(-log(1 - rng_unit(r->o.ask.seed, r->next, 7)) * r->o.think_s * 1e9);
}

static void finish(struct client *c, enum wire_end how)
{
    struct run *r = c->run;
    const char *why;
    int64_t now = clock_ns();
    if (c->answer.status && !c->answer.stream)
        answer_body(&c->answer, c->text.data ? c->text.data : "", c->text.len);
    enum failure f = judge(c, how, &why);
    r->ended++;
    if (f != FAIL_none)
        complain(c, f, why);
    else if (c->ask->kind == ASK_TEXT) {
        r->tokens += (uint64_t)(c->answer.completion_tokens > 0 ? c->answer.completion_tokens : 0);
        r->prompt_tokens += (uint64_t)(c->answer.prompt_tokens > 0 ? c->answer.prompt_tokens : 0);
        r->cached_tokens += (uint64_t)(c->answer.cached_tokens > 0 ? c->answer.cached_tokens : 0);
        r->good += c->ask->stream && is_good(c);
        figures_add(&r->whole, now, (double)(now - c->asked_ns) * 1e-9);
    }
    if (r->alone) {  // what came is what must come from now on
        struct variant *v = &r->variants[c->variant - r->variants];
        struct answer empty = v->answer;
        v->answer = c->answer;
        c->answer = empty;
    }
    if (c == &r->longer)
        r->long_ended_ns = now;
    think(c);
}

static void leave(struct client *c)
{
    const char *why = c->variant ? answer_differs(&c->variant->answer, &c->answer, true) : NULL;
    wire_close(&c->wire, c->ask->leave_reset);
    c->run->ended++;
    c->run->left++;
    if (why)
        complain(c, FAIL_wrong, why);
    think(c);
}

// ---- what the wire says

static void on_head(void *ud, int status)
{
    struct client *c = ud;
    c->answer.status = status;
    c->answer.stream = status == 200 && c->ask->stream;
    c->heard_ns = clock_ns();
}

static void heard_tokens(struct client *c, int64_t now)
{
    struct run *r = c->run;
    double gap = (double)(now - (c->pieces ? c->last_ns : c->asked_ns)) * 1e-9;
    if (!c->pieces)
        c->first_ns = now;
    else if (gap > c->longest_s)
        c->longest_s = gap;
    if (c == &r->longer)
        r->long_first_ns = r->long_first_ns ? r->long_first_ns : now;
    else
        figures_add(c->pieces ? &r->gaps : &r->ttft, now, gap);
    c->last_ns = now;
    c->pieces++;
}

static void take_event(struct client *c, const char *line, size_t len, int64_t now)
{
    if (len && line[len - 1] == '\r')
        len--;
    if (len < 5 || memcmp(line, "data:", 5) != 0)
        return;
    size_t at = len > 5 && line[5] == ' ' ? 6 : 5;
    if (answer_event(&c->answer, line + at, len - at) > 0)
        heard_tokens(c, now);
}

static void on_body(void *ud, const char *data, size_t len)
{
    struct client *c = ud;
    c->heard_ns = clock_ns();
    buf_add(&c->text, data, len);
    if (!c->answer.stream)
        return;
    char *from = c->text.data, *to = from + c->text.len, *eol;
    for (; (eol = memchr(from, '\n', (size_t)(to - from))); from = eol + 1) {
        take_event(c, from, (size_t)(eol - from), c->heard_ns);
        if (c->leaves && c->ask->leave_after > 0 && c->pieces >= c->ask->leave_after) {
            leave(c);
            return;
        }
    }
    memmove(c->text.data, from, (size_t)(to - from) + 1);
    c->text.len = (size_t)(to - from);
}

static void on_end(void *ud, enum wire_end how)
{
    finish(ud, how);
}

static const struct wire_handler handler = {on_head, on_body, on_end};

static void on_probe_end(void *ud, enum wire_end how)
{
    struct client *c = ud;
    struct run *r = c->run;
    int64_t now = clock_ns();
    int which = (int)(c->ask - r->probe_asks);
    c->state = CLIENT_FREE;
    if (how == WIRE_WHOLE && c->answer.status == 200)
        figures_add(&r->probes[which], now, (double)(now - c->asked_ns) * 1e-9);
    else
        complain(c, how == WIRE_WHOLE ? FAIL_status : FAIL_cut, r->o.probes[which]);
}

static void on_probe_body(void *ud, const char *data, size_t len)
{
    (void)ud, (void)data, (void)len;
}

static const struct wire_handler probe_handler = {on_head, on_probe_body, on_probe_end};

// ---- asking

static void ask(struct client *c, const struct ask *a, int64_t asked_ns)
{
    struct run *r = c->run;
    c->ask = a;
    c->state = CLIENT_BUSY;
    c->pieces = 0;
    c->asked_ns = asked_ns;
    c->heard_ns = clock_ns();
    c->first_ns = c->last_ns = 0;
    c->longest_s = 0;
    c->wake_ns = 0;
    c->leaves = !r->alone && a->leave_after >= 0;
    if (c->leaves && (a->leave_after == 0 || !a->stream))
        c->wake_ns = c->heard_ns + (int64_t)(rng_unit(r->o.ask.seed, r->next, 8) * 2e7);
    answer_clear(&c->answer);
    buf_clear(&c->text);
    wire_start(&c->wire, a->bytes.data, a->bytes.len);
}

static void ask_next(struct client *c, int64_t asked_ns)
{
    struct run *r = c->run;
    uint64_t number = r->next++;
    r->asked++;
    if (r->o.variants) {
        size_t i = r->alone ? number : rng_u64(r->o.ask.seed, number, 9) % (uint64_t)r->o.variants;
        c->variant = &r->variants[i];
        ask(c, &c->variant->ask, asked_ns);
        return;
    }
    (r->o.mixed ? ask_make_mixed : ask_make)(&c->own, &r->o.ask, number);
    ask(c, &c->own, asked_ns);
}

static bool may_ask(const struct run *r, int64_t now)
{
    return (!r->o.requests || r->asked < r->o.requests) && (!r->stop_ns || now < r->stop_ns);
}

static void arrivals(struct run *r, int64_t now)
{
    while (r->arrival_ns <= now && may_ask(r, r->arrival_ns) && (!r->o.requests || r->asked + (long)r->nbacklog < r->o.requests)) {
        if (r->nbacklog == r->backlog_cap) {
            r->backlog_cap = r->backlog_cap ? 2 * r->backlog_cap : 64;
            r->backlog = mem_resize(r->backlog, r->backlog_cap * sizeof *r->backlog);
        }
        r->backlog[r->nbacklog++] = (double)r->arrival_ns;
        double wait_s = -log(1 - rng_unit(r->o.ask.seed, (uint64_t)r->arrival_ns, 10)) / r->o.rate;
        r->arrival_ns += (int64_t)(wait_s * 1e9) + 1;
    }
    size_t used = 0;
    for (int i = 0; i < r->o.clients && used < r->nbacklog; i++)
        if (r->clients[i].state == CLIENT_FREE)
            ask_next(&r->clients[i], (int64_t)r->backlog[used++]);
    r->nbacklog -= used;
    if (used)
        memmove(r->backlog, r->backlog + used, r->nbacklog * sizeof *r->backlog);
}

static void probe(struct run *r, int64_t now)
{
    if (r->probe.state == CLIENT_BUSY || now < r->probe_ns)
        return;
    size_t which = r->probe.ask ? (size_t)(r->probe.ask - r->probe_asks) + 1 : 0;
    if (which == PROBES || !r->o.probes[which])
        which = 0;
    r->probe_ns = now + (int64_t)r->o.probe_ms * 1000000;
    ask(&r->probe, &r->probe_asks[which], now);
}

// The long prompt comes when every stream has begun and some time has passed.
static void begin_long(struct run *r, int64_t now)
{
    if (r->long_asked_ns)
        return;
    for (int i = 0; i < r->o.clients; i++)
        if (!r->clients[i].first_ns || now - r->clients[i].first_ns < 300000000)
            return;
    r->long_asked_ns = now;
    ask_make_long(&r->longer.own, &r->o.ask, r->o.long_tokens, 1u << 30);
    ask(&r->longer, &r->longer.own, now);
}

static void wake(struct client *c, int64_t now)
{
    struct run *r = c->run;
    if (c->state == CLIENT_THINKS && now >= c->wake_ns && may_ask(r, now)) {
        ask_next(c, now);
    } else if (c->state == CLIENT_BUSY && c->leaves && c->wake_ns && now >= c->wake_ns) {
        leave(c);
    } else if (c->state == CLIENT_BUSY && (double)(now - c->heard_ns) * 1e-9 > r->o.timeout_s) {
        complain(c, FAIL_lost, "nothing came within the time limit");
        wire_close(&c->wire, false);
        r->ended++;
        think(c);
    }
}

static bool over(const struct run *r, int64_t now)
{
    if (r->o.long_tokens && !r->alone)
        return r->long_ended_ns && now - r->long_ended_ns > 1000000000;
    for (int i = 0; i < r->o.clients; i++)
        if (r->clients[i].state == CLIENT_BUSY)
            return false;
    return !may_ask(r, now) && !r->nbacklog;
}

static int timeout_ms(const struct run *r, int64_t now)
{
    int64_t next = now + 100000000;
    for (int i = 0; i < r->o.clients; i++) {
        const struct client *c = &r->clients[i];
        bool counts = c->state == CLIENT_THINKS ? may_ask(r, now) : c->state == CLIENT_BUSY && c->wake_ns;
        if (counts && c->wake_ns < next)
            next = c->wake_ns;
    }
    if (r->o.probe_ms && r->probe.state != CLIENT_BUSY && r->probe_ns < next)
        next = r->probe_ns;
    if (r->o.rate > 0 && may_ask(r, now) && r->arrival_ns < next)
        next = r->arrival_ns;
    return next <= now ? 0 : (int)((next - now + 999999) / 1000000);
}

static void loop(struct run *r)
{
    struct epoll_event evs[256];
    r->start_ns = r->probe_ns = r->arrival_ns = clock_ns();
    r->stop_ns = r->o.duration_s > 0 && !r->alone ? r->start_ns + (int64_t)(r->o.duration_s * 1e9) : 0;
    for (int i = 0; i < r->o.clients; i++)
        think(&r->clients[i]);
    for (int64_t now = r->start_ns; !over(r, now); now = clock_ns()) {
        for (int i = 0; i < r->o.clients; i++)
            wake(&r->clients[i], now);
        if (r->o.rate > 0 && !r->alone)
            arrivals(r, now);
        if (r->o.probe_ms)
            probe(r, now);
        if (r->o.long_tokens && !r->alone)
            begin_long(r, now);
        int n = epoll_wait(r->epoll, evs, 256, timeout_ms(r, now));
        for (int i = 0; i < n; i++)
            wire_ready(evs[i].data.ptr, evs[i].events);
    }
    r->end_ns = clock_ns();
}

// ---- set-up and report

static void client_init(struct run *r, struct client *c, const struct wire_handler *h)
{
    c->run = r;
    wire_init(&c->wire, r->epoll, &r->o.address, h, c);
    ask_init(&c->own);
    answer_init(&c->answer);
    buf_init(&c->text, MAX_LINE);
}

static void client_done(struct client *c)
{
    wire_close(&c->wire, false);
    ask_done(&c->own);
    answer_done(&c->answer);
    buf_done(&c->text);
}

static void ask_variants_alone(struct run *r)
{
    struct options all = r->o;
    r->variants = mem_new((size_t)r->o.variants * sizeof *r->variants);
    for (int i = 0; i < r->o.variants; i++) {
        ask_init(&r->variants[i].ask);
        answer_init(&r->variants[i].answer);
        (r->o.mixed ? ask_make_mixed : ask_make)(&r->variants[i].ask, &r->o.ask, (uint64_t)i);
    }
    r->alone = true;
    r->o.clients = 1;
    r->o.rate = 0;
    r->o.think_s = 0;
    r->o.requests = r->o.variants;
    r->o.probe_ms = 0;
    loop(r);
    r->o = all;
    r->alone = false;
    r->asked = r->ended = r->good = 0;
    r->tokens = r->prompt_tokens = r->cached_tokens = 0;
    figures_clear(&r->ttft);
    figures_clear(&r->gaps);
    figures_clear(&r->whole);
}

static void add_figures(struct buf *b, const char *name, struct figures *f, int64_t from, int64_t to)
{
    buf_printf(b, ", \"%s\": ", name);
    figures_json(f, from, to, b);
}

static void add_probes(struct run *r, struct buf *b, int64_t from, int64_t to)
{
    if (!r->o.probe_ms)
        return;
    buf_add_str(b, ", \"probes_ms\": {");
    for (int i = 0; i < PROBES && r->o.probes[i]; i++) {
        buf_printf(b, "%s\"%s\": ", i ? ", " : "", r->o.probes[i]);
        figures_json(&r->probes[i], from, to, b);
    }
    buf_add_char(b, '}');
}

static void add_stall(struct run *r, struct buf *b)
{
    int64_t to = r->long_first_ns ? r->long_first_ns : r->long_ended_ns;
    for (int i = 0; i < r->o.clients; i++)  // gaps that are still open
        if (r->clients[i].state == CLIENT_BUSY && r->clients[i].last_ns && r->clients[i].last_ns < to)
            figures_add(&r->gaps, to, (double)(to - r->clients[i].last_ns) * 1e-9);
    buf_printf(b, ", \"long\": {\"prompt_tokens\": %d, \"ttft_s\": %.3f", r->longer.answer.prompt_tokens,
               (double)(r->long_first_ns - r->long_asked_ns) * 1e-9);
    // A stream that stood still goes on together with the long prompt's first token, or just after it.
    add_figures(b, "gap_ms", &r->gaps, r->long_asked_ns, to + 200000000);
    add_probes(r, b, r->long_asked_ns, to);
    buf_add_char(b, '}');
}

static double cpu_s(void)
{
    struct rusage u;
    getrusage(RUSAGE_SELF, &u);
    return (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) + (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec) * 1e-6;
}

static long report(struct run *r, double cpu)
{
    struct buf b;
    double wall = (double)(r->end_ns - r->start_ns) * 1e-9;
    unsigned connects = 0, repeats = 0;
    long failed = 0;
    buf_init(&b, 1 << 20);
    for (int i = 0; i < r->o.clients; i++) {
        connects += r->clients[i].wire.connects;
        repeats += r->clients[i].wire.repeats;
    }
    buf_printf(&b, "{\"label\": \"%s\", \"clients\": %d, \"rate\": %g, \"seconds\": %.3f, \"requests\": %ld, \"left\": %ld, \"failures\": {",
               r->o.label, r->o.clients, r->o.rate, wall, r->ended, r->left);
    const char *comma = "";
    for (int i = 0; i < FAILURE_KINDS; i++) {
        failed += r->failures[i];
        if (r->failures[i]) {
            buf_printf(&b, "%s\"%s\": %ld", comma, failure_names[i], r->failures[i]);
            comma = ", ";
        }
    }
    buf_printf(&b, "}, \"connects\": %u, \"repeats\": %u, \"tokens\": %llu, \"prompt_tokens\": %llu, \"cached_tokens\": %llu, "
                   "\"tok_s\": %.1f, \"goodput_s\": %.3f, \"good\": %ld",
               connects, repeats, (unsigned long long)r->tokens, (unsigned long long)r->prompt_tokens,
               (unsigned long long)r->cached_tokens, (double)r->tokens / wall, (double)r->good / wall, r->good);
    if (r->o.long_tokens)
        add_stall(r, &b);
    add_figures(&b, "ttft_ms", &r->ttft, 0, INT64_MAX);
    add_figures(&b, "gap_ms", &r->gaps, 0, INT64_MAX);
    add_figures(&b, "whole_ms", &r->whole, 0, INT64_MAX);
    add_probes(r, &b, 0, INT64_MAX);
    buf_printf(&b, ", \"own_cpu\": %.4f}\n", cpu / wall);
    fputs(b.data, stdout);
    buf_done(&b);
    return failed;
}

static bool find_address(const char *url, struct options *o)
{
    char host[256], port[16];
    const char *p = strncmp(url, "http://", 7) == 0 ? url + 7 : url;
    o->ask.host = p;
    if (sscanf(p, "%255[^:/]:%15[0-9]", host, port) != 2)
        return false;
    struct addrinfo *found, wanted = {.ai_socktype = SOCK_STREAM};
    if (getaddrinfo(host, port, &wanted, &found))
        return false;
    memcpy(&o->address.a, found->ai_addr, found->ai_addrlen);
    o->address.len = found->ai_addrlen;
    freeaddrinfo(found);
    return true;
}

static const char usage[] =
    "load http://HOST:PORT --model NAME [option]...\n"
    "  --clients N          connections (1)\n"
    "  --rate R             requests a second at random times; otherwise each client asks when it has its answer\n"
    "  --requests N         in all\n"
    "  --duration S         no more are asked after this time\n"
    "  --think S            mean pause between a client's requests\n"
    "  --prompt SPREAD      tokens of a prompt: 60, uniform:20:100 or lognormal:MEDIAN:SIGMA:MOST (60)\n"
    "  --output SPREAD      max_tokens (64)\n"
    "  --stem SHARE:TOKENS  share of the prompts that begin alike, and how far\n"
    "  --ids VOCAB          prompts are token ids below it (text completions only)\n"
    "  --completions        /v1/completions; otherwise chat\n"
    "  --whole              no streams\n"
    "  --eos                answers may end before max_tokens\n"
    "  --choices N          n of a request (1)\n"
    "  --temperature T      (0)\n"
    "  --logprobs           ask for them, and compare them\n"
    "  --token-ids          ask for return_token_ids (vLLM's): a token has come when its id has, with text or without\n"
    "  --leave P            share of the clients that leave before the end, by FIN or RST\n"
    "  --mixed              all kinds of requests, right and wrong; --embed-model NAME for vectors\n"
    "  --variants N         only N different requests, whose answers must be those that came alone\n"
    "  --long TOKENS        one prompt of so many tokens comes when all streams run; the run ends with its answer\n"
    "  --probe MS           asks for --probes in turn this often (/livez,/metrics,/v1/models)\n"
    "  --step MS, --prefill-rate TOK_S   of goodput (100, 500)\n"
    "  --timeout S          a request that hears nothing for so long is lost (120)\n"
    "  --seed N, --key KEY, --label TEXT\n";

enum { OPT_FIRST = 256 };
#define OPTIONS(X)                                                                                                             \
    X(model, 1) X(clients, 1) X(rate, 1) X(requests, 1) X(duration, 1) X(think, 1) X(prompt, 1) X(output, 1) X(stem, 1) X(ids, 1) \
    X(completions, 0) X(whole, 0) X(eos, 0) X(choices, 1) X(temperature, 1) X(logprobs, 0) X(leave, 1) X(mixed, 0)             \
    X(embed_model, 1) X(variants, 1) X(long, 1) X(probe, 1) X(probes, 1) X(step, 1) X(prefill_rate, 1) X(timeout, 1)          \
    X(seed, 1) X(key, 1) X(label, 1) X(token_ids, 0)
enum {
    OPT_before = OPT_FIRST - 1,
#define X(name, arg) OPT_##name,
    OPTIONS(X)
#undef X
};

static bool set_probes(struct options *o, const char *list)
{
    int n = 0;
    for (int i = 0; i < PROBES; i++) {
        free(o->probes[i]);
        o->probes[i] = NULL;
    }
    for (const char *p = list, *to; n < PROBES && *p; p = *to ? to + 1 : to) {
        to = strchrnul(p, ',');
        o->probes[n++] = mem_strndup(p, (size_t)(to - p));
    }
    return n > 0;
}

static bool set_text(struct options *o, int opt, const char *v)
{
    switch (opt) {
    case OPT_model: o->ask.model = v; break;
    case OPT_embed_model: o->ask.embed_model = v; break;
    case OPT_key: o->ask.key = v; break;
    case OPT_label: o->label = v; break;
    case OPT_probes: return set_probes(o, v);
    case OPT_prompt: return ask_spread(v, &o->ask.prompt);
    case OPT_output: return ask_spread(v, &o->ask.output);
    case OPT_stem: return sscanf(v, "%lf:%d", &o->ask.stem_share, &o->ask.stem_tokens) == 2;
    case OPT_completions: o->ask.chat = false; break;
    case OPT_whole: o->ask.stream = false; break;
    case OPT_eos: o->ask.ignore_eos = false; break;
    case OPT_logprobs: o->ask.logprobs = true; break;
    case OPT_mixed: o->mixed = true; break;
    case OPT_token_ids: o->ask.token_ids = true; break;
    default: return false;
    }
    return true;
}

static bool set_number(struct options *o, int opt, double v)
{
    switch (opt) {
    case OPT_clients: o->clients = (int)v; return v >= 1 && v <= MAX_CLIENTS;
    case OPT_rate: o->rate = v; break;
    case OPT_requests: o->requests = (long)v; break;
    case OPT_duration: o->duration_s = v; break;
    case OPT_think: o->think_s = v; break;
    case OPT_ids: o->ask.vocab = (int)v; break;
    case OPT_choices: o->ask.choices = (int)v; return v >= 1 && v <= ANSWER_CHOICES;
    case OPT_temperature: o->ask.temperature = v; break;
    case OPT_leave: o->ask.leave = v; break;
    case OPT_variants: o->variants = (int)v; break;
    case OPT_long: o->long_tokens = (int)v; break;
    case OPT_probe: o->probe_ms = (int)v; break;
    case OPT_step: o->step_s = v / 1e3; break;
    case OPT_prefill_rate: o->prefill_rate = v; return v > 0;
    case OPT_timeout: o->timeout_s = v; break;
    case OPT_seed: o->ask.seed = (uint64_t)v; break;
    default: return false;
    }
    return v >= 0 && v < 1e9;
}

static bool set_option(struct options *o, int opt, const char *v)
{
    char *end = NULL;
    double number = v ? strtod(v, &end) : 0;
    return set_text(o, opt, v) || (v && *v && !*end && set_number(o, opt, number));
}

static void read_options(int argc, char **argv, struct options *o)
{
    static struct option table[] = {
#define X(name, arg) {#name, arg, NULL, OPT_##name},
        OPTIONS(X)
#undef X
        {NULL, 0, NULL, 0}};
    for (struct option *t = table; t->name; t++)
        if (strchr(t->name, '_')) {
            char *hyphens = mem_strdup(t->name);
            *strchr(hyphens, '_') = '-';
            t->name = hyphens;
        }
    for (int opt; (opt = getopt_long(argc, argv, "", table, NULL)) != -1;)
        if (opt == '?' || !set_option(o, opt, optarg)) {
            fprintf(stderr, "%s%s%s", opt == '?' ? "" : "load: wrong value: ", opt == '?' || !optarg ? "" : optarg, opt == '?' ? usage : "\n");
            exit(2);
        }
    for (struct option *t = table; t->name; t++)
        if (strchr(t->name, '-'))
            free((char *)t->name);
    if (optind + 1 != argc || !o->ask.model || !find_address(argv[optind], o) ||
        (!o->requests && o->duration_s <= 0 && !o->long_tokens)) {
        fprintf(stderr, "load: expected http://HOST:PORT, --model, and --requests, --duration or --long\n%s", usage);
        exit(2);
    }
}

static void set_up(struct run *r)
{
    r->epoll = epoll_create1(EPOLL_CLOEXEC);
    r->clients = mem_new((size_t)r->o.clients * sizeof *r->clients);
    for (int i = 0; i < r->o.clients; i++)
        client_init(r, &r->clients[i], &handler);
    client_init(r, &r->longer, &handler);
    client_init(r, &r->probe, &probe_handler);
    for (int i = 0; i < PROBES; i++) {
        ask_init(&r->probe_asks[i]);
        if (r->o.probes[i])
            ask_make_get(&r->probe_asks[i], &r->o.ask, r->o.probes[i]);
    }
}

static void tear_down(struct run *r)
{
    for (int i = 0; i < r->o.clients; i++)
        client_done(&r->clients[i]);
    client_done(&r->longer);
    client_done(&r->probe);
    for (int i = 0; i < PROBES; i++) {
        ask_done(&r->probe_asks[i]);
        figures_done(&r->probes[i]);
        free(r->o.probes[i]);
    }
    for (int i = 0; i < r->o.variants && r->variants; i++) {
        ask_done(&r->variants[i].ask);
        answer_done(&r->variants[i].answer);
    }
    figures_done(&r->ttft);
    figures_done(&r->gaps);
    figures_done(&r->whole);
    free(r->variants);
    free(r->backlog);
    free(r->clients);
    close(r->epoll);
}

int main(int argc, char **argv)
{
    static struct run r;
    r.o = (struct options){.ask = {.chat = true, .stream = true, .ignore_eos = true, .prompt = {SPREAD_FIXED, 60, 0, 1e9},
                                   .output = {SPREAD_FIXED, 64, 0, 1e9}, .choices = 1},
                           .clients = 1, .timeout_s = 120, .step_s = .1, .prefill_rate = 500, .label = ""};
    set_probes(&r.o, "/livez,/metrics,/v1/models");
    read_options(argc, argv, &r.o);
    set_up(&r);
    thread_answers();  // of either server it measures what is sent, not when it gets a core
    if (r.o.variants)
        ask_variants_alone(&r);
    double cpu = cpu_s();
    loop(&r);
    long failed = report(&r, cpu_s() - cpu);
    tear_down(&r);
    return failed > 0;
}
