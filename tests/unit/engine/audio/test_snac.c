// The SNAC decoder on tiny random checkpoints with odd channels: against the snac package (tests/reference/make_speech.py),
// without noise and with given noise; the same bits for any cutting into steps, any number of lanes and every instruction
// set; and damaged folders.
//
// Allowed: 1e-5. Observed: 3.0e-06 without noise, 5.6e-06 with (samples reach 0.99).
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/file.h"
#include "base/mem.h"
#include "engine/audio/snac.h"
#include "engine/blocks/packed.h"
#include "engine/weights/weights.h"

static const char *const folders[] = {"snac-tiny", "snac-dense", "snac-bare"};

struct decoder {
    struct weights *weights;
    struct packed *packed;
    struct snac *snac;
    int32_t *codes[SNAC_LEVELS];
    int rows;
};

static char *path_of(const char *folder, const char *file)
{
    static char path[256];
    snprintf(path, sizeof path, "tests/fixtures/speech/%s/%s", folder, file);
    return path;
}

static float *read_floats(const char *folder, const char *file, int *ret_count)
{
    char *text;
    size_t len;
    err e = {0};
    if (file_read(path_of(folder, file), 1 << 24, &text, &len, &e))
        fail_msg("%s", e.text);
    *ret_count = (int)(len / sizeof(float));
    return (float *)(void *)text;
}

static void open_decoder(struct decoder *d, const char *folder, const char *isa)
{
    const struct cpu_ops *ops;
    err e = {0};
    *d = (struct decoder){.packed = packed_new()};
    if (cpu_select(isa, &ops, &e) || weights_open(path_of(folder, ""), &d->weights, &e) ||
        snac_open(d->weights, ops, d->packed, &d->snac, &e))
        fail_msg("%s: %s", folder, e.text);
    json_t *j = json_load_file(path_of(folder, "codes.json"), 0, NULL), *list, *v;
    size_t l, i;
    json_array_foreach(j, l, list) {
        d->codes[l] = mem_new((json_array_size(list) + 1) * sizeof **d->codes);
        json_array_foreach(list, i, v)
            d->codes[l][i] = (int32_t)json_integer_value(v);
    }
    d->rows = (int)json_array_size(json_array_get(j, 0)) * snac_shape(d->snac)->strides[0];
    json_decref(j);
}

static void close_decoder(struct decoder *d)
{
    snac_close(d->snac);
    packed_free(d->packed);
    weights_close(d->weights);
    for (int i = 0; i < SNAC_LEVELS; i++)
        free(d->codes[i]);
}

struct job {
    struct snac_stream st;
    const int32_t *const *codes;
    int rows;
    bool last;
    void *scratch;
    float *out;
};

static void run_step(struct lane *lane, void *arg)
{
    struct job *j = arg;
    snac_step(&j->st, lane, j->codes, j->rows, j->last, j->scratch, j->out);
}

// The whole clip in steps of `step` rows; with `late` the end is a step of its own without rows. Scratch is full of rubbish
// before every step.
static float *decode(const struct decoder *d, struct team *team, const struct snac_stream *with, int step, bool late)
{
    const struct snac *s = d->snac;
    struct job j = {.st = *with, .codes = (const int32_t *const *)d->codes};
    size_t bytes = snac_scratch_bytes(s), total = (size_t)d->rows * (size_t)snac_shape(s)->hop, at = 0;
    float *out = mem_new((total + 1) * sizeof *out);
    j.st.snac = s;
    j.st.state = mem_new(snac_state_floats(s) * sizeof(float));
    j.scratch = mem_try_pages(bytes);
    snac_start(&j.st);
    while (!j.last) {
        int left = d->rows - j.st.fed;
        j.rows = left < step ? left : step;
        j.last = late ? left == 0 : j.rows == left;
        size_t n = (size_t)snac_samples(&j.st, j.rows, j.last);
        assert_true(at + n <= total);
        j.out = out + at;
        memset(j.scratch, 0xFF, bytes);
        team_run(team, run_step, &j);
        at += n;
    }
    assert_int_equal(at, total);
    mem_free_pages(j.scratch, bytes);
    free(j.st.state);
    return out;
}

static struct team *open_team(int lanes)
{
    struct team *t;
    err e = {0};
    if (team_open(lanes, false, &t, &e))
        fail_msg("%s", e.text);
    return t;
}

static void compare(const char *folder, const char *file, const float *got, int n)
{
    int count;
    float *want = read_floats(folder, file, &count);
    double worst = 0;
    assert_int_equal(count, n);
    for (int i = 0; i < n; i++) {
        double d = fabs((double)got[i] - (double)want[i]);
        worst = d > worst || isnan(d) ? d : worst;
    }
    print_message("%s %s: largest difference %.1e\n", folder, file, worst);
    assert_true(worst <= 1e-5);
    free(want);
}

static void give_noise(const struct decoder *d, struct snac_stream *st, const float *noise)
{
    const struct snac_shape *h = snac_shape(d->snac);
    size_t rows = (size_t)d->rows;
    st->noise = SNAC_NOISE_GIVEN;
    for (int i = 0; i < h->blocks; i++) {
        st->given[i] = noise;
        rows *= (size_t)h->rates[i];
        noise += rows;
    }
}

static void test_agrees_with_the_package(void **state)
{
    (void)state;
    struct team *team = open_team(1);
    for (size_t i = 0; i < 3; i++) {
        struct decoder d;
        open_decoder(&d, folders[i], NULL);
        struct snac_stream st = {.noise = SNAC_NOISE_OFF};
        int n = d.rows * snac_shape(d.snac)->hop, count;
        float *y = decode(&d, team, &st, 5, false);
        compare(folders[i], "plain.f32", y, n);
        free(y);
        if (snac_shape(d.snac)->noise) {
            float *noise = read_floats(folders[i], "noise.f32", &count);
            give_noise(&d, &st, noise);
            y = decode(&d, team, &st, SNAC_STEP_ROWS, false);
            compare(folders[i], "noisy.f32", y, n);
            free(y);
            free(noise);
        }
        close_decoder(&d);
    }
    team_close(team);
}

static void test_any_cutting_gives_the_same_bits(void **state)
{
    (void)state;
    static const char *const isas[] = {"scalar", "avx2", "avx512"};
    static const int steps[] = {1, 3, 4, 7, 12};
    struct team *teams[] = {open_team(1), open_team(2)};
    const struct cpu_ops *ops;
    err e = {0};
    for (size_t f = 0; f < 3; f++) {
        float *first = NULL;
        for (size_t i = 0; i < 3; i++) {
            struct decoder d;
            if (cpu_select(isas[i], &ops, &e))
                continue;
            open_decoder(&d, folders[f], isas[i]);
            size_t bytes = (size_t)d.rows * (size_t)snac_shape(d.snac)->hop * sizeof(float);
            for (size_t k = 0; k < 20; k++) {
                struct snac_stream st = {.noise = SNAC_NOISE_DRAWN, .seed = 9, .first = 4};
                float *y = decode(&d, teams[k % 2], &st, steps[k / 2 % 5], k >= 10);
                if (first && memcmp(first, y, bytes))
                    fail_msg("%s on %s: %zu lanes, steps of %d rows", folders[f], isas[i], k % 2 + 1, steps[k / 2 % 5]);
                if (first)
                    free(y);
                else
                    first = y;
            }
            close_decoder(&d);
        }
        free(first);
    }
    team_close(teams[0]);
    team_close(teams[1]);
}

// Drawn noise is normal, and given noise of the same numbers is the same sound.
static void test_drawn_noise(void **state)
{
    (void)state;
    struct decoder d;
    struct team *team = open_team(1);
    open_decoder(&d, folders[0], NULL);
    const struct snac_shape *h = snac_shape(d.snac);
    size_t rows = (size_t)d.rows, total = 0, bytes = rows * (size_t)h->hop * sizeof(float);
    float *noise = mem_new(rows * 64 * sizeof *noise);
    double sum = 0, squares = 0;
    uint64_t first = 8;
    for (int i = 0; i < h->blocks; i++) {
        rows *= (size_t)h->rates[i];
        first *= (uint64_t)h->rates[i];
        for (size_t k = 0; k < rows; k++, total++) {
            noise[total] = snac_draw(5, i, first + k);
            sum += (double)noise[total];
            squares += (double)noise[total] * (double)noise[total];
        }
    }
    assert_true(fabs(sum / (double)total) < 0.1 && fabs(squares / (double)total - 1) < 0.15);
    struct snac_stream given = {0}, drawn = {.noise = SNAC_NOISE_DRAWN, .seed = 5, .first = 8}, off = {0};
    give_noise(&d, &given, noise);
    float *a = decode(&d, team, &given, 4, false), *b = decode(&d, team, &drawn, 4, false), *c = decode(&d, team, &off, 4, false);
    assert_memory_equal(a, b, bytes);
    assert_memory_not_equal(a, c, bytes);
    free(a);
    free(b);
    free(c);
    free(noise);
    close_decoder(&d);
    team_close(team);
}

// TTS-09: the sound is as long as its frames, whatever their number.
static void test_length(void **state)
{
    (void)state;
    struct decoder d;
    struct team *team = open_team(1);
    open_decoder(&d, folders[0], NULL);
    struct snac_stream st = {0};
    for (d.rows = 0; d.rows <= 20; d.rows += 4)
        free(decode(&d, team, &st, 4, false));  // asserts the length
    close_decoder(&d);
    team_close(team);
}

// ---- damaged folders

// A copy of snac-tiny with a changed config.json, or with a tensor's name overwritten in place.
static void make_copy(char *folder, const char *from, const char *to, bool tensor)
{
    strcpy(folder, "/tmp/oxinferd-snac-XXXXXX");
    assert_non_null(mkdtemp(folder));
    static const char *const files[] = {"config.json", "model.safetensors"};
    for (int i = 0; i < 2; i++) {
        char *text, name[128];
        size_t len, n = strlen(from);
        err e = {0};
        assert_int_equal(file_read(path_of(folders[0], files[i]), 1 << 24, &text, &len, &e), ERR_OK);
        struct buf b;
        buf_init(&b, SIZE_MAX);
        char *at = tensor == (i == 1) ? memmem(text, len, from, n) : NULL;
        size_t head = at ? (size_t)(at - text) : len;
        buf_add(&b, text, head);
        if (at) {
            buf_add_str(&b, to);
            buf_add(&b, at + n, len - head - n);
        }
        snprintf(name, sizeof name, "%s/%s", folder, files[i]);
        FILE *f = fopen(name, "wb");
        assert_int_equal(fwrite(b.data, 1, b.len, f), b.len);
        fclose(f);
        buf_done(&b);
        free(text);
    }
}

static void remove_copy(const char *folder)
{
    char name[128];
    snprintf(name, sizeof name, "%s/config.json", folder);
    unlink(name);
    snprintf(name, sizeof name, "%s/model.safetensors", folder);
    unlink(name);
    rmdir(folder);
}

static void test_damaged(void **state)
{
    (void)state;
    static const struct {
        const char *from, *to;
        bool tensor;
        err_code code;
        const char *text;
    } cases[] = {
        {"\"attn_window_size\":null", "\"attn_window_size\":32", false, ERR_UNSUPPORTED, "attn_window_size"},
        {"\"attn_window_size\":null,", "", false, ERR_UNSUPPORTED, "attn_window_size"},
        {"\"decoder_dim\":36", "\"decoder_dim\":4", false, ERR_CORRUPT, "decoder_dim"},
        {"\"decoder_dim\":36", "\"decoder_dim\":38", false, ERR_CORRUPT, "expected ["},
        {"\"decoder_dim\":36", "\"decoder_dim\":\"x\"", false, ERR_CORRUPT, "decoder_dim"},
        {"\"decoder_rates\":[4,3,2]", "\"decoder_rates\":[4,3,0]", false, ERR_CORRUPT, "decoder_rates"},
        {"\"decoder_rates\":[4,3,2]", "\"decoder_rates\":[64,64,64]", false, ERR_UNSUPPORTED, "4096"},
        {"\"decoder_rates\":[4,3,2]", "\"decoder_rates\":[]", false, ERR_CORRUPT, "decoder_rates"},
        {"\"vq_strides\":[4,2,1]", "\"vq_strides\":[4,3,1]", false, ERR_UNSUPPORTED, "multiple"},
        {"\"codebook_size\":24", "\"codebook_size\":25", false, ERR_CORRUPT, "codebook"},
        {"\"depthwise\":true", "\"depthwise\":false", false, ERR_CORRUPT, "decoder.model"},
        {"\"noise\":true", "\"noise\":false", false, ERR_CORRUPT, "decoder.model"},
        {"decoder.model.0.bias", "decoder.model.0.bios", true, ERR_CORRUPT, "decoder.model.0.bias"},
        {"model.2.block.0.alpha", "model.2.block.0.alphe", true, ERR_CORRUPT, "alpha"},
        {"0.out_proj.parametrizations.weight.original0", "0.out_proj.parametrizations.weight.originalX", true, ERR_CORRUPT,
         "original0"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char folder[64];
        struct weights *w;
        struct snac *s = NULL;
        const struct cpu_ops *ops;
        struct packed *p = packed_new();
        err e = {0};
        make_copy(folder, cases[i].from, cases[i].to, cases[i].tensor);
        if (cpu_select(NULL, &ops, &e) || weights_open(folder, &w, &e))
            fail_msg("%s", e.text);
        err_code code = snac_open(w, ops, p, &s, &e);
        if (code != cases[i].code || !strstr(e.text, cases[i].text))
            fail_msg("%s: code %d, '%s'", cases[i].to, code, e.text);
        assert_null(s);
        packed_free(p);
        weights_close(w);
        remove_copy(folder);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_agrees_with_the_package), cmocka_unit_test(test_any_cutting_gives_the_same_bits),
        cmocka_unit_test(test_drawn_noise),             cmocka_unit_test(test_length),
        cmocka_unit_test(test_damaged),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
