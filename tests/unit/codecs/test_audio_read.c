// Sound files to 16 kHz mono: every rate and encoding gives the same tone, no channel is lost, odd headers are read where
// samples exist, damage never crashes, and what is not read is named.
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <sndfile.h>

#include "codecs/audio_read.h"
#include "tests/helpers/sound.h"

static const struct audio_limits limits = {60, NULL};

static err_code try(const void *data, size_t n, struct audio *ret, err *e)
{
    struct sound_memory m = {data, n};
    struct audio_source src = sound_source(&m);
    *e = (err){0};
    return audio_read(&src, &limits, ret, e);
}

static struct audio read_ok(const struct buf *b)
{
    struct audio a;
    err e;
    if (try(b->data, b->len, &a, &e))
        fail_msg("%s", e.text);
    return a;
}

static void refused(const void *data, size_t n, err_code code, const char *why)
{
    struct audio a;
    err e;
    assert_int_equal(try(data, n, &a, &e), code);
    if (!strstr(e.text, why))
        fail_msg("'%s' does not say '%s'", e.text, why);
}

// WHI-04: one tone in every rate and encoding. Tolerances beside what was seen.
static void test_rates_and_encodings(void **state)
{
    (void)state;
    static const int rates[] = {8000, 11025, 16000, 22050, 24000, 32000, 44100, 48000, 96000};
    static const struct {
        int tag, bits;
        double noise;  // of the rest; seen: 8 bits 0.0023, A-law 0.0037, mu-law 0.0060, 16 bits 9e-6, others below 1e-6
    } kinds[] = {{1, 8, 0.005}, {1, 16, 1e-4}, {1, 24, 1e-4}, {1, 32, 1e-4}, {3, 32, 1e-4}, {3, 64, 1e-4}, {6, 8, 0.01}, {7, 8, 0.01}};
    for (size_t r = 0; r < sizeof rates / sizeof *rates; r++)
        for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++)
            for (int how = 0; how < 3; how++) {
                struct sound_wav w = {kinds[k].tag, kinds[k].bits, 1 + how % 2, rates[r], how == 1, how == 2};
                float *tone = sound_tone(500, 0.5, w.rate, w.channels, -1, (size_t)w.rate * 2);
                struct buf b;
                buf_init(&b, 1 << 24);
                sound_wav(&b, &w, tone, (size_t)w.rate * 2);
                struct audio a = read_ok(&b);
                assert_int_equal(a.rate, w.rate);
                assert_int_equal(a.channels, w.channels);
                assert_true(fabs(a.seconds - 2) < 1e-9);
                assert_in_range(a.n, 31999, 32001);
                double level = sound_level(a.samples + 8000, 16000, 500, 16000);
                double rms = sound_rms(a.samples + 8000, 16000), rest = sqrt(fabs(rms * rms - level * level / 2));
                if (fabs(level - 0.5) > 0.005 || rest > kinds[k].noise)  // seen: level off by 0.0044 (8 bits)
                    fail_msg("%d Hz, tag %d, %d bits: level %.5f, rest %.5f", w.rate, w.tag, w.bits, level, rest);
                free(a.samples);
                free(tone);
                buf_done(&b);
            }
}

// WHI-05: a voice on any channel is heard; opposite phases cancel, as an average does.
static void test_channels(void **state)
{
    (void)state;
    for (int channels = 1; channels <= 8; channels++)
        for (int on = 0; on < channels; on++) {
            struct sound_wav w = {1, 16, channels, 16000, false, false};
            float *tone = sound_tone(500, 0.8, 16000, channels, on, 16000);
            struct buf b;
            buf_init(&b, 1 << 24);
            sound_wav(&b, &w, tone, 16000);
            struct audio a = read_ok(&b);
            assert_true(fabs(sound_level(a.samples, a.n, 500, 16000) - 0.8 / channels) < 1e-4);  // seen: 2.2e-5
            free(a.samples);
            free(tone);
            buf_done(&b);
        }
    struct sound_wav w = {1, 16, 2, 16000, false, false};
    float *tone = sound_tone(500, 0.8, 16000, 2, 0, 16000);
    for (int i = 0; i < 16000; i++)
        tone[2 * i + 1] = -tone[2 * i];
    struct buf b;
    buf_init(&b, 1 << 24);
    sound_wav(&b, &w, tone, 16000);
    struct audio a = read_ok(&b);
    assert_int_equal(a.n, 16000);
    assert_true(sound_rms(a.samples, a.n) < 1e-4);
    free(a.samples);
    free(tone);
    buf_done(&b);
}

// WHI-14. Each header stands before the same 1000 samples.
struct odd {
    const char *riff;
    uint32_t riff_size, data_size;
    size_t cut;           // bytes of samples that are there
    const char *chunk;    // one more before "fmt " (or behind it with behind)
    uint32_t chunk_size;
    size_t chunk_bytes;
    bool behind;
    size_t want;          // samples; 0: refused
};

static void odd_file(const struct odd *o, const struct sound_wav *w, const float *tone, struct buf *b)
{
    static const char filler[100] = {0};
    buf_init(b, 1 << 20);
    sound_chunk(b, w, o->riff, o->riff_size);
    buf_add_str(b, "WAVE");
    for (int behind = 0; behind < 2; behind++) {
        if (behind)
            sound_format(b, w);
        if (o->chunk && o->behind == (behind == 1)) {
            sound_chunk(b, w, o->chunk, o->chunk_size);
            buf_add(b, filler, o->chunk_bytes);
        }
    }
    sound_chunk(b, w, "data", o->data_size);
    size_t at = b->len;
    sound_encode(b, w, tone, 1000);
    b->len = at + o->cut;
}

static void test_odd_headers(void **state)
{
    (void)state;
    static const struct odd odds[] = {
        {"RIFF", 0, 2000, 2000, NULL, 0, 0, false, 1000},
        {"RIFF", UINT32_MAX, UINT32_MAX, 2000, NULL, 0, 0, false, 1000},
        {"RIFF", 36, 0, 2000, NULL, 0, 0, false, 1000},
        {"RIFF", 2036, 1 << 30, 2000, NULL, 0, 0, false, 1000},
        {"RIFF", 2036, 1001, 2000, NULL, 0, 0, false, 500},
        {"RIFF", 2036, 2000, 1501, NULL, 0, 0, false, 750},
        {"RIFF", 2036, 2000, 0, NULL, 0, 0, false, 0},
        {"RIFF", 2036, 2000, 1, NULL, 0, 0, false, 0},
        {"RIFF", 2036, 2000, 2000, "LIST", 26, 26, false, 1000},
        {"RIFF", 2036, 2000, 2000, "bext", 27, 28, true, 1000},
        {"RIFF", 2036, 2000, 2000, "junk", 27, 27, false, 1000},  // odd, and not padded
        {"RIFF", 2036, 2000, 2000, "junk", 27, 27, true, 1000},
        {"RIFF", 2036, 2000, 2000, "data", 40, 40, false, 1000},  // data before its format is known
        {"RIFF", 2036, 2000, 2000, "LIST", 1 << 30, 26, false, 0},
        {"RIFF", 2036, 2000, 2000, "LIST", UINT32_MAX, 0, false, 0},
        {"RF64", UINT32_MAX, UINT32_MAX, 2000, "ds64", 28, 28, false, 1000},
        {"RIFX", 2036, 2000, 2000, NULL, 0, 0, false, 1000},
    };
    for (size_t i = 0; i < sizeof odds / sizeof *odds; i++) {
        struct sound_wav w = {1, 16, 1, 16000, false, !strcmp(odds[i].riff, "RIFX")};
        float *tone = sound_tone(500, 0.5, 16000, 1, -1, 1000);
        struct buf b;
        odd_file(&odds[i], &w, tone, &b);
        struct audio a;
        err e;
        err_code rc = try(b.data, b.len, &a, &e);
        if (rc != (odds[i].want ? ERR_OK : ERR_INVALID) || (!rc && a.n != odds[i].want))
            fail_msg("header %zu: %s, %zu samples", i, e.text, rc ? 0 : a.n);
        for (size_t k = 0; !rc && k < a.n; k++)
            assert_true(fabsf(a.samples[k] - tone[k]) < 1e-4f);
        if (!rc)
            free(a.samples);
        free(tone);
        buf_done(&b);
    }
}

static void test_bad_formats(void **state)
{
    (void)state;
    static const struct {
        struct sound_wav w;
        err_code code;
        const char *why;
    } rows[] = {
        {{1, 16, 0, 16000, false, false}, ERR_INVALID, "0 channels"}, {{1, 16, 200, 16000, false, false}, ERR_INVALID, "200 channels"},
        {{1, 16, 1, 0, false, false}, ERR_INVALID, "0 Hz"}, {{1, 16, 1, 10000000, false, false}, ERR_INVALID, "10000000 Hz"},
        {{1, 40, 1, 16000, false, false}, ERR_INVALID, "40 bits"}, {{3, 16, 1, 16000, false, false}, ERR_INVALID, "16 bits"},
        {{0x55, 16, 1, 16000, false, false}, ERR_UNSUPPORTED, "MP3 in WAV"}, {{0x161, 16, 1, 16000, true, false}, ERR_UNSUPPORTED, "WMA"},
        {{0x1234, 16, 1, 16000, false, false}, ERR_UNSUPPORTED, "0x1234"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct buf b;
        buf_init(&b, 1 << 20);
        sound_chunk(&b, &rows[i].w, "RIFF", 0);
        buf_add_str(&b, "WAVE");
        sound_format(&b, &rows[i].w);
        sound_chunk(&b, &rows[i].w, "data", 0);
        for (int k = 0; k < 4000; k++)
            buf_add_char(&b, 0);
        refused(b.data, b.len, rows[i].code, rows[i].why);
        buf_done(&b);
    }
}

// WHI-15: named by content.
static void test_other_formats(void **state)
{
    (void)state;
    static const struct {
        const char *head;
        size_t n;
        err_code code;
        const char *why;
    } rows[] = {
        {"\x1A\x45\xDF\xA3\x9f\x42\x86\x81", 8, ERR_UNSUPPORTED, "webm"}, {"\0\0\0\x20" "ftypM4A \0\0", 14, ERR_UNSUPPORTED, "m4a"},
        {"\0\0\0\x20" "ftypisom\0\0", 14, ERR_UNSUPPORTED, "mp4"}, {"\xff\xf1\x50\x80\0\x1f", 6, ERR_UNSUPPORTED, "aac"},
        {"\xff\xf9\x50\x80\0\x1f", 6, ERR_UNSUPPORTED, "aac"}, {"#!AMR\n", 6, ERR_UNSUPPORTED, "amr"},
        {"FORM\0\0\0\0AIFF", 12, ERR_UNSUPPORTED, "aiff"}, {"", 0, ERR_INVALID, "empty"}, {"abc", 3, ERR_INVALID, "text"},
        {"this is a text file called a.wav", 32, ERR_INVALID, "text"}, {"RIF", 3, ERR_INVALID, "text"},
        {"\x89PNG\r\n\x1a\n\0\0\0\0\0\0\0\0", 16, ERR_INVALID, "unknown data"}, {"\0\0\0", 3, ERR_INVALID, "few bytes"},
        {"RIFF\0\0\0\0AVI ", 12, ERR_UNSUPPORTED, "avi"}, {"RIFF\0\0\0\0WAVE", 12, ERR_INVALID, "'fmt '"},
        {"fLaC", 4, ERR_INVALID, "flac"}, {"OggS\0\2\0\0\0\0\0\0\0\0\0\0", 16, ERR_INVALID, "ogg"}, {"ID3\4\0\0\0\0\0\0", 10, ERR_INVALID, "mp3"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        refused(rows[i].head, rows[i].n, rows[i].code, rows[i].why);
        if (rows[i].code == ERR_UNSUPPORTED)
            refused(rows[i].head, rows[i].n, rows[i].code, "wav, flac, mp3 and ogg");
    }
}

// ---- compressed formats, written by libsndfile as a file that can be corrected

static sf_count_t vio_length(void *ud)
{
    return (sf_count_t)((struct buf *)ud)->len;
}

static sf_count_t place;

static sf_count_t vio_seek(sf_count_t offset, int whence, void *ud)
{
    return place = offset + (whence == SEEK_SET ? 0 : whence == SEEK_CUR ? place : vio_length(ud));
}

static sf_count_t vio_read(void *out, sf_count_t n, void *ud)
{
    const struct buf *b = ud;
    sf_count_t left = (sf_count_t)b->len - place, k = n < left ? n : left;
    memcpy(out, b->data + place, (size_t)k);
    place += k;
    return k;
}

static sf_count_t vio_write(const void *p, sf_count_t n, void *ud)
{
    struct buf *b = ud;
    while (b->len < (size_t)(place + n))
        buf_add_char(b, 0);
    memcpy(b->data + place, p, (size_t)n);
    place += n;
    return n;
}

static sf_count_t vio_tell(void *ud)
{
    (void)ud;
    return place;
}

static void compress(struct buf *b, int format, int rate, int channels, const float *samples, size_t frames)
{
    SF_VIRTUAL_IO vio = {vio_length, vio_seek, vio_read, vio_write, vio_tell};
    SF_INFO info = {.samplerate = rate, .channels = channels, .format = format};
    buf_init(b, 1 << 24);
    place = 0;
    SNDFILE *f = sf_open_virtual(&vio, SFM_WRITE, &info, b);
    assert_non_null(f);
    assert_int_equal(sf_writef_float(f, samples, (sf_count_t)frames), frames);
    sf_close(f);
}

static const struct packed {
    int format, rate, channels;
    const char *container;
    double more_s;  // how much longer than 2 s; seen: whole blocks of ADPCM 0.034, others 0
} packed[] = {
    {SF_FORMAT_FLAC | SF_FORMAT_PCM_16, 44100, 2, "flac", 0.0001}, {SF_FORMAT_FLAC | SF_FORMAT_PCM_24, 8000, 1, "flac", 0.0001},
    {SF_FORMAT_OGG | SF_FORMAT_VORBIS, 44100, 2, "ogg", 0.0001}, {SF_FORMAT_OGG | SF_FORMAT_VORBIS, 11025, 1, "ogg", 0.0001},
    {SF_FORMAT_OGG | SF_FORMAT_OPUS, 48000, 2, "ogg", 0.01}, {SF_FORMAT_OGG | SF_FORMAT_OPUS, 16000, 1, "ogg", 0.01},
    {SF_FORMAT_MPEG | SF_FORMAT_MPEG_LAYER_III, 44100, 2, "mp3", 0.01},
    {SF_FORMAT_MPEG | SF_FORMAT_MPEG_LAYER_III, 22050, 1, "mp3", 0.01},
    {SF_FORMAT_MPEG | SF_FORMAT_MPEG_LAYER_III, 8000, 1, "mp3", 0.01},
    {SF_FORMAT_WAV | SF_FORMAT_IMA_ADPCM, 16000, 1, "wav", 0.05}, {SF_FORMAT_WAV | SF_FORMAT_MS_ADPCM, 16000, 1, "wav", 0.05},
    {SF_FORMAT_WAV | SF_FORMAT_GSM610, 8000, 1, "wav", 0.05},
};
enum { NPACKED = sizeof packed / sizeof *packed };

static void test_compressed(void **state)
{
    (void)state;
    for (int i = 0; i < NPACKED; i++) {
        const struct packed *p = &packed[i];
        float *tone = sound_tone(500, 0.5, p->rate, p->channels, p->channels - 1, (size_t)p->rate * 2);
        struct buf b;
        compress(&b, p->format, p->rate, p->channels, tone, (size_t)p->rate * 2);
        struct audio a = read_ok(&b);
        assert_string_equal(a.container, p->container);
        double more = a.seconds - 2, level = sound_level(a.samples + 8000, 16000, 500, 16000) * p->channels;
        if (more < -1e-4 || more > p->more_s || fabs(level - 0.5) > 0.01)  // seen: 0.0037 (Vorbis)
            fail_msg("%x: %.4f s more, level %.4f", (unsigned)p->format, more, level);
        free(a.samples);
        free(tone);
        buf_done(&b);
    }
}

// A file cut off anywhere gives the part that is there or an error; damage in the middle is survived.
static void test_cut_and_damaged(void **state)
{
    (void)state;
    for (int i = 0; i < NPACKED; i++) {
        const struct packed *p = &packed[i];
        float *tone = sound_tone(500, 0.5, p->rate, p->channels, -1, (size_t)p->rate * 2);
        for (size_t k = 0; k < (size_t)(p->rate * p->channels * 2); k++)  // noise, so that there are many pages and frames
            tone[k] += (float)((k * 2654435761u >> 8 & 0xFFFF) / 65536.0 - 0.5) * 0.5f;
        struct buf b;
        compress(&b, p->format, p->rate, p->channels, tone, (size_t)p->rate * 2);
        size_t most = 0;
        for (size_t k = 0; k < 60; k++) {
            size_t n = k < 30 ? k * 7 : b.len * k / 60;
            char *piece = malloc(n + 1);  // of its own, so that reading past it is seen
            memcpy(piece, b.data, n);
            struct audio a;
            err e;
            if (try(piece, n, &a, &e) == ERR_OK) {
                most = a.n > most ? a.n : most;
                assert_true(a.n < 40000);
                free(a.samples);
            }
            free(piece);
        }
        if (most < 12000)  // seen: 15576 (one page of a small Opus file) to 32544
            fail_msg("%x: %zu bytes, but no cut gave more than %zu samples", (unsigned)p->format, b.len, most);
        for (size_t k = b.len / 2; k < b.len / 2 + 40 && k < b.len; k++)
            b.data[k] = (char)(b.data[k] * 31 + 7);
        struct audio a;
        err e;
        if (try(b.data, b.len, &a, &e) == ERR_OK)
            free(a.samples);
        free(tone);
        buf_done(&b);
    }
}

// Files of variable bit rate: without a table of contents the length is a guess, and joined files have one table each.
static void test_mp3_to_its_end(void **state)
{
    (void)state;
    size_t n = 4 * 24000;
    float *samples = sound_tone(500, 0.5, 24000, 1, -1, n);
    for (size_t i = n / 2; i < n; i++)  // the second half costs more bits
        samples[i] = (float)((i * 2654435761u >> 8 & 0xFFFF) / 65536.0 - 0.5);
    struct buf b, joined;
    compress(&b, SF_FORMAT_MPEG | SF_FORMAT_MPEG_LAYER_III, 24000, 1, samples, n);
    struct audio a = read_ok(&b);
    assert_true(fabs(a.seconds - 4) < 0.001);
    free(a.samples);
    buf_init(&joined, 1 << 24);
    buf_add(&joined, b.data, b.len);
    buf_add(&joined, b.data, b.len);
    a = read_ok(&joined);
    assert_true(a.seconds > 7.9 && a.seconds < 8.2);
    free(a.samples);
    memset(b.data + 4, 0, 150);  // the table in the first frame
    a = read_ok(&b);
    assert_true(a.seconds > 3.99 && a.seconds < 4.2);
    free(a.samples);
    free(samples);
    buf_done(&b);
    buf_done(&joined);
}

// Two Ogg Vorbis files joined are one longer file.
static void test_chained_vorbis(void **state)
{
    (void)state;
    float *tone = sound_tone(500, 0.5, 16000, 1, -1, 16000);
    struct buf b, joined;
    compress(&b, SF_FORMAT_OGG | SF_FORMAT_VORBIS, 16000, 1, tone, 16000);
    buf_init(&joined, 1 << 24);
    buf_add(&joined, b.data, b.len);
    buf_add(&joined, b.data, b.len);
    struct audio a = read_ok(&joined);
    assert_in_range(a.n, 31000, 33000);
    free(a.samples);
    free(tone);
    buf_done(&b);
    buf_done(&joined);
}

static void test_limits(void **state)
{
    (void)state;
    struct sound_wav w = {1, 16, 1, 8000, false, false};
    float *silence = sound_tone(1, 0, 8000, 1, -1, 8000 * 3);
    struct buf b;
    buf_init(&b, 1 << 20);
    sound_wav(&b, &w, silence, 8000 * 3);
    struct sound_memory m = {b.data, b.len};
    struct audio_source src = sound_source(&m);
    struct audio a;
    err e = {0};
    struct audio_limits three = {3, NULL}, two = {2, NULL};
    assert_int_equal(audio_read(&src, &three, &a, &e), ERR_OK);
    free(a.samples);
    assert_int_equal(audio_read(&src, &two, &a, &e), ERR_INVALID);
    assert_non_null(strstr(e.text, "2 seconds"));
    atomic_bool stop = true;
    struct audio_limits stopped = {3, &stop};
    assert_int_equal(audio_read(&src, &stopped, &a, &e), ERR_CANCELLED);
    free(silence);
    buf_done(&b);
}

static void test_no_numbers(void **state)
{
    (void)state;
    struct sound_wav w = {3, 32, 1, 22050, false, false};
    float values[4000];
    for (int i = 0; i < 4000; i++)
        values[i] = i % 3 == 0 ? (float)NAN : i % 3 == 1 ? (i % 2 ? INFINITY : 3e38f) : 0.25f;
    struct buf b;
    buf_init(&b, 1 << 20);
    sound_wav(&b, &w, values, 4000);
    struct audio a = read_ok(&b);
    for (size_t i = 0; i < a.n; i++)
        assert_true(isfinite(a.samples[i]));
    free(a.samples);
    buf_done(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rates_and_encodings),
        cmocka_unit_test(test_channels),
        cmocka_unit_test(test_odd_headers),
        cmocka_unit_test(test_bad_formats),
        cmocka_unit_test(test_other_formats),
        cmocka_unit_test(test_compressed),
        cmocka_unit_test(test_cut_and_damaged),
        cmocka_unit_test(test_mp3_to_its_end),
        cmocka_unit_test(test_chained_vorbis),
        cmocka_unit_test(test_limits),
        cmocka_unit_test(test_no_numbers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
