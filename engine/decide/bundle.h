// bundle.h - the files that make a language model answer decisions: where they lie and what they say.
//
//     struct bundle b;
//     if (bundle_find(folder, &b, &e)) ...     // ERR_NOT_FOUND: the folder holds no bundle
//     bundle_done(&b);
//
// A folder is one of:
//     judge_config.json, head.safetensors, calibration.json, adapter/     a head of its own, a LoRA on the base
//     adapter_vllm/ with decision_head.json, calibration.json beside it   options are rows of the base's output head
//     decision_head.json with adapter_config.json, calibration.json one folder up   (that adapter_vllm itself)
//     decision_head.json and calibration.json, the weights merged already
#pragma once

#include <stdint.h>

#include "base/err.h"
#include "engine/decide/bare.h"

enum { BUNDLE_MAX_SLOTS = 512 };

struct bundle {
    char *file;     // the one that describes the slots; for messages
    char *adapter;  // folder of the LoRA; NULL: none
    char *head;     // safetensors file of the slot head; NULL: rows of the base's output head
    int hidden;     // the base's, 0: not said
    int nslots;
    int lo[BARE_KINDS], hi[BARE_KINDS];  // slots of a kind, half open
    char *verbalizers[BUNDLE_MAX_SLOTS];
    int32_t ids[BUNDLE_MAX_SLOTS];       // tokens of the verbalizers
    float bias[BUNDLE_MAX_SLOTS];        // of decision_head.json; a slot head brings its own
    double temperature[BARE_KINDS];
};

MUST_CHECK err_code bundle_find(const char *folder, struct bundle *ret_bundle, err *e);
void bundle_done(struct bundle *b);
