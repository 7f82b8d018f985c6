// rendered.c - the text a template made, with its spans.
#include <stdlib.h>
#include <string.h>

#include "engine/text/template.h"

void rendered_done(struct rendered *r)
{
    if (!r)
        return;
    free(r->text);
    free(r->spans);
    *r = (struct rendered){0};
}

bool rendered_starts_with(const struct rendered *r, const char *text)
{
    size_t n = strlen(text);
    return r->nspans && r->spans[0].trusted && r->spans[0].len >= n && !memcmp(r->text, text, n);
}
