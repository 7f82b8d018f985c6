// bundle.c - see bundle.h. Runs on the thread that opens a model; strings are the bundle's.
#include "engine/decide/bundle.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/mem.h"
#include "engine/weights/jsonfile.h"

enum { PATH_MAX_BYTES = 4096 };

static char *join(const char *folder, const char *name)
{
    char path[PATH_MAX_BYTES];
    int n = snprintf(path, sizeof path, "%s/%s", folder, name);
    return n > 0 && (size_t)n < sizeof path ? mem_strdup(path) : NULL;
}

static bool has(const char *folder, const char *name)
{
    char *path = join(folder, name);
    bool yes = path && file_exists(path);
    free(path);
    return yes;
}

static err_code wrong(const struct bundle *b, const char *key, const char *expected, err *e)
{
    return err_set_param(e, ERR_CORRUPT, key, "%s: '%s' is not %s", b->file, key, expected);
}

// ---- slots

static err_code read_range(struct bundle *b, const json_t *ranges, enum decide_kind k, int want, err *e)
{
    const json_t *pair = json_object_get(ranges, bare_kind(k));
    json_int_t lo = json_integer_value(json_array_get(pair, 0)), hi = json_integer_value(json_array_get(pair, 1));
    if (json_array_size(pair) != 2 || lo < 0 || hi <= lo || hi > b->nslots)
        return err_set_param(e, ERR_CORRUPT, "slots.ranges", "%s: range '%s' is not two slots of %d, first to last", b->file,
                             bare_kind(k), b->nslots);
    if (want > 0 ? hi - lo != want : hi - lo < 2 || hi - lo > LABELS_MAX)
        return err_set_param(e, ERR_CORRUPT, "slots.ranges", "%s: '%s' has %d slots, expected %s", b->file, bare_kind(k),
                             (int)(hi - lo), want == BARE_BOOLS ? "2" : want ? "6" : "2 to 256");
    b->lo[k] = (int)lo;
    b->hi[k] = (int)hi;
    return ERR_OK;
}

static err_code read_verbalizers(struct bundle *b, const json_t *texts, const json_t *ids, err *e)
{
    size_t n = json_array_size(texts);
    if (n < 1 || n > BUNDLE_MAX_SLOTS)
        return wrong(b, "slots.verbalizers", "an array of 1 to 512 strings", e);
    if (json_array_size(ids) != n)
        return err_set_param(e, ERR_CORRUPT, "verbalizer_ids", "%s: %zu verbalizers and %zu verbalizer_ids", b->file, n,
                             json_array_size(ids));
    for (size_t i = 0; i < n; i++) {
        const json_t *text = json_array_get(texts, i), *id = json_array_get(ids, i);
        if (!json_is_string(text))
            return wrong(b, "slots.verbalizers", "an array of strings", e);
        if (!json_is_integer(id) || json_integer_value(id) < 0 || json_integer_value(id) > INT32_MAX)
            return wrong(b, "verbalizer_ids", "an array of token ids", e);
        b->verbalizers[b->nslots++] = mem_strdup(json_string_value(text));
        b->ids[i] = (int32_t)json_integer_value(id);
    }
    return ERR_OK;
}

// noul and score are read by their own words; anything else would be other questions under these names.
static err_code check_words(const struct bundle *b, enum decide_kind k, err *e)
{
    for (int i = 0; i < b->hi[k] - b->lo[k]; i++)
        if (strcmp(b->verbalizers[b->lo[k] + i], bare_option(k, i)))
            return err_set_param(e, ERR_CORRUPT, "slots.verbalizers", "%s: slot %d is '%.40s', expected '%s'", b->file,
                                 b->lo[k] + i, b->verbalizers[b->lo[k] + i], bare_option(k, i));
    return ERR_OK;
}

static err_code read_slots(struct bundle *b, const json_t *j, err *e)
{
    const json_t *slots = json_object_get(j, "slots"), *ranges = json_object_get(slots, "ranges");
    const json_t *version = json_object_get(slots, "template_version");
    if (!json_is_object(slots) || !json_is_object(ranges))
        return wrong(b, "slots.ranges", "there", e);
    if (version && (!json_is_string(version) || strcmp(json_string_value(version), "bare-v1")))
        return err_set_param(e, ERR_UNSUPPORTED, "template_version", "%s: template_version is '%.40s', built is 'bare-v1'",
                             b->file, json_is_string(version) ? json_string_value(version) : "?");
    err_code code = read_verbalizers(b, json_object_get(slots, "verbalizers"), json_object_get(j, "verbalizer_ids"), e);
    static const int want[BARE_KINDS] = {[DECIDE_BOOL] = BARE_BOOLS, [DECIDE_INT] = BARE_INTS};
    for (int k = 0; !code && k < BARE_KINDS; k++)
        code = read_range(b, ranges, (enum decide_kind)k, want[k], e);
    code = code ? code : check_words(b, DECIDE_BOOL, e);
    return code ? code : check_words(b, DECIDE_INT, e);
}

// ---- what other bundles have and this program does not compute

static err_code refuse_others(const struct bundle *b, const json_t *j, err *e)
{
    const json_t *softcap = json_object_get(j, "softcap");
    const json_t *prefix = json_object_get(json_object_get(j, "readout"), "prefix_token");
    if (softcap && !json_is_null(softcap))
        return err_set_param(e, ERR_UNSUPPORTED, "softcap", "%s: a softcap of the head's scores is not built", b->file);
    if (prefix && !json_is_null(prefix))
        return err_set_param(e, ERR_UNSUPPORTED, "readout.prefix_token", "%s: a token before the prompt is not built",
                             b->file);
    return ERR_OK;
}

static err_code read_bias(struct bundle *b, const json_t *bias, err *e)
{
    if (json_array_size(bias) != (size_t)b->nslots)
        return err_set_param(e, ERR_CORRUPT, "bias", "%s: 'bias' has %zu numbers, expected %d", b->file,
                             json_array_size(bias), b->nslots);
    for (int i = 0; i < b->nslots; i++) {
        const json_t *v = json_array_get(bias, (size_t)i);
        b->bias[i] = (float)json_number_value(v);
        if (!json_is_number(v) || !isfinite(b->bias[i]))
            return wrong(b, "bias", "an array of numbers", e);
    }
    return ERR_OK;
}

static err_code read_temperatures(struct bundle *b, const char *path, err *e)
{
    json_t *j;
    if (!file_exists(path))
        return ERR_OK;
    if (jsonfile_read(path, JSONFILE_LENIENT, &j, e))
        return e->code;
    err_code code = ERR_OK;
    for (int k = 0; k < BARE_KINDS && !code; k++) {
        const json_t *t = json_object_get(json_object_get(j, "per_kind"), bare_kind((enum decide_kind)k));
        double v = json_number_value(t);
        if (t && (!json_is_number(t) || !isfinite(v) || v <= 0))
            code = err_set_param(e, ERR_CORRUPT, "per_kind", "%s: the temperature of '%s' is not a positive number", path,
                                 bare_kind((enum decide_kind)k));
        else if (t)
            b->temperature[k] = v;
    }
    json_decref(j);
    return code;
}

// ---- the kinds of folder

static err_code open_file(struct bundle *b, const char *folder, const char *name, json_t **ret_json, err *e)
{
    b->file = join(folder, name);
    if (!b->file)
        return err_set(e, ERR_INVALID, "the path of a decision bundle is too long");
    err_code code = jsonfile_read(b->file, JSONFILE_LENIENT, ret_json, e);
    if (code)
        return code;
    code = refuse_others(b, *ret_json, e);
    code = code ? code : read_slots(b, *ret_json, e);
    if (code)
        json_decref(*ret_json);
    return code;
}

static err_code read_calibration(struct bundle *b, const char *folder, err *e)
{
    char *path = join(folder, "calibration.json");
    err_code code = path ? read_temperatures(b, path, e) : err_set(e, ERR_INVALID, "%s: path too long", folder);
    free(path);
    return code;
}

static err_code check_subfolder(const struct bundle *b, const char *name, err *e)
{
    if (name[0] && name[0] != '.' && name[0] != '/' && !strstr(name, ".."))
        return ERR_OK;
    return err_set_param(e, ERR_CORRUPT, "adapter_subfolder", "%s: adapter_subfolder '%.80s' is not a folder beside it",
                         b->file, name);
}

static err_code open_judge(struct bundle *b, const char *folder, err *e)
{
    json_t *j;
    if (open_file(b, folder, "judge_config.json", &j, e))
        return e->code;
    const json_t *sub = json_object_get(j, "adapter_subfolder"), *hidden = json_object_get(j, "hidden_size");
    const char *name = json_is_string(sub) ? json_string_value(sub) : "adapter";
    b->hidden = json_is_integer(hidden) ? (int)json_integer_value(hidden) : 0;
    err_code code = check_subfolder(b, name, e);
    b->adapter = code ? NULL : join(folder, name);
    b->head = join(folder, "head.safetensors");
    json_decref(j);
    if (!code && (!b->head || !file_exists(b->head)))
        code = err_set(e, ERR_CORRUPT, "%s: there is no head.safetensors beside it", b->file);
    if (!code && (!b->adapter || !file_is_dir(b->adapter)))
        code = err_set(e, ERR_CORRUPT, "%s: there is no folder '%s', expected the adapter", b->file,
                       b->adapter ? b->adapter : name);
    return code ? code : read_calibration(b, folder, e);
}

static err_code open_head(struct bundle *b, const char *folder, err *e)
{
    json_t *j;
    if (open_file(b, folder, "decision_head.json", &j, e))
        return e->code;
    err_code code = read_bias(b, json_object_get(j, "bias"), e);
    json_decref(j);
    bool adapter = has(folder, "adapter_config.json");
    b->adapter = adapter ? mem_strdup(folder) : NULL;
    char *beside = join(folder, adapter ? ".." : ".");
    if (!code)
        code = read_calibration(b, beside ? beside : folder, e);
    free(beside);
    return code;
}

err_code bundle_find(const char *folder, struct bundle *ret_bundle, err *e)
{
    struct bundle b = {.temperature = {1, 1, 1}};
    char *inner = join(folder, "adapter_vllm");
    err_code code;
    if (has(folder, "judge_config.json"))
        code = open_judge(&b, folder, e);
    else if (has(folder, "decision_head.json"))
        code = open_head(&b, folder, e);
    else if (inner && has(inner, "decision_head.json"))
        code = open_head(&b, inner, e);
    else
        code = err_set(e, ERR_NOT_FOUND, "%s holds neither judge_config.json nor decision_head.json", folder);
    free(inner);
    if (code)
        bundle_done(&b);
    else
        *ret_bundle = b;
    return code;
}

void bundle_done(struct bundle *b)
{
    free(b->file);
    free(b->adapter);
    free(b->head);
    for (int i = 0; i < b->nslots; i++)
        free(b->verbalizers[i]);
    *b = (struct bundle){0};
}
