// node --test web/test: the package in build/web/package on the kept programs and on files that are broken.
import assert from "node:assert/strict";
import { readFile, readdir } from "node:fs/promises";
import test from "node:test";
import { arraysOf, difference } from "./arrays.mjs";

const { load, ZeropointError } = await import(new URL("../../build/web/package/zeropoint.mjs", import.meta.url));
const folder = new URL("../../tests/golden/programs/", import.meta.url);
const bytes = async (name) => new Uint8Array(await readFile(new URL(name, folder)));
const names = (await readdir(folder)).filter((name) => name.endsWith(".zpt"));

for (const name of names)
  test(`${name} gives the bytes it gives everywhere`, async () => {
    const arrays = await bytes(name.replace(".zpt", ".safetensors"));
    const program = await load(await bytes(name));
    assert.equal(difference(program.run(arraysOf(arrays, "input")), arraysOf(arrays, "output")), "");
    program.free();
  });

test("inputs are found by name, and a shape follows from the length if one size is free", async () => {
  const program = await load(await bytes("image.zpt"));
  const [input] = arraysOf(await bytes("image.safetensors"), "input");
  const [{ name, type, shape }] = program.inputs;
  assert.equal(type, "float32");
  assert.equal(shape.length, 4);
  assert.deepEqual(program.run({ [name]: input }), program.run([input]));
  assert.equal(program.isa, "simd128");
  program.free();
});

test("results stay as they are when the program runs again", async () => {
  const program = await load(await bytes("image.zpt"));
  const [input] = arraysOf(await bytes("image.safetensors"), "input");
  const [first] = program.run([input]);
  const kept = first.data.slice();
  program.run([{ ...input, data: input.data.map((x) => -x) }]);
  assert.deepEqual(first.data, kept);
  program.free();
});

test("a state begins anew after reset", async () => {
  const program = await load(await bytes("remembering.zpt"));
  const [input] = arraysOf(await bytes("remembering.safetensors"), "input");
  const first = program.run([input]);
  program.run([input]);
  program.reset();
  assert.deepEqual(program.run([input]), first);
  program.free();
});

test("profile names each step and its time", async () => {
  const program = await load(await bytes("image.zpt"));
  const steps = program.profile(arraysOf(await bytes("image.safetensors"), "input"));
  assert.ok(steps.length > 3);
  assert.ok(steps.every(({ op, seconds }) => op !== "" && seconds >= 0));
  assert.ok(steps.some(({ kernel, macs }) => kernel === "gemm" && macs > 0));
  program.free();
});

test("mistakes are said in words", async () => {
  const program = await load(await bytes("image.zpt"));
  const [input] = arraysOf(await bytes("image.safetensors"), "input");
  const [{ name }] = program.inputs;
  assert.throws(() => program.run({ nothing: input }), (e) => e instanceof TypeError && e.message.includes(name));
  assert.throws(() => program.run([]), /0 inputs were given/);
  assert.throws(() => program.run([new Int8Array(4)]), (e) => e instanceof TypeError && e.message.includes("Float32Array"));
  assert.throws(() => program.run([{ data: input.data, shape: [1, 2] }]), /do not make the shape \[1,2\]/);
  const small = { data: new Float32Array(1), shape: [1, 1, 1, 1] };
  assert.throws(() => program.run([small]), (e) => e instanceof ZeropointError && e.code === "BAD_SHAPE");
  program.free();
  assert.throws(() => program.run([input]), /was freed/);
  await assert.rejects(load("model.zpt"), TypeError);
  await assert.rejects(load(new Uint8Array(100)), (e) => e instanceof ZeropointError && e.code === "BAD_FILE");
});

test("a thousand broken files are refused or run, and none stops the runtime", { timeout: 600_000 }, async () => {
  let seed = 1;
  const random = (n) => {
    seed = (Math.imul(seed, 1664525) + 1013904223) >>> 0;
    return Math.floor((seed / 2 ** 32) * n);
  };
  const files = await Promise.all(names.map(async (name) => [name, await bytes(name)]));
  const found = { run: 0, refused: 0 };
  for (let i = 0; i < 1000; ++i) {
    const [name, whole] = files[i % files.length];
    const file = whole.slice(0, random(10) === 0 ? random(whole.length) : whole.length);
    const header = Math.min(file.length, 8 + Number(new DataView(whole.buffer).getBigUint64(0, true)));
    for (let k = random(4) + 1; k > 0 && file.length > 0; --k) file[random(random(4) ? header : file.length)] = random(256);
    try {
      const program = await load(file);
      const inputs = arraysOf(await bytes(name.replace(".zpt", ".safetensors")), "input");
      try {
        program.run(inputs);
      } finally {
        program.free();
      }
      ++found.run;
    } catch (error) {
      assert.ok(error instanceof ZeropointError || error instanceof TypeError, `file ${i}: ${error.stack}`);
      assert.notEqual(error.code, "INTERNAL_ERROR", `file ${i} of ${name}: ${error.message}`);
      ++found.refused;
    }
  }
  assert.ok(found.run > 0 && found.refused > 0, JSON.stringify(found));
});
