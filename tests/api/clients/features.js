// What the Node clients of this folder share; features.py says how. Loaded by both kinds of modules.
const features = [];

class Differs extends Error {}

async function main(file, client, version, list = features) {
  console.log(`client ${client} ${version}`);
  for (const [name, run] of list) {
    try {
      await run();
      console.log(`ok ${name}`);
    } catch (e) {
      if (e instanceof Differs) {
        console.log(`differs ${name}: ${e.message}`);
        continue;
      }
      const line = String(e.stack).split('\n').find((x) => x.includes(file)) ?? '';
      const text = `${e.name} at ${line.split('/').at(-1).replace(')', '')}: ${e.message} ${e.cause ? `(${e.cause.message})` : ''}`;
      console.log(`not ok ${name}: ${text.replaceAll('\n', ' | ').slice(0, 500)}`);
    }
  }
}

module.exports = {
  Differs,
  main,
  features,
  feature: (name, run) => features.push([name, run]),
  url: process.env.OXINFERD_URL,
  wav: process.env.OXINFERD_WAV,
  red: { type: 'object', properties: { color: { type: 'string', enum: ['red'] } }, required: ['color'], additionalProperties: false },
  weather: { type: 'object', properties: { city: { type: 'string', enum: ['Paris', 'Rome'] } }, required: ['city'], additionalProperties: false },
};
