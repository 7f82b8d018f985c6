// task.h - what is asked of the engine and what it answers: one struct for each kind of task, and the events. Part of the
// engine's door (engine.h), which says how tasks are submitted and in which order events come.
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/err.h"
#include "engine/generate.h"

enum task_kind {
    TASK_GENERATE,    // chat and text completion
    TASK_TOKENIZE,    // text -> ids
    TASK_DETOKENIZE,  // ids -> text
    TASK_RENDER,      // messages -> the prompt the template makes
    TASK_LOAD,        // nothing: it waits until its model is in memory
    TASK_EMBED,       // texts -> vectors
    TASK_TRANSCRIBE,  // speech -> text in segments
    TASK_SPEAK,       // text -> speech
    TASK_IMAGE,       // text -> pictures
    TASK_DECIDE,      // questions about one state -> probabilities of their options
    TASK_KINDS
};

struct tokenize {
    struct prompt prompt;  // TASK_TOKENIZE: text, or messages: those of the prompt the template makes; TASK_DETOKENIZE: ids; TASK_RENDER: messages
    bool add_special, with_pieces;
};

struct embed_input {
    const char *text;
    size_t len;
    const int32_t *ids;  // instead of a text, used as they are
    size_t nids;
};
struct embed {
    const struct embed_input *inputs;
    size_t ninputs;
    const char *prompt_name;  // of the model's prompts; NULL: the model's default
    const char *prompt;       // put before every text instead; NULL: by name
    int dimensions;           // 0: the model's; else cut and normalised again
    bool truncate;            // cut what is too long; else it is ERR_CONTEXT
};

struct transcribe {
    const float *samples;  // 16 kHz mono, -1 .. 1
    size_t nsamples;
    const char *language;  // code ("en"); NULL: detected
    bool translate;        // into English
    bool timestamps;       // segments have times; audio over 30 s always has them
    const char *prompt;    // context for the first window; NULL: none
    float temperature;
    bool fallback;         // a window that went wrong is decoded again, 0.2 warmer each time, up to 1
    uint64_t seed;
};

struct speak {
    const char *text;
    size_t len;
    const char *voice;         // NULL: the model's first
    struct sampling sampling;  // task_new's are the model family's usual ones: temperature 0.6, top_p 0.8, repetition 1.1
    int max_tokens;            // of one sentence group; 0: the family's
    bool no_noise;             // for checks against a reference: the vocoder adds none
};

struct image {
    const char *prompt, *negative_prompt;  // negative_prompt NULL: ""
    int width, height, n;  // pixels, multiples of 8; pictures, one after another: picture i draws from seed + i
    int steps;             // 0: the model's
    float guidance;        // < 0: the model's; up to 1: none
    const char *scheduler; // diffusers class name; NULL: the model's
    struct json_t *scheduler_config;  // its keys stand over the model's; borrowed as those of prompt; NULL: none
    int partial_images;    // pictures on the way, evenly spread
    uint64_t seed;
    // For checks against a reference; all NULL otherwise. f32 [channels, height/factor, width/factor] of unit variance; noise of every step.
    const float *latents, *step_noise;
    bool raw;              // EVENT_IMAGE also has the final latents and the picture as floats
};

enum { DECIDE_MAX_QUESTIONS = 400 };
enum decide_kind { DECIDE_BOOL, DECIDE_INT, DECIDE_ENUM };  // "noul", "score", "choice" in the prompt
struct decide_question {
    enum decide_kind kind;
    const char *text;
    const char *const *options;  // DECIDE_ENUM only
    size_t noptions;
};
struct decide {
    const char *state;
    const struct decide_question *questions;  // all of one kind: their prompts begin alike
    size_t nquestions;
};

enum finish { FINISH_STOP, FINISH_LENGTH, FINISH_CALLS };

// Every sampled token counts, the one that ends a turn (and is not shown) included; all choices together. reasoning_tokens
// are among the completion_tokens.
struct usage {
    int prompt_tokens, cached_tokens, completion_tokens, reasoning_tokens;
};

// What a piece of an answer's text is. Content without split.
enum channel {
    CHANNEL_CONTENT,
    CHANNEL_REASONING,  // what a thinking model writes for itself, without its markers
    CHANNEL_CALL,       // arguments of one call, as JSON: the texts of its events together are one object
};

struct token_alternative {
    int32_t id;
    float logprob;
    const char *bytes;  // the token's own bytes
    size_t len;
};
struct token_logprob {
    struct token_alternative token;  // its logprob is NAN for the first token of an echoed prompt, which has none
    const struct token_alternative *top;  // likeliest first
    int ntop;
    int rank;  // of the token: 1 is the likeliest; 0 where it has no logprob
    bool content;  // its text is content, or part of it is; not that of markers, reasoning and calls
};

enum event_kind {
    EVENT_START,   // admitted: usage.prompt_tokens and cached_tokens are known
    EVENT_PROMPT,  // with prompt_logprobs, before any text: tokens of the whole prompt
    EVENT_TEXT,    // text of one choice, whole UTF-8 characters, with the tokens that completed it
    EVENT_FINISH,  // a choice ended
    EVENT_IDS,     // TASK_TOKENIZE
    EVENT_VECTOR,    // TASK_EMBED: choice is the input's number
    EVENT_LANGUAGE,  // TASK_TRANSCRIBE, before the first segment: text is the code
    EVENT_SEGMENT,   // TASK_TRANSCRIBE
    EVENT_AUDIO,     // TASK_SPEAK: samples that follow the ones before
    EVENT_PROGRESS,  // TASK_IMAGE: done of total denoise steps of picture `choice`; the first has done 0. TASK_GENERATE with
                     // progress, before the first token: done of total prompt tokens are computed
    EVENT_IMAGE,     // TASK_IMAGE: a partial or final picture of `choice`
    EVENT_DECISION,  // TASK_DECIDE: choice is the question's number
    EVENT_SCORES,    // TASK_GENERATE with CHOOSE_SCORED: once, before any text of an answer
    EVENT_END,     // the last one, always; error.code tells how it went
};

// One segment of a transcript; times in seconds from the start of the audio, ids with timestamp tokens.
struct segment {
    int id, seek;  // seek: first mel frame of its window
    double start, end;
    const char *text;
    size_t len;
    const int32_t *ids;
    int nids;
    float temperature, avg_logprob, compression_ratio, no_speech_prob;  // of its window
};

struct picture {
    int width, height;
    const uint8_t *rgb;      // [height, width, 3]
    int partial;             // number of the partial picture; -1: the final one
    const float *latents;    // with image.raw: [channels, height/factor, width/factor]
    size_t nlatents;
    const float *pixels;     // with image.raw: [3, height, width], 0 .. 1
};

struct decision {
    const double *probabilities;  // of the options, adding up to 1
    size_t n;
    int best;       // the first largest
    double mass;    // probability of all options together among the whole vocabulary; NAN with a head that has options only
    bool native;    // by the model's trained head
    bool wide;      // more options than were trained
};

// One of the texts of a GRAMMAR_CHOICE (sched/score.h).
struct scored_text {
    const char *text;
    size_t len;
    double logprob, probability;  // of all texts together 1
};

struct event {
    enum event_kind kind;
    int choice;
    enum channel channel;  // EVENT_TEXT
    int call;              // CHANNEL_CALL: its number among the choice's calls, from 0; one ends before the next begins
    const char *name;      // CHANNEL_CALL: the function's, in the call's first event; NULL in the others
    bool call_ends;        // CHANNEL_CALL: the arguments are complete. A call without it was cut by FINISH_LENGTH
    const char *text;
    size_t len;
    const struct token_logprob *tokens;  // EVENT_TEXT with logprobs; EVENT_PROMPT
    size_t ntokens;
    // EVENT_IDS. With generate.token_ids the prompt's in EVENT_START; in EVENT_TEXT and EVENT_FINISH those of the choice's
    // tokens since its event before, each once and as they were taken, the one that ends the turn included.
    const int32_t *ids;
    const struct token_alternative *pieces;  // EVENT_IDS with_pieces, nids of them (bytes, len)
    size_t nids;
    enum finish finish;
    const float *values;       // EVENT_VECTOR [nvalues], EVENT_AUDIO [nvalues] at the model's sample_rate
    size_t nvalues;
    const struct segment *segment;
    const struct picture *picture;
    const struct decision *decision;
    const struct scored_text *scores;  // EVENT_SCORES, in the order of the request
    size_t nscores;
    int done, total;     // EVENT_PROGRESS
    int dropped, dropped_negative;  // EVENT_PROGRESS with done 0: tokens of the prompts beyond what the model reads
    struct usage usage;  // EVENT_START, EVENT_END
    err error;           // EVENT_END; ERR_OK, or why it ended
};

// Interactive text comes first, batch work in the gaps. What a task computes never depends on it.
enum task_class { CLASS_NORMAL, CLASS_INTERACTIVE, CLASS_BATCH };

struct task;
typedef void task_event_fn(struct task *t, const struct event *ev);

struct task {
    enum task_kind kind;
    struct arena arena;
    const char *model;
    task_event_fn *on_event;
    void *ud;
    int64_t deadline_ns;       // clock_ns() time by which it must have ended; 0: none
    int64_t begin_deadline_ns; // by which it must have begun, or it ends with ERR_LATE; 0: none
    int64_t arrived_ns;        // when the request was complete; task_new says now
    enum task_class class;
    const char *account;       // who it is for: accounts share the engine by weight; NULL: the common one
    float weight;              // of the account; 1
    // While true the task rests: it keeps its memory and is in no step. NULL: never. Must live until EVENT_END; whoever
    // clears it calls engine_wake. After long rests its memory goes to others first, and then the task ends.
    const atomic_bool *held;
    const char *cache_salt;    // prefix reuse only among tasks with the same salt; NULL: the common one
    union {
        struct generate generate;
        struct tokenize tokenize;
        struct embed embed;
        struct transcribe transcribe;
        struct speak speak;
        struct image image;
        struct decide decide;
    };
};

struct ticket {
    uint32_t slot, generation;
};

struct task *task_new(enum task_kind kind);  // defaults filled
void task_free(struct task *t);              // only a task that was not accepted
