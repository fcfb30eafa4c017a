// @ts-check
// Small charts of numbers over the steps of two runs.
import { joined, say } from "./language.js";
import { svg } from "./svg.js";
import { el, short } from "./text.js";

const chartWide = 340, chartTall = 104, chartLeft = 52, chartRight = 8, chartTop = 8, chartBottom = 18;
const mostPoints = 200; // that have a name and can be chosen

/**
 * A step of an axis of numbers: its name for people.
 * @param {number} value
 */
export const tick = (value) => (value !== 0 && (Math.abs(value) >= 1e4 || Math.abs(value) < 1e-3) ? value.toExponential(2) : String(Number(value.toPrecision(4))));

/**
 * A small chart of lines over steps.
 * @param {string} title
 * @param {number[]} steps
 * @param {{name: string, values: number[]}[]} lines
 * @param {{low?: number, high?: number, at: number, log?: boolean, value?: (x: number) => string, recorded?: (i: number) => boolean, onPick?: (i: number) => void}} how `at`: index of the chosen step; `log`: by log10(1 + x); `value`: a number with its unit; `recorded`: whether both runs recorded a number in a step, so that NaN is its value
 * @returns {HTMLElement}
 */
export function chart(title, steps, lines, how) {
  const scale = (/** @type {number} */ v) => (how.log ? Math.log10(1 + v) : v), known = lines.flatMap((line) => line.values.filter(Number.isFinite));
  let low = how.low ?? Math.min(...known), high = how.high ?? Math.max(...known);
  if (!known.length) low = high = 0;
  if (low === high) [low, high] = how.log ? [0, Math.max(1, high)] : [low - (Math.abs(low) || 1) * 0.01, high + (Math.abs(high) || 1) * 0.01];
  const first = steps[0], all = steps[steps.length - 1] - first || 1;
  const x = (/** @type {number} */ i) => chartLeft + ((steps[i] - first) / all) * (chartWide - chartLeft - chartRight);
  const y = (/** @type {number} */ v) => chartTop + (1 - (scale(Math.min(v, high)) - scale(low)) / (scale(high) - scale(low) || 1)) * (chartTall - chartTop - chartBottom);
  const absent = (/** @type {number} */ i) => (how.recorded?.(i) ? "NaN" : "not recorded");
  const drawing = svg("svg", { viewBox: `0 0 ${chartWide} ${chartTall}`, role: "img", "aria-label": joined([title, ...lines.map((line) => joined([line.name, joined(line.values.slice(0, 20).map((v, i) => short(v) || absent(i)), ", ")], ": "))], "; ") });
  for (const value of [low, high]) {
    drawing.append(svg("path", { class: "axis", d: `M${chartLeft} ${y(value)}H${chartWide - chartRight}` }), svg("text", { x: chartLeft - 4, y: y(value) + 4, "text-anchor": "end" }, tick(value)));
  }
  drawing.append(svg("text", { x: chartLeft, y: chartTall - 4 }, String(first)), svg("text", { x: chartWide - chartRight, y: chartTall - 4, "text-anchor": "end" }, `step ${steps[steps.length - 1]}`));
  drawing.append(svg("path", { class: "at", d: `M${x(how.at)} ${chartTop}V${chartTall - chartBottom}` }));
  for (const { name, values } of lines) {
    let path = "", drawn = false;
    values.forEach((value, i) => {
      const there = !Number.isNaN(value);
      if (there) path += `${drawn ? "L" : "M"}${x(i).toFixed(1)} ${y(value).toFixed(1)}`;
      if (there && !drawn && (i + 1 === values.length || Number.isNaN(values[i + 1]))) drawing.append(svg("circle", { class: name, cx: x(i), cy: y(value), r: 2 }));
      drawn = there;
    });
    drawing.append(svg("path", { class: "curve " + name, d: path }));
    const nan = values.findIndex((value, i) => Number.isNaN(value) && absent(i) === "NaN");
    if (nan >= 0) drawing.append(svg("text", { class: "nan " + name, x: x(nan), y: name === lines[0]?.name ? chartTop + 12 : chartTop + 26, "text-anchor": nan * 2 > steps.length ? "end" : "start" }, "NaN"));
  }
  const apart = (chartWide - chartLeft - chartRight) / Math.max(1, steps.length - 1);
  for (let i = 0; steps.length <= mostPoints && i < steps.length; i++) {
    const values = lines.map((line) => (Number.isNaN(line.values[i]) ? absent(i) : (how.value ?? String)(Number(Number(line.values[i]).toPrecision(7)))));
    const said = lines.length > 1 ? say("step {}: target {}, golden {}", steps[i] ?? "", ...values) : joined([`step ${steps[i]}`, ...values], ": ");
    drawing.append(svg("rect", { class: "point", "data-i": i, x: x(i) - apart / 2, y: 0, width: Math.max(2, apart), height: chartTall }, svg("title", {}, said)));
  }
  if (how.onPick) drawing.addEventListener("click", (e) => { const i = /** @type {Element} */ (e.target).getAttribute("data-i"); if (i !== null) how.onPick?.(Number(i)); });
  return el("figure", { class: how.onPick ? "chosen-by-click" : null }, el("figcaption", {}, title, ...(lines.length > 1 ? lines.map((line) => el("span", { class: "of-" + line.name }, " " + line.name)) : [])), /** @type {any} */ (drawing));
}
