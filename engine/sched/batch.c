// batch.c - builds the rows of a step. Scheduler thread; the lanes read the result.
#include "engine/sched/batch.h"

#include <assert.h>
#include <stdlib.h>

#include "base/mem.h"

void batch_init(struct batch_builder *b, int max_rows, int max_seqs, int max_out)
{
    *b = (struct batch_builder){.max_rows = max_rows, .max_seqs = max_seqs, .max_out = max_out};
    b->b.ids = b->ids = mem_new((size_t)max_rows * sizeof *b->ids);
    b->b.pos = b->pos = mem_new((size_t)max_rows * sizeof *b->pos);
    b->b.out_rows = b->out_rows = mem_new((size_t)max_out * sizeof *b->out_rows);
    b->b.seqs = b->seqs = mem_new((size_t)max_seqs * sizeof *b->seqs);
}

void batch_done(struct batch_builder *b)
{
    free(b->ids);
    free(b->pos);
    free(b->out_rows);
    free(b->seqs);
    *b = (struct batch_builder){0};
}

void batch_clear(struct batch_builder *b)
{
    b->b.rows = b->b.nseqs = b->b.nout = 0;
}

int batch_add(struct batch_builder *b, struct kv_seq *kv, const int32_t *ids, int rows, int nout)
{
    int row = b->b.rows, first = b->b.nout;
    assert(rows > 0 && nout <= rows && row + rows <= b->max_rows && b->b.nseqs < b->max_seqs && first + nout <= b->max_out);
    for (int i = 0; i < rows; i++) {
        b->ids[row + i] = ids[i];
        b->pos[row + i] = kv->len + i;
    }
    for (int i = 0; i < nout; i++)
        b->out_rows[first + i] = row + rows - nout + i;
    b->seqs[b->b.nseqs++] = (struct batch_seq){.row = row, .rows = rows, .pos = kv->len, .kv = kv};
    b->b.rows += rows;
    b->b.nout += nout;
    return first;
}
