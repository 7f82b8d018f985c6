// tokenizer.h - text to token ids and back, as the model's own tokenizer does it.
//
//     struct tokenizer *t;
//     if (tokenizer_open(weights, &t, &e)) ...            // tokenizer.json of the folder, or GGUF metadata
//     struct ids ids = {0};
//     struct text_span user = {text, len, false};
//     if (tokenizer_encode(t, &user, 1, true, &ids, &e)) ...
//     free(ids.data);
//
// A kind (byte-level BPE, SentencePiece BPE, WordPiece) is one file and one line in tokenizers.def. Immutable
// after open; any number of threads may encode at once.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"

struct weights;
struct tokenizer;

struct ids {
    int32_t *data;
    size_t len, cap;
    size_t max;  // tokenizer_encode gives up with ERR_TOO_LARGE once it has more, and sets over; 0: no limit
    bool over;
};
void ids_add(struct ids *v, int32_t id);

// A piece of text and whether control tokens written in it count. Text from users is untrusted: "<|im_end|>" in it is
// encoded as ordinary characters, and so are markers that a vocabulary does not call control ("<think>",
// "<tool_call>"): the exact rule is in added.h. Neighbouring spans are one text to the pre-tokenizer (no token border
// is forced between them), only the matching of special tokens stops at untrusted bytes.
struct text_span {
    const char *text;
    size_t len;
    bool trusted;
};

MUST_CHECK err_code tokenizer_open(const struct weights *w, struct tokenizer **ret_tokenizer, err *e);
// Of a folder that holds only a tokenizer, as diffusion pipelines have it: tokenizer.json, or CLIP's vocab.json with
// merges.txt. *ret_pad: the token that fills short texts up, TOKEN_NONE when the files name none.
MUST_CHECK err_code tokenizer_folder_open(const char *folder, struct tokenizer **ret_tokenizer, int32_t *ret_pad,
                                          err *e);
void tokenizer_close(struct tokenizer *t);

// Appends to *ids. add_special: put BOS/EOS (or [CLS]/[SEP]) where the model's rules say; a rendered chat template is
// encoded with false. Text that is not UTF-8 is ERR_INVALID. Time is near linear in the length.
MUST_CHECK err_code tokenizer_encode(const struct tokenizer *t, const struct text_span *spans, size_t nspans,
                                     bool add_special, struct ids *ids, err *e);

// Fill in the middle: whether the vocabulary has marks for it, and the prompt that asks for what stands between two texts:
// BOS where the model's rules put one, then the marks and the texts in the order the model was trained with.
bool tokenizer_fim_has(const struct tokenizer *t);
MUST_CHECK err_code tokenizer_fim_encode(const struct tokenizer *t, const struct text_span *before,
                                         const struct text_span *after, struct ids *ids, err *e);

int tokenizer_size(const struct tokenizer *t);  // ids are 0 .. size-1; holes have empty pieces
const char *tokenizer_kind(const struct tokenizer *t);  // "bpe", "sentencepiece", ...

// The bytes a token stands for in running text (no clean-up, a SentencePiece token with its leading space). Borrowed.
const char *tokenizer_piece(const struct tokenizer *t, int32_t id, size_t *ret_len);
// The token's own spelling ("<|im_end|>", "Ġthe"); "" for a hole.
const char *tokenizer_token(const struct tokenizer *t, int32_t id, size_t *ret_len);
bool tokenizer_find(const struct tokenizer *t, const char *token, int32_t *ret_id);  // by spelling
bool tokenizer_is_control(const struct tokenizer *t, int32_t id);  // special: not part of visible text
bool tokenizer_is_added(const struct tokenizer *t, int32_t id);  // cut out of the text before the rest is looked at

enum { TOKEN_NONE = -1 };
int32_t tokenizer_bos(const struct tokenizer *t);  // TOKEN_NONE when the model has none
int32_t tokenizer_eos(const struct tokenizer *t);
int tokenizer_adds_after(const struct tokenizer *t);  // how many ids add_special puts after the text
bool tokenizer_adds_bos(const struct tokenizer *t);  // whether add_special puts one

// Ids that end a turn: eos, eot, eom and the chat formats' end markers (reference: the union over generation_config,
// config, tokenizer and GGUF). Borrowed, sorted.
const int32_t *tokenizer_stops(const struct tokenizer *t, size_t *ret_count);

// ---- ids back to text, as a stream. Output is always whole UTF-8 characters; bytes that can never become one turn
// into U+FFFD, by the rules of the tokenizer's decoder. Text that continues other text (a completion after its prompt)
// sets `started` after detok_init, so that its first space stays.
struct detok {
    const struct tokenizer *t;
    bool skip_control;
    bool started;           // the leading space of SentencePiece is dropped only at the very start
    bool broken;            // the byte run that goes on has a fault: each of its bytes is a U+FFFD
    unsigned char tail[64]; // bytes that wait for their character, or their byte run, to end
    size_t ntail;
};
void detok_init(struct detok *d, const struct tokenizer *t, bool skip_control);
void detok_add(struct detok *d, int32_t id, struct buf *out);
void detok_finish(struct detok *d, struct buf *out);  // flushes an unfinished character as U+FFFD
