// gpu.h - what accelerators this machine has. The binary links none of their libraries: the CUDA driver is loaded when
// it is asked for, and a machine without one simply has no devices.
#pragma once

#include <stddef.h>

enum { GPU_MAX = 16 };

struct gpu_info {
    char name[96];
    size_t memory;     // bytes in all
    int major, minor;  // compute capability
};

// Fills at most max entries and returns how many devices there are. *ret_why (static text): why there are none.
int gpu_probe(struct gpu_info *ret_infos, int max, const char **ret_why);
