// openapi.h - GET /openapi.json: an OpenAPI 3.1 description of all routes, made from routes.def and from the tables of fields
// that the handlers read their bodies by (api/fields.h).
#pragma once

struct request;

void openapi_get(struct request *r);
