// Small helpers for the document, and Markdown as far as chat models use it. Text from models only ever becomes text
// nodes: nothing is parsed as HTML.
export const byId = (id) => document.getElementById(id);

export function make(name, properties = {}, ...children) {
  const element = Object.assign(document.createElement(name), properties);
  element.append(...children);
  return element;
}

export function notice(text) {
  byId("notice").textContent = text ?? "";
  byId("notice").hidden = !text;
}

// A number field's value; undefined when it is empty.
export function number(id) {
  const text = byId(id).value.trim();
  return text === "" ? undefined : Number(text);
}

// Runs a form's work once at a time, with its button disabled and errors shown in its result.
export function onSubmit(name, work) {
  byId(`${name}-form`).addEventListener("submit", async (event) => {
    event.preventDefault();
    const result = byId(`${name}-result`), button = event.target.querySelector("button");
    if (button.disabled) return;
    button.disabled = true;
    result.setAttribute("aria-busy", "true");
    result.replaceChildren(make("p", { textContent: "Working …" }));
    try {
      await work(result);
    } catch (error) {
      result.replaceChildren(make("p", { className: "bad", textContent: error.message }));
    }
    button.disabled = false;
    result.removeAttribute("aria-busy");
  });
}

function inline(text) {
  const parts = [], pattern = /`([^`]+)`|\*\*([^*]+)\*\*|\[([^\]]+)\]\((https?:\/\/[^\s)]+)\)/g;
  let at = 0;
  for (const m of text.matchAll(pattern)) {
    parts.push(text.slice(at, m.index));
    if (m[1] !== undefined) parts.push(make("code", { textContent: m[1] }));
    else if (m[2] !== undefined) parts.push(make("strong", { textContent: m[2] }));
    else parts.push(make("a", { href: m[4], textContent: m[3], rel: "noopener noreferrer", target: "_blank" }));
    at = m.index + m[0].length;
  }
  parts.push(text.slice(at));
  return parts;
}

function block(lines) {
  const heading = /^#{1,6} (.*)/.exec(lines[0]);
  if (heading && lines.length === 1) return make("p", {}, make("strong", {}, ...inline(heading[1])));
  for (const [pattern, name] of [[/^\s*[-*+] +/, "ul"], [/^\s*\d+[.)] +/, "ol"]])
    if (lines.every((line) => pattern.test(line)))
      return make(name, {}, ...lines.map((line) => make("li", {}, ...inline(line.replace(pattern, "")))));
  return make("p", {}, ...lines.flatMap((line, i) => [...(i ? [make("br")] : []), ...inline(line)]));
}

export function markdown(text) {
  const out = document.createDocumentFragment();
  text.split(/^```[^\n]*\n?/m).forEach((part, i) => {
    if (i % 2) {
      out.append(make("pre", { tabIndex: 0 }, make("code", { textContent: part.replace(/\n$/, "") })));
      return;
    }
    for (const paragraph of part.split(/\n\s*\n/)) {
      const lines = paragraph.split("\n").filter((line) => line.trim());
      if (lines.length) out.append(block(lines));
    }
  });
  return out;
}
