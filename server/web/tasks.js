// The tabs that are one form and one result.
import { blob, call, events } from "./api.js";
import { byId, make, number, onSubmit } from "./dom.js";

const lines = (id) => byId(id).value.split("\n").map((line) => line.trim()).filter(Boolean);
const percent = (p) => `${(100 * p).toFixed(1)} %`;

function table(head, rows) {
  const row = (cells, name) => make("tr", {}, ...cells.map((cell) => make(name, { textContent: cell })));
  return make("table", {}, make("thead", {}, row(head, "th")), make("tbody", {}, ...rows.map((cells) => row(cells, "td"))));
}

function openEmbedding(currentModel) {
  const cosine = (a, b) => a.reduce((sum, x, i) => sum + x * b[i], 0) / Math.hypot(...a) / Math.hypot(...b);
  onSubmit("embedding", async (result) => {
    const input = lines("embedding-input"), model = currentModel("embedding");
    if (!input.length) throw new Error("Write at least one text.");
    const { data } = await call("embeddings", { json: { model: model.id, input } });
    const vectors = data.map((item) => item.embedding);
    result.replaceChildren(make("p", { textContent: `${vectors[0].length} dimensions. How alike the texts are:` }),
      table(["", ...input.map((_, i) => `${i + 1}`)],
        input.map((text, i) => [`${i + 1}  ${text}`, ...vectors.map((v) => cosine(vectors[i], v).toFixed(3))])));
  });
}

function openTranscription(currentModel) {
  onSubmit("transcription", async (result) => {
    const form = new FormData(), language = byId("transcription-language").value.trim();
    form.append("model", currentModel("transcription").id);
    form.append("response_format", "verbose_json");
    if (language) form.append("language", language);
    form.append("file", byId("transcription-file").files[0]);
    const path = byId("transcription-translate").checked ? "audio/translations" : "audio/transcriptions";
    const answer = await call(path, { form });
    const time = (s) => s.toFixed(1);
    result.replaceChildren(make("p", { textContent: answer.text }),
      table(["from s", "to s", "text"], (answer.segments ?? []).map((s) => [time(s.start), time(s.end), s.text])));
  });
}

function openSpeech(currentModel) {
  onSubmit("speech", async (result) => {
    const start = performance.now();
    const sound = await blob("audio/speech", { json: {
      model: currentModel("speech").id, input: byId("speech-input").value, voice: byId("speech-voice").value || "alloy", response_format: "wav" } });
    const player = make("audio", { controls: true, src: URL.createObjectURL(sound) });
    result.replaceChildren(player, make("p", { textContent: `made in ${((performance.now() - start) / 1000).toFixed(1)} s` }));
  });
}

function openImage(currentModel) {
  let control = null;
  byId("image-stop").addEventListener("click", () => control?.abort());
  onSubmit("image", async (result) => {
    const prompt = byId("image-prompt").value, seed = number("image-seed"), steps = number("image-steps");
    control = new AbortController();
    byId("image-stop").hidden = false;
    try {
      const json = { model: currentModel("image").id, prompt, size: byId("image-size").value, stream: true, partial_images: 2, seed, steps,
        negative_prompt: byId("image-negative").value || undefined };
      for await (const event of events("images/generations", { json, signal: control.signal }))
        if (event.b64_json)
          result.replaceChildren(make("img", { alt: prompt, src: `data:image/png;base64,${event.b64_json}` }));
    } catch (error) {
      throw error.name === "AbortError" ? new Error("Stopped.") : error;
    } finally {
      byId("image-stop").hidden = true;
    }
  });
}

function openDecision(currentModel) {
  onSubmit("decision", async (result) => {
    const options = lines("decision-options");
    const json = { model: currentModel("decision").id, kind: options.length ? "choice" : "noul",
      state: byId("decision-state").value, question: byId("decision-question").value };
    if (options.length) json.options = options;
    const answer = await call("decide", { json });
    const names = options.length ? options : ["yes", "no"], p = answer.probabilities;
    const rows = Array.isArray(p) ? p.map((x, i) => [names[i] ?? i, percent(x)]) : Object.entries(p).map(([name, x]) => [name, percent(x)]);
    result.replaceChildren(make("p", {}, make("strong", { textContent: String(answer.choice) })), table(["option", "probability"], rows));
  });
}

export function openTasks(currentModel) {
  for (const open of [openEmbedding, openTranscription, openSpeech, openImage, openDecision]) open(currentModel);
}
