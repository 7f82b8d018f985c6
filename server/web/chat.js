// The chat tab: a conversation, streamed, with what it costs.
import { events } from "./api.js";
import { byId, make, markdown, number } from "./dom.js";

const names = { user: "You", assistant: "Model" };
let messages = [], running = null;

function show(role, text) {
  const body = make("div"), item = make("li", { className: role }, make("span", { className: "who", textContent: names[role] }), body);
  body.append(markdown(text));
  byId("chat-log").append(item);
  item.scrollIntoView({ block: "end" });
  return { item, body };
}

function redraw() {
  byId("chat-log").replaceChildren();
  for (const message of messages) show(message.role, message.content);
  byId("chat-again").disabled = !messages.some((message) => message.role === "user");
}

function request(model) {
  const system = byId("chat-system").value.trim(), schema = byId("chat-schema").value.trim();
  const body = {
    model, stream: true, stream_options: { include_usage: true }, return_progress: true,
    messages: [...(system ? [{ role: "system", content: system }] : []), ...messages],
    temperature: number("chat-temperature"), top_p: number("chat-top_p"), max_completion_tokens: number("chat-max_tokens"),
    seed: number("chat-seed"), stop: byId("chat-stop").value || undefined,
  };
  if (schema) body.response_format = { type: "json_schema", json_schema: { name: "answer", schema: JSON.parse(schema) } };
  return body;
}

// What is said below the conversation while an answer comes and when it has come.
function meter() {
  const start = performance.now();
  let first = 0, chunks = 0, usage = null;
  const seconds = (ms) => (ms / 1000).toFixed(1);
  return {
    token() { first ||= performance.now(); chunks++; },
    usage(u) { usage = u; },
    say() {
      const now = performance.now();
      if (!first) return `Reading the prompt … ${seconds(now - start)} s`;
      const tokens = usage?.completion_tokens ?? chunks, took = (now - first) / 1000;
      const cached = usage?.prompt_tokens_details?.cached_tokens;
      return [`${tokens} tokens`, tokens > 1 && took > 0 ? `${((tokens - 1) / took).toFixed(1)} tokens/s` : "",
        `first after ${seconds(first - start)} s`, usage ? `prompt ${usage.prompt_tokens}${cached ? `, ${cached} from the cache` : ""}` : ""]
        .filter(Boolean).join(" · ");
    },
  };
}

function showProgress(progress) {
  const bar = byId("chat-progress");
  bar.hidden = !progress;
  if (progress) Object.assign(bar, { max: progress.total, value: progress.processed });
}

async function answer(model) {
  const { item, body } = show("assistant", ""), stats = byId("chat-stats"), gauge = meter();
  const log = byId("chat-log"), control = new AbortController();
  let text = "", finish = null, frame = 0;
  const draw = () => {
    frame = 0;
    const follow = log.scrollHeight - log.scrollTop - log.clientHeight < 80;
    body.replaceChildren(markdown(text));
    if (follow) log.scrollTop = log.scrollHeight;
  };
  const clock = setInterval(() => { stats.textContent = gauge.say(); }, 250);
  setRunning(control);
  log.setAttribute("aria-busy", "true");
  try {
    for await (const chunk of events("chat/completions", { json: request(model), signal: control.signal })) {
      if (chunk.usage) gauge.usage(chunk.usage);
      showProgress(chunk.prompt_progress);
      const choice = chunk.choices?.[0];
      finish = choice?.finish_reason ?? finish;
      if (!choice?.delta?.content) continue;
      gauge.token();
      text += choice.delta.content;
      frame ||= requestAnimationFrame(draw);
    }
    stats.textContent = gauge.say() + (finish === "length" ? " · stopped at the limit" : "");
  } catch (error) {
    const stopped = error.name === "AbortError";
    stats.textContent = stopped ? `${gauge.say()} · stopped` : error.message;
    if (!stopped) item.classList.add("failed");
  }
  clearInterval(clock);
  cancelAnimationFrame(frame);
  draw();
  showProgress(null);
  log.removeAttribute("aria-busy");
  if (text) messages.push({ role: "assistant", content: text });
  else item.remove();
  setRunning(null);
}

function setRunning(control) {
  running = control;
  byId("chat-send").hidden = Boolean(control);
  byId("chat-stop-button").hidden = !control;
  byId("chat-again").disabled = Boolean(control) || !messages.some((message) => message.role === "user");
}

export function openChat(currentModel) {
  const input = byId("chat-input");
  const ask = () => {
    const text = input.value.trim(), model = currentModel("chat");
    if (!text || running || !model) return;
    input.value = "";
    messages.push({ role: "user", content: text });
    show("user", text);
    answer(model.id);
  };
  byId("chat-form").addEventListener("submit", (event) => { event.preventDefault(); ask(); });
  input.addEventListener("keydown", (event) => {
    if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
    event.preventDefault();
    ask();
  });
  document.addEventListener("keydown", (event) => { if (event.key === "Escape") running?.abort(); });
  byId("chat-stop-button").addEventListener("click", () => { running?.abort(); input.focus(); });
  byId("chat-new").addEventListener("click", () => {
    running?.abort();
    messages = [];
    redraw();
    byId("chat-stats").textContent = "";
    input.focus();
  });
  byId("chat-again").addEventListener("click", () => {
    const model = currentModel("chat");
    if (running || !model) return;
    while (messages.length && messages.at(-1).role !== "user") messages.pop();
    redraw();
    answer(model.id);
  });
}
