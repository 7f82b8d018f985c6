// The server's API: JSON, forms, and streams of events. Paths are relative to this page, so a proxy may put it anywhere.
const base = new URL("../v1/", import.meta.url);
let key = sessionStorage.getItem("key") ?? "";

export function setKey(value) {
  key = value;
  sessionStorage.setItem("key", value);
}

export class ApiError extends Error {
  constructor(status, body) {
    super(body?.error?.message ?? `The server answered ${status}.`);
    this.status = status;
    this.body = body;
  }
}

async function send(path, { json, form, signal } = {}) {
  const headers = {};
  if (key) headers.authorization = `Bearer ${key}`;
  if (json) headers["content-type"] = "application/json";
  const response = await fetch(new URL(path, base), {
    method: json || form ? "POST" : "GET", headers, body: json ? JSON.stringify(json) : form, signal,
  });
  if (response.ok) return response;
  throw new ApiError(response.status, await response.json().catch(() => null));
}

export async function call(path, options) {
  return (await send(path, options)).json();
}

export async function blob(path, options) {
  return (await send(path, options)).blob();
}

// The events of a stream (server-sent events, one line of JSON each). Ends at "[DONE]" or with the connection.
export async function* events(path, options) {
  const response = await send(path, options);
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  try {
    for (;;) {
      const { value, done } = await reader.read();
      if (done) return;
      const lines = (rest + value).split(/\r?\n/);
      rest = lines.pop();
      for (const line of lines) {
        if (!line.startsWith("data:")) continue;
        const data = line.slice(5).trim();
        if (data === "[DONE]") return;
        const event = JSON.parse(data);
        if (event.error) throw new ApiError(response.status, event);
        yield event;
      }
    }
  } finally {
    reader.cancel().catch(() => {});
  }
}
