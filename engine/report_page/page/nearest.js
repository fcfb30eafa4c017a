// @ts-check
// A filter that lets no call pass: which of its words is to blame, and the nearest word that lets one pass.
import { directions } from "./calls.js";
import { filterCalls, filterKeys } from "./filter.js";

/** @typedef {import("./calls.js").Calls} Calls */

const mostCandidates = 20000;

/**
 * How many letters are to be changed, added, left out or exchanged with the next one.
 * @param {string} a
 * @param {string} b
 */
export function distance(a, b) {
  /** @type {number[]} */ let before = [], last = Array.from({ length: b.length + 1 }, (_, k) => k);
  for (let i = 1; i <= a.length; i++) {
    const now = [i];
    for (let k = 1; k <= b.length; k++) {
      const changed = /** @type {number} */ (last[k - 1]) + (a[i - 1] === b[k - 1] ? 0 : 1);
      now[k] = Math.min(changed, /** @type {number} */ (last[k]) + 1, /** @type {number} */ (now[k - 1]) + 1);
      if (i > 1 && k > 1 && a[i - 1] === b[k - 2] && a[i - 2] === b[k - 1]) now[k] = Math.min(/** @type {number} */ (now[k]), /** @type {number} */ (before[k - 2]) + 1);
    }
    before = last;
    last = now;
  }
  return /** @type {number} */ (last[b.length]);
}

/**
 * @param {string} word
 * @param {Iterable<string>} candidates
 * @returns {string} "": none is near
 */
function nearestOf(word, candidates) {
  let best = "", least = Math.max(2, Math.ceil(word.length * 0.6)) + 1, tried = 0;
  for (const candidate of candidates) {
    const text = candidate.toLowerCase();
    if (!text || text === word || Math.abs(text.length - word.length) >= least) continue;
    if (++tried > mostCandidates) break;
    const far = distance(word, text);
    if (far < least) [best, least] = [text, far];
  }
  return best;
}

/**
 * The words of a page, without number and direction: of operations, of modules.
 * @param {Calls} calls
 * @param {boolean} operations
 * @param {boolean} modules
 */
function vocabulary(calls, operations, modules) {
  const found = new Set();
  if (operations) for (const name of calls.texts.names) for (const part of name.split(".")) found.add(part);
  if (modules) for (let node = 1; node < calls.parents.length; node++) found.add(calls.texts.modules[node]).add(calls.path(node));
  return found;
}

/**
 * @param {Calls} calls
 * @param {string} word in lower case, without "-"
 * @returns {string} "": none is near
 */
function nearestTo(calls, word) {
  const colon = word.indexOf(":"), key = word.slice(0, Math.max(0, colon)), value = word.slice(colon + 1);
  if (key && !filterKeys.includes(key)) {
    const right = nearestOf(key, filterKeys);
    return right ? `${right}:${value}` : "";
  }
  /** @type {Record<string, () => Iterable<string>>} */
  const of = {
    class: () => calls.classes.map((c) => c.name.replaceAll(" ", "")),
    dir: () => directions,
    side: () => ["both", "target", "golden"],
    region: () => calls.head.regions?.map((/** @type {unknown} */ _, /** @type {number} */ k) => String(k + 1)) ?? [],
    op: () => vocabulary(calls, true, false),
    module: () => vocabulary(calls, false, true),
    "": () => [...vocabulary(calls, true, true), ...calls.classes.map((c) => c.name)],
  };
  // "linaer.12": the number stays; "linear.99": the nearest number that a call has.
  const numbered = key === "" || key === "op" ? /^(.+)\.(\d+)(\..*)?$/.exec(value) : null, prefix = key ? key + ":" : "";
  if (numbered) {
    const [, name = "", number = "0"] = numbered;
    const known = filterCalls(calls, prefix + name).length > 0 ? name : nearestOf(name, of[key]?.() ?? []);
    let best = NaN;
    for (const i of known ? filterCalls(calls, prefix + known) : []) {
      const has = /** @type {number} */ (calls.number[i]), far = Math.abs(has - Number(number));
      if (has !== 0xffffffff && !(far >= Math.abs(best - Number(number)))) best = has;
    }
    return known ? prefix + known + (Number.isNaN(best) ? "" : "." + best) : "";
  }
  if (key === "class" && value.includes(",")) return `class:${value.split(",").map((one) => (filterCalls(calls, "class:" + one).length ? one : nearestOf(one, of.class?.() ?? []))).filter(Boolean).join(",")}`;
  const right = nearestOf(value, of[key]?.() ?? []);
  return right ? prefix + right : "";
}

/**
 * Why no call passes a filter.
 * @param {Calls} calls
 * @param {string} text of the filter
 * @returns {{wrong: string[], instead: string}} wrong: the words that no call has, []: each of them has one, and no call
 * has all; instead: the whole filter with the nearest words, "": a word has none that is near
 */
export function explainNothing(calls, text) {
  const words = text.split(/\s+/).filter(Boolean);
  const wrong = words.filter((one) => !one.startsWith("-") && filterCalls(calls, one).length === 0);
  const near = new Map(wrong.map((one) => {
    const right = nearestTo(calls, one.toLowerCase());
    return [one, right && filterCalls(calls, right).length > 0 ? right : ""];
  }));
  const known = wrong.length > 0 && [...near.values()].every(Boolean);
  return { wrong, instead: known ? words.map((one) => near.get(one) ?? one).join(" ") : "" };
}
