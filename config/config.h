// config.h - the settings of the daemon: command line > environment OXINFERD_* > file > default.
//
//     struct config c;
//     if (config_load(&c, args, nargs, &e)) ...     // args: what follows the command; --config F is one of them
//     ... c.listen.items[i], c.threads, c.models[i].path ...
//     config_done(&c);
//
// All settings stand in keys.def. Nothing is read from a default path: no --config, no file. An unknown key, a value out of
// range or a wrong type is ERR_INVALID with the source (option, variable, or file and line), the value and what was
// expected. Strings live until config_done.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "base/arena.h"
#include "base/err.h"

struct config_list {
    const char **items;
    int len;
};

// One model: from model = NAME=PATH or = PATH, whose last part is then the name, or from a section [model NAME]. What a section
// leaves out is the global setting. A model of a hub without NAME= is called as it was written (OWNER/NAME...); what a path's
// name would be is then its short name, which the settings know it by, too.
struct config_model {
    const char *short_name;  // "": none, or another model has it
    const char *name, *path, *activations, *kv, *chat_template, *decision, *vocoder;  // the last three: "" when not set
    int64_t context;
};

struct config {
    struct arena arena;
#define CONFIG_TEXT const char *
#define CONFIG_CHOICE const char *
#define CONFIG_LIST struct config_list
#define CONFIG_INT int64_t
#define CONFIG_SIZE int64_t
#define CONFIG_SHARE int64_t  // -1 to -100: percent
#define CONFIG_BOOL bool
#define GROUP(title)
#define KEY(kind, name, fallback, lo, hi, choices, help) CONFIG_##kind name;
#include "config/keys.def"
#undef KEY
#undef GROUP
    struct config_model *models;
    int nmodels;
    // No errors, but to be told: variables OXINFERD_... of the environment that are no setting, what a file sets twice.
    struct config_list strays;
};

enum { CONFIG_MAX_FILE = 1 << 20, CONFIG_MAX_ITEMS = 256, CONFIG_MAX_LINE = 199 };

// Whether settings mean m by this name.
bool config_is_model(const struct config_model *m, const char *name);

MUST_CHECK err_code config_load(struct config *ret_config, char *const *args, int nargs, err *e);
// The same where a word that could be a path or OWNER/NAME is one more model.
MUST_CHECK err_code config_load_models(struct config *ret_config, char *const *args, int nargs, err *e);
void config_done(struct config *c);

// How sizes are written, in a sentence for people.
#define CONFIG_SIZES "Sizes: 4GB, 4GiB, 4G or 4Gi, also K, M and T: all count in 1024s, so Kubernetes' 4G (not its 4Gi) is less than 4G here."

// The settings part of --help: all, or those of one group of keys.def.
void config_help(FILE *out, const char *group);
// The shipped configuration file: every key, commented out, with its default. config/oxinferd.conf is this text.
void config_sample(FILE *out);
