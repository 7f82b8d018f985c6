// formats.c - the registry of containers. Pure functions of any thread.

#include <string.h>

#include "engine/weights/format.h"

#define FORMAT(file) extern const struct format format_##file;
#include "engine/weights/formats.def"
#undef FORMAT

static const struct format *const formats[] = {
#define FORMAT(file) &format_##file,
#include "engine/weights/formats.def"
#undef FORMAT
};

enum { FORMATS = sizeof formats / sizeof *formats };

static bool ends_with(const char *s, const char *end)
{
    size_t n = strlen(s), m = strlen(end);
    return n >= m && strcmp(s + n - m, end) == 0;
}

err_code format_of(const struct format_file *f, const struct format **ret_format, err *e)
{
    for (int i = 0; i < FORMATS; i++)
        if (formats[i]->probe(f)) {
            *ret_format = formats[i];
            return ERR_OK;
        }
    for (int i = 0; i < FORMATS; i++)
        if (formats[i]->suffix && ends_with(f->name, formats[i]->suffix)) {
            *ret_format = formats[i];
            return ERR_OK;
        }
    return err_set(e, ERR_UNSUPPORTED, "%s: neither GGUF nor safetensors by its first bytes or its name (%zu bytes)",
                   f->name, f->size);
}
