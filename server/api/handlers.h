// handlers.h - the handlers of this folder, as routes.def names them. Each is called on the loop thread (request.h).
#pragma once

struct request;

void api_chat_create(struct request *r);         // POST /v1/chat/completions
void api_completions_create(struct request *r);  // POST /v1/completions
void api_models_list(struct request *r);         // GET /v1/models
void api_models_get(struct request *r);          // GET /v1/models/*
void api_tokenize_encode(struct request *r);     // POST /tokenize
void api_tokenize_decode(struct request *r);     // POST /detokenize
void api_tokenize_render(struct request *r);     // POST /apply-template
