// test_sdnet.c - the networks of Stable Diffusion against diffusers and transformers, on tiny random pipelines; and the
// exactness rule: the same bits for 1 and 2 lanes, every instruction set, and wherever a forward pass is cut.
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

#include "base/file.h"
#include "engine/image/net.h"
#include "engine/sched/work.h"
#include "engine/weights/weights.h"
#include "kernels/cpu.h"
#include "kernels/team.h"

enum { PARTS = 3 };

struct pipeline {
    struct weights *weights[PARTS];
    struct packed *packed[PARTS];
    struct clip *clip;
    struct unet *unet;
    struct vae *vae;
    json_t *cases;
    struct file_map data;
};

static struct weights *open_part(const char *folder, const char *part)
{
    char path[512];
    struct weights *w;
    err e = {0};
    snprintf(path, sizeof path, "%s/%s", folder, part);
    if (weights_open(path, &w, &e))
        fail_msg("%s", e.text);
    return w;
}

static void open_pipeline(struct pipeline *p, const char *name, const char *isa)
{
    char path[256];
    err e = {0};
    const struct cpu_ops *ops;
    assert_int_equal(cpu_select(isa, &ops, &e), ERR_OK);
    snprintf(path, sizeof path, "tests/fixtures/sd/%s", name);
    *p = (struct pipeline){0};
    p->weights[0] = open_part(path, "text_encoder");
    p->weights[1] = open_part(path, "unet");
    p->weights[2] = open_part(path, "vae");
    if (clip_open(p->weights[0], ops, 1, &p->clip, &p->packed[0], &e) ||
        unet_open(p->weights[1], ops, 1, &p->unet, &p->packed[1], &e) ||
        vae_open(p->weights[2], ops, 1, &p->vae, &p->packed[2], &e))
        fail_msg("%s", e.text);
    snprintf(path, sizeof path, "tests/fixtures/sd/%s/networks.json", name);
    p->cases = json_load_file(path, 0, NULL);
    assert_non_null(p->cases);
    snprintf(path, sizeof path, "tests/fixtures/sd/%s/networks.bin", name);
    assert_int_equal(file_map_open(path, &p->data, &e), ERR_OK);
}

static void close_pipeline(struct pipeline *p)
{
    clip_close(p->clip);
    unet_close(p->unet);
    vae_close(p->vae);
    for (int i = 0; i < PARTS; i++) {
        packed_free(p->packed[i]);
        weights_close(p->weights[i]);
    }
    json_decref(p->cases);
    file_map_close(&p->data);
}

static int number(const json_t *item, const char *key)
{
    return (int)json_integer_value(json_object_get(item, key));
}

static const float *array(const struct pipeline *p, const json_t *item, const char *key)
{
    return (const float *)(const void *)p->data.data + number(item, key);
}

struct run {
    struct net *net;
    struct work *work;
    bool done[2];
};

static void step(struct lane *lane, void *arg)
{
    struct run *r = arg;
    r->done[lane->id] = net_step(r->net, lane, r->work);
}

// To the end; with `cut` a slice is over after every few units of work.
static void run_net(struct net *net, struct team *team, bool cut)
{
    struct work work = {.slice_ns = 0};
    struct run r = {.net = net, .work = cut ? &work : NULL};
    int slices = 0;
    net->part = cut ? 1 : net->part;
    do {
        team_run(team, step, &r);
        if (team_size(team) > 1)
            assert_int_equal(r.done[0], r.done[1]);
        slices++;
    } while (!r.done[0]);
    assert_true(cut ? slices > 50 : slices == 1);
}

struct result {
    float *out;
    const float *want;
    size_t count;
};

// Runs a case; the caller frees out.
static struct result run_case(struct pipeline *p, const json_t *item, struct team *team, bool cut)
{
    const char *name = json_string_value(json_object_get(item, "net"));
    int h = number(item, "h"), w = number(item, "w"), n = number(item, "n"), lanes = team_size(team);
    struct net *net;
    err e = {0};
    struct result r = {.want = array(p, item, "out")};
    int32_t *ids = NULL;
    if (!strcmp(name, "clip")) {
        const json_t *list = json_object_get(item, "ids");
        ids = calloc(json_array_size(list), sizeof *ids);
        for (size_t i = 0; i < json_array_size(list); i++)
            ids[i] = (int32_t)json_integer_value(json_array_get(list, i));
        r.count = json_array_size(list) * (size_t)clip_info(p->clip)->dim;
        assert_int_equal(clip_plan(p->clip, n, lanes, &net, &e), ERR_OK);
    } else if (!strcmp(name, "unet")) {
        r.count = (size_t)(n * 4 * h * w);
        assert_int_equal(unet_plan(p->unet, h, w, n, 77, lanes, &net, &e), ERR_OK);
        assert_int_equal(net_bytes(net), unet_bytes(p->unet, h, w, n, 77, lanes));
    } else {
        int f = vae_info(p->vae)->factor;
        r.count = (size_t)(3 * f * h * f * w);
        assert_int_equal(vae_plan(p->vae, h, w, lanes, &net, &e), ERR_OK);
        assert_int_equal(net_bytes(net), vae_bytes(p->vae, h, w, lanes));
    }
    r.out = calloc(r.count, sizeof(float));
    for (int again = 0; again < 2; again++) {  // a net may be started again
        memset(r.out, 0, r.count * sizeof(float));
        if (ids)
            clip_start(net, ids, r.out);
        else if (!strcmp(name, "unet"))
            unet_start(net, array(p, item, "x"), (float)json_number_value(json_object_get(item, "t")),
                       array(p, item, "states"), r.out);
        else
            vae_start(net, array(p, item, "x"), r.out);
        run_net(net, team, cut);
    }
    net_free(net);
    free(ids);
    return r;
}

// Largest difference, in units of the reference's rms (1: of the pixels' range).
static double difference(const struct result *r, bool pixels)
{
    double worst = 0, square = 0;
    for (size_t i = 0; i < r->count; i++) {
        double d = fabs((double)r->out[i] - (double)r->want[i]);
        worst = d > worst || d != d ? d : worst;
        square += (double)r->want[i] * (double)r->want[i];
    }
    return pixels ? worst : worst / sqrt(square / (double)r->count);
}

static void check_reference(const char *pipeline)
{
    struct pipeline p;
    struct team *team;
    err e = {0};
    open_pipeline(&p, pipeline, "auto");
    assert_int_equal(team_open(1, false, &team, &e), ERR_OK);
    for (size_t i = 0; i < json_array_size(p.cases); i++) {
        const json_t *item = json_array_get(p.cases, i);
        const char *net = json_string_value(json_object_get(item, "net"));
        struct result r = run_case(&p, item, team, false);
        double d = difference(&r, !strcmp(net, "vae"));
        print_message("%s %s %dx%d x%d: worst %.1e\n", pipeline, net, number(item, "h"), number(item, "w"),
                      number(item, "n"), d);
        // seen: clip 2e-6, unet 5e-6, vae 3e-6 of the range (a level is 4e-3)
        assert_true(d < (!strcmp(net, "clip") ? 2e-5 : 5e-5));
        free(r.out);
    }
    team_close(team);
    close_pipeline(&p);
}

static void test_sd1_equals_diffusers(void **state)
{
    (void)state;
    check_reference("tiny-sd1");
}

static void test_sd2_equals_diffusers(void **state)
{
    (void)state;
    check_reference("tiny-sd2");
}

static void check_exact(const char *pipeline)
{
    static const struct {
        const char *isa;
        int lanes;
        bool cut;
    } ways[] = {{"scalar", 1, false}, {"avx2", 1, false}, {"avx512", 1, true}, {"auto", 2, false}, {"auto", 2, true}};
    struct result first[32] = {0};
    for (size_t way = 0; way < sizeof ways / sizeof ways[0]; way++) {
        struct pipeline p;
        struct team *team;
        const struct cpu_ops *ops;
        err e = {0};
        if (cpu_select(ways[way].isa, &ops, &e))
            continue;
        open_pipeline(&p, pipeline, ways[way].isa);
        assert_int_equal(team_open(ways[way].lanes, false, &team, &e), ERR_OK);
        for (size_t i = 0; i < json_array_size(p.cases); i++) {
            struct result r = run_case(&p, json_array_get(p.cases, i), team, ways[way].cut);
            if (way == 0) {
                first[i] = r;
                continue;
            }
            if (memcmp(r.out, first[i].out, r.count * sizeof(float)))
                fail_msg("case %zu of %s differs with %s, %d lanes", i, pipeline, ways[way].isa, ways[way].lanes);
            free(r.out);
        }
        team_close(team);
        close_pipeline(&p);
    }
    for (int i = 0; i < 32; i++)
        free(first[i].out);
}

static void test_sd1_is_exact(void **state)
{
    (void)state;
    check_exact("tiny-sd1");
}

static void test_sd2_is_exact(void **state)
{
    (void)state;
    check_exact("tiny-sd2");
}

// An image of a batch is what it would be alone.
static void test_batch(void **state)
{
    (void)state;
    enum { H = 20, W = 13, COUNT = 4 * H * W };
    struct pipeline p;
    struct team *team;
    err e = {0};
    open_pipeline(&p, "tiny-sd1", "auto");
    assert_int_equal(team_open(1, false, &team, &e), ERR_OK);
    int states = 77 * unet_info(p.unet)->context;
    float *x = calloc(2 * COUNT, sizeof *x), *s = calloc((size_t)(2 * states), sizeof *s), *out = calloc(3 * COUNT, sizeof *x);
    for (int i = 0; i < 2 * COUNT; i++)
        x[i] = sinf((float)(i * i % 1013));
    for (int i = 0; i < 2 * states; i++)
        s[i] = cosf((float)(i % 997));
    for (int n = 1; n <= 2; n++) {
        struct net *net;
        assert_int_equal(unet_plan(p.unet, H, W, n, 77, 1, &net, &e), ERR_OK);
        unet_start(net, n == 1 ? x + COUNT : x, 400, n == 1 ? s + states : s, n == 1 ? out + 2 * COUNT : out);
        run_net(net, team, false);
        net_free(net);
    }
    assert_memory_equal(out + COUNT, out + 2 * COUNT, COUNT * sizeof(float));
    free(x);
    free(s);
    free(out);
    team_close(team);
    close_pipeline(&p);
}

// The same decoder under the names of older files.
static void test_legacy_vae(void **state)
{
    (void)state;
    struct pipeline p;
    struct team *team;
    err e = {0};
    open_pipeline(&p, "tiny-sd1", "auto");
    assert_int_equal(team_open(1, false, &team, &e), ERR_OK);
    struct weights *w = open_part("tests/fixtures/sd", "vae-legacy");
    const struct cpu_ops *ops;
    struct vae *legacy, *modern = p.vae;
    struct packed *packed;
    assert_int_equal(cpu_select("auto", &ops, &e), ERR_OK);
    if (vae_open(w, ops, 1, &legacy, &packed, &e))
        fail_msg("%s", e.text);
    const json_t *item = json_array_get(p.cases, json_array_size(p.cases) - 3);
    struct result a = run_case(&p, item, team, false);
    p.vae = legacy;
    struct result b = run_case(&p, item, team, false);
    p.vae = modern;
    assert_memory_equal(a.out, b.out, a.count * sizeof(float));
    free(a.out);
    free(b.out);
    vae_close(legacy);
    packed_free(packed);
    weights_close(w);
    team_close(team);
    close_pipeline(&p);
}

// Opening another network's file names what is missing; sizes that cannot be are refused.
static void test_errors(void **state)
{
    (void)state;
    struct pipeline p;
    const struct cpu_ops *ops;
    struct unet *u = NULL;
    struct packed *packed = NULL;
    struct net *net = NULL;
    err e = {0};
    open_pipeline(&p, "tiny-sd1", "auto");
    assert_int_equal(cpu_select("auto", &ops, &e), ERR_OK);
    json_t *config = weights_config(p.weights[1]);
    json_object_set_new(config, "class_embed_type", json_string("timestep"));
    assert_int_equal(unet_open(p.weights[1], ops, 1, &u, &packed, &e), ERR_UNSUPPORTED);
    assert_non_null(strstr(e.text, "class_embed_type"));
    json_object_del(config, "class_embed_type");
    json_object_set_new(config, "mid_block_type", json_null());  // a network without that block, not the usual one
    assert_int_equal(unet_open(p.weights[1], ops, 1, &u, &packed, &e), ERR_UNSUPPORTED);
    assert_non_null(strstr(e.text, "mid_block_type"));
    json_object_del(config, "mid_block_type");
    json_array_set_new(json_object_get(config, "up_block_types"), 0, json_string("AttnUpBlock2D"));
    assert_int_equal(unet_open(p.weights[1], ops, 1, &u, &packed, &e), ERR_UNSUPPORTED);
    assert_non_null(strstr(e.text, "AttnUpBlock2D"));
    json_array_set_new(json_object_get(config, "up_block_types"), 0, json_string("UpBlock2D"));
    json_object_set_new(config, "cross_attention_dim", json_integer(35));
    assert_int_equal(unet_open(p.weights[1], ops, 1, &u, &packed, &e), ERR_CORRUPT);
    assert_non_null(strstr(e.text, "attn2.to_k.weight"));
    json_object_set_new(config, "norm_num_groups", json_integer(5));
    assert_int_equal(unet_open(p.weights[1], ops, 1, &u, &packed, &e), ERR_CORRUPT);
    assert_null(u);
    assert_int_equal(unet_plan(p.unet, 0, 8, 1, 77, 1, &net, &e), ERR_INVALID);
    assert_int_equal(vae_plan(p.vae, 8, 100000, 1, &net, &e), ERR_INVALID);
    assert_null(net);
    close_pipeline(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sd1_equals_diffusers), cmocka_unit_test(test_sd2_equals_diffusers),
        cmocka_unit_test(test_sd1_is_exact),         cmocka_unit_test(test_sd2_is_exact),
        cmocka_unit_test(test_batch),                cmocka_unit_test(test_legacy_vae),
        cmocka_unit_test(test_errors),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
