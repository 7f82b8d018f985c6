// directory.c - the sorted list of tensors, and the checks that all containers share. See directory.h for threads.

#include "engine/weights/directory.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/utf8.h"

err_code directory_check_name(const char *file, const char *name, size_t len, size_t i, err *e)
{
    if (len == 0 || len > DIRECTORY_NAME)
        return err_set(e, ERR_CORRUPT, "%s: the name of tensor %zu has %zu bytes, expected 1 to %d", file, i, len,
                       DIRECTORY_NAME);
    bool plain = utf8_valid(name, len);
    for (size_t k = 0; k < len; k++)
        plain = plain && (unsigned char)name[k] >= 0x20 && name[k] != 0x7F;
    if (!plain)
        return err_set(e, ERR_CORRUPT, "%s: the name of tensor %zu is not UTF-8 text", file, i);
    return ERR_OK;
}

err_code directory_add(struct directory *d, const struct tensor *t, err *e)
{
    if (d->count == DIRECTORY_TENSORS)
        return err_set(e, ERR_TOO_LARGE, "the model has more than %d tensors", DIRECTORY_TENSORS);
    if (d->count == d->cap) {
        size_t cap = d->cap ? d->cap * 2 : 64;
        struct tensor *all = realloc(d->all, cap * sizeof *all);
        if (!all)
            return err_set(e, ERR_MEMORY, "no memory for a list of %zu tensors", cap);
        d->all = all;
        d->cap = cap;
    }
    d->all[d->count] = *t;
    d->all[d->count++].name = arena_strdup(&d->names, t->name);
    return ERR_OK;
}

static int by_name(const void *a, const void *b)
{
    const struct tensor *x = a, *y = b;
    int c = strcmp(x->name, y->name);
    return c ? c : x->shard - y->shard;
}

void directory_list(struct directory *d)
{
    d->usable_count = 0;
    for (size_t i = 0; i < d->count; i++)
        if (d->all[i].type < QUANT_COUNT)
            d->usable[d->usable_count++] = &d->all[i];
}

err_code directory_seal(struct directory *d, const char *const *files, err *e)
{
    if (d->count == 0)
        return ERR_OK;
    qsort(d->all, d->count, sizeof *d->all, by_name);
    for (size_t i = 1; i < d->count; i++) {
        const struct tensor *t = &d->all[i], *before = t - 1;
        if (strcmp(t->name, before->name))
            continue;
        if (t->shard == before->shard)
            return err_set_param(e, ERR_CORRUPT, t->name, "%s: tensor '%s' appears twice", files[t->shard], t->name);
        return err_set_param(e, ERR_CORRUPT, t->name, "tensor '%s' is in %s and in %s", t->name, files[before->shard],
                             files[t->shard]);
    }
    d->usable = mem_try(d->count * sizeof *d->usable);
    if (!d->usable)
        return err_set(e, ERR_MEMORY, "no memory for a list of %zu tensors", d->count);
    directory_list(d);
    return ERR_OK;
}

static int name_against(const void *name, const void *tensor)
{
    return strcmp(name, ((const struct tensor *)tensor)->name);
}

const struct tensor *directory_find(const struct directory *d, const char *name)
{
    return d->count ? bsearch(name, d->all, d->count, sizeof *d->all, name_against) : NULL;
}

void directory_done(struct directory *d)
{
    free(d->all);
    free(d->usable);
    arena_done(&d->names);
    *d = (struct directory){0};
}

const char *directory_quote(const char *text, char *buf, size_t room)
{
    snprintf(buf, room, "%s", text);
    buf[utf8_complete(buf, strlen(buf))] = 0;
    for (char *p = buf; *p; p++)
        if ((unsigned char)*p < 0x20 || *p == 0x7F)
            *p = '?';
    return buf;
}

const char *directory_shape(const int64_t *shape, int ndim, char *buf, size_t room)
{
    int at = snprintf(buf, room, "[");
    for (int i = 0; i < ndim && (size_t)at < room; i++)
        at += snprintf(buf + at, room - (size_t)at, i ? ", %lld" : "%lld", (long long)shape[i]);
    if ((size_t)at < room)
        snprintf(buf + at, room - (size_t)at, "]");
    return buf;
}

bool directory_elements(const int64_t *shape, int ndim, size_t *ret_elements)
{
    size_t n = 1;
    bool empty = false;
    for (int i = 0; i < ndim; i++) {
        if (shape[i] < 0)
            return false;
        empty = empty || shape[i] == 0;
        // A zero must not hide that the other dimensions overflow.
        if (!size_mul(n, shape[i] ? (size_t)shape[i] : 1, &n) || n > INT64_MAX)
            return false;
    }
    *ret_elements = empty ? 0 : n;
    return true;
}

static int by_place(const void *a, const void *b)
{
    const struct directory_span *x = a, *y = b;
    if (x->begin != y->begin)
        return x->begin < y->begin ? -1 : 1;
    return x->end < y->end ? -1 : x->end > y->end;
}

err_code directory_check_spans(const char *file, struct directory_span *spans, size_t count, bool dense, size_t total,
                               err *e)
{
    if (count)
        qsort(spans, count, sizeof *spans, by_place);
    size_t at = 0;
    const char *before = "";
    for (size_t i = 0; i < count; i++) {
        const struct directory_span *s = &spans[i];
        if (s->begin < at)
            return err_set_param(e, ERR_CORRUPT, s->name, "%s: tensors '%s' and '%s' share bytes %zu to %zu", file,
                                 before, s->name, s->begin, at < s->end ? at : s->end);
        if (dense && s->begin > at)
            return err_set_param(e, ERR_CORRUPT, s->name, "%s: tensor '%s' begins at data byte %zu, expected %zu", file,
                                 s->name, s->begin, at);
        at = s->end;
        before = s->name;
    }
    if (dense && at != total)
        return err_set(e, ERR_CORRUPT, "%s: the tensors end at data byte %zu, the file has %zu", file, at, total);
    return ERR_OK;
}
