// config.c - the table-driven settings parser. One function sets a value from text, whatever its source.

#include "config/config.h"

#include <ctype.h>
#include <errno.h>
#include <ini.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "base/bytes.h"
#include "base/file.h"

enum kind { TEXT, CHOICE, LIST, INT, SIZE, SHARE, BOOL };

struct key {
    enum kind kind;
    const char *name, *fallback;
    int64_t lo, hi;
    const char *choices, *help, *group;  // group: only in the rows that start one
    size_t offset;
};

static const struct key keys[] = {
#define GROUP(title) {.group = title},
#define KEY(kind, name, fallback, lo, hi, choices, help) \
    {kind, #name, fallback, lo, hi, choices, help, NULL, offsetof(struct config, name)},
#include "config/keys.def"
#undef KEY
#undef GROUP
};
enum { NKEYS = sizeof keys / sizeof *keys };

// Where values come from, weakest first; a stronger source replaces, the same source adds to a list.
enum source { FROM_DEFAULT, FROM_FILE, FROM_ENVIRONMENT, FROM_ARGS };

// A line of the file that set something.
struct seen {
    const char *section, *name;
    int line;
    struct seen *next;
};

struct parse {
    struct config *c;
    enum source source;
    enum source set_by[NKEYS];
    const char *file;
    const char *rest;   // of the file's text
    int line;           // of it that was read last
    struct seen *seen;
    bool words;         // among the arguments: models
    err *e;
    err_code code;
};

static int find_key(const char *name)
{
    for (int i = 0; i < NKEYS; i++)
        if (keys[i].name && strcmp(keys[i].name, name) == 0)
            return i;
    return -1;
}

// What other servers call a setting, for those who move here: only to name ours in the refusal.
static const char *const foreign[][2] = {
    {"m", "model"}, {"hf_repo", "model"}, {"hf", "model"}, {"served_model_name", "model"}, {"a", "alias"},
    {"p", "listen"}, {"port", "listen"}, {"host", "listen"}, {"uds", "listen"},
    {"c", "context"}, {"ctx_size", "context"}, {"n_ctx", "context"}, {"max_model_len", "context"},
    {"t", "threads"}, {"tb", "threads"}, {"threads_batch", "threads"},
    {"np", "max_running"}, {"parallel", "max_running"}, {"max_num_seqs", "max_running"},
    {"b", "prefill_chunk"}, {"batch_size", "prefill_chunk"}, {"ub", "prefill_chunk"}, {"ubatch_size", "prefill_chunk"},
    {"max_num_batched_tokens", "prefill_chunk"},
    {"ctk", "kv"}, {"ctv", "kv"}, {"cache_type_k", "kv"}, {"cache_type_v", "kv"}, {"kv_cache_dtype", "kv"},
    {"chat_template_file", "chat_template"}, {"gpu_memory_utilization", "memory"}, {"kv_cache_memory_bytes", "kv_memory"},
    {"ssl_certfile", "tls_cert"}, {"ssl_cert_file", "tls_cert"}, {"ssl_keyfile", "tls_key"}, {"ssl_key_file", "tls_key"},
    {"allowed_origins", "cors_origins"}, {"download_dir", "store_dir"}, {"keep_alive", "idle_unload_s"},
    {"sleep_idle_seconds", "idle_unload_s"}, {"v", "log_level"}, {"verbose", "log_level"}, {"verbosity", "log_level"},
    {"uvicorn_log_level", "log_level"}, {"disable_log_requests", "access_log"}, {"hft", "hub_token_file"},
    {"hf_token", "hub_token_file"}, {"no_webui", "web_page"},
};

// Options of theirs that have no setting here, and what happens instead.
static const char on_cpus[] = "it runs on CPUs", by_template[] = "how a model writes calls and thoughts is read off its chat template",
                  by_files[] = "what a model can do, and its types, are read off its files", by_itself[] = "it is always on",
                  by_request[] = "each request says it";
static const char *const needless[][2] = {
    {"ngl", on_cpus}, {"gpu_layers", on_cpus}, {"n_gpu_layers", on_cpus}, {"tensor_parallel_size", on_cpus}, {"tp", on_cpus},
    {"pipeline_parallel_size", on_cpus}, {"device", on_cpus}, {"main_gpu", on_cpus}, {"split_mode", on_cpus},
    {"tensor_split", on_cpus}, {"enforce_eager", on_cpus},
    {"jinja", by_template}, {"enable_auto_tool_choice", by_template}, {"tool_call_parser", by_template},
    {"reasoning_parser", by_template}, {"reasoning_format", by_template}, {"enable_reasoning", by_template},
    {"dtype", by_files}, {"quantization", by_files}, {"q", by_files}, {"load_format", by_files}, {"task", by_files},
    {"runner", by_files}, {"embedding", by_files}, {"embeddings", by_files}, {"trust_remote_code", by_files},
    {"tokenizer", by_files},
    {"enable_prefix_caching", by_itself}, {"enable_chunked_prefill", by_itself}, {"cont_batching", by_itself}, {"cb", by_itself},
    {"flash_attn", by_itself}, {"fa", by_itself}, {"metrics", by_itself}, {"cache_prompt", by_itself},
    {"temp", by_request}, {"temperature", by_request}, {"top_k", by_request}, {"top_p", by_request}, {"min_p", by_request},
    {"s", by_request}, {"seed", by_request}, {"n", by_request}, {"predict", by_request}, {"n_predict", by_request},
    {"repeat_penalty", by_request},
};

// Letters to put in, leave out or change; both are shorter than 64.
static int distance(const char *a, const char *b)
{
    int row[64], n = (int)strlen(b);
    for (int j = 0; j <= n; j++)
        row[j] = j;
    for (int i = 1; a[i - 1]; i++) {
        int diagonal = row[0];
        row[0] = i;
        for (int j = 1; j <= n; j++) {
            int change = diagonal + (a[i - 1] != b[j - 1]), add = (row[j] < row[j - 1] ? row[j] : row[j - 1]) + 1;
            diagonal = row[j];
            row[j] = change < add ? change : add;
        }
    }
    return row[n];
}

// The setting that was meant by a name that is none; -1: who knows.
static int guess_key(const char *name)
{
    for (size_t i = 0; i < sizeof foreign / sizeof *foreign; i++)
        if (strcmp(foreign[i][0], name) == 0)
            return find_key(foreign[i][1]);
    size_t n = strlen(name);
    int best = -1, nearest = n < 4 || n > 60 ? 0 : n < 8 ? 2 : 3;
    for (int i = 0; i < NKEYS && nearest; i++) {
        int d = keys[i].name ? distance(name, keys[i].name) : nearest;
        if (d < nearest) {
            best = i;
            nearest = d;
        }
    }
    return best;
}

// "; the nearest is ..." or why there is none for the end of a refusal, or "".
static const char *guess(const char *name, bool option, char out[256])
{
    char shown[64];
    out[0] = 0;
    for (size_t i = 0; i < sizeof needless / sizeof *needless; i++)
        if (strcmp(needless[i][0], name) == 0)
            snprintf(out, 256, "; leave it out: %s", needless[i][1]);
    int i = *out ? -1 : guess_key(name), n = 0;
    if (i < 0)
        return out;
    for (const char *s = keys[i].name; s[n] && n < 63; n++)
        shown[n] = s[n] == '_' && option ? '-' : s[n];
    shown[n] = 0;
    snprintf(out, 256, "; the nearest is %s%s (%s)", option ? "--" : "", shown, keys[i].help);
    return out;
}

static bool in_choices(const char *choices, const char *value)
{
    size_t n = strlen(value);
    for (const char *p = choices; *p;) {
        size_t len = strcspn(p, "|");
        if (len == n && memcmp(p, value, n) == 0)
            return true;
        p += len + (p[len] == '|');
    }
    return false;
}

static bool parse_int(const char *s, int64_t *ret_value)
{
    char *end;
    errno = 0;
    long long v = strtoll(s, &end, 10);
    if (end == s || errno || *end)
        return false;
    *ret_value = v;
    return true;
}

// "90%" as -90.
static bool parse_percent(const char *s, int64_t *ret_value)
{
    char digits[4] = "";
    size_t n = strspn(s, "0123456789");
    if (n < 1 || n > 3 || strcmp(s + n, "%") != 0)
        return false;
    memcpy(digits, s, n);
    int v = atoi(digits);
    *ret_value = -v;
    return v >= 1 && v <= 100;
}

static bool parse_bool(const char *s, bool *ret_value)
{
    static const char *const yes[] = {"true", "yes", "on", "1"}, *const no[] = {"false", "no", "off", "0"};
    for (int i = 0; i < 4; i++) {
        if (strcasecmp(s, yes[i]) == 0 || strcasecmp(s, no[i]) == 0) {
            *ret_value = strcasecmp(s, yes[i]) == 0;
            return true;
        }
    }
    return false;
}

static err_code list_add(struct config *c, struct config_list *l, const char *value, const char *from, err *e)
{
    for (const char *p = value; *p;) {
        size_t len = strcspn(p, ",");
        const char *item = p, *end = p + len;
        p += len + (p[len] == ',');
        while (item < end && isspace((unsigned char)*item))
            item++;
        while (end > item && isspace((unsigned char)end[-1]))
            end--;
        if (item == end)
            continue;
        if (l->len == CONFIG_MAX_ITEMS)
            return err_set(e, ERR_INVALID, "%s: more than %d items", from, CONFIG_MAX_ITEMS);
        if (!l->items)
            l->items = arena_alloc(&c->arena, CONFIG_MAX_ITEMS * sizeof *l->items);
        l->items[l->len++] = arena_strndup(&c->arena, item, (size_t)(end - item));
    }
    return ERR_OK;
}

// A limit in a refusal.
static const char *limit(const struct key *k, int64_t value, char out[BYTES_TEXT])
{
    if (k->kind != INT && value > 0)
        return bytes_text((size_t)value, out);
    snprintf(out, BYTES_TEXT, "%lld", (long long)value);
    return out;
}

static err_code set_number(const struct key *k, int64_t *field, const char *value, const char *from, err *e)
{
    static const char *const words[] = {[INT] = "a whole number", [SIZE] = "a size (bytes, or with K, M, G, as 512MB)",
                                        [SHARE] = "a size (bytes, or with K, M, G, as 4GB) or 1% to 100%"};
    int64_t v;
    char lo[BYTES_TEXT], hi[BYTES_TEXT];
    if (k->kind == SHARE && parse_percent(value, field))
        return ERR_OK;
    if (k->kind == INT ? !parse_int(value, &v) : !bytes_parse(value, &v))
        return err_set_param(e, ERR_INVALID, k->name, "%s: '%s' is not %s", from, value, words[k->kind]);
    if (v < k->lo || v > k->hi)
        return err_set_param(e, ERR_INVALID, k->name, "%s: %s is out of range; expected %s to %s", from, value, limit(k, k->lo, lo),
                             limit(k, k->hi, hi));
    *field = v;
    return ERR_OK;
}

static err_code set_value(struct parse *p, int i, const char *value, const char *from)
{
    const struct key *k = &keys[i];
    void *field = (char *)p->c + k->offset;
    bool again = p->set_by[i] == p->source;
    p->set_by[i] = p->source;
    switch (k->kind) {
    case LIST:
        if (!again || p->source == FROM_DEFAULT)
            *(struct config_list *)field = (struct config_list){0};
        return list_add(p->c, field, value, from, p->e);
    case INT:
    case SIZE:
    case SHARE:
        return set_number(k, field, value, from, p->e);
    case BOOL:
        if (!parse_bool(value, field))
            return err_set_param(p->e, ERR_INVALID, k->name, "%s: '%s' is neither true nor false", from, value);
        return ERR_OK;
    case CHOICE:
        if (!in_choices(k->choices, value))
            return err_set_param(p->e, ERR_INVALID, k->name, "%s: '%s' is not one of %s", from, value, k->choices);
        break;
    case TEXT:
        break;
    }
    *(const char **)field = arena_strdup(&p->c->arena, value);
    return ERR_OK;
}

// ---- models

static struct config_model *find_model(struct config *c, const char *name, bool create)
{
    for (int i = 0; i < c->nmodels; i++)
        if (strcmp(c->models[i].name, name) == 0)
            return &c->models[i];
    if (!create || c->nmodels == CONFIG_MAX_ITEMS)
        return NULL;
    if (!c->models)
        c->models = arena_alloc(&c->arena, CONFIG_MAX_ITEMS * sizeof *c->models);
    struct config_model *m = &c->models[c->nmodels++];
    m->name = arena_strdup(&c->arena, name);
    m->short_name = "";
    m->context = -1;
    return m;
}

// A line inside [model NAME].
static err_code set_model_value(struct parse *p, const char *model, const char *name, const char *value, const char *from)
{
    struct config_model *m = find_model(p->c, model, true);
    if (!m)
        return err_set(p->e, ERR_INVALID, "%s: more than %d models", from, CONFIG_MAX_ITEMS);
    if (strcmp(name, "path") == 0) {
        m->path = arena_strdup(&p->c->arena, value);
        return ERR_OK;
    }
    const char **field = strcmp(name, "activations") == 0     ? &m->activations
                         : strcmp(name, "kv") == 0            ? &m->kv
                         : strcmp(name, "chat_template") == 0 ? &m->chat_template
                         : strcmp(name, "decision") == 0      ? &m->decision
                         : strcmp(name, "vocoder") == 0       ? &m->vocoder
                                                              : NULL;
    int i = find_key(name);
    if (field) {
        if (keys[i].kind == CHOICE && !in_choices(keys[i].choices, value))
            return err_set_param(p->e, ERR_INVALID, name, "%s: '%s' is not one of %s", from, value, keys[i].choices);
        *field = arena_strdup(&p->c->arena, value);
        return ERR_OK;
    }
    if (strcmp(name, "context") == 0)
        return set_number(&keys[i], &m->context, value, from, p->e);
    if (i >= 0)
        return err_set_param(p->e, ERR_INVALID, name, "%s: '%s' is no setting of one model; it belongs above the first section, as %s",
                             from, name, keys[i].kind == LIST && *keys[i].help == 'n' ? "a list of models' names" : "it is for all");
    return err_set_param(p->e, ERR_INVALID, name,
                         "%s: unknown setting '%s' of a model; known are path, activations, kv, context, chat_template, "
                         "decision, vocoder",
                         from, name);
}

static bool is_named(const struct config_model *m, const char *name, size_t n)
{
    return (strlen(m->name) == n && !memcmp(m->name, name, n)) ||
           (n && strlen(m->short_name) == n && !memcmp(m->short_name, name, n));
}

bool config_is_model(const struct config_model *m, const char *name)
{
    return is_named(m, name, strlen(name));
}

// The value of a list of NAME=VALUE, or of a plain VALUE for all models: the last that fits this one. "" if none does.
static const char *value_for(const struct config *c, const struct config_list *l, const struct config_model *m)
{
    const char *all = "", *own = NULL;
    for (int i = 0; i < l->len; i++) {
        const char *item = l->items[i], *eq = strchr(item, '=');
        bool named = false;
        for (int k = 0; eq && k < c->nmodels; k++)
            named |= is_named(&c->models[k], item, (size_t)(eq - item));
        if (!named)
            all = item;
        else if (is_named(m, item, (size_t)(eq - item)))
            own = eq + 1;
    }
    return own ? own : all;
}

// Whether "-00001-of-00003" ends the n bytes.
static bool is_shard(const char *s, size_t n)
{
    static const char form[] = "-ddddd-of-ddddd";
    for (size_t i = 0; n > sizeof form - 1 && i < sizeof form - 1; i++) {
        char c = s[n - (sizeof form - 1) + i];
        if (form[i] == 'd' ? !isdigit((unsigned char)c) : c != form[i])
            return false;
    }
    return n > sizeof form - 1;
}

// The last part of a path, without .gguf and without the number of a shard. NULL: it has none.
static const char *name_of_path(struct arena *a, const char *path)
{
    char *real = strspn(path, "./") == strlen(path) ? realpath(path, NULL) : NULL;
    const char *from = real ? real : path;
    size_t n = strlen(from);
    while (n && from[n - 1] == '/')
        n--;
    const char *slash = memrchr(from, '/', n);
    const char *base = slash ? slash + 1 : from;
    n -= (size_t)(base - from);
    if (n > 5 && !strncasecmp(base + n - 5, ".gguf", 5))
        n -= 5;
    if (is_shard(base, n))
        n -= strlen("-00001-of-00001");
    const char *name = n ? arena_strndup(a, base, n) : NULL;
    free(real);
    return name;
}

// Whether it is OWNER/NAME of a hub, with what may follow, rather than a file or folder, there or not.
static bool is_reference(const char *item)
{
    const char *slash = strchr(item, '/');
    size_t n = strlen(item);
    bool file = n > 5 && !strcasecmp(item + n - 5, ".gguf");
    if (!slash || !slash[1] || strchr("/.~", *item) || file_exists(item))
        return false;
    return !file || strchr(slash + 1, '/');  // one of a repository's files
}

// NAME=PATH in two, or PATH alone: what begins with / or . is one, whatever is in it.
static err_code split_model(struct arena *a, const char *item, const char **ret_name, const char **ret_short, const char **ret_path,
                            err *e)
{
    const char *eq = *item == '/' || *item == '.' ? NULL : strchr(item, '=');
    bool reference = !eq && is_reference(item);
    const char *name = eq ? arena_strndup(a, item, (size_t)(eq - item)) : name_of_path(a, item);
    *ret_path = eq ? eq + 1 : item;
    *ret_short = reference ? name : "";
    name = reference ? item : name;
    if (!name || !*name || !**ret_path)
        return err_set_param(e, ERR_INVALID, "model", "model '%s' is neither NAME=PATH, such as qwen=/models/qwen3.gguf, nor the path of "
                             "a file or folder with a name", item);
    *ret_name = name;
    return ERR_OK;
}

// The model of a hub: a section may call it by its short name.
static struct config_model *take_section(struct config *c, const char *name, const char *short_name)
{
    struct config_model *m = find_model(c, name, false), *section = m ? NULL : find_model(c, short_name, false);
    if (section && !section->path)
        m = section;
    m = m ? m : find_model(c, name, true);
    if (m) {
        m->name = name;
        m->short_name = short_name;
    }
    return m;
}

static bool is_alias(const struct config *c, const char *name)
{
    size_t n = strlen(name);
    for (int i = 0; i < c->alias.len; i++)
        if (!strncmp(c->alias.items[i], name, n) && c->alias.items[i][n] == '=')
            return true;
    return false;
}

// What somebody else is called, or what two would have, is no short name.
static void settle_short_names(struct config *c)
{
    bool taken[CONFIG_MAX_ITEMS] = {false};
    for (int i = 0; i < c->nmodels; i++) {
        taken[i] = is_alias(c, c->models[i].short_name);
        for (int k = 0; k < c->nmodels; k++)
            taken[i] |= i != k && config_is_model(&c->models[k], c->models[i].short_name);
    }
    for (int i = 0; i < c->nmodels; i++)
        if (taken[i])
            c->models[i].short_name = "";
}

// Entries of model join the sections; what a model leaves open takes the global setting.
static err_code finish_models(struct config *c, err *e)
{
    for (int i = 0; i < c->model.len; i++) {
        const char *name, *short_name, *path;
        if (split_model(&c->arena, c->model.items[i], &name, &short_name, &path, e))
            return e->code;
        struct config_model *m = *short_name ? take_section(c, name, short_name) : find_model(c, name, true);
        if (!m)
            return err_set_param(e, ERR_INVALID, "model", "more than %d models", CONFIG_MAX_ITEMS);
        if (m->path && strcmp(m->path, path) != 0)
            return err_set_param(e, ERR_INVALID, "model", "model '%s' has two paths, '%s' and '%s'; other names: NAME=PATH", name,
                                 m->path, path);
        m->path = path;
    }
    settle_short_names(c);
    for (int i = 0; i < c->nmodels; i++) {
        struct config_model *m = &c->models[i];
        if (!m->path)
            return err_set_param(e, ERR_INVALID, "model", "section [model %s] has no path", m->name);
        for (const char *s = m->name; *s; s++)
            if ((unsigned char)*s <= ' ' || *s == 127)
                return err_set_param(e, ERR_INVALID, "model", "model name '%s' has a space or control character; give NAME=PATH", m->name);
        m->activations = m->activations ? m->activations : c->activations;
        m->kv = m->kv ? m->kv : c->kv;
        m->chat_template = m->chat_template ? m->chat_template : c->chat_template;
        m->context = m->context >= 0 ? m->context : c->context;
        m->decision = m->decision ? m->decision : value_for(c, &c->decision, m);
        m->vocoder = m->vocoder ? m->vocoder : value_for(c, &c->vocoder, m);
    }
    return ERR_OK;
}

// ---- sources

static void note(struct config *c, const char *text)
{
    if (c->strays.len == CONFIG_MAX_ITEMS)
        return;
    if (!c->strays.items)
        c->strays.items = arena_alloc(&c->arena, CONFIG_MAX_ITEMS * sizeof *c->strays.items);
    c->strays.items[c->strays.len++] = arena_strdup(&c->arena, text);
}

// What is set twice is no error, the last counts; but most likely it is one. Lists are meant to be.
static void note_twice(struct parse *p, const char *section, const char *name)
{
    char text[400];
    int i = find_key(name);
    struct seen *s = p->seen;
    if (!*section && i >= 0 && keys[i].kind == LIST)
        return;
    while (s && (strcmp(s->section, section) || strcmp(s->name, name)))
        s = s->next;
    if (s) {
        snprintf(text, sizeof text, "%.200s: line %d sets %.60s again, which line %d has set; the last one counts", p->file, p->line, name, s->line);
        note(p->c, text);
        s->line = p->line;
        return;
    }
    s = arena_alloc(&p->c->arena, sizeof *s);
    *s = (struct seen){arena_strdup(&p->c->arena, section), arena_strdup(&p->c->arena, name), p->line, p->seen};
    p->seen = s;
}

// inih's reader of one line, with its end, as fgets; counts them.
static char *next_line(char *out, int size, void *user)
{
    struct parse *p = user;
    size_t n = strcspn(p->rest, "\n");
    n += p->rest[n] == '\n';
    n = n < (size_t)size ? n : (size_t)size - 1;  // no line is longer: load_file
    if (n == 0)
        return NULL;
    memcpy(out, p->rest, n);
    out[n] = 0;
    p->rest += n;
    p->line++;
    return out;
}

// inih's handler; 0 ends parsing.
static int on_line(void *user, const char *section, const char *name, const char *value)
{
    struct parse *p = user;
    if (p->code)
        return 0;
    char from[256];
    snprintf(from, sizeof from, "%.120s: line %d: %.60s%s%.40s", p->file, p->line, section, *section ? ": " : "", name);
    note_twice(p, section, name);
    if (*section) {
        if (strncmp(section, "model ", 6) == 0 && section[6])
            p->code = set_model_value(p, section + 6, name, value, from);
        else
            p->code = err_set(p->e, ERR_INVALID, "%s: line %d: unknown section [%s]; only [model NAME] is known", p->file, p->line, section);
        return p->code == ERR_OK;
    }
    int i = find_key(name);
    char hint[256];
    if (i < 0)
        p->code = err_set_param(p->e, ERR_INVALID, name, "%s: line %d: unknown setting '%s'%s", p->file, p->line, name,
                                guess(name, false, hint));
    else
        p->code = set_value(p, i, value, from);
    return p->code == ERR_OK;
}

static err_code load_file(struct parse *p, const char *path)
{
    char *text;
    size_t len;
    err_code rc = file_read(path, CONFIG_MAX_FILE, &text, &len, p->e);
    if (rc)
        return err_wrap(p->e, "configuration file");
    if (strlen(text) != len)
        rc = err_set(p->e, ERR_INVALID, "%s: holds a NUL byte; expected text", path);
    int line = 1;
    for (const char *s = text; !rc && *s; line++) {
        size_t n = strcspn(s, "\n");
        if (n > CONFIG_MAX_LINE)
            rc = err_set(p->e, ERR_INVALID, "%s: line %d has %zu bytes, at most %d are read (a list may be repeated over lines)",
                         path, line, n, CONFIG_MAX_LINE);
        s += n + (s[n] == '\n');
    }
    if (!rc) {
        p->file = path;
        p->source = FROM_FILE;
        p->rest = text;
        int bad = ini_parse_stream(next_line, p, on_line, p);
        rc = p->code;
        if (!rc && bad)
            rc = err_set(p->e, ERR_INVALID, "%s: line %d is neither 'name = value' nor a [section]", path, bad);
    }
    free(text);
    return rc;
}

// Whether Kubernetes or Docker set it, for a service that is called oxinferd: PORT=tcp://..., PORT_80_TCP..., SERVICE_HOST.
static bool is_of_a_service(const char *rest, const char *value)
{
    return strncmp(rest, "SERVICE_", 8) == 0 || strncmp(rest, "PORT_", 5) == 0 || (strncmp(rest, "PORT", 4) == 0 && strstr(value, "://"));
}

// A misspelt variable is not refused, others may have set it; but it is not passed over in silence either.
static void note_strays(struct config *c)
{
    static const char prefix[] = "OXINFERD_";
    enum { PREFIX = sizeof prefix - 1 };
    for (char **v = environ; *v; v++) {
        const char *eq = strchr(*v, '=');
        char name[64], hint[256], text[400];
        size_t n = eq ? (size_t)(eq - *v) : 0;
        if (n <= PREFIX || n - PREFIX >= sizeof name || memcmp(*v, prefix, PREFIX) != 0 || is_of_a_service(*v + PREFIX, eq + 1))
            continue;
        for (size_t i = PREFIX; i <= n; i++)
            name[i - PREFIX] = i < n ? (char)tolower((unsigned char)(*v)[i]) : 0;
        if (find_key(name) >= 0 || strcmp(name, "config") == 0)
            continue;
        snprintf(text, sizeof text, "%.*s in the environment is no setting%s", (int)n, *v, guess(name, false, hint));
        note(c, text);
    }
}

static err_code load_environment(struct parse *p)
{
    p->source = FROM_ENVIRONMENT;
    for (int i = 0; i < NKEYS; i++) {
        if (!keys[i].name)
            continue;
        char name[64] = "OXINFERD_";
        for (size_t n = 9, j = 0; keys[i].name[j] && n + 1 < sizeof name; n++, j++)
            name[n] = (char)toupper((unsigned char)keys[i].name[j]);
        const char *value = getenv(name);
        if (value && *value) {
            err_code rc = set_value(p, i, value, name);
            if (rc)
                return rc;
        }
    }
    return ERR_OK;
}

// Whether a word is meant as a model: it could be a path or OWNER/NAME.
static bool is_model_word(const char *word)
{
    size_t n = strlen(word);
    return strchr(word, '/') || (n > 5 && !strcasecmp(word + n - 5, ".gguf")) || file_exists(word);
}

// One "--name value", "--name=value" or "--flag" at args[*i]; moves *i past it.
static err_code load_option(struct parse *p, char *const *args, int nargs, int *i)
{
    const char *arg = args[*i];
    char name[64], hint[256];
    if (arg[0] == '-' && arg[1] != '-')
        return err_set(p->e, ERR_INVALID, "'%s' is not an option%s; see oxinferd --help", arg, guess(arg + 1, true, hint));
    if (strncmp(arg, "--", 2) != 0 && p->words && is_model_word(arg))
        return set_value(p, find_key("model"), arg, arg);
    if (strncmp(arg, "--", 2) != 0)
        return err_set(p->e, ERR_INVALID,
                       "'%s' is not an option: a model is given with --model%s, a configuration file with --config; see "
                       "oxinferd --help", arg, p->words ? " or by its path or OWNER/NAME" : "");
    size_t n = strcspn(arg + 2, "=");
    if (n >= sizeof name)
        n = sizeof name - 1;
    for (size_t j = 0; j < n; j++)
        name[j] = arg[2 + j] == '-' ? '_' : arg[2 + j];
    name[n] = 0;
    int k = find_key(name);
    if (k < 0)
        return err_set(p->e, ERR_INVALID, "unknown option '%.*s'%s; see oxinferd --help", (int)n + 2, arg, guess(name, true, hint));
    const char *value = arg[2 + n] == '=' ? arg + 3 + n : NULL;
    bool next_is_value = *i + 1 < nargs && strncmp(args[*i + 1], "--", 2) != 0;
    if (!value && keys[k].kind == BOOL) {
        value = next_is_value ? args[++*i] : "true";
    } else if (!value) {
        if (!next_is_value)
            return err_set_param(p->e, ERR_INVALID, name, "option '%s' needs a value", arg);
        value = args[++*i];
    }
    return set_value(p, k, value, arg);
}

static err_code load_args(struct parse *p, char *const *args, int nargs)
{
    p->source = FROM_ARGS;
    for (int i = 0; i < nargs; i++) {
        if (strcmp(args[i], "--config") == 0) {
            i++;
            continue;
        }
        if (strncmp(args[i], "--config=", 9) == 0)
            continue;
        err_code rc = load_option(p, args, nargs, &i);
        if (rc)
            return rc;
    }
    return ERR_OK;
}

static err_code find_file(char *const *args, int nargs, const char **ret_path, err *e)
{
    const char *path = getenv("OXINFERD_CONFIG");
    for (int i = 0; i < nargs; i++) {
        if (strncmp(args[i], "--config=", 9) == 0)
            path = args[i] + 9;
        if (strcmp(args[i], "--config") == 0) {
            if (i + 1 == nargs)
                return err_set(e, ERR_INVALID, "option '--config' needs a file");
            path = args[++i];
        }
    }
    *ret_path = path && *path ? path : NULL;
    return ERR_OK;
}

static err_code load(struct config *ret_config, char *const *args, int nargs, bool words, err *e)
{
    struct config c = {0};
    struct parse p = {.c = &c, .words = words, .e = e};
    const char *path = NULL;
    err_code rc = ERR_OK;
    for (int i = 0; i < NKEYS && !rc; i++)
        if (keys[i].name)
            rc = set_value(&p, i, keys[i].fallback, "default");
    if (!rc)
        rc = find_file(args, nargs, &path, e);
    if (!rc && path)
        rc = load_file(&p, path);
    if (!rc)
        rc = load_environment(&p);
    if (!rc)
        note_strays(&c);
    if (!rc)
        rc = load_args(&p, args, nargs);
    if (!rc)
        rc = finish_models(&c, e);
    if (rc) {
        config_done(&c);
        return rc;
    }
    *ret_config = c;
    return ERR_OK;
}

err_code config_load(struct config *ret_config, char *const *args, int nargs, err *e)
{
    return load(ret_config, args, nargs, false, e);
}

err_code config_load_models(struct config *ret_config, char *const *args, int nargs, err *e)
{
    return load(ret_config, args, nargs, true, e);
}

void config_done(struct config *c)
{
    arena_done(&c->arena);
    *c = (struct config){0};
}

// ---- texts made from the table

static const char *value_word(const struct key *k)
{
    static const char *const words[] = {[TEXT] = "TEXT", [LIST] = "ITEM", [INT] = "N", [SIZE] = "BYTES", [SHARE] = "BYTES|N%", [BOOL] = "true|false"};
    return k->kind == CHOICE ? k->choices : words[k->kind];
}

void config_help(FILE *out, const char *group)
{
    bool wanted = true;
    for (int i = 0; i < NKEYS; i++) {
        const struct key *k = &keys[i];
        if (k->group) {
            wanted = !group || strcmp(k->group, group) == 0;
            if (wanted)
                fprintf(out, "\n%s:\n", k->group);
            continue;
        }
        if (!wanted)
            continue;
        char option[96];
        int n = snprintf(option, sizeof option, "--%s", k->name);
        for (int j = 2; j < n; j++)
            option[j] = option[j] == '_' ? '-' : option[j];
        snprintf(option + n, sizeof option - (size_t)n, " %s", value_word(k));
        fprintf(out, "  %-36s %s", option, k->help);
        if (*k->fallback && strcmp(k->fallback, "0") != 0)
            fprintf(out, " [%s]", k->fallback);
        fputc('\n', out);
    }
}

void config_sample(FILE *out)
{
    fputs("# oxinferd configuration. Start with: oxinferd serve --config FILE\n"
          "# Command line options win over OXINFERD_* environment variables, those over this file.\n"
          "# Each line shows a default; remove the # to change it.\n# " CONFIG_SIZES "\n", out);
    for (int i = 0; i < NKEYS; i++) {
        const struct key *k = &keys[i];
        if (k->group) {
            fprintf(out, "\n# ---- %s\n", k->group);
            continue;
        }
        fprintf(out, "\n# %s\n", k->help);
        if (k->kind == CHOICE)
            fprintf(out, "# (one of %s)\n", k->choices);
        fprintf(out, "#%s = %s\n", k->name, k->fallback);
    }
    fputs("\n# A model with settings of its own (path is needed, the rest is optional):\n"
          "#[model qwen]\n#path = /models/qwen3-0.6b.gguf\n#context = 8192\n#kv = q8\n", out);
}
