// buf.h - a growing byte buffer that knows its largest size.
//
//     struct buf b;
//     buf_init(&b, 1 << 20);
//     buf_add_str(&b, "data: ");
//     if (b.over) ...                 // something did not fit; from then on all adds are refused
//     char *text = buf_take(&b);      // now the caller's, NUL-terminated, freed by free()
//
// b.data is always NUL-terminated after the first add (b.len does not count it); NULL while nothing was added.
#pragma once

#include <stdbool.h>
#include <stddef.h>

struct buf {
    char *data;
    size_t len, cap, max;
    bool over;
};

void buf_init(struct buf *b, size_t max);
bool buf_add(struct buf *b, const void *p, size_t n);  // false and over = true when it would pass max
bool buf_add_str(struct buf *b, const char *s);
bool buf_add_char(struct buf *b, char c);
bool buf_printf(struct buf *b, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void buf_clear(struct buf *b);  // empty, memory kept, over reset
char *buf_take(struct buf *b);  // transfer out; "" (allocated) when empty; the buffer is empty again
void buf_done(struct buf *b);
