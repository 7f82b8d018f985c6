// cancel.c - see cancel.h. Everything is the thread's own.
#include "base/cancel.h"

#include <stdint.h>

static _Thread_local struct {
    const struct cancel *watch;
    size_t done, all;
    bool said;
} mine;

const struct cancel *cancel_watch(const struct cancel *c)
{
    const struct cancel *before = mine.watch;
    mine.watch = c;
    mine.done = CANCEL_EVERY;  // the first look asks
    mine.said = false;
    mine.all = 0;
    return before;
}

size_t cancel_work(void)
{
    return mine.all;
}

bool cancel_due(size_t work)
{
    if (!mine.watch)
        return false;
    mine.done += work < CANCEL_EVERY ? work : CANCEL_EVERY;
    mine.all = work < SIZE_MAX - mine.all ? mine.all + work : SIZE_MAX;
    if (mine.said || mine.done < CANCEL_EVERY)
        return mine.said;
    mine.done = 0;
    return mine.said = mine.watch->asked(mine.watch);
}

err_code cancel_check(size_t work, err *e)
{
    return cancel_due(work) ? err_set(e, ERR_CANCELLED, "stopped: nobody waits for it any more") : ERR_OK;
}
