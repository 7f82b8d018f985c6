// hf.c - opens a tokenizer from the JSON files of a model folder: tokenizer.json, tokenizer_config.json,
// generation_config.json, config.json. Reads them and keeps nothing of them.

#include <jansson.h>
#include <string.h>

#include "engine/tokenizer/model.h"

enum { MAX_STOPS = 64, MAX_AROUND = 8 };

// ---- added tokens

static unsigned added_flags(const json_t *j)
{
    return (json_is_true(json_object_get(j, "lstrip")) ? ADDED_LSTRIP : 0) |
           (json_is_true(json_object_get(j, "rstrip")) ? ADDED_RSTRIP : 0) |
           (json_is_true(json_object_get(j, "single_word")) ? ADDED_SINGLE_WORD : 0);
}

static err_code read_added(struct tokenizer *t, const json_t *list, err *e)
{
    size_t i;
    json_t *item;
    json_array_foreach (list, i, item) {
        const json_t *id = json_object_get(item, "id"), *content = json_object_get(item, "content");
        if (!json_is_integer(id) || !json_is_string(content))
            return err_set(e, ERR_CORRUPT, "tokenizer.json: added token %zu lacks its id or content", i);
        bool special = json_is_true(json_object_get(item, "special"));
        const json_t *normalised = json_object_get(item, "normalized");
        err_code rc = tokenizer_add_token(t, json_integer_value(id), json_string_value(content),
                                          json_string_length(content), special,
                                          normalised ? json_is_true(normalised) : !special, added_flags(item), e);
        if (rc)
            return rc;
    }
    return ERR_OK;
}

static bool parse_id(const char *s, int64_t *ret_id)
{
    int64_t id = 0;
    for (const char *p = s; *p; p++) {
        if (*p < '0' || *p > '9' || id > VOCAB_MAX)
            return false;
        id = id * 10 + (*p - '0');
    }
    *ret_id = id;
    return *s != 0;
}

// tokenizer_config.json may name tokens that tokenizer.json lacks.
static err_code read_config_added(struct tokenizer *t, const json_t *map, err *e)
{
    const char *key;
    json_t *item;
    json_object_foreach ((json_t *)map, key, item) {
        const json_t *content = json_object_get(item, "content");
        int32_t known;
        int64_t id;
        if (!json_is_string(content) || !parse_id(key, &id) || json_string_length(content) == 0 ||
            tokenizer_vocab_find(&t->vocab, json_string_value(content), json_string_length(content), &known))
            continue;
        if (id < t->vocab.size && (t->vocab.tokens[id].flags & TOKEN_USED))
            continue;  // the id is another token's in tokenizer.json, which counts
        err_code rc = tokenizer_add_token(t, id, json_string_value(content), json_string_length(content),
                                          json_is_true(json_object_get(item, "special")),
                                          json_is_true(json_object_get(item, "normalized")), added_flags(item), e);
        if (rc)
            return rc;
    }
    return ERR_OK;
}

// ---- what stands around the text

static err_code put_around(int32_t *list, int *n, int64_t id, const struct tokenizer *t, err *e)
{
    if (id < 0 || id >= t->vocab.size)
        return err_set(e, ERR_CORRUPT, "post_processor names token %lld, expected 0 to %d", (long long)id,
                       t->vocab.size - 1);
    if (*n == MAX_AROUND)
        return err_set(e, ERR_UNSUPPORTED, "post_processor puts more than %d tokens around the text", MAX_AROUND);
    list[(*n)++] = (int32_t)id;
    return ERR_OK;
}

static err_code put_special(struct tokenizer *t, const json_t *processor, const char *name, bool behind, err *e)
{
    const json_t *entry = json_object_get(json_object_get(processor, "special_tokens"), name ? name : "");
    const json_t *ids = json_object_get(entry, "ids");
    size_t i;
    json_t *id;
    if (!json_is_array(ids))
        return err_set(e, ERR_CORRUPT, "post_processor names '%.60s', which is not in its special_tokens",
                       name ? name : "?");
    json_array_foreach (ids, i, id) {
        err_code rc = behind ? put_around(t->after, &t->nafter, json_integer_value(id), t, e)
                             : put_around(t->before, &t->nbefore, json_integer_value(id), t, e);
        if (rc)
            return rc;
    }
    return ERR_OK;
}

static err_code read_template(struct tokenizer *t, const json_t *j, err *e)
{
    size_t i;
    json_t *item;
    bool behind = false;
    json_array_foreach (json_object_get(j, "single"), i, item) {
        const json_t *special = json_object_get(item, "SpecialToken");
        if (!special) {
            behind = true;
            continue;
        }
        err_code rc = put_special(t, j, json_string_value(json_object_get(special, "id")), behind, e);
        if (rc)
            return rc;
    }
    return ERR_OK;
}

static err_code read_pair(struct tokenizer *t, const json_t *j, err *e)
{
    int64_t cls = json_integer_value(json_array_get(json_object_get(j, "cls"), 1));
    int64_t sep = json_integer_value(json_array_get(json_object_get(j, "sep"), 1));
    err_code rc = put_around(t->before, &t->nbefore, cls, t, e);
    return rc ? rc : put_around(t->after, &t->nafter, sep, t, e);
}

static err_code read_processor(struct tokenizer *t, const json_t *j, int depth, err *e)
{
    const char *type = json_string_value(json_object_get(j, "type"));
    if (!j || json_is_null(j))
        return ERR_OK;
    if (!type || depth > 4)
        return err_set(e, ERR_CORRUPT, type ? "post_processor is nested too deep" : "post_processor without a type");
    if (strcmp(type, "TemplateProcessing") == 0)
        return read_template(t, j, e);
    if (strcmp(type, "BertProcessing") == 0 || strcmp(type, "RobertaProcessing") == 0)
        return read_pair(t, j, e);
    if (strcmp(type, "ByteLevel") == 0)
        return ERR_OK;
    if (strcmp(type, "Sequence") != 0)
        return err_set_param(e, ERR_UNSUPPORTED, "post_processor", "post_processor '%.60s' is not supported", type);
    size_t i;
    json_t *item;
    json_array_foreach (json_object_get(j, "processors"), i, item) {
        err_code rc = read_processor(t, item, depth + 1, e);
        if (rc)
            return rc;
    }
    return ERR_OK;
}

// tokenizer_config.json's add_bos_token and add_eos_token, when there, say all; else the post-processor does.
static err_code read_around(struct tokenizer *t, const struct tokenizer_json_files *f, err *e)
{
    const json_t *bos = json_object_get(f->config, "add_bos_token"), *eos = json_object_get(f->config, "add_eos_token");
    if (!json_is_boolean(bos) && !json_is_boolean(eos))
        return read_processor(t, json_object_get(f->tokenizer, "post_processor"), 0, e);
    if (json_is_true(bos) && t->bos != TOKEN_NONE)
        t->before[t->nbefore++] = t->bos;
    if (json_is_true(eos) && t->eos != TOKEN_NONE)
        t->after[t->nafter++] = t->eos;
    return ERR_OK;
}

// ---- BOS, EOS, stops

static int32_t first_id(const json_t *j)
{
    const json_t *id = json_is_array(j) ? json_array_get(j, 0) : j;
    return json_is_integer(id) && json_integer_value(id) >= 0 && json_integer_value(id) < VOCAB_MAX
               ? (int32_t)json_integer_value(id) : TOKEN_NONE;
}

// A token by its spelling in tokenizer_config.json, else by its id in the models' own files.
static int32_t named_token(const struct tokenizer *t, const struct tokenizer_json_files *f, const char *name,
                           const char *id_name)
{
    const json_t *j = json_object_get(f->config, name);
    const json_t *text = json_is_object(j) ? json_object_get(j, "content") : j;
    int32_t id = TOKEN_NONE;
    if (j && (json_is_null(j) || json_is_string(text))) {
        if (json_is_string(text) &&
            !tokenizer_vocab_find(&t->vocab, json_string_value(text), json_string_length(text), &id))
            id = TOKEN_NONE;
        return id;
    }
    const json_t *files[] = {f->generation, f->model, json_object_get(f->model, "text_config")};
    for (int i = 0; i < 3 && id == TOKEN_NONE; i++)
        id = first_id(json_object_get(files[i], id_name));
    return id < t->vocab.size ? id : TOKEN_NONE;
}

static void add_stops(struct tokenizer *t, const json_t *j)
{
    size_t i;
    json_t *id;
    if (json_is_integer(j))
        tokenizer_stops_add(t, json_integer_value(j));
    json_array_foreach (j, i, id) {
        if (i == MAX_STOPS)
            break;
        if (json_is_integer(id))
            tokenizer_stops_add(t, json_integer_value(id));
    }
}

static void read_ends(struct tokenizer *t, const struct tokenizer_json_files *f)
{
    t->bos = named_token(t, f, "bos_token", "bos_token_id");
    t->eos = named_token(t, f, "eos_token", "eos_token_id");
    add_stops(t, json_object_get(f->generation, "eos_token_id"));
    add_stops(t, json_object_get(f->model, "eos_token_id"));
    add_stops(t, json_object_get(json_object_get(f->model, "text_config"), "eos_token_id"));
    tokenizer_stops_finish(t);
    tokenizer_fim_find(t, NULL);
}

// ---- all of it

static err_code read_decoder(struct tokenizer *t, const json_t *decoder, err *e)
{
    if (decoder && !json_is_null(decoder)) {
        struct decode_rules rules;
        err_code rc = detok_open(decoder, &rules, e);
        if (rc)
            return rc;
        memcpy(rules.suffix, t->decode.suffix, sizeof rules.suffix);  // the model's
        t->decode = rules;
        return ERR_OK;
    }
    if (!tokenizer_pretok_is_bytes(t->pretok))
        return err_set_param(e, ERR_UNSUPPORTED, "decoder", "tokenizer.json has no decoder");
    t->decode.bytes = true;
    return ERR_OK;
}

static bool lowers(const json_t *normal)
{
    const char *type = json_string_value(json_object_get(normal, "type"));
    const json_t *list = json_object_get(normal, "normalizers"), *one;
    size_t i;
    if (type && !strcmp(type, "Lowercase"))
        return true;
    if (type && !strcmp(type, "BertNormalizer") && !json_is_false(json_object_get(normal, "lowercase")))
        return true;
    json_array_foreach(list, i, one)
        if (lowers(one))
            return true;
    return false;
}

// sentence-transformers puts Lowercase before everything when its own file asks for it and the tokenizer does not do it.
static err_code read_normal(struct tokenizer *t, const struct tokenizer_json_files *f, err *e)
{
    json_t *normal = json_object_get(f->tokenizer, "normalizer");
    if (!json_is_true(json_object_get(f->sentences, "do_lower_case")) || lowers(normal))
        return tokenizer_normal_open(normal, &t->normal, e);
    json_t *list = json_pack("[{s:s}]", "type", "Lowercase");
    if (json_is_object(normal))
        json_array_append(list, normal);
    json_t *both = json_pack("{s:s, s:o}", "type", "Sequence", "normalizers", list);
    err_code rc = tokenizer_normal_open(both, &t->normal, e);
    json_decref(both);
    return rc;
}

static err_code read_all(struct tokenizer *t, const struct tokenizer_json_files *f, err *e)
{
    const json_t *j = f->tokenizer, *model = json_object_get(j, "model");
    err_code rc = read_normal(t, f, e);
    if (rc == ERR_OK)
        rc = tokenizer_pretok_open(json_object_get(j, "pre_tokenizer"), &t->pretok, e);
    if (rc == ERR_OK)
        rc = read_added(t, json_object_get(j, "added_tokens"), e);
    if (rc == ERR_OK)
        rc = t->kind->open_json(t, model, e);
    if (rc == ERR_OK)
        rc = read_config_added(t, json_object_get(f->config, "added_tokens_decoder"), e);
    if (rc == ERR_OK)
        rc = read_decoder(t, json_object_get(j, "decoder"), e);
    if (rc)
        return rc;
    read_ends(t, f);
    rc = read_around(t, f, e);
    return rc ? rc : detok_build(t, e);
}

// Files of before 2021 leave the model's type out.
static const char *model_type(const json_t *model)
{
    const char *type = json_string_value(json_object_get(model, "type"));
    return type ? type : json_object_get(model, "merges") ? "BPE" : NULL;
}

err_code tokenizer_hf_open(const struct tokenizer_json_files *files, struct tokenizer **ret_tokenizer, err *e)
{
    const json_t *model = json_object_get(files->tokenizer, "model");
    const char *type = model_type(model);
    if (!type)
        return err_set(e, ERR_CORRUPT, "tokenizer.json: model has no type");
    const struct tokenizer_kind *kind = tokenizer_kind_by_json(type);
    if (!kind || !kind->open_json)
        return err_set_param(e, ERR_UNSUPPORTED, "tokenizer.json", "tokenizer model '%.60s' is not supported", type);
    struct tokenizer *t = tokenizer_new();
    t->kind = kind;
    err_code rc = read_all(t, files, e);
    if (rc)
        tokenizer_close(t);
    else
        *ret_tokenizer = t;
    return rc;
}
