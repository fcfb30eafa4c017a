// @ts-check
// The language of the page. All texts are made in English; in Chinese, each text of the document is
// looked up in the catalogue that the page carries, as engine/base/catalogue.cc does it.

/** @typedef {{literals: string[], names: boolean[], numbers: boolean[], order: number[], chinese: string, size: number}} Pattern */

/** Where a text that no entry matches is divided, outside of brackets and quotes. */
const separators = [[" | ", " | "], ["; ", "；"], [". ", "。"], [": ", "："], [", but ", "，但"], [", ", "，"], [" and ", "和"]];
const anyHole = /\{[^{}]*\}/g;
const hole = /\{(\d*)[^{}]*\}/g;
const codeLine = /^\S+:\d\S* in /;
const namesInText = /\u2068[^\u2069]*\u2069/g, placesOfNames = /[\ue000-\uf8ff]/g, firstPlace = 0xe000, places = 0x1900;
const deepest = 12, longest = 4000, weak = 12;

/** @param {string} text */
function isBalanced(text) {
  let depth = 0;
  for (const c of text) {
    if ("([{".includes(c)) ++depth;
    if (")]}".includes(c) && --depth < 0) return false;
  }
  return depth === 0;
}

/**
 * The parts of a text between the separators that stand outside of brackets and quotes.
 * @param {string} text
 * @param {string} separator
 */
function divided(text, separator) {
  const parts = [];
  let depth = 0, quoted = false, from = 0;
  for (let i = 0; i < text.length; ++i) {
    const c = /** @type {string} */ (text[i]);
    if (c === '"') quoted = !quoted;
    if ("([{".includes(c)) ++depth;
    if (")]}".includes(c)) depth = Math.max(depth - 1, 0);
    if (depth || quoted || !text.startsWith(separator, i)) continue;
    parts.push(text.slice(from, i));
    from = i + separator.length;
  }
  parts.push(text.slice(from));
  return parts;
}

export class Catalogue {
  /** @param {Record<string, string>} entries English to Chinese */
  constructor(entries) {
    /** @type {Map<string, string>} */ this.sentences = new Map();
    /** @type {Pattern[]} */ this.patterns = [];
    /** @type {Map<string, string|null>} */ this.known = new Map();
    for (const [english, chinese] of Object.entries(entries)) {
      const literals = english.split(anyHole), holes = [...english.matchAll(anyHole)].map(([text]) => text);
      const names = holes.map((text) => text === "{name}"), numbers = holes.map((text) => text === "{:d}");
      let next = 0;
      const order = [...chinese.matchAll(hole)].map((m) => (m[1] ? Number(m[1]) : next++));
      if (literals.length === 1) this.sentences.set(english, chinese);
      else this.patterns.push({ literals, names, numbers, order, chinese, size: literals.join("").length });
    }
    this.patterns.sort((a, b) => b.size - a.size);
  }
  /**
   * What stands in the places of a pattern; null when the pattern does not fit.
   * @param {string} text
   * @param {string[]} literals
   * @returns {string[]|null}
   */
  match(text, literals) {
    const balanced = isBalanced(text), last = literals.length - 1;
    let steps = 0;
    /** @type {(i: number, at: number) => string[]|null} */
    const from = (i, at) => {
      const next = /** @type {string} */ (literals[i]);
      for (let end = i === last ? text.length - next.length : text.indexOf(next, at); end >= at; end = text.indexOf(next, end + 1)) {
        if (++steps > 400) return null;
        const inside = text.slice(at, end);
        if (!balanced || isBalanced(inside)) {
          const rest = i === last ? [] : from(i + 1, end + next.length);
          if (rest) return [inside, ...rest];
        }
        if (i === last || end >= text.length) return null;
      }
      return null;
    };
    const first = /** @type {string} */ (literals[0]);
    return text.startsWith(first) && text.endsWith(/** @type {string} */ (literals[last])) ? from(1, first.length) : null;
  }
  /**
   * @param {string} text
   * @param {number} depth
   * @param {boolean} names whether a word that stands alone is a name
   * @returns {string|null}
   */
  whole(text, depth, names) {
    if (names && !text.includes(" ")) return null;
    const sentence = this.sentences.get(text);
    if (sentence !== undefined) return sentence;
    const several = divided(text, "; ").length > 1;
    for (const pattern of this.patterns) {
      if (pattern.size > text.length || (several && !pattern.literals.some((l) => l.includes("; ")))) continue;
      const found = this.match(text, pattern.literals);
      if (!found || (pattern.size <= weak && pattern.literals[0] === "" && /(?<!,) (?!\()/.test(found[0] ?? ""))) continue;
      if (pattern.numbers.some((number, i) => number && !/^[\d.,]+$/.test(found[i] ?? ""))) continue;
      let n = 0;
      return pattern.chinese.replace(hole, () => {
        const i = /** @type {number} */ (pattern.order[n++]), part = found[i] ?? "";
        return this.at(part, depth + 1, pattern.names[i]) ?? part;
      });
    }
    return null;
  }
  /**
   * @param {string} text
   * @param {number} depth
   * @param {boolean} names
   * @returns {string|null}
   */
  parts(text, depth, names) {
    for (const [english, chinese] of separators) {
      const parts = divided(text, /** @type {string} */ (english));
      if (parts.length === 1) continue;
      const own = parts.map((part) => this.at(part, depth + 1, names));
      if (own.every((part) => part === null)) continue;
      return parts.map((part, i) => (i === 0 ? "" : own[i] !== null || own[i - 1] !== null ? chinese : english) + (own[i] ?? part)).join("");
    }
    // "text (aside)": the bracket that the last character closes.
    const aside = /^(?:(.*) )?\(((?:[^()]|\([^()]*\))*)\)$/.exec(text);
    if (!aside) return null;
    const [front, inner] = [this.at(aside[1] ?? "", depth + 1, names), this.at(aside[2] ?? "", depth + 1, names)];
    return front === null && inner === null ? null : `${front ?? aside[1] ?? ""}（${inner ?? aside[2]}）`;
  }
  /**
   * @param {string} text
   * @param {number} depth
   * @param {boolean} [names]
   * @returns {string|null}
   */
  at(text, depth, names = false) {
    const [, front = "", inside = "", back = ""] = /^([ \n;,:=≈≠✕?!↳⇄←→·]*)(.*?)([ \n;,:]*)$/s.exec(text) ?? [];
    if (depth > deepest || !/[a-z]/i.test(inside) || inside.length > longest || codeLine.test(inside)) return null;
    const stop = inside.endsWith(".") && !inside.endsWith("..");
    const short = stop ? inside.slice(0, -1) : inside;
    const full = this.whole(inside, depth, names), cut = full === null && stop ? this.whole(short, depth, names) : null;
    const chinese = full ?? (cut ?? this.parts(short, depth, names));
    if (chinese === null) return null;
    const mark = (/** @type {string} */ s) => separators.find(([english]) => english === s)?.[1] ?? s;
    return mark(front) + chinese + (stop && full === null ? "。" : "") + mark(back);
  }
  /**
   * The Chinese text; the English one where there is none. Names in it (text.js: named) stay as they are: while the
   * sentence is looked up, a character of the area for private use stands for each of them.
   * @param {string} text
   */
  translate(text) {
    /** @type {string[]} */ const names = [];
    const sentence = text.replace(namesInText, (name) => String.fromCharCode(firstPlace + (names.push(name) - 1) % places));
    let found = this.known.get(sentence);
    if (found === undefined) {
      if (this.known.size > 20000) this.known.clear();
      this.known.set(sentence, (found = this.at(sentence, 0)));
    }
    if (found === null || names.length > places) return text;
    return names.length ? found.replace(placesOfNames, (c) => names[c.charCodeAt(0) - firstPlace] ?? c) : found;
  }
}

/**
 * Texts of drawings, in the language of the page: elements are translated by themselves.
 * @type {{text: (text: string) => string}}
 */
export const drawn = { text: (text) => text };

const attributes = ["title", "placeholder", "aria-label"];

/** Keeps the document in the language that was chosen. What has translate="no" is text of a dump. */
export class Language {
  /** @param {Record<string, string>} entries */
  constructor(entries) {
    this.catalogue = new Catalogue(entries);
    /** @type {WeakMap<Node, string>} */ this.english = new WeakMap();
    /** @type {WeakMap<Node, string>} */ this.written = new WeakMap();
    this.chinese = false;
    /** Whether the writer of the page or its reader chose Chinese. */
    this.wanted = document.documentElement.lang === "zh" || navigator.language.startsWith("zh");
    this.observer = new MutationObserver((changes) => this.changed(changes));
  }
  /** @param {boolean} chinese */
  set(chinese) {
    this.observer.disconnect();
    this.chinese = chinese;
    drawn.text = (text) => (chinese ? this.catalogue.translate(text) : text);
    document.documentElement.lang = chinese ? "zh" : "en";
    this.walk(document.body);
    if (chinese) this.watch();
  }
  watch() { this.observer.observe(document.body, { subtree: true, childList: true, characterData: true, attributes: true, attributeFilter: attributes }); }
  /** @param {MutationRecord[]} changes */
  changed(changes) {
    for (const change of changes) {
      const place = change.target instanceof Element ? change.target : change.target.parentElement;
      if (place?.closest('[translate="no"], code, pre')) continue;
      if (change.type === "childList") change.addedNodes.forEach((node) => this.walk(node));
      else if (change.type === "characterData") this.text(change.target);
      else this.named(/** @type {Element} */ (change.target));
    }
    this.observer.takeRecords(); // what was just written
  }
  /** @param {Node} node */
  walk(node) {
    if (node.nodeType === Node.TEXT_NODE) return this.text(node);
    if (!(node instanceof Element) || ["SCRIPT", "STYLE", "CODE", "KBD", "PRE"].includes(node.tagName) || node.getAttribute("translate") === "no") return;
    this.named(node);
    node.childNodes.forEach((child) => this.walk(child));
  }
  /** @param {Node} node */
  text(node) {
    const now = node.nodeValue ?? "", english = this.written.get(node) === now ? this.english.get(node) ?? now : now;
    const next = this.chinese ? this.catalogue.translate(english) : english;
    if (next === now) return;
    this.english.set(node, english);
    this.written.set(node, next);
    node.nodeValue = next;
  }
  /** @param {Element} element */
  named(element) {
    for (const name of attributes) {
      const now = element.getAttribute(name);
      if (now === null) continue;
      const kept = element.getAttribute("data-en-" + name), english = kept !== null && this.catalogue.translate(kept) === now ? kept : now;
      const next = this.chinese ? this.catalogue.translate(english) : english;
      if (next === now) continue;
      element.setAttribute("data-en-" + name, english);
      element.setAttribute(name, next);
    }
  }
}
