// regex.h - PCRE2 patterns as the Hugging Face tokenizers (Oniguruma, Ruby syntax) mean them: UTF, Unicode classes,
// ^ and $ at every line, \s without U+180E, \w with marks.
//
//     struct tokenizer_regex *re;
//     if (tokenizer_regex_open("\\p{L}+", 6, false, &re, e)) ...
//     struct tokenizer_regex_match m = {0};        // one for a whole encode call, any number of patterns
//     while (tokenizer_regex_next(re, &m, text, len, from, &found, e) == ERR_OK && found) ... m.start, m.end
//     tokenizer_regex_match_done(&m);
//
// A compiled pattern is immutable and may be used by any thread; a match belongs to one. Letters that Unicode added
// after the library's own version (14 in PCRE2 10.42) are no letters here although newer engines know them.
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"

struct tokenizer_regex;

struct tokenizer_regex_match {
    size_t start, end;
    void *data, *context, *stack;  // PCRE2's, made at the first use
};

// literal: the pattern is plain text. An empty or faulty pattern is ERR_UNSUPPORTED.
MUST_CHECK err_code tokenizer_regex_open(const char *pattern, size_t len, bool literal,
                                         struct tokenizer_regex **ret_regex, err *e);
void tokenizer_regex_close(struct tokenizer_regex *re);

// First match at or after `from`. text is valid UTF-8 and `from` a character border. ERR_TOO_LARGE: the pattern's
// search passed its limits.
MUST_CHECK err_code tokenizer_regex_next(const struct tokenizer_regex *re, struct tokenizer_regex_match *m,
                                         const char *text, size_t len, size_t from, bool *ret_found, err *e);
void tokenizer_regex_match_done(struct tokenizer_regex_match *m);
