// show.c - oxinferd show: what is in a model, what it can do, and what serving it takes. Calling thread only.
#include <stdio.h>

#include "engine/blocks/lora.h"
#include "engine/blocks/packed.h"
#include "engine/decide/decide.h"
#include "engine/family/family.h"
#include "engine/memory.h"
#include "engine/model.h"
#include "engine/tools/runner.h"
#include "engine/sched/sched.h"
#include "engine/sched/served.h"
#include "engine/tokenizer/tokenizer.h"
#include "engine/tools.h"
#include "engine/weights/weights.h"
#include "kernels/team.h"

enum { DEFAULT_RUNNING = 32 };  // config/keys.def: max_running
enum { SHOWN_UNUSED = 8 };      // of tensors no part of the model reads, such as the encoder of a VAE

static double mb(size_t bytes)
{
    return (double)bytes * 1e-6;
}

// ---- tensors

static bool used(const struct model *m, const struct weights *w, const struct packed *p, size_t i)
{
    if (m->adapter && w == lora_weights(m->adapter))
        return true;  // one whose pairs do not all belong to the model is not opened
    return p && packed_uses(p, weights_at(w, i));
}

static void show_unused(const struct model *m, const struct weights *w, const struct packed *p, size_t unused,
                        FILE *out)
{
    size_t shown = 0;
    for (size_t i = 0; i < weights_count(w) && shown < unused && shown < SHOWN_UNUSED; i++)
        if (!used(m, w, p, i)) {
            fprintf(out, "             not used: %s\n", weights_at(w, i)->name);
            shown++;
        }
    if (unused > shown)
        fprintf(out, "             not used: %zu more\n", unused - shown);
}

static void show_tensors(const char *name, const struct model *m, const struct weights *w, const struct packed *p,
                         FILE *out)
{
    size_t types[QUANT_COUNT] = {0}, unused = 0, n = weights_count(w);
    for (size_t i = 0; i < n; i++) {
        types[weights_at(w, i)->type] += weights_at(w, i)->bytes;
        unused += !used(m, w, p, i);
    }
    fprintf(out, "%-12s %zu tensors, %.1f MB:", name, n, mb(weights_bytes(w)));
    for (int i = 0; i < QUANT_COUNT; i++)
        if (types[i])
            fprintf(out, " %s %.1f MB", quant_get((enum quant_type)i)->name, mb(types[i]));
    fprintf(out, "; %zu not used\n", unused);
    show_unused(m, w, p, unused, out);
}

static void show_parts(const struct model *m, FILE *out)
{
    if (weights_count(m->weights) > 0)
        show_tensors("tensors", m, m->weights, m->packed, out);
    for (int i = 0; i < m->nparts; i++)
        show_tensors(m->parts[i].name, m, m->parts[i].weights, m->parts[i].packed, out);
}

// ---- what it can do

static void show_tasks(const struct model *m, FILE *out)
{
    static const struct {
        unsigned bit;
        const char *text;
    } names[] = {{CAN_CHAT, "chat"}, {CAN_COMPLETE, "completion"}, {CAN_EMBED, "embedding"},
                 {CAN_TRANSCRIBE, "transcription"}, {CAN_SPEAK, "speech"}, {CAN_IMAGE, "image"},
                 {CAN_DECIDE, "decision"}};
    unsigned can = model_can(m);
    fprintf(out, "tasks       ");
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (can & names[i].bit)
            fprintf(out, " %s", names[i].text);
    fprintf(out, "%s\n", can ? "" : " none");
}

static void show_size(const struct model *m, FILE *out)
{
    fprintf(out, "vocabulary   %d\ncontext      %d\nparameters   %.1f M in layers", m->vocab, m->context,
            (double)(m->token_macs + m->idle_macs) * 1e-6);
    if (m->idle_macs > 0)
        fprintf(out, ", %.1f M of them for one token", (double)m->token_macs * 1e-6);
    fprintf(out, "\n");
}

static void show_details(const struct model *m, FILE *out)
{
    unsigned can = model_can(m);
    struct model_info i = {0};
    if (m->family->describe)
        m->family->describe(m, &i);
    if (m->decider)
        decide_describe(m->decider, &i);
    if (can & CAN_EMBED)
        fprintf(out, "dimensions   %d\n", i.dimensions);
    if (can & CAN_TRANSCRIBE)
        fprintf(out, "languages    %s\n", i.multilingual ? "many" : "English");
    if (can & CAN_IMAGE)
        fprintf(out, "image size   %d\n", i.image_size);
    if (can & CAN_DECIDE)
        fprintf(out, "decisions    %s, up to %d options\n", i.native_decisions ? "trained head" : "label tokens",
                i.max_options);
    if (!(can & CAN_SPEAK))
        return;
    fprintf(out, "audio        %d Hz; voices", i.sample_rate);
    for (int k = 0; k < i.nvoices; k++)
        fprintf(out, " %s", i.voices[k]);
    fprintf(out, "\n");
}

static void show_text(const struct model *m, FILE *out)
{
    if (m->tokenizer)
        fprintf(out, "tokenizer    %s, %d tokens\n", tokenizer_kind(m->tokenizer), tokenizer_size(m->tokenizer));
    else
        fprintf(out, "tokenizer    none: %s\n", m->tokenizer_error.text);
    if (m->chat)
        fprintf(out, "template     yes\n");
    else if (m->family->gen)
        fprintf(out, "template     none: %s\n", m->chat_error.text);
}

// ---- memory

static void show_memory(const struct model *m, int lanes, FILE *out)
{
    struct served_needs n;
    served_needs(m, &(struct sched_config){.max_running = DEFAULT_RUNNING}, lanes, &n);
    fprintf(out, "memory       %.1f MB of weights, %.1f MB for steps on %d threads, %.1f MB for running tasks\n",
            mb(m->resident_bytes), mb(n.step + n.work_scratch), lanes, mb(n.works));
    size_t total = m->resident_bytes + n.step + n.work_scratch + n.works;
    if (m->family->gen) {
        struct kv_layout l;
        m->family->gen->kv_layout(m, &l);
        fprintf(out, "KV           %zu bytes of %s a token", kv_token_bytes(&l), kv_type_name(l.type));
        if (l.state_bytes > 0)
            fprintf(out, " and %.1f MB of state a sequence", mb(l.state_bytes));
        fprintf(out, "; %.1f MB for the whole context\n", mb(kv_token_bytes(&l) * (size_t)m->context));
    }
    fprintf(out, "peak         %.1f MB%s\n", mb(total), m->family->gen ? " and the KV in use and used next" : "");
    fprintf(out, "budget       %.1f MB for all models on this machine\n", mb(memory_budget(0)));
}

err_code tools_show(const struct tools_model *t, FILE *out, err *e)
{
    struct model_options o;
    const struct cpu_ops *ops;
    struct model *m;
    struct team *team = NULL;
    err_code code = runner_options(t, &o, e);
    if (!code)
        code = cpu_select(t->isa, &ops, e);
    if (!code)
        code = team_open(t->threads, false, &team, e);
    if (code)
        return code;
    int lanes = team_size(team);
    team_close(team);
    code = model_open(t->path, &o, ops, &m, e);
    if (code)
        return code;
    fprintf(out, "model        %s\n", m->path);
    fprintf(out, "family       %s (%s), %s\n", m->family->name, weights_arch(m->weights),
            weights_container(m->weights) == WEIGHTS_GGUF ? "GGUF" : "safetensors");
    show_tasks(m, out);
    if (m->family->gen)
        show_size(m, out);
    show_details(m, out);
    show_parts(m, out);
    show_text(m, out);
    show_memory(m, lanes, out);
    code = model_ready(m, e);
    model_close(m);
    return code;
}
