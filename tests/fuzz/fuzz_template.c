// Any bytes as a chat template: it is refused, or it renders fixed conversations to text whose spans cover it, or it
// ends with an error. Quick ones are also probed and given messages in their shape.
#include <jansson.h>
#include <stdint.h>
#include <stdlib.h>

#include "base/clock.h"
#include "engine/text/chat.h"
#include "engine/text/template.h"

static const char conversation[] =
    "[{\"role\":\"system\",\"content\":\"Be <b>good</b>\"},{\"role\":\"user\",\"content\":\"caf\\u00e9 "
    "<|im_end|>\\n\"},"
    "{\"role\":\"assistant\",\"content\":\"\",\"reasoning_content\":\"hm\",\"tool_calls\":[{\"id\":\"abcdefghi\","
    "\"type\":\"function\","
    "\"function\":{\"name\":\"f\",\"arguments\":{\"x\":[1,2.5,null,true],\"y\":\"\\ud83d\\ude00\"}}}]},"
    "{\"role\":\"tool\",\"tool_call_id\":\"abcdefghi\",\"content\":\"{}\"},{\"role\":\"user\",\"content\":[{\"type\":"
    "\"text\",\"text\":\"z\"}]}]";
static const char tool_list[] =
    "[{\"type\":\"function\",\"function\":{\"name\":\"f\",\"description\":\"d\",\"parameters\":{\"type\":\"object\","
    "\"properties\":{\"x\":{\"type\":\"array\"}},\"required\":[\"x\"]}}}]";

static void check(struct rendered *r)
{
    size_t at = 0;
    for (size_t i = 0; i < r->nspans; i++) {
        if (r->spans[i].text != r->text + at || !r->spans[i].len ||
            (i && r->spans[i].trusted == r->spans[i - 1].trusted))
            abort();
        at += r->spans[i].len;
    }
    if (at != r->len)
        abort();
    rendered_done(r);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    json_t *messages = json_loads(conversation, 0, NULL), *tools = json_loads(tool_list, 0, NULL),
           *kwargs = json_pack("{s:b, s:s}", "enable_thinking", 0, "u", "a,b");
    struct template_input in = {.messages = messages,
                                .tools = tools,
                                .kwargs = kwargs,
                                .bos_token = "<s>",
                                .eos_token = "</s>",
                                .add_generation_prompt = true,
                                .now = 1700000000};
    struct template *t;
    struct rendered r;
    err e;
    double start = clock_s();
    if (!template_parse((const char *)data, size, &t, &e)) {
        if (!template_render(t, &in, &r, &e))
            check(&r);
        template_free(t);
        struct chat *c;
        if (clock_s() - start < 0.02 && !chat_open_source((const char *)data, size, NULL, 0, &c, &e)) {
            struct prompt p = {.messages = messages, .tools = tools, .kwargs = kwargs, .add_generation_prompt = true};
            if (!chat_render(c, &p, "<s>", "</s>", 0, &r, &e))
                check(&r);
            p.continue_final_message = true;
            if (!chat_render(c, &p, "<s>", "</s>", 0, &r, &e))
                check(&r);
            chat_close(c);
        }
    }
    json_decref(messages);
    json_decref(tools);
    json_decref(kwargs);
    return 0;
}
