// share.c - virtual times and counters. Accounts are remembered while they rest, up to a bound, so that what one owes is
// not forgotten by leaving for a moment.
#include "engine/sched/share.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"

enum { MAX_ACCOUNTS = 4096 };

static const double lane_weight[SHARE_LANES] = {8, 4, 4, 1};
static const double band_s[SHARE_LANES] = {2, 30, 4, 30};
static const double most_debt_s = 4, ageing = 0.1, least_guess_s = 0.05;

struct share_account {
    struct share_account *next;
    int entries;
    double used;  // seconds by weight
    char name[];
};

static void forget(struct share *s, bool all)
{
    for (struct share_account **at = &s->accounts; *at;) {
        struct share_account *a = *at;
        if (a->entries > 0) {
            at = &a->next;
            continue;
        }
        *at = a->next;
        free(a);
        s->naccounts--;
        if (!all)
            return;
    }
}

void share_done(struct share *s)
{
    forget(s, true);
}

static struct share_account *find(struct share *s, const char *name)
{
    for (struct share_account *a = s->accounts; a; a = a->next)
        if (strcmp(a->name, name) == 0)
            return a;
    if (s->naccounts >= MAX_ACCOUNTS)
        forget(s, false);
    size_t n = strlen(name) + 1;
    struct share_account *a = mem_new(sizeof *a + n);
    memcpy(a->name, name, n);
    a->next = s->accounts;
    s->accounts = a;
    s->naccounts++;
    return a;
}

// The least counter of those that have something to do; -1: there are none.
static double least_used(const struct share *s)
{
    double least = -1;
    for (const struct share_account *a = s->accounts; a; a = a->next)
        if (a->entries > 0 && (least < 0 || a->used < least))
            least = a->used;
    return least;
}

void share_enter(struct share *s, struct share_entry *e, const char *account, double weight, enum share_lane lane,
                 int64_t now_ns)
{
    struct share_account *a = find(s, account ? account : "");
    double least = least_used(s);
    if (a->entries == 0 && least >= 0) {
        a->used = a->used < least ? least : a->used;
        a->used = a->used > least + most_debt_s ? least + most_debt_s : a->used;
    }
    a->entries++;
    s->nentries++;
    *e = (struct share_entry){.account = a, .lane = lane, .weight = weight > 0 ? weight : 1, .since_ns = now_ns,
                              .number = e->number};
}

void share_leave(struct share *s, struct share_entry *e)
{
    if (!e->account)
        return;
    e->account->entries--;
    e->account = NULL;
    if (--s->nentries > 0)
        return;
    forget(s, true);
    memset(s->time, 0, sizeof s->time);
    s->now = 0;
    s->wanting = 0;
}

void share_want(struct share *s, unsigned lanes)
{
    for (int i = 0; i < SHARE_LANES; i++)
        if ((lanes & ~s->wanting) >> i & 1 && s->time[i] < s->now)
            s->time[i] = s->now;
    s->wanting = lanes;
}

enum share_lane share_next(const struct share *s, unsigned lanes)
{
    int best = -1;
    for (int i = 0; i < SHARE_LANES; i++)
        if (lanes >> i & 1 && (best < 0 || s->time[i] < s->time[best]))
            best = i;
    return (enum share_lane)best;
}

void share_charge_lane(struct share *s, enum share_lane lane, double seconds)
{
    if (s->time[lane] > s->now)
        s->now = s->time[lane];
    s->time[lane] += seconds / lane_weight[lane];
}

void share_charge(struct share_entry *e, double seconds)
{
    e->used_s += seconds;
    if (e->account)
        e->account->used += seconds / e->weight;
}

struct share_rank share_rank(const struct share_entry *e, double rest_s, int64_t now_ns)
{
    double used = e->account ? e->account->used : 0, waited = (double)(now_ns - e->since_ns) * 1e-9;
    return (struct share_rank){floor(used / band_s[e->lane]), rest_s - ageing * waited, e->number};
}

bool share_before(const struct share_rank *a, const struct share_rank *b)
{
    if (a->band < b->band || a->band > b->band)
        return a->band < b->band;
    if (a->rest_s < b->rest_s || a->rest_s > b->rest_s)
        return a->rest_s < b->rest_s;
    return a->number < b->number;
}

double share_guess_s(const struct share_entry *e)
{
    double s = least_guess_s;
    while (s < e->used_s)
        s *= 2;
    return s;
}
