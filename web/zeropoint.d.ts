/** The values of a tensor. bool and float16 come as the integers that hold them (Uint8Array, Uint16Array). */
export type Values =
  | Uint8Array
  | Uint8ClampedArray
  | Int8Array
  | Int16Array
  | Int32Array
  | BigInt64Array
  | Float32Array
  | Uint16Array;

export type Type = "uint8" | "int8" | "int16" | "int32" | "int64" | "float32" | "float16" | "bool";

/** What an input takes. A size of its shape is a number, or free: the name that equal sizes share, or null. */
export interface Input {
  readonly name: string;
  readonly type: Type;
  readonly shape: readonly (number | string | null)[];
}

/** Values with their shape, which may be left out where at most one size is free. */
export interface GivenTensor {
  data: Values;
  shape?: readonly number[];
  type?: Type;
}

/** A result: contiguous, in row-major order, and yours to keep. */
export interface Tensor {
  data: Values;
  shape: number[];
  type: Type;
}

export interface Step {
  op: string;
  name: string;
  seconds: number;
  macs: number;
  kernel: string;
}

export type Given = Record<string, Values | GivenTensor> | readonly (Values | GivenTensor)[];

export interface Program {
  readonly inputs: readonly Input[];
  readonly outputCount: number;
  /** How the outputs make up what the model returned; null if it is one tensor. */
  readonly result: unknown;
  /** The instruction set of the kernels. */
  readonly isa: string;
  run(inputs: Given): Tensor[];
  profile(inputs: Given): Step[];
  reset(): void;
  free(): void;
}

export type ErrorCode =
  | "INVALID_ARGUMENT"
  | "BAD_SHAPE"
  | "BAD_FILE"
  | "IO_ERROR"
  | "OUT_OF_MEMORY"
  | "BUSY"
  | "BUFFER_TOO_SMALL"
  | "INTERNAL_ERROR";

export declare class ZeropointError extends Error {
  readonly code: ErrorCode;
  constructor(message: string, code: ErrorCode);
}

export type ProgramFile = Uint8Array | ArrayBuffer | Blob | Response;

/** Reads a program from its bytes. `wasm` says where core.wasm is, or has its bytes; it lies beside core.mjs otherwise. */
export declare function load(
  file: ProgramFile | Promise<ProgramFile>,
  options?: { wasm?: string | URL | Uint8Array | ArrayBuffer },
): Promise<Program>;
