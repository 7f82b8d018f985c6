// See the header.
#include "server/hub/modelcommand.h"

#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

#include <jansson.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/mem.h"
#include "config/config.h"
#include "server/hub/modelref.h"
#include "server/hub/modelstore.h"
#include "server/hub/pull.h"

enum { MAX_ARGS = 256, MAX_NAMES = 64, REDRAW_MS = 100, LINE_S = 15, SPEED_S = 4 };

// ---- words and settings

struct words {
    bool quiet, json, verify;
    const char *names[MAX_NAMES];
    int nnames;
    struct config config;
};

// What quotes a hub or a file does not speak to the terminal: no C0, DEL or C1.
static void put_line(const char *head, const char *text)
{
    struct buf line;
    buf_init(&line, 1 << 16);
    for (const char *p = text; *p; p++) {
        bool c1 = (unsigned char)p[0] == 0xC2 && (unsigned char)p[1] >= 0x80 && (unsigned char)p[1] < 0xA0;
        buf_add_char(&line, (unsigned char)*p < ' ' || *p == 127 || c1 ? '?' : *p);
        p += c1;
    }
    fprintf(stderr, "%s%s\n", head, line.len ? line.data : "");
    buf_done(&line);
}

static int fail(const err *e)
{
    put_line("oxinferd: ", e->text);
    return e->code == ERR_UNSUPPORTED ? 3 : e->code == ERR_CANCELLED ? 130 : 1;
}

// Of options and settings that cannot be read.
static int fail_words(const err *e)
{
    int status = fail(e);
    return e->code == ERR_INVALID ? 2 : status;
}

static int misuse(const char *text)
{
    fprintf(stderr, "oxinferd: %s; see oxinferd --help\n", text);
    return 2;
}

static bool take_flag(const char *arg, const char *name, bool *ret_flag)
{
    if (strcmp(arg, name) != 0)
        return false;
    *ret_flag = true;
    return true;
}

// Takes names and the command's own flags out of args; what is left is settings.
static err_code read_words(int nargs, char **args, struct words *w, err *e)
{
    char *settings[MAX_ARGS];
    int n = 0;
    *w = (struct words){0};
    for (int i = 0; i < nargs; i++) {
        char *arg = args[i];
        if (take_flag(arg, "--quiet", &w->quiet) || take_flag(arg, "--json", &w->json) ||
            take_flag(arg, "--verify", &w->verify))
            continue;
        bool option = strncmp(arg, "--", 2) == 0;
        if (!option && w->nnames == MAX_NAMES)
            return err_set(e, ERR_INVALID, "more than %d names", MAX_NAMES);
        if (!option) {
            w->names[w->nnames++] = arg;
            continue;
        }
        bool with_value = !strchr(arg, '=') && i + 1 < nargs;
        if (n + 2 > MAX_ARGS)
            return err_set(e, ERR_INVALID, "too many options");
        settings[n++] = arg;
        if (with_value)
            settings[n++] = args[++i];
    }
    return config_load(&w->config, settings, n, e);
}

// ---- interruption

static volatile sig_atomic_t interrupted;

static void interrupt(int signal)
{
    (void)signal;
    interrupted = 1;
}

static bool stop(void *ud)
{
    (void)ud;
    return interrupted;
}

static void catch_signals(void)
{
    struct sigaction on = {.sa_handler = interrupt, .sa_flags = (int)SA_RESETHAND}, off = {.sa_handler = SIG_IGN};
    sigaction(SIGINT, &on, NULL);
    sigaction(SIGTERM, &on, NULL);
    sigaction(SIGPIPE, &off, NULL);
    sigaction(SIGXFSZ, &off, NULL);  // a limit on the size of files is an error like a full disk
}

// ---- progress

struct screen {
    bool quiet, terminal, drawn;
    const char *path;            // of the line that is drawn
    int64_t drawn_ns, began_ns;  // began: of the file
    uint64_t began;              // bytes that it had then
    int64_t mark_ns;             // for the speed of late
    uint64_t mark;
    double speed;                // bytes a second
};

static const char *amount(uint64_t bytes, char out[32])
{
    static const char *const units[] = {"B", "KB", "MB", "GB", "TB"};
    double v = (double)bytes;
    int i = 0;
    for (; v >= 999.5 && i < 4; i++)
        v /= 1000;
    snprintf(out, 32, v < 9.95 && i ? "%.1f %s" : "%.0f %s", v, units[i]);
    return out;
}

static void clear_line(struct screen *s)
{
    if (s->drawn)
        fputs("\r\033[K", stderr);
    s->drawn = false;
}

static void say(void *ud, const char *text)
{
    struct screen *s = ud;
    if (s->quiet)
        return;
    clear_line(s);
    put_line("", text);
}

static int columns(void)
{
    struct winsize w;
    return !ioctl(STDERR_FILENO, TIOCGWINSZ, &w) && w.ws_col > 20 ? w.ws_col : 80;
}

static void draw(struct screen *s, const struct pull_progress *p)
{
    char have[32], size[32], amount_s[32], speed[48] = "", left[32] = "", line[256];
    uint64_t missing = p->all_size > p->all_have ? p->all_size - p->all_have : 0;
    if (s->speed > 1 && missing) {
        long t = (long)((double)missing / s->speed);
        if (t < 100 * 3600)
            snprintf(left, sizeof left, t >= 3600 ? ", %ld:%02ld:%02ld left" : ", %.0ld%02ld:%02ld left", t / 3600,
                     t / 60 % 60, t % 60);
    }
    if (s->speed > 1)
        snprintf(speed, sizeof speed, "  %s/s", amount((uint64_t)s->speed, amount_s));
    int room = columns() - 1;
    const char *name = p->path;
    size_t n = strlen(name), most = room > 70 ? (size_t)room - 50 : 20;
    snprintf(line, sizeof line, "%3.0f%%  %s of %s%s%s", p->size ? 100.0 * (double)p->have / (double)p->size : 100.0,
             amount(p->have, have), amount(p->size, size), speed, left);
    fprintf(stderr, "\r\033[K%s%s  %.*s", n > most ? "..." : "", n > most ? name + n - most + 3 : name,
            room > 20 ? room : 20, line);
    fflush(stderr);
    s->drawn = true;
}

static void measure(struct screen *s, const struct pull_progress *p, int64_t now)
{
    double t = (double)(now - s->mark_ns) * 1e-9;
    if (t < 0.5 || p->have < s->mark)
        return;
    double late = (double)(p->have - s->mark) / t, part = t > SPEED_S ? 1 : t / SPEED_S;
    s->speed = s->speed > 0 ? s->speed + part * (late - s->speed) : late;
    s->mark_ns = now;
    s->mark = p->have;
}

static void finished(struct screen *s, const struct pull_progress *p, int64_t now)
{
    char size[32], speed[32];
    double t = (double)(now - s->began_ns) * 1e-9;
    clear_line(s);
    if (t > 0.5)
        fprintf(stderr, "%s  %s, %s/s\n", p->path, amount(p->size, size),
                amount((uint64_t)((double)(p->size - s->began) / t), speed));
    else
        fprintf(stderr, "%s  %s\n", p->path, amount(p->size, size));
    s->path = NULL;
}

static void progress(void *ud, const struct pull_progress *p)
{
    struct screen *s = ud;
    int64_t now = clock_ns();
    char have[32], size[32];
    if (s->quiet)
        return;
    if (s->path != p->path) {
        s->path = p->path;
        s->began_ns = s->mark_ns = s->drawn_ns = now;
        s->began = s->mark = p->have;
    }
    measure(s, p, now);
    if (p->have == p->size && p->size)
        return;  // said once by finished(), when it was checked
    int64_t pause = s->terminal ? REDRAW_MS * 1000000LL : LINE_S * 1000000000LL;
    if (now - s->drawn_ns < pause)
        return;
    s->drawn_ns = now;
    if (s->terminal)
        draw(s, p);
    else
        fprintf(stderr, "%s  %s of %s\n", p->path, amount(p->have, have), amount(p->size, size));
}

static void whole(void *ud, const struct pull_progress *p)
{
    struct screen *s = ud;
    if (s->quiet)
        return;
    if (s->path != p->path) {
        s->began_ns = clock_ns();
        s->began = p->size;
    }
    finished(s, p, clock_ns());
}

// ---- output

static json_t *json_of(const struct modelstore *s, const struct manifest *m)
{
    struct buf text;
    buf_init(&text, MANIFEST_MAX_BYTES);
    manifest_write(m, &text);
    json_t *j = json_loadb(text.data ? text.data : "", text.len, 0, NULL);
    buf_done(&text);
    char *path = modelstore_serve_path(s, m);
    json_object_set_new(j, "path", json_string(path));
    json_object_set_new(j, "used", json_integer((json_int_t)m->used_unix_s));
    free(path);
    return j;
}

static void print_json(json_t *j)
{
    json_dumpf(j, stdout, JSON_INDENT(1));
    putchar('\n');
    json_decref(j);
}

static void print_row(const char *name, uint64_t bytes, const char *type, const char *when, const char *used, int width)
{
    char size[32];
    printf("%-*s  %8s  %-20s  %-16s%s%s\n", width, name, amount(bytes, size), type, when, *used ? "  " : "", used);
}

static const char *time_text(int64_t unix_s, char out[32])
{
    time_t t = (time_t)unix_s;
    struct tm tm;
    out[0] = 0;
    if (localtime_r(&t, &tm))
        strftime(out, 32, "%Y-%m-%d %H:%M", &tm);
    return out;
}

static int print_list(const struct modelstore *s, const struct modelstore_list *l)
{
    int width = 20;
    char name[MODELREF_TEXT], when[32], used[32];
    for (int i = 0; i < l->nmodels; i++) {
        int n = (int)strlen(modelref_text(&l->models[i].ref, name));
        width = n > width ? n : width;
    }
    if (l->nmodels + l->npartial + l->ndamaged == 0) {
        fprintf(stderr, "no models in '%s'; oxinferd pull OWNER/NAME fetches one\n", modelstore_path(s));
        return 0;
    }
    printf("%-*s  %8s  %-20s  %-16s  %s\n", width, "NAME", "SIZE", "TYPE", "PULLED", "USED");
    for (int i = 0; i < l->nmodels; i++) {
        const struct manifest *m = &l->models[i];
        print_row(modelref_text(&m->ref, name), manifest_bytes(m), m->type, time_text(m->pulled_unix_s, when),
                  time_text(m->used_unix_s, used), width);
    }
    for (int i = 0; i < l->npartial; i++)
        if (*l->partial[i].name)
            print_row(l->partial[i].name, l->partial[i].bytes, "", "not finished; pull it again", "", width);
    return 0;
}

static int print_list_json(const struct modelstore *s, const struct modelstore_list *l)
{
    json_t *all = json_array();
    for (int i = 0; i < l->nmodels; i++)
        json_array_append_new(all, json_of(s, &l->models[i]));
    print_json(all);
    return 0;
}

// ---- commands

static int run_pull(const struct words *w)
{
    struct screen s = {.quiet = w->quiet, .terminal = isatty(STDERR_FILENO)};
    struct pull_ui ui = {.stop = stop, .say = say, .progress = progress, .whole = whole, .ud = &s};
    struct pull *p = NULL;
    struct modelref r;
    struct manifest m;
    char name[MODELREF_TEXT];
    bool fresh = false;
    err e = {0};
    catch_signals();
    err_code rc = modelref_parse(w->names[0], &r, &e);
    if (!rc)
        rc = pull_open(&w->config, &ui, &p, &e);
    if (!rc)
        rc = pull_run(p, &r, w->verify, &m, &fresh, &e);
    clear_line(&s);
    if (!rc) {
        if (!w->quiet)
            fprintf(stderr, "%s %s\n", modelref_text(&m.ref, name), fresh ? "is in the store" : "is up to date");
        char *path = modelstore_serve_path(pull_store(p), &m);
        if (w->json)
            print_json(json_of(pull_store(p), &m));
        else
            puts(path);
        free(path);
        manifest_done(&m);
    } else if (rc == ERR_CANCELLED) {
        fputs("oxinferd: interrupted; what arrived is kept, the same command goes on from there\n", stderr);
    } else {
        fail(&e);
    }
    pull_close(p);
    return rc ? rc == ERR_UNSUPPORTED ? 3 : rc == ERR_CANCELLED ? 130 : 1 : 0;
}

int modelcommand_pull(int nargs, char **args)
{
    struct words w;
    err e = {0};
    if (read_words(nargs, args, &w, &e))
        return fail_words(&e);
    int status = w.nnames == 1 ? run_pull(&w) : misuse("expected pull OWNER/NAME[:QUANT|/SUBFOLDER][@REVISION]");
    config_done(&w.config);
    return status;
}

static int show_list(const struct words *w, err *e)
{
    struct modelstore *s = NULL;
    struct modelstore_list l = {0};
    err_code rc = modelstore_open(w->config.store_dir, false, &s, e);
    if (rc == ERR_NOT_FOUND) {  // nothing was pulled yet
        fprintf(stderr, "no models: %s\n", e->text);
        return w->json ? puts("[]") < 0 : 0;
    }
    if (!rc)
        rc = modelstore_list(s, &l, e);
    int status = rc ? fail(e) : w->json ? print_list_json(s, &l) : print_list(s, &l);
    if (l.ndamaged)
        status = fail(&l.damage);
    modelstore_list_done(&l);
    modelstore_close(s);
    return status;
}

int modelcommand_list(int nargs, char **args)
{
    struct words w;
    err e = {0};
    if (read_words(nargs, args, &w, &e))
        return fail_words(&e);
    int status = w.nnames ? misuse("list takes no name") : show_list(&w, &e);
    config_done(&w.config);
    return status;
}

static int find(struct modelstore *s, const char *name, struct manifest *ret_manifest)
{
    struct modelref r;
    err e = {0};
    return modelref_parse(name, &r, &e) || modelstore_find(s, &r, true, ret_manifest, &e) ? fail(&e) : 0;
}

static void print_model(const struct modelstore *s, const struct manifest *m, bool verified)
{
    char name[MODELREF_TEXT], size[32];
    char *path = modelstore_serve_path(s, m);
    printf("name         %s\nhub          %s\ncommit       %s\ntype         %s\nsize         %s\npath         %s\n",
           modelref_text(&m->ref, name), m->hub, m->commit, m->type, amount(manifest_bytes(m), size), path);
    for (int i = 0; i < m->nfiles; i++)
        printf("file         %s  %" PRIu64 " bytes  sha256 %s\n", m->files[i].path, m->files[i].size,
               m->files[i].sha256);
    if (verified)
        puts("verified     every file has the digest that it was pulled with");
    printf("contents     oxinferd show %s\n", path);
    free(path);
}

int modelcommand_show(int nargs, char **args)
{
    struct words w;
    struct modelstore *s = NULL;
    struct manifest m = {0};
    err e = {0};
    if (read_words(nargs, args, &w, &e))
        return fail_words(&e);
    int status = w.nnames == 1 ? 0 : misuse("expected show NAME or show PATH");
    if (!status && modelstore_open(w.config.store_dir, false, &s, &e))
        status = fail(&e);
    if (!status)
        status = find(s, w.names[0], &m);
    if (!status && modelstore_check(s, &m, -1, w.verify, NULL, NULL, &e))
        fprintf(stderr, "oxinferd: %s; pull it again\n", e.text);
    if (!status && w.json)
        print_json(json_of(s, &m));
    else if (!status)
        print_model(s, &m, w.verify && !e.code);
    manifest_done(&m);
    modelstore_close(s);
    config_done(&w.config);
    return status ? status : e.code ? 1 : 0;
}

static int remove_one(struct modelstore *s, const char *text)
{
    struct modelref r;
    struct manifest m = {0};
    char name[MODELREF_TEXT];
    err e = {0};
    if (modelref_parse(text, &r, &e))
        return fail(&e);
    err_code rc = modelstore_find(s, &r, true, &m, &e);
    if (!rc)
        r = m.ref;
    if (!rc || rc == ERR_NOT_FOUND || rc == ERR_CORRUPT)  // a pull that was not finished, or a model that is broken
        rc = modelstore_remove(s, &r, &e);
    if (!rc)
        fprintf(stderr, "%s is removed\n", modelref_text(&r, name));
    manifest_done(&m);
    return rc ? fail(&e) : 0;
}

int modelcommand_rm(int nargs, char **args)
{
    struct words w;
    struct modelstore *s = NULL;
    err e = {0};
    if (read_words(nargs, args, &w, &e))
        return fail_words(&e);
    int status = w.nnames ? 0 : misuse("expected rm NAME");
    if (!status && modelstore_open(w.config.store_dir, false, &s, &e))
        status = fail(&e);
    for (int i = 0; i < w.nnames && s; i++) {
        int one = remove_one(s, w.names[i]);
        status = status ? status : one;
    }
    modelstore_close(s);
    config_done(&w.config);
    return status;
}
