// whisper_tokens.c - see whisper_tokens.h. Runs on prep threads; a few hundred look-ups a request.
#include "engine/audio/whisper_tokens.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/audio/whisper.h"
#include "engine/model.h"
#include "engine/tokenizer/tokenizer.h"
#include "engine/weights/weights.h"

enum { ENGLISH_VOCAB = 51864 };  // of every English-only model that OpenAI trained

static int32_t find(const struct model *m, const char *spelling)
{
    int32_t id;
    return tokenizer_find(m->tokenizer, spelling, &id) && id < m->vocab ? id : TOKEN_NONE;
}

// generation_config.json says it; older folders lack the key. English-only vocabularies hold the language tokens too.
static bool is_multilingual(const struct model *m, const struct whisper_tokens *t)
{
    json_t *config = weights_json(m->weights, "generation_config.json");
    json_t *says = json_object_get(config, "is_multilingual");
    if (json_is_boolean(says))
        return json_is_true(says);
    return m->vocab != ENGLISH_VOCAB && t->transcribe != TOKEN_NONE && t->languages[0] != TOKEN_NONE;
}

err_code whisper_tokens_find(const struct model *m, struct whisper_tokens *ret_tokens, err *e)
{
    const struct whisper *w = m->impl;
    if (!m->tokenizer) {
        *e = m->tokenizer_error;
        return e->code ? e->code : err_set(e, ERR_UNSUPPORTED, "%s: the model has no tokenizer", m->path);
    }
    struct whisper_tokens t = {
        .eot = find(m, "<|endoftext|>"), .sot = find(m, "<|startoftranscript|>"),
        .no_timestamps = find(m, "<|notimestamps|>"), .translate = find(m, "<|translate|>"),
        .transcribe = find(m, "<|transcribe|>"), .start_of_lm = find(m, "<|startoflm|>"),
        .start_of_prev = find(m, "<|startofprev|>"), .no_speech = find(m, "<|nospeech|>"),
    };
    if (t.no_speech == TOKEN_NONE)
        t.no_speech = find(m, "<|nocaptions|>");
    for (int i = 0; i < LANGUAGES; i++) {
        char word[16];
        snprintf(word, sizeof word, "<|%s|>", engine_language_at(i));
        t.languages[i] = find(m, word);
    }
    if (t.eot == TOKEN_NONE || t.sot < t.eot || t.no_timestamps < t.sot)
        return err_set(e, ERR_UNSUPPORTED,
                       "%s: the tokenizer's <|endoftext|>, <|startoftranscript|> and <|notimestamps|> are %d, %d and "
                       "%d, expected them in this order below %d", m->path, t.eot, t.sot, t.no_timestamps, m->vocab);
    t.first_time = t.no_timestamps + 1;
    t.times = m->vocab - t.first_time;
    if (t.times > w->dims.positions + 1)
        t.times = w->dims.positions + 1;
    t.multilingual = is_multilingual(m, &t);
    if (t.multilingual && t.languages[0] == TOKEN_NONE)
        return err_set(e, ERR_UNSUPPORTED, "%s: a multilingual model whose tokenizer has no <|en|>", m->path);
    *ret_tokens = t;
    return ERR_OK;
}

int whisper_tokens_language(const struct whisper_tokens *t, const char *code)
{
    for (int i = 0; i < LANGUAGES; i++)
        if (!strcmp(engine_language_at(i), code))
            return t->languages[i] == TOKEN_NONE ? -1 : i;
    return -1;
}

// ---- suppressed tokens

static void mark(const struct model *m, uint8_t *marks, int64_t id, uint8_t bit)
{
    if (id >= 0 && id < m->vocab)
        marks[id] |= bit;
}

// A list of generation_config.json; false when it has none.
static bool mark_list(const struct model *m, const char *key, uint8_t *marks, uint8_t bit)
{
    json_t *list = json_object_get(weights_json(m->weights, "generation_config.json"), key), *id;
    size_t i;
    if (!json_is_array(list))
        return false;
    json_array_foreach(list, i, id)
        mark(m, marks, json_is_integer(id) ? json_integer_value(id) : -1, bit);
    return true;
}

// Marks the text's token when it is one token, or (first) its first token in any case.
static err_code mark_text(const struct model *m, const char *text, bool first, uint8_t *marks, uint8_t bit, err *e)
{
    struct ids ids = {0};
    err_code code = tokenizer_encode(m->tokenizer, &(struct text_span){text, strlen(text), false}, 1, false, &ids, e);
    if (!code && ids.len > 0 && (first || ids.len == 1))
        mark(m, marks, ids.data[0], bit);
    free(ids.data);
    return code;
}

// Brackets, notes and signs that subtitles use for sounds; hyphens and quotes only where they open a word.
static err_code mark_symbols(const struct model *m, uint8_t *marks, err *e)
{
    static const char *const symbols[] = {
        "\"", "#", "(", ")", "*", "+", "/", ":", ";", "<", "=", ">", "@", "[", "\\", "]", "^", "_", "`", "{", "|", "}",
        "~", "「", "」", "『", "』", "<<", ">>", "<<<", ">>>", "--", "---", "-(", "-[", "('", "(\"", "((", "))", "(((",
        ")))", "[[", "]]", "{{", "}}", "♪♪", "♪♪♪",
    };
    static const char *const notes[] = {"♩", "♪", "♫", "♬", "♭", "♮", "♯"};  // share their first two bytes
    enum { SYMBOLS = sizeof symbols / sizeof *symbols, ALL = SYMBOLS + sizeof notes / sizeof *notes };
    err_code code = mark_text(m, " -", true, marks, SUPPRESS_ALWAYS, e);
    if (!code)
        code = mark_text(m, " '", true, marks, SUPPRESS_ALWAYS, e);
    for (int i = 0; i < ALL && !code; i++) {
        char spaced[16];
        const char *symbol = i < SYMBOLS ? symbols[i] : notes[i - SYMBOLS];
        snprintf(spaced, sizeof spaced, " %s", symbol);
        code = mark_text(m, symbol, i >= SYMBOLS, marks, SUPPRESS_ALWAYS, e);
        if (!code)
            code = mark_text(m, spaced, i >= SYMBOLS, marks, SUPPRESS_ALWAYS, e);
    }
    return code;
}

err_code whisper_tokens_suppress(const struct model *m, const struct whisper_tokens *t, uint8_t *marks, err *e)
{
    err_code code = ERR_OK;
    if (!mark_list(m, "suppress_tokens", marks, SUPPRESS_ALWAYS))
        code = mark_symbols(m, marks, e);
    if (!code && !mark_list(m, "begin_suppress_tokens", marks, SUPPRESS_FIRST)) {
        code = mark_text(m, " ", true, marks, SUPPRESS_FIRST, e);
        mark(m, marks, t->eot, SUPPRESS_FIRST);
    }
    const int32_t special[] = {t->sot, t->translate, t->transcribe, t->start_of_lm, t->start_of_prev, t->no_speech};
    for (size_t i = 0; i < sizeof special / sizeof *special; i++)
        mark(m, marks, special[i], SUPPRESS_ALWAYS);
    for (int64_t id = t->first_time + t->times; id < m->vocab; id++)
        mark(m, marks, id, SUPPRESS_ALWAYS);
    return code;
}
