// responses_token.h - what a model thought, as the text a client gives back: encrypted_content of a reasoning item. It needs no
// store, nothing but the secret it was made with: "ox1." + HMAC + "." + base64 of the text. The text is the client's own
// model's and no secret; the HMAC keeps it from being taken for anything else.
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "base/buf.h"

void api_responses_token_make(const unsigned char *secret, size_t secret_len, const char *text, size_t len, struct buf *out);
// False: not made with this secret (by another server, or before it was started again); out is as it was.
bool api_responses_token_read(const unsigned char *secret, size_t secret_len, const char *token, struct buf *out);
