// model.h - inside of a tokenizer, for the files of this folder and their tests.
//
//     text -> added tokens cut out (raw) -> normaliser -> added tokens cut out (normalised) -> pre-tokeniser
//          -> kind's encode, piece by piece -> BOS and EOS around it
//
// A kind of tokeniser (its merges or scores and how they turn a piece into ids) is a struct tokenizer_kind; everything
// around it is the same for all of them. Which loader found the parts (tokenizer.json or GGUF) no longer shows here.
#pragma once

#include "engine/tokenizer/added.h"
#include "engine/tokenizer/merge.h"
#include "engine/tokenizer/normal.h"
#include "engine/tokenizer/pretok.h"
#include "engine/tokenizer/tokenizer.h"
#include "engine/tokenizer/vocab.h"

struct json_t;

// Memory of one encode call.
struct tokenizer_scratch {
    struct tokenizer_text text, fragment, spare;
    struct tokenizer_pieces pieces;
    struct merge_word word;
};

// The marks of a text with a gap; middle is TOKEN_NONE where the prompt has none, all are where the model knows no gaps.
struct tokenizer_fim {
    int32_t prefix, suffix, middle;
    bool suffix_first;
};

// A tokenizer's part of a GGUF file; strings are borrowed from it.
struct gguf_text {
    const char *p;
    size_t n;
};
enum gguf_token_type {
    GGUF_NORMAL = 1, GGUF_UNKNOWN = 2, GGUF_CONTROL = 3, GGUF_USER_DEFINED = 4, GGUF_UNUSED = 5, GGUF_BYTE = 6,
};
struct tokenizer_gguf {
    struct gguf_text model, pre, name;  // tokenizer.ggml.model, tokenizer.ggml.pre, general.name
    struct gguf_text *tokens, *merges;
    float *scores;   // NULL: none
    int32_t *types;  // NULL: all normal
    size_t ntokens, nmerges;
    int32_t bos, eos, unknown;      // TOKEN_NONE when absent
    int32_t stops[16];              // eot, eom and the like
    size_t nstops;
    struct tokenizer_fim fim;       // as the file names them
    int32_t cls, sep;               // BERT
    int add_bos, add_eos, add_prefix;  // 0, 1, or -1 when absent
    int lowercase, strip_accents;      // BERT; the same
};

struct tokenizer_kind {
    const char *name;
    const char *json_type;    // "type" of tokenizer.json's model; NULL: none
    const char *gguf_models;  // values of tokenizer.ggml.model, separated by spaces; NULL: none
    // Both fill t->vocab, t->model and, for GGUF, normaliser, pre-tokeniser and decode rules. Added tokens are in
    // t->vocab already. On failure t is closed by the caller.
    err_code (*open_json)(struct tokenizer *t, const struct json_t *model, err *e);
    err_code (*open_gguf)(struct tokenizer *t, const struct tokenizer_gguf *g, err *e);
    err_code (*encode)(const struct tokenizer *t, struct tokenizer_scratch *s, const char *piece, size_t len,
                       struct ids *ids, err *e);
    void (*close)(void *model);
};

// How token spellings become text (detok.c).
enum { DECODE_REPLACES = 4, DECODE_SUFFIX = 8 };
struct decode_rules {
    bool bytes;       // the byte alphabet
    char suffix[DECODE_SUFFIX];  // at the end of a spelling: a space ("</w>" of CLIP); "": none
    bool byte_runs;   // a run of <0xHH> is one UTF-8 text, or a U+FFFD for each of its bytes
    bool strip;       // one space at the very start is dropped
    bool strip_mark;  // all spaces of the first token are dropped (Metaspace)
    bool words, cleanup;  // WordPiece: a space before what lacks the prefix; no space before punctuation
    char prefix[16];
    int nreplaces;
    struct {
        char from[16], to[16];
    } replaces[DECODE_REPLACES];
};

struct tokenizer {
    const struct tokenizer_kind *kind;
    void *model;
    struct vocab vocab;
    struct tokenizer_added *raw, *normalised;
    struct tokenizer_normal *normal;
    struct tokenizer_pretok *pretok;
    struct decode_rules decode;
    int32_t bos, eos;
    int32_t before[8], after[8];  // what add_special puts around the text
    int nbefore, nafter;
    int32_t *stops;
    size_t nstops;
    struct tokenizer_fim fim;
};

const struct tokenizer_kind *tokenizer_kind_by_json(const char *type);
const struct tokenizer_kind *tokenizer_kind_by_gguf(const char *model, size_t len);
struct tokenizer *tokenizer_new(void);
// Registers an added token: in the vocabulary and in the matcher. flags: ADDED_*.
MUST_CHECK err_code tokenizer_add_token(struct tokenizer *t, int64_t id, const char *text, size_t len, bool control,
                                        bool normalised, unsigned flags, err *e);

// The JSON files of a model folder; all but the first may be NULL.
struct tokenizer_json_files {
    const struct json_t *tokenizer;   // tokenizer.json
    const struct json_t *config;      // tokenizer_config.json
    const struct json_t *generation;  // generation_config.json
    const struct json_t *model;       // config.json
    const struct json_t *sentences;   // sentence_bert_config.json
};
MUST_CHECK err_code tokenizer_hf_open(const struct tokenizer_json_files *files, struct tokenizer **ret_tokenizer,
                                      err *e);
// A folder with only BERT's vocab.txt and, if there, tokenizer_config.json: files->tokenizer is NULL.
bool tokenizer_vocabtxt_has(const char *folder);
MUST_CHECK err_code tokenizer_vocabtxt_open(const char *folder, const struct tokenizer_json_files *files,
                                            struct tokenizer **ret_tokenizer, err *e);
MUST_CHECK err_code tokenizer_gguf_build(const struct tokenizer_gguf *g, struct tokenizer **ret_tokenizer, err *e);
MUST_CHECK err_code tokenizer_gguf_open(const struct weights *w, struct tokenizer **ret_tokenizer, err *e);

// Stop ids: those given and those that the vocabulary's spellings tell.
void tokenizer_stops_add(struct tokenizer *t, int64_t id);
void tokenizer_stops_finish(struct tokenizer *t);
// Whether a spelling is one of the known end markers (a vocabulary may have it with the wrong type).
bool tokenizer_stops_is_end(const char *text, size_t len);

// The marks by their spellings, else those that a file names (NULL: none).
void tokenizer_fim_find(struct tokenizer *t, const struct tokenizer_fim *given);

// Decode rules of tokenizer.json, and the pieces that follow from the rules.
MUST_CHECK err_code detok_open(const struct json_t *decoder, struct decode_rules *ret_rules, err *e);
MUST_CHECK err_code detok_build(struct tokenizer *t, err *e);
