// A conversation: messages, streamed answers with thoughts and calls, and what they cost. Its elements come from a template of
// the page, with the panel's name in their ids: NAME-log, NAME-form, NAME-input, NAME-send, NAME-stop-button ...
import { events } from "./api.js";
import { byId, make, markdown } from "./dom.js";

const names = { user: "You", assistant: "Model", tool: "Result" };

// ---- what is shown

function folded(thoughts) {
  return make("details", { className: "thoughts" }, make("summary", { textContent: "Thoughts" }), make("div", { textContent: thoughts }));
}

function callText({ function: f }) {
  let text = f.arguments;
  try {
    text = JSON.stringify(JSON.parse(f.arguments), null, 1).replace(/\n\s*/g, " ");
  } catch { /* not whole yet */ }
  return `${f.name}(${text})`;
}

// Parts are replaced one by one, so that unfolded thoughts stay unfolded while they grow.
function fill(item, message) {
  const { thoughts, body, calls } = item.parts;
  if (message.reasoning_content) {
    if (thoughts.firstChild) thoughts.firstChild.lastChild.textContent = message.reasoning_content;
    else thoughts.append(folded(message.reasoning_content));
  }
  body.replaceChildren(message.role === "tool" ? make("pre", { tabIndex: 0, textContent: message.content }) : markdown(message.content ?? ""));
  calls.replaceChildren(...(message.tool_calls ?? []).map((call) => make("pre", { className: "call", tabIndex: 0, textContent: callText(call) })));
}

// ---- an answer on its way

function addDelta(message, delta) {
  if (delta.content) message.content += delta.content;
  if (delta.reasoning_content) message.reasoning_content = (message.reasoning_content ?? "") + delta.reasoning_content;
  for (const piece of delta.tool_calls ?? []) {
    message.tool_calls ??= [];
    const call = message.tool_calls[piece.index] ??= { id: piece.id, type: "function", function: { name: piece.function.name, arguments: "" } };
    call.function.arguments += piece.function.arguments;
  }
  return Boolean(delta.content || delta.reasoning_content || delta.tool_calls);
}

// Calls that were cut off cannot be answered, nor sent back.
function dropCutCalls(message, finish) {
  const whole = ({ function: f }) => {
    try {
      return finish !== null && Boolean(JSON.parse(f.arguments));
    } catch {
      return false;
    }
  };
  message.tool_calls = message.tool_calls?.filter(whole);
  if (!message.tool_calls?.length) delete message.tool_calls;
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

// ---- the conversation

// Around the settings that the panel has.
function furnish(name) {
  const panel = byId(`panel-${name}`), settings = panel.querySelector("details"), parts = byId("conversation").content.cloneNode(true);
  for (const element of parts.querySelectorAll("[data-part]")) element.id = `${name}-${element.dataset.part}`;
  parts.querySelector(".log").setAttribute("aria-label", panel.dataset.log);
  parts.querySelector(".composer textarea").placeholder = panel.dataset.hint;
  parts.querySelector(".bar").append(settings);
  panel.append(parts);
}

// fields() are the request's beside the messages; system() is the system prompt.
export function talk(name, { currentModel, fields, system = () => "" }) {
  furnish(name);
  const part = (which) => byId(`${name}-${which}`);
  const log = part("log"), input = part("input"), stats = part("stats");
  let messages = [], running = null;

  function show(message) {
    const parts = { thoughts: make("div"), body: make("div", { className: "said" }), calls: make("div") };
    const item = Object.assign(make("li", { className: message.role }, make("span", { className: "who", textContent: names[message.role] }),
      parts.thoughts, parts.body, parts.calls), { parts });
    fill(item, message);
    log.append(item);
    item.scrollIntoView({ block: "end" });
    return item;
  }

  function setRunning(control) {
    running = control;
    part("send").hidden = Boolean(control);
    part("stop-button").hidden = !control;
    part("again").disabled = Boolean(control) || !messages.some((message) => message.role === "user");
    log.setAttribute("aria-busy", String(Boolean(control)));
  }

  function redraw() {
    log.replaceChildren();
    messages.forEach(show);
    setRunning(null);
  }

  function showProgress(progress) {
    const bar = part("progress");
    bar.hidden = !progress;
    if (progress) Object.assign(bar, { max: progress.total, value: progress.processed });
  }

  function request(model) {
    const first = system().trim();
    return { model, stream: true, stream_options: { include_usage: true }, return_progress: true,
      messages: [...(first ? [{ role: "system", content: first }] : []), ...messages], ...fields() };
  }

  // Fields for the results of a message's calls, below it.
  function askResults(item, message) {
    const inputs = message.tool_calls.map((call) => make("textarea", { rows: 1 }));
    const labels = message.tool_calls.map((call, i) => make("label", {}, `Result of ${call.function.name} `, inputs[i]));
    const form = make("form", { className: "stack results" }, ...labels, make("button", { textContent: "Send the results" }));
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      const model = currentModel("chat");
      if (running || !model) return;
      form.remove();
      message.tool_calls.forEach((call, i) => add({ role: "tool", tool_call_id: call.id, content: inputs[i].value }));
      answer(model.id);
    });
    item.append(form);
    inputs[0].focus();
    item.scrollIntoView({ block: "end" });
  }

  function add(message) {
    messages.push(message);
    show(message);
  }

  async function answer(model) {
    const message = { role: "assistant", content: "" }, item = show(message), gauge = meter(), control = new AbortController();
    let finish = null, frame = 0;
    const draw = () => {
      frame = 0;
      const follow = log.scrollHeight - log.scrollTop - log.clientHeight < 80;
      fill(item, message);
      if (follow) log.scrollTop = log.scrollHeight;
    };
    const clock = setInterval(() => { stats.textContent = gauge.say(); }, 250);
    setRunning(control);
    try {
      for await (const chunk of events("chat/completions", { json: request(model), signal: control.signal })) {
        if (chunk.usage) gauge.usage(chunk.usage);
        showProgress(chunk.prompt_progress);
        const choice = chunk.choices?.[0];
        finish = choice?.finish_reason ?? finish;
        if (!choice || !addDelta(message, choice.delta)) continue;
        gauge.token();
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
    dropCutCalls(message, finish);
    draw();
    showProgress(null);
    if (message.content || message.reasoning_content || message.tool_calls) messages.push(message);
    else item.remove();
    setRunning(null);
    if (message.tool_calls) askResults(item, message);
  }

  function ask() {
    const text = input.value.trim(), model = currentModel("chat");
    if (!text || running || !model) return;
    input.value = "";
    log.querySelectorAll(".results").forEach((form) => form.remove());
    add({ role: "user", content: text });
    answer(model.id);
  }

  part("form").addEventListener("submit", (event) => { event.preventDefault(); ask(); });
  input.addEventListener("keydown", (event) => {
    if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
    event.preventDefault();
    part("form").requestSubmit();
  });
  document.addEventListener("keydown", (event) => { if (event.key === "Escape") running?.abort(); });
  part("stop-button").addEventListener("click", () => { running?.abort(); input.focus(); });
  part("new").addEventListener("click", () => {
    running?.abort();
    messages = [];
    redraw();
    stats.textContent = "";
    input.focus();
  });
  part("again").addEventListener("click", () => {
    const model = currentModel("chat");
    if (running || !model) return;
    while (messages.length && messages.at(-1).role !== "user") messages.pop();
    redraw();
    answer(model.id);
  });
}
