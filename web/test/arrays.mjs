// Arrays of the safetensors files beside the kept programs, and the comparison of what a program gives with them.

const ARRAYS = {
  BOOL: Uint8Array, U8: Uint8Array, I8: Int8Array, I16: Int16Array, I32: Int32Array, I64: BigInt64Array, F16: Uint16Array,
  F32: Float32Array,
};

/** The arrays whose names begin with `prefix`, in the order of the names. */
export function arraysOf(file, prefix) {
  const view = new DataView(file.buffer, file.byteOffset, file.byteLength);
  const begin = 8 + Number(view.getBigUint64(0, true));
  const header = JSON.parse(new TextDecoder().decode(file.subarray(8, begin)));
  return Object.keys(header).filter((name) => name.startsWith(prefix)).sort().map((name) => {
    const { dtype, shape, data_offsets: [from, to] } = header[name];
    return { data: new ARRAYS[dtype](file.slice(begin + from, begin + to).buffer), shape };
  });
}

const bytesOf = ({ data }) => new Uint8Array(data.buffer, data.byteOffset, data.byteLength);

/** What differs between two lists of arrays; "" if nothing does. */
export function difference(got, want) {
  if (got.length !== want.length) return `${got.length} results instead of ${want.length}`;
  for (let i = 0; i < got.length; ++i) {
    if (String(got[i].shape) !== String(want[i].shape)) return `result ${i} has the shape [${got[i].shape}], not [${want[i].shape}]`;
    const a = bytesOf(got[i]), b = bytesOf(want[i]);
    const at = a.findIndex((byte, k) => byte !== b[k]);
    if (a.length !== b.length || at >= 0) return `result ${i} has other bytes from ${at} on`;
  }
  return "";
}
