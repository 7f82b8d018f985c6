// runner.c - a model, a team, a pool and the memory of one step. The thread that opened it calls everything.
#include "engine/tools/runner.h"

#include <stdlib.h>

#include "base/mem.h"
#include "engine/family/family.h"
#include "kernels/team.h"

err_code runner_options(const struct tools_model *t, struct model_options *ret_options, err *e)
{
    struct model_options o = {.math = MAT_INT8, .kv = KV_F16, .context = t->context, .load_threads = t->threads,
                              .adapter = t->lora, .vocoder = t->vocoder};
    if (t->activations && !mat_math_from_name(t->activations, &o.math))
        return err_set_param(e, ERR_INVALID, "activations", "activations '%s', expected int8, f32 or bf16", t->activations);
    if (t->kv && !kv_type_from_name(t->kv, &o.kv))
        return err_set_param(e, ERR_INVALID, "kv", "kv '%s', expected f16, f32 or q8", t->kv);
    *ret_options = o;
    return ERR_OK;
}

static err_code open_memory(struct runner *r, size_t positions, err *e)
{
    const struct model *m = r->model;
    const struct gen_ops *gen = m->family->gen;
    struct kv_layout layout;
    gen->kv_layout(m, &layout);
    size_t pages = positions / KV_PAGE_TOKENS + (size_t)r->max_seqs + 1, bytes, rows = (size_t)r->max_rows;
    if (!size_mul(pages, kv_page_bytes(&layout), &bytes))
        return err_set(e, ERR_TOO_LARGE, "KV memory for %zu positions overflows", positions);
    err_code code = kv_pool_open(&layout, bytes, &r->pool, e);
    if (code)
        return code;
    r->scratch_bytes = gen->scratch_bytes(m, r->max_rows, r->max_out, team_size(r->team));
    r->scratch = mem_try_pages(r->scratch_bytes);
    r->logits = mem_try((size_t)r->max_out * (size_t)m->vocab * sizeof *r->logits);
    r->ids = mem_try(rows * sizeof *r->ids);
    r->pos = mem_try(rows * sizeof *r->pos);
    r->out_rows = mem_try(rows * sizeof *r->out_rows);
    r->seqs = mem_try((size_t)r->max_seqs * sizeof *r->seqs);
    if (!r->scratch || !r->logits || !r->ids || !r->pos || !r->out_rows || !r->seqs)
        return err_set(e, ERR_MEMORY, "no memory for steps of %d rows", r->max_rows);
    return ERR_OK;
}

err_code runner_open(const struct tools_model *t, int max_rows, int max_seqs, int max_out, size_t positions, bool pin,
                     struct runner **ret_runner, err *e)
{
    struct model_options o;
    struct runner *r = mem_new(sizeof *r);
    *r = (struct runner){.max_rows = max_rows, .max_seqs = max_seqs, .max_out = max_out};
    err_code code = runner_options(t, &o, e);
    if (!code)
        code = cpu_select(t->isa, &r->ops, e);
    if (!code)
        code = model_open(t->path, &o, r->ops, &r->model, e);
    if (!code && !r->model->family->gen)
        code = err_set(e, ERR_UNSUPPORTED, "%s: a model of family '%s' generates no text", t->path,
                       r->model->family->name);
    r->adapter = !code && t->lora;  // a decision bundle's own adapter is for decisions
    if (!code)
        code = team_open(t->threads, pin, &r->team, e);
    if (!code)
        code = open_memory(r, positions, e);
    if (code) {
        runner_close(r);
        return code;
    }
    *ret_runner = r;
    return ERR_OK;
}

void runner_close(struct runner *r)
{
    if (!r)
        return;
    if (r->team)
        team_close(r->team);
    kv_pool_close(r->pool);
    mem_free_pages(r->scratch, r->scratch_bytes);
    free(r->logits);
    free(r->ids);
    free(r->pos);
    free(r->out_rows);
    free(r->seqs);
    model_close(r->model);
    free(r);
}

static err_code check(const struct runner *r, const struct piece *p, int row, err *e)
{
    if (p->rows < 1 || p->rows > r->max_rows - row)
        return err_set(e, ERR_INVALID, "%d rows after %d of a step of at most %d", p->rows, row, r->max_rows);
    if (p->seq->len + p->rows > r->model->context)
        return err_set(e, ERR_CONTEXT, "%d tokens, the model's context is %d", p->seq->len + p->rows,
                       r->model->context);
    for (int i = 0; i < p->rows; i++) {
        if (p->ids[i] < 0 || p->ids[i] >= r->model->vocab)
            return err_set_param(e, ERR_INVALID, "ids", "token id %d, expected 0 to %d", p->ids[i],
                                 r->model->vocab - 1);
    }
    if (!kv_seq_reserve(p->seq, p->seq->len + p->rows))
        return err_set(e, ERR_MEMORY, "the KV cache of %d pages is full", kv_pool_pages(r->pool));
    return ERR_OK;
}

static void place(struct runner *r, const struct piece *p, struct batch *b)
{
    r->seqs[b->nseqs++] = (struct batch_seq){b->rows, p->rows, p->seq->len, p->seq};
    for (int i = 0; i < p->rows; i++) {
        r->ids[b->rows + i] = p->ids[i];
        r->pos[b->rows + i] = p->seq->len + i;
        if (p->out == PIECE_ALL || (p->out == PIECE_LAST && i == p->rows - 1))
            r->out_rows[b->nout++] = b->rows + i;
    }
    b->rows += p->rows;
}

struct run {
    const struct model *m;
    const struct batch *b;
};

static void forward(struct lane *lane, void *arg)
{
    const struct run *w = arg;
    w->m->family->gen->forward(w->m, w->b, lane);
}

err_code runner_step(struct runner *r, const struct piece *pieces, int n, err *e)
{
    struct batch b = {.ids = r->ids, .pos = r->pos, .seqs = r->seqs, .out_rows = r->out_rows, .logits = r->logits,
                      .out_groups = r->out_groups, .adapter = r->adapter, .scratch = r->scratch};
    if (n < 1 || n > r->max_seqs)
        return err_set(e, ERR_INVALID, "%d sequences in a step of at most %d", n, r->max_seqs);
    for (int i = 0; i < n; i++) {
        err_code code = check(r, &pieces[i], b.rows, e);
        if (code)
            return code;
        place(r, &pieces[i], &b);
    }
    if (b.nout > r->max_out)
        return err_set(e, ERR_INVALID, "%d rows of logits in a step of at most %d", b.nout, r->max_out);
    team_run(r->team, forward, &(struct run){r->model, &b});
    for (int i = 0; i < n; i++)
        kv_seq_commit(pieces[i].seq, pieces[i].rows);
    r->nout = b.nout;
    return ERR_OK;
}
