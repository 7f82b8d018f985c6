// engines.h - an engine with one model that is ready; both fail the running test when there is none. In a header, so that programs with
// an engine of their own making are not given this one.
#pragma once

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "engine/engine.h"
#include "engine/model.h"

static inline struct engine *engines_open(const struct engine_config *c, const struct model_config *m)
{
    struct engine *en = NULL;
    err e = {0};
    if (engine_open(c, &en, &e) || engine_add_model(en, m, &e) || engine_wait_model(en, m->name, &e))
        fail_msg("%s: %s", m->path, e.text);
    return en;
}

// m is the engine's then.
static inline struct engine *engines_open_with(const struct engine_config *c, const char *name, struct model *m)
{
    struct engine *en = NULL;
    err e = {0};
    if (engine_open(c, &en, &e) || engine_add_open_model(en, name, m, &e) || engine_wait_model(en, name, &e))
        fail_msg("%s: %s", name, e.text);
    return en;
}
