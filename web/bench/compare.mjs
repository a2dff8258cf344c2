// node web/bench/compare.mjs build/web: times of programs and of onnxruntime-web (its WebAssembly provider, one thread), in
// turns in one process, with the same int8 networks (make_models.py). Prints a table of medians.
import { readFile } from "node:fs/promises";
import { pathToFileURL } from "node:url";

const folder = pathToFileURL(`${process.argv[2]}/`);
const { load } = await import(new URL("package/zeropoint.mjs", folder));
const ort = await import(new URL("node_modules/onnxruntime-web/dist/ort.wasm.min.mjs", folder));
ort.env.wasm.numThreads = 1;
ort.env.logLevel = "error";

const ROUNDS = 9;
const median = (values) => values.sort((a, b) => a - b)[values.length >> 1];

async function time(run) {
  const calls = [];
  const start = performance.now();
  do {
    const begin = performance.now();
    await run();
    calls.push(performance.now() - begin);
  } while (performance.now() - start < 150);
  return median(calls);
}

console.log("| network | zeropoint | onnxruntime-web | ratio | largest difference |\n|---|---|---|---|---|");
for (const { name, file, shape } of JSON.parse(await readFile(new URL("models/models.json", folder)))) {
  const at = (ending) => readFile(new URL(`models/${file}.${ending}`, folder));
  const data = new Float32Array(new Uint8Array(await at("input")).buffer);
  const program = await load(new Uint8Array(await at("zpt")));
  const session = await ort.InferenceSession.create(new Uint8Array(await at("onnx")), { executionProviders: ["wasm"] });
  const feeds = { [session.inputNames[0]]: new ort.Tensor("float32", data, shape) };
  const ours = () => program.run([{ data, shape }]);
  const theirs = () => session.run(feeds);
  const [{ data: a }] = ours();
  const b = (await theirs())[session.outputNames[0]].data;
  const most = a.reduce((m, x) => Math.max(m, Math.abs(x)), 0);
  const apart = a.reduce((m, x, i) => Math.max(m, Math.abs(x - b[i])), 0) / most;
  const times = [[], []];
  for (let round = 0; round < ROUNDS; ++round) {
    times[0].push(await time(ours));
    times[1].push(await time(theirs));
  }
  const [mine, other] = times.map(median);
  console.log(`| ${name} | ${mine.toFixed(2)} ms | ${other.toFixed(2)} ms | ${(other / mine).toFixed(2)}x | ${
    (100 * apart).toFixed(1)}% |`);
  program.free();
  await session.release();
}
