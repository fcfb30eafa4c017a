// @ts-check
// The selected call: its values on both sides, where they came from and went to, and its stack.
import { sideWords } from "./calls.js";
import { elementsOf } from "./elements.js";
import { joined, say, told } from "./language.js";
import { nearGraph } from "./near.js";
import { proofView } from "./proof.js";
import { clean, el, grouped, named, short } from "./text.js";

/** @typedef {import("./calls.js").Calls} Calls */

/** Of AppendSide in page_values.h. */
export const statistics = [["max", 3], ["min", 4], ["mean", 5], ["norm", 6], ["NaN", 7], ["+inf", 8], ["-inf", 9], ["zeros", 10]];
export const verdicts = [["=", "equal", 0], ["≈", "within rounding", 1], ["✕", "differs", 2], ["?", "unknown", 4]];

/**
 * A row of a call as an object.
 * @param {any[]} row
 */
export function valueOf(row) {
  const [label, verdict, severity, target, golden, reason, maker, takers, elements, found] = row;
  return { label, verdict, severity: severity === null ? NaN : Number(severity === "inf" ? Infinity : severity), target, golden: golden === 0 ? target : golden, reason, maker, takers: takers || [], elements: elements || null, found };
}

/**
 * 7 digits of a spelled number.
 * @param {string|undefined} text
 */
function digits(text) {
  if (text === undefined || text === "" || text === "null") return "";
  const value = Number(text);
  return Number.isFinite(value) && text.length > 9 ? String(Number(value.toPrecision(7))) : clean(text, 40);
}

/**
 * A distance: seven digits, and no row of zeros.
 * @param {number} value
 */
export function measured(value) {
  const size = Math.abs(value), plain = Number.isInteger(value) ? size < 1e9 : size >= 1e-4 && size < 1e6;
  return value === 0 || plain ? String(Number(value.toPrecision(9))) : value.toExponential(4).replace(/\.?0+e/, "e");
}

/**
 * @param {string|undefined} target
 * @param {string|undefined} golden
 */
export function relative(target, golden) {
  const a = Number(target), b = Number(golden);
  if (!target || !golden || target === golden || !Number.isFinite(a) || !Number.isFinite(b)) return "";
  const part = Math.abs((a - b) / b);
  if (part === Infinity) return "";
  if (part < 1e-3) return part.toExponential(1);
  return (part < 0.995 ? (100 * part).toPrecision(2) : short(100 * part)) + "%";
}

/** @param {any[]|null} side */
const describe = (side) => (side === null ? "not there" : side[0] === "n" ? "None" : `${clean(side[1], 60).replace("torch.", "")} ${clean(side[2], 80)}`.trim());

export class CallView {
  /**
   * @param {(i: number) => void} onGo
   * @param {() => void} onCopy
   * @param {(number: number) => void} onRegion shows the calls of a region
   */
  constructor(onGo, onCopy, onRegion) {
    this.onGo = onGo;
    this.onCopy = onCopy;
    this.onRegion = onRegion;
    this.root = el("aside", { id: "call", "aria-live": "polite", "aria-label": "the selected call", tabindex: "0" });
  }
  /**
   * @param {Calls} calls
   * @param {number} i
   */
  async show(calls, i) {
    this.calls = calls;
    const asked = (this.asked = Symbol()), fromGraph = this.root.querySelector(".near")?.contains(document.activeElement);
    const [rows, frames, place, proof] = await Promise.all([calls.values(i), calls.frames(i), calls.place(i), calls.proof(i)]);
    if (asked !== this.asked) return; // another call was selected meanwhile
    const values = rows ? rows.map(valueOf) : null, look = calls.classOf(i), side = sideWords[calls.sides[i]];
    const partner = calls.partner(i), forward = calls.forwardOf(i), path = calls.path(calls.module[i]);
    this.shown = { calls, i, values, frames, place };
    const numbers = values && values.length ? this.table(values) : el("p", { class: "quiet" }, values ? "Nothing was recorded of its values." : "The values of this call are not in the page: it would be too large. The table of the comparison has them.");
    this.root.replaceChildren(
      el("h2", {}, el("span", { class: "badge color" + look.color }, calls.classWords(i)), " ", el("span", { translate: "no" }, clean(calls.name(i), 2000))),
      el("p", { class: "quiet" }, say("call {} of {}", grouped(i), grouped(calls.count)), side && look.name !== "unknown" ? ", " : null, side && look.name !== "unknown" ? el("span", {}, side) : null, path ? ", module " : null, path ? el("span", { translate: "no" }, clean(path, 300)) : null, partner ? ", in the golden " : null, partner ? el("span", { translate: "no" }, clean(partner, 300)) : null),
      i === calls.head.first && calls.head.why ? el("p", { class: "why" }, told(calls.head.why)) : "",
      calls.inheritedFrom ? el("p", { class: "why" }, say("What differs in this step is inherited from step {}: no call of it is the first divergence.", calls.inheritedFrom)) : "",
      forward >= 0 ? el("p", {}, el("small", { class: "quiet" }, "backward of "), this.link(forward, "←")) : "",
      this.region(calls, i),
      numbers,
      calls.head.proofs && side !== "only in the golden" && look.name !== "equal" ? proofView(proof) : "",
      el("div", { id: "around" }),
      this.stack(frames),
      el("p", { class: "buttons" }, el("button", { onclick: () => this.onCopy() }, "Copy as Markdown"), el("span", { id: "copied", role: "status" })),
    );
    // It needs the values of other calls: the call itself is shown first.
    const graph = await nearGraph(calls, i, this.onGo);
    if (asked !== this.asked || !graph) return;
    this.root.querySelector("#around")?.replaceChildren(graph);
    if (fromGraph) this.focusGraph();
  }
  /** Moves the focus to the selected call in the graph around it. */
  focusGraph() {
    /** @type {HTMLElement|null} */ (this.root.querySelector(".near-call[aria-current]"))?.focus();
  }
  /**
   * The call that made the wrong input of the selected call, else the forward call of a backward call,
   * whose values that uses, else a call that made an input; and the first that takes its result. -1: not known.
   * An error that a call inherits does not come from a call that is right.
   */
  links() {
    const values = this.shown?.values || [], made = values.filter((v) => v.maker >= 0);
    const shown = this.shown, name = (/** @type {number} */ i) => (shown && i >= 0 ? shown.calls.classOf(i).name : "");
    const candidates = [made.find((v) => v.verdict === 2)?.maker ?? -1, shown ? shown.calls.forwardOf(shown.i) : -1, made[0]?.maker ?? -1];
    const inherits = shown && name(shown.i) === "inherited";
    return { upstream: candidates.find((i) => i >= 0 && !(inherits && ["equal", "noise"].includes(name(i)))) ?? -1, downstream: values.find((v) => v.takers.length)?.takers[0] ?? -1 };
  }
  /**
   * @param {number} i
   * @param {string} sign
   */
  link(i, sign) {
    const calls = /** @type {Calls} */ (this.calls);
    return el("button", { class: "link color" + calls.classOf(i).color, translate: "no", "data-go": i, onclick: () => this.onGo(i) }, `${sign} ${clean(calls.name(i), 120)}`);
  }
  /**
   * The other calls of the region in which the two runs make other calls.
   * @param {Calls} calls
   * @param {number} i
   */
  region(calls, i) {
    const region = calls.regionOf(i), most = 24;
    if (!region) return "";
    const title = region.wrong ? "Here the two runs make different calls, and a wrong value comes out" : "Part of a rewrite: other calls, and their results agree";
    const side = (/** @type {string|[string, string]} */ calledThere) => el("span", { translate: Array.isArray(calledThere) ? null : "no" }, told(calledThere, 300));
    const words = region.target || region.golden ? ["target: ", side(region.target), "; golden: ", side(region.golden)] : null;
    const others = region.calls.filter((other) => other !== i), shown = others.slice(0, most);
    return el("details", { class: "region", open: true }, el("summary", {}, title), words ? el("p", {}, ...words) : null,
      ...shown.map((other) => el("div", {}, this.link(other, calls.classOf(other).sign), el("small", { class: "quiet" }, sideWords[calls.sides[other]] ? ` ${sideWords[calls.sides[other]]}` : ""))),
      others.length > most ? el("p", { class: "quiet" }, say("and {} more", grouped(others.length - most))) : null,
      el("button", { onclick: () => this.onRegion(region.number) }, region.calls.length === 1 ? say("Show region {} in the table", region.number) : say("Show the {} calls of region {} in the table", grouped(region.calls.length), region.number)));
  }
  /** @param {ReturnType<typeof valueOf>[]} values */
  table(values) {
    const both = this.calls?.head.golden !== null;
    const head = ["", ...(both ? ["target", "golden", "difference"] : ["recorded"])];
    return el("div", { class: "wide" }, el("table", { class: "values" }, el("thead", {}, el("tr", {}, ...head.map((h) => el("th", { scope: "col" }, h)))), ...values.map((v) => this.group(v, both))));
  }
  /**
   * The rows of one value, below its name. 
   * @param {ReturnType<typeof valueOf>} v
   * @param {boolean} both
   */
  group(v, both) {
    const [sign, word, color] = verdicts[v.verdict] || verdicts[3];
    const t = v.target, g = v.golden, lines = [];
    const cells = (/** @type {string} */ name, /** @type {string|undefined} */ a, /** @type {string|undefined} */ b) => {
      if (!a && !b) return;
      const other = both && t && g && a !== b;
      lines.push([el("td", {}, name), el("td", { class: other ? "other" : null }, digits(a)), ...(both ? [el("td", { class: other ? "other" : null }, digits(b)), el("td", {}, relative(a, b))] : [])]);
    };
    if ((t || g)?.[0] === "t") for (const [name, at] of statistics) cells(String(name), t?.[at], g?.[at]);
    else cells("value", t?.[11] ?? (t ? "None" : ""), g?.[11] ?? (g ? "None" : ""));
    const said = v.found ? /^(unequal )?elements$|^worst / : /^$/; // by what is counted
    // The distances of equal values are all 0.
    if (v.elements && v.verdict !== 0) for (const [name, value] of Object.entries(v.elements)) if (!said.test(name)) lines.push([el("td", { class: "quiet" }, clean(name, 40)), el("td", { colspan: both ? 3 : 1 }, clean(typeof value === "number" ? measured(value) : String(value), 60))]);
    const counted = elementsOf(v.found);
    if (counted) lines.push([el("td", { colspan: both ? 4 : 2 }, counted)]);
    const sides = both && describe(t) !== describe(g) ? joined([describe(t), describe(g)], " | ") : describe(t || g);
    const facts = [sides, both && v.severity > 0 ? say("{} roundings", short(v.severity)) : "", told(v.reason, 300)];
    const head = el("th", { colspan: both ? 4 : 2, scope: "rowgroup" }, both ? el("span", { class: "color" + color, title: String(word) }, sign + " ") : null, el("span", { translate: "no" }, clean(v.label, 120)), " ", el("small", {}, joined(facts, ", ")),
      v.maker >= 0 ? el("div", {}, el("small", {}, "made by "), this.link(v.maker, "←")) : null,
      ...v.takers.map((/** @type {number} */ taker) => el("div", {}, el("small", {}, "taken by "), this.link(taker, "→"))));
    return el("tbody", { class: "color" + color + (v.verdict === 2 ? " wrong" : "") }, el("tr", {}, head), ...lines.map((line) => el("tr", {}, ...line)));
  }
  /** @param {any[][]} frames */
  stack(frames) {
    if (!frames.length) return el("p", { class: "quiet" }, "No stack was recorded for this call.");
    return el("details", { class: "stack", open: true }, el("summary", {}, "Stack, innermost first"), ...frames.map((frame) => {
      if (frame.length < 4) return el("p", {}, el("code", {}, clean(frame[0], 500)));
      const [path, line, where, source, first, around] = frame;
      const place = el("p", {}, el("code", {}, `${clean(path, 300)}:${clean(line, 12)}`), " ", el("span", {}, say("in {}", named(where, 100))));
      const text = around ? around.map((/** @type {string} */ code, /** @type {number} */ k) => el("span", { class: String(first + k) === String(line).trim() ? "here" : "" }, `${String(first + k).padStart(5)}  ${clean(code.replaceAll("\t", "    "), 300)}`)) : [el("span", { class: "here" }, clean(source.trim(), 500))];
      return el("div", {}, place, el("pre", {}, ...text));
    }));
  }
}
