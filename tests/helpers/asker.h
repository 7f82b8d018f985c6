// asker.h - somebody who watches long work (base/cancel.h) and wants it to end when asked for the nth time.
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/cancel.h"

struct asker {
    struct cancel cancel;
    int asked, yes_at;
};

static inline bool asker_ask(const struct cancel *c)
{
    struct asker *a = (struct asker *)(uintptr_t)c;
    return ++a->asked >= a->yes_at;
}
