// pyjson.h - JSON the way Python's json.dumps(value, ensure_ascii=False) writes it: decision models were trained on states
// rendered so, and every byte of a prompt counts.
#pragma once

#include <jansson.h>

#include "base/buf.h"

void api_pyjson_dump(struct buf *b, const json_t *v);
// repr() of a float: the shortest digits that read back as the same number. It is JSON too, but for inf and nan.
void api_pyjson_float(struct buf *b, double v);
