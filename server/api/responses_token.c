// responses_token.c - see the header. Pure functions; any thread.
#include "server/api/responses_token.h"

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "codecs/base64.h"
#include "server/apikey.h"

static const char mark[] = "ox1.";
enum { MARK = sizeof mark - 1, HEX = 2 * APIKEY_DIGEST };

void api_responses_token_make(const unsigned char *secret, size_t secret_len, const char *text, size_t len, struct buf *out)
{
    char hex[HEX + 1];
    size_t letters;
    char *coded = base64_length(len, &letters) ? mem_try(letters + 1) : NULL;
    if (!coded) {
        out->over = true;
        return;
    }
    base64_encode(text, len, coded);
    apikey_hmac_hex(secret, secret_len, text, len, hex);
    buf_add_str(out, mark);
    buf_add_str(out, hex);
    buf_add_char(out, '.');
    buf_add(out, coded, letters);
    free(coded);
}

static int value_of(char c)
{
    static const char letters[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    const char *at = c ? strchr(letters, c) : NULL;
    return at ? (int)(at - letters) : -1;
}

// As base64_encode writes it; false for anything else.
static bool decode(const char *s, struct buf *out)
{
    size_t n = strlen(s);
    if (n % 4)
        return false;
    for (size_t i = 0; i < n; i += 4) {
        int pad = i + 4 == n ? (s[i + 3] == '=') + (s[i + 2] == '=') : 0;
        unsigned bits = 0;
        for (int k = 0; k < 4; k++) {
            int v = k >= 4 - pad ? 0 : value_of(s[i + (size_t)k]);
            if (v < 0)
                return false;
            bits = bits << 6 | (unsigned)v;
        }
        char bytes[3] = {(char)(bits >> 16), (char)(bits >> 8), (char)bits};
        buf_add(out, bytes, (size_t)(3 - pad));
    }
    return !out->over;
}

bool api_responses_token_read(const unsigned char *secret, size_t secret_len, const char *token, struct buf *out)
{
    char hex[HEX + 1];
    struct buf text;
    if (strncmp(token, mark, MARK) != 0 || strlen(token) < MARK + HEX + 1 || token[MARK + HEX] != '.')
        return false;
    buf_init(&text, strlen(token));
    bool right = decode(token + MARK + HEX + 1, &text);
    if (right) {
        apikey_hmac_hex(secret, secret_len, text.len ? text.data : "", text.len, hex);
        unsigned difference = 0;
        for (int i = 0; i < HEX; i++)
            difference |= (unsigned char)(hex[i] ^ token[MARK + i]);
        right = !difference;
    }
    if (right)
        buf_add(out, text.len ? text.data : "", text.len);
    buf_done(&text);
    return right;
}
