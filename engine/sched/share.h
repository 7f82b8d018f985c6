// share.h - who is next: lanes by weighted virtual time, accounts by charged seconds, within them least remaining work.
//
//     share_enter(&s, &x->share, account, weight, lane, now_ns);     // a session arrives
//     share_want(&s, lanes);                                         // which lanes have something to do
//     lane = share_next(&s, lanes);                                  // whose turn it is
//     if (share_before(&rank_a, &rank_b)) ...                        // within a lane
//     share_charge_lane(&s, lane, seconds); share_charge(&x->share, seconds);
//     share_leave(&s, &x->share);
//
// What is shared is team time in predicted seconds, one currency for text, encoders and pictures.
//
// Lanes. Each has a virtual time, the seconds it was given divided by its weight; the least goes first. A lane that comes
// back from a rest starts at the present, so it gets no credit for it. Of two lanes that want all the time, neither gets
// more than its share by more than one step.
//
// Accounts. Each counts the seconds charged to it, divided by its weight. Counters are compared in bands, so that within
// a band the order by remaining work decides. An account that returns has at least the least counter of the active ones,
// and at most a few seconds more. When nobody is there all is forgotten.
//
// Within a band: the least remaining seconds first, less a tenth of the time since arrival, so that a job of R seconds is
// overtaken only by what arrives within 10 R after it.
//
// Scheduler thread.
#pragma once

#include <stdbool.h>
#include <stdint.h>

enum share_lane { SHARE_SHORT, SHARE_LONG, SHARE_MEDIA, SHARE_BATCH, SHARE_LANES };

struct share_account;

struct share {
    double time[SHARE_LANES], now;  // virtual; now: of the lane that had its turn last
    unsigned wanting;               // lanes (1 << lane) at the last share_want
    struct share_account *accounts;
    int naccounts, nentries;
};

// A session's part; zeroed before share_enter.
struct share_entry {
    struct share_account *account;  // NULL: not entered
    enum share_lane lane;
    double weight;
    double used_s;                  // charged so far
    int64_t since_ns;
    uint64_t number;                // of arrival
};

struct share_rank {
    double band, rest_s;
    uint64_t number;
};

void share_done(struct share *s);

// account NULL: the common one. weight: of the account, times two when the session goes before its others.
void share_enter(struct share *s, struct share_entry *e, const char *account, double weight, enum share_lane lane,
                 int64_t now_ns);
void share_leave(struct share *s, struct share_entry *e);  // of an entry not entered: nothing

void share_want(struct share *s, unsigned lanes);
enum share_lane share_next(const struct share *s, unsigned lanes);  // one of lanes, which is not empty

void share_charge_lane(struct share *s, enum share_lane lane, double seconds);
void share_charge(struct share_entry *e, double seconds);

// rest_s: what is left to do, as far as is known.
struct share_rank share_rank(const struct share_entry *e, double rest_s, int64_t now_ns);
bool share_before(const struct share_rank *a, const struct share_rank *b);
// What a job of unknown length is taken to have left: as much as it had already, in steps of two.
double share_guess_s(const struct share_entry *e);
