// decider.h - how one model answers decisions, as decide.c makes it and asking.c uses it.
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "engine/decide/bare.h"
#include "engine/decide/labels.h"
#include "engine/sched/work.h"

struct model;

struct decider {
    const struct model *model;
    bool native;            // by a trained bundle; else by label tokens
    struct labels labels;   // the first of them are the verbalizers of `choice`
    int trained;            // options of a choice that were trained; 0 with label tokens
    double temperature[BARE_KINDS];
    // Options of all kinds, one kind after another: option i of kind k is number first[k] + i.
    int first[BARE_KINDS], count[BARE_KINDS], n;
    int32_t *ids;           // [n] their tokens
    int32_t *forms;         // label tokens: [n, LABELS_FORMS] all tokens that say it, TOKEN_NONE where there is none
    float *rows, *bias;     // native: [n, hidden] and [n]
};

extern const struct work_ops asking_native_work, asking_label_work;
