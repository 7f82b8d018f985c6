// probe.c - asks the CUDA driver for its devices. Called by the `devices` command; starting the driver takes a while.
#include "gpu/gpu.h"

#include <dlfcn.h>
#include <string.h>

// The driver's C interface as far as it is used; a handle is an int, a result 0 for success.
struct driver {
    int (*init)(unsigned flags);
    int (*count)(int *n);
    int (*get)(int *device, int ordinal);
    int (*name)(char *name, int len, int device);
    int (*memory)(size_t *bytes, int device);
    int (*attribute)(int *value, int attribute, int device);
};

enum { ATTRIBUTE_MAJOR = 75, ATTRIBUTE_MINOR = 76 };

// A data pointer becomes a function pointer through memory: C has no conversion between them.
static int find(void *lib, const char *symbol, void *ret_fn)
{
    void *p = dlsym(lib, symbol);
    memcpy(ret_fn, &p, sizeof p);
    return p != NULL;
}

static int load(struct driver *d)
{
    void *lib = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    return lib && find(lib, "cuInit", &d->init) && find(lib, "cuDeviceGetCount", &d->count) &&
           find(lib, "cuDeviceGet", &d->get) && find(lib, "cuDeviceGetName", &d->name) &&
           find(lib, "cuDeviceTotalMem_v2", &d->memory) && find(lib, "cuDeviceGetAttribute", &d->attribute);
}

int gpu_probe(struct gpu_info *ret_infos, int max, const char **ret_why)
{
    struct driver d;
    int n = 0;
    *ret_why = "no CUDA driver (libcuda.so.1)";
    if (!load(&d))
        return 0;
    *ret_why = "the CUDA driver finds no device";
    if (d.init(0) || d.count(&n))
        return 0;
    for (int i = 0; i < n && i < max; i++) {
        struct gpu_info g = {0};
        int device;
        if (d.get(&device, i) || d.name(g.name, sizeof g.name - 1, device) || d.memory(&g.memory, device))
            return i;
        d.attribute(&g.major, ATTRIBUTE_MAJOR, device);
        d.attribute(&g.minor, ATTRIBUTE_MINOR, device);
        ret_infos[i] = g;
    }
    return n;
}
