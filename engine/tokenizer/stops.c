// stops.c - the set of ids that end a turn: those the files name, and tokens whose spelling is a known end marker.

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "engine/tokenizer/model.h"

// Ends of turn, of text and of a message to a tool; then the fill-in-the-middle markers that never belong in an answer.
static const char *const ends[] = {
    "<|eot_id|>", "<|im_end|>", "<|end|>", "<|return|>", "<|call|>", "<|flush|>", "<|calls|>", "<end_of_turn>",
    "<|endoftext|>", "</s>", "<|eom_id|>", "<EOT>", "_<EOT>", "[EOT]", "[EOS]", "<|end_of_text|>", "<end_of_utterance>",
    "<eos>", "<turn|>", "<|tool_response>", "<｜end▁of▁sentence｜>", "[e~[",
    "<|fim_pad|>", "<fim-pad>", "<fim_pad>", "<PAD>", "[PAD]", "<|fim_repo|>", "<|repo_name|>", "<fim-repo>", "<REPO>",
    "<reponame>", "<|file_sep|>",
};

bool tokenizer_stops_is_end(const char *text, size_t len)
{
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++)
        if (strlen(ends[i]) == len && memcmp(ends[i], text, len) == 0)
            return true;
    return false;
}

void tokenizer_stops_add(struct tokenizer *t, int64_t id)
{
    if (id < 0 || id >= t->vocab.size || !(t->vocab.tokens[id].flags & TOKEN_USED))
        return;
    for (size_t i = 0; i < t->nstops; i++)
        if (t->stops[i] == id)
            return;
    if (t->nstops % 16 == 0)
        t->stops = mem_resize(t->stops, (t->nstops + 16) * sizeof *t->stops);
    t->stops[t->nstops++] = (int32_t)id;
}

static bool has(const struct tokenizer *t, const char *text)
{
    int32_t id;
    return tokenizer_find(t, text, &id) && (t->vocab.tokens[id].flags & TOKEN_ADDED);
}

// Markers that look like an end but are none beside certain others.
static bool is_excepted(const struct tokenizer *t, const char *text)
{
    if (strcmp(text, "<|end|>") == 0)  // harmony: ends a message, not the turn
        return (has(t, "<|return|>") && has(t, "<|call|>")) || (has(t, "<|calls|>") && has(t, "<|flush|>"));
    if (strcmp(text, "</s>") == 0)  // Gemma 4: strikes text out
        return has(t, "<|tool_response>");
    return false;
}

static int ascending(const void *a, const void *b)
{
    int32_t x = *(const int32_t *)a, y = *(const int32_t *)b;
    return (x > y) - (x < y);
}

void tokenizer_stops_finish(struct tokenizer *t)
{
    tokenizer_stops_add(t, t->eos);
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
        int32_t id;
        if (has(t, ends[i]) && !is_excepted(t, ends[i]) && tokenizer_find(t, ends[i], &id))
            tokenizer_stops_add(t, id);
    }
    if (t->nstops)
        qsort(t->stops, t->nstops, sizeof *t->stops, ascending);
}
