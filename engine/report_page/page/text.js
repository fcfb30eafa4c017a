// @ts-check
// Text of a dump becomes text of the page here, and never markup.

/** Marks that reorder the text behind them, and control characters. */
// oxlint-disable-next-line no-control-regex
const unsafe = /[\u0000-\u001f\u007f-\u009f\u200e\u200f\u202a-\u202e\u2066-\u2069\ufeff]/g;

/**
 * A text of a dump as it is shown: on one line, in reading order, at most `most` characters.
 * @param {unknown} text
 * @param {number} [most]
 */
export function clean(text, most = 400) {
  const whole = String(text ?? "");
  const part = whole.length <= most ? whole : whole.slice(0, most >> 1) + " … " + (whole.length - most) + " characters … " + whole.slice(-(most >> 1));
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
