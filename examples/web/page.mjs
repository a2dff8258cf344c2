import { load } from "./package/zeropoint.mjs";

const $ = (id) => document.getElementById(id);
const say = (error) => { $("error").textContent = error ? String(error.message ?? error) : ""; };
// Milliseconds of a call: of as many as the coarse clocks of browsers need, after a time in which code is compiled once more.
function time(run) {
  const warm = performance.now() + 200;
  do run(); while (performance.now() < warm);
  for (let count = 1; ; count *= 2) {
    const begin = performance.now();
    for (let i = 0; i < count; ++i) run();
    const took = performance.now() - begin;
    if (took > 20 || count === 1024) return took / count;
  }
}
const duration = (ms) => (ms < 1 ? `${(1000 * ms).toFixed(0)} µs` : `${ms.toFixed(2)} ms`);

// Rows of [name, share of the longest bar, text].
function draw(place, rows, best = -1) {
  place.replaceChildren(...rows.flatMap(([name, share, text], i) => {
    const label = Object.assign(document.createElement("span"), { textContent: name, className: i === best ? "best" : "" });
    const bar = Object.assign(document.createElement("div"), { className: "bar" });
    bar.style.width = `${100 * share}%`;
    return [label, bar, Object.assign(document.createElement("span"), { textContent: text })];
  }));
}

const canvas = $("pixels");
const pen = canvas.getContext("2d", { willReadFrequently: true });
const read = () => Float32Array.from(pen.getImageData(0, 0, 8, 8).data.filter((_, i) => i % 4 === 0), (x) => x / 255);
function show(pixels) {
  const image = pen.createImageData(8, 8);
  pixels.forEach((x, i) => image.data.set([255 * x, 255 * x, 255 * x, 255], 4 * i));
  pen.putImageData(image, 0, 0);
}

async function digits() {
  const [program, samples] = await Promise.all([load(fetch("digits.zpt")), fetch("samples.json").then((r) => r.json())]);
  const answer = () => {
    const inputs = [{ data: read(), shape: [1, 1, 8, 8] }];
    const [{ data }] = program.run(inputs);
    const exp = Array.from(data, (x) => Math.exp(x - Math.max(...data)));
    const sum = exp.reduce((a, b) => a + b);
    const best = exp.indexOf(Math.max(...exp));
    draw($("digits"), exp.map((x, i) => [String(i), x / sum, `${((100 * x) / sum).toFixed(0)}%`]), best);
    $("answer").textContent = `This is a ${best}, found in ${duration(time(() => program.run(inputs)))} (${program.isa}).`;
  };
  let next = 0;
  const another = () => {
    show(samples[next++ % samples.length].pixels);
    answer();
  };
  const paint = (event) => {
    if (!(event.buttons & 1)) return;
    const box = canvas.getBoundingClientRect();
    const x = Math.floor((8 * (event.clientX - box.left)) / box.width), y = Math.floor((8 * (event.clientY - box.top)) / box.height);
    pen.fillStyle = "#fff";
    pen.fillRect(x, y, 1, 1);
    answer();
  };
  canvas.addEventListener("pointerdown", paint);
  canvas.addEventListener("pointermove", paint);
  $("another").addEventListener("click", another);
  $("clear").addEventListener("click", () => {
    show(new Array(64).fill(0));
    answer();
  });
  another();
}

const ARRAYS = { uint8: Uint8Array, int8: Int8Array, int16: Int16Array, int32: Int32Array, int64: BigInt64Array,
  float32: Float32Array, float16: Uint16Array, bool: Uint8Array };

$("file").addEventListener("change", async ({ target }) => {
  say();
  try {
    const program = await load(target.files[0]);
    const inputs = program.inputs.map(({ type, shape }) => {
      const sizes = shape.map((n) => (typeof n === "number" ? n : 1));
      return { data: new ARRAYS[type](sizes.reduce((a, b) => a * b, 1)), shape: sizes };
    });
    const took = time(() => program.run(inputs));
    const steps = program.profile(inputs).sort((a, b) => b.seconds - a.seconds).slice(0, 20);
    $("facts").textContent = `${program.inputs.map(({ name, type, shape }) => `${name}: ${type} [${shape.map((n) => n ?? "?")}]`)
      .join(", ")}; a run takes ${duration(took)}. The longest steps:`;
    draw($("profile"), steps.map(({ name, op, seconds }) => [`${op} ${name}`, seconds / steps[0].seconds, duration(1000 * seconds)]));
    program.free();
  } catch (error) {
    say(error);
  }
});

digits().catch(say);
