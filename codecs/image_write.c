// image_write.c - PNG by libpng, JPEG by libjpeg, WebP by libwebp. Runs on the thread that asks.
//
// libpng and libjpeg report errors by a jump out of the library: what lives across it is in a struct, not in registers.
#include "codecs/image_write.h"

#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jpeglib.h>
#include <png.h>
#include <webp/encode.h>

enum { PNG_SIDE = 1 << 20, JPEG_SIDE = 65500, FILE_MAX = 1 << 30 };

static const struct {
    const char *name, *type;
    int side;  // the longest
} formats[] = {
    [IMAGE_PNG] = {"png", "image/png", PNG_SIDE},
    [IMAGE_JPEG] = {"jpeg", "image/jpeg", JPEG_SIDE},
    [IMAGE_WEBP] = {"webp", "image/webp", WEBP_MAX_DIMENSION},
};

bool image_write_find(const char *name, enum image_format *ret_format)
{
    for (int i = 0; i < 3; i++) {
        if (strcmp(formats[i].name, name) == 0) {
            *ret_format = (enum image_format)i;
            return true;
        }
    }
    return false;
}

const char *image_write_name(enum image_format format)
{
    return formats[format].name;
}

const char *image_write_type(enum image_format format)
{
    return formats[format].type;
}

struct output {
    uint8_t *data;
    size_t len, cap;
    char why[200];  // the library's message
};

static bool output_add(struct output *o, const uint8_t *p, size_t n)
{
    if (n > FILE_MAX - o->len)
        return false;
    if (o->len + n > o->cap) {
        size_t cap = o->cap ? o->cap : 64 << 10;
        while (cap < o->len + n)
            cap *= 2;
        uint8_t *data = realloc(o->data, cap);
        if (!data)
            return false;
        o->data = data;
        o->cap = cap;
    }
    memcpy(o->data + o->len, p, n);
    o->len += n;
    return true;
}

// ---- PNG

static void png_bytes(png_structp png, png_bytep p, size_t n)
{
    if (!output_add(png_get_io_ptr(png), p, n))
        png_error(png, "no memory for the file");
}

static void png_flush_nothing(png_structp png)
{
    (void)png;
}

static void png_failed(png_structp png, png_const_charp why)
{
    struct output *o = png_get_error_ptr(png);
    snprintf(o->why, sizeof o->why, "%s", why);
    png_longjmp(png, 1);
}

static void png_warned(png_structp png, png_const_charp why)
{
    (void)png;
    (void)why;
}

static bool write_png(struct output *o, const uint8_t *rgb, int width, int height)
{
    png_structp png = png_create_write_struct(PNG_LIBPNG_VER_STRING, o, png_failed, png_warned);
    png_infop info = png ? png_create_info_struct(png) : NULL;
    if (!info) {
        png_destroy_write_struct(&png, NULL);
        return false;
    }
    if (setjmp(png_jmpbuf(png))) {
        png_destroy_write_struct(&png, &info);
        return false;
    }
    png_set_write_fn(png, o, png_bytes, png_flush_nothing);
    png_set_IHDR(png, info, (png_uint_32)width, (png_uint_32)height, 8, PNG_COLOR_TYPE_RGB, PNG_INTERLACE_NONE,
                 PNG_COMPRESSION_TYPE_DEFAULT, PNG_FILTER_TYPE_DEFAULT);
    png_write_info(png, info);
    for (int y = 0; y < height; y++)
        png_write_row(png, rgb + (size_t)y * (size_t)width * 3);
    png_write_end(png, info);
    png_destroy_write_struct(&png, &info);
    return true;
}

// ---- JPEG

struct jpeg_trap {
    struct jpeg_error_mgr manager;  // first: libjpeg hands back a pointer to it
    jmp_buf jump;
    struct output *out;
};

struct jpeg_sink {
    struct jpeg_destination_mgr manager;  // first
    struct output *out;
    uint8_t block[16 << 10];
};

static void jpeg_failed(j_common_ptr c)
{
    struct jpeg_trap *t = (struct jpeg_trap *)c->err;
    char text[JMSG_LENGTH_MAX];
    c->err->format_message(c, text);
    snprintf(t->out->why, sizeof t->out->why, "%.*s", (int)sizeof t->out->why - 1, text);
    longjmp(t->jump, 1);
}

static void jpeg_silent(j_common_ptr c)
{
    (void)c;
}

static void sink_rewind(struct jpeg_sink *s)
{
    s->manager.next_output_byte = s->block;
    s->manager.free_in_buffer = sizeof s->block;
}

static void sink_start(j_compress_ptr c)
{
    sink_rewind((struct jpeg_sink *)c->dest);
}

static void sink_add(j_compress_ptr c, size_t n)
{
    struct jpeg_sink *s = (struct jpeg_sink *)c->dest;
    if (!output_add(s->out, s->block, n)) {
        snprintf(s->out->why, sizeof s->out->why, "no memory for the file");
        longjmp(((struct jpeg_trap *)c->err)->jump, 1);
    }
    sink_rewind(s);
}

static boolean sink_full(j_compress_ptr c)
{
    sink_add(c, sizeof ((struct jpeg_sink *)c->dest)->block);
    return TRUE;
}

static void sink_end(j_compress_ptr c)
{
    sink_add(c, sizeof ((struct jpeg_sink *)c->dest)->block - c->dest->free_in_buffer);
}

static bool write_jpeg(struct output *o, const uint8_t *rgb, int width, int height, int quality)
{
    struct jpeg_compress_struct c;
    struct jpeg_trap trap = {.out = o};
    struct jpeg_sink sink = {.manager = {.init_destination = sink_start, .empty_output_buffer = sink_full,
                                         .term_destination = sink_end}, .out = o};
    c.err = jpeg_std_error(&trap.manager);
    trap.manager.error_exit = jpeg_failed;
    trap.manager.output_message = jpeg_silent;
    if (setjmp(trap.jump)) {
        jpeg_destroy_compress(&c);
        return false;
    }
    jpeg_create_compress(&c);
    c.dest = &sink.manager;
    c.image_width = (JDIMENSION)width;
    c.image_height = (JDIMENSION)height;
    c.input_components = 3;
    c.in_color_space = JCS_RGB;
    jpeg_set_defaults(&c);
    jpeg_set_quality(&c, quality, TRUE);
    if (quality >= 90)  // colours at full resolution
        c.comp_info[0].h_samp_factor = c.comp_info[0].v_samp_factor = 1;
    jpeg_start_compress(&c, TRUE);
    while (c.next_scanline < c.image_height) {
        JSAMPROW row = (JSAMPROW)(uintptr_t)(rgb + (size_t)c.next_scanline * (size_t)width * 3);
        jpeg_write_scanlines(&c, &row, 1);
    }
    jpeg_finish_compress(&c);
    jpeg_destroy_compress(&c);
    return true;
}

// ---- WebP

static int webp_bytes(const uint8_t *p, size_t n, const WebPPicture *picture)
{
    return output_add(picture->custom_ptr, p, n);
}

static bool write_webp(struct output *o, const uint8_t *rgb, int width, int height, int quality)
{
    WebPConfig config;
    WebPPicture picture;
    if (!WebPConfigPreset(&config, WEBP_PRESET_DEFAULT, (float)quality) || !WebPPictureInit(&picture)) {
        snprintf(o->why, sizeof o->why, "libwebp is of another version");
        return false;
    }
    picture.width = width;
    picture.height = height;
    picture.writer = webp_bytes;
    picture.custom_ptr = o;
    bool ok = WebPPictureImportRGB(&picture, rgb, width * 3) && WebPEncode(&config, &picture);
    if (!ok)
        snprintf(o->why, sizeof o->why, "libwebp error %d", (int)picture.error_code);
    WebPPictureFree(&picture);
    return ok;
}

err_code image_write(enum image_format format, const uint8_t *rgb, int width, int height, int quality,
                     uint8_t **ret_data, size_t *ret_len, err *e)
{
    struct output o = {0};
    int side = formats[format].side;
    if (width < 1 || height < 1 || width > side || height > side)
        return err_set_param(e, ERR_INVALID, "size", "a picture of %dx%d cannot be written as %s, whose sides have 1 to %d pixels",
                             width, height, formats[format].name, side);
    bool ok = format == IMAGE_PNG    ? write_png(&o, rgb, width, height)
              : format == IMAGE_JPEG ? write_jpeg(&o, rgb, width, height, quality)
                                     : write_webp(&o, rgb, width, height, quality);
    if (!ok) {
        free(o.data);
        return err_set(e, o.why[0] ? ERR_INTERNAL : ERR_MEMORY, "a picture of %dx%d cannot be written as %s: %s", width, height,
                       formats[format].name, o.why[0] ? o.why : "no memory");
    }
    *ret_data = o.data;
    *ret_len = o.len;
    return ERR_OK;
}
