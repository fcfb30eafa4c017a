// @ts-check
// The table of calls. Only the rows in sight exist as elements.
import { sideWords } from "./calls.js";
import { edge } from "./drag.js";
import { say } from "./language.js";
import { charactersIn, clean, cutName, cutPath, el, grouped, named, short, tellApart } from "./text.js";

/** @typedef {import("./calls.js").Calls} Calls */

const rowHeight = 22;
const tallest = 8e6; // pixels: Firefox lets no element be higher than 17.9e6
const narrowest = 30, padding = 10; // pixels of a column
const columnsShown = [["order", "#"], ["class", "class"], ["name", "call"], ["module", "module"], ["dtype", "dtype"], ["shape", "shape"], ["size", ""]];

export class Table {
  /**
   * @param {(i: number) => void} onSelect
   * @param {(key: string) => void} onSort
   * @param {() => void} onWidths
   */
  constructor(onSelect, onSort, onWidths) {
    this.onSelect = onSelect;
    this.onWidths = onWidths;
    /** @type {number[]} */ this.widths = []; // of the columns, when one of them was dragged
    this.room = { name: 40, module: 20 };     // characters
    /** @type {Calls|null} */ this.calls = null;
    this.rows = new Uint32Array(0);
    this.at = 0; // the first row in sight
    this.selected = -1;
    this.head = el("div", { class: "thead", role: "row" });
    columnsShown.forEach(([key, title], k) => {
      const last = k + 1 === columnsShown.length;
      this.head.append(el("div", { class: "c-" + key }, el("button", { role: "columnheader", "data-key": key, onclick: () => onSort(key) }, title), last ? null : this.edgeBehind(k)));
    });
    this.nothing = el("div", { class: "nothing", role: "status", hidden: true });
    this.tall = el("div", { class: "tall" });
    this.window = el("div", { class: "window" });
    this.scroll = el("div", { class: "scroll", tabindex: "0", role: "grid", "aria-label": "calls", onscroll: () => this.scrolled(), onclick: (/** @type {MouseEvent} */ e) => this.clicked(e) }, this.tall, this.window);
    this.scroll.addEventListener("wheel", (e) => this.wheeled(e), { passive: false });
    this.root = el("div", { id: "table" }, this.head, this.scroll, this.nothing);
    new ResizeObserver(() => { this.measure(); this.draw(); }).observe(this.scroll);
  }

  /**
   * The edge after column k: what this column gains, the next one in sight loses.
   * @param {number} k
   */
  edgeBehind(k) {
    /** @type {number[]} */ let began = [];
    return edge("width of the column", () => { began = [...this.head.children].map((cell) => /** @type {HTMLElement} */ (cell).offsetWidth); }, (by) => {
      const next = began.findIndex((width, i) => i > k && width > 0);
      if (next < 0) return;
      const moved = Math.max(narrowest - (began[k] ?? 0), Math.min((began[next] ?? 0) - narrowest, by));
      this.setWidths(began.map((width, i) => width + (i === k ? moved : i === next ? -moved : 0)));
    }, () => this.onWidths(), () => { this.setWidths([]); this.onWidths(); });
  }
  /** @param {number[]} widths one for each column, 0 where it is hidden; []: those of the style */
  setWidths(widths) {
    this.widths = widths;
    columnsShown.forEach(([key], k) => {
      if (widths[k]) this.root.style.setProperty("--w-" + key, `${Math.max(1, Math.round(widths[k]) - padding)} 1 0px`);
      else this.root.style.removeProperty("--w-" + key);
    });
    this.measure();
    this.draw();
  }
  measure() {
    const [, , name, module] = /** @type {HTMLElement[]} */ ([...this.head.children]), row = this.window.firstElementChild?.children[2];
    if (!name || !module || !row) return;
    this.room = { name: charactersIn(row, name.offsetWidth - 11), module: charactersIn(row, module.offsetWidth - 11) };
  }
  /** For the address of the page; "": no column was dragged. */
  state() { return this.widths.map(Math.round).join("-"); }
  /** @param {string} state */
  restore(state) { if (/^\d{1,4}(-\d{1,4}){6}$/.test(state)) this.setWidths(state.split("-").map(Number)); }
  /** @param {(Node|string)[]} said where there is no row */
  say(...said) {
    this.nothing.hidden = said.length === 0;
    this.nothing.replaceChildren(...said);
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
    const first = !this.window.firstElementChild;
    while (this.window.children.length < to - from) this.window.append(this.emptyRow());
    if (first) this.measure();
    while (this.window.children.length > to - from) this.window.lastElementChild?.remove();
    const calls = this.calls, seen = [...this.rows.subarray(from, to)], paths = seen.map((i) => clean(calls.path(calls.module[i]), 200));
    const names = tellApart(seen.map((i) => calls.title(i)), seen.map((i) => this.roomOf(i)), cutName);
    const places = tellApart(paths, paths.map(() => this.room.module), cutPath);
    for (let k = from; k < to; k++) this.fill(/** @type {HTMLElement} */ (this.window.children[k - from]), k, names[k - from], places[k - from]);
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
   * Characters for the name of a call, beside the side that has it (in Chinese three wider than in English).
   * @param {number} i
   */
  roomOf(i) {
    const side = sideWords[/** @type {Calls} */ (this.calls).sides[i]];
    return Math.max(this.room.name - (side ? side.length + 6 : 0), 0.7 * this.room.name);
  }
  /**
   * @param {HTMLElement} row
   * @param {number} k
   * @param {string} name as it is cut
   * @param {string} place the path of the module, as it is cut
   */
  fill(row, k, name, place) {
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
    const title = calls.title(i), path = clean(calls.path(calls.module[i]), 200);
    /** @type {Element} */ (cells[2].firstElementChild).textContent = name;
    /** @type {Element} */ (cells[2].lastElementChild).textContent = side ? " " + say("({})", side) : "";
    cells[3].textContent = place;
    cells[2].setAttribute("title", side ? say("{} ({})", named(title), side) : named(title));
    cells[3].setAttribute("title", path);
    cells[4].textContent = clean(calls.texts.dtypes[calls.dtype[i]], 40).replace("torch.", "");
    cells[5].textContent = clean(calls.texts.shapes[calls.shape[i]], 80);
    cells[5].setAttribute("title", cells[5].textContent);
    const bar = /** @type {HTMLElement} */ (cells[6].firstElementChild);
    bar.style.width = Math.max(0, Math.min(100, 12 * Math.log10(calls.size[i] + 1) || 0)) + "%";
    /** @type {Element} */ (cells[6].lastElementChild).textContent = short(calls.size[i]);
  }
}
