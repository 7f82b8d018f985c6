// The checks of test_openai_node. OXINFERD_URL is the daemon's base URL; prints "ok NAME" and "not ok NAME: why".
const assert = require('node:assert');
const { OpenAI } = require('openai');

const client = new OpenAI({ baseURL: process.env.OXINFERD_URL, apiKey: 'none', maxRetries: 0 });
const user = (text, more) => ({ model: 'scripted', messages: [{ role: 'user', content: text }], ...more });

async function collect(stream) {
  const chunks = [];
  for await (const chunk of stream) chunks.push(chunk);
  return chunks;
}

const tool = (name, properties) => ({ type: 'function', function: { name, parameters: {
  type: 'object', properties, required: Object.keys(properties), additionalProperties: false } } });
const tools = [tool('get_weather', { city: { type: 'string' } }), tool('get_time', {})];

const checks = {
  async create() {
    const answer = await client.chat.completions.create(user('5'));
    assert.strictEqual(answer.choices[0].message.content, '\u{1f999}\u767a\u9801 word');
    assert.strictEqual(answer.choices[0].finish_reason, 'stop');
    assert.strictEqual(answer.usage.total_tokens, answer.usage.prompt_tokens + answer.usage.completion_tokens);
    assert.ok(answer._request_id);
  },

  async stream() {
    const chunks = await collect(
      await client.chat.completions.create(user('6', { stream: true, stream_options: { include_usage: true } })));
    assert.strictEqual(chunks.flatMap((c) => c.choices).map((c) => c.delta.content ?? '').join(''), 'ok \ufffd end');
    assert.deepStrictEqual(chunks.at(-1).choices, []);
    assert.ok(chunks.at(-1).usage.total_tokens > 0);
  },

  async stream_helper_with_three_choices() {
    const runner = client.chat.completions.stream(user('1', { n: 3 }));
    const final = await runner.finalChatCompletion();
    assert.deepStrictEqual(final.choices.map((c) => c.message.content), ['KLMNOPQR', 'KLMNOPQR', 'KLMNOPQR']);
    assert.deepStrictEqual(final.choices.map((c) => c.finish_reason), ['stop', 'stop', 'stop']);
  },

  async logprobs() {
    const answer = await client.chat.completions.create(user('3', { logprobs: true, top_logprobs: 2 }));
    const tokens = answer.choices[0].logprobs.content;
    assert.strictEqual(tokens[0].token, ' river');
    assert.strictEqual(tokens[0].top_logprobs.length, 2);
  },

  async completions() {
    const answer = await client.completions.create({ model: 'scripted', prompt: ['1', '4'], max_tokens: 3 });
    assert.deepStrictEqual(answer.choices.map((c) => c.text), ['KLMNO', ' stone!']);
    const chunks = await collect(await client.completions.create({ model: 'scripted', prompt: '1', stream: true }));
    assert.strictEqual(chunks.map((c) => c.choices[0].text).join(''), 'KLMNOPQR');
  },

  async tools() {
    const { message } = (await client.chat.completions.create(user('A', { tools }))).choices[0];
    assert.strictEqual(message.content, 'Let me look.');
    assert.strictEqual(message.tool_calls[0].function.arguments, '{"city": "Paris"}');
    const done = [];
    const runner = client.chat.completions.stream(user('B', { tools }));
    runner.on('tool_calls.function.arguments.done', (call) => done.push(call.name));
    const final = (await runner.finalChatCompletion()).choices[0];
    assert.deepStrictEqual(done, ['get_time', 'get_weather']);
    assert.deepStrictEqual(final.message.tool_calls.map((c) => c.function.name), ['get_time', 'get_weather']);
    assert.strictEqual(final.finish_reason, 'tool_calls');
    const custom = { type: 'custom', custom: { name: 'run', format: { type: 'grammar', grammar: { syntax: 'regex', definition: 'on!' } } } };
    const forced = await client.chat.completions.create(user('J', {
      tools: [custom], tool_choice: 'required', parallel_tool_calls: false, max_tokens: 100, reasoning_effort: 'none' }));
    assert.deepStrictEqual(forced.choices[0].message.tool_calls[0].custom, { name: 'run', input: 'on!' });
  },

  async run_tools() {
    const seen = [];
    const get_weather = (args) => { seen.push(args); return 'sunny 1'; };
    const runner = client.chat.completions.runTools(user('A', { stream: true, tools: [{ type: 'function', function: {
      ...tools[0].function, function: get_weather, parse: JSON.parse } }] }));
    assert.strictEqual(await runner.finalContent(), 'KLMNOPQR');
    assert.deepStrictEqual(seen, [{ city: 'Paris' }]);
  },

  async thoughts() {
    const chunks = await collect(await client.chat.completions.create(user('D', { stream: true })));
    assert.strictEqual(chunks.map((c) => c.choices[0].delta.reasoning_content ?? '').join(''), 'I think.');
    assert.strictEqual(chunks.map((c) => c.choices[0].delta.content ?? '').join(''), 'done');
  },

  async models() {
    const list = await collect(await client.models.list());
    assert.deepStrictEqual(list.map((m) => m.id), ['scripted', 'org/other']);
    assert.strictEqual((await client.models.retrieve('org/other')).id, 'org/other');
  },

  async errors() {
    await assert.rejects(client.chat.completions.create(user('1', { model: 'gpt-4o' })), (e) => {
      assert.ok(e instanceof OpenAI.NotFoundError && e.code === 'model_not_found' && e.requestID, e);
      return true;
    });
    await assert.rejects(client.chat.completions.create(user('1', { temperature: 3, stream: true })), (e) => {
      assert.ok(e instanceof OpenAI.BadRequestError && e.param === 'temperature', e);
      return true;
    });
  },

  async HTTP_05_failure_in_a_stream() {
    const stream = await client.chat.completions.create(user('8', { stream: true, timeout: 0.3 }));
    let seen = 0;
    await assert.rejects(async () => {
      for await (const chunk of stream) seen += chunk.choices.length;
    }, OpenAI.APIError);
    assert.ok(seen > 3);
  },

  async abort() {
    const stream = await client.chat.completions.create(user('8', { stream: true }));
    let seen = 0;
    for await (const chunk of stream) if ((seen += chunk.choices.length) > 5) stream.controller.abort();
    const answer = await client.chat.completions.create(user('1'));
    assert.strictEqual(answer.choices[0].message.content, 'KLMNOPQR');
  },
};

(async () => {
  for (const [name, run] of Object.entries(checks)) {
    try {
      await run();
      console.log(`ok ${name}`);
    } catch (e) {
      process.exitCode = 1;
      console.log(`not ok ${name}: ${String(e.message).replaceAll('\n', ' | ').slice(0, 600)}`);
    }
  }
})();
