// access.h - the line a request leaves in the log when it has ended. Loop thread.
//
// As text, or as one JSON object a line (setting log_format):
//
//     {"time":"2026-01-31T12:00:00.000Z","level":"info","id":"req_...","trace_id":"...","method":"POST",
//      "path":"/v1/chat/completions","status":200,"ms":812.4,"ttft_ms":95.1,"model":"m","prompt_tokens":7,
//      "cached_tokens":0,"completion_tokens":40,"finish":"stop","key":"key1","bytes":9120,"left":false}
//
// What is not known is left out. "code" is the error's, "problem" why it failed when that was the server's doing. Hints a
// caller sent (objective, fairness_id, session, slo_ttft_ms, slo_tpot_ms, client_timeout_s) are logged as they came; none
// of them changes how a request is served. Probes and metrics leave a line only at level debug.
#pragma once

struct exchange;

void access_log(struct exchange *x);
