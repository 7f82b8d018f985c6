// families.c - the list of families and the look-up by architecture name.
#include <string.h>

#include "engine/family/family.h"

#define FAMILY(name) extern const struct family family_##name;
#include "engine/family/families.def"
#undef FAMILY

static const struct family *const all[] = {
#define FAMILY(name) &family_##name,
#include "engine/family/families.def"
#undef FAMILY
};

static bool answers(const struct family *f, const char *arch)
{
    for (const char *const *a = f->archs; *a; a++)
        if (!strcmp(*a, arch))
            return true;
    return false;
}

const struct family *family_find(const char *arch, const struct weights *w, const struct model_options *o)
{
    const struct family *general = NULL;
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        const struct family *f = all[i];
        if (!answers(f, arch))
            continue;
        if (f->claims && f->claims(w, o))
            return f;
        if (!f->claims && !general)
            general = f;
    }
    return general;
}

void family_names(char *out, size_t size)
{
    size_t at = 0;
    out[0] = 0;
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        // A special case answers to names that are in the list anyway.
        for (const char *const *a = all[i]->archs; *a && !all[i]->claims; a++) {
            size_t n = strlen(*a), sep = at ? 2 : 0;
            if (at + sep + n + 1 > size)
                return;
            memcpy(out + at, ", ", sep);
            memcpy(out + at + sep, *a, n + 1);
            at += sep + n;
        }
    }
}
