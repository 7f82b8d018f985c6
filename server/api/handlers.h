// handlers.h - the handlers of this folder, as routes.def names them. Each is called on the loop thread (request.h).
#pragma once

struct request;

void api_chat_create(struct request *r);         // POST /v1/chat/completions
void api_completions_create(struct request *r);  // POST /v1/completions
void api_embeddings_create(struct request *r);   // POST /v1/embeddings
void api_infill_create(struct request *r);       // POST /infill
void api_images_create(struct request *r);       // POST /v1/images/generations
void api_images_file(struct request *r);         // GET /v1/images/files/*
void api_decide_create(struct request *r);       // POST /v1/decide
void api_decide_info(struct request *r);         // GET /v1/decide/info
void api_decisions_create(struct request *r);    // POST /v1/decisions
void api_systemone_create(struct request *r);    // POST /v1/systemone
void api_models_list(struct request *r);         // GET /v1/models
void api_models_get(struct request *r);          // GET /v1/models/*
void api_models_load(struct request *r);         // POST /models/load
void api_models_unload(struct request *r);       // POST /models/unload
void api_responses_create(struct request *r);    // POST /v1/responses
void api_responses_count(struct request *r);     // POST /v1/responses/input_tokens
void api_stored_get(struct request *r);          // GET /v1/responses/*
void api_stored_delete(struct request *r);       // DELETE /v1/responses/*
void api_stored_cancel(struct request *r);       // POST /v1/responses/*
void api_stored_compact(struct request *r);      // POST /v1/responses/compact
void api_speech_create(struct request *r);       // POST /v1/audio/speech
void api_transcribe_create(struct request *r);   // POST /v1/audio/transcriptions
void api_transcribe_translate(struct request *r);  // POST /v1/audio/translations
void api_tokenize_encode(struct request *r);     // POST /tokenize
void api_tokenize_decode(struct request *r);     // POST /detokenize
void api_tokenize_render(struct request *r);     // POST /apply-template
