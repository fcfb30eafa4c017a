// @ts-check
// Edges that a pointer drags and the arrow keys move: between columns of the table, and between the panes.
import { el } from "./text.js";

/**
 * An edge. `onMove` gets pixels to the right since the drag began; a press of an arrow key is a drag of 16 pixels.
 * @param {string} label
 * @param {() => void} onBegin
 * @param {(by: number) => void} onMove
 * @param {() => void} onEnd
 * @param {() => void} onReset a double click: as it was
 */
export function edge(label, onBegin, onMove, onEnd, onReset) {
  let from = NaN;
  const end = (/** @type {PointerEvent} */ e) => {
    if (Number.isNaN(from)) return;
    from = NaN;
    e.stopPropagation();
    onEnd();
  };
  return el("span", {
    class: "edge", role: "separator", "aria-orientation": "vertical", "aria-label": label, title: label, tabindex: "0",
    onpointerdown: (/** @type {PointerEvent} */ e) => {
      from = e.clientX;
      /** @type {HTMLElement} */ (e.currentTarget).setPointerCapture(e.pointerId);
      onBegin();
      e.preventDefault();
      e.stopPropagation();
    },
    onpointermove: (/** @type {PointerEvent} */ e) => { if (!Number.isNaN(from)) onMove(e.clientX - from); },
    onpointerup: end,
    onpointercancel: end,
    onclick: (/** @type {Event} */ e) => e.stopPropagation(),
    ondblclick: (/** @type {Event} */ e) => { e.stopPropagation(); onReset(); },
    onkeydown: (/** @type {KeyboardEvent} */ e) => {
      const by = { ArrowLeft: -16, ArrowRight: 16 }[e.key];
      if (by === undefined) return;
      onBegin();
      onMove(by);
      onEnd();
      e.preventDefault();
      e.stopPropagation();
    },
  });
}

/** The tree, the table and the selected call beside each other; the edges between them move. */
export class Panes {
  /**
   * @param {HTMLElement} tree
   * @param {HTMLElement} table
   * @param {HTMLElement} call
   * @param {() => void} onChange
   */
  constructor(tree, table, call, onChange) {
    this.sides = [tree, call];
    this.onChange = onChange;
    const edges = ["width of the tree", "width of the selected call"].map((label, k) => edge(label, () => { this.began = this.widths(); }, (by) => this.move(k, by), onChange, () => { this.set(k, NaN); onChange(); }));
    this.root = el("div", { id: "panes" }, tree, /** @type {Node} */ (edges[0]), table, /** @type {Node} */ (edges[1]), call);
    this.own = [NaN, NaN];
  }
  widths() { return this.sides.map((side) => side.offsetWidth); }
  /**
   * @param {number} k
   * @param {number} by
   */
  move(k, by) {
    const began = this.began || this.widths(), most = this.root.clientWidth - (began[1 - k] ?? 0) - 160;
    this.set(k, Math.max(80, Math.min(most, (began[k] ?? 0) + (k === 0 ? by : -by))));
  }
  /**
   * @param {number} k 0: the tree, 1: the selected call
   * @param {number} width NaN: as it was
   */
  set(k, width) {
    this.own[k] = width;
    const name = k === 0 ? "--tree" : "--call";
    if (Number.isNaN(width)) this.root.style.removeProperty(name);
    else this.root.style.setProperty(name, Math.round(width) + "px");
  }
  /** For the address of the page; "": nothing was moved. */
  state() { return this.own.every(Number.isNaN) ? "" : this.own.map((width) => (Number.isNaN(width) ? "" : Math.round(width))).join("-"); }
  /** @param {string} state */
  restore(state) {
    const found = /^(\d{0,4})-(\d{0,4})$/.exec(state);
    for (const k of found ? [0, 1] : []) this.set(k, found?.[k + 1] ? Number(found[k + 1]) : NaN);
  }
}
