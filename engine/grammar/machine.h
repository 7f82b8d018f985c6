// machine.h - where an answer stands in its grammar: a set of stacks (threads), stepped byte by byte.
//
//     struct machine *m = machine_new(nodes);
//     if (machine_text(m, "{\"a\":", 5)) ...          // false: not allowed; m is as before
//     machine_ends(m), machine_goes_on(m)              // it may end here; something may follow
//
// A thread is its top frame by value; the frames below it are shared, stored once each (equal frames are the same
// frame) in memory that only grows and is compacted between texts. So stepping is cheap, undoing is forgetting, and a copy
// is a copy. Owned by one sequence; the nodes are shared and not written.
//
// From every state that machine_text reached an end can be reached. ERR_TOO_LARGE states (more threads or memory than
// there may be) are "broken": nothing is allowed any more, and machine_broken says so.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "engine/grammar/nodes.h"

// Beside frames the same memory holds, under numbers no node has, texts that were written and sets of them.
#define MACHINE_TEXT 0xFFFFFFFEu
#define MACHINE_SET 0xFFFFFFFFu

struct frame {
    uint32_t parent;  // slot of the frame below; 0: none
    uint32_t node;    // 0: everything is written
    uint32_t a, b, c; // by the node's kind, see machine.c
    uint32_t depth;
};

struct frames {
    struct frame *v;
    uint32_t n, cap;
};

struct machine;

struct machine *machine_new(const struct nodes *g);
struct machine *machine_at(const struct nodes *g, uint32_t node);  // as if that were all of it
struct machine *machine_copy(const struct machine *m);
void machine_free(struct machine *m);

bool machine_text(struct machine *m, const char *text, size_t len);
bool machine_ends(const struct machine *m);
bool machine_goes_on(const struct machine *m);
bool machine_broken(const struct machine *m);

// ---- free text: one byte more of a frame

enum machine_told { TOLD_NO, TOLD_YES, TOLD_END };
enum machine_told machine_free_text(const struct free_def *d, struct frame *f, uint8_t byte);

// ---- for masks: trying texts without taking them

enum {
    MACHINE_MAX_THREADS = 512,
    MACHINE_MAX_SLOTS = 1 << 20,
    MACHINE_MAX_TRIED = 32000000,  // steps of several threads for one mask: a third of a second, for which others wait
    MACHINE_IN_STRING = 1,  // a of a STRING frame where a character may begin
};

// The threads are m's frames [0, n).
const struct frame *machine_threads(const struct machine *m, uint32_t *ret_n);
const struct frame *machine_slot(const struct machine *m, uint32_t slot);
// Begins trying. What must differ from earlier texts is then not compared with those from before: machine_step's
// *uncertain says so.
void machine_try(struct machine *m);
// Steps frames [first, first + n) with a byte; the result is appended and its size returned. *uncertain is set when the
// step asked for earlier texts.
uint32_t machine_step(struct machine *m, uint32_t first, uint32_t n, uint8_t byte, bool *uncertain);
// A frame that a step could have made, behind the last one; and the c of one whose text goes on.
void machine_push(struct machine *m, const struct frame *f);
uint32_t machine_write(struct machine *m, uint32_t text, uint8_t byte);
void machine_drop(struct machine *m, uint32_t first);  // frames from first on
uint32_t machine_lowest(const struct machine *m);      // lowest slot that was looked at since machine_try
void machine_tried(struct machine *m);                 // everything since machine_try is undone

// Whether a text is allowed, nothing left out.
bool machine_allows(struct machine *m, const char *text, size_t len);
// Some earlier text must be told from what comes: masks that hold for all such states need checking.
bool machine_has_sets(const struct machine *m);
