// generate.h - what a text model is asked: prompt, sampling, the form of the answer. Part of task.h.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct json_t;

// What a text model is asked. Exactly one of messages, text and ids.
struct prompt {
    struct json_t *messages, *tools, *documents, *kwargs;  // borrowed: the task's arena must hold references
    bool add_generation_prompt, continue_final_message;
    const char *text;  // encoded with the model's BOS rule
    size_t text_len;
    const char *suffix;  // with text: the answer is what stands between both (model_info.fills); NULL: none
    size_t suffix_len;
    const int32_t *ids;  // used as they are
    size_t nids;
};

struct logit_bias {
    int32_t id;
    float bias;
};

// The values are the defaults, which task_new sets.
struct sampling {
    float temperature;  // 1; 0 is greedy
    float top_p;        // 1
    float min_p;        // 0
    int top_k;          // 0: all
    float presence_penalty, frequency_penalty;  // 0
    float repetition_penalty;                   // 1
    int penalty_last_n; // the penalties look at so many tokens; 0: at all
    // llama-server's further samplers; sampler.h says what they do and in which order. 0: off, but for what it stands beside.
    float typical_p;    // 1 is off too
    float top_n_sigma;
    float xtc_probability, xtc_threshold;
    float dry_multiplier, dry_base;
    int dry_allowed_length, dry_last_n;  // dry_last_n -1: all
    const char *const *dry_breakers;
    size_t ndry_breakers;
    int mirostat;       // 1, 2: which
    float mirostat_tau, mirostat_eta;
    float dynatemp_range, dynatemp_exponent;
    uint64_t seed;      // task_new draws one
    const struct logit_bias *bias;
    size_t nbias;
};

// What an answer must be. text: a JSON Schema; nothing; a pattern all of it matches; a JSON array of strings; GBNF; a
// structural tag (grammar/structure.h).
enum grammar_kind {
    GRAMMAR_NONE, GRAMMAR_JSON_SCHEMA, GRAMMAR_JSON_OBJECT, GRAMMAR_REGEX, GRAMMAR_CHOICE, GRAMMAR_GBNF, GRAMMAR_STRUCTURE
};
enum { GRAMMAR_MAX_TEXT = 1 << 20 };  // bytes

struct grammar_request {
    enum grammar_kind kind;
    const char *text;
    size_t len;
    const char *field;  // the request's field, which errors name
    const char *name;   // the schema's, for errors; NULL: none
};

// How an answer of GRAMMAR_CHOICE is found.
enum choosing {
    CHOOSE_BY_TOKEN,   // token by token, as with any form: its first tokens decide before its last ones are seen
    CHOOSE_LIKELIEST,  // the text with the highest probability as a whole (sched/score.h); by token where the request asks for
                       // something that is defined token by token, or where something comes before the text
    CHOOSE_SCORED,     // drawn by the probabilities of whole texts, which EVENT_SCORES tells; else ERR_INVALID
};

// What an answer may call; the tools themselves are prompt.tools. With split only.
enum tool_choice { TOOLS_AUTO, TOOLS_REQUIRED };
struct tool_rules {
    enum tool_choice choice;
    const char *const *names;  // only these may be called; NULL: all of prompt.tools
    size_t nnames;
    bool single;               // at most one call an answer
};

struct generate {
    struct prompt prompt;
    struct sampling sampling;
    int max_tokens;    // -1: up to the context
    int min_tokens;
    int n;             // choices; choice i samples with (seed, i)
    const char *const *stop;  // matched on text across tokens
    size_t nstop;
    bool include_stop; // the stop string that was met is part of the text; else it is not
    const int32_t *stop_ids;  // end the answer beside the model's own, and are not shown; ignore_eos does not touch them
    size_t nstop_ids;
    const char *const *bad_words;  // no token that would complete one of these, as the tokenizer cuts them, is taken
    size_t nbad_words;
    bool show_control; // the text has control tokens too, as they are spelt
    bool ignore_eos;
    bool one_by_one;   // each token is picked from all of its logits, none taken without or drafted; the answer is the same
    bool progress;     // EVENT_PROGRESS after each step of the prompt
    bool token_ids;    // events carry the ids of prompt and answer; what a step brings is told at its end, also tokens without text
    bool echo;         // text completion: the prompt's text comes first
    int logprobs;      // -1: none; k: each token's log-probability and the k likeliest
    int prompt_logprobs;  // the same of the prompt's tokens (EVENT_PROMPT)
    struct grammar_request grammar;  // of the content; what comes before it and instead of it (reasoning, calls) is free of it
    enum choosing choosing;
    bool split;        // an answer to messages is told apart into content, reasoning and calls (enum channel)
    struct tool_rules tools;
    int reasoning_max; // tokens of reasoning, then it is closed; -1: no limit
};
