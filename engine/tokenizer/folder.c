// folder.c - opens the tokenizer of a folder that holds nothing else, as diffusion pipelines have it: tokenizer.json, or
// CLIP's older pair of vocab.json and merges.txt, which is turned into the tokenizer.json it stands for.
//
// Runs on the thread that opens a model; keeps nothing of the files.
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "engine/tokenizer/model.h"
#include "engine/weights/jsonfile.h"

enum { MERGES_MAX = 64 << 20, PATH_ROOM = 4096 };

// What CLIP's own code does around the merges.
static const char clip_frame[] =
    "{\"normalizer\": {\"type\": \"Sequence\", \"normalizers\": [{\"type\": \"NFC\"},"
    " {\"type\": \"Replace\", \"pattern\": {\"Regex\": \"\\\\s+\"}, \"content\": \" \"}, {\"type\": \"Lowercase\"}]},"
    " \"pre_tokenizer\": {\"type\": \"Sequence\", \"pretokenizers\": [{\"type\": \"Split\", \"pattern\": {\"Regex\":"
    " \"<\\\\|startoftext\\\\|>|<\\\\|endoftext\\\\|>|'s|'t|'re|'ve|'m|'ll|'d|[\\\\p{L}]+|[\\\\p{N}]|[^\\\\s\\\\p{L}\\\\p{N}]+\"},"
    " \"behavior\": \"Removed\", \"invert\": true},"
    " {\"type\": \"ByteLevel\", \"add_prefix_space\": false, \"trim_offsets\": true, \"use_regex\": true}]},"
    " \"decoder\": {\"type\": \"ByteLevel\"},"
    " \"model\": {\"type\": \"BPE\", \"end_of_word_suffix\": \"</w>\", \"fuse_unk\": false, \"unk_token\": \"<|endoftext|>\"}}";

struct files {
    json_t *tokenizer, *config, *specials;
};

static void files_done(struct files *f)
{
    json_decref(f->tokenizer);
    json_decref(f->config);
    json_decref(f->specials);
}

static err_code join(const char *folder, const char *file, char *out, err *e)
{
    if (snprintf(out, PATH_ROOM, "%s/%s", folder, file) >= PATH_ROOM)
        return err_set(e, ERR_INVALID, "the path of '%s' is longer than %d bytes", file, PATH_ROOM - 1);
    return ERR_OK;
}

// *ret_json is NULL when there is no such file.
static err_code read_json(const char *folder, const char *file, json_t **ret_json, err *e)
{
    char path[PATH_ROOM];
    err_code code = join(folder, file, path, e);
    *ret_json = NULL;
    return code || !file_exists(path) ? code : jsonfile_read(path, JSONFILE_LENIENT, ret_json, e);
}

// "bos_token" and its like: a spelling, or an object with it.
static const char *special(const struct files *f, const char *name, const char *fallback)
{
    const json_t *const places[] = {f->specials, f->config};
    for (int i = 0; i < 2; i++) {
        const json_t *j = json_object_get(places[i], name);
        const char *text = json_string_value(json_is_object(j) ? json_object_get(j, "content") : j);
        if (text)
            return text;
    }
    return fallback;
}

// ---- vocab.json and merges.txt

static json_t *merges_of(char *text)
{
    json_t *list = json_array();
    char *save = NULL;
    bool first = true;
    for (char *line = strtok_r(text, "\r\n", &save); line; line = strtok_r(NULL, "\r\n", &save)) {
        bool version = first && strncmp(line, "#version", 8) == 0;
        first = false;
        if (!version)
            json_array_append_new(list, json_stringn_nocheck(line, strlen(line)));
    }
    return list;
}

static err_code add_token(json_t *list, const json_t *vocab, const char *text, err *e)
{
    const json_t *id = json_object_get(vocab, text);
    if (!json_is_integer(id))
        return err_set_param(e, ERR_CORRUPT, "vocab.json", "vocab.json: the special token '%.60s' is not in it", text);
    json_array_append_new(list, json_pack("{s:I, s:s, s:b, s:b}", "id", json_integer_value(id), "content", text, "special",
                                          1, "normalized", 0));
    return ERR_OK;
}

// What stands around a text, and the tokens that are cut out of it.
static err_code add_specials(struct files *f, const json_t *vocab, err *e)
{
    const char *begin = special(f, "bos_token", "<|startoftext|>"), *end = special(f, "eos_token", "<|endoftext|>");
    const char *pad = special(f, "pad_token", end);
    json_t *list = json_array();
    err_code code = add_token(list, vocab, begin, e);
    if (!code)
        code = add_token(list, vocab, end, e);
    if (!code && strcmp(pad, end) != 0)
        code = add_token(list, vocab, pad, e);
    json_object_set_new(f->tokenizer, "added_tokens", list);
    if (code)
        return code;
    json_t *around = json_pack("{s:s, s:[s,I], s:[s,I]}", "type", "RobertaProcessing", "cls", begin,
                               json_integer_value(json_object_get(vocab, begin)), "sep", end,
                               json_integer_value(json_object_get(vocab, end)));
    json_object_set_new(f->tokenizer, "post_processor", around);
    return ERR_OK;
}

static err_code read_merges(const char *folder, json_t **ret_list, err *e)
{
    char path[PATH_ROOM], *text;
    size_t len;
    err_code code = join(folder, "merges.txt", path, e);
    if (!code)
        code = file_read(path, MERGES_MAX, &text, &len, e);
    if (code)
        return code;
    *ret_list = merges_of(text);
    free(text);
    return ERR_OK;
}

static err_code make_clip(const char *folder, struct files *f, err *e)
{
    const char *class = json_string_value(json_object_get(f->config, "tokenizer_class"));
    json_t *vocab = NULL, *merges = NULL;
    if (class && strncmp(class, "CLIPTokenizer", 13) != 0)
        return err_set_param(e, ERR_UNSUPPORTED, "tokenizer_class",
                             "'%s' has no tokenizer.json, and a %.40s cannot be made from other files", folder, class);
    err_code code = read_json(folder, "vocab.json", &vocab, e);
    if (!code && !vocab)
        code = err_set_param(e, ERR_NOT_FOUND, "tokenizer.json",
                             "'%s' holds neither tokenizer.json nor vocab.json with merges.txt", folder);
    if (!code)
        code = read_merges(folder, &merges, e);
    if (!code) {
        f->tokenizer = json_loads(clip_frame, 0, NULL);
        json_t *model = json_object_get(f->tokenizer, "model");
        json_object_set_new(model, "merges", merges);
        json_object_set(model, "vocab", vocab);
        code = add_specials(f, vocab, e);
    }
    json_decref(vocab);
    return code;
}

static err_code read_files(const char *folder, struct files *f, err *e)
{
    err_code code = read_json(folder, "tokenizer_config.json", &f->config, e);
    if (!code)
        code = read_json(folder, "special_tokens_map.json", &f->specials, e);
    if (!code)
        code = read_json(folder, "tokenizer.json", &f->tokenizer, e);
    return code || f->tokenizer ? code : make_clip(folder, f, e);
}

err_code tokenizer_folder_open(const char *folder, struct tokenizer **ret_tokenizer, int32_t *ret_pad, err *e)
{
    struct files f = {0};
    struct tokenizer *t = NULL;
    err_code code = read_files(folder, &f, e);
    if (!code) {
        struct tokenizer_json_files parts = {.tokenizer = f.tokenizer, .config = f.config};
        code = tokenizer_hf_open(&parts, &t, e);
    }
    if (!code) {
        const char *pad = special(&f, "pad_token", NULL);
        if (!pad || !tokenizer_find(t, pad, ret_pad))
            *ret_pad = TOKEN_NONE;
        if (t->bos == TOKEN_NONE && t->nbefore)
            t->bos = t->before[0];
        if (t->eos == TOKEN_NONE && t->nafter)
            t->eos = t->after[t->nafter - 1];
        *ret_tokenizer = t;
    }
    files_done(&f);
    return code;
}
