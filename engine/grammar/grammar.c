// grammar.c - requests to compiled grammars, their cache, and the state of a choice.
//
// Reference counts: the cache holds one for each entry, a state one for itself. The cache's lock guards its entries only;
// compiling happens outside it, on the prep thread that asked.
#include "engine/grammar/grammar.h"

#include <jansson.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "engine/grammar/gbnf.h"
#include "engine/grammar/machine.h"
#include "engine/grammar/regex.h"
#include "engine/grammar/schema.h"
#include "engine/grammar/structure.h"
#include "engine/grammar/token_mask.h"

enum { CACHE_ENTRIES = 64, CACHE_BYTES = 64 << 20, MAX_CHOICES = 10000 };

struct grammar {
    atomic_int references;
    struct nodes nodes;
    struct token_masks *masks;
    const struct token_trie *trie;
};

struct grammar_state {
    struct grammar *g;
    struct machine *m;
    uint64_t *mask;
    uint32_t nmask;
    bool masked;  // mask is that of where the machine stands
};

// ---- compiling

static err_code compile_regex(const struct grammar_request *r, struct nodes *g, uint32_t *ret_root, err *e)
{
    struct chardfa_budget b = {CHARDFA_STATES, CHARDFA_WORK};
    struct chardfa *c = NULL;
    struct bytedfa *d;
    err_code code = regex_compile(r->text, r->len, false, &b, &c, e);
    if (!code)
        code = bytedfa_make(c, false, false, &d, e);
    if (!code)
        *ret_root = nodes_bytes(g, d, false);
    chardfa_free(c);
    return code;
}

static err_code compile_choice(const struct grammar_request *r, struct nodes *g, uint32_t *ret_root, err *e)
{
    json_t *list = json_loadb(r->text, r->len, JSON_DECODE_ANY, NULL);
    size_t n = json_array_size(list);
    err_code code = ERR_OK;
    if (n == 0 || n > MAX_CHOICES)
        code = err_set(e, ERR_INVALID, "%zu choices, expected 1 to %d", n, MAX_CHOICES);
    const char **texts = mem_new((n + 1) * sizeof *texts);
    size_t *lens = mem_new((n + 1) * sizeof *lens);
    for (size_t i = 0; i < n && !code; i++) {
        const json_t *v = json_array_get(list, i);
        if (!json_is_string(v))
            code = err_set(e, ERR_INVALID, "choice %zu is not a string", i);
        texts[i] = json_string_value(v);
        lens[i] = json_string_length(v);
    }
    if (!code)
        *ret_root = nodes_literals(g, texts, lens, n);
    free(texts);
    free(lens);
    json_decref(list);
    return code;
}

static err_code compile_schema(const struct grammar_request *r, struct nodes *g, uint32_t *ret_root, err *e)
{
    static const char object[] = "{\"type\":\"object\"}";
    bool any_object = r->kind == GRAMMAR_JSON_OBJECT;
    json_error_t je;
    json_t *schema = any_object ? json_loads(object, 0, NULL) : json_loadb(r->text, r->len, JSON_DECODE_ANY, &je);
    if (!schema)
        return err_set(e, ERR_INVALID, "the schema is not JSON: %s", je.text);
    err_code code = schema_compile(schema, g, ret_root, e);
    json_decref(schema);
    return code;
}

static err_code compile(const struct grammar_request *r, struct nodes *g, uint32_t *ret_root, err *e)
{
    if (r->len > GRAMMAR_MAX_TEXT)
        return err_set(e, ERR_TOO_LARGE, "a text of %zu bytes, at most %d", r->len, GRAMMAR_MAX_TEXT);
    switch (r->kind) {
    case GRAMMAR_JSON_SCHEMA:
    case GRAMMAR_JSON_OBJECT: return compile_schema(r, g, ret_root, e);
    case GRAMMAR_REGEX: return compile_regex(r, g, ret_root, e);
    case GRAMMAR_CHOICE: return compile_choice(r, g, ret_root, e);
    case GRAMMAR_GBNF: return gbnf_compile(r->text, r->len, g, ret_root, e);
    case GRAMMAR_STRUCTURE: return structure_compile(r->text, r->len, g, ret_root, e);
    default: return err_set(e, ERR_INTERNAL, "a grammar of kind %d", (int)r->kind);
    }
}

// Clients look for "Invalid schema for response_format".
static err_code tell(const struct grammar_request *r, const err *why, err *e)
{
    static const char *const prefixes[] = {
        [GRAMMAR_JSON_SCHEMA] = "Invalid schema for", [GRAMMAR_JSON_OBJECT] = "Invalid",
        [GRAMMAR_REGEX] = "Invalid regular expression in", [GRAMMAR_CHOICE] = "Invalid", [GRAMMAR_GBNF] = "Invalid grammar in",
        [GRAMMAR_STRUCTURE] = "Invalid structural tag in",
    };
    // What is too large or not enforced is a client's affair like anything else that is wrong with it.
    err_code code = why->code == ERR_INTERNAL || why->code == ERR_MEMORY || why->code == ERR_CANCELLED ? why->code : ERR_INVALID;
    const char *field = r->field ? r->field : "grammar";
    if (why->param[0])  // it names the field itself
        return err_set_param(e, code, why->param, "%s", why->text);
    if (r->name)
        return err_set_param(e, code, field, "%s %s '%s': %s", prefixes[r->kind], field, r->name, why->text);
    return err_set_param(e, code, field, "%s '%s': %s", prefixes[r->kind], field, why->text);
}

err_code grammar_compile(const struct grammar_request *r, const struct token_trie *trie, struct grammar **ret_grammar,
                         err *e)
{
    struct grammar *g = mem_new(sizeof *g);
    bool json = r->kind == GRAMMAR_JSON_SCHEMA || r->kind == GRAMMAR_JSON_OBJECT;
    uint32_t root = 0;
    err why = {0};
    atomic_init(&g->references, 1);
    nodes_init(&g->nodes, json ? NODES_JSON_DEPTH : NODES_RULE_DEPTH);
    if (compile(r, &g->nodes, &root, &why) || nodes_finish(&g->nodes, root, &why)) {
        grammar_drop(g);
        return tell(r, &why, e);
    }
    g->trie = trie;
    g->masks = token_mask_open(&g->nodes, trie);
    token_mask_prepare(g->masks);
    *ret_grammar = g;
    return ERR_OK;
}

void grammar_drop(struct grammar *g)
{
    if (!g || atomic_fetch_sub(&g->references, 1) > 1)
        return;
    token_mask_close(g->masks);
    nodes_done(&g->nodes);
    free(g);
}

// ---- the cache

struct entry {
    enum grammar_kind kind;
    char *text;
    size_t len;
    struct grammar *g;
    uint64_t used;
};

struct grammar_cache {
    const struct tokenizer *tokenizer;
    int vocab;
    pthread_mutex_t lock, trie_lock;
    struct token_trie *trie;
    struct entry entries[CACHE_ENTRIES];
    int n;
    size_t bytes;
    uint64_t clock;
};

struct grammar_cache *grammar_cache_open(const struct tokenizer *t, int vocab)
{
    struct grammar_cache *c = mem_new(sizeof *c);
    c->tokenizer = t;
    c->vocab = vocab;
    pthread_mutex_init(&c->lock, NULL);
    pthread_mutex_init(&c->trie_lock, NULL);
    return c;
}

static size_t entry_bytes(const struct entry *x)
{
    return x->len + x->g->nodes.bytes + TOKEN_MASK_CACHE_BYTES / 8;
}

static void evict(struct grammar_cache *c, int i)
{
    c->bytes -= entry_bytes(&c->entries[i]);
    free(c->entries[i].text);
    grammar_drop(c->entries[i].g);
    c->entries[i] = c->entries[--c->n];
}

void grammar_cache_close(struct grammar_cache *c)
{
    if (!c)
        return;
    while (c->n > 0)
        evict(c, 0);
    token_trie_free(c->trie);
    pthread_mutex_destroy(&c->lock);
    pthread_mutex_destroy(&c->trie_lock);
    free(c);
}

static const struct token_trie *trie_of(struct grammar_cache *c)
{
    pthread_mutex_lock(&c->trie_lock);
    if (!c->trie)
        c->trie = token_trie_of(c->tokenizer, c->vocab);
    pthread_mutex_unlock(&c->trie_lock);
    return c->trie;
}

static struct grammar *find(struct grammar_cache *c, const struct grammar_request *r)
{
    struct grammar *found = NULL;
    pthread_mutex_lock(&c->lock);
    for (int i = 0; i < c->n && !found; i++) {
        struct entry *x = &c->entries[i];
        if (x->kind != r->kind || x->len != r->len || (r->len && memcmp(x->text, r->text, r->len)))
            continue;
        x->used = ++c->clock;
        found = x->g;
        atomic_fetch_add(&found->references, 1);
    }
    pthread_mutex_unlock(&c->lock);
    return found;
}

static int oldest(const struct grammar_cache *c)
{
    int at = 0;
    for (int i = 1; i < c->n; i++)
        if (c->entries[i].used < c->entries[at].used)
            at = i;
    return at;
}

static void keep(struct grammar_cache *c, const struct grammar_request *r, struct grammar *g)
{
    atomic_fetch_add(&g->references, 1);
    struct entry x = {r->kind, mem_strndup(r->text ? r->text : "", r->len), r->len, g, 0};
    pthread_mutex_lock(&c->lock);
    while (c->n == CACHE_ENTRIES || (c->n > 0 && c->bytes + entry_bytes(&x) > CACHE_BYTES))
        evict(c, oldest(c));
    x.used = ++c->clock;
    c->entries[c->n++] = x;
    c->bytes += entry_bytes(&x);
    pthread_mutex_unlock(&c->lock);
}

err_code grammar_cache_get(struct grammar_cache *c, const struct grammar_request *r, struct grammar **ret_grammar, err *e)
{
    struct grammar *g = find(c, r);
    if (!g) {
        err_code code = grammar_compile(r, trie_of(c), &g, e);
        if (code)
            return code;
        keep(c, r, g);
    }
    *ret_grammar = g;
    return ERR_OK;
}

// ---- the state of a choice

struct grammar_state *grammar_begin(struct grammar *g)
{
    struct grammar_state *s = mem_new(sizeof *s);
    atomic_fetch_add(&g->references, 1);
    s->g = g;
    s->m = machine_new(&g->nodes);
    s->mask = mem_new((g->trie->words + 1) * sizeof *s->mask);
    return s;
}

struct grammar_state *grammar_fork(const struct grammar_state *from)
{
    struct grammar_state *s = mem_new(sizeof *s);
    atomic_fetch_add(&from->g->references, 1);
    s->g = from->g;
    s->m = machine_copy(from->m);
    s->mask = mem_new((s->g->trie->words + 1) * sizeof *s->mask);
    return s;
}

void grammar_free(struct grammar_state *s)
{
    if (!s)
        return;
    machine_free(s->m);
    grammar_drop(s->g);
    free(s->mask);
    free(s);
}

uint64_t *grammar_mask(struct grammar_state *s, uint32_t *ret_n)
{
    if (!s->masked)
        s->nmask = token_mask_fill(s->g->masks, s->m, s->mask, NULL);
    s->masked = true;
    *ret_n = s->nmask;
    return s->mask;
}

bool grammar_take(struct grammar_state *s, int32_t id)
{
    size_t len;
    if (id < 0 || id >= s->g->trie->vocab)
        return false;
    const char *text = token_trie_text(s->g->trie, id, &len);
    if (len == 0 || !machine_text(s->m, text, len))
        return false;
    s->masked = false;
    return true;
}

bool grammar_ends(const struct grammar_state *s)
{
    return machine_ends(s->m);
}

bool grammar_goes_on(const struct grammar_state *s)
{
    return machine_goes_on(s->m);
}

bool grammar_broken(const struct grammar_state *s)
{
    return machine_broken(s->m);
}
