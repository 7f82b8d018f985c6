// Mixtures of experts as whole models: the same bits for any chunking, lanes, company in the batch and instruction set;
// and checkpoints that do not fit together are refused by name, whatever is wrong with them.
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/helpers/models.h"
#include "tests/helpers/samebits.h"

static struct runner *try_open(const char *path, const char *activations, err *e)
{
    struct runner *r = NULL;
    struct tools_model t = {.path = path, .activations = activations, .threads = 1};
    return runner_open(&t, 160, 3, 160, 1024, false, &r, e) ? NULL : r;
}

static void test_same_bits(void **state)
{
    (void)state;
    samebits_check((struct samebits){"qwen3moe-f32", "f32", .tokens = 130});
    samebits_check((struct samebits){"qwen3moe-dense-bf16", "int8", .tokens = 130});
    samebits_check((struct samebits){"qwen2moe-stack-bf16", "f32", .tokens = 130});
    samebits_check((struct samebits){"gguf-qwen3moe-q4_0", "int8", .tokens = 130});
    samebits_check((struct samebits){"gguf-qwen3moe-q4_0", "f32", .tokens = 130});
    samebits_check((struct samebits){"gguf-qwen3moe-q4_k", "int8", .tokens = 130});
    samebits_check((struct samebits){"gguf-qwen2moe-q8_0", "int8", .tokens = 130});
    samebits_check((struct samebits){"gguf-qwen3moe-q4_0", "int8", .tokens = 630});
}

static size_t packed(enum quant_type type, int rows, int cols)
{
    struct mat m;
    err e = {0};
    assert_int_equal(mat_plan(&m, type, rows, cols, MAT_INT8, &e), ERR_OK);
    return m.bytes;
}

// What show, bench and the memory budget count: all experts, and those of one token.
static void test_accounts(void **state)
{
    (void)state;
    struct runner *r = samebits_open(&(struct samebits){"gguf-qwen3moe-q4_0", "int8", .threads = 1});
    const struct model *m = r->model;
    size_t layer = 64 * 64 * 2 + 64 * 32 * 2 + 64 * 7, expert = 3 * 64 * 32;  // q, o, k, v, router
    assert_int_equal(m->token_macs, 2 * (layer + 3 * expert));
    assert_int_equal(m->idle_macs, 2 * 4 * expert);
    size_t bytes = packed(QUANT_Q4_0, 32, 64) + packed(QUANT_Q8_0, 32, 64) + packed(QUANT_Q5_1, 64, 32);
    size_t table = (size_t)m->vocab * 64 * 4;  // of embeddings, of which a token reads a row
    assert_int_equal(m->resident_bytes - m->token_bytes, 2 * 4 * bytes + table);
    assert_true(m->resident_bytes > 2 * 7 * bytes);
    runner_close(r);
}

// ---- what does not fit

static const struct models_files files = {"config.json", "model.safetensors"};

static void test_configs(void **state)
{
    (void)state;
    static const struct { const char *model, *change; err_code code; const char *says; } all[] = {
        {"qwen3moe-f32", "{}", ERR_OK, ""},
        {"qwen3moe-f32", "{\"num_experts\": 5}", ERR_OK, ""},
        {"qwen3moe-f32", "{\"num_experts\": 6}", ERR_CORRUPT, "'num_local_experts' is 5 and 'num_experts' 6"},
        {"qwen3moe-f32", "{\"num_local_experts\": 4}", ERR_CORRUPT, "mlp.gate.weight' has shape [5, 52], expected [4, 52]"},
        {"qwen3moe-f32", "{\"num_local_experts\": 5000}", ERR_CORRUPT, "'num_local_experts' is 5000, expected 0 to 4096"},
        {"qwen3moe-f32", "{\"num_local_experts\": -1}", ERR_CORRUPT, "'num_local_experts' is -1"},
        {"qwen3moe-f32", "{\"num_local_experts\": \"5\"}", ERR_CORRUPT, "'num_local_experts' is of another type"},
        {"qwen3moe-f32", "{\"num_local_experts\": 0}", ERR_CORRUPT, "'model.layers.0.mlp.gate_proj.weight' is missing"},
        {"qwen3moe-f32", "{\"num_experts_per_tok\": 6}", ERR_CORRUPT, "6 experts a token, expected 1 to the number of experts, 5"},
        {"qwen3moe-f32", "{\"num_experts_per_tok\": 0}", ERR_CORRUPT, "0 experts a token"},
        {"qwen3moe-f32", "{\"moe_intermediate_size\": 25}", ERR_CORRUPT,
         "'model.layers.0.mlp.experts.0.gate_proj.weight' has shape [24, 52], expected [25, 52]"},
        {"qwen3moe-f32", "{\"moe_intermediate_size\": 0}", ERR_CORRUPT, "experts of 0"},
        {"qwen3moe-f32", "{\"decoder_sparse_step\": 2}", ERR_CORRUPT, "'model.layers.0.mlp.gate_proj.weight' is missing"},
        {"qwen3moe-f32", "{\"decoder_sparse_step\": 0}", ERR_CORRUPT, "'decoder_sparse_step' is 0"},
        {"qwen3moe-f32", "{\"mlp_only_layers\": [1]}", ERR_CORRUPT, "'model.layers.1.mlp.gate_proj.weight' is missing"},
        {"qwen3moe-f32", "{\"mlp_only_layers\": [\"1\"]}", ERR_CORRUPT, "'mlp_only_layers' has no integer at 0"},
        {"qwen3moe-f32", "{\"mlp_only_layers\": null, \"norm_topk_prob\": true}", ERR_OK, ""},
        {"qwen3moe-dense-bf16", "{\"mlp_only_layers\": [3]}", ERR_CORRUPT, "'model.layers.1.mlp.gate.weight' is missing"},
        {"qwen3moe-stack-f16", "{\"moe_intermediate_size\": 20}", ERR_CORRUPT,
         "'model.layers.0.mlp.experts.gate_up_proj' has shape [7, 48, 44], expected [7, 40, 44]"},
        {"qwen2moe-f32", "{\"shared_expert_intermediate_size\": 48}", ERR_CORRUPT,
         "mlp.shared_expert.gate_proj.weight' has shape [40, 48], expected [48, 48]"},
        {"qwen2moe-f32", "{\"use_sliding_window\": true, \"layer_types\": null}", ERR_UNSUPPORTED, "layer_types"},
        {"qwen3-f16", "{\"architectures\": [\"Qwen3MoeForCausalLM\"]}", ERR_CORRUPT, "mlp.gate.weight' is missing"},
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        char folder[64];
        err e = {0};
        models_change(folder, all[i].model, files, all[i].change);
        struct runner *r = try_open(folder, "f32", &e);
        if (e.code != all[i].code || (e.code && !strstr(e.text, all[i].says)))
            fail_msg("%s with %s: '%s', expected '%s'", all[i].model, all[i].change, e.text, all[i].says);
        runner_close(r);
        models_change_done(folder, files);
    }
}

// ---- damaged files

struct file {
    char path[64];
    uint8_t *data;
    size_t size;
};

static void read_file(const char *model, struct file *f)
{
    FILE *in = fopen(models_path(model), "rb");
    assert_non_null(in);
    f->data = malloc(1 << 22);
    f->size = fread(f->data, 1, 1 << 22, in);
    fclose(in);
    snprintf(f->path, sizeof f->path, "/tmp/oxinferd-moe-XXXXXX");
    int fd = mkstemp(f->path);
    assert_true(fd >= 0);
    close(fd);
}

static uint8_t *find(const struct file *f, const char *text)
{
    uint8_t *at = memmem(f->data, f->size, text, strlen(text));
    if (!at)
        fail_msg("no '%s' in the file", text);
    return at;
}

// Opens the first `size` bytes and, should they be a model, runs a step.
static void try_file(const struct file *f, size_t size, err *e)
{
    FILE *out = fopen(f->path, "wb");
    assert_int_equal(fwrite(f->data, 1, size, out), size);
    fclose(out);
    struct runner *r = try_open(f->path, "int8", e);
    if (!r)
        return;
    int32_t ids[9] = {1, 2, 3, 4, 5, 6, 7, 8, 9};
    struct kv_seq s;
    kv_seq_init(&s, r->pool);
    assert_int_equal(runner_step(r, &(struct piece){&s, ids, 9, PIECE_LAST}, 1, e), ERR_OK);
    kv_seq_done(&s);
    runner_close(r);
}

static void done(struct file *f)
{
    unlink(f->path);
    free(f->data);
}

// A tensor under another name, and a number under another value.
static void test_gguf_errors(void **state)
{
    (void)state;
    static const struct { const char *model, *name; int at, value; const char *says; } all[] = {
        {"gguf-qwen3moe-q4_0", "blk.1.ffn_up_exps", 8, 'x', "tensor 'blk.1.ffn_up_exps.weight' is missing"},
        {"gguf-qwen3moe-q4_0", "blk.0.ffn_down_exps", 8, 'x', "tensor 'blk.0.ffn_down_exps.weight' is missing"},
        {"gguf-qwen3moe-q4_0", "blk.0.ffn_gate_inp", 16, 'x', "tensor 'blk.0.ffn_gate_inp.weight' is missing"},
        {"gguf-qwen2moe-q8_0", "blk.1.ffn_gate_inp_shexp", 16, 'x', "tensor 'blk.1.ffn_gate_inp_shexp.weight' is missing"},
        {"gguf-qwen3moe-q4_0", "qwen3moe.expert_count", 25, 6, "'blk.0.ffn_gate_inp.weight' has shape [7, 64], expected [6, 64]"},
        {"gguf-qwen3moe-q4_0", "qwen3moe.expert_count", 26, 0xff, "'qwen3moe.expert_count' is 65287, expected 0 to 4096"},
        {"gguf-qwen3moe-q4_0", "qwen3moe.expert_count", 9, 'E', "'qwen3moe.expert_count' is missing"},
        {"gguf-qwen3moe-q4_0", "qwen3moe.expert_used_count", 30, 9, "9 experts a token"},
        // The size of an expert is feed_forward_length / 4 then, in a file without a key for it.
        {"gguf-qwen3moe-q4_0", "qwen3moe.expert_used_count", 30, 4,
         "'blk.0.ffn_gate_exps.weight' has shape [7, 32, 64], expected [7, 24, 64]"},
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        struct file f;
        err e = {0};
        read_file(all[i].model, &f);
        find(&f, all[i].name)[all[i].at] = (uint8_t)all[i].value;
        try_file(&f, f.size, &e);
        if (!e.code || !strstr(e.text, all[i].says))
            fail_msg("%s of %s: '%s', expected '%s'", all[i].name, all[i].model, e.text, all[i].says);
        done(&f);
    }
}

// Any number in the place of any key's: an error or a model that runs.
static void test_hostile_numbers(void **state)
{
    (void)state;
    static const char *const keys[] = {"qwen3moe.expert_count", "qwen3moe.expert_used_count", "qwen3moe.feed_forward_length",
                                       "qwen3moe.embedding_length", "qwen3moe.block_count"};
    static const uint32_t values[] = {0, 1, 2, 3, 255, 4096, 65536, 0x7fffffff, 0xffffffff};
    for (size_t k = 0; k < sizeof keys / sizeof *keys; k++) {
        struct file f;
        read_file("gguf-qwen3moe-q4_0", &f);
        uint8_t *at = find(&f, keys[k]) + strlen(keys[k]) + 4;
        for (size_t v = 0; v < sizeof values / sizeof *values; v++) {
            err e = {0};
            memcpy(at, &values[v], 4);
            try_file(&f, f.size, &e);
        }
        done(&f);
    }
}

static void test_cut(void **state)
{
    (void)state;
    struct file f;
    read_file("gguf-qwen3moe-q4_0", &f);
    for (size_t i = 0; i < 60; i++) {
        err e = {0};
        try_file(&f, f.size * i / 60, &e);
        assert_int_not_equal(e.code, ERR_OK);
    }
    done(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_same_bits),   cmocka_unit_test(test_accounts),        cmocka_unit_test(test_configs),
        cmocka_unit_test(test_gguf_errors), cmocka_unit_test(test_hostile_numbers), cmocka_unit_test(test_cut),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
