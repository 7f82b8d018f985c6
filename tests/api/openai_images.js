// The Node checks of test_openai_images. OXINFERD_URL is the daemon's base URL; prints "ok NAME" and "not ok NAME: why".
const assert = require('node:assert');
const { OpenAI } = require('openai');

const client = new OpenAI({ baseURL: process.env.OXINFERD_URL, apiKey: 'none', maxRetries: 0 });
const ask = (more) => ({ model: 'sd', prompt: 'a cat', size: '32x24', steps: 3, seed: 1, ...more });
const isPng = (text) => Buffer.from(text, 'base64').subarray(1, 4).toString() === 'PNG';

const checks = {
  async node_generate() {
    const answer = await client.images.generate(ask({ n: 2 }));
    assert.strictEqual(answer.data.length, 2);
    assert.ok(isPng(answer.data[1].b64_json));
    assert.strictEqual(answer.size, '32x24');
    assert.ok(answer.usage.total_tokens > 0);
  },

  async node_stream() {
    for (const progress of [false, true]) {
      const types = [];
      for await (const event of await client.images.generate(ask({ stream: true, partial_images: 1, progress }))) {
        types.push(event.type);
        if (event.type.startsWith('image_generation.')) assert.ok(isPng(event.b64_json));
      }
      const known = types.filter((t) => t.startsWith('image_generation.'));
      assert.deepStrictEqual(known, ['image_generation.partial_image', 'image_generation.completed']);
      assert.strictEqual(types.length - known.length, progress ? 4 : 0);
    }
  },

  async node_error() {
    await assert.rejects(client.images.generate(ask({ size: '33x24' })), (e) => e.status === 400 && e.param === 'size');
  },
};

(async () => {
  let failed = 0;
  for (const [name, check] of Object.entries(checks)) {
    try {
      await check();
      console.log(`ok ${name}`);
    } catch (e) {
      failed = 1;
      console.log(`not ok ${name}: ${String(e.stack).replaceAll('\n', ' | ')}`);
    }
  }
  process.exit(failed);
})();
