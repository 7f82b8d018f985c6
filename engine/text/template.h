// template.h - chat templates: the part of Jinja 3 that published templates use, rendered as transformers does
// (trim_blocks, lstrip_blocks, loop controls, generation blocks, sandboxed, default Undefined).
//
//     struct template *t;
//     if (template_parse(source, len, &t, &e)) ...          // once, at load
//     struct template_input in = {.messages = m, .add_generation_prompt = true, .now = time(NULL)};
//     struct rendered out;
//     if (template_render(t, &in, &out, &e)) ...            // any thread
//     tokenizer_encode(tok, out.spans, out.nspans, false, &ids, &e);
//     rendered_done(&out);
//
// Every byte of the output knows where it came from: bytes of the template are trusted, bytes of the request (messages,
// tools, documents, kwargs) are not, however the template cut, trimmed or joined them. A template is a program of
// somebody else: steps, depth, and output are bounded.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "engine/tokenizer/tokenizer.h"

struct json_t;
struct template;

enum {
    TEMPLATE_MAX_SOURCE = 1 << 20,
    TEMPLATE_MAX_STEPS = 20 * 1000 * 1000,
    TEMPLATE_MAX_DEPTH = 200,
    TEMPLATE_MAX_OUTPUT = 64 << 20,
};

struct template_input {
    struct json_t *messages;   // array; borrowed, as are the others
    struct json_t *tools;      // NULL: none
    struct json_t *documents;  // NULL: none
    struct json_t *kwargs;     // object of further variables (enable_thinking ...), NULL: none
    const char *bos_token, *eos_token;  // NULL: undefined
    bool add_generation_prompt;
    int64_t now;  // unix seconds, for strftime_now (local time)
};

struct rendered {
    char *text;
    size_t len;
    struct text_span *spans;  // cover text in order, neighbours differ in trust
    size_t nspans;
};
void rendered_done(struct rendered *r);
// Whether the template itself wrote `text` at the start: a prompt that begins with BOS gets no second one.
bool rendered_starts_with(const struct rendered *r, const char *text);

// Errors: ERR_INVALID with line and what was found; ERR_UNSUPPORTED for a construct not built, by name.
MUST_CHECK err_code template_parse(const char *source, size_t len, struct template **ret_template, err *e);
void template_free(struct template *t);

// Errors: ERR_INVALID with the text given to raise_exception or what the template did wrong (line); ERR_TOO_LARGE for a
// limit.
MUST_CHECK err_code template_render(const struct template *t, const struct template_input *in,
                                    struct rendered *ret_rendered, err *e);
