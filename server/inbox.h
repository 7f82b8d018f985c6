// inbox.h - exchanges that another thread has something for, on their way to the loop. It outlives the server while an
// exchange refers to it, so a late answer is dropped rather than lost in freed memory.
#pragma once

#include <pthread.h>
#include <stdbool.h>

#include <uv.h>

struct exchange;
struct inbox;

struct inbox *inbox_new(uv_async_t *wake);  // loop thread; one reference
struct inbox *inbox_ref(struct inbox *in);
void inbox_unref(struct inbox *in);
void inbox_close(struct inbox *in);  // from now on posts are dropped; what waits is released

// Any thread. Takes a reference to x while it waits; a second post before the loop looked is the same as one.
bool inbox_post(struct inbox *in, struct exchange *x);
// Loop thread. The oldest, with the reference the post took; NULL: empty.
struct exchange *inbox_take(struct inbox *in);
bool inbox_on_loop_thread(const struct inbox *in);
