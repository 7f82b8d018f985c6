// cancel.c - see cancel.h. Everything is the thread's own.
#include "base/cancel.h"

static _Thread_local struct {
    const struct cancel *watch;
    size_t done;
    bool said;
} mine;

const struct cancel *cancel_watch(const struct cancel *c)
{
    const struct cancel *before = mine.watch;
    mine.watch = c;
    mine.done = CANCEL_EVERY;  // the first look asks
    mine.said = false;
    return before;
}

bool cancel_due(size_t work)
{
    if (!mine.watch)
        return false;
    mine.done += work < CANCEL_EVERY ? work : CANCEL_EVERY;
    if (mine.said || mine.done < CANCEL_EVERY)
        return mine.said;
    mine.done = 0;
    return mine.said = mine.watch->asked(mine.watch);
}

err_code cancel_check(size_t work, err *e)
{
    return cancel_due(work) ? err_set(e, ERR_CANCELLED, "stopped: nobody waits for it any more") : ERR_OK;
}
