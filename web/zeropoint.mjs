// Runs zeropoint's program files (.zpt) in browsers and Node. See README.md; the types are in zeropoint.d.ts.
import createCore from "./core.mjs";

// zp_type -> the array that holds such values. float16 and bool have no array of their own before ES2025.
const ARRAYS = [Uint8Array, Int8Array, Int16Array, Int32Array, BigInt64Array, Float32Array, Uint16Array, Uint8Array];
const TYPES = ["uint8", "int8", "int16", "int32", "int64", "float32", "float16", "bool"];
const OF_TYPE = Object.fromEntries(TYPES.map((name, type) => [name, type]));

// The structs of zeropoint.h with 4 bytes a pointer. A struct of one ABI version never changes.
const MOST_AXES = 8;
const TENSOR = { size: 144, data: 0, bytes: 4, type: 8, rank: 12, sizes: 16, strides: 80 };
const INPUT = { size: 176, name: 0, type: 4, rank: 8, sizes: 16, axes: 144 };
const STEP = { size: 32, op: 0, name: 4, seconds: 8, macs: 16, kernel: 24 };
const STATUS = ["", "INVALID_ARGUMENT", "BAD_SHAPE", "BAD_FILE", "IO_ERROR", "OUT_OF_MEMORY", "BUSY", "BUFFER_TOO_SMALL",
  "INTERNAL_ERROR"];

/** What the runtime says of a call that failed. */
export class ZeropointError extends Error {
  constructor(message, code) {
    super(message);
    this.name = "ZeropointError";
    this.code = code;
  }
}

// One instance of the core for each program: memory of WebAssembly grows and never shrinks, so that of a program that is
// freed goes with its instance. After a trap (stack, memory) nothing in the instance can be trusted: it is not used again.
class Core {
  constructor(module) {
    this.module = module;
    this.broken = null;
  }

  call(name, ...args) {
    if (this.broken) throw new ZeropointError(`the runtime stopped earlier: ${this.broken}`, "INTERNAL_ERROR");
    try {
      return this.module[`_${name}`](...args);
    } catch (error) {
      this.broken = String(error?.message ?? error);
      const memory = error instanceof RangeError || /memory|OOM/i.test(this.broken);
      throw new ZeropointError(`${name} stopped: ${this.broken}`, memory ? "OUT_OF_MEMORY" : "INTERNAL_ERROR");
    }
  }

  check(name, ...args) {
    const status = this.call(name, ...args);
    if (status !== 0)
      throw new ZeropointError(this.module.UTF8ToString(this.call("zp_last_error")), STATUS[status] ?? "INTERNAL_ERROR");
  }

  // Memory that is given back when `body` ends. Views are made after each call: memory that grows is another buffer.
  within(body) {
    const taken = [];
    const take = (bytes) => {
      const at = this.call("malloc", Math.max(bytes, 8));
      if (at === 0) throw new ZeropointError(`no memory for ${bytes} bytes`, "OUT_OF_MEMORY");
      taken.push(at);
      new Uint8Array(this.buffer, at, bytes).fill(0);
      return at;
    };
    try {
      return body(take);
    } finally {
      if (!this.broken) for (const at of taken) this.call("free", at);
    }
  }

  get buffer() {
    return this.module.HEAPU8.buffer;
  }
  get view() {
    return new DataView(this.buffer);
  }
  text(pointer) {
    return this.module.UTF8ToString(pointer);
  }
  u32(at) {
    return this.view.getUint32(at, true);
  }
  sizes(at, rank) {
    return Array.from({ length: rank }, (_, i) => Number(this.view.getBigInt64(at + 8 * i, true)));
  }
}

const product = (sizes) => sizes.reduce((a, b) => a * b, 1);

/** A program: what `zeropoint.compile` made and `save` wrote. */
class Program {
  #core;
  #program;
  #session = 0;

  constructor(core, program) {
    this.#core = core;
    this.#program = program;
    core.within((take) => {
      const at = take(4);
      core.check("zp_session_create", program, at);
      this.#session = core.u32(at);
    });
    this.inputs = Object.freeze(this.#readInputs());
    const result = core.text(core.call("zp_program_result", program));
    this.result = result ? JSON.parse(result) : null;
    this.outputCount = core.call("zp_program_output_count", program);
    this.isa = core.text(core.call("zp_isa"));
  }

  #readInputs() {
    const core = this.#core;
    return core.within((take) => {
      const at = take(INPUT.size);
      const inputs = [];
      const count = core.call("zp_program_input_count", this.#program);
      for (let i = 0; i < count; ++i) {
        core.check("zp_program_input", this.#program, i, at);
        const rank = core.u32(at + INPUT.rank);
        const axes = Array.from({ length: rank }, (_, axis) => core.u32(at + INPUT.axes + 4 * axis));
        inputs.push(Object.freeze({
          name: core.text(core.u32(at + INPUT.name)),
          type: TYPES[core.u32(at + INPUT.type)],
          // A free size is the name that equal sizes share, or null.
          shape: core.sizes(at + INPUT.sizes, rank).map((size, axis) =>
            size >= 0 ? size : axes[axis] === 0 ? null : core.text(axes[axis]) || null),
        }));
      }
      return inputs;
    });
  }

  #open() {
    if (this.#session === 0) throw new ZeropointError("this program was freed", "INVALID_ARGUMENT");
  }

  // [{data, shape, type}] in the order of the inputs.
  #arrange(given) {
    const rows = Array.isArray(given) ? given : this.inputs.map(({ name }) => given[name]);
    const unknown = Array.isArray(given) ? [] : Object.keys(given).filter((k) => !this.inputs.some((i) => i.name === k));
    const names = this.inputs.map((i) => i.name).join(", ");
    if (unknown.length) throw new TypeError(`no input is called ${unknown.join(", ")}: the program takes ${names}`);
    if (rows.length !== this.inputs.length)
      throw new TypeError(`${rows.length} inputs were given: the program takes ${this.inputs.length} (${names})`);
    return rows.map((row, i) => {
      const input = this.inputs[i];
      if (row === undefined) throw new TypeError(`input ${input.name} is missing`);
      const data = ArrayBuffer.isView(row) ? row : row.data;
      const type = row.type ?? input.type;
      const array = ARRAYS[OF_TYPE[type] ?? -1];
      if (!array || !(data instanceof array || (array === Uint8Array && data instanceof Uint8ClampedArray)))
        throw new TypeError(`input ${input.name} takes ${array ? array.name : "a typed array"} (${type}), not ${
          data?.constructor?.name ?? typeof data}`);
      const shape = row.shape ?? this.#shapeOf(input, data.length);
      if (shape.length > MOST_AXES) throw new TypeError(`input ${input.name} has ${shape.length} axes: at most ${MOST_AXES}`);
      if (!shape.every((n) => Number.isSafeInteger(n) && n >= 0) || product(shape) !== data.length)
        throw new TypeError(`input ${input.name}: ${data.length} values do not make the shape [${shape}]`);
      return { data, shape, type };
    });
  }

  // The shape of values that came without one: at most one size may be free.
  #shapeOf(input, length) {
    const free = input.shape.filter((n) => typeof n !== "number").length;
    const fixed = product(input.shape.filter((n) => typeof n === "number"));
    if (free > 1) throw new TypeError(`input ${input.name} has free sizes: give {data, shape}`);
    return input.shape.map((n) => (typeof n === "number" ? n : fixed ? length / fixed : 0));
  }

  #writeInputs(take, rows) {
    const core = this.#core;
    const at = take(TENSOR.size * rows.length);
    rows.forEach(({ data, shape, type }, i) => {
      const bytes = new Uint8Array(data.buffer, data.byteOffset, data.byteLength);
      const values = take(bytes.length);
      new Uint8Array(core.buffer).set(bytes, values);
      const view = core.view;
      const tensor = at + TENSOR.size * i;
      view.setUint32(tensor + TENSOR.data, values, true);
      view.setUint32(tensor + TENSOR.bytes, bytes.length, true);
      view.setInt32(tensor + TENSOR.type, OF_TYPE[type], true);
      view.setInt32(tensor + TENSOR.rank, shape.length, true);
      shape.forEach((n, axis) => view.setBigInt64(tensor + TENSOR.sizes + 8 * axis, BigInt(n), true));
    });
    return at;
  }

  // A copy that is contiguous and does not change with the next run.
  #readOutput(at) {
    const core = this.#core;
    const rank = core.u32(at + TENSOR.rank);
    const type = core.u32(at + TENSOR.type);
    const shape = core.sizes(at + TENSOR.sizes, rank);
    const strides = core.sizes(at + TENSOR.strides, rank);
    const count = product(shape);
    const from = new ARRAYS[type](core.buffer, core.u32(at + TENSOR.data), count === 0 ? 0 : core.u32(at + TENSOR.bytes) /
      ARRAYS[type].BYTES_PER_ELEMENT);
    const contiguous = strides.every((stride, axis) => shape[axis] < 2 || stride === product(shape.slice(axis + 1)));
    if (contiguous || count === 0) return { data: from.slice(0, count), shape, type: TYPES[type] };
    const data = new ARRAYS[type](count);
    const index = new Array(rank).fill(0);
    let place = 0;
    for (let i = 0; i < count; ++i) {
      data[i] = from[place];
      for (let axis = rank - 1; axis >= 0; --axis) {
        place += strides[axis];
        if (++index[axis] < shape[axis]) break;
        place -= strides[axis] * shape[axis];
        index[axis] = 0;
      }
    }
    return { data, shape, type: TYPES[type] };
  }

  /** Runs once. Takes {name: array} or [array]; an array is a typed array or {data, shape}. Gives [{data, shape, type}]. */
  run(inputs) {
    this.#open();
    const rows = this.#arrange(inputs);
    return this.#core.within((take) => {
      const given = this.#writeInputs(take, rows);
      const outputs = take(TENSOR.size * this.outputCount);
      this.#core.check("zp_session_run", this.#session, given, rows.length, outputs, this.outputCount);
      return Array.from({ length: this.outputCount }, (_, i) => this.#readOutput(outputs + TENSOR.size * i));
    });
  }

  /** Runs once with a new state and times each step: [{op, name, seconds, macs, kernel}]. */
  profile(inputs) {
    this.#open();
    const rows = this.#arrange(inputs);
    const core = this.#core;
    return core.within((take) => {
      const given = this.#writeInputs(take, rows);
      const count = take(4);
      const measure = (steps) => core.check("zp_session_profile", this.#session, given, rows.length, steps, count);
      measure(0);
      const steps = take(STEP.size * core.u32(count));
      measure(steps);
      return Array.from({ length: core.u32(count) }, (_, i) => {
        const at = steps + STEP.size * i;
        return {
          op: core.text(core.u32(at + STEP.op)),
          name: core.text(core.u32(at + STEP.name)),
          seconds: core.view.getFloat64(at + STEP.seconds, true),
          macs: core.view.getFloat64(at + STEP.macs, true),
          kernel: core.text(core.u32(at + STEP.kernel)),
        };
      });
    });
  }

  /** Gives the state (a decoder's cache, say) its first values again. */
  reset() {
    this.#open();
    this.#core.check("zp_session_reset", this.#session);
  }

  /** Gives the memory back. The program cannot be used afterwards. */
  free() {
    if (this.#session !== 0 && !this.#core.broken) {
      this.#core.call("zp_session_free", this.#session);
      this.#core.call("zp_program_free", this.#program);
    }
    this.#session = this.#program = 0;
    this.#core = null;
  }
}

// The compiled core, once for all programs of a source.
const compiled = new Map();

async function compile(wasm) {
  if (wasm instanceof Uint8Array || wasm instanceof ArrayBuffer) return WebAssembly.compile(wasm);
  const url = new URL(wasm ?? "core.wasm", import.meta.url);
  if (!compiled.has(url.href)) {
    const read = async () => {
      if (url.protocol === "file:") return WebAssembly.compile(await (await import("node:fs/promises")).readFile(url));
      const response = await fetch(url);
      if (!response.ok) throw new ZeropointError(`${url}: ${response.status} ${response.statusText}`, "IO_ERROR");
      return WebAssembly.compile(await response.arrayBuffer());
    };
    compiled.set(url.href, read().catch((error) => {
      compiled.delete(url.href);
      throw error;
    }));
  }
  return compiled.get(url.href);
}

async function bytesOf(file) {
  const source = await file;
  if (source instanceof Uint8Array) return source;
  if (source instanceof ArrayBuffer) return new Uint8Array(source);
  if (typeof source?.arrayBuffer !== "function")
    throw new TypeError("load takes a Uint8Array, an ArrayBuffer, a Blob or a Response of fetch");
  if (source.ok === false) throw new ZeropointError(`${source.url}: ${source.status} ${source.statusText}`, "IO_ERROR");
  return new Uint8Array(await source.arrayBuffer());
}

/** Reads a program from its bytes: a Uint8Array, an ArrayBuffer, a Blob or a Response. `wasm`: core.wasm, or where it is. */
export async function load(file, { wasm } = {}) {
  const [bytes, module] = await Promise.all([bytesOf(file), compile(wasm)]);
  const core = new Core(await createCore({
    instantiateWasm(imports, receive) {
      WebAssembly.instantiate(module, imports).then((instance) => receive(instance, module));
      return {};
    },
  }));
  const program = core.within((take) => {
    const data = take(bytes.length);
    const at = take(4);
    new Uint8Array(core.buffer).set(bytes, data);
    core.check("zp_program_load_memory", data, bytes.length, 0, at);
    return core.u32(at);
  });
  return new Program(core, program);
}
