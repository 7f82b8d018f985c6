// form.c - see the header. Loop thread, inside a handler.
#include "server/api/form.h"

#include <jansson.h>
#include <string.h>
#include <strings.h>

#include "base/utf8.h"
#include "server/api/fields.h"
#include "server/request.h"
#include "server/upload.h"

enum { LIST_MAX = 64 };

static void release(void *object)
{
    json_decref(object);
}

static json_t *number(const char *text)
{
    json_t *v = json_loads(text, JSON_DECODE_ANY, NULL);  // JSON's numbers need no locale
    if (json_is_number(v))
        return v;
    json_decref(v);
    return json_string(text);
}

static json_t *boolean(const char *text)
{
    if (!strcasecmp(text, "true") || !strcmp(text, "1"))
        return json_true();
    if (!strcasecmp(text, "false") || !strcmp(text, "0"))
        return json_false();
    return json_string(text);
}

static void add_words(json_t *list, const char *text)
{
    while (*text) {
        size_t n = strcspn(text, ",");
        const char *end = text + n;
        while (n && (*text == ' ' || *text == '\t')) {
            text++;
            n--;
        }
        while (n && (text[n - 1] == ' ' || text[n - 1] == '\t'))
            n--;
        if (n)
            json_array_append_new(list, json_stringn(text, n));
        text = end + (*end == ',');
    }
}

static json_t *list_of(const struct upload *u, const char *name)
{
    const char *values[LIST_MAX];
    int n = upload_list(u, name, values, LIST_MAX);
    json_t *list = json_array();
    for (int i = 0; i < n && i < LIST_MAX; i++) {
        json_t *parsed = *values[i] == '[' ? json_loads(values[i], 0, NULL) : NULL;
        if (json_is_array(parsed))
            json_array_extend(list, parsed);
        else
            add_words(list, values[i]);
        json_decref(parsed);
    }
    return list;
}

static enum form_kind kind_of(const struct form_field *table, size_t n, const char *name)
{
    for (size_t i = 0; i < n; i++)
        if (!strcmp(table[i].name, name))
            return table[i].kind;
    return FORM_TEXT;
}

static json_t *value_of(const struct upload *u, enum form_kind kind, const char *name, const char *text)
{
    switch (kind) {
    case FORM_NUMBER: return number(text);
    case FORM_BOOL: return boolean(text);
    case FORM_LIST: return list_of(u, name);
    case FORM_TEXT: break;
    }
    return json_string(text);
}

void api_form_read(struct fields *f, const struct form_field *table, size_t n)
{
    const struct upload *u = f->r->upload;
    json_t *object = json_object();
    f->object = object;
    arena_defer(&f->r->arena, release, object);
    for (int i = 0; i < u->nfields; i++) {
        const struct upload_field *p = &u->fields[i];
        if (!utf8_valid(p->value, p->len) || !utf8_valid(p->name, strlen(p->name))) {
            api_fields_fail(f, "invalid_value", NULL, "A field of the form is not valid UTF-8.");
            return;
        }
        char *name = arena_strndup(&f->r->arena, p->name, strcspn(p->name, "["));
        if (p->len && !json_object_get(object, name))
            json_object_set_new(object, name, value_of(u, kind_of(table, n, name), name, p->value));
    }
}
