// chat_int.h - what chat.c, chat_probe.c and chat_prepare.c share.
#pragma once

#include "engine/text/chat.h"

struct answer_style;

struct chat {
    struct chat_traits traits;
    char *source[2];  // for requests without and with tools; [1] is NULL when it is the same
    size_t len[2];
    struct template *template[2];
    struct answer_style *style[2];  // of the two templates
    struct template *dump;  // {{ value|tojson }}: JSON text of arguments, numbers as Python writes them
};

// chat_probe.c: fills c->traits.
void chat_probe(struct chat *c);

// chat_answer.c: fills c->style; after chat_probe.
void chat_answer_find(struct chat *c);

// chat_prepare.c: a new array of messages in the shape of c->traits; the given ones are not changed. Tools (NULL: none) are
// put into the system message of templates that show none.
MUST_CHECK err_code chat_prepare(const struct chat *c, const struct json_t *messages, const struct json_t *tools,
                                 struct json_t **ret_messages, err *e);
