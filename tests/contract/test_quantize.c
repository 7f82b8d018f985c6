// `oxinferd quantize` from several containers and families: what it writes loads without copying and has the bits of the same
// weights packed at load; what stops it leaves nothing behind; damaged files are refused.
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/file.h"
#include "engine/blocks/packed.h"
#include "engine/model.h"
#include "engine/tools.h"
#include "engine/weights/weights.h"
#include "kernels/mat.h"

#define MODELS "tests/fixtures/models/"

static char root[] = "/tmp/oxinferd-quantize-XXXXXX";

static const char *in_root(const char *name)
{
    static char paths[32][128];
    static int turn;
    char *path = paths[turn++ % 32];
    snprintf(path, sizeof *paths, "%s/%s", root, name);
    return path;
}

static void remove_all(const char *path)
{
    char command[256];
    snprintf(command, sizeof command, "rm -rf '%s'", path);
    if (system(command))
        fail_msg("cannot remove %s", path);
}

static int setup(void **state)
{
    (void)state;
    return mkdtemp(root) ? 0 : -1;
}

static int teardown(void **state)
{
    (void)state;
    remove_all(root);
    return 0;
}

static int entries(const char *folder)
{
    DIR *d = opendir(folder);
    int n = 0;
    for (struct dirent *it; d && (it = readdir(d));)
        n += strcmp(it->d_name, ".") && strcmp(it->d_name, "..");
    if (d)
        closedir(d);
    return n;
}

static void quantize(const char *src, const char *dst, const char *type, bool rows)
{
    struct tools_quantize q = {.src = src, .dst = dst, .type = type, .rows = rows, .threads = 2};
    err e = {0};
    if (tools_quantize(&q, &e))
        fail_msg("%s: %s", src, e.text);
}

// Rows of both files are the same numbers, whatever their layout.
static void check_tensors(const struct weights *packed, const struct weights *rows, int *ret_packed)
{
    assert_int_equal(weights_count(packed), weights_count(rows));
    for (size_t i = 0; i < weights_count(packed); i++) {
        const struct tensor *a = weights_at(packed, i), *b = weights_at(rows, i);
        assert_string_equal(a->name, b->name);
        assert_int_equal(a->type, b->type);
        if (!a->packed)
            continue;
        struct mat m[2];
        err e = {0};
        assert_false(b->packed);
        assert_int_equal((uintptr_t)a->data % 4096, 0);
        float *x[2];
        for (int k = 0; k < 2; k++) {
            assert_int_equal(mat_plan(&m[k], a->type, (int)a->shape[0], (int)a->shape[1], MAT_F32, &e), ERR_OK);
            m[k].layout = k ? MAT_BORROWED : MAT_PACKED;
            m[k].data = k ? b->data : a->data;
            x[k] = malloc((size_t)a->shape[1] * sizeof **x);
        }
        for (int r = 0; r < a->shape[0]; r++) {
            mat_row(&m[0], r, x[0]);
            mat_row(&m[1], r, x[1]);
            assert_memory_equal(x[0], x[1], (size_t)a->shape[1] * sizeof **x);
        }
        free(x[0]);
        free(x[1]);
        ++*ret_packed;
    }
}

static float *logits(const char *path, const char *activations, size_t *ret_n)
{
    static const int32_t ids[] = {1, 17, 200, 3, 45, 99, 7, 120};
    struct tools_model m = {.path = path, .activations = activations, .kv = "f32", .threads = 1};
    char *text = NULL;
    size_t bytes;
    err e = {0};
    FILE *out = open_memstream(&text, &bytes);
    if (tools_logits(&m, ids, sizeof ids / sizeof *ids, true, 0, out, &e))
        fail_msg("%s: %s", path, e.text);
    fclose(out);
    *ret_n = bytes / sizeof(float);
    return (float *)(void *)text;
}

// Error in units of the source's spread (root mean square).
static double distance(const float *a, const float *b, size_t n)
{
    double sum = 0, mean = 0, spread = 0;
    for (size_t i = 0; i < n; i++)
        mean += (double)b[i] / (double)n;
    for (size_t i = 0; i < n; i++) {
        sum += pow((double)a[i] - (double)b[i], 2);
        spread += pow((double)b[i] - mean, 2);
    }
    return sqrt(sum / spread);
}

static void check_logits(const char *src, const char *packed, const char *rows, const char *type)
{
    size_t n[3];
    float *of_src = logits(src, "f32", &n[0]), *rounded = logits(src, "int8", &n[1]);
    double own = distance(rounded, of_src, n[0]);  // what rounding its activations alone does to this model
    free(rounded);
    for (int k = 0; k < 2; k++) {
        const char *activations = k ? "int8" : "f32";
        float *a = logits(packed, activations, &n[1]), *b = logits(rows, activations, &n[2]);
        assert_int_equal(n[0], n[1]);
        assert_int_equal(n[0], n[2]);
        assert_memory_equal(a, b, n[0] * sizeof *a);
        double d = distance(a, of_src, n[0]);
        printf("%-28s %s %-4s error %.4f of the logits' deviation\n", src + strlen(MODELS), type, activations, d);
        // Observed: q8 0.010 to 0.040, q4 0.055 to 0.35, and gguf-qwen35-q8_0, whose own is 0.4, less than that. The weights
        // are random and wide, so nothing averages out.
        assert_true(d < own + (!strcmp(type, "q8") ? 0.06 : 0.5));
        free(a);
        free(b);
    }
    free(of_src);
}

static struct model *open_model(const char *path)
{
    struct model_options o = {.math = MAT_INT8};
    struct model *m;
    const struct cpu_ops *ops;
    err e = {0};
    if (cpu_select(NULL, &ops, &e) || model_open(path, &o, ops, &m, &e))
        fail_msg("%s: %s", path, e.text);
    return m;
}

// packs: some linear has rows of whole blocks; the tiny models whose sizes are odd stay as they are.
static void check_model(const char *src, const char *type, bool packs, bool generates)
{
    const char *packed = in_root("packed"), *rows = in_root("rows");
    int npacked = 0;
    quantize(src, packed, type, false);
    quantize(src, rows, type, true);
    struct model *a = open_model(packed), *b = open_model(rows);
    check_tensors(a->weights, b->weights, &npacked);
    if (packs && !npacked)
        fail_msg("%s: nothing is packed", src);
    assert_true((a->packed->mapped > 0) == packs);
    assert_int_equal(b->packed->mapped, 0);
    model_close(a);
    model_close(b);
    if (generates)
        check_logits(src, packed, rows, type);
    // What it wrote can be its source.
    quantize(packed, in_root("again"), type, false);
    remove_all(packed);
    remove_all(rows);
    remove_all(in_root("again"));
    assert_int_equal(entries(root), 0);
}

static void test_round_trip(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        bool packs;
    } models[] = {{"llama-f32", false},      {"qwen3-f16", true},           {"qwen35-f32", false},
                  {"gguf-llama-q4_k", true}, {"gguf-qwen2-q4_0", true},     {"gguf-qwen3-f32", true},
                  {"gguf-qwen35-q8_0", true}, {"mlx-llama-mixed-f16", true}, {"mlx-qwen3-4bit", true}};
    for (size_t i = 0; i < sizeof models / sizeof *models; i++) {
        char src[128];
        snprintf(src, sizeof src, MODELS "%s", models[i].name);
        check_model(src, "q8", models[i].packs, true);
        check_model(src, "q4", models[i].packs, true);
    }
    check_model("tests/fixtures/embed/mean", "q8", false, false);
    check_model("tests/fixtures/embed/cls_dense", "q8", false, false);
    check_model("tests/fixtures/embed/mean.gguf", "q8", false, false);
    check_model("tests/fixtures/whisper/multi", "q8", false, false);
    check_model("tests/fixtures/speech/orpheus-tiny", "q4", false, false);
}

// ---- what stops it

static void refuse(const char *src, const char *dst, const char *type, err_code code, const char *says)
{
    struct tools_quantize q = {.src = src, .dst = dst, .type = type};
    err e = {0};
    err_code got = tools_quantize(&q, &e);
    if (got != code || !strstr(e.text, says))
        fail_msg("%s to %s: %d '%s', expected %d '%s'", src, dst, (int)got, e.text, (int)code, says);
}

static void test_names(void **state)
{
    (void)state;
    const char *src = MODELS "llama-f32", *taken = in_root("taken"), *file = in_root("taken/x");
    assert_int_equal(mkdir(taken, 0755), 0);
    close(open(file, O_CREAT | O_WRONLY, 0644));
    refuse(src, taken, "q8", ERR_INVALID, "not empty");
    refuse(src, file, "q8", ERR_INVALID, "no folder");
    refuse(src, src, "q8", ERR_INVALID, "not empty");
    refuse(src, MODELS "llama-f32/new", "q8", ERR_INVALID, "in its own source");
    refuse(src, in_root("none/new"), "q8", ERR_NOT_FOUND, "No such file");
    refuse(src, in_root("new"), "q5", ERR_INVALID, "expected q8 or q4");
    refuse(in_root("none"), in_root("new"), "q8", ERR_NOT_FOUND, "No such file");
    refuse(taken, in_root("new"), "q8", ERR_NOT_FOUND, "holds no weights");
    refuse(src, "/proc/new", "q8", ERR_IO, "cannot make");
    assert_int_equal(entries(root), 1);
    remove_all(taken);
    // An empty folder is as good as none, and a slash at the end is nothing.
    assert_int_equal(mkdir(taken, 0755), 0);
    quantize(src, in_root("taken/"), "q8", false);
    assert_true(entries(taken) > 2);
    remove_all(taken);
    if (geteuid() == 0) {
        print_message("quantize: root writes to read-only folders, that is not checked\n");
        return;
    }
    assert_int_equal(mkdir(taken, 0555), 0);
    refuse(src, in_root("taken/new"), "q8", ERR_IO, "cannot make");
    remove_all(taken);
}

static void test_stopped(void **state)
{
    (void)state;
    const volatile sig_atomic_t stop = 1;
    struct tools_quantize q = {.src = MODELS "llama-f32", .dst = in_root("new"), .type = "q8", .stop = &stop};
    err e = {0};
    assert_int_equal(tools_quantize(&q, &e), ERR_CANCELLED);
    assert_int_equal(entries(root), 0);
}

static ssize_t die(void *cookie, const char *text, size_t n)
{
    (void)cookie;
    (void)text;
    kill(getpid(), SIGKILL);
    return (ssize_t)n;
}

// Killed when a part is written: nothing has the final name, and the next run is not in its way.
static void test_killed(void **state)
{
    (void)state;
    const char *dst = in_root("new");
    pid_t child = fork();
    if (child == 0) {
        FILE *progress = fopencookie(NULL, "w", (cookie_io_functions_t){.write = die});
        struct tools_quantize q = {.src = MODELS "llama-f32", .dst = dst, .type = "q8", .progress = progress};
        err e = {0};
        _exit(tools_quantize(&q, &e) ? 2 : 3);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    assert_false(file_is_dir(dst));
    assert_int_equal(entries(root), 1);  // the part, under a name that starts with a point
    quantize(MODELS "llama-f32", dst, "q8", false);
    assert_true(file_is_dir(dst));
    remove_all(root);
    assert_int_equal(mkdir(root, 0755), 0);
}

// A disk that is full after some bytes: a limit on the size of a file makes writes fail alike.
static void test_disk_full(void **state)
{
    (void)state;
    const char *dst = in_root("new");
    pid_t child = fork();
    if (child == 0) {
        struct rlimit limit = {20000, 20000};
        struct tools_quantize q = {.src = MODELS "llama-f32", .dst = dst, .type = "q8"};
        err e = {0};
        signal(SIGXFSZ, SIG_IGN);
        setrlimit(RLIMIT_FSIZE, &limit);
        _exit(tools_quantize(&q, &e) == ERR_IO && strstr(e.text, "cannot write") ? 0 : 1);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    assert_int_equal(entries(root), 0);
}

// ---- damaged files

static char *slurp(const char *path, size_t *ret_len)
{
    char *text;
    err e = {0};
    if (file_read(path, 8 << 20, &text, ret_len, &e))
        fail_msg("%s", e.text);
    return text;
}

static err_code open_bytes(const char *folder, const char *bytes, size_t n, err *e)
{
    char path[160];
    struct weights *w = NULL;
    snprintf(path, sizeof path, "%s/model.safetensors", folder);
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(bytes, 1, n, f), n);
    fclose(f);
    *e = (err){0};
    err_code code = weights_open(folder, &w, e);
    weights_close(w);
    return code;
}

// The first `from` in the header becomes `to`, as many bytes long.
static void hostile(const char *folder, const char *bytes, size_t n, const char *from, const char *to, err_code code)
{
    char *copy = malloc(n);
    err e;
    memcpy(copy, bytes, n);
    uint64_t header;
    memcpy(&header, copy, 8);
    char *at = memmem(copy + 8, (size_t)header, from, strlen(from));
    assert_non_null(at);
    assert_int_equal(strlen(from), strlen(to));
    memcpy(at, to, strlen(to));
    err_code got = open_bytes(folder, copy, n, &e);
    if (got != code)
        fail_msg("'%s' for '%s': %d '%s', expected %d", to, from, (int)got, e.text, (int)code);
    free(copy);
}

static void test_damaged(void **state)
{
    (void)state;
    const char *dst = in_root("damaged");
    char path[160];
    size_t n;
    err e;
    quantize(MODELS "gguf-qwen3-f32", dst, "q4", false);
    snprintf(path, sizeof path, "%s/model.safetensors", dst);
    char *bytes = slurp(path, &n);
    assert_int_equal(open_bytes(dst, bytes, n, &e), ERR_OK);
    for (size_t cut = 0; cut < n; cut += cut < 5000 ? 97 : n / 61)
        assert_int_equal(open_bytes(dst, bytes, cut, &e), ERR_CORRUPT);
    hostile(dst, bytes, n, "\"oxinferd.layout\":\"1\"", "\"oxinferd.layout\":\"2\"", ERR_UNSUPPORTED);
    hostile(dst, bytes, n, "\"oxinferd.layout\":\"1\"", "\"oxinferd.layoux\":\"1\"", ERR_CORRUPT);
    hostile(dst, bytes, n, "packed Q4_1 96 32", "packed Q4_1 96 31", ERR_CORRUPT);
    hostile(dst, bytes, n, "packed Q4_1 96 32", "packed Q4_1 96 -2", ERR_CORRUPT);
    hostile(dst, bytes, n, "packed Q4_1 96 32", "packed Q4_1 00 32", ERR_CORRUPT);
    hostile(dst, bytes, n, "packed Q4_1 96 32", "packed Q4_1 12345", ERR_CORRUPT);
    hostile(dst, bytes, n, "packed Q4_1 ", "packed BF16 ", ERR_CORRUPT);
    hostile(dst, bytes, n, "packed Q4_1 ", "packed Q9_9 ", ERR_CORRUPT);
    hostile(dst, bytes, n, "packed Q4_1 ", "Packed Q4_1 ", ERR_CORRUPT);
    hostile(dst, bytes, n, "\"data_offsets\":[0,", "\"data_offsets\":[8,", ERR_CORRUPT);
    hostile(dst, bytes, n, "\"dtype\":\"U8\"", "\"dtype\":\"I8\"", ERR_CORRUPT);
    // The keys beside it are missing, or are another file.
    snprintf(path, sizeof path, "%s/metadata.gguf", dst);
    size_t keys_len;
    char *keys = slurp(path, &keys_len);
    for (size_t cut = 0; cut < keys_len; cut += 1 + keys_len / 50) {
        FILE *f = fopen(path, "wb");
        assert_int_equal(fwrite(keys, 1, cut, f), cut);
        fclose(f);
        assert_int_not_equal(open_bytes(dst, bytes, n, &e), ERR_OK);
    }
    unlink(path);
    assert_int_equal(open_bytes(dst, bytes, n, &e), ERR_NOT_FOUND);
    free(keys);
    free(bytes);
    remove_all(dst);
}

// Opens the model of a folder whose weights file has `bytes`; it must be refused for a number of the tensor.
static void check_not_finite(const char *folder, const char *bytes, size_t n, const char *tensor)
{
    struct model_options o = {.math = MAT_INT8};
    struct model *m = NULL;
    const struct cpu_ops *ops;
    err e = {0};
    assert_int_equal(open_bytes(folder, bytes, n, &e), ERR_OK);
    assert_int_equal(cpu_select(NULL, &ops, &e), ERR_OK);
    err_code code = model_open(folder, &o, ops, &m, &e);
    model_close(m);
    if (code != ERR_CORRUPT || !strstr(e.text, tensor) || !strstr(e.text, "finite"))
        fail_msg("%d: '%s', expected a number of '%s' that is not finite", (int)code, e.text, tensor);
}

static void test_not_finite(void **state)
{
    (void)state;
    const char *dst = in_root("broken");
    char path[160];
    size_t n;
    static const uint16_t infinity = 0x7c00;
    quantize(MODELS "gguf-qwen3-f32", dst, "q4", false);
    snprintf(path, sizeof path, "%s/model.safetensors", dst);
    char *bytes = slurp(path, &n);
    uint64_t header;
    memcpy(&header, bytes, 8);
    memcpy(bytes + 8 + header + 16 + 6, &infinity, 2);  // the offset of row 3
    check_not_finite(dst, bytes, n, "'blk.0.attn_q.weight'");
    free(bytes);
    remove_all(dst);
    // MLX: the first scale of the first tensor's.
    const char *copy = in_root("mlx");
    char command[300];
    snprintf(command, sizeof command, "cp -r %s %s", MODELS "mlx-llama-mixed-f16", copy);
    assert_int_equal(system(command), 0);
    snprintf(path, sizeof path, "%s/model.safetensors", copy);
    bytes = slurp(path, &n);
    struct weights *w;
    err e = {0};
    assert_int_equal(weights_open(copy, &w, &e), ERR_OK);
    const struct tensor *t = weights_find(w, "model.layers.0.mlp.up_proj.weight");
    assert_non_null(t);
    char *at = memmem(bytes, n, t->parts->scales, 64);
    assert_non_null(at);
    memcpy(at + 10, &infinity, 2);
    weights_close(w);
    check_not_finite(copy, bytes, n, "'model.layers.0.mlp.up_proj.scales'");
    free(bytes);
    remove_all(copy);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_round_trip), cmocka_unit_test(test_names),     cmocka_unit_test(test_stopped),
        cmocka_unit_test(test_killed),     cmocka_unit_test(test_disk_full), cmocka_unit_test(test_damaged),
        cmocka_unit_test(test_not_finite),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
