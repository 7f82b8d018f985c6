// modellog.h - the log's lines about models that come, go and fail.
#pragma once

struct model_event;

// engine_config.on_model; arg is not used.
void modellog_event(void *arg, const struct model_event *ev);
