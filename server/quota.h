// quota.h - what a key, or an address without one, may use: requests and tokens a minute, requests at once.
//
//     quota_address(peer, name)                                         who has no key: the name of an address
//     quota_take(q, key name, &limits, estimate, now, &account, &e)     before the body; ERR_QUOTA: come back in e.retry_ms
//     quota_say(account, now, &state)                                   for the response headers
//     quota_spend(account, tokens - estimate)                           once the truth is known
//     quota_release(account)                                            the request is over; the account is given back
//
// Token buckets that hold a minute's worth and refill evenly, on the monotonic clock. A request passes while its estimate
// (at most a full bucket) is there; what it turns out to have used is taken off later and may leave a debt. A key's account
// lives as long as the process, so that reading the keys again forgives nothing. Of addresses at most QUOTA_ADDRESSES have one:
// those that are whole again and have nothing running are forgotten, and when there are none all further ones share one.
//
// quota_take and quota_say: loop thread. quota_spend and quota_release: any thread, without a lock.
#pragma once

#include <stdint.h>

#include "base/err.h"

struct quota;
struct quota_account;

enum {
    QUOTA_RETRY_MAX_MS = 60000,  // OpenAI's clients do not heed longer waits
    QUOTA_ADDRESSES = 4096,
    QUOTA_NAME_MAX = 64,
};

struct quota_limits {
    int64_t rpm, tpm, concurrent;  // 0: none
};

struct quota_state {  // of one kind of limit; limit 0: there is none
    int64_t limit, remaining, reset_ms;  // reset_ms: until it is full again
};

// "address:192.0.2.7", "address:2001:db8:1:2::/64" (who has one address of IPv6 has all of its network), "address:unix".
void quota_address(const char *peer, char ret_name[QUOTA_NAME_MAX]);

struct quota *quota_new(void);
void quota_free(struct quota *q);  // accounts that are held live on

MUST_CHECK err_code quota_take(struct quota *q, const char *name, const struct quota_limits *limits, int64_t tokens,
                               int64_t now_ns, struct quota_account **ret_account, err *e);
// Of the account with this name, taken or refused.
void quota_say(struct quota *q, const char *name, int64_t now_ns, struct quota_state *ret_requests,
               struct quota_state *ret_tokens);
void quota_spend(struct quota_account *a, int64_t tokens);  // negative: less was used
void quota_release(struct quota_account *a);  // accepts NULL

// "6m0s", "1.5s", "20ms", as OpenAI's headers say it.
enum { QUOTA_TIME_MAX = 32 };
void quota_time_text(int64_t ms, char ret_text[QUOTA_TIME_MAX]);
