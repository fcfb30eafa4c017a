// @ts-check
// Reads the data that lies packed in the page: base 64, gzip, numbers by byte columns (page_data.h).

/**
 * @param {string} text
 * @returns {Uint8Array}
 */
export function bytesOfBase64(text) {
  const fast = /** @type {any} */ (Uint8Array).fromBase64; // newer browsers; 3 times as fast
  if (fast) return fast.call(Uint8Array, text);
  const binary = atob(text);
  const bytes = new Uint8Array(binary.length);
  for (let i = 0; i < bytes.length; i++) bytes[i] = binary.charCodeAt(i);
  return bytes;
}

/**
 * @param {Uint8Array} bytes
 * @param {number} size of the result
 * @returns {Promise<Uint8Array>}
 */
export async function gunzip(bytes, size) {
  const out = new Uint8Array(size);
  const reader = new Blob([/** @type {BlobPart} */ (bytes)]).stream().pipeThrough(new DecompressionStream("gzip")).getReader();
  let at = 0;
  for (;;) {
    const { done, value } = await reader.read();
    if (done) break;
    if (at + value.length > size) throw new Error("a part holds more than it says");
    out.set(value, at);
    at += value.length;
  }
  if (at !== size) throw new Error(`a part has ${at} of ${size} bytes`);
  return out;
}

/**
 * The inverse of ByteColumns.
 * @param {Uint8Array} columns
 * @param {number} width
 * @returns {ArrayBuffer}
 */
export function wordsOfColumns(columns, width) {
  if (width === 1) return /** @type {ArrayBuffer} */ (columns.buffer);
  const count = columns.length / width;
  const out = new Uint8Array(columns.length);
  for (let byte = 0; byte < width; byte++) {
    for (let i = 0, to = byte, from = byte * count; i < count; i++, to += width, from++) out[to] = columns[from];
  }
  return out.buffer;
}

/**
 * @param {string} id
 * @param {boolean} [keep] whether it stays packed in the page as well
 */
async function unpack(id, keep = false) {
  const element = document.getElementById(id);
  if (!element) return null;
  const bytes = await gunzip(bytesOfBase64(element.textContent || ""), Number(element.dataset.size));
  if (!keep) element.textContent = "";
  return { type: element.dataset.type, bytes };
}

/** @type {Map<string, Promise<any>>} */
const columns = new Map();

/**
 * A column of numbers; null when the page has none of this name. It is unpacked once.
 * @param {string} id
 * @returns {Promise<any>}
 */
export function column(id) {
  let found = columns.get(id);
  if (!found) {
    found = unpack(id).then((part) => {
      if (!part) return null;
      if (part.type === "u8") return part.bytes;
      const words = wordsOfColumns(part.bytes, 4);
      return part.type === "f32" ? new Float32Array(words) : new Uint32Array(words);
    });
    columns.set(id, found);
  }
  return found;
}

/**
 * JSON; null when the page has none of this name.
 * @param {string} id
 * @returns {Promise<any>}
 */
export function json(id) {
  let found = columns.get(id);
  if (!found) {
    found = unpack(id).then((part) => (part ? JSON.parse(new TextDecoder().decode(part.bytes)) : null));
    columns.set(id, found);
  }
  return found;
}

/** @type {Map<string, Promise<string[]>>} */
const blocks = new Map();
const blocksKept = 12;

/**
 * The lines of a block of values. The last few stay unpacked.
 * @param {string} id
 * @returns {Promise<string[]>}
 */
export function lines(id) {
  let found = blocks.get(id);
  if (!found) {
    found = unpack(id, true).then((part) => (part ? new TextDecoder().decode(part.bytes).split("\n") : []));
    if (blocks.size >= blocksKept) blocks.delete(/** @type {string} */ (blocks.keys().next().value));
    blocks.set(id, found);
  }
  return found;
}
