// main.c - the command line: finds the command, reads its options, runs it. Exit status: 0 done, 1 failed, 2 wrong use (of a
// command, an option or a setting), 3 the model or machine cannot do this.

#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/mem.h"
#include "codecs/audio_read.h"
#include "config/config.h"
#include "engine/engine.h"
#include "engine/tools.h"
#include "server/keycommand.h"
#include "server/hub/modelcommand.h"
#include "server/hub/modelpath.h"
#include "server/hub/modelref.h"
#include "server/serve.h"
#include "server/version.h"

struct command {
    const char *name, *args, *help;  // without a name: a heading
    int (*run)(int nargs, char **args);
    const char *settings;  // what it takes of them: NULL: none, "": all, or the group that matters
};

static int fail(const err *e)
{
    fprintf(stderr, "oxinferd: %s\n", e->text);
    return e->code == ERR_UNSUPPORTED ? 3 : 1;
}

// What cannot be read as settings is wrong use; what they say may still fail.
static int fail_settings(const err *e)
{
    int status = fail(e);
    return e->code == ERR_INVALID ? 2 : status;
}

static int misuse(const char *fmt, const char *what)
{
    fputs("oxinferd: ", stderr);
    fprintf(stderr, fmt, what);
    fputs("; see oxinferd --help\n", stderr);
    return 2;
}

// ---- options of the offline commands

struct option {
    const char *name;
    const char **text;  // one of text, number and flag is set
    int *number;
    bool *flag;
};

// Reads "--name value", "--name=value" and flags; a word that is no option goes to *ret_word. 0, or the exit status.
static int read_options(int nargs, char **args, const struct option *options, int noptions, const char **ret_word)
{
    for (int i = 0; i < nargs; i++) {
        const char *arg = args[i];
        if (strncmp(arg, "--", 2) != 0) {
            if (*arg == '-' && arg[1])
                return misuse("unknown option '%s': options begin with --", arg);
            if (!ret_word || *ret_word)
                return misuse("'%s' is not expected here", arg);
            *ret_word = arg;
            continue;
        }
        size_t n = strcspn(arg, "=");
        const struct option *o = options;
        while (o < options + noptions && !(strlen(o->name) == n && strncmp(o->name, arg, n) == 0))
            o++;
        if (o == options + noptions)
            return misuse("unknown option '%s'", arg);
        if (o->flag) {
            *o->flag = true;
            continue;
        }
        const char *value = arg[n] ? arg + n + 1 : i + 1 < nargs ? args[++i] : NULL;
        if (!value)
            return misuse("option '%s' needs a value", arg);
        if (o->text) {
            *o->text = value;
            continue;
        }
        char *end;
        long v = strtol(value, &end, 10);
        if (end == value || *end || v < 0 || v > INT_MAX)
            return misuse("'%s' is not a number from 0 up", value);
        *o->number = (int)v;
    }
    return 0;
}

#define MODEL_OPTIONS(m)                                                                                     \
    {"--model", &(m).path, NULL, NULL}, {"--activations", &(m).activations, NULL, NULL},                     \
        {"--kv", &(m).kv, NULL, NULL}, {"--isa", &(m).isa, NULL, NULL}, {"--threads", NULL, &(m).threads, NULL}, \
        {"--context", NULL, &(m).context, NULL}, {"--vocoder", &(m).vocoder, NULL, NULL}

// ---- commands

// Kubernetes shows a container's last words from there. The file is the container runtime's; it is not made.
static void write_last_words(const char *path, const err *e)
{
    FILE *f = *path ? fopen(path, "r+e") : NULL;
    if (!f)
        return;
    if (!ftruncate(fileno(f), 0))
        fprintf(f, "oxinferd: %s\n", e->text);
    fclose(f);
}

static int run_serve(int nargs, char **args)
{
    err e = {0};
    struct config c;
    if (config_load_models(&c, args, nargs, &e)) {
        write_last_words("/dev/termination-log", &e);
        return fail_settings(&e);
    }
    int status = 0;
    if (serve_run(&c, args, nargs, &status, &e)) {
        write_last_words(c.termination_log, &e);
        status = fail(&e);
    }
    config_done(&c);
    return status;
}

static int run_check_config(int nargs, char **args)
{
    err e = {0};
    struct config c;
    if (config_load_models(&c, args, nargs, &e))
        return fail_settings(&e);
    int status = 0;
    for (int i = 0; i < c.strays.len; i++)
        fprintf(stderr, "oxinferd: %s\n", c.strays.items[i]);
    if (serve_check(&c, &e))
        status = fail(&e);
    else
        puts("configuration is valid");
    config_done(&c);
    return status;
}

// "1,2,3" to ids; NULL when it is not such a list.
static int32_t *parse_ids(const char *text, size_t *ret_count)
{
    int32_t *ids = calloc(strlen(text) + 1, sizeof *ids);
    size_t n = 0;
    for (const char *p = text; ids && *p;) {
        char *end;
        long v = strtol(p, &end, 10);
        if (end == p || v < 0 || v > INT32_MAX || (*end && *end != ',')) {
            free(ids);
            return NULL;
        }
        ids[n++] = (int32_t)v;
        p = end + (*end == ',');
    }
    *ret_count = n;
    return ids;
}

static int run_logits(int nargs, char **args)
{
    struct tools_model m = {0};
    const char *list = NULL, *out_path = NULL;
    bool all = false;
    int chunk = 0;
    const struct option options[] = {MODEL_OPTIONS(m), {"--ids", &list, NULL, NULL}, {"--out", &out_path, NULL, NULL},
        {"--lora", &m.lora, NULL, NULL}, {"--chunk", NULL, &chunk, NULL}, {"--all", NULL, NULL, &all}};
    int status = read_options(nargs, args, options, sizeof options / sizeof *options, NULL);
    if (status)
        return status;
    if (!m.path || !list || !out_path)
        return misuse("logits needs --model, --ids and --out%s", "");
    err e = {0};
    size_t nids = 0;
    int32_t *ids = parse_ids(list, &nids);
    if (!ids)
        return misuse("--ids '%s' is not a list of token ids such as 1,2,3", list);
    FILE *out = fopen(out_path, "wb");
    if (!out)
        err_set(&e, ERR_IO, "cannot write '%s'", out_path);
    else if (!tools_logits(&m, ids, nids, all, chunk, out, &e) && fflush(out))
        err_set(&e, ERR_IO, "cannot write '%s'", out_path);
    if (out)
        fclose(out);
    if (out && e.code)
        remove(out_path);
    free(ids);
    return e.code ? fail(&e) : 0;
}

// A path stays what it is; else the path of the model of that name in the store, to be freed.
static err_code find_model(const char *name, char **ret_path, err *e)
{
    struct config c;
    if (file_exists(name)) {
        *ret_path = mem_strdup(name);
        return ERR_OK;
    }
    if (config_load(&c, NULL, 0, e))
        return e->code;
    err_code rc = modelpath_find(&c, name, ret_path, e);
    config_done(&c);
    return rc;
}

static int run_bench(int nargs, char **args)
{
    struct tools_model m = {0};
    const char *word = NULL;
    char *path = NULL;
    struct tools_bench b = {.prompt = 512, .generate = 64, .parallel = 1, .reps = 5};
    const struct option options[] = {MODEL_OPTIONS(m), {"--pp", NULL, &b.prompt, NULL}, {"--tg", NULL, &b.generate, NULL},
        {"--depth", NULL, &b.depth, NULL}, {"--parallel", NULL, &b.parallel, NULL}, {"--reps", NULL, &b.reps, NULL},
        {"--chunk", NULL, &b.chunk, NULL}};
    int status = read_options(nargs, args, options, sizeof options / sizeof *options, &word);
    if (status)
        return status;
    m.path = m.path ? m.path : word;
    if (!m.path)
        return misuse("bench needs --model%s", "");
    err e = {0};
    if (find_model(m.path, &path, &e))
        return fail(&e);
    m.path = path;
    status = tools_bench(&m, &b, stdout, &e) ? fail(&e) : 0;
    free(path);
    return status;
}

static int run_image_check(int nargs, char **args)
{
    struct tools_model m = {0};
    const char *case_path = NULL, *folder = NULL;
    const struct option options[] = {MODEL_OPTIONS(m), {"--case", &case_path, NULL, NULL}, {"--out", &folder, NULL, NULL}};
    int status = read_options(nargs, args, options, sizeof options / sizeof *options, NULL);
    if (status)
        return status;
    if (!m.path || !case_path || !folder)
        return misuse("image-check needs --model, --case and --out%s", "");
    err e = {0};
    return tools_image_check(&m, case_path, folder, &e) ? fail(&e) : 0;
}

// Whether an argument names a model of the store and none is a file.
static bool is_pulled(int nargs, char **args)
{
    struct modelref r;
    bool named = false;
    err ignored;
    for (int i = 0; i < nargs; i++) {
        bool option = strncmp(args[i], "--", 2) == 0, flag = !strcmp(args[i], "--json") || !strcmp(args[i], "--verify");
        if (strcmp(args[i], "--model") == 0 || strncmp(args[i], "--model=", 8) == 0 || (!option && file_exists(args[i])))
            return false;
        named |= !option && !modelref_parse(args[i], &r, &ignored);
        i += option && !flag && !strchr(args[i], '=');  // its value
    }
    return named;
}

static int run_show(int nargs, char **args)
{
    struct tools_model m = {0};
    const char *word = NULL;
    bool stored = false;
    const struct option options[] = {MODEL_OPTIONS(m), {"--json", NULL, NULL, &stored}, {"--verify", NULL, NULL, &stored}};
    if (is_pulled(nargs, args))
        return modelcommand_show(nargs, args);
    int status = read_options(nargs, args, options, sizeof options / sizeof *options, &word);
    if (status)
        return status;
    m.path = m.path ? m.path : word;
    if (!m.path)
        return misuse("show needs the path of a model, or the name of one in the store%s", "");
    if (stored)
        return misuse("--json and --verify are for models of the store, named OWNER/NAME; '%s' is a path", m.path);
    err e = {0};
    return tools_show(&m, stdout, &e) ? fail(&e) : 0;
}

// Samples or features: a file of f32 little-endian.
static float *read_floats(const char *path, size_t *ret_count, err *e)
{
    char *bytes;
    size_t len;
    if (file_read(path, (size_t)1 << 32, &bytes, &len, e))
        return NULL;
    *ret_count = len / sizeof(float);
    return (float *)(void *)bytes;
}

struct bytes {
    const char *data;
    size_t n;
};

static int64_t read_bytes(void *ud, int64_t at, void *out, size_t n)
{
    const struct bytes *b = ud;
    size_t left = (size_t)at < b->n ? b->n - (size_t)at : 0;
    n = n < left ? n : left;
    memcpy(out, b->data + at, n);
    return (int64_t)n;
}

// 16 kHz samples: f32 little-endian of --samples, or the audio file of --wav.
static float *read_samples(const char *raw, const char *wav, size_t *ret_count, err *e)
{
    char *bytes;
    size_t len;
    struct audio a = {0};
    if (raw)
        return read_floats(raw, ret_count, e);
    if (file_read(wav, (size_t)1 << 32, &bytes, &len, e))
        return NULL;
    struct bytes b = {bytes, len};
    err_code code = audio_read(&(struct audio_source){read_bytes, &b, (int64_t)len},
                               &(struct audio_limits){.max_s = 24 * 3600}, &a, e);
    free(bytes);
    *ret_count = a.n;
    return code ? NULL : a.samples;
}

static int close_output(FILE *out, const char *path, err *e)
{
    if (out && fclose(out) && !e->code)
        err_set(e, ERR_IO, "cannot write '%s'", path);
    if (out && e->code)
        remove(path);
    return e->code ? fail(e) : 0;
}

static int run_mel(int nargs, char **args)
{
    struct tools_model m = {0};
    const char *in = NULL, *wav = NULL, *out_path = NULL;
    const struct option options[] = {MODEL_OPTIONS(m), {"--samples", &in, NULL, NULL}, {"--wav", &wav, NULL, NULL},
        {"--out", &out_path, NULL, NULL}};
    int status = read_options(nargs, args, options, sizeof options / sizeof *options, NULL);
    if (status)
        return status;
    if (!m.path || !in == !wav || !out_path)
        return misuse("mel needs --model, --samples or --wav, and --out%s", "");
    err e = {0};
    size_t n;
    float *samples = read_samples(in, wav, &n, &e);
    if (!samples)
        return fail(&e);
    FILE *out = fopen(out_path, "wb");
    if (!out)
        err_set(&e, ERR_IO, "cannot write '%s'", out_path);
    else if (tools_audio_mel(&m, samples, n, out, &e))
        remove(out_path);
    free(samples);
    return close_output(out, out_path, &e);
}

static int run_whisper_logits(int nargs, char **args)
{
    struct tools_model m = {0};
    struct tools_whisper q = {0};
    const char *in = NULL, *list = NULL, *out_path = NULL, *encoder_path = NULL;
    const struct option options[] = {MODEL_OPTIONS(m), {"--mel", &in, NULL, NULL}, {"--ids", &list, NULL, NULL},
        {"--out", &out_path, NULL, NULL}, {"--encoder-out", &encoder_path, NULL, NULL}, {"--reps", NULL, &q.reps, NULL}};
    int status = read_options(nargs, args, options, sizeof options / sizeof *options, NULL);
    if (status)
        return status;
    if (!m.path || !in || !list || !out_path)
        return misuse("whisper-logits needs --model, --mel, --ids and --out%s", "");
    err e = {0};
    double seconds;
    int32_t *ids = parse_ids(list, &q.nids);
    if (!ids)
        return misuse("--ids '%s' is not a list of numbers", list);
    float *features = read_floats(in, &q.nfeatures, &e);
    q.features = features;
    q.ids = ids;
    FILE *out = features ? fopen(out_path, "wb") : NULL, *encoder = out && encoder_path ? fopen(encoder_path, "wb") : NULL;
    if (features && (!out || (encoder_path && !encoder)))
        err_set(&e, ERR_IO, "cannot write '%s'", out ? encoder_path : out_path);
    else if (features && !tools_audio_logits(&m, &q, encoder, out, &seconds, &e))
        printf("{\"encoder_s\": %.4f}\n", seconds);
    if (encoder)
        fclose(encoder);
    free(ids);
    free(features);
    return close_output(out, out_path, &e);
}

static int run_transcribe(int nargs, char **args)
{
    struct tools_model m = {0};
    struct transcribe ask = {0};
    const char *in = NULL, *wav = NULL, *language = NULL, *temperature = NULL;
    int seed = 0;
    const struct option options[] = {MODEL_OPTIONS(m), {"--samples", &in, NULL, NULL}, {"--wav", &wav, NULL, NULL}, {"--language", &language, NULL, NULL},
        {"--prompt", &ask.prompt, NULL, NULL}, {"--temperature", &temperature, NULL, NULL}, {"--seed", NULL, &seed, NULL},
        {"--translate", NULL, NULL, &ask.translate}, {"--timestamps", NULL, NULL, &ask.timestamps},
        {"--fallback", NULL, NULL, &ask.fallback}};
    int status = read_options(nargs, args, options, sizeof options / sizeof *options, NULL);
    if (status)
        return status;
    if (!m.path || !in == !wav)
        return misuse("transcribe needs --model, and --samples or --wav%s", "");
    ask.language = language ? engine_language_code(language) : NULL;
    if (language && !ask.language)
        return misuse("no language is called '%s'", language);
    ask.temperature = temperature ? strtof(temperature, NULL) : 0;
    ask.seed = (uint64_t)seed;
    err e = {0};
    float *samples = read_samples(in, wav, &ask.nsamples, &e);
    ask.samples = samples;
    int rc = !samples || tools_audio_transcribe(&m, &ask, stdout, &e) ? fail(&e) : 0;
    free(samples);
    return rc;
}

static int run_devices(int nargs, char **args)
{
    int threads = 0;
    const struct option options[] = {{"--threads", NULL, &threads, NULL}};
    int status = read_options(nargs, args, options, sizeof options / sizeof *options, NULL);
    if (status)
        return status;
    err e = {0};
    return tools_devices(threads, stdout, &e) ? fail(&e) : 0;
}

// Opens out_path, has it written, and removes it again on failure.
static int write_file(const char *out_path, err_code (*write)(void *arg, FILE *out, err *e), void *arg)
{
    err e = {0};
    FILE *out = fopen(out_path, "wb");
    if (!out)
        err_set(&e, ERR_IO, "cannot write '%s'", out_path);
    else if (!write(arg, out, &e) && fflush(out))
        err_set(&e, ERR_IO, "cannot write '%s'", out_path);
    if (out)
        fclose(out);
    if (out && e.code)
        remove(out_path);
    return e.code ? fail(&e) : 0;
}

static err_code write_snac(void *arg, FILE *out, err *e)
{
    return tools_speech_snac(arg, out, e);
}

static int run_snac_check(int nargs, char **args)
{
    struct tools_snac t = {0};
    const char *out_path = NULL;
    const struct option options[] = {{"--model", &t.model, NULL, NULL}, {"--codes", &t.codes, NULL, NULL},
        {"--noise", &t.noise, NULL, NULL}, {"--isa", &t.isa, NULL, NULL}, {"--threads", NULL, &t.threads, NULL},
        {"--step", NULL, &t.step, NULL}, {"--out", &out_path, NULL, NULL}};
    int status = read_options(nargs, args, options, sizeof options / sizeof *options, NULL);
    if (status)
        return status;
    if (!t.model || !t.codes || !out_path)
        return misuse("snac-check needs --model, --codes and --out%s", "");
    return write_file(out_path, write_snac, &t);
}

struct speak_check {
    struct tools_model m;
    struct tools_speak s;
};

static err_code write_speech(void *arg, FILE *out, err *e)
{
    struct speak_check *c = arg;
    return tools_speech_speak(&c->m, &c->s, stdout, out, e);
}

static int run_speak_check(int nargs, char **args)
{
    struct speak_check c = {0};
    const char *out_path = NULL;
    const struct option options[] = {MODEL_OPTIONS(c.m), {"--text", &c.s.text, NULL, NULL},
        {"--voice", &c.s.voice, NULL, NULL}, {"--seed", &c.s.seed, NULL, NULL}, {"--greedy", NULL, NULL, &c.s.greedy},
        {"--noise", NULL, NULL, &c.s.noise}, {"--max-tokens", NULL, &c.s.max_tokens, NULL}, {"--out", &out_path, NULL, NULL}};
    int status = read_options(nargs, args, options, sizeof options / sizeof *options, NULL);
    if (status)
        return status;
    if (!c.m.path || !c.s.text)
        return misuse("speak-check needs --model and --text%s", "");
    err e = {0};
    if (out_path)
        return write_file(out_path, write_speech, &c);
    return write_speech(&c, NULL, &e) ? fail(&e) : 0;
}

static int run_sample_config(int nargs, char **args)
{
    int status = read_options(nargs, args, NULL, 0, NULL);
    if (!status)
        config_sample(stdout);
    return status;
}

static volatile sig_atomic_t interrupted;

static void interrupt(int signal)
{
    (void)signal;
    interrupted = 1;
}

static int run_quantize(int nargs, char **args)
{
    struct tools_quantize q = {.progress = stderr, .stop = &interrupted};
    const struct option options[] = {{"--type", &q.type, NULL, NULL}, {"--threads", NULL, &q.threads, NULL}};
    int status = read_options(nargs - (nargs > 1), args + (nargs > 1), options, sizeof options / sizeof *options, &q.dst);
    q.src = nargs > 1 ? args[0] : NULL;
    if (status)
        return status;
    if (!q.src || q.src[0] == '-' || !q.dst || !q.type)
        return misuse("quantize needs SRC, DST and --type q8 or q4%s", "");
    struct sigaction on = {.sa_handler = interrupt, .sa_flags = SA_RESTART};
    sigaction(SIGINT, &on, NULL);
    sigaction(SIGTERM, &on, NULL);
    err e = {0};
    char *src = NULL;
    if (find_model(q.src, &src, &e))
        return fail(&e);
    q.src = src;
    status = tools_quantize(&q, &e) ? fail(&e) : 0;
    free(src);
    return status;
}

static const struct command commands[] = {
    {"serve", "[PATH|OWNER/NAME...] [SETTINGS]", "serve models over HTTP; a word is the same as with --model before it", run_serve, ""},
    {"pull", "OWNER/NAME[:QUANT|/SUBFOLDER][@REVISION] [--quiet] [--json] [--verify] [SETTINGS]",
     "fetch a model from a hub into the store; an interrupted one goes on where it was", modelcommand_pull, "Model store"},
    {"list", "[--json] [SETTINGS]", "models in the store", modelcommand_list, "Model store"},
    {"show", "PATH [MODEL OPTIONS] | OWNER/NAME [--json] [--verify] [SETTINGS]",
     "what is in a model and what memory it needs; of one in the store its files and digests", run_show, "Model store"},
    {"rm", "OWNER/NAME... [SETTINGS]", "remove models from the store", modelcommand_rm, "Model store"},
    {"quantize", "SRC DST --type q8|q4 [--threads N]",
     "write the model of a path or a name into the new folder DST, with its weights quantised and packed: it loads without\n"
     "      copying", run_quantize, NULL},
    {"bench", "--model PATH|OWNER/NAME [--pp 512] [--tg 64] [--depth N] [--parallel N] [--reps N] [--chunk N] [MODEL OPTIONS]",
     "measure speed, one JSON line a figure", run_bench, NULL},
    {"devices", "[--threads N]", "CPU features, cores, memory, GPUs, measured ceilings", run_devices, NULL},
    {"key", "add NAME [OPTIONS] | list | rm NAME, with --store FILE, --api-key-file FILE or --config FILE",
     "API keys, kept as hashes; OPTIONS: --weight W --class batch|normal|interactive --rpm N --tpm N --concurrent N\n"
     "      --models A,B --group G --expires YYYY-MM-DD|Nd --admin", keycommand_run, NULL},
    {"check-config", "[PATH|OWNER/NAME...] [SETTINGS]", "read the settings and say what is wrong", run_check_config, ""},
    {"sample-config", "", "print a configuration file with every setting", run_sample_config, NULL},
    {NULL, NULL, "For comparing what is computed, in steps", NULL, NULL},
    {"logits", "--model M --ids 1,2,3 --out FILE [--all] [--chunk N] [--lora DIR] [MODEL OPTIONS]",
     "write logits, f32 little-endian [rows, vocab]", run_logits, NULL},
    {"mel", "--model M --samples FILE|--wav FILE --out FILE",
     "log-mel features of 16 kHz samples (f32 little-endian) or of an audio file, [mels, frames]", run_mel, NULL},
    {"whisper-logits", "--model M --mel FILE --ids 1,2,3 --out FILE [--encoder-out FILE] [--reps N]",
     "Whisper's logits of given features and ids, f32 little-endian [rows, vocab]", run_whisper_logits, NULL},
    {"transcribe", "--model M --samples FILE|--wav FILE [--language L] [--translate] [--timestamps] [--prompt TEXT]\n"
     "      [--temperature T] [--fallback] [--seed N]",
     "segments of 16 kHz samples (f32 little-endian) or of an audio file, one JSON line each", run_transcribe, NULL},
    {"speak-check", "--model M --text T [--voice V] [--seed N] [--greedy] [--noise] [--max-tokens N] [--out FILE]",
     "speak, showing tokens; f32 samples to a file", run_speak_check, NULL},
    {"snac-check", "--model DIR --codes FILE [--noise FILE] [--step N] --out FILE", "decode given codes, f32 samples",
     run_snac_check, NULL},
    {"image-check", "--model M --case FILE.json --out DIR", "one picture from given noise, as numbers", run_image_check, NULL},
};
enum { NCOMMANDS = sizeof commands / sizeof *commands };

static void print_command(const struct command *c)
{
    if (c->name)
        printf("  oxinferd %s%s%s\n      %s\n", c->name, *c->args ? " " : "", c->args, c->help);
    else
        printf("\n%s:\n", c->help);
}

static void print_settings(const char *group)
{
    fputs("\nSettings, also as OXINFERD_NAME in the environment or 'name = value' in a file given with --config FILE:\n" CONFIG_SIZES "\n", stdout);
    config_help(stdout, *group ? group : NULL);
}

static const char model_options[] = "MODEL OPTIONS: --activations int8|f32|bf16, --kv f16|f32|q8, --isa NAME, --threads N, "
                                    "--context N, --vocoder DIR";

static int help(void)
{
    puts("oxinferd " VERSION " - serves OpenAI's HTTP API and runs the models itself\n\nCommands:");
    for (int i = 0; i < NCOMMANDS; i++)
        print_command(&commands[i]);
    printf("\n%s\n'oxinferd COMMAND --help' shows one command.\n", model_options);
    print_settings("");
    return 0;
}

static int help_on(const struct command *c)
{
    print_command(c);
    if (strstr(c->args, "MODEL OPTIONS"))
        printf("\n%s\n", model_options);
    if (c->settings)
        print_settings(c->settings);
    return 0;
}

static const struct command *find_command(const char *name)
{
    for (int i = 0; i < NCOMMANDS; i++)
        if (commands[i].name && strcmp(name, commands[i].name) == 0)
            return &commands[i];
    return NULL;
}

// What other programs call a command, and who begins with an option.
static int unknown_command(const char *name)
{
    static const char *const others[][2] = {{"run", "serve"}, {"start", "serve"}, {"ls", "list"}, {"models", "list"}, {"download", "pull"},
        {"remove", "rm"}, {"delete", "rm"}, {"info", "show"}, {"inspect", "show"}, {"keys", "key"}, {"benchmark", "bench"}};
    char text[200];
    if (*name == '-')
        return misuse("'%s' comes before a command; expected: oxinferd serve OPTIONS", name);
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        snprintf(text, sizeof text, "unknown command '%%s'; here it is: oxinferd %s", others[i][1]);
        if (strcmp(name, others[i][0]) == 0)
            return misuse(text, name);
    }
    return misuse(file_exists(name) ? "'%s' is no command; to serve a model: oxinferd serve --model PATH" : "unknown command '%s'", name);
}

int main(int argc, char **argv)
{
    if (argc < 2)
        return misuse("a command is needed%s", "");
    const char *name = argv[1];
    if (strcmp(name, "--help") == 0 || strcmp(name, "-h") == 0 || strcmp(name, "help") == 0) {
        const struct command *about = argc > 2 ? find_command(argv[2]) : NULL;
        return about ? help_on(about) : help();
    }
    if (strcmp(name, "--version") == 0 || strcmp(name, "-V") == 0 || strcmp(name, "version") == 0)
        return puts("oxinferd " VERSION) < 0;
    const struct command *c = find_command(name);
    if (!c)
        return unknown_command(name);
    for (int i = 2; i < argc; i++)
        if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0)
            return help_on(c);
    return c->run(argc - 2, argv + 2);
}
