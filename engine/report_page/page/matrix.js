// @ts-check
// Steps and ranks as a matrix, made of the table that is in the page without JavaScript.
import { joined } from "./language.js";
import { el } from "./text.js";

/**
 * The sign of a verdict, and its colour in style.css.
 * @type {Record<string, [string, number]>}
 */
const signs = { equal: ["=", 0], noise: ["≈", 1], "structure": ["≠", 4], unknown: ["?", 4], differs: ["✕", 2], error: ["!", 2] };

/**
 * @param {(part: number) => void} onPick
 * @returns {HTMLElement|null} null: there is one pair of dumps
 */
export function matrixOf(onPick) {
  const table = document.getElementById("pairs");
  if (!table) return null;
  const rows = [.../** @type {NodeListOf<HTMLElement>} */ (table.querySelectorAll("tbody tr"))];
  const parts = rows.map((row) => ({ part: Number(row.dataset.part), step: Number(row.dataset.step), rank: Number(row.dataset.rank), verdict: row.children[2].textContent || "", first: row.children[3].textContent || "", inherited: row.dataset.inherited !== undefined }));
  const steps = [...new Set(parts.map((p) => p.step))], ranks = [...new Set(parts.map((p) => p.rank))];
  const byPlace = new Map(parts.map((p) => [`${p.step},${p.rank}`, p]));
  // The longer side goes to the right.
  const wide = steps.length > ranks.length, [across, down] = wide ? [steps, ranks] : [ranks, steps];
  const number = (/** @type {number} */ n) => (n < 0 ? "" : String(n));
  const head = el("tr", {}, el("th", {}, wide ? "rank \\ step" : "step \\ rank"), ...across.map((n) => el("th", { scope: "col" }, number(n))));
  const body = down.map((row) => el("tr", {}, el("th", { scope: "row" }, number(row)), ...across.map((column) => {
    const [step, rank] = wide ? [column, row] : [row, column], p = byPlace.get(`${step},${rank}`);
    if (!p) return el("td");
    // A later step only carries on what an earlier one began.
    const [sign, color] = p.inherited ? ["↳", 3] : signs[p.verdict] || ["?", 4];
    // A run that is not distributed has no rank, and one dump a side no step.
    const where = /** @type {[string, number][]} */ ([["step", step], ["rank", rank]]).filter(([, n]) => number(n) !== "").map(([word, n]) => `${word} ${n}`).join(", ");
    const words = joined([where, p.verdict], ": ");
    return el("td", {}, el("button", { class: "color" + color, "data-part": p.part, title: joined([words, p.first], ", "), "aria-label": words, onclick: () => onPick(p.part) }, sign));
  })));
  table.hidden = true;
  const matrix = el("div", { id: "matrix" }, el("div", {}, el("p", { class: "quiet" }, "Steps and ranks: choose one to see its calls."), el("table", {}, el("thead", {}, head), el("tbody", {}, ...body))));
  table.after(matrix);
  return matrix;
}
