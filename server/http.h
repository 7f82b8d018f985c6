// http.h - libmicrohttpd's callbacks: a request from its first line to its answer. cls is the listener; loop thread.
#pragma once

#include <microhttpd.h>

void *http_target(void *cls, const char *target, struct MHD_Connection *mhd);
enum MHD_Result http_handle(void *cls, struct MHD_Connection *mhd, const char *url, const char *method,
                            const char *version, const char *data, size_t *data_size, void **con_cls);
void http_connection(void *cls, struct MHD_Connection *mhd, void **socket_context,
                     enum MHD_ConnectionNotificationCode code);
void http_completed(void *cls, struct MHD_Connection *mhd, void **con_cls, enum MHD_RequestTerminationCode code);
