// own.c - reads what `oxinferd quantize` says of its tensors. Pure functions of the thread that opens a model.
#include "engine/weights/own.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "engine/weights/directory.h"
#include "kernels/mat.h"

static const char *text_of(const json_t *metadata, const char *key)
{
    return json_string_value(json_object_get(metadata, key));
}

err_code own_check(const struct format_file *f, const json_t *metadata, err *e)
{
    char want[16], shown[32];
    const char *layout = text_of(metadata, OWN_LAYOUT);
    snprintf(want, sizeof want, "%d", MAT_PACK_LAYOUT);
    if (!layout || !strcmp(layout, want))
        return ERR_OK;
    return err_set(e, ERR_UNSUPPORTED, "%s: its weights are packed in layout '%s', expected %s: quantise the source again", f->name,
                   directory_quote(layout, shown, sizeof shown), want);
}

bool own_is_gguf(const json_t *metadata)
{
    const char *text = text_of(metadata, OWN_METADATA);
    return text && !strcmp(text, "gguf");
}

// "packed Q8_0 576 1536"; false when it is no such text.
static bool parse(const char *text, struct tensor *t)
{
    char how[8], type[16];
    int at = 0;
    if (sscanf(text, "%7s %15s%n", how, type, &at) != 2 || !quant_from_name(type, &t->type))
        return false;
    t->packed = !strcmp(how, "packed");
    if (!t->packed && strcmp(how, "rows"))
        return false;
    for (t->ndim = 0; text[at]; t->ndim++) {
        char *end;
        if (t->ndim == TENSOR_DIMS || text[at] != ' ' || text[at + 1] < '0' || text[at + 1] > '9')
            return false;
        long long dim = strtoll(text + at + 1, &end, 10);
        t->shape[t->ndim] = dim;
        at = (int)(end - text);
    }
    return t->ndim > 0 && (!t->packed || t->ndim == 2);
}

// Bytes of the rows; false: the shape is not the type's. At least a bit a number keeps every later product in range.
static bool rows_bytes(const struct tensor *t, size_t *ret_bytes)
{
    size_t n, cols = (size_t)t->shape[t->ndim - 1];
    return directory_elements(t->shape, t->ndim, &n) && n > 0 && n / 8 <= t->bytes && n / cols <= INT32_MAX && cols <= INT32_MAX &&
           quant_bytes(t->type, n / cols, cols, ret_bytes);
}

static err_code check_packed(const struct format_file *f, const struct tensor *t, size_t *ret_bytes, err *e)
{
    struct mat m;
    err_code rc = mat_plan(&m, t->type, (int)t->shape[0], (int)t->shape[1], MAT_INT8, e);
    if (rc)
        return err_wrap(e, "%s: tensor '%s'", f->name, t->name);
    if (m.form == MAT_FORM_FLOAT)
        return err_set_param(e, ERR_CORRUPT, t->name, "%s: tensor '%s' is packed %s, expected an integer type", f->name, t->name,
                             quant_get(t->type)->name);
    if ((uintptr_t)t->data % 64)
        return err_set_param(e, ERR_CORRUPT, t->name, "%s: packed tensor '%s' begins at byte %zu of the file, expected a multiple of 64",
                             f->name, t->name, (size_t)((const uint8_t *)t->data - f->data));
    *ret_bytes = (m.bytes + OWN_PAGE - 1) & ~(size_t)(OWN_PAGE - 1);
    return ERR_OK;
}

err_code own_tensor(const struct format_file *f, const json_t *metadata, struct tensor *t, err *e)
{
    char key[DIRECTORY_NAME + sizeof OWN_TENSOR], shown[64];
    struct tensor own = *t;
    size_t bytes = 0;
    if (!json_object_size(metadata))
        return ERR_OK;
    snprintf(key, sizeof key, OWN_TENSOR "%s", t->name);
    const char *text = text_of(metadata, key);
    if (!text)
        return ERR_OK;
    if (!parse(text, &own) || strcmp(t->dtype, "U8"))
        return err_set_param(e, ERR_CORRUPT, t->name, "%s: tensor '%s' of %s is said to be '%s', expected U8 and 'packed TYPE ROWS "
                             "COLUMNS'", f->name, t->name, t->dtype, directory_quote(text, shown, sizeof shown));
    if (!text_of(metadata, OWN_LAYOUT))
        return err_set_param(e, ERR_CORRUPT, t->name, "%s: tensor '%s' is packed, but '%s' is missing", f->name, t->name, OWN_LAYOUT);
    if (!rows_bytes(&own, &bytes))
        return err_set_param(e, ERR_CORRUPT, t->name, "%s: tensor '%s' of %zu bytes is said to be '%s', which does not fit", f->name,
                             t->name, t->bytes, directory_quote(text, shown, sizeof shown));
    err_code rc = own.packed ? check_packed(f, &own, &bytes, e) : ERR_OK;
    if (!rc && bytes != t->bytes)
        rc = err_set_param(e, ERR_CORRUPT, t->name, "%s: tensor '%s' has %zu bytes, '%s' needs %zu", f->name, t->name, t->bytes,
                           directory_quote(text, shown, sizeof shown), bytes);
    if (rc)
        return rc;
    own.dtype = quant_get(own.type)->name;
    *t = own;
    return ERR_OK;
}
