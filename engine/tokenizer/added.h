// added.h - added tokens: strings that are cut out of the text before anything else sees it, leftmost and longest
// first.
//
// Which of them count in untrusted text? A token is guarded, that is matched only where every one of its bytes is
// trusted, when it is special (control), or when its spelling is neither an ordinary word (letters, digits and marks of
// any script), nor white space, nor one of HTML's text elements that Gemma has as tokens. So "<think>", "<tool_call>"
// and "[INST]" from a user are ordinary characters although the file does not call them special: a template's markers
// must not be forged. Runs of spaces and <b> are matched everywhere, as the reference does.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "engine/tokenizer/text.h"

enum {
    ADDED_LSTRIP = 1,       // white space before it belongs to the token
    ADDED_RSTRIP = 2,       // and after it
    ADDED_SINGLE_WORD = 4,  // not inside a word
    ADDED_GUARDED = 8,
};

struct tokenizer_added;

struct tokenizer_added *tokenizer_added_new(void);
void tokenizer_added_free(struct tokenizer_added *a);
// The first of equal spellings stays. An empty spelling is ignored.
MUST_CHECK err_code tokenizer_added_put(struct tokenizer_added *a, const char *text, size_t len, int32_t id,
                                        unsigned flags, err *e);
bool tokenizer_added_is_marker(const char *text, size_t len);  // guarded although not special

struct added_match {
    size_t start, end;  // with the white space it swallows
    size_t resume;      // where the search goes on
    int32_t id;
};

// The next token at or after `from`. done: how far the text has been used up; white space to the left is taken back to
// there at most.
bool tokenizer_added_next(const struct tokenizer_added *a, const struct tokenizer_text *t, size_t from, size_t done,
                          struct added_match *ret_match);
