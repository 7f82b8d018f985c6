// pickle.c - recognises Python pickles and PyTorch's zip files of them, under any name, only to refuse them: reading
// one means running its program. Pure functions of any thread.

#include <string.h>

#include "engine/weights/format.h"

static bool probe(const struct format_file *f)
{
    const uint8_t *b = f->data;
    // A safetensors file begins with the length of its header, whose lowest bytes may be a pickle's first two.
    bool header = f->size > 8 && memcmp(b + 4, "\0\0\0\0{", 5) == 0;
    if (f->size < 4 || header)
        return false;
    bool zip = memcmp(b, "PK\3\4", 4) == 0;
    bool stream = b[0] == 0x80 && b[1] >= 2 && b[1] <= 5; // opcode PROTO and its version
    return zip || stream;
}

static err_code refuse(const struct format_file *f, struct directory *d, struct meta *m, err *e)
{
    (void)d;
    (void)m;
    return err_set(e, ERR_UNSUPPORTED, "%s: pickle formats are not supported (this is a %s), use safetensors or GGUF",
                   f->name, f->data[0] == 'P' ? "zip file such as torch.save writes" : "Python pickle");
}

const struct format format_pickle = {"pickle", NULL, false, probe, refuse};
