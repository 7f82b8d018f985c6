// The official Node client: its accumulators and helpers, which throw at what they do not expect.
const assert = require('node:assert');
const fs = require('node:fs');
const path = require('node:path');
const { OpenAI, toFile } = require('openai');
const { feature, main, url, wav, red, weather } = require('./features.js');

const client = new OpenAI({ baseURL: url, apiKey: 'none', maxRetries: 0 });
const user = (text, more) => ({ model: 'scripted', messages: [{ role: 'user', content: text }], ...more });
const tools = [
  { type: 'function', function: { name: 'get_weather', description: 'weather', parameters: weather } },
  { type: 'function', function: { name: 'get_time', parameters: { type: 'object', properties: {} } } },
];
const flat = [{ type: 'function', name: 'get_weather', description: 'weather', parameters: weather, strict: false }];

async function collect(stream) {
  const all = [];
  for await (const x of stream) all.push(x);
  return all;
}

feature('models', async () => {
  const models = await collect(await client.models.list());
  assert.ok(models.some((m) => m.id === 'scripted' && m.object === 'model'));
  assert.strictEqual((await client.models.retrieve('scripted')).id, 'scripted');
});

feature('chat', async () => {
  const answer = await client.chat.completions.create(user('1'));
  assert.strictEqual(answer.choices[0].message.content, 'KLMNOPQR');
  assert.ok(answer._request_id && answer.usage.total_tokens > 0);
});

feature('chat, stream', async () => {
  const runner = client.chat.completions.stream(user('0', { stream_options: { include_usage: true } }));
  const final = await runner.finalChatCompletion();
  assert.ok(final.choices[0].message.content.startsWith(' one two three'));
  assert.ok((await runner.totalUsage()).total_tokens > 0);
});

feature('chat, n', async () => {
  const final = await client.chat.completions.stream(user('1', { n: 3 })).finalChatCompletion();
  assert.deepStrictEqual(final.choices.map((c) => c.message.content), ['KLMNOPQR', 'KLMNOPQR', 'KLMNOPQR']);
});

feature('chat, logprobs', async () => {
  const final = await client.chat.completions.stream(user('3', { logprobs: true, top_logprobs: 20 })).finalChatCompletion();
  assert.strictEqual(final.choices[0].logprobs.content[0].token, ' river');
  assert.strictEqual(final.choices[0].logprobs.content[0].top_logprobs.length, 20);
});

const runnable = tools.map((t) => ({
  ...t, function: { ...t.function, parse: JSON.parse, function: (x) => (x.city ?? 'time') + ' sunny1' },
}));

feature('chat, tools', async () => {
  const answer = await client.chat.completions.create(user('B', { tools }));
  assert.deepStrictEqual(answer.choices[0].message.tool_calls.map((c) => c.function.name), ['get_time', 'get_weather']);
  const runner = client.chat.completions.runTools(user('A', { tools: runnable }));
  assert.strictEqual(await runner.finalContent(), 'KLMNOPQR');
});

feature('chat, tools, stream', async () => {
  const final = await client.chat.completions.stream(user('B', { tools })).finalChatCompletion();
  assert.deepStrictEqual(final.choices[0].message.tool_calls.map((c) => c.function.name), ['get_time', 'get_weather']);
  assert.deepStrictEqual(JSON.parse(final.choices[0].message.tool_calls[1].function.arguments), { city: 'Rome' });
  const runner = client.chat.completions.runTools(user('A', { tools: runnable, stream: true }));
  assert.strictEqual(await runner.finalContent(), 'KLMNOPQR');
});

feature('chat, reasoning', async () => {
  const answer = await client.chat.completions.create(user('D'));
  assert.strictEqual(answer.choices[0].message.content, 'done');
  assert.strictEqual(answer.choices[0].message.reasoning_content, 'I think.');
  const final = await client.chat.completions.stream(user('D')).finalChatCompletion();
  assert.strictEqual(final.choices[0].message.content, 'done');
});

feature('chat, json_schema', async () => {
  const response_format = { type: 'json_schema', json_schema: { name: 'c', schema: red, strict: true } };
  const answer = await client.chat.completions.parse(user('J', { response_format, model: 'plain' }));
  assert.deepStrictEqual(answer.choices[0].message.parsed, { color: 'red' });
  const final = await client.chat.completions.stream(user('J', { response_format, model: 'plain' })).finalChatCompletion();
  assert.deepStrictEqual(JSON.parse(final.choices[0].message.content), { color: 'red' });
});

feature('completions', async () => {
  const answer = await client.completions.create({ model: 'scripted', prompt: ['1', '4'], max_tokens: 3, best_of: 2, logprobs: 2 });
  assert.deepStrictEqual(answer.choices.map((c) => c.text), ['KLMNO', ' stone!']);
  const chunks = await collect(await client.completions.create({ model: 'scripted', prompt: '1', stream: true }));
  assert.strictEqual(chunks.map((c) => c.choices[0].text).join(''), 'KLMNOPQR');
});

feature('responses', async () => {
  const first = await client.responses.create({ model: 'scripted', input: '1' });
  assert.strictEqual(first.output_text, 'KLMNOPQR');
  const second = await client.responses.create({ model: 'scripted', input: '4', previous_response_id: first.id });
  assert.strictEqual((await client.responses.retrieve(second.id)).output_text, ' stone!');
});

feature('responses, stream', async () => {
  const final = await client.responses.stream({ model: 'scripted', input: '0' }).finalResponse();
  assert.ok(final.output_text.startsWith(' one two three'));
});

feature('responses, tools', async () => {
  const final = await client.responses.stream({ model: 'scripted', input: 'A', tools: flat }).finalResponse();
  const call = final.output.find((x) => x.type === 'function_call');
  assert.deepStrictEqual(JSON.parse(call.arguments), { city: 'Paris' });
  const after = await client.responses.create({
    model: 'scripted', tools: flat, previous_response_id: final.id,
    input: [{ type: 'function_call_output', call_id: call.call_id, output: 'sunny1' }],
  });
  assert.strictEqual(after.output_text, 'KLMNOPQR');
});

feature('responses, reasoning', async () => {
  const final = await client.responses.stream({ model: 'scripted', input: 'D', reasoning: { summary: 'auto' } }).finalResponse();
  assert.deepStrictEqual(final.output.map((x) => x.type), ['reasoning', 'message']);
  assert.strictEqual(final.output_text, 'done');
});

feature('responses, json_schema', async () => {
  const format = { type: 'json_schema', name: 'c', schema: red, strict: true };
  const answer = await client.responses.parse({ model: 'plain', input: 'J', text: { format } });
  assert.deepStrictEqual(answer.output_parsed, { color: 'red' });
});

feature('embeddings', async () => {
  const packed = await client.embeddings.create({ model: 'minilm', input: ['a', 'b'] });
  const plain = await client.embeddings.create({ model: 'minilm', input: ['a', 'b'], encoding_format: 'float' });
  assert.strictEqual(packed.data[1].embedding.length, plain.data[1].embedding.length);
  packed.data[1].embedding.forEach((x, i) => assert.ok(Math.abs(x - plain.data[1].embedding[i]) < 1e-6));
});

feature('speech', async () => {
  const sound = await client.audio.speech.create({ model: 'orpheus', input: 'a', voice: 'tara', response_format: 'wav', max_tokens: 14 });
  assert.strictEqual(Buffer.from(await sound.arrayBuffer()).toString('latin1', 0, 4), 'RIFF');
});

feature('transcription', async () => {
  const answer = await client.audio.transcriptions.create({ model: 'whisper', file: fs.createReadStream(wav) });
  const file = await toFile(fs.readFileSync(wav), 'talk.wav');
  const events = await collect(await client.audio.transcriptions.create({ model: 'whisper', file, stream: true }));
  assert.strictEqual(events.at(-1).text, answer.text);
  const verbose = await client.audio.transcriptions.create({ model: 'whisper', file, response_format: 'verbose_json' });
  assert.ok(verbose.duration > 0 && Array.isArray(verbose.segments));
});

feature('images', async () => {
  const answer = await client.images.generate({ model: 'sd', prompt: 'a', size: '32x24', steps: 2 });
  assert.ok(Buffer.from(answer.data[0].b64_json, 'base64').toString('latin1').startsWith('\x89PNG'));
  const events = await collect(await client.images.generate({ model: 'sd', prompt: 'a', size: '32x24', steps: 2, stream: true }));
  assert.strictEqual(events.at(-1).type, 'image_generation.completed');
});

feature('errors', async () => {
  await assert.rejects(client.chat.completions.create(user('1', { temperature: 3 })), (e) => {
    assert.ok(e instanceof OpenAI.BadRequestError && e.param === 'temperature' && e.requestID);
    return true;
  });
});

main(path.basename(__filename), 'node_openai', require('openai/version').VERSION);
