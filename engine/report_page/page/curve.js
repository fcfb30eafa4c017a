// @ts-check
// The size of the error in order of execution: forward calls above, backward calls below, and the worst class between.
import { worstRank } from "./calls.js";
import { drawn, say } from "./language.js";
import { clean, el, grouped, short } from "./text.js";

/** @typedef {import("./calls.js").Calls} Calls */

const ribbon = 12; // pixels
const masked = 1e12; // times what nine of ten calls stay below

export class Curve {
  /**
   * @param {(i: number) => void} onPick
   * @param {() => void} onRange
   */
  constructor(onPick, onRange) {
    this.onPick = onPick;
    this.onRange = onRange;
    /** @type {Calls|null} */ this.calls = null;
    this.from = 0;
    this.to = 0;
    this.selected = -1;
    this.image = /** @type {HTMLCanvasElement} */ (el("canvas", { "aria-hidden": "true" }));
    this.marks = /** @type {HTMLCanvasElement} */ (el("canvas", { role: "img", "aria-label": "the size of the error of each call in order of execution; the table has the same numbers" }));
    this.tip = el("div", { class: "tip", hidden: true });
    this.root = el("div", { id: "curve" }, this.image, this.marks, this.tip);
    this.marks.addEventListener("pointerleave", () => { this.tip.hidden = true; });
    this.marks.addEventListener("wheel", (e) => this.wheeled(e), { passive: false });
    /** @type {Map<number, number>} */ this.fingers = new Map();
    this.marks.addEventListener("pointerdown", (e) => { this.fingers.set(e.pointerId, e.clientX); this.moved = 0; this.marks.setPointerCapture(e.pointerId); });
    this.marks.addEventListener("pointermove", (e) => this.dragged(e));
    this.marks.addEventListener("pointerup", (e) => { this.fingers.delete(e.pointerId); if ((this.moved || 0) < 4) this.onPick(this.nearest(e.clientX)); });
    this.marks.addEventListener("pointercancel", (e) => this.fingers.delete(e.pointerId));
    new ResizeObserver(() => this.draw()).observe(this.root);
    matchMedia("print").addEventListener("change", () => this.draw()); // paper is light
  }
  /** @param {Calls} calls */
  show(calls) {
    this.calls = calls;
    this.low = -1;
    const sizes = calls.size.filter((size) => size > 0 && size < Infinity).sort();
    let most = sizes.at(-1) ?? 1;
    if (calls.head.golden === null) {
      // A few values that stand for "masked" (-3.4e+38) do not press all others to the ground.
      const usual = (sizes[Math.floor(0.9 * (sizes.length - 1))] ?? 1) * masked;
      most = sizes.filter((size) => size <= usual).at(-1) ?? most;
    }
    this.high = Math.max(1, Math.ceil(Math.log10(most)));
    if (calls.head.golden === null) this.low = Math.max(this.high - 12, Math.floor(Math.log10(sizes[0] ?? 1)));
    this.range(0, calls.count);
  }
  /**
   * @param {number} from
   * @param {number} to calls
   */
  range(from, to) {
    if (!this.calls) return;
    const width = Math.max(Math.min(8, this.calls.count), Math.min(this.calls.count, to - from));
    this.from = Math.max(0, Math.min(from, this.calls.count - width));
    this.to = this.from + width;
    this.draw();
    this.onRange();
  }
  /**
   * @param {number} factor
   * @param {number} at the call that stays in place
   */
  zoom(factor, at) { this.range(at - (at - this.from) * factor, at + (this.to - at) * factor); }
  /** @param {number} clientX */
  callAt(clientX) { const box = this.marks.getBoundingClientRect(); return this.from + ((clientX - box.left) / box.width) * (this.to - this.from); }
  /**
   * The call with the largest error within three pixels.
   * @param {number} clientX
   */
  nearest(clientX) {
    const calls = /** @type {Calls} */ (this.calls), at = this.callAt(clientX), around = (3 * (this.to - this.from)) / Math.max(1, this.marks.clientWidth);
    let best = Math.max(0, Math.min(calls.count - 1, Math.floor(at))), size = -1;
    for (let i = Math.max(0, Math.floor(at - around)); i <= Math.min(calls.count - 1, at + around); i++) {
      if (calls.size[i] > size) { size = calls.size[i]; best = i; }
    }
    return best;
  }
  /** The unit of a size, after a number; of a dump it is a value, and has none. */
  unit() { return this.calls?.head.golden === null ? "" : " " + this.calls?.head.sizeName; }
  /**
   * Which call is under the pointer, and how large its error is.
   * @param {number} clientX
   */
  tell(clientX) {
    const { calls } = this;
    if (!calls || !calls.count) return;
    const i = this.nearest(clientX), box = this.root.getBoundingClientRect(), size = /** @type {number} */ (calls.size[i]);
    const said = Number.isNaN(size) ? "not measured" : calls.head.golden === null ? say("largest value {}", short(size)) : say("{} roundings", short(size));
    this.tip.replaceChildren(el("b", { translate: "no" }, clean(calls.name(i), 120)), el("div", {}, say("call {}", grouped(i)), ", ", el("span", {}, calls.classWords(i)), ", ", el("span", {}, said)));
    this.tip.hidden = false;
    const x = clientX - box.left, width = this.tip.offsetWidth;
    this.tip.style.left = `${Math.max(0, Math.min(box.width - width, x > box.width / 2 ? x - width - 12 : x + 12))}px`;
  }
  /** @param {WheelEvent} e */
  wheeled(e) {
    e.preventDefault();
    const perPixel = (this.to - this.from) / Math.max(1, this.marks.clientWidth);
    if (e.shiftKey || Math.abs(e.deltaX) > Math.abs(e.deltaY)) this.range(this.from + (e.deltaX || e.deltaY) * perPixel, this.to + (e.deltaX || e.deltaY) * perPixel);
    else this.zoom(Math.exp(e.deltaY * 0.002), this.callAt(e.clientX));
  }
  /**
   * One finger moves the range, two fingers zoom.
   * @param {PointerEvent} e
   */
  dragged(e) {
    const before = this.fingers.get(e.pointerId);
    if (before === undefined) return this.tell(e.clientX);
    this.tip.hidden = true;
    const by = e.clientX - before, others = [...this.fingers].filter(([id]) => id !== e.pointerId);
    this.moved = (this.moved || 0) + Math.abs(by);
    this.fingers.set(e.pointerId, e.clientX);
    if (others.length) {
      const other = others[0][1];
      if (Math.abs(e.clientX - other) > 8) this.zoom(Math.abs(before - other) / Math.abs(e.clientX - other), this.callAt(other));
    } else {
      const calls = (by * (this.to - this.from)) / Math.max(1, this.marks.clientWidth);
      this.range(this.from - calls, this.to - calls);
    }
  }

  /**
   * The largest size of each class and the worst class for each pixel, for one direction.
   * @param {number} width pixels
   * @param {boolean} backward
   */
  columnsOf(width, backward) {
    const calls = /** @type {Calls} */ (this.calls), kinds = calls.classes.length, span = this.to - this.from;
    const peak = new Float32Array(width * kinds).fill(-1), worst = new Int8Array(width).fill(-1);
    for (let i = Math.floor(this.from); i < Math.min(calls.count, Math.ceil(this.to)); i++) {
      const direction = calls.form[i] >> 2;
      if ((direction === 1 || direction === 2) !== backward) continue;
      const x = Math.max(0, Math.min(width - 1, Math.floor(((i - this.from) / span) * width))), k = calls.kind[i];
      if (calls.size[i] > peak[x * kinds + k]) peak[x * kinds + k] = calls.size[i];
      if (worst[x] < 0 || calls.classes[k].rank > calls.classes[worst[x]].rank) worst[x] = k;
    }
    return { peak, worst };
  }
  draw() {
    const calls = this.calls, scale = devicePixelRatio || 1;
    const width = Math.round(this.root.clientWidth * scale), height = Math.round(this.root.clientHeight * scale);
    if (!calls || !width || !height) return;
    for (const canvas of [this.image, this.marks]) { canvas.width = width; canvas.height = height; }
    const pen = /** @type {CanvasRenderingContext2D} */ (this.image.getContext("2d"));
    const css = getComputedStyle(document.documentElement);
    const color = (/** @type {string} */ name) => css.getPropertyValue(name).trim();
    const kinds = calls.classes.length, low = this.low || 0, high = this.high || 1;
    const lane = (height - ribbon * scale) / 2, wide = Math.max(1, Math.floor(width / (this.to - this.from)) - 1);
    const share = (/** @type {number} */ size) => Math.max(0.02, Math.min(1, (Math.log10(size) - low) / (high - low)));
    const exponents = [];
    for (let e = Math.ceil((low + 1) / 2) * 2; e <= high; e += Math.max(2, Math.ceil((high - low) / 4))) {
      pen.fillStyle = color("--line");
      const up = lane - share(10 ** e) * (lane - 14 * scale);
      pen.fillRect(0, up, width, 1);
      pen.fillRect(0, height - up, width, 1);
      exponents.push(e);
    }
    const order = calls.classes.map((_, k) => k).sort((a, b) => calls.classes[a].rank - calls.classes[b].rank);
    for (const backward of [false, true]) {
      const { peak, worst } = this.columnsOf(width, backward);
      for (const k of order) {
        pen.fillStyle = color("--color" + calls.classes[k].color);
        const thick = Math.min(6 * scale, Math.max(wide, calls.classes[k].rank === worstRank ? 3 * scale : 1));
        const aside = Math.max(0, (width / (this.to - this.from) - thick) / 2); // in the middle of the call's room
        for (let x = 0; x < width; x++) {
          const size = peak[x * kinds + k];
          if (size < 0) continue;
          const tall = size > 0 ? share(size) * (lane - 14 * scale) : scale;
          pen.fillRect(x + aside, backward ? height - lane : lane - tall, thick, tall);
        }
      }
      for (let x = 0; x < width; x++) {
        if (worst[x] < 0) continue;
        pen.fillStyle = color("--color" + calls.classes[worst[x]].color);
        pen.fillRect(x, backward ? lane + (ribbon * scale) / 2 : lane, wide, (ribbon * scale) / 2 - 1);
      }
    }
    pen.font = `${10 * scale}px system-ui, sans-serif`;
    let above = -Infinity; // the text above
    for (const e of exponents.reverse()) {
      // The highest one names the axis.
      const text = above === -Infinity ? `1e${e} ${drawn.text(calls.head.sizeName)}` : "1e" + e, at = lane - share(10 ** e) * (lane - 14 * scale) - 2 * scale;
      if (at - above < 11 * scale) continue;
      above = at;
      pen.fillStyle = color("--ground");
      pen.fillRect(0, at - 9 * scale, pen.measureText(text).width + 5 * scale, 11 * scale);
      pen.fillStyle = color("--quiet");
      pen.fillText(text, 3 * scale, at);
    }
    pen.fillStyle = color("--quiet");
    pen.textAlign = "right";
    pen.fillText(drawn.text("forward"), width - 4 * scale, 11 * scale);
    pen.fillText(drawn.text("backward"), width - 4 * scale, height - 4 * scale);
    pen.textAlign = "left";
    this.mark();
  }
  /** The selected call and the first divergence, above the image. */
  mark() {
    const calls = this.calls, pen = /** @type {CanvasRenderingContext2D} */ (this.marks.getContext("2d"));
    const width = this.marks.width, height = this.marks.height, scale = devicePixelRatio || 1;
    pen.clearRect(0, 0, width, height);
    if (!calls || !width) return;
    const css = getComputedStyle(document.documentElement);
    const line = (/** @type {number} */ i, /** @type {string} */ color, /** @type {string} */ text) => {
      if (i < this.from || i >= this.to) return;
      const x = ((i + 0.5 - this.from) / (this.to - this.from)) * width, right = x > width * 0.7;
      pen.fillStyle = css.getPropertyValue(color).trim();
      pen.fillRect(x, 0, scale, height);
      pen.font = `${11 * scale}px system-ui, sans-serif`;
      pen.textAlign = right ? "right" : "left";
      // At the right edge stands "forward", at the left the scale.
      pen.fillText(text, right ? Math.min(x - 4 * scale, width - pen.measureText(drawn.text("forward")).width - 10 * scale) : Math.max(x + 4 * scale, 110 * scale), 11 * scale);
    };
    if (this.selected >= 0 && this.selected !== calls.head.first) line(this.selected, "--ink", "");
    if (calls.head.first >= 0) line(calls.head.first, "--color2", (calls.head.golden === null ? drawn.text("first NaN or infinity") : drawn.text("first divergence")) + (calls.size[calls.head.first] > 0 ? " " + short(calls.size[calls.head.first]) + drawn.text(this.unit()) : ""));
  }
  /** @param {number} i */
  select(i) {
    this.selected = i;
    if (i >= 0 && (i < this.from || i >= this.to)) this.range(i - (this.to - this.from) / 2, i + (this.to - this.from) / 2);
    else this.mark();
  }
}
