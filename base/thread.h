// thread.h - how the kernel treats the calling thread.
#pragma once

// For a thread that waits for events and answers each in far less than a millisecond, on cores that computing threads keep
// busy: when it wakes up it interrupts them, instead of waiting until their turn (3 ms) is over. It asks for turns of 0.1 ms,
// which Linux gives from 6.12 on, without a privilege; elsewhere nothing changes. Threads it starts have usual turns again.
void thread_answers(void);
