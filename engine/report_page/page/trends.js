// @ts-check
// Over the steps: a strip of cells, parameters (or layers) x steps, coloured by how far the two runs are apart, and for
// the chosen cell's parameter small charts of its norm and of the distance (trends.h).
import { column, json } from "./data.js";
import { chart, tick } from "./chart.js";
import { joined, say } from "./language.js";
import { byId, charactersIn, clean, cutName, el, grouped, named, short, tellApart } from "./text.js";

/** @typedef {{title: string, measure: string, steps: number[], ranks: number[], parts: number[], parameters: number, names: string[], target: Float32Array, golden: Float32Array, apart: Float32Array, verdict: Uint8Array, call: Uint32Array}} Trend */

const rowTall = 18, nothing = 255, noCall = 0xffffffff, mostLosses = 3;
/**
 * Of each verdict: its name, the number of its colour in style.css, how strong the palest cell is, how bad it is.
 * @type {[string, number, number, number][]}
 */
const cellLooks = [["equal", 0, 0.25, 0], ["noise", 1, 0.5, 1], ["differs", 2, 0.3, 3], ["unknown", 4, 0.5, 2]];
/**
 * Of each measure (trends.h): what the legend says, how rows are ordered and left out, other names of verdicts.
 * @type {Record<string, {stronger: string, first: string, kept: string, words?: string[]}>}
 */
const measures = {
  roundings: { stronger: "The stronger the color, the further apart, in roundings.", first: "Furthest apart first", kept: "{} of {} parameters, those that are furthest apart" },
  share: { stronger: "The stronger the color, the more elements point elsewhere.", first: "Furthest apart first", kept: "{} of {} parameters, those that are furthest apart" },
  norm: { stronger: "The stronger the color, the larger the norm (logarithmic).", first: "Largest first", kept: "{} of {} parameters, those with the largest norms", words: ["finite", "finite", "NaN or infinity", "not recorded"] },
};
export class Trends {
  /**
   * @param {(part: number, call: number) => void} onGo
   * @param {() => void} onChange
   * @returns {Promise<{trends: Trends|null, losses: Losses|null}>} null: the page has one step, or no such numbers
   */
  static async load(onGo, onChange) {
    const heads = await json("trends");
    if (!heads) return { trends: null, losses: null };
    const columns = ["target", "golden", "apart", "verdict", "call"];
    const trends = await Promise.all(heads.map(async (/** @type {any} */ head, /** @type {number} */ k) => {
      const got = await Promise.all(columns.map((name) => column(`t${k}-${name}`)));
      const cells = head.names.length * head.steps.length * head.ranks.length;
      if (got.some((one) => !one || one.length !== cells)) throw new Error(`a trend does not have its ${cells} cells`);
      return Object.assign(head, Object.fromEntries(columns.map((name, i) => [name, got[i]])));
    }));
    const strips = trends.filter((trend) => trend.measure !== "value"), losses = trends.filter((trend) => trend.measure === "value");
    return { trends: strips.length ? new Trends(strips, onGo, onChange) : null, losses: losses[0] ? new Losses(losses[0], onGo) : null };
  }
  /**
   * @param {Trend[]} trends
   * @param {(part: number, call: number) => void} onGo
   * @param {() => void} onChange
   */
  constructor(trends, onGo, onChange) {
    this.trends = trends;
    this.onGo = onGo;
    this.onChange = onChange;
    this.kind = this.rank = this.step = this.most = this.least = 0;
    this.row = -1;
    this.worstFirst = true;
    this.rows = new Uint32Array(0);
    this.kinds = el("span", { role: "group", "aria-label": "what is shown" }, ...trends.map((trend, k) => el("button", { onclick: () => { this.row = -1; this.show(k, 0); } }, trend.title)));
    this.ranks = /** @type {HTMLSelectElement} */ (el("select", { "aria-label": "rank", onchange: () => this.show(this.kind, Number(this.ranks.value)) }));
    this.order = el("button", { onclick: () => { this.worstFirst = !this.worstFirst; this.sort(); } });
    this.kept = el("span", { class: "quiet" });
    this.tall = el("div", { class: "tall" });
    this.window = el("div", { class: "window" });
    this.strip = el("div", { class: "strip", tabindex: "0", role: "grid", "aria-label": "parameters and steps: arrows choose a cell, Enter opens it", onscroll: () => this.draw(), onkeydown: (/** @type {KeyboardEvent} */ e) => this.key(e), onclick: (/** @type {MouseEvent} */ e) => this.clicked(e), onpointermove: (/** @type {PointerEvent} */ e) => this.hovered(e) }, this.tall, this.window);
    this.scale = el("p", { class: "steps quiet" });
    this.said = el("output", { "aria-live": "polite" });
    this.go = el("button", { onclick: () => this.open() }, "Open this step");
    this.charts = el("div", { class: "charts" });
    this.legend = el("p", { class: "legend quiet" });
    this.root = /** @type {HTMLDetailsElement} */ (el("details", { id: "trend" }, el("summary", {}, trends.some((trend) => trend.title === "outputs") ? "Parameters and outputs over steps" : "Parameters over steps"),
      el("div", { class: "controls" }, trends.length > 1 ? this.kinds : null, this.ranks, this.order, this.kept),
      el("div", { class: "both" }, el("div", { class: "cells" }, this.strip, this.scale, this.legend), el("div", { class: "chosen" }, el("p", {}, this.said), el("p", {}, this.go), this.charts))));
    this.root.addEventListener("toggle", () => { document.documentElement.classList.toggle("trending", this.root.open); this.draw(); this.onChange(); });
    new ResizeObserver(() => this.draw()).observe(this.strip);
    this.show(Math.max(0, trends.findIndex((trend) => trend.verdict.includes(2))), 0);
  }

  get trend() { return this.trends[this.kind]; }
  /**
   * @param {number} row
   * @param {number} step
   */
  cell(row, step) { return (row * this.trend.ranks.length + this.rank) * this.trend.steps.length + step; }
  /**
   * @param {number} kind
   * @param {number} rank index
   */
  show(kind, rank) {
    const name = this.row >= 0 ? this.trend.names[this.row] : "";
    this.kind = kind;
    this.rank = rank;
    const { trend } = this, { names, ranks, steps, parameters } = trend, measure = measures[trend.measure];
    this.kinds.querySelectorAll("button").forEach((b, k) => b.setAttribute("aria-pressed", String(k === kind)));
    this.ranks.replaceChildren(...ranks.map((n, i) => el("option", { value: i, selected: i === rank }, `rank ${n}`)));
    this.ranks.hidden = ranks.length < 2;
    this.kept.textContent = names.length < parameters ? say(measure.kept, grouped(names.length), grouped(parameters)) : say("{} rows, {} steps", grouped(names.length), grouped(steps.length));
    this.scale.replaceChildren(el("span", {}, `step ${steps[0]}`), el("span", {}, `step ${steps[steps.length - 1]}`));
    this.most = 0;
    this.least = Infinity;
    for (const apart of trend.apart) {
      if (apart > this.most && apart < Infinity) this.most = apart;
      if (apart > 0 && apart < this.least) this.least = apart;
    }
    const present = new Set(trend.verdict);
    this.legend.replaceChildren("Cells: ", ...cellLooks.flatMap(([word, color], k) => (present.has(k) ? [el("i", { class: "color" + color }, "■"), ` ${measure.words?.[k] ?? word}. `] : [])), measure.stronger);
    this.row = name ? names.indexOf(name) : -1;
    this.sort();
    if (this.row < 0) this.chooseWorst();
    else this.choose(this.row, this.step);
  }
  /** The row that is furthest apart, at its first step that differs. */
  chooseWorst() {
    const { trend } = this, order = this.worstFirst ? this.rows : this.byDistance();
    if (!order.length) return;
    let step = 0;
    while (step < trend.steps.length && trend.verdict[this.cell(order[0], step)] !== 2) step++;
    this.choose(order[0], step < trend.steps.length ? step : 0);
  }
  byDistance() {
    const { trend } = this, far = new Float64Array(trend.names.length);
    for (let row = 0; row < far.length; row++) {
      for (let step = 0; step < trend.steps.length; step++) {
        const at = this.cell(row, step), verdict = cellLooks[trend.verdict[at]];
        // A cell that differs comes before one that only rounds, however many roundings that has.
        if (verdict) far[row] = Math.max(far[row], verdict[3] * 1e3 + Math.log10(1 + Math.min(trend.apart[at] || 0, 1e300)));
      }
    }
    return Uint32Array.from(far.keys()).sort((a, b) => far[b] - far[a] || a - b);
  }
  sort() {
    this.rows = this.worstFirst ? this.byDistance() : Uint32Array.from(this.trend.names.keys());
    this.order.textContent = this.worstFirst ? "In the order of the model" : measures[this.trend.measure].first;
    this.tall.style.height = `${this.rows.length * rowTall}px`;
    this.strip.setAttribute("aria-rowcount", String(this.rows.length));
    this.strip.setAttribute("aria-colcount", String(this.trend.steps.length));
    this.strip.style.height = `${Math.min(this.trend.parts.every((part) => part < 0) ? 24 : 8, this.rows.length) * rowTall + 2}px`;
    this.strip.scrollTop = 0;
    this.draw();
    this.onChange();
  }
  /**
   * @param {number} row
   * @param {number} step index
   */
  choose(row, step) {
    this.row = row;
    this.step = step;
    const place = this.rows.indexOf(row), { strip } = this;
    if (place * rowTall < strip.scrollTop) strip.scrollTop = place * rowTall;
    if ((place + 1) * rowTall > strip.scrollTop + strip.clientHeight) strip.scrollTop = (place + 1) * rowTall - strip.clientHeight;
    this.said.replaceChildren(el("span", { translate: "no" }, clean(this.trend.names[row])), ", " + this.words(row, step));
    this.go.hidden = this.target() === null;
    this.drawCharts();
    this.draw();
    this.onChange();
  }
  /**
   * The part and the call of the chosen cell; null: the page has none.
   * @returns {[number, number]|null}
   */
  target() {
    const { trend } = this, part = trend.parts[this.rank * trend.steps.length + this.step], call = trend.call[this.cell(this.row, this.step)];
    return part < 0 || call === undefined || call === noCall ? null : [part, call];
  }
  open() {
    const target = this.row >= 0 ? this.target() : null;
    if (target) this.onGo(...target);
  }
  /**
   * What a cell says of its parameter.
   * @param {number} row
   * @param {number} step
   */
  words(row, step) {
    const { trend } = this, at = this.cell(row, step), verdict = cellLooks[trend.verdict[at]], apart = trend.apart[at];
    const after = (/** @type {string} */ said) => joined([`step ${trend.steps[step]}`, said], ": ");
    if (trend.measure === "norm") return after(!verdict ? "not recorded" : apart === Infinity ? "NaN or infinity" : say("norm {}", tick(apart)));
    if (!verdict) return after("not recorded on both sides");
    const distance = Number.isNaN(apart) ? "" : trend.measure === "share" ? say("similarity {}", (1 - apart).toPrecision(4)) : say("{} roundings apart", short(apart));
    const found = joined([verdict[0], distance], ", ");
    if (Number.isNaN(trend.target[at]) && Number.isNaN(trend.golden[at])) return after(found);
    const norm = (/** @type {number} */ v) => (Number.isNaN(v) ? "not recorded" : String(Number(v.toPrecision(6))));
    return after(joined([found, say("norm {} in the target, {} in the golden", norm(trend.target[at]), norm(trend.golden[at]))], "; "));
  }
  drawCharts() {
    const { trend } = this, steps = trend.steps, of = (/** @type {Float32Array} */ values) => steps.map((_, i) => (trend.verdict[this.cell(this.row, i)] === nothing ? NaN : values[this.cell(this.row, i)]));
    const onPick = (/** @type {number} */ i) => this.choose(this.row, i), share = trend.measure === "share", apart = of(trend.apart), target = of(trend.target), golden = of(trend.golden);
    if (trend.measure === "norm") return this.charts.replaceChildren(chart("norm", steps, [{ name: "target", values: target }], { at: this.step, onPick }));
    const norms = [...target, ...golden].some((v) => !Number.isNaN(v)) ? chart("norm", steps, [{ name: "target", values: target }, { name: "golden", values: golden }], { at: this.step, onPick }) : "";
    this.charts.replaceChildren(
      norms,
      share ? chart("similarity", steps, [{ name: "distance", values: apart.map((v) => 1 - v) }], { at: this.step, low: 0, high: 1, onPick }) : chart("roundings apart, logarithmic", steps, [{ name: "distance", values: apart }], { at: this.step, low: 0, log: true, value: (x) => say("{} roundings", x), onPick }));
  }

  /**
   * How strong the colour of a cell is, from 0 to 1.
   * @param {number} verdict
   * @param {number} pale
   * @param {number} apart
   */
  strength(verdict, pale, apart) {
    const { measure } = this.trend;
    if (measure === "norm") {
      const low = Math.log10(this.least), all = Math.log10(this.most) - low;
      return verdict === 2 ? 1 : apart > 0 ? 0.2 + 0.8 * (all > 0 ? (Math.log10(apart) - low) / all : 1) : 0.1;
    }
    if (verdict !== 2) return pale;
    return pale + (1 - pale) * Math.min(1, measure === "share" ? Math.sqrt(apart) : Math.log10(1 + apart) / Math.log10(1 + (this.most || 1)));
  }

  /** The rows in sight. */
  draw() {
    if (!this.root.open) return;
    const from = Math.max(0, Math.floor(this.strip.scrollTop / rowTall)), to = Math.min(this.rows.length, from + Math.ceil(this.strip.clientHeight / rowTall) + 1);
    while (this.window.children.length < to - from) this.window.append(el("div", { class: "parameter", role: "row" }, el("span", { role: "rowheader", translate: "no" }), el("canvas", { role: "gridcell" })));
    while (this.window.children.length > to - from) this.window.lastElementChild?.remove();
    this.window.style.transform = `translateY(${from * rowTall}px)`;
    const css = getComputedStyle(document.documentElement), colors = [0, 1, 2, 3, 4].map((n) => css.getPropertyValue("--color" + n).trim()), ink = css.getPropertyValue("--ink").trim();
    const first = /** @type {HTMLElement|undefined} */ (this.window.firstElementChild?.firstElementChild), room = first ? charactersIn(first, first.offsetWidth - 10) : 0;
    const seen = [...this.rows.subarray(from, to)].map((row) => clean(this.trend.names[row], 200)), shown = tellApart(seen, seen.map(() => room), cutName);
    for (let k = from; k < to; k++) {
      const line = /** @type {HTMLElement} */ (this.window.children[k - from]), row = this.rows[k], name = seen[k - from], label = /** @type {HTMLElement} */ (line.firstElementChild);
      line.dataset.row = String(row);
      line.setAttribute("aria-rowindex", String(k + 1));
      line.setAttribute("aria-selected", String(row === this.row));
      label.textContent = shown[k - from];
      label.title = named(name, 200);
      const canvas = /** @type {HTMLCanvasElement} */ (line.lastElementChild);
      canvas.setAttribute("aria-label", joined([named(name, 200), row === this.row ? this.words(row, this.step) : ""], ", "));
      this.paint(canvas, row, colors, ink);
    }
  }
  /**
   * The cells of a row; of steps that share a pixel the worst.
   * @param {HTMLCanvasElement} canvas
   * @param {number} row
   * @param {string[]} colors
   * @param {string} ink
   */
  paint(canvas, row, colors, ink) {
    const { trend } = this, steps = trend.steps.length, scale = devicePixelRatio || 1;
    const width = (canvas.width = Math.max(1, Math.round(canvas.clientWidth * scale))), height = (canvas.height = rowTall * scale);
    const pen = /** @type {CanvasRenderingContext2D} */ (canvas.getContext("2d")), wide = width / steps;
    for (let from = 0; from < steps; ) {
      const x = Math.floor(from * wide), to = Math.max(from + 1, Math.min(steps, Math.ceil((x + 1) / wide)));
      let worst = -1, apart = 0;
      for (let step = from; step < to; step++) {
        const at = this.cell(row, step), verdict = trend.verdict[at];
        if (verdict === nothing) continue;
        if (worst < 0 || cellLooks[verdict][3] > cellLooks[worst][3]) worst = verdict;
        apart = Math.max(apart, trend.apart[at] || 0);
      }
      if (worst >= 0) {
        const [, color, pale] = cellLooks[worst];
        pen.globalAlpha = this.strength(worst, pale, apart);
        pen.fillStyle = colors[color];
        pen.fillRect(x, scale, Math.max(1, Math.floor(to * wide) - x - (wide > 4 * scale ? scale : 0)), height - 2 * scale);
      }
      from = to;
    }
    if (row !== this.row) return;
    pen.globalAlpha = 1;
    pen.strokeStyle = ink;
    pen.lineWidth = 2 * scale;
    pen.strokeRect(Math.floor(this.step * wide) + scale, scale, Math.max(2 * scale, wide - 2 * scale), height - 2 * scale);
  }

  /**
   * Row and step under the pointer.
   * @param {MouseEvent} e
   * @returns {[number, number, HTMLElement]|null}
   */
  under(e) {
    const line = /** @type {HTMLElement|null} */ (/** @type {HTMLElement} */ (e.target).closest("[data-row]"));
    if (!line) return null;
    const box = /** @type {Element} */ (line.lastElementChild).getBoundingClientRect(), steps = this.trend.steps.length;
    const step = e.clientX < box.left ? this.step : Math.max(0, Math.min(steps - 1, Math.floor(((e.clientX - box.left) / box.width) * steps)));
    return [Number(line.dataset.row), step, line];
  }
  /** @param {MouseEvent} e */
  clicked(e) {
    const found = this.under(e);
    if (!found) return;
    const again = found[0] === this.row && found[1] === this.step;
    this.choose(found[0], found[1]);
    if (again) this.open();
  }
  /** @param {PointerEvent} e */
  hovered(e) {
    const found = this.under(e);
    if (found) found[2].title = joined([named(this.trend.names[found[0]]), this.words(found[0], found[1])], ", ");
  }
  /** @param {KeyboardEvent} e */
  key(e) {
    if (e.ctrlKey || e.metaKey || e.altKey || !this.rows.length) return;
    const page = Math.max(1, Math.floor(this.strip.clientHeight / rowTall)), last = this.rows.length - 1, place = this.rows.indexOf(this.row);
    const down = { ArrowDown: 1, ArrowUp: -1, PageDown: page, PageUp: -page }[e.key] ?? 0, on = { ArrowRight: 1, ArrowLeft: -1, Home: -Infinity, End: Infinity }[e.key] ?? 0;
    if (e.key === "Enter") this.open();
    else if (down || on) this.choose(this.rows[Math.max(0, Math.min(last, place + down))], Math.max(0, Math.min(this.trend.steps.length - 1, this.step + on)));
    else return;
    e.preventDefault();
    e.stopPropagation();
  }
  focus() {
    this.root.open = true;
    this.root.scrollIntoView({ block: "nearest" });
    this.strip.focus();
  }

  /**
   * The cell of a parameter, where the page has it.
   * @param {string} name
   * @param {number} step
   * @param {number} rank
   */
  chooseNamed(name, step, rank) {
    const kind = this.trends.findIndex((trend) => trend.names.includes(name) && trend.steps.includes(step)), trend = this.trends[kind];
    if (!trend) return;
    this.show(kind, Math.max(0, trend.ranks.indexOf(rank)));
    this.choose(trend.names.indexOf(name), trend.steps.indexOf(step));
  }

  /** What is shown, for the address of the page; "": the list is closed. */
  state() { return this.root.open ? [this.kind, this.rank, this.row, this.step, this.worstFirst ? 1 : 0].join(".") : ""; }
  /** @param {string} state */
  restore(state) {
    const numbers = /^(\d+)\.(\d+)\.(\d+)\.(\d+)\.([01])$/.exec(state)?.slice(1).map(Number);
    const trend = numbers && this.trends[numbers[0]];
    if (!trend || numbers[1] >= trend.ranks.length || numbers[2] >= trend.names.length || numbers[3] >= trend.steps.length) return;
    this.worstFirst = numbers[4] === 1;
    this.root.open = true;
    this.row = -1;
    this.show(numbers[0], numbers[1]);
    this.choose(numbers[2], numbers[3]);
  }
}

/** The curves of the losses of both runs, beside the steps and ranks. */
export class Losses {
  /**
   * @param {Trend} trend
   * @param {(part: number, call: number) => void} onGo
   */
  constructor(trend, onGo) {
    this.trend = trend;
    this.onGo = onGo;
    this.root = el("div", { id: "losses" });
  }
  /**
   * Draws those of the rank of a part of the page.
   * @param {number} part
   */
  show(part) {
    const { steps, parts, names } = this.trend, at = Math.max(0, parts.indexOf(part)), rank = Math.floor(at / steps.length);
    const cell = (/** @type {number} */ row, /** @type {number} */ step) => (row * this.trend.ranks.length + rank) * steps.length + step;
    const open = (/** @type {number} */ row, /** @type {number} */ step) => {
      const call = this.trend.call[cell(row, step)] ?? noCall, there = parts[rank * steps.length + step] ?? -1;
      if (there >= 0) this.onGo(there, call === noCall ? 0 : call);
    };
    this.root.replaceChildren(...names.slice(0, mostLosses).map((name, row) => {
      const of = (/** @type {Float32Array} */ values) => steps.map((_, i) => values[cell(row, i)] ?? NaN);
      return chart(name === "loss" ? name : say("loss {}", name.replace("loss ", "")), steps, [{ name: "target", values: of(this.trend.target) }, { name: "golden", values: of(this.trend.golden) }], { at: at % steps.length, recorded: (i) => this.trend.verdict[cell(row, i)] !== nothing, onPick: (i) => open(row, i) });
    }), names.length > mostLosses ? el("p", { class: "quiet" }, say("and {} more", grouped(names.length - mostLosses))) : "");
  }
}

/**
 * Puts the trends above the calls, and the losses beside the steps and ranks.
 * @param {Trends|null} trends
 * @param {Losses|null} losses
 */
export function placeTrends(trends, losses) {
  if (trends) byId("calls").before(trends.root);
  if (losses) byId("matrix").append(losses.root);
}
