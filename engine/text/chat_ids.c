// chat_ids.c - see chat_ids.h. Any thread; owns nothing.
#include "engine/text/chat_ids.h"

#include <stdlib.h>

#include "base/clock.h"
#include "base/mem.h"
#include "engine/text/chat.h"

// The spelling of a special token as a string of its own; NULL: the model has none.
static char *special(const struct tokenizer *t, int32_t id)
{
    if (id == TOKEN_NONE)
        return NULL;
    size_t len;
    const char *s = tokenizer_token(t, id, &len);
    return mem_strndup(s, len);
}

err_code chat_ids_render(const struct chat *c, const struct tokenizer *t, const struct prompt *p,
                         struct rendered *ret_rendered, err *e)
{
    char *bos = special(t, tokenizer_bos(t));
    char *eos = special(t, tokenizer_eos(t));
    err_code code = chat_render(c, p, bos, eos, clock_unix_s(), ret_rendered, e);
    free(bos);
    free(eos);
    return code;
}

err_code chat_ids_encode_rendered(const struct tokenizer *t, const struct rendered *r, struct ids *ids, err *e)
{
    if (tokenizer_adds_bos(t)) {
        char *bos = special(t, tokenizer_bos(t));
        if (bos && !rendered_starts_with(r, bos))
            ids_add(ids, tokenizer_bos(t));
        free(bos);
    }
    return tokenizer_encode(t, r->spans, r->nspans, false, ids, e);
}

err_code chat_ids_encode(const struct chat *c, const struct tokenizer *t, const struct prompt *p, struct ids *ids, err *e)
{
    struct rendered r;
    if (chat_ids_render(c, t, p, &r, e))
        return e->code;
    err_code code = chat_ids_encode_rendered(t, &r, ids, e);
    rendered_done(&r);
    return code;
}
