// The Node checks of test_openai_responses. OXINFERD_URL is the daemon's base URL; prints "ok NAME" and "not ok NAME: why".
const assert = require('node:assert');
const { OpenAI } = require('openai');

const client = new OpenAI({ baseURL: process.env.OXINFERD_URL, apiKey: 'none', maxRetries: 0 });
const asked = (input, more) => ({ model: 'scripted', input, ...more });
const tool = (name, properties) => ({ type: 'function', name, strict: true, parameters: {
  type: 'object', properties, required: Object.keys(properties), additionalProperties: false } });
const tools = [tool('get_weather', { city: { type: 'string' } }), tool('get_time', {})];

const checks = {
  async create() {
    const answer = await client.responses.create(asked('5'));
    assert.strictEqual(answer.output_text, '\u{1f999}\u767a\u9801 word');
    assert.strictEqual(answer.status, 'completed');
    assert.ok(answer._request_id);
  },

  async stream_helper() {
    for (const input of ['1', '5', 'A', 'B', 'D', 'G'])
      for (const reasoning of [undefined, { summary: 'auto' }]) {
        const stream = client.responses.stream(asked(input, { tools, reasoning }));
        const kinds = [];
        for await (const event of stream) kinds.push(event.type);
        const final = await stream.finalResponse();
        assert.strictEqual(kinds[0], 'response.created');
        assert.strictEqual(kinds.at(-1), 'response.completed');
        const whole = await client.responses.create(asked(input, { tools, reasoning }));
        assert.deepStrictEqual(final.output.map((i) => i.type), whole.output.map((i) => i.type));
        assert.strictEqual(final.output_text, whole.output_text);
      }
  },

  async cut() {
    const stream = client.responses.stream(asked('0', { max_output_tokens: 2 }));
    const kinds = [];
    for await (const event of stream) kinds.push(event.type);
    assert.strictEqual(kinds.at(-1), 'response.incomplete');
  },

  async parse() {
    const answer = await client.responses.parse(asked('B', { tools }));
    const calls = answer.output.filter((i) => i.type === 'function_call');
    assert.deepStrictEqual(calls.map((c) => c.parsed_arguments), [{}, { city: 'Rome' }]);
  },

  async loop_of_tools() {
    const first = await client.responses.create(asked('A', { tools }));
    const call = first.output.find((i) => i.type === 'function_call');
    const result = { type: 'function_call_output', call_id: call.call_id, output: '22 degrees J' };
    const second = await client.responses.create(asked([result], { tools, previous_response_id: first.id }));
    assert.strictEqual(second.output_text, 'I would say that it is sunny.');
    const byHand = await client.responses.create(asked([{ role: 'user', content: 'A' }, ...first.output, result], { tools }));
    assert.strictEqual(byHand.usage.input_tokens, second.usage.input_tokens);
  },

  async stored() {
    const answer = await client.responses.create(asked('1'));
    assert.strictEqual((await client.responses.retrieve(answer.id)).output_text, 'KLMNOPQR');
    const items = [];
    for await (const item of client.responses.inputItems.list(answer.id)) items.push(item);
    assert.strictEqual(items[0].content[0].text, '1');
    await client.responses.delete(answer.id);
    await assert.rejects(client.responses.retrieve(answer.id), (e) => e.status === 404);
    await assert.rejects(client.responses.create(asked('1', { previous_response_id: answer.id })),
      (e) => e.status === 400 && e.code === 'previous_response_not_found');
  },

  async abort() {
    const stream = await client.responses.create(asked('8', { stream: true }));
    for await (const event of stream) if (event.type === 'response.output_text.delta') stream.controller.abort();
  },
};

(async () => {
  let failed = 0;
  for (const [name, check] of Object.entries(checks))
    try {
      await check();
      console.log(`ok node_${name}`);
    } catch (e) {
      failed = 1;
      console.log(`not ok node_${name}: ${String(e.stack).split('\n').slice(0, 6).join(' | ')}`);
    }
  process.exit(failed);
})();
