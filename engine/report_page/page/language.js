// @ts-check
// The language of the page. Every text is made in English, as a sentence and what stands in its places; in Chinese each text
// of the document is looked up by what it was made of. Nothing takes a finished sentence apart.
//
//   output.textContent = say("{} of {} calls", grouped(3), grouped(12)); // 12 个调用中的 3 个

import { clean } from "./text.js";

/**
 * Chinese by the English sentence, with {} in its places: translations/page.zh.po.
 * @type {Map<string, string>}
 */
const catalogue = new Map();
/**
 * Of each text that was put together: what makes its Chinese.
 * @type {Map<string, () => string>}
 */
const made = new Map();
const mostMade = 40000;

const hole = /\{(\d*)\}/g;
/**
 * Of the marks between texts.
 * @type {Record<string, string>}
 */
const marks = { "; ": "；", ". ": "。", ": ": "：", ", ": "，", ":": "：", ",": "，" };

/**
 * @param {string} english
 * @param {() => string} chinese
 */
function keep(english, chinese) {
  made.delete(english); // the latest ones stay
  made.set(english, chinese);
  if (made.size > mostMade) for (const oldest of [...made.keys()].slice(0, mostMade / 2)) made.delete(oldest);
  return english;
}

/**
 * @param {string} sentence
 * @param {string[]} parts
 */
function filled(sentence, parts) {
  let next = 0;
  return sentence.replace(hole, (_, index) => parts[index ? Number(index) : next++] ?? "");
}

/**
 * A sentence of the page. What stands in its places is a number, a word or a sentence of the page, or a name between marks
 * (text.js: named).
 * @param {string} sentence a key of translations/page.zh.po
 * @param {...(string|number)} parts
 */
export function say(sentence, ...parts) {
  const texts = parts.map(String);
  return keep(filled(sentence, texts), () => filled(catalogue.get(sentence) ?? sentence, texts.map(chineseOf)));
}

/**
 * Texts side by side; empty ones are left out.
 * @param {string[]} parts
 * @param {string} separator
 */
export function joined(parts, separator) {
  const texts = parts.filter(Boolean);
  return texts.length < 2 ? texts[0] ?? "" : keep(texts.join(separator), () => texts.map(chineseOf).join(marks[separator] ?? separator));
}

/**
 * A text that the page's data brings: a name, or a sentence in both languages (AppendMessage in page_data.h).
 * @param {string|[string, string]|null|undefined} text
 * @param {number} [most]
 */
export function told(text, most = 2000) {
  if (!Array.isArray(text)) return clean(text, most);
  const chinese = clean(text[1], most);
  return keep(clean(text[0], most), () => chinese);
}

/** @param {string} text */
function chineseOf(text) { return lookUp(text) ?? text; }

/**
 * @param {string} text
 * @returns {string|null} null: it has no translation
 */
function lookUp(text) {
  const chinese = made.get(text)?.() ?? catalogue.get(text);
  if (chinese !== undefined) return chinese;
  const [, front = "", inside = "", back = ""] = /^([ \n;,:=≈≠✕?!↳⇄←→·]*)(.*?)([ \n;,:.]*)$/s.exec(text) ?? [];
  const found = front || back ? made.get(inside)?.() ?? catalogue.get(inside) : undefined;
  return found === undefined ? null : (marks[front] ?? front) + found + (marks[back] ?? back.replace(/^\. ?/, "。"));
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
    for (const [english, chinese] of Object.entries(entries)) catalogue.set(english, chinese);
    // What the page shows without JavaScript has its Chinese beside it.
    for (const element of /** @type {NodeListOf<HTMLElement>} */ (document.querySelectorAll("[data-zh]"))) keep(element.textContent ?? "", () => element.dataset.zh ?? "");
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
    drawn.text = chinese ? chineseOf : (text) => text;
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
    const next = this.chinese ? chineseOf(english) : english;
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
      const kept = element.getAttribute("data-en-" + name), english = kept !== null && chineseOf(kept) === now ? kept : now;
      const next = this.chinese ? chineseOf(english) : english;
      if (next === now) continue;
      element.setAttribute("data-en-" + name, english);
      element.setAttribute(name, next);
    }
  }
}
