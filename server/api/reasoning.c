// reasoning.c - see the header. Loop thread only.
#include "server/api/reasoning.h"

#include <limits.h>
#include <string.h>

// Budgets that keep a thinking model to what the word promises; from "medium" on the template's word alone.
static const struct {
    const char *name;
    int max;
} efforts[] = {{"none", 0}, {"minimal", 256}, {"low", 1024}, {"medium", -1}, {"high", -1}, {"xhigh", -1}, {"max", -1}};

static void read_effort(struct fields *f, const char *path, const json_t *v, struct api_reasoning *r)
{
    const char *effort;
    if (!v || json_is_null(v) || !api_fields_as_string(f, v, path, &effort))
        return;
    for (size_t i = 0; i < sizeof efforts / sizeof *efforts; i++)
        if (!strcmp(effort, efforts[i].name)) {
            r->effort = efforts[i].name;
            r->max = efforts[i].max;
            r->on = efforts[i].max != 0;
            return;
        }
    api_fields_fail(f, "invalid_value", path,
                    "Invalid value: '%.40s'. Supported values are: 'none', 'minimal', 'low', 'medium', 'high', 'xhigh' and "
                    "'max'.", effort);
}

static void read_budget(struct fields *f, const char *path, const json_t *v, struct api_reasoning *r)
{
    int64_t max;
    if (!v || json_is_null(v) || !api_fields_as_int(f, v, path, -1, INT_MAX, &max))
        return;
    r->max = (int)max;
    if (max == 0)
        r->on = 0;
}

static void read_switch(struct fields *f, const char *path, const json_t *v, struct api_reasoning *r)
{
    if (!v || json_is_null(v))
        return;
    if (!json_is_boolean(v)) {
        api_fields_wrong_type(f, v, path, "a boolean");
        return;
    }
    r->on = json_is_true(v);
    if (!r->on)
        r->max = 0;
}

static void read_thinking(struct fields *f, struct api_reasoning *r)
{
    const json_t *o, *v;
    if (!api_fields_object(f, "thinking", &o))
        return;
    v = json_object_get(o, "type");
    const char *type = json_string_value(v);
    if (!type || (strcmp(type, "enabled") && strcmp(type, "disabled") && strcmp(type, "auto") && strcmp(type, "adaptive")))
        api_fields_fail(f, "invalid_value", "thinking.type",
                        "Invalid 'thinking.type': expected 'enabled', 'disabled' or 'auto'.");
    else if (!strcmp(type, "enabled") || !strcmp(type, "disabled"))
        read_switch(f, "thinking.type", !strcmp(type, "enabled") ? json_true() : json_false(), r);
    if (r->on != 0)
        read_budget(f, "thinking.budget_tokens", json_object_get(o, "budget_tokens"), r);
}

static void read_object(struct fields *f, struct api_reasoning *r)
{
    const json_t *o;
    if (!api_fields_object(f, "reasoning", &o))
        return;
    read_effort(f, "reasoning.effort", json_object_get(o, "effort"), r);
    read_budget(f, "reasoning.max_tokens", json_object_get(o, "max_tokens"), r);
    read_switch(f, "reasoning.enabled", json_object_get(o, "enabled"), r);
    const json_t *v = json_object_get(o, "exclude");
    if (v && !json_is_boolean(v) && !json_is_null(v))
        api_fields_wrong_type(f, v, "reasoning.exclude", "a boolean");
    r->hidden |= json_is_true(v);
}

static void read_shape(struct fields *f, struct api_reasoning *r)
{
    bool include = true;
    const char *format;
    if (api_fields_bool(f, "include_reasoning", &include) && !include)
        r->hidden = true;
    if (!api_fields_string(f, "reasoning_format", &format))
        return;
    if (!strcmp(format, "none"))
        r->raw = true;
    else if (strcmp(format, "auto") != 0 && strcmp(format, "deepseek") != 0)
        api_fields_fail(f, "unsupported_value", "reasoning_format",
                        "Unsupported value: '%.40s'. Supported values are: 'none', 'auto' and 'deepseek'.", format);
}

void api_reasoning_read(struct fields *f, struct api_reasoning *ret_reasoning)
{
    static const char *const budgets[] = {"thinking_budget", "reasoning_budget", "thinking_token_budget",
                                          "thinking_budget_tokens"};
    struct api_reasoning *r = ret_reasoning;
    *r = (struct api_reasoning){.on = -1, .max = -1};
    read_effort(f, "reasoning_effort", api_fields_get(f, "reasoning_effort"), r);
    read_switch(f, "enable_thinking", api_fields_get(f, "enable_thinking"), r);
    read_thinking(f, r);
    read_object(f, r);
    for (size_t i = 0; i < sizeof budgets / sizeof *budgets; i++)
        read_budget(f, budgets[i], api_fields_get(f, budgets[i]), r);
    read_shape(f, r);
}

// "thinking" is what some templates call the same switch.
json_t *api_reasoning_kwargs(const struct api_reasoning *r)
{
    if (!r->effort && r->on < 0)
        return NULL;
    json_t *kwargs = json_object();
    if (r->effort)
        json_object_set_new(kwargs, "reasoning_effort", json_string(r->effort));
    if (r->on >= 0) {
        json_object_set_new(kwargs, "enable_thinking", json_boolean(r->on));
        json_object_set_new(kwargs, "thinking", json_boolean(r->on));
    }
    return kwargs;
}
