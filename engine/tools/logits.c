// logits.c - the offline command logits. It runs on the thread that calls it.
#include "engine/tools.h"

#include <errno.h>
#include <string.h>

#include "engine/family/family.h"
#include "engine/tools/runner.h"
#include "engine/tokenizer/tokenizer.h"

enum { CHUNK = 512, ALL_ROWS = 64 };

static int least(int a, int b)
{
    return a < b ? a : b;
}

static err_code run_chunks(struct runner *r, const int32_t *ids, int nids, bool all, int chunk, FILE *out, err *e)
{
    struct kv_seq s;
    kv_seq_init(&s, r->pool);
    err_code code = ERR_OK;
    for (int at = 0, n; at < nids && !code; at += n) {
        n = least(chunk, nids - at);
        bool last = at + n == nids;
        code = runner_step(r, &(struct piece){&s, ids + at, n, all ? PIECE_ALL : last ? PIECE_LAST : PIECE_NONE}, 1, e);
        size_t want = code ? 0 : (size_t)r->nout * (size_t)r->model->vocab;
        if (want && fwrite(r->logits, sizeof *r->logits, want, out) != want)
            code = err_set(e, ERR_IO, "cannot write logits: %s", strerror(errno));
    }
    kv_seq_done(&s);
    return code;
}

// Rows of logits are large: with `all` a step is cut so that they stay in bounded memory.
err_code tools_logits(const struct tools_model *m, const int32_t *ids, size_t nids, bool all, int chunk, FILE *out,
                      err *e)
{
    if (nids < 1 || nids > INT32_MAX)
        return err_set_param(e, ERR_INVALID, "ids", "%zu token ids, expected 1 or more", nids);
    int rows = least(chunk > 0 ? chunk : CHUNK, (int)nids);
    if (all)
        rows = least(rows, ALL_ROWS);
    struct runner *r;
    err_code code = runner_open(m, rows, 1, all ? rows : 1, nids, true, &r, e);
    if (code)
        return code;
    code = run_chunks(r, ids, (int)nids, all, rows, out, e);
    runner_close(r);
    return code;
}
