// machine.h - what the machine does beside this process.
#pragma once

// Seconds for which threads of this process that now live could have run and had no core, all together: what a bound on time may be
// raised by, so that it is as tight as can be on a machine with nothing else to do. 0 where the kernel does not count it.
double machine_waited_s(void);
