// ask.h - requests of a load: their bytes, made from a number, so that the same number is the same request in every run.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"

// How long something is: "60", "uniform:20:100" or "lognormal:MEDIAN:SIGMA:MOST".
struct ask_spread {
    enum { SPREAD_FIXED, SPREAD_UNIFORM, SPREAD_LOGNORMAL } kind;
    double a, b, most;
};

struct ask_options {
    const char *host, *key, *model;
    const char *embed_model;      // mixed: NULL asks for no vectors
    bool chat, stream, logprobs, ignore_eos;
    bool token_ids;               // asks for the ids of tokens, so that each is seen when it comes
    struct ask_spread prompt, output;  // tokens
    double stem_share;            // of the prompts, how many begin with the common stem
    int stem_tokens;
    int vocab;                    // prompts are token ids below it, not words; 0: words
    int choices;
    double temperature;
    double leave;                 // probability that the client leaves before the end
    uint64_t seed;
};

enum ask_kind { ASK_TEXT, ASK_OTHER };

struct ask {
    enum ask_kind kind;     // ASK_TEXT: text is generated, so that its tokens can be timed
    const char *what;       // of a mixed load
    struct buf bytes;       // of the whole request
    bool stream;
    int choices, output_tokens;
    int leave_after;        // events with text; 0: while it waits for the first; -1: stays
    bool leave_reset;       // leaves with RST
    int status;             // that must come
};

bool ask_spread(const char *text, struct ask_spread *ret_spread);
void ask_init(struct ask *a);
void ask_done(struct ask *a);
// Request `number` of a load, or of a mixed one (all endpoints, errors, several choices, clients that leave).
void ask_make(struct ask *a, const struct ask_options *o, uint64_t number);
void ask_make_mixed(struct ask *a, const struct ask_options *o, uint64_t number);
void ask_make_long(struct ask *a, const struct ask_options *o, int prompt_tokens, uint64_t number);
void ask_make_get(struct ask *a, const struct ask_options *o, const char *path);
