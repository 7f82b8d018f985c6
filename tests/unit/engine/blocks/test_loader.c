// Loading: what is not finite is refused with tensor, row and column, whatever the type and the number of threads; a
// file that is cut meanwhile is an error, and cut afterwards does no harm; memory stays within what is made.
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "engine/blocks/linear.h"
#include "tests/helpers/gguf.h"

enum { ROWS = 40, COLS = 512, MB = 1 << 20 };

#if defined(__has_feature)
#define SANITIZED (__has_feature(address_sanitizer) || __has_feature(thread_sanitizer))
#elif defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZED 1
#else
#define SANITIZED 0
#endif

static const struct cpu_ops *ops;

// A file of one matrix "w" [rows, cols], then a vector "b" of 4 floats, with zeros for numbers; begins[i]: where they
// lie.
static void make_file(struct buf *b, enum quant_type type, uint64_t rows, uint64_t cols, size_t begins[2])
{
    const struct quant *q = quant_get(type);
    size_t bytes = (size_t)(rows * cols) / (size_t)q->block * (size_t)q->block_bytes, padded = (bytes + 31) / 32 * 32;
    buf_init(b, 64 * MB);
    gguf_header(b, 3, 2, 1);
    gguf_key_text(b, "general.name", "zeros");
    gguf_info(b, "w", 2, (uint64_t[]){cols, rows}, (uint32_t)q->ggml_id, 0);
    gguf_info(b, "b", 1, (uint64_t[]){4}, 0, padded);
    gguf_pad(b, 32);
    begins[0] = b->len;
    begins[1] = b->len + padded;
    for (size_t i = 0; i < padded + 16; i++)
        buf_add_char(b, 0);
}

static struct weights *open_bytes(const struct buf *b)
{
    struct weights *w = NULL;
    err e = {0};
    if (weights_open_memory("model.gguf", b->data, b->len, &w, &e))
        fail_msg("%s", e.text);
    return w;
}

enum use { USE_MATRIX, USE_TABLE, USE_F32 };

static err_code load(const struct weights *w, enum use use, int rows, int cols, int threads, err *e)
{
    struct mat m;
    struct loader *ld = loader_new(w, use == USE_F32 ? MAT_F32 : MAT_INT8, ops);
    err_code code = use == USE_TABLE ? loader_table(ld, "w", rows, cols, &m, e) : loader_matrix(ld, "w", rows, cols, &m, e);
    if (!code)
        code = loader_run(ld, threads, e);
    loader_free(ld);
    return code;
}

// ---- numbers that are none

static void expect_flaw(const struct weights *w, enum use use, int threads, const char *value, int row, const char *type)
{
    err e = {0};
    char where[64];
    snprintf(where, sizeof where, "row %d, column 0, expected finite", row);
    err_code code = load(w, use, ROWS, COLS, threads, &e);
    if (code != ERR_CORRUPT || !strstr(e.text, "tensor 'w'") || !strstr(e.text, value) || !strstr(e.text, where) ||
        !strstr(e.text, type) || !strstr(e.text, "model.gguf") || strcmp(e.param, "w"))
        fail_msg("%s, %s: %s: '%s'", type, value, err_name(code), e.text);
}

// Where a type has its first scale. IQ1_M has it in pieces.
static size_t scale_at(enum quant_type type)
{
    return type == QUANT_Q2_K ? 80 : type == QUANT_Q3_K ? 108 : type == QUANT_Q6_K ? 208 : type == QUANT_TQ1_0 ? 52 :
           type == QUANT_TQ2_0 ? 64 : 0;
}

static void put(enum quant_type type, uint8_t *block, int kind)
{
    static const uint16_t halves[] = {0x7E00, 0x7C00, 0xFC00};
    static const float values[] = {NAN, INFINITY, -INFINITY};
    uint16_t h = halves[kind];
    uint32_t bits;
    memcpy(&bits, &values[kind], sizeof bits);
    if (type == QUANT_F32)
        memcpy(block, &bits, 4);
    else if (type == QUANT_BF16)
        memcpy(block, (uint8_t *)&bits + 2, 2);
    else if (type == QUANT_MXFP4 || type == QUANT_NVFP4)
        block[0] = 0xFF;
    else if (type == QUANT_IQ1_M) {
        for (int i = 0; i < 4; i++)
            block[49 + 2 * i] = (uint8_t)((h >> 4 * i & 15) << 4);
    } else {
        memcpy(block + scale_at(type), &h, 2);
    }
}

static void test_every_type(void **state)
{
    (void)state;
    static const char *const values[] = {"NaN", "Inf", "-Inf"};
    for (int t = 0; t < QUANT_COUNT; t++) {
        enum quant_type type = (enum quant_type)t;
        const struct quant *q = quant_get(type);
        size_t begins[2], row = COLS / (size_t)q->block * (size_t)q->block_bytes;
        struct buf b;
        if (q->ggml_id < 0)
            continue;
        bool bytes = type == QUANT_MXFP4 || type == QUANT_NVFP4;
        for (int kind = 0; kind < (bytes ? 1 : 3); kind++) {
            err e = {0};
            make_file(&b, type, ROWS, COLS, begins);
            struct weights *w = open_bytes(&b);
            for (enum use use = USE_MATRIX; use <= USE_F32; use++) {
                if (load(w, use, ROWS, COLS, 2, &e))
                    fail_msg("%s: %s", q->name, e.text);
            }
            put(type, (uint8_t *)b.data + begins[0] + 17 * row, kind);
            put(type, (uint8_t *)b.data + begins[0] + 33 * row, kind);
            for (enum use use = USE_MATRIX; use <= USE_F32; use++)
                expect_flaw(w, use, 2, values[kind], 17, q->name);
            weights_close(w);
            buf_done(&b);
        }
    }
}

static void test_vector(void **state)
{
    (void)state;
    size_t begins[2];
    struct buf b;
    err e = {0};
    const float *v;
    make_file(&b, QUANT_Q8_0, 8, 32, begins);
    struct weights *w = open_bytes(&b);
    struct loader *ld = loader_new(w, MAT_INT8, ops);
    assert_int_equal(loader_vector(ld, "b", 4, &v, &e), ERR_OK);
    assert_true(v[3] == 0);
    memcpy(b.data + begins[1] + 8, &(float){NAN}, 4);
    assert_int_equal(loader_vector(ld, "b", 4, &v, &e), ERR_CORRUPT);
    assert_non_null(strstr(e.text, "tensor 'b' of F32 has a number of NaN in row 0, column 2"));
    loader_free(ld);
    weights_close(w);
    buf_done(&b);
}

// Of several the first is named, with any number of threads.
static void test_first_is_named(void **state)
{
    (void)state;
    enum { R = 4096, C = 1024 };
    size_t begins[2];
    struct buf b;
    make_file(&b, QUANT_F16, R, C, begins);
    struct weights *w = open_bytes(&b);
    for (int row = 1001; row < R; row += 97)
        put(QUANT_F16, (uint8_t *)b.data + begins[0] + (size_t)row * C * 2, 0);
    for (int threads = 1; threads < 9; threads++) {
        err e = {0};
        assert_int_equal(load(w, USE_MATRIX, R, C, threads, &e), ERR_CORRUPT);
        assert_non_null(strstr(e.text, "row 1001, column 0"));
    }
    weights_close(w);
    buf_done(&b);
}

// ---- shapes

// A row that is no whole number of blocks.
static void test_odd_columns(void **state)
{
    (void)state;
    for (int t = 0; t < QUANT_COUNT; t++) {
        const struct quant *q = quant_get((enum quant_type)t);
        char expected[64];
        struct buf b;
        struct weights *w;
        err e = {0};
        if (q->ggml_id < 0 || q->block == 1)
            continue;
        buf_init(&b, MB);
        gguf_header(&b, 3, 1, 0);
        gguf_info(&b, "w", 2, (uint64_t[]){(uint64_t)q->block + 1, 3}, (uint32_t)q->ggml_id, 0);
        gguf_pad(&b, 32);
        for (int i = 0; i < 4096; i++)
            buf_add_char(&b, 0);
        snprintf(expected, sizeof expected, "rows of %d numbers, %s needs a multiple of %d", q->block + 1, q->name, q->block);
        assert_int_equal(weights_open_memory("model.gguf", b.data, b.len, &w, &e), ERR_CORRUPT);
        assert_non_null(strstr(e.text, "tensor 'w'"));
        assert_non_null(strstr(e.text, expected));
        buf_done(&b);
    }
}

// ---- files that change

static char path[64];

static int make_path(void **state)
{
    (void)state;
    strcpy(path, "/tmp/test_loader.XXXXXX");
    int fd = mkstemp(path);
    return fd < 0 || close(fd);
}

static int drop_path(void **state)
{
    (void)state;
    return unlink(path);
}

static void write_file(const struct buf *b, size_t size)
{
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(b->data, 1, b->len, f), b->len);
    assert_int_equal(fclose(f), 0);
    assert_int_equal(truncate(path, (off_t)size), 0);
}

static struct weights *open_file(void)
{
    struct weights *w = NULL;
    err e = {0};
    if (weights_open(path, &w, &e))
        fail_msg("%s", e.text);
    return w;
}

// LOAD-06: cut between opening and packing: an error that says so.
static void test_cut_while_loading(void **state)
{
    (void)state;
    size_t begins[2];
    struct buf b;
    make_file(&b, QUANT_Q4_0, 4096, 1024, begins);
    for (int use = USE_MATRIX; use <= USE_F32; use++) {
        err e = {0};
        write_file(&b, b.len);
        struct weights *w = open_file();
        assert_int_equal(truncate(path, (off_t)begins[0] + 12345), 0);
        assert_int_equal(load(w, (enum use)use, 4096, 1024, 2, &e), ERR_CORRUPT);
        assert_non_null(strstr(e.text, "inside tensor 'w'"));
        assert_non_null(strstr(e.text, "changed"));
        weights_close(w);
    }
    buf_done(&b);
}

// LOAD-06: cut after loading: matrices, tables and keys are in memory and stay what they are.
static void test_cut_after_loading(void **state)
{
    (void)state;
    size_t begins[2];
    struct buf b;
    struct mat m[2];
    float before[2][1024], after[1024];
    err e = {0};
    make_file(&b, QUANT_Q8_0, 512, 1024, begins);
    for (size_t i = 0; i < begins[1] - begins[0]; i++)
        b.data[begins[0] + i] = (char)(i % 34 == 0 ? 0 : i % 34 == 1 ? 0x24 : i);
    write_file(&b, b.len);
    struct weights *w = open_file();
    struct loader *ld = loader_new(w, MAT_INT8, ops);
    assert_int_equal(loader_matrix(ld, "w", 512, 1024, &m[0], &e), ERR_OK);
    assert_int_equal(loader_table(ld, "w", 512, 1024, &m[1], &e), ERR_OK);
    assert_int_equal(loader_run(ld, 2, &e), ERR_OK);
    struct packed *p = loader_take(ld);
    assert_true(packed_bytes(p) >= 2 * 512 * 1024 / 32 * 34);
    for (int i = 0; i < 2; i++)
        mat_row(&m[i], 511, before[i]);
    assert_true(before[0][3] != 0);
    assert_memory_equal(before[0], before[1], sizeof before[0]);
    assert_int_equal(truncate(path, 0), 0);
    for (int i = 0; i < 2; i++) {
        mat_row(&m[i], 511, after);
        assert_memory_equal(before[i], after, sizeof after);
    }
    const char *name;
    size_t len;
    assert_true(meta_string(w, "general.name", &name, &len) && len == 5 && !memcmp(name, "zeros", 5));
    packed_free(p);
    weights_close(w);
    buf_done(&b);
}

// ---- memory

static double status_mb(const char *key)
{
    char line[256];
    double kb = -1;
    FILE *f = fopen("/proc/self/status", "re");
    while (f && fgets(line, sizeof line, f)) {
        if (!strncmp(line, key, strlen(key)))
            kb = atof(line + strlen(key));
    }
    if (f)
        fclose(f);
    return kb / 1024;
}

// In a process of its own, whose high-water mark is the load's. 200 MB in two tensors of zeros; the file has no
// blocks on disk.
static int measure(enum quant_type type)
{
    const struct quant *q = quant_get(type);
    uint64_t cols = 4096, rows = 100ull * MB / 4096 / (uint64_t)q->block_bytes * (uint64_t)q->block;
    size_t bytes = (size_t)(rows * cols) / (size_t)q->block * (size_t)q->block_bytes;
    struct buf b;
    struct mat m[3];
    err e = {0};
    buf_init(&b, MB);
    gguf_header(&b, 3, 2, 0);
    gguf_info(&b, "a", 2, (uint64_t[]){cols, rows}, (uint32_t)q->ggml_id, 0);
    gguf_info(&b, "w", 2, (uint64_t[]){cols, rows}, (uint32_t)q->ggml_id, (bytes + 31) / 32 * 32);
    gguf_pad(&b, 32);
    write_file(&b, b.len + 2 * ((bytes + 31) / 32 * 32));
    struct weights *w = open_file();
    struct loader *ld = loader_new(w, MAT_INT8, ops);
    if (loader_matrix(ld, "a", (int)rows, (int)cols, &m[0], &e) || loader_matrix(ld, "w", (int)rows, (int)cols, &m[1], &e) ||
        loader_run(ld, 4, &e))
        return 2;
    double peak = status_mb("VmHWM:"), now = status_mb("VmRSS:"), made = status_mb("RssAnon:");
    print_message("%s: %.0f MB made, %.1f MB at most above the %.0f MB in use afterwards\n", q->name, made, peak - now,
                  now);
    loader_free(ld);
    weights_close(w);
    buf_done(&b);
    return peak < 0 || peak - now > 64 || now > made + 64;
}

// Observed: 0 to 2 MB.
static void test_peak_memory(void **state)
{
    (void)state;
    static const enum quant_type types[] = {QUANT_Q4_0, QUANT_F16};
    if (SANITIZED) {
        print_message("[ SKIPPED ] peak memory: a sanitizer's own memory is among it\n");
        skip();
    }
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        int status = 0;
        pid_t pid = fork();
        if (pid == 0)
            _exit(measure(types[i]));
        assert_int_equal(waitpid(pid, &status, 0), pid);
        assert_true(WIFEXITED(status));
        assert_int_equal(WEXITSTATUS(status), 0);
    }
}

static int choose_isa(void **state)
{
    (void)state;
    return cpu_select("auto", &ops, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_type), cmocka_unit_test(test_vector), cmocka_unit_test(test_first_is_named),
        cmocka_unit_test(test_odd_columns),
        cmocka_unit_test_setup_teardown(test_cut_while_loading, make_path, drop_path),
        cmocka_unit_test_setup_teardown(test_cut_after_loading, make_path, drop_path),
        cmocka_unit_test_setup_teardown(test_peak_memory, make_path, drop_path),
    };
    return cmocka_run_group_tests(tests, choose_isa, NULL);
}
