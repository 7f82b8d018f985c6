// arena.h - memory that is freed together, with other things that must be released at the same time.
//
//     struct arena a = {0};
//     char *s = arena_printf(&a, "%s-%d", name, n);
//     json_t *body = json_loads(...);
//     arena_defer(&a, release_json, body);
//     ...
//     arena_done(&a);               // deferred calls run in reverse order, then all memory goes
//
// A zeroed struct is a valid empty arena. Not thread-safe: one owner at a time. Small allocations abort on out-of-memory
// (mem.h); an arena is not for buffers whose size comes from outside.
#pragma once

#include <stddef.h>

struct arena_block;
struct arena_deferred;

struct arena {
    struct arena_block *block;        // newest first
    struct arena_deferred *deferred;  // newest first
};

typedef void arena_release(void *object);

void *arena_alloc(struct arena *a, size_t bytes);  // zeroed, 16-byte aligned
char *arena_strndup(struct arena *a, const char *s, size_t n);
char *arena_strdup(struct arena *a, const char *s);
char *arena_printf(struct arena *a, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

// release(object) runs when the arena is done; object may be NULL.
void arena_defer(struct arena *a, arena_release *release, void *object);

// Runs the deferred calls and frees everything; the arena is empty and usable again.
void arena_done(struct arena *a);
