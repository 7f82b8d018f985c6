// modelref.h - how a model of a hub is named, and which names become files.
//
//     OWNER/NAME[/SUBFOLDER][:QUANT][@REVISION]        ggml-org/Qwen3-GGUF:Q8_0      stabilityai/sd-turbo@refs/pr/3
//
// @REVISION may also stand before :QUANT. Nothing of it is a path before it went through modelref_folder, which maps
// different references to different plain names. Pure functions of any thread.
#pragma once

#include <stdbool.h>

#include "base/err.h"

enum { MODELREF_REPO = 194, MODELREF_PART = 200, MODELREF_TEXT = 900, MODELREF_FOLDER = 256, MODELREF_PATH = 1024 };

struct modelref {
    char repo[MODELREF_REPO];
    char subdir[MODELREF_PART];    // a folder of it, or one .gguf file; "": the whole
    char quant[MODELREF_PART];     // as it was written; "": not said
    char revision[MODELREF_PART];  // branch, tag or commit; "": main
};

MUST_CHECK err_code modelref_parse(const char *text, struct modelref *ret_ref, err *e);
// The one spelling of it: OWNER/NAME[/SUBFOLDER][:QUANT][@REVISION], QUANT in capitals.
const char *modelref_text(const struct modelref *r, char out[MODELREF_TEXT]);
// The name of its folder in the store. ERR_TOO_LARGE: longer than a file name may be.
MUST_CHECK err_code modelref_folder(const struct modelref *r, char ret_folder[MODELREF_FOLDER], err *e);

// A file's name as a hub's listing or an index has it: relative, '/' between parts, every part a name that any file
// system takes and that is no device on Windows; no "." or "..", backslash, control character, or part of ours
// (".oxinferd..."). ERR_INVALID says what is wrong; the name is shown without its control characters.
MUST_CHECK err_code modelref_check_path(const char *path, err *e);
