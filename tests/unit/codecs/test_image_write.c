// Files written from known pixels are read back by the libraries' own readers.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jpeglib.h>
#include <png.h>
#include <webp/decode.h>

#include "codecs/base64.h"
#include "codecs/image_write.h"

enum { W = 61, H = 37 };

static void picture(uint8_t *rgb)
{
    for (int y = 0; y < H; y++)
        for (int x = 0; x < W; x++) {
            uint8_t *p = rgb + 3 * (y * W + x);
            p[0] = (uint8_t)(x * 4);
            p[1] = (uint8_t)(y * 6);
            p[2] = (uint8_t)((x + y) * 2);
        }
}

static double mean_off(const uint8_t *a, const uint8_t *b)
{
    double sum = 0;
    for (int i = 0; i < 3 * W * H; i++)
        sum += abs(a[i] - b[i]);
    return sum / (3 * W * H);
}

static uint8_t *write_one(enum image_format format, const uint8_t *rgb, int quality, size_t *ret_len)
{
    uint8_t *data;
    err e = {0};
    if (image_write(format, rgb, W, H, quality, &data, ret_len, &e))
        fail_msg("%s", e.text);
    return data;
}

static void png_is_exact(void **state)
{
    (void)state;
    uint8_t rgb[3 * W * H], back[3 * W * H];
    size_t n;
    picture(rgb);
    uint8_t *data = write_one(IMAGE_PNG, rgb, 0, &n);
    png_image image = {.version = PNG_IMAGE_VERSION};
    assert_true(png_image_begin_read_from_memory(&image, data, n));
    assert_int_equal(image.width, W);
    assert_int_equal(image.height, H);
    image.format = PNG_FORMAT_RGB;
    assert_true(png_image_finish_read(&image, NULL, back, 0, NULL));
    assert_memory_equal(rgb, back, sizeof rgb);
    size_t again;
    uint8_t *twice = write_one(IMAGE_PNG, rgb, 100, &again);  // the same bytes, whatever the quality
    assert_int_equal(again, n);
    assert_memory_equal(data, twice, n);
    free(data);
    free(twice);
}

static void read_jpeg(const uint8_t *data, size_t n, uint8_t *rgb)
{
    struct jpeg_decompress_struct c;
    struct jpeg_error_mgr manager;
    c.err = jpeg_std_error(&manager);
    jpeg_create_decompress(&c);
    jpeg_mem_src(&c, data, n);
    jpeg_read_header(&c, TRUE);
    jpeg_start_decompress(&c);
    assert_int_equal(c.output_width, W);
    assert_int_equal(c.output_height, H);
    while (c.output_scanline < H) {
        JSAMPROW row = rgb + (size_t)c.output_scanline * W * 3;
        jpeg_read_scanlines(&c, &row, 1);
    }
    jpeg_finish_decompress(&c);
    jpeg_destroy_decompress(&c);
}

static void jpeg_by_quality(void **state)
{
    (void)state;
    uint8_t rgb[3 * W * H], back[3 * W * H];
    size_t best, least;
    picture(rgb);
    uint8_t *data = write_one(IMAGE_JPEG, rgb, 100, &best);
    read_jpeg(data, best, back);
    assert_true(mean_off(rgb, back) < 1.5);  // seen: 0.5
    free(data);
    data = write_one(IMAGE_JPEG, rgb, 0, &least);
    read_jpeg(data, least, back);
    assert_true(mean_off(rgb, back) < 40);  // seen: 20
    assert_true(least < best / 2);
    free(data);
}

static void webp_by_quality(void **state)
{
    (void)state;
    uint8_t rgb[3 * W * H];
    size_t best, least;
    int w, h;
    picture(rgb);
    uint8_t *data = write_one(IMAGE_WEBP, rgb, 100, &best);
    uint8_t *back = WebPDecodeRGB(data, best, &w, &h);
    assert_int_equal(w, W);
    assert_int_equal(h, H);
    assert_true(mean_off(rgb, back) < 4);  // seen: 1.7
    WebPFree(back);
    free(data);
    data = write_one(IMAGE_WEBP, rgb, 0, &least);
    assert_true(least < best);
    free(data);
}

static void sides_are_checked(void **state)
{
    (void)state;
    uint8_t rgb[3] = {0}, *data;
    size_t n;
    err e = {0};
    assert_int_equal(image_write(IMAGE_WEBP, rgb, 20000, 1, 90, &data, &n, &e), ERR_INVALID);
    assert_non_null(strstr(e.text, "16383"));
    assert_int_equal(image_write(IMAGE_JPEG, rgb, 1, 70000, 90, &data, &n, &e), ERR_INVALID);
    assert_int_equal(image_write(IMAGE_PNG, rgb, 0, 1, 90, &data, &n, &e), ERR_INVALID);
}

static void names(void **state)
{
    (void)state;
    enum image_format f;
    assert_true(image_write_find("webp", &f) && f == IMAGE_WEBP);
    assert_false(image_write_find("PNG", &f));
    assert_false(image_write_find("gif", &f));
    assert_string_equal(image_write_type(IMAGE_JPEG), "image/jpeg");
    assert_string_equal(image_write_name(IMAGE_PNG), "png");
}

static void base64(void **state)
{
    (void)state;
    static const char *const pairs[][2] = {{"", ""}, {"f", "Zg=="}, {"fo", "Zm8="}, {"foo", "Zm9v"}, {"foob", "Zm9vYg=="},
                                           {"fooba", "Zm9vYmE="}, {"foobar", "Zm9vYmFy"}, {"\xFF\xFE\xFD", "//79"}};
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) {
        char out[16] = "";
        size_t n;
        assert_true(base64_length(strlen(pairs[i][0]), &n));
        assert_int_equal(n, strlen(pairs[i][1]));
        base64_encode(pairs[i][0], strlen(pairs[i][0]), out);
        assert_memory_equal(out, pairs[i][1], n);
    }
    size_t n;
    assert_false(base64_length(SIZE_MAX, &n));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(png_is_exact),      cmocka_unit_test(jpeg_by_quality), cmocka_unit_test(webp_by_quality),
        cmocka_unit_test(sides_are_checked), cmocka_unit_test(names),           cmocka_unit_test(base64),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
