// The frame: models, tabs, theme and key.
import { ApiError, call, setKey } from "./api.js";
import { openChat } from "./chat.js";
import { byId, make, notice } from "./dom.js";
import { openTasks } from "./tasks.js";

const panels = [...document.querySelectorAll('[role="tabpanel"]')];
const RETRY_MS = 1500;
let models = [], current = panels[0], retry = 0;

// What a model can do is not known before it was loaded for the first time; being asked loads it.
const unknown = ({ meta }) => meta.tasks.length === 0 && ["unloaded", "failed"].includes(meta.state);
const can = (model, task) => model.meta.tasks.includes(task) || unknown(model);
const needed = (panel) => panel.dataset.needs ?? panel.dataset.task;  // of a model
const fitting = (task) => models.filter((model) => can(model, task));

// The chosen model when it can do the task; else says so.
function currentModel(task) {
  const model = models.find((m) => m.id === byId("model").value);
  if (model && can(model, task)) return model;
  throw new Error("No model that is served here can do this.");
}

// ---- models

function listModels() {
  const choice = byId("model"), before = choice.value, list = fitting(needed(current));
  choice.replaceChildren(...list.map((model) => make("option", { value: model.id, textContent: model.id })));
  if (list.some((model) => model.id === before)) choice.value = before;
  choice.disabled = list.length === 0;
  for (const button of current.querySelectorAll("form button:not([type])")) button.disabled = list.length === 0;
  fillVoices();
  if (list.length) notice(null);
  else if (models.some((model) => model.meta.state === "loading")) notice("The model is loading …");
  else notice("No model that is served here can do this.");
}

function fillVoices() {
  const model = models.find((m) => m.id === byId("model").value);
  byId("speech-voice").replaceChildren(...(model?.meta.voices ?? []).map((voice) => make("option", { value: voice, textContent: voice })));
}

async function loadModels() {
  clearTimeout(retry);
  try {
    models = (await call("models")).data;
    listModels();
    if (models.some((model) => model.meta.state === "loading")) retry = setTimeout(loadModels, RETRY_MS);
  } catch (error) {
    notice(error instanceof ApiError ? error.message : "The server cannot be reached.");
    if (error.status === 401) byId("key-dialog").open || byId("key-dialog").showModal();
    else retry = setTimeout(loadModels, RETRY_MS);
  }
}

// ---- tabs (arrow keys move between them, as screen readers expect)

function select(panel, focus = false) {
  current = panel;
  for (const other of panels) {
    const tab = byId(`tab-${other.dataset.task}`), chosen = other === panel;
    other.hidden = !chosen;
    tab.setAttribute("aria-selected", String(chosen));
    tab.tabIndex = chosen ? 0 : -1;
    if (chosen && focus) tab.focus();
  }
  history.replaceState(null, "", `#${panel.dataset.task}`);
  listModels();
}

function makeTab(panel) {
  const tab = make("button", { type: "button", role: "tab", id: `tab-${panel.dataset.task}`, textContent: panel.dataset.title });
  tab.setAttribute("aria-controls", panel.id);
  panel.setAttribute("aria-labelledby", tab.id);
  tab.addEventListener("click", () => select(panel));
  return tab;
}

function moveTab(event) {
  const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
  if (!step) return;
  select(panels[(panels.indexOf(current) + step + panels.length) % panels.length], true);
  event.preventDefault();
}

// ---- theme and key

function switchTheme() {
  const root = document.documentElement, dark = matchMedia("(prefers-color-scheme: dark)").matches;
  const now = root.dataset.theme ?? (dark ? "dark" : "light");
  root.dataset.theme = now === "dark" ? "light" : "dark";
  localStorage.setItem("theme", root.dataset.theme);
}

const theme = localStorage.getItem("theme");
if (theme) document.documentElement.dataset.theme = theme;
byId("theme").addEventListener("click", switchTheme);
byId("access").addEventListener("click", () => byId("key-dialog").showModal());
byId("key-dialog").addEventListener("close", () => {
  if (byId("key-dialog").returnValue === "save") {
    setKey(byId("key").value.trim());
    loadModels();
  }
});
byId("tabs").append(...panels.map(makeTab));
byId("tabs").addEventListener("keydown", moveTab);
byId("model").addEventListener("change", fillVoices);

openChat((task) => {
  try {
    return currentModel(task);
  } catch (error) {
    notice(error.message);
    return null;
  }
});
openTasks(currentModel);
select(panels.find((panel) => `#${panel.dataset.task}` === location.hash) ?? panels[0]);
loadModels();
