// logprobs.c - see the header. Under the generation's lock.
#include "server/api/logprobs.h"

#include "server/api/generate.h"
#include "server/api/jsonout.h"

static void add_token(const struct token_alternative *a, struct buf *out)
{
    buf_add_str(out, "{\"token\":");
    api_jsonout_string(out, a->bytes, a->len);
    buf_add_str(out, ",\"logprob\":");
    api_jsonout_float(out, a->logprob);
    buf_add_str(out, ",\"bytes\":[");
    for (size_t i = 0; i < a->len; i++)
        buf_printf(out, i ? ",%d" : "%d", (unsigned char)a->bytes[i]);
    buf_add_char(out, ']');
}

void api_logprobs_add(struct choice *c, const struct event *ev)
{
    struct buf *out = &c->lists[0];
    for (size_t i = 0; i < ev->ntokens; i++) {
        const struct token_logprob *t = &ev->tokens[i];
        if (!t->content)
            continue;
        if (out->len)
            buf_add_char(out, ',');
        add_token(&t->token, out);
        buf_add_str(out, ",\"top_logprobs\":[");
        for (int k = 0; k < t->ntop; k++) {
            if (k)
                buf_add_char(out, ',');
            add_token(&t->top[k], out);
            buf_add_char(out, '}');
        }
        buf_add_str(out, "]}");
    }
}
