// See the header.
#include "server/hub/pull.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <jansson.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/mem.h"
#include "base/utf8.h"
#include "config/config.h"
#include "server/hub/choice.h"
#include "server/hub/fetch.h"
#include "server/hub/hub.h"
#include "server/hub/modelstage.h"

enum { KEY = 72, TOKEN_FILE_MAX = 4096, MARGIN = 1 << 20 };  // MARGIN: of disk, for folders and the manifest

static const char huggingface[] = "https://huggingface.co";

struct pull {
    struct pull_ui ui;
    struct modelstore *store;
    struct fetch_config fetch_config;
    struct fetch *fetch;
    char *hub_url, *token;
};

// One pull_run.
struct run {
    struct pull *p;
    struct modelref ref;
    struct hub_listing listing;
    struct choice choice;
    struct modelstage *stage;
    struct manifest old;      // nfiles 0: there was none
    struct manifest m;        // being made; files as choice.files
    bool verify;
    uint64_t all_have, all_size;
    const char *path;         // the file that arrives
    const char *key;
};

// ---- opening

static char *trimmed(const char *s)
{
    size_t n = strlen(s);
    while (n && strchr(" \t\r\n", s[n - 1]))
        n--;
    size_t at = strspn(s, " \t\r\n");
    return at < n ? mem_strndup(s + at, n - at) : mem_strdup("");
}

static err_code read_token(const char *path, char **ret_token, err *e)
{
    char *text;
    size_t len;
    if (file_read(path, TOKEN_FILE_MAX, &text, &len, e))
        return e->code;
    *ret_token = trimmed(text);
    memset(text, 0, len);
    free(text);
    return ERR_OK;
}

// What huggingface.co's own programs keep after a login. NULL: nothing.
static char *login_token(void)
{
    char path[4096], *token = NULL;
    err ignored = {0};
    const char *at = getenv("HF_TOKEN_PATH"), *home = getenv("HF_HOME"), *user = getenv("HOME");
    if (at && *at)
        snprintf(path, sizeof path, "%s", at);
    else if (home && *home)
        snprintf(path, sizeof path, "%s/token", home);
    else
        snprintf(path, sizeof path, "%s/.cache/huggingface/token", user ? user : "");
    return file_exists(path) && !read_token(path, &token, &ignored) ? token : NULL;
}

static err_code find_token(const struct config *c, struct pull *p, err *e)
{
    const char *given = getenv("HF_TOKEN");
    if (*c->hub_token_file && read_token(c->hub_token_file, &p->token, e))
        return err_wrap(e, "hub_token_file");
    if (!p->token && given && *given)
        p->token = trimmed(given);
    if (!p->token && !strcmp(p->hub_url, huggingface))
        p->token = login_token();
    if (p->token && !*p->token && !*c->hub_token_file) {
        free(p->token);
        p->token = NULL;
    }
    return ERR_OK;
}

static char *find_hub(const struct config *c)
{
    const char *given = getenv("HF_ENDPOINT");
    char *url = trimmed(*c->hub_url ? c->hub_url : given && *given ? given : huggingface);
    for (size_t n = strlen(url); n && url[n - 1] == '/'; n--)
        url[n - 1] = 0;
    return url;
}

err_code pull_open(const struct config *c, const struct pull_ui *ui, struct pull **ret_pull, err *e)
{
    struct pull *p = mem_new(sizeof *p);
    p->ui = *ui;
    p->hub_url = find_hub(c);
    err_code rc = find_token(c, p, e);
    p->fetch_config = (struct fetch_config){
        .hub_url = p->hub_url,
        .token = p->token,
        .ca_file = *c->hub_ca_file ? c->hub_ca_file : NULL,
        .proxy = *c->hub_proxy ? c->hub_proxy : NULL,
        .private_hosts = c->hub_allow_private.items,
        .nprivate = c->hub_allow_private.len,
        .retries = (int)c->hub_retries,
        .stall_s = (int)c->hub_stall_s,
        .stop = ui->stop,
        .say = ui->say,
        .ud = ui->ud,
    };
    if (!rc && !utf8_valid(p->hub_url, strlen(p->hub_url)))  // manifests are JSON
        rc = err_set_param(e, ERR_INVALID, "hub_url", "hub_url or HF_ENDPOINT is not UTF-8");
    if (!rc && p->fetch_config.ca_file && !file_exists(p->fetch_config.ca_file))
        rc = err_set_param(e, ERR_NOT_FOUND, "hub_ca_file", "hub_ca_file: there is no '%s'", p->fetch_config.ca_file);
    if (!rc)
        rc = fetch_open(&p->fetch_config, &p->fetch, e);
    if (!rc)
        rc = modelstore_open(c->store_dir, true, &p->store, e);
    if (rc)
        pull_close(p);
    else
        *ret_pull = p;
    return rc;
}

void pull_close(struct pull *p)
{
    if (!p)
        return;
    fetch_close(p->fetch);
    modelstore_close(p->store);
    if (p->token)
        memset(p->token, 0, strlen(p->token));
    free(p->token);
    free(p->hub_url);
    free(p);
}

struct modelstore *pull_store(const struct pull *p)
{
    return p->store;
}

static void say(const struct pull *p, const char *text)
{
    if (p->ui.say)
        p->ui.say(p->ui.ud, text);
}

// ---- one file

// What stands for the content of a file; of one without a digest, for its place in this commit.
static const char *key_of(const struct run *r, const struct hub_file *f, char out[KEY])
{
    if (f->sha256[0] || f->blob[0]) {
        snprintf(out, KEY, "%s", f->sha256[0] ? f->sha256 : f->blob);
        return out;
    }
    char *text = mem_new(strlen(r->listing.commit) + strlen(f->path) + 2);
    sprintf(text, "%s\n%s", r->listing.commit, f->path);
    out[0] = 'u';
    digest_text(text, out + 1);
    free(text);
    return out;
}

static void on_progress(void *ud, uint64_t have, uint64_t size)
{
    struct run *r = ud;
    struct pull_progress now = {r->path, have, size == FETCH_SIZE_UNKNOWN ? 0 : size, r->all_have + have, r->all_size};
    if (r->p->ui.progress)
        r->p->ui.progress(r->p->ui.ud, &now);
}

static err_code keep_etag(void *ud, const char *etag, err *e)
{
    struct run *r = ud;
    return modelstage_set_etag(r->stage, r->key, etag, e);
}

// The digests of what arrived against what the hub says. etag: of a hub whose listing says none.
static err_code check_digest(struct run *r, const struct hub_file *f, const struct digest *d, const char *etag,
                             struct manifest_file *out, err *e)
{
    const char *sha256 = f->sha256, *blob = f->blob;
    char text[MODELREF_PATH + 128];
    digest_take(d, out->sha256, out->blob);
    if (!*sha256 && !*blob) {
        sha256 = digest_is_hex(etag, 64) ? etag : "";
        blob = digest_is_hex(etag, 40) && out->blob[0] ? etag : "";
    }
    if ((*sha256 && strcmp(sha256, out->sha256) != 0) || (*blob && strcmp(blob, out->blob) != 0))
        return err_set(e, ERR_CORRUPT, "digest mismatch: the hub says %.16s..., what came is %.16s...",
                       *sha256 ? sha256 : blob, *sha256 ? out->sha256 : out->blob);
    if (!*sha256 && !*blob) {
        snprintf(text, sizeof text, "%s: the hub tells no digest, only the size was checked", f->path);
        say(r->p, text);
    }
    return ERR_OK;
}

static err_code fetch_part(struct run *r, const struct hub_file *f, int fd, struct manifest_file *out,
                           bool *ret_resumed, err *e)
{
    struct fetch_part part = {.fd = fd, .size = f->size, .progress = on_progress, .keep_etag = keep_etag, .ud = r};
    struct stat st;
    bool blob = !f->sha256[0] && f->size != HUB_SIZE_UNKNOWN;
    if (fstat(fd, &st))
        return err_set(e, ERR_IO, "%s", strerror(errno));
    part.have = (uint64_t)st.st_size;
    if (f->size != HUB_SIZE_UNKNOWN && part.have > f->size) {
        if (ftruncate(fd, 0))
            return err_set(e, ERR_IO, "%s", strerror(errno));
        part.have = 0;
    }
    bool whole = part.have == f->size;
    modelstage_etag(r->stage, r->key, part.etag, sizeof part.etag);
    part.digest = digest_new(blob, f->size);
    err_code rc = digest_add_file(part.digest, fd, part.have, r->p->ui.stop, r->p->ui.ud, e);
    const char *etag = "";
    if (!rc && (!whole || f->size == 0)) {  // else it came whole, and was not yet checked when it ended
        char *url = hub_file_url(r->p->hub_url, &r->ref, r->listing.commit, f->path);
        rc = fetch_file(r->p->fetch, url, &part, e);
        etag = fetch_etag(r->p->fetch);
        free(url);
        if (rc)
            hub_explain(r->p->fetch, r->p->hub_url, &r->ref, r->p->token, e);
    }
    if (!rc)
        rc = check_digest(r, f, part.digest, etag, out, e);
    *ret_resumed = part.pieced || whole;
    out->size = part.have;
    digest_free(part.digest);
    return rc;
}

static err_code fetch_whole(struct run *r, const struct hub_file *f, struct manifest_file *out, err *e)
{
    char text[MODELREF_PATH + 640];
    for (int tries = 0;; tries++) {
        int fd;
        bool resumed = false;
        if (modelstage_open_part(r->stage, r->key, &fd, e))
            return e->code;
        err_code rc = fetch_part(r, f, fd, out, &resumed, e);
        if (!rc)
            rc = modelstage_finish_part(r->stage, r->key, fd, e);
        close(fd);
        if (rc != ERR_CORRUPT)
            return rc;
        modelstage_drop_part(r->stage, r->key);
        if (!resumed || tries)
            return err_wrap(e, "'%s' is thrown away", f->path);
        snprintf(text, sizeof text, "%s: what had arrived earlier was no part of it (%s); fetching it from its start",
                 f->path, e->text);
        say(r->p, text);
    }
}

// Digests of content that is there already, and whose digest the listing does not say.
static err_code hash_whole(struct run *r, uint64_t size, struct manifest_file *out, err *e)
{
    int fd;
    if (modelstage_open_whole(r->stage, r->key, &fd, e))
        return e->code;
    struct digest *d = digest_new(true, size);
    err_code rc = digest_add_file(d, fd, size, r->p->ui.stop, r->p->ui.ud, e);
    digest_take(d, out->sha256, out->blob);
    digest_free(d);
    close(fd);
    return rc;
}

// Takes what the installed version has of the same content.
static void reuse(struct run *r, const struct hub_file *f)
{
    err ignored;
    for (int i = 0; i < r->old.nfiles; i++) {
        const struct manifest_file *o = &r->old.files[i];
        bool same = f->sha256[0] ? !strcmp(o->sha256, f->sha256) : f->blob[0] && !strcmp(o->blob, f->blob);
        if (same && o->size == f->size &&
            !modelstore_check(r->p->store, &r->old, i, r->verify, r->p->ui.stop, r->p->ui.ud, &ignored) &&
            modelstage_reuse(r->stage, o->path, r->key))
            return;
    }
}

static err_code fetch_one(struct run *r, const struct hub_file *f, struct manifest_file *out, err *e)
{
    char key[KEY];
    err_code rc = ERR_OK;
    r->path = f->path;
    r->key = key_of(r, f, key);
    *out = (struct manifest_file){.path = f->path, .size = f->size};
    if (!modelstage_has(r->stage, key, &out->size))
        reuse(r, f);
    bool fetched = !modelstage_has(r->stage, key, &out->size);
    if (fetched)
        rc = fetch_whole(r, f, out, e);
    else if (f->sha256[0])
        strcpy(out->sha256, f->sha256);
    else
        rc = hash_whole(r, out->size, out, e);
    r->all_have += rc ? 0 : out->size;
    if (!rc && fetched && r->p->ui.whole)
        r->p->ui.whole(r->p->ui.ud, &(struct pull_progress){f->path, out->size, out->size, r->all_have, r->all_size});
    r->key = NULL;
    return rc ? err_wrap(e, "%s", f->path) : ERR_OK;
}

// ---- the whole

static err_code read_listed(void *ud, int file, char **ret_text, size_t *ret_len, err *e)
{
    struct run *r = ud;
    const struct hub_file *f = &r->listing.files[file];
    struct manifest_file ignored;
    char key[KEY];
    int fd;
    if (f->size != HUB_SIZE_UNKNOWN && f->size > CHOICE_JSON_MAX)
        return err_set(e, ERR_TOO_LARGE, "'%s' has %llu bytes, at most %d are read", f->path,
                       (unsigned long long)f->size, CHOICE_JSON_MAX);
    uint64_t before = r->all_have;
    if (fetch_one(r, f, &ignored, e))
        return e->code;
    r->all_have = before;  // it is counted with the others
    if (modelstage_open_whole(r->stage, key_of(r, f, key), &fd, e))
        return e->code;
    size_t size = ignored.size < CHOICE_JSON_MAX ? (size_t)ignored.size : CHOICE_JSON_MAX, got = 0;
    char *text = mem_try(size + 1);
    ssize_t n = 1;
    while (text && got < size && (n = read(fd, text + got, size - got)) > 0)
        got += (size_t)n;
    close(fd);
    if (!text || n < 0) {
        free(text);
        return text ? err_set(e, ERR_IO, "'%s': %s", f->path, strerror(errno))
                    : err_set(e, ERR_MEMORY, "no memory to read '%s'", f->path);
    }
    *ret_text = text;
    *ret_len = got;
    return ERR_OK;
}

static const char *text_of(const json_t *o, const char *name)
{
    const char *s = json_string_value(json_object_get(o, name));
    return s ? s : "";
}

static bool is_word(const char *s)
{
    return *s && !s[strspn(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-")];
}

// "safetensors bfloat16", "MLX 4-bit", "pipeline": for lists only, so what cannot be read says less.
static const char *folder_type(struct run *r)
{
    const char *type = "safetensors", *slash = *r->ref.subdir ? "/" : "";
    char config[MODELREF_PATH], index[MODELREF_PATH];
    snprintf(config, sizeof config, "%s%sconfig.json", r->ref.subdir, slash);
    snprintf(index, sizeof index, "%s%smodel_index.json", r->ref.subdir, slash);
    for (int i = 0; i < r->choice.nfiles; i++) {
        const char *path = r->listing.files[r->choice.files[i]].path;
        char *text;
        size_t len;
        err ignored;
        if (!strcmp(path, index))
            return "pipeline";
        if (strcmp(path, config) != 0 || read_listed(r, r->choice.files[i], &text, &len, &ignored))
            continue;
        json_t *j = json_loadb(text, len, 0, NULL);
        const char *dtype = *text_of(j, "torch_dtype") ? text_of(j, "torch_dtype") : text_of(j, "dtype");
        json_int_t bits = json_integer_value(json_object_get(json_object_get(j, "quantization"), "bits"));
        if (bits > 0 && bits < 64)
            type = arena_printf(&r->m.arena, "MLX %d-bit", (int)bits);
        else if (is_word(dtype) && strlen(dtype) < 24)
            type = arena_printf(&r->m.arena, "safetensors %s", dtype);
        json_decref(j);
        free(text);
    }
    return type;
}

static err_code check_room(struct run *r, err *e)
{
    uint64_t missing = MARGIN, room = modelstage_free_bytes(r->stage);
    char key[KEY];
    r->all_have = r->all_size = 0;
    for (int i = 0; i < r->choice.nfiles; i++) {
        const struct hub_file *f = &r->listing.files[r->choice.files[i]];
        uint64_t size = f->size;
        if (size == HUB_SIZE_UNKNOWN)
            continue;
        if (f->size > INT64_MAX / HUB_FILES_MAX)
            return err_set(e, ERR_TOO_LARGE, "'%s' has %llu bytes, says the hub", f->path, (unsigned long long)f->size);
        r->key = key_of(r, f, key);
        r->all_size += f->size;
        if (!modelstage_has(r->stage, key, &size))
            reuse(r, f);
        uint64_t have = modelstage_has(r->stage, key, &size) ? size : modelstage_part_size(r->stage, key);
        missing += have < size ? size - have : 0;
    }
    r->key = NULL;
    if (missing > room)
        return err_set(e, ERR_IO, "there is no room: %.2f GB are to come, and '%s' has %.2f GB free",
                       (double)missing * 1e-9, modelstore_path(r->p->store), (double)room * 1e-9);
    return ERR_OK;
}

static err_code fetch_all(struct run *r, err *e)
{
    int n = r->choice.nfiles;
    char (*keys)[KEY] = mem_new((size_t)n * sizeof *keys);
    const char **names = mem_new((size_t)n * sizeof *names);
    r->m.files = arena_alloc(&r->m.arena, (size_t)n * sizeof *r->m.files);
    err_code rc = check_room(r, e);
    for (int i = 0; i < n && !rc; i++) {
        const struct hub_file *f = &r->listing.files[r->choice.files[i]];
        names[i] = key_of(r, f, keys[i]);
        rc = fetch_one(r, f, &r->m.files[i], e);
    }
    r->m.nfiles = rc ? 0 : n;
    if (!rc) {
        r->m.ref = r->ref;
        r->m.hub = r->p->hub_url;
        r->m.commit = r->listing.commit;
        r->m.serve = r->choice.serve;
        r->m.type = !r->choice.gguf ? folder_type(r)
                    : *r->choice.quant ? arena_printf(&r->m.arena, "GGUF %s", r->choice.quant) : "GGUF";
        r->m.pulled_unix_s = clock_unix_s();
        rc = modelstage_publish(r->stage, &r->m, names, e);
    }
    free(names);
    free(keys);
    return rc;
}

static void say_waiting(void *ud)
{
    const struct run *r = ud;
    char name[MODELREF_TEXT], text[MODELREF_TEXT + 64];
    snprintf(text, sizeof text, "%s is being pulled by another process; waiting for it", modelref_text(&r->ref, name));
    say(r->p, text);
}

static bool stopped(void *ud)
{
    const struct run *r = ud;
    return r->p->ui.stop && r->p->ui.stop(r->p->ui.ud);
}

// Whether the store has this commit already, whole.
static err_code is_there(struct run *r, bool *ret_there, err *e)
{
    err why = {0};
    bool same = false;
    *ret_there = false;
    err_code rc = modelstore_get(r->p->store, &r->ref, &r->old, &why);
    if (!rc && !strcmp(r->old.commit, r->listing.commit)) {
        rc = modelstore_check(r->p->store, &r->old, -1, r->verify, r->p->ui.stop, r->p->ui.ud, &why);
        same = !rc;
    }
    if (rc == ERR_CANCELLED)
        return err_set(e, ERR_CANCELLED, "interrupted");
    if (rc && rc != ERR_NOT_FOUND)
        say(r->p, why.text);
    *ret_there = same;
    return ERR_OK;
}

static err_code run_all(struct run *r, bool *ret_fresh, err *e)
{
    struct modelstore_wait wait = {say_waiting, stopped, r};
    bool there;
    if (hub_list(r->p->fetch, r->p->hub_url, &r->ref, &r->listing, e))
        return hub_explain(r->p->fetch, r->p->hub_url, &r->ref, r->p->token, e);
    if (choice_gguf(&r->listing, &r->ref, &r->choice, e))
        return e->code;
    if (r->choice.gguf && !*r->ref.quant && !strstr(r->ref.subdir, ".gguf"))
        strcpy(r->ref.quant, r->choice.quant);
    if (modelstage_open(r->p->store, &r->ref, &wait, &r->stage, e) || is_there(r, &there, e))
        return e->code;
    if (there) {
        modelstage_drop(r->stage);
        return ERR_OK;
    }
    *ret_fresh = true;
    err_code rc = r->choice.gguf ? ERR_OK : choice_folder(&r->listing, &r->ref, read_listed, r, &r->choice, e);
    if (rc == ERR_UNSUPPORTED || rc == ERR_CORRUPT)
        modelstage_drop(r->stage);  // nothing that a later try would use
    return rc ? rc : fetch_all(r, e);
}

err_code pull_run(struct pull *p, const struct modelref *ref, bool verify, struct manifest *ret_manifest,
                  bool *ret_fresh, err *e)
{
    struct run *r = mem_new(sizeof *r);
    bool fresh = false;
    r->p = p;
    r->ref = *ref;
    r->verify = verify;
    err_code rc = run_all(r, &fresh, e);
    if (!rc && fresh) {
        manifest_done(&r->old);
        rc = modelstore_get(p->store, &r->ref, &r->old, e);  // as it was written
    }
    if (!rc) {
        *ret_manifest = r->old;
        r->old = (struct manifest){0};
        *ret_fresh = fresh;
    }
    modelstage_close(r->stage);
    hub_listing_done(&r->listing);
    manifest_done(&r->old);
    manifest_done(&r->m);
    free(r);
    return rc;
}
