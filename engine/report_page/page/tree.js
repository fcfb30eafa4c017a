// @ts-check
// The tree of modules: the worst class inside each module, how many calls are of it, and the shares of all classes.
import { joined } from "./language.js";
import { clean, el, ends, grouped, named } from "./text.js";

/** @typedef {import("./calls.js").Calls} Calls */
const lineHeight = 20;

export class Tree {
  /** @param {(path: string) => void} onPick "": the whole model */
  constructor(onPick) {
    this.onPick = onPick;
    /** @type {Calls|null} */ this.calls = null;
    /** @type {Set<number>} */ this.open = new Set([0]);
    /** @type {{node: number, depth: number}[]} */ this.lines = [];
    this.at = 0; // the line with the keyboard
    this.list = el("div", { class: "lines" });
    this.root = el("nav", { id: "tree", role: "tree", tabindex: "0", "aria-label": "modules", onscroll: () => this.draw(), onclick: (/** @type {MouseEvent} */ e) => this.clicked(e), onkeydown: (/** @type {KeyboardEvent} */ e) => this.key(e) }, this.list);
    new ResizeObserver(() => this.draw()).observe(this.root);
  }
  /** @param {Calls} calls */
  show(calls) {
    this.calls = calls;
    const parents = calls.parents;
    this.begin = new Uint32Array(parents.length + 1);
    for (let k = 1; k < parents.length; k++) this.begin[parents[k] + 1]++;
    for (let k = 1; k < this.begin.length; k++) this.begin[k] += this.begin[k - 1];
    const next = this.begin.slice();
    this.children = new Uint32Array(parents.length);
    for (let k = 1; k < parents.length; k++) this.children[next[parents[k]]++] = k;
    this.kept = this.endsThatTell(calls.texts.modules);
    this.open = new Set([0]);
    for (let k = calls.head.first >= 0 ? calls.module[calls.head.first] : 0; k; k = parents[k]) this.open.add(k);
    this.unfold();
  }
  /**
   * How many characters of the end of each module's name tell it from the other modules of its parent.
   * @param {string[]} names
   */
  endsThatTell(names) {
    const kept = new Uint8Array(names.length).fill(9), most = 40, begin = /** @type {Uint32Array} */ (this.begin), children = /** @type {Uint32Array} */ (this.children);
    for (let node = 0; node + 1 < begin.length; node++) {
      const siblings = [...children.subarray(begin[node], begin[node + 1])].map((k) => ({ k, back: [...clean(names[k], 80)].reverse().join("") })).sort((a, b) => (a.back < b.back ? -1 : 1));
      for (let s = 1; s < siblings.length; s++) {
        const one = siblings[s - 1], two = siblings[s];
        let same = 0;
        while (same < most && same < one.back.length && one.back[same] === two.back[same]) same++;
        for (const k of [one.k, two.k]) kept[k] = Math.max(kept[k], Math.min(most, same + 2));
      }
    }
    return kept;
  }
  unfold() {
    this.lines = [];
    const begin = /** @type {Uint32Array} */ (this.begin), children = /** @type {Uint32Array} */ (this.children);
    const add = (/** @type {number} */ node, /** @type {number} */ depth) => {
      this.lines.push({ node, depth });
      if (this.open.has(node)) for (let k = begin[node]; k < begin[node + 1]; k++) add(children[k], depth + 1);
    };
    add(0, 0);
    this.list.style.height = this.lines.length * lineHeight + "px";
    this.draw();
  }
  /** @param {number} node */
  isLeaf(node) { const begin = /** @type {Uint32Array} */ (this.begin); return begin[node] === begin[node + 1]; }
  /** @param {number} node */
  toggle(node) {
    if (!this.open.delete(node)) this.open.add(node);
    this.unfold();
  }
  /** @param {MouseEvent} e */
  clicked(e) {
    const target = /** @type {HTMLElement} */ (e.target), line = /** @type {HTMLElement|null} */ (target.closest("[data-line]"));
    if (!line) return;
    this.at = Number(line.dataset.line);
    if (target.closest(".fold")) this.toggle(this.lines[this.at].node);
    else this.pick();
  }
  pick() { this.onPick(this.calls ? this.calls.path(this.lines[this.at].node) : ""); this.draw(); }
  /** @param {KeyboardEvent} e */
  key(e) {
    const node = this.lines[this.at]?.node ?? 0;
    if (e.key === "ArrowDown") this.at = Math.min(this.lines.length - 1, this.at + 1);
    else if (e.key === "ArrowUp") this.at = Math.max(0, this.at - 1);
    else if (e.key === "ArrowRight" && !this.open.has(node)) this.toggle(node);
    else if (e.key === "ArrowLeft" && this.open.has(node)) this.toggle(node);
    else if (e.key === "Enter" || e.key === " ") this.pick();
    else return;
    e.preventDefault();
    e.stopPropagation();
    this.root.scrollTop = Math.max(Math.min(this.root.scrollTop, this.at * lineHeight), (this.at + 1) * lineHeight - this.root.clientHeight);
    this.draw();
  }
  /**
   * A bar with a piece for each class, worst first, as long as its share of the calls.
   * @param {{color: number, count: number}[]} counted
   */
  shares(counted) {
    const bar = el("span", { class: "shares", "aria-hidden": "true" });
    for (const one of counted) {
      const piece = el("i", { class: "color" + one.color });
      piece.style.flexGrow = String(one.count);
      bar.append(piece);
    }
    return bar;
  }
  draw() {
    const calls = this.calls;
    if (!calls || !calls.moduleCounts || !calls.moduleWorst) return;
    const from = Math.floor(this.root.scrollTop / lineHeight), to = Math.min(this.lines.length, from + Math.ceil(this.root.clientHeight / lineHeight) + 1);
    const drawn = [];
    for (let k = from; k < to; k++) {
      const { node, depth } = this.lines[k], worst = calls.moduleWorst[node], look = calls.classes[worst];
      const counts = calls.classes.map((_, c) => /** @type {Uint32Array} */ (calls.moduleCounts)[node * calls.classes.length + c]);
      const counted = calls.classes.flatMap((one, c) => (counts[c] ? [{ ...one, count: counts[c] }] : [])).sort((a, b) => b.rank - a.rank);
      const label = node === 0 ? "model" : clean(calls.texts.modules[node], 80), kind = clean(calls.texts.moduleClasses[node], 60);
      const leaf = this.isLeaf(node), open = this.open.has(node);
      const line = el("div", { class: `line color${look.color}${k === this.at ? " at" : ""}`, role: "treeitem", "aria-level": depth + 1, "aria-expanded": leaf ? null : open, "data-line": k, title: joined([joined([named(calls.path(node), 200) || "the whole model", kind && `(${named(kind, 60)})`], " "), joined(counted.map((one) => joined([grouped(one.count), one.name], " ")), ", ")], ": ") },
        el("span", { class: "fold" }, leaf ? "" : open ? "▾" : "▸"), el("span", { class: "mark" }, look.sign), node === 0 ? el("span", { class: "word" }, label) : ends(label, this.kept?.[node]), el("small", { translate: "no" }, ends(kind, 5)), el("em", {}, look.rank > 0 ? grouped(counts[worst]) : "", this.shares(counted)));
      line.style.top = k * lineHeight + "px";
      line.style.paddingLeft = depth * 12 + 4 + "px";
      drawn.push(line);
    }
    this.list.replaceChildren(...drawn);
  }
}
