// @ts-check
// Which calls are shown, and in which order. A filter is a text of words; a call passes when all words let it pass.
import { directions } from "./calls.js";

/** @typedef {import("./calls.js").Calls} Calls */
/** @typedef {{key: string, down: boolean}} Order */

/** A dump alone has other classes, and one side only. */
export const dumpFilterHelp = "words: linear  linear.12  class:non-finite  op:gelu  module:layers.1  dir:backward  size>100  -word";
export const filterHelp = "words: linear  linear.12  class:introduced,unknown  op:gelu  module:layers.1  dir:backward  side:target  region:1  size>100  -word";

/** What may stand before a colon. */
export const filterKeys = ["class", "op", "module", "dir", "side", "region"];

/**
 * For each number of a text whether it passes.
 * @param {string[]} texts
 * @param {(text: string) => boolean} test
 */
function passing(texts, test) {
  const ok = new Uint8Array(texts.length);
  for (let k = 0; k < texts.length; k++) ok[k] = test(texts[k]) ? 1 : 0;
  return ok;
}

/**
 * Modules whose path has the text, with all that is inside them.
 * @param {Calls} calls
 * @param {string} word
 */
function modulesWith(calls, word) {
  const ok = new Uint8Array(calls.parents.length);
  for (let node = 1; node < ok.length; node++) {
    const path = calls.path(node).toLowerCase();
    ok[node] = ok[calls.parents[node]] || path === word || path.includes(word) ? 1 : 0;
  }
  return ok;
}

/**
 * "linear.12" and "linear.12.backward", "fc.Linear.forward.0": the operation's name, a number and a direction.
 * @param {Calls} calls
 * @param {string} word
 * @returns {((i: number) => number)|null}
 */
function numbered(calls, word) {
  const parts = /^(.*?)(?:\.(forward|backward|parameters_grad))?\.(\d+)(?:\.(f\w*|b\w*|p\w*))?$/.exec(word);
  if (!parts) return null;
  const ok = passing(calls.texts.names, (name) => name.toLowerCase().endsWith(parts[1]));
  const number = Number(parts[3]), direction = parts[2] || parts[4] || "";
  const directed = passing(directions, (name) => name.startsWith(direction));
  const { nameOf, form } = calls;
  return (i) => ok[nameOf[i]] & directed[form[i] >> 2] & (calls.number[i] === number ? 1 : 0);
}

/**
 * @param {Calls} calls
 * @param {string} word
 * @returns {(i: number) => number} 1: the call passes
 */
function testOf(calls, word) {
  const { kind, judged, size, form, sides, nameOf, module } = calls;
  const colon = word.indexOf(":");
  const key = colon > 0 ? word.slice(0, colon) : "", value = word.slice(colon + 1);
  if (key === "class") {
    const wanted = value.split(",").filter(Boolean);
    const ok = passing(calls.classes.map((c) => c.name.replaceAll(" ", "")), (name) => wanted.some((w) => name.startsWith(w)));
    return (i) => ok[kind[i]] | ok[judged[i]];
  }
  if (key === "dir") {
    const ok = passing(directions, (name) => name !== "" && name.startsWith(value));
    return (i) => ok[form[i] >> 2];
  }
  if (key === "side") {
    const ok = passing(["both", "target", "golden", "one"], (name) => name.startsWith(value));
    return (i) => ok[sides[i]];
  }
  if (key === "region") {
    const region = calls.region, wanted = new Set(value.split(",").map(Number));
    return (i) => (region && region[i] && wanted.has(region[i]) ? 1 : 0);
  }
  if (key === "module") {
    const ok = modulesWith(calls, value);
    return (i) => ok[module[i]];
  }
  const limit = /^size([<>]=?)([\d.e+-]+)$/.exec(word);
  if (limit) {
    const x = Number(limit[2]);
    if (limit[1] === ">") return (i) => (size[i] > x ? 1 : 0);
    if (limit[1] === ">=") return (i) => (size[i] >= x ? 1 : 0);
    return limit[1] === "<" ? (i) => (size[i] < x ? 1 : 0) : (i) => (size[i] <= x ? 1 : 0);
  }
  const text = key === "op" ? value : word;
  const ok = passing(calls.texts.names, (name) => name.toLowerCase().includes(text));
  if (key === "op") return (i) => ok[nameOf[i]];
  const exact = numbered(calls, text);
  const inside = modulesWith(calls, text);
  return exact ? (i) => ok[nameOf[i]] | inside[module[i]] | exact(i) : (i) => ok[nameOf[i]] | inside[module[i]];
}

/**
 * The calls that pass, in execution order.
 * @param {Calls} calls
 * @param {string} text
 * @returns {Uint32Array}
 */
export function filterCalls(calls, text) {
  const rows = new Uint32Array(calls.count);
  const words = text.toLowerCase().split(/\s+/).filter((word) => word && word !== "-");
  const tests = words.map((word) => {
    const not = word.startsWith("-");
    return { not: not ? 1 : 0, test: testOf(calls, not ? word.slice(1) : word) };
  });
  let at = 0;
  for (let i = 0; i < calls.count; i++) {
    let pass = 1;
    for (let k = 0; k < tests.length && pass; k++) pass = tests[k].test(i) ^ tests[k].not;
    if (pass) rows[at++] = i;
  }
  return rows.subarray(0, at);
}

/**
 * The place of each text when they are sorted.
 * @param {string[]} texts
 */
function ranksOf(texts) {
  const order = texts.map((_, k) => k).sort((a, b) => (texts[a] < texts[b] ? -1 : texts[a] > texts[b] ? 1 : 0));
  const ranks = new Uint32Array(texts.length);
  order.forEach((k, place) => (ranks[k] = place));
  return ranks;
}

/**
 * A number below 2^31 for each call, by which it is sorted.
 * @param {Calls} calls
 * @param {string} key
 * @returns {(i: number) => number}
 */
function keyOf(calls, key) {
  if (key === "size") {
    const bits = new Uint32Array(calls.size.buffer, calls.size.byteOffset, calls.size.length);
    return (i) => (calls.size[i] >= 0 ? bits[i] + 1 : 0); // the bits of positive floats sort as the floats; NaN: last
  }
  if (key === "class") return (i) => calls.classes[calls.kind[i]].rank;
  if (key === "name") {
    const ranks = ranksOf(calls.texts.names);
    const numbers = Math.floor(2 ** 31 / (ranks.length + 1));
    return (i) => ranks[calls.nameOf[i]] * numbers + Math.min(calls.number[i], numbers - 1);
  }
  const texts = key === "module" ? calls.texts.modules.map((/** @type {string} */ _, /** @type {number} */ k) => calls.path(k)) : calls.texts[key + "s"];
  const ranks = ranksOf(texts);
  const of = key === "module" ? calls.module : key === "dtype" ? calls.dtype : calls.shape;
  return (i) => ranks[of[i]];
}

/**
 * Sorted calls; equal ones stay in execution order. Key and place are packed into one double: 31 and 22 bits.
 * @param {Calls} calls
 * @param {Uint32Array} rows
 * @param {Order} order
 * @returns {Uint32Array}
 */
export function sortCalls(calls, rows, order) {
  if (order.key === "order") return order.down ? rows.slice().reverse() : rows;
  const key = keyOf(calls, order.key);
  const most = 2 ** 31 - 1, places = 2 ** 22;
  if (rows.length > places) {
    const sign = order.down ? -1 : 1;
    return Uint32Array.from(rows).sort((a, b) => sign * (key(a) - key(b)) || a - b);
  }
  const packed = new Float64Array(rows.length);
  for (let p = 0; p < rows.length; p++) packed[p] = (order.down ? most - key(rows[p]) : key(rows[p])) * places + p;
  packed.sort();
  const out = new Uint32Array(rows.length);
  for (let p = 0; p < rows.length; p++) out[p] = rows[packed[p] % places];
  return out;
}
