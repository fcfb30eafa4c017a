// @ts-check
// Text of a dump becomes text of the page here, and never markup.

/** Marks that reorder the text behind them, and control characters. */
// oxlint-disable-next-line no-control-regex
const unsafe = /[\u0000-\u001f\u007f-\u009f\u200e\u200f\u202a-\u202e\u2066-\u2069\ufeff]/g;

/**
 * A text of a dump as it is shown: on one line, in reading order, at most `most` characters. What is left out is a part
 * of the middle, from word to word where there are words.
 * @param {unknown} text
 * @param {number} [most]
 */
export function clean(text, most = 400) {
  const whole = String(text ?? "");
  let part = whole;
  if (whole.length > most) {
    const word = 30, front = whole.slice(0, most >> 1), back = whole.slice(-(most >> 1));
    const begin = front.lastIndexOf(" "), end = back.indexOf(" ") + 1;
    const first = front.length - begin <= word && begin > 0 ? front.slice(0, begin) : front, last = end > 0 && end <= word ? back.slice(end) : back;
    part = first + " … " + (whole.length - first.length - last.length) + " characters … " + last;
  }
  return part.replace(unsafe, (c) => (c === "\n" || c === "\t" || c === "\r" ? " " : "\ufffd"));
}

/**
 * A name of a dump as a part of a sentence: between marks that keep its reading order, and by which the language of
 * the page (language.js) knows that it is no word. `clean` leaves no such mark in a name.
 * @param {unknown} name
 * @param {number} [most]
 */
export function named(name, most = 400) {
  const shown = clean(name, most);
  return shown && `\u2068${shown}\u2069`;
}

/**
 * Lets a name on one's own line break after a dot, where it is too long: "Functional." and "group_norm.2.", never inside
 * of a word. Sentences have blanks, and stay as they are.
 * @param {Element|null} holder
 */
export function breakAtDots(holder) {
  const name = holder?.textContent || "";
  if (!holder || !name.includes(".") || /[ \n]/.test(name)) return;
  holder.setAttribute("translate", "no");
  holder.replaceChildren(...name.split(/(?<=\.)/).flatMap((word) => [word, document.createElement("wbr")]).slice(0, -1));
}

/** Characters that are as wide as two. */
const wide = /[\u1100-\u115f\u2e80-\ua4cf\uac00-\ud7a3\uf900-\ufaff\ufe30-\ufe6f\uff00-\uff60\uffe0-\uffe6]/;

/**
 * A name for a place that has room for `room` characters of equal width: cut in the middle, for names are told apart by
 * their ends.
 * @param {string} name
 * @param {number} room
 */
export function cutMiddle(name, room) {
  if (name.length * 2 <= room) return name;
  const sizes = Array.from(name, (c) => (wide.test(c) ? 2 : 1)), all = sizes.reduce((/** @type {number} */ a, b) => a + b, 0);
  if (all <= room) return name;
  const letters = Array.from(name), behind = Math.floor((room - 1) * 0.6), before = room - 1 - behind;
  let front = "", back = "", used = 0;
  for (let i = 0; i < letters.length && used + (sizes[i] ?? 1) <= before; i++) { front += letters[i]; used += sizes[i] ?? 1; }
  used = 0;
  for (let i = letters.length - 1; i >= 0 && used + (sizes[i] ?? 1) <= behind; i--) { back = letters[i] + back; used += sizes[i] ?? 1; }
  return `${front}…${back}`;
}

/**
 * The path of a module for such a place: the words of its end as a whole, "…1.mlp" of "layers.1.mlp", since paths are
 * told apart by them and their numbers.
 * @param {string} path
 * @param {number} room
 */
export function cutPath(path, room) {
  const words = path.split(".");
  if (path.length <= room || words.length < 3) return cutMiddle(path, room);
  let kept = words[words.length - 1];
  let count = 1;
  while (count < words.length && words[words.length - 1 - count].length + 1 + kept.length < room) kept = `${words[words.length - ++count]}.${kept}`;
  return count > 1 ? "…" + kept : cutMiddle(path, room);
}

/**
 * The name of a call or of a weight for such a place: its long words give way, its numbers and its last words do not,
 * "Module.enc…er.layers.10.self…attn.Linear.forward.0".
 * @param {string} name
 * @param {number} room
 */
export function cutName(name, room) {
  const words = name.split("."), last = words.length - 3;
  if (name.length <= room || last < 1) return cutMiddle(name, room);
  let most = 24;
  const size = () => words.reduce((sum, word, i) => sum + 1 + (i < last ? Math.min(word.length, most) : word.length), -1);
  while (most >= 4 && size() > room) most--;
  return most < 4 ? cutMiddle(name, room) : words.map((word, i) => (i < last ? cutMiddle(word, most) : word)).join(".");
}

/**
 * Names that stand below each other: where two of them would be cut to the same text, each is cut elsewhere, so that the
 * place stays in which they are not the same.
 * @param {string[]} names
 * @param {number[]} rooms one for each name
 * @param {(name: string, room: number) => string} cut
 */
export function tellApart(names, rooms, cut) {
  const shown = names.map((name, i) => cut(name, rooms[i]));
  for (let again = 0; again < 3; again++) {
    /** @type {Map<string, number[]>} */ const alike = new Map();
    shown.forEach((text, i) => { if (text !== names[i]) alike.set(text, [...(alike.get(text) ?? []), i]); });
    for (const rows of alike.values()) {
      const first = names[rows[0]];
      let at = Infinity;
      for (const i of rows) {
        let same = 0;
        while (same < first.length && names[i][same] === first[same]) same++;
        if (names[i] !== first) at = Math.min(at, same);
      }
      if (at < Infinity) for (const i of rows) shown[i] = cutAround(names[i], at, rooms[i]);
    }
  }
  return shown;
}

/**
 * What stands at a place of a name, and its end.
 * @param {string} name
 * @param {number} at
 * @param {number} room
 */
function cutAround(name, at, room) {
  const end = Math.floor((room - 2) * 0.5), begin = Math.max(0, at - 4), size = room - 1 - end - (begin > 0 ? 1 : 0);
  if (begin + size >= name.length - end - 1) return "…" + name.slice(1 - room);
  return (begin > 0 ? "…" : "") + name.slice(begin, begin + size) + "…" + name.slice(-end);
}

/**
 * How many characters of the font of an element stand side by side in `pixels`.
 * @param {Element} element of a font in which all characters have one width
 * @param {number} pixels
 */
export function charactersIn(element, pixels) {
  const pen = /** @type {CanvasRenderingContext2D} */ (document.createElement("canvas").getContext("2d"));
  pen.font = getComputedStyle(element).font;
  return Math.max(3, Math.floor(pixels / (pen.measureText("0".repeat(100)).width / 100 || 7.2)));
}

/**
 * A name in a place of unknown width, in two parts of which only the first one shrinks.
 * @param {string} name
 * @param {number} [kept] characters of the end that stay
 */
export function ends(name, kept = 9) {
  const parts = name.length <= kept + 4 ? [name] : [el("span", {}, name.slice(0, -kept)), el("span", {}, name.slice(-kept))];
  return el("span", { class: parts.length > 1 ? "word ends" : "word", translate: "no" }, ...parts);
}

/**
 * An element. A string becomes a text node; null is left out.
 * @param {string} tag
 * @param {Record<string, unknown>} [attributes]
 * @param {...(Node|string|null)} children
 * @returns {HTMLElement}
 */
export function el(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) node.addEventListener(name.slice(2), /** @type {EventListener} */ (value));
    else node.setAttribute(name, value === true ? "" : String(value));
  }
  for (const child of children) if (child !== null) node.append(child);
  return node;
}

/**
 * @param {string} id
 * @returns {HTMLElement}
 */
export function byId(id) {
  const found = document.getElementById(id);
  if (!found) throw new Error("the page has no part called " + id);
  return found;
}

/**
 * 1,234,567
 * @param {number} value
 */
export const grouped = (value) => value.toLocaleString("en");

/**
 * A size for people: 0.31, 4.2, 410, 4.1e+5; "" when there is none.
 * @param {number} value
 */
export function short(value) {
  if (Number.isNaN(value)) return "";
  if (!Number.isFinite(value)) return value > 0 ? "∞" : "-∞";
  const size = Math.abs(value);
  if (size === 0) return "0";
  if (size >= 1e6 || size < 0.01) return value.toExponential(1);
  return size < 10 ? value.toFixed(2) : grouped(Math.round(value));
}
