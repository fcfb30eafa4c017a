// @ts-check
// The table of calls. Only the rows in sight exist as elements.
import { sideWords } from "./calls.js";
import { clean, el, grouped, short } from "./text.js";

/** @typedef {import("./calls.js").Calls} Calls */

const rowHeight = 22;
const tallest = 8e6; // pixels: Firefox lets no element be higher than 17.9e6
const columnsShown = [["order", "#"], ["class", "class"], ["name", "call"], ["module", "module"], ["dtype", "dtype"], ["shape", "shape"], ["size", ""]];

export class Table {
  /**
   * @param {(i: number) => void} onSelect
   * @param {(key: string) => void} onSort
   */
  constructor(onSelect, onSort) {
    this.onSelect = onSelect;
    /** @type {Calls|null} */ this.calls = null;
    this.rows = new Uint32Array(0);
    this.at = 0; // the first row in sight
    this.selected = -1;
    this.head = el("div", { class: "thead", role: "row" });
    for (const [key, title] of columnsShown) {
      this.head.append(el("button", { class: "c-" + key, role: "columnheader", "data-key": key, onclick: () => onSort(key) }, title));
    }
    this.tall = el("div", { class: "tall" });
    this.window = el("div", { class: "window" });
    this.scroll = el("div", { class: "scroll", tabindex: "0", role: "grid", "aria-label": "calls", onscroll: () => this.scrolled(), onclick: (/** @type {MouseEvent} */ e) => this.clicked(e) }, this.tall, this.window);
    this.scroll.addEventListener("wheel", (e) => this.wheeled(e), { passive: false });
    this.root = el("div", { id: "table" }, this.head, this.scroll);
    new ResizeObserver(() => this.draw()).observe(this.scroll);
  }

  inSight() { return Math.max(1, Math.floor(this.scroll.clientHeight / rowHeight)); }
  scaled() { return this.rows.length * rowHeight > tallest; }

  /**
   * @param {Calls} calls
   * @param {Uint32Array} rows
   * @param {{key: string, down: boolean}} order
   */
  show(calls, rows, order) {
    this.calls = calls;
    this.rows = rows;
    this.tall.style.height = Math.min(rows.length * rowHeight, tallest) + "px";
    this.scroll.setAttribute("aria-rowcount", String(rows.length));
    for (const button of /** @type {NodeListOf<HTMLElement>} */ (this.head.querySelectorAll("button"))) {
      const sorted = button.dataset.key === order.key;
      button.setAttribute("aria-sort", sorted ? (order.down ? "descending" : "ascending") : "none");
      if (button.dataset.key === "size") button.textContent = calls.head.sizeName;
    }
    this.moveTo(0);
  }

  scrolled() {
    if (this.own) this.own = false;
    else if (this.scaled()) this.at = (this.scroll.scrollTop / Math.max(1, this.tall.offsetHeight - this.scroll.clientHeight)) * Math.max(0, this.rows.length - this.inSight());
    else this.at = this.scroll.scrollTop / rowHeight;
    this.draw();
  }
  /** @param {WheelEvent} e */
  wheeled(e) {
    if (!this.scaled()) return;
    e.preventDefault();
    this.moveTo(this.at + e.deltaY / rowHeight);
  }
  /** @param {MouseEvent} e */
  clicked(e) {
    const row = /** @type {HTMLElement|null} */ (/** @type {HTMLElement} */ (e.target).closest("[data-call]"));
    if (row) this.onSelect(Number(row.dataset.call));
  }
  /** @param {number} row the first one in sight */
  moveTo(row) {
    this.at = Math.max(0, Math.min(row, this.rows.length - this.inSight()));
    const top = this.scaled() ? (this.at / Math.max(1, this.rows.length - this.inSight())) * (this.tall.offsetHeight - this.scroll.clientHeight) : this.at * rowHeight;
    this.own = Math.abs(this.scroll.scrollTop - top) >= 1;
    this.scroll.scrollTop = top;
    this.draw();
  }
  /**
   * The row of a call; -1: it is filtered out.
   * @param {number} i
   */
  placeOf(i) { return this.rows.indexOf(i); }
  /** @param {number} i */
  select(i) {
    this.selected = i;
    const place = this.placeOf(i);
    if (place >= 0 && (place < this.at || place >= this.at + this.inSight() - 1)) this.moveTo(place - this.inSight() / 2);
    else this.draw();
  }
  /** @param {number} by rows */
  step(by) {
    if (!this.rows.length) return;
    const place = this.placeOf(this.selected);
    this.onSelect(this.rows[place < 0 ? 0 : Math.max(0, Math.min(this.rows.length - 1, place + by))]);
  }

  draw() {
    if (!this.calls) return;
    const from = Math.floor(this.at), to = Math.min(this.rows.length, from + this.inSight() + 2);
    while (this.window.children.length < to - from) this.window.append(this.emptyRow());
    while (this.window.children.length > to - from) this.window.lastElementChild?.remove();
    for (let k = from; k < to; k++) this.fill(/** @type {HTMLElement} */ (this.window.children[k - from]), k);
    this.window.style.transform = `translateY(${this.scaled() ? this.scroll.scrollTop : from * rowHeight}px)`;
    if (this.selected >= 0) this.scroll.setAttribute("aria-activedescendant", "row" + this.selected);
  }
  emptyRow() {
    const cells = columnsShown.map(([key]) => el("span", { class: "c-" + key, role: "gridcell", translate: key === "class" || key === "name" ? null : "no" }));
    cells[2].append(el("span", { translate: "no" }), el("span"));
    cells[6].append(el("i"), el("b"));
    return el("div", { class: "row", role: "row" }, ...cells);
  }
  /**
   * @param {HTMLElement} row
   * @param {number} k
   */
  fill(row, k) {
    const calls = /** @type {Calls} */ (this.calls), i = this.rows[k], look = calls.classOf(i);
    const side = sideWords[calls.sides[i]];
    row.id = "row" + i;
    row.dataset.call = String(i);
    row.className = `row color${look.color}${i === calls.head.first ? " first" : ""}${side ? " alone" : ""}`;
    row.setAttribute("aria-rowindex", String(k + 1));
    row.setAttribute("aria-selected", String(i === this.selected));
    const cells = row.children;
    cells[0].textContent = grouped(i);
    cells[1].textContent = `${look.sign} ${look.name}`;
    /** @type {Element} */ (cells[2].firstElementChild).textContent = calls.title(i);
    /** @type {Element} */ (cells[2].lastElementChild).textContent = side ? ` (${side})` : "";
    cells[3].textContent = clean(calls.path(calls.module[i]), 200);
    for (const k of [2, 3]) cells[k].setAttribute("title", cells[k].textContent ?? "");
    cells[4].textContent = clean(calls.texts.dtypes[calls.dtype[i]], 40).replace("torch.", "");
    cells[5].textContent = clean(calls.texts.shapes[calls.shape[i]], 80);
    cells[5].setAttribute("title", cells[5].textContent);
    const bar = /** @type {HTMLElement} */ (cells[6].firstElementChild);
    bar.style.width = Math.max(0, Math.min(100, 12 * Math.log10(calls.size[i] + 1) || 0)) + "%";
    /** @type {Element} */ (cells[6].lastElementChild).textContent = short(calls.size[i]);
  }
}
