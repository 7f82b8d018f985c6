// Vercel's AI SDK with its three ways to a server like this one: the default of @ai-sdk/openai (responses), its .chat, and
// @ai-sdk/openai-compatible. Each validates every body and chunk with zod.
const assert = require('node:assert');
const fs = require('node:fs');
const path = require('node:path');
const { createRequire } = require('node:module');
const ai = require('ai');
const { createOpenAI } = require('@ai-sdk/openai');
const { createOpenAICompatible } = require('@ai-sdk/openai-compatible');
const { Differs, main, url, wav, red, weather } = require('./features.js');

const { generateText, streamText, generateObject, tool, jsonSchema, stepCountIs, Output } = ai;
const openai = createOpenAI({ baseURL: url, apiKey: 'none' });
const compatible = createOpenAICompatible({ baseURL: url, apiKey: 'none', name: 'oxinferd', includeUsage: true, supportsStructuredOutputs: true });
const once = { maxRetries: 0 };
const tools = {
  get_weather: tool({ description: 'weather', inputSchema: jsonSchema(weather), execute: async ({ city }) => `${city} sunny1` }),
};

function texts(make, list, on) {
  const model = make('scripted'), plain = { model: make('plain') };
  const call = (prompt, more) => ({ model, prompt, ...once, ...more });
  list.push(['chat', async () => {
    const answer = await generateText(call('1'));
    assert.strictEqual(answer.text, 'KLMNOPQR');
    assert.strictEqual(answer.finishReason, 'stop');
    assert.ok(answer.usage.totalTokens > 0);
  }]);
  list.push(['chat, stream', async () => {
    const stream = streamText(call('0', { onError: () => {} }));
    let text = '';
    for await (const piece of stream.textStream) text += piece;
    assert.ok(text.startsWith(' one two three'), text);
    assert.ok((await stream.usage).totalTokens > 0);
  }]);
  if (on.logprobs)
    list.push(['chat, logprobs', async () => {
      const answer = await generateText(call('3', { providerOptions: { openai: { logprobs: 2 } } }));
      assert.ok(JSON.stringify(answer.providerMetadata.openai.logprobs).includes(' river'));
    }]);
  list.push(['chat, tools', async () => {
    const answer = await generateText(call('A', { tools, stopWhen: stepCountIs(3) }));
    assert.deepStrictEqual(answer.steps[0].toolCalls.map((c) => [c.toolName, c.input]), [['get_weather', { city: 'Paris' }]]);
    assert.strictEqual(answer.text, 'KLMNOPQR');
    const named = await generateText(call('C', { tools, toolChoice: { type: 'tool', toolName: 'get_weather' }, maxOutputTokens: 99 }));
    assert.deepStrictEqual(Object.keys(named.toolCalls[0].input), ['city']);
  }]);
  list.push(['chat, tools, stream', async () => {
    const stream = streamText(call('A', { tools, stopWhen: stepCountIs(3), onError: () => {} }));
    const kinds = new Set();
    for await (const part of stream.fullStream) {
      if (part.type === 'error') throw part.error;
      kinds.add(part.type);
    }
    assert.ok(kinds.has('tool-input-delta') && kinds.has('tool-call') && kinds.has('tool-result'), [...kinds].join());
    assert.strictEqual(await stream.text, 'KLMNOPQR');
  }]);
  list.push(['chat, reasoning', async () => {
    const answer = await generateText(call('D', on.reasoning));
    assert.strictEqual(answer.text, 'done');
    if (on.drops) throw new Differs(on.drops);
    assert.strictEqual(answer.reasoningText, 'I think.');
    const stream = streamText(call('D', { ...on.reasoning, onError: () => {} }));
    let thought = '';
    for await (const part of stream.fullStream) if (part.type === 'reasoning-delta') thought += part.text;
    assert.strictEqual(thought, 'I think.');
  }]);
  list.push(['chat, json_schema', async () => {
    assert.deepStrictEqual((await generateObject(call('J', { ...plain, schema: jsonSchema(red) }))).object, { color: 'red' });
    const answer = await generateText(call('J', { ...plain, output: Output.object({ schema: jsonSchema(red) }) }));
    assert.deepStrictEqual(answer.output, { color: 'red' });
    const stream = streamText(call('J', { ...plain, output: Output.object({ schema: jsonSchema(red) }), onError: () => {} }));
    assert.deepStrictEqual(await stream.output, { color: 'red' });
  }]);
  list.push(['chat, two turns', async () => {
    const first = await generateText(call('1'));
    const messages = [{ role: 'user', content: '1' }, ...first.response.messages, { role: 'user', content: '4' }];
    assert.strictEqual((await generateText({ model, messages, ...once })).text, ' stone!');
  }]);
  list.push(['errors', async () => {
    await assert.rejects(generateText(call('1', { topP: 3 })), (e) => {
      assert.ok(ai.APICallError.isInstance(e) && e.statusCode === 400 && e.message.includes('top_p'), e.message);
      return true;
    });
  }]);
}

function others(provider, list, on) {
  list.push(['completions', async () => {
    const make = provider.completion ?? provider.completionModel;
    const answer = await generateText({ model: make('oxinfer-tiny'), prompt: 'Once', maxOutputTokens: 8, ...once });
    assert.ok(answer.text.length > 0 && answer.usage.outputTokens > 0);
    const stream = streamText({ model: make('oxinfer-tiny'), prompt: 'Once', maxOutputTokens: 8, ...once });
    assert.ok((await stream.text).length > 0);
  }]);
  list.push(['embeddings', async () => {
    const model = provider.embeddingModel('minilm');
    const answer = await ai.embedMany({ model, values: ['a', 'b'], ...once });
    assert.strictEqual(answer.embeddings.length, 2);
  }]);
  if (on.sound)
    list.push(['speech', async () => {
      const answer = await ai.experimental_generateSpeech({ model: provider.speech('orpheus'), text: 'a', voice: 'tara', outputFormat: 'wav', ...once });
      assert.strictEqual(Buffer.from(answer.audio.uint8Array).toString('latin1', 0, 4), 'RIFF');
    }], ['transcription', async () => {
      const answer = await ai.experimental_transcribe({ model: provider.transcription('whisper'), audio: fs.readFileSync(wav), ...once });
      assert.strictEqual(typeof answer.text, 'string');
    }]);
  list.push(['images', async () => {
    const model = provider.image ? provider.image('sd') : provider.imageModel('sd');
    const answer = await ai.generateImage({ model, prompt: 'a', size: '32x24', ...once });
    assert.strictEqual(answer.image.mediaType, 'image/png');
  }]);
}

const version = (name) => {
  const folder = require.resolve(name).split(`${path.sep}node_modules${path.sep}`)[0];
  return createRequire(path.join(folder, 'x'))(`./node_modules/${name}/package.json`).version;
};

(async () => {
  const file = path.basename(__filename);
  const responses = [], chat = [], compat = [];
  texts(openai, responses, { logprobs: true, reasoning: { providerOptions: { openai: { reasoningSummary: 'auto', forceReasoning: true } } } });
  others(openai, responses, { sound: true });
  texts(openai.chat, chat, { logprobs: true, drops: 'has no field for `reasoning_content`; the text is clean' });
  texts(compatible.chatModel, compat, {});
  others(compatible, compat, {});
  const sdk = `ai ${version('ai')}`;
  const rename = (list) => list.map(([name, run]) => [name.replace(/^chat/, 'responses'), run]);
  await main(file, 'node_ai_responses', `${version('@ai-sdk/openai')}, ${sdk}`, rename(responses));
  await main(file, 'node_ai_chat', `${version('@ai-sdk/openai')}, ${sdk}`, chat);
  await main(file, 'node_ai_compatible', `${version('@ai-sdk/openai-compatible')}, ${sdk}`, compat);
})();
