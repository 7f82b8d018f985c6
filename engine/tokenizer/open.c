// open.c - opens the tokenizer of a model, from whichever files it came with.

#include "engine/tokenizer/model.h"
#include "engine/weights/weights.h"

err_code tokenizer_open(const struct weights *w, struct tokenizer **ret_tokenizer, err *e)
{
    if (weights_container(w) == WEIGHTS_GGUF)
        return tokenizer_gguf_open(w, ret_tokenizer, e);
    struct tokenizer_json_files files = {
        .tokenizer = weights_json(w, "tokenizer.json"),
        .config = weights_json(w, "tokenizer_config.json"),
        .generation = weights_json(w, "generation_config.json"),
        .model = weights_config(w),
        .sentences = weights_json(w, "sentence_bert_config.json"),
    };
    if (!files.tokenizer && tokenizer_vocabtxt_has(weights_folder(w)))
        return tokenizer_vocabtxt_open(weights_folder(w), &files, ret_tokenizer, e);
    if (!files.tokenizer)
        return err_set_param(e, ERR_NOT_FOUND, "tokenizer.json", "there is no readable tokenizer.json in '%s'",
                             weights_folder(w));
    return tokenizer_hf_open(&files, ret_tokenizer, e);
}
