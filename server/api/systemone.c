// systemone.c - POST /v1/systemone: several named questions about one state, in the shape the System One servers share.
//
//     {"model", "state": text | object | array, "instructions"?: text, "cache_salt"?,
//      "questions": {ID: {"type": "noul", "instructions", "criteria"?: {"true"?, "false"?}}
//                       | {"type": "choice", "instructions", "criteria": {OPTION: description | null, ...}}
//                       | {"type": "score", "instructions", "criteria": [level, ...]}}}     2 to 10 levels, lowest first
//  -> {"id", "object": "structured_decision", "created", "model", "answers": {ID: answer}, "usage", "diagnostics"}
//     noul    {"type", "noul": probability of yes}
//     choice  {"type", "choice", "probabilities": {OPTION: p}, "confidence"}
//     score   {"type", "score": expected level, "legend": {"0": level}, "probabilities": {"0": p}, "confidence"}
//
// How a question becomes a prompt: a state or an instruction that is no text goes in as Python writes its JSON; an option
// is "NAME: description"; the levels of a score are options of a choice, because the models' own score is 0 to 5 without
// words; what noul's sides mean follows the question in parentheses; instructions for all stand before each question.
// confidence = (best - 1/n) / (1 - 1/n). output_tokens is 0: nothing is generated. diagnostics[ID].label_mass: what the
// options have of the whole vocabulary, null with a trained head, which knows nothing else.
#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/rng.h"
#include "server/api/fields.h"
#include "server/api/handlers.h"
#include "server/api/jsonout.h"
#include "server/api/judge.h"
#include "server/api/pyjson.h"
#include "server/request.h"

enum { MAX_LEVELS = 10, MIN_LEVELS = 2, MAX_TEXT = 1 << 30, PATH = 200 };
enum type { NOUL, CHOICE, SCORE };
static const char *const types[] = {"noul", "choice", "score"};

// What an answer needs beyond the ask.
struct named {
    const char *id;
    enum type type;
    const char **names;  // of the options: names, or levels
};

struct reading {
    struct fields *f;
    struct judge *j;
    const char *shared;  // instructions for all; NULL: none
};

// ---- texts

static const char *text_of(struct reading *rd, const json_t *v, const char *path)
{
    if (json_is_string(v) || json_is_object(v) || json_is_array(v))
        return api_judge_text(rd->j->r, v);
    api_fields_wrong_type(rd->f, v, path, "a string, an object or an array");
    return "";
}

static const char *joined(struct reading *rd, const char *a, const char *between, const char *b)
{
    struct buf text;
    buf_init(&text, MAX_TEXT);
    buf_add_str(&text, a);
    buf_add_str(&text, between);
    buf_add_str(&text, b);
    return api_judge_keep(rd->j->r, &text);
}

static const char *question_text(struct reading *rd, const json_t *q, const char *path)
{
    const json_t *v = json_object_get(q, "instructions");
    if (!v || json_is_null(v)) {
        api_fields_fail(rd->f, "missing_required_parameter", path, "Missing required parameter: '%s'.", path);
        return "";
    }
    const char *text = text_of(rd, v, path);
    return rd->shared ? joined(rd, rd->shared, " ", text) : text;
}

// ---- criteria

static void add_side(struct reading *rd, const json_t *criteria, const char *side, const char *path, struct buf *out)
{
    const json_t *v = json_object_get(criteria, side);
    if (!v || json_is_null(v))
        return;
    buf_add_str(out, out->len ? "; " : " (");
    buf_add_str(out, side);
    buf_add_str(out, ": ");
    buf_add_str(out, text_of(rd, v, path));
}

static void read_noul(struct reading *rd, struct ask *a, const json_t *criteria, const char *path)
{
    a->kind = DECIDE_BOOL;
    if (!criteria || json_is_null(criteria))
        return;
    if (!json_is_object(criteria)) {
        api_fields_wrong_type(rd->f, criteria, path, "an object");
        return;
    }
    struct buf sides;
    buf_init(&sides, MAX_TEXT);
    add_side(rd, criteria, "true", path, &sides);
    add_side(rd, criteria, "false", path, &sides);
    if (sides.len) {
        buf_add_char(&sides, ')');
        a->text = joined(rd, a->text, "", sides.data);
    }
    buf_done(&sides);
}

static void new_options(struct reading *rd, struct ask *a, struct named *n, size_t count)
{
    struct arena *arena = &rd->j->r->arena;
    a->kind = DECIDE_ENUM;
    a->options = arena_alloc(arena, count * sizeof *a->options);
    n->names = arena_alloc(arena, count * sizeof *n->names);
}

static void read_choice(struct reading *rd, struct ask *a, struct named *n, const json_t *criteria, const char *path)
{
    const char *name;
    json_t *v;
    if (!json_is_object(criteria)) {
        api_fields_wrong_type(rd->f, criteria, path, "an object");
        return;
    }
    if (!api_judge_count(rd->j, rd->f, json_object_size(criteria), path))
        return;
    new_options(rd, a, n, json_object_size(criteria));
    json_object_foreach((json_t *)criteria, name, v) {
        n->names[a->noptions] = name;
        a->options[a->noptions++] = json_is_null(v) ? name : joined(rd, name, ": ", text_of(rd, v, path));
    }
}

static void read_score(struct reading *rd, struct ask *a, struct named *n, const json_t *criteria, const char *path)
{
    size_t count = json_array_size(criteria);
    if (!json_is_array(criteria)) {
        api_fields_wrong_type(rd->f, criteria, path, "an array");
        return;
    }
    if (count < MIN_LEVELS || count > MAX_LEVELS) {
        api_fields_fail(rd->f, count < MIN_LEVELS ? "array_below_min_length" : "array_above_max_length", path,
                        "Invalid '%s': expected %d to %d levels, but got %zu instead.", path, MIN_LEVELS, MAX_LEVELS, count);
        return;
    }
    new_options(rd, a, n, count);
    for (size_t i = 0; i < count; i++)
        n->names[i] = a->options[a->noptions++] = text_of(rd, json_array_get(criteria, i), path);
}

// ---- questions

static void check_keys(struct reading *rd, const json_t *q, const char *id)
{
    const char *key;
    json_t *v;
    json_object_foreach((json_t *)q, key, v)
        if (strcmp(key, "type") && strcmp(key, "instructions") && strcmp(key, "criteria")) {
            char path[PATH];
            snprintf(path, sizeof path, "questions.%.60s.%.60s", id, key);
            api_fields_fail(rd->f, "unknown_parameter", path, "Unknown parameter: '%s'.", path);
        }
}

static bool type_of(struct reading *rd, const json_t *q, const char *path, enum type *ret_type)
{
    const char *name = json_string_value(json_object_get(q, "type"));
    for (int i = 0; name && i < 3; i++)
        if (!strcmp(name, types[i])) {
            *ret_type = (enum type)i;
            return true;
        }
    api_fields_fail(rd->f, "invalid_value", path, "Invalid value: '%.40s'. Supported values are: 'noul', 'choice' and "
                    "'score'.", name ? name : "");
    return false;
}

static void read_question(struct reading *rd, const json_t *q, struct ask *a, struct named *n)
{
    char path[PATH];
    snprintf(path, sizeof path, "questions.%.60s", n->id);
    size_t base = strlen(path);
    if (!n->id[0]) {
        api_fields_fail(rd->f, "invalid_value", "questions", "Invalid 'questions': a question has an empty name.");
        return;
    }
    if (!json_is_object(q)) {
        api_fields_wrong_type(rd->f, q, path, "an object");
        return;
    }
    check_keys(rd, q, n->id);
    snprintf(path + base, sizeof path - base, ".type");
    if (!type_of(rd, q, path, &n->type))
        return;
    snprintf(path + base, sizeof path - base, ".instructions");
    a->text = question_text(rd, q, path);
    const json_t *criteria = json_object_get(q, "criteria");
    snprintf(path + base, sizeof path - base, ".criteria");
    if (n->type == NOUL)
        read_noul(rd, a, criteria, path);
    else if (!criteria)
        api_fields_fail(rd->f, "missing_required_parameter", path, "Missing required parameter: '%s'.", path);
    else if (n->type == CHOICE)
        read_choice(rd, a, n, criteria, path);
    else
        read_score(rd, a, n, criteria, path);
}

static const json_t *questions_of(struct fields *f)
{
    const json_t *questions = NULL;
    if (api_fields_missing(f, "questions") || !api_fields_object(f, "questions", &questions))
        return NULL;
    size_t n = json_object_size(questions);
    if (n < 1)
        api_fields_fail(f, "invalid_value", "questions", "Invalid 'questions': expected at least one question.");
    if (n > DECIDE_MAX_QUESTIONS)
        api_fields_fail(f, "object_above_max_length", "questions", "Invalid 'questions': expected at most %d questions, but "
                        "got %zu instead.", DECIDE_MAX_QUESTIONS, n);
    return questions;
}

static void read_request(struct reading *rd, const json_t *questions)
{
    struct fields *f = rd->f;
    struct named *named = rd->j->ud;
    const json_t *state = json_object_get(f->object, "state"), *shared = api_fields_get(f, "instructions");
    const char *id;
    json_t *q;
    if (!api_fields_missing(f, "state"))
        rd->j->state = text_of(rd, state, "state");
    rd->shared = shared ? text_of(rd, shared, "instructions") : NULL;
    int i = 0;
    json_object_foreach((json_t *)questions, id, q) {
        named[i].id = id;
        read_question(rd, q, &rd->j->asks[i], &named[i]);
        i++;
    }
}

// ---- the answer

// {"A": 0.5, ...}, keyed by names, or by numbers where there are none.
static void add_probabilities(const struct ask *a, const char *const *names, struct buf *out)
{
    buf_add_str(out, ",\"probabilities\":{");
    for (size_t i = 0; i < a->n; i++) {
        if (i)
            buf_add_char(out, ',');
        if (names)
            api_jsonout_text(out, names[i]);
        else
            buf_printf(out, "\"%zu\"", i);
        buf_add_char(out, ':');
        api_pyjson_float(out, a->p[i]);
    }
    buf_add_str(out, "},\"confidence\":");
    api_pyjson_float(out, api_judge_confidence(a));
}

static void add_score(const struct ask *a, const struct named *n, struct buf *out)
{
    buf_add_str(out, ",\"score\":");
    api_pyjson_float(out, api_judge_expected(a));
    buf_add_str(out, ",\"legend\":{");
    for (size_t i = 0; i < a->n; i++) {
        buf_printf(out, "%s\"%zu\":", i ? "," : "", i);
        api_jsonout_text(out, n->names[i]);
    }
    buf_add_char(out, '}');
    add_probabilities(a, NULL, out);
}

static void add_answer(const struct ask *a, const struct named *n, struct buf *out)
{
    buf_printf(out, "{\"type\":\"%s\"", types[n->type]);
    if (n->type == NOUL) {
        buf_add_str(out, ",\"noul\":");
        api_pyjson_float(out, a->p[1]);
    } else if (n->type == CHOICE) {
        buf_add_str(out, ",\"choice\":");
        api_jsonout_text(out, n->names[a->best]);
        add_probabilities(a, n->names, out);
    } else {
        add_score(a, n, out);
    }
    buf_add_char(out, '}');
}

static void write(const struct judge *j, struct buf *out)
{
    const struct named *named = j->ud;
    buf_printf(out, "{\"id\":\"decision-%016llx%08x\",\"object\":\"structured_decision\",\"created\":%lld,\"model\":",
               (unsigned long long)rng_os(), (unsigned)rng_os(), (long long)clock_unix_s());
    api_jsonout_text(out, j->model->name);
    buf_add_str(out, ",\"answers\":{");
    for (int i = 0; i < j->nasks; i++) {
        if (i)
            buf_add_char(out, ',');
        api_jsonout_text(out, named[i].id);
        buf_add_char(out, ':');
        add_answer(&j->asks[i], &named[i], out);
    }
    buf_printf(out, "},\"usage\":{\"input_tokens\":%d,\"output_tokens\":0},\"diagnostics\":{", j->usage.prompt_tokens);
    for (int i = 0; i < j->nasks; i++) {
        if (i)
            buf_add_char(out, ',');
        api_jsonout_text(out, named[i].id);
        buf_add_str(out, ":{\"label_mass\":");
        api_judge_mass(&j->asks[i], out);
        buf_add_char(out, '}');
    }
    buf_add_str(out, "}}");
}

static const struct field systemone_fields[] = {
    {"model", FIELD_HONOURED, "string"},
    {"state", FIELD_HONOURED, "!any"},
    {"questions", FIELD_HONOURED, "!object"},
    {"instructions", FIELD_HONOURED, "any"},
    {"images", FIELD_REFUSED, NEUTRAL_EMPTY},
    {"assets", FIELD_REFUSED, NEUTRAL_EMPTY},
    {"chat_template_kwargs", FIELD_ACCEPTED, 0},
    {"keep_alive", FIELD_ACCEPTED, 0},
    {"stream", FIELD_REFUSED, NEUTRAL_FALSE},
};
API_BODY(api_systemone_create, systemone_fields, caller);

void api_systemone_create(struct request *r)
{
    struct fields f;
    api_fields_init(&f, r);
    api_fields_check(&f, &api_systemone_create_body);
    const json_t *questions = questions_of(&f);
    if (f.failed) {
        api_fields_reply(&f);
        return;
    }
    int n = (int)json_object_size(questions);
    struct judge *j = api_judge_new(r, n);
    struct reading rd = {.f = &f, .j = j};
    j->ud = arena_alloc(&r->arena, (size_t)n * sizeof(struct named));
    j->write = write;
    if (api_judge_model(j, &f))
        read_request(&rd, questions);
    if (f.failed)
        api_fields_reply(&f);
    else
        api_judge_start(j);
}
