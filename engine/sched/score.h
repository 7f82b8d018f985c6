// score.h - an answer that is one of several given texts, found by the probability of the whole text.
//
//     score_new(tokenizer, request, vocab, &sc, &e)       prep thread: tokens, and the tree they make
//     score_take(sc, s, run, at, logits)                  scheduler: the logits after `at` tokens of a run's path
//     score_sum(sc, &e)                                   when all are known
//     score_pick(sc, temperature, seed, choice)           the text of one answer
//
// log p(text) is the sum, over the text's tokens, of the log-softmax of the model's own logits (before temperature, bias
// and penalties) after the prompt and the tokens before it. Its tokens are those the tokenizer makes of the text by itself,
// put behind the prompt's: none reaches across that border, as none of a generated answer does. Other ways to spell the
// same text are not added.
//
// Where one text is the beginning of another one, every text's sum has one term more: the log of the probability that the
// answer ends behind it, that of all the model's end tokens together. Else the shorter one would always win.
//
// The probabilities are the softmax of the sums. At temperature T a text is drawn by p^(1/T), by the request's seed and the
// answer's number; at 0 it is the likeliest, of equal ones the first by its bytes. Texts are sorted before anything is added up,
// so nothing depends on the order in which they were given.
//
// The tree. Texts that begin with the same tokens share them: a run is a piece of tokens without a branch, run 0 the prompt
// itself, without tokens. What a run's last position says of the token after it is about the first token of each run behind
// it; so a run that nothing follows computes one position fewer than it has tokens. score_lanes.h computes the runs.
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "engine/task.h"

struct score;
struct session;
struct tokenizer;

enum {
    SCORE_MAX_TEXTS = 1024,
    SCORE_MAX_TOKENS = 16384,  // of all texts together
    SCORE_LANES = 7,           // sequences that compute runs side by side
};

enum score_state {
    SCORE_WAITS,  // for the run before it
    SCORE_READY,
    SCORE_GOES,   // a lane computes it
    SCORE_DONE,
};

struct score_run {
    int parent, child, next;  // the run before it, the first behind it, its next sibling; -1: none
    int from, n;              // tokens before it in the text, and its own
    int first;                // its first token among those of the tree
    int rows;                 // positions it computes
    int some;                 // a text that goes through it
    int text;                 // the text that ends with it; -1: none
    enum score_state state;
    int lane;                 // that holds its end, to go on from there; -1: none
};

struct score_text {
    const char *text;
    size_t len;
    int given;          // its place in the request
    int32_t *ids;
    int n, run;         // run: that it ends with
    bool begins;        // the next one begins with it: only an end token tells that it is whole
    int32_t end_id;     // then the likeliest of those
    double end, sum;    // log-probabilities: of the end behind it, of all
};

struct score {
    struct json_t *list;        // holds the texts
    struct score_text *texts;   // by their bytes
    int ntexts;
    bool ends;                  // one is the beginning of another one
    const int32_t *stops;       // the tokenizer's
    size_t nstops;
    int vocab;
    struct score_run *runs;     // each before those behind it
    int nruns, left;            // left: not done
    double *logprobs;           // of the tree's tokens
    struct token_logprob *shown;  // of the same, when they are asked for; NULL: not
    int ntokens, longest;       // longest: most positions that a text computes
    struct scored_text *results;  // in the order of the request
    int lanes[SCORE_LANES];     // run of each, -1: none
};

// The request's field that is defined token by token, so that a score would not heed it; NULL: none.
const char *score_hindrance(const struct generate *g);

// ERR_INVALID: no texts, too many, or one twice. ERR_UNSUPPORTED: a text that the tokenizer cannot write, or no end tokens
// where they are needed.
MUST_CHECK err_code score_new(const struct tokenizer *t, const struct grammar_request *r, int vocab, struct score **ret_score,
                              err *e);
void score_free(struct score *sc);

// Learns what the logits after the first `at` tokens of the run's path say of this run and those behind it.
void score_take(struct score *sc, const struct session *s, int run, int at, const float *logits);
void score_run_done(struct score *sc, int run);  // all its positions are computed
int score_rest(const struct score *sc);          // positions not computed yet
// Sums, probabilities, results. ERR_INTERNAL: the model's logits were not numbers.
MUST_CHECK err_code score_sum(struct score *sc, err *e);
int score_pick(const struct score *sc, const struct sampling *s, int choice);  // which of texts
int score_token(const struct score *sc, int text, int k);  // place in the tree of its token k
