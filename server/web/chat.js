// The chat tab: a conversation with settings, and the one in which functions may be called.
import { byId, make, number } from "./dom.js";
import { talk } from "./talk.js";

function chatFields() {
  const schema = byId("chat-schema").value.trim(), effort = byId("chat-effort").value;
  const fields = {
    temperature: number("chat-temperature"), top_p: number("chat-top_p"), max_completion_tokens: number("chat-max_tokens"),
    seed: number("chat-seed"), stop: byId("chat-stop").value || undefined, reasoning_effort: effort || undefined,
  };
  if (schema) fields.response_format = { type: "json_schema", json_schema: { name: "answer", schema: JSON.parse(schema) } };
  return fields;
}

function toolFields() {
  const tools = JSON.parse(byId("tools-list").value), choice = byId("tools-choice").value;
  return {
    tools, parallel_tool_calls: !byId("tools-single").checked, temperature: number("tools-temperature"),
    tool_choice: choice.startsWith("=") ? { type: "function", function: { name: choice.slice(1) } } : choice,
  };
}

// Each function of the list can be demanded by name.
function listNames() {
  const choice = byId("tools-choice"), before = choice.value;
  let names = [];
  try {
    names = JSON.parse(byId("tools-list").value).map((tool) => tool.function.name);
    byId("tools-problem").textContent = "";
  } catch (error) {
    byId("tools-problem").textContent = `This is no list of tools: ${error.message}`;
  }
  choice.querySelectorAll('[value^="="]').forEach((option) => option.remove());
  choice.append(...names.map((name) => make("option", { value: `=${name}`, textContent: `${name}, and no other` })));
  choice.value = [...choice.options].some((option) => option.value === before) ? before : "auto";
}

export function openChat(currentModel) {
  talk("chat", { currentModel, fields: chatFields, system: () => byId("chat-system").value });
  talk("tools", { currentModel, fields: toolFields });
  byId("tools-form").addEventListener("submit", () => { byId("tools-settings").open = false; });  // room for what is said
  byId("tools-list").addEventListener("input", listNames);
  listNames();
}
