// @ts-check
// How the elements of a value differ: their differences by size as bars, and the elements to look at.
import { joined, say } from "./language.js";
import { clean, el, grouped } from "./text.js";

/** A number of the page's JSON: JSON has no infinity and no NaN. */
const spelled = (/** @type {number|string|null} */ value) => (value === null ? "NaN" : clean(String(value), 30));

/**
 * @param {string} title
 * @param {[string, number|string|null, number|string|null][]} places
 */
function placeTable(title, places) {
  const rows = places.map(([place, target, golden]) => el("tr", {}, el("td", {}, clean(place, 60)), el("td", {}, spelled(target)), el("td", {}, spelled(golden))));
  return el("table", { class: "places" }, el("thead", {}, el("tr", {}, el("th", { scope: "col" }, title), el("th", { scope: "col" }, "target"), el("th", { scope: "col" }, "golden"))), el("tbody", {}, ...rows));
}

/**
 * The bars of a histogram, from small to large differences. A bar that counts any element can be seen.
 * @param {{equal: number, nonfinite: number, from: number, counts: number[]}} found
 */
function bars(found) {
  const columns = found.counts.map((count, k) => ({ count, label: `1e${found.from + k}`, what: say("from {} to {}", `1e${found.from + k}`, `1e${found.from + k + 1}`) }));
  if (found.nonfinite) columns.push({ count: found.nonfinite, label: "∞", what: "NaN or infinity" });
  const most = Math.max(1, ...columns.map((column) => column.count));
  const words = joined(columns.filter((column) => column.count).map((column) => joined([column.what, grouped(column.count)], ": ")), "; ");
  return el("div", { class: "bars", role: "img", "aria-label": say("size of the differences, number of elements: {}", words) }, ...columns.map((column) => {
    const bar = el("i"), all = el("div", { title: joined([column.what, say("{} elements", grouped(column.count))], ": ") }, bar, el("small", {}, column.label));
    bar.style.height = column.count ? `${Math.max(2, (48 * column.count) / most)}px` : "0";
    return all;
  }));
}

/**
 * How the elements of both sides are distributed: a pair of bars for each interval of values.
 * @param {{low: number, high: number, target: number[], golden: number[]}} values
 */
function distribution({ low, high, target, golden }) {
  const most = Math.max(1, ...target, ...golden), wide = (high - low) / target.length;
  const edgeText = (/** @type {number} */ k) => String(Number((low + k * wide).toPrecision(4)));
  const pairs = target.map((count, k) => {
    const [ours, theirs] = [["of-target", count], ["of-golden", golden[k] ?? 0]].map(([name, n]) => {
      const bar = el("i", { class: String(name) });
      bar.style.height = n ? `${Math.max(2, (48 * Number(n)) / most)}px` : "0";
      return bar;
    });
    return el("div", { title: say("from {} to {}: {} elements of the target, {} of the golden", edgeText(k), edgeText(k + 1), grouped(count), grouped(golden[k] ?? 0)) }, ours ?? "", theirs ?? "");
  });
  return el("div", {}, el("p", { class: "quiet" }, el("span", {}, "Elements by value:"), " ", el("span", { class: "of-target" }, "target"), " ", el("span", { class: "of-golden" }, "golden")),
    el("div", { class: "bars distribution", role: "img", "aria-label": say("distribution of the elements from {} to {}", edgeText(0), edgeText(target.length)) }, ...pairs),
    el("div", { class: "ends-of-axis quiet" }, el("span", {}, edgeText(0)), el("span", {}, edgeText(target.length))));
}

/**
 * What the page knows of the elements of a value.
 * @param {{equal: number, nonfinite: number, from: number, counts: number[], first?: [string, number, number][], worst?: [string, number, number][], values?: {low: number, high: number, target: number[], golden: number[]}}|0|undefined} found undefined: they were not compared; 0: they were, and not counted
 * @returns {HTMLElement|null}
 */
export function elementsOf(found) {
  if (found === undefined) return null;
  if (found === 0) return el("p", { class: "quiet" }, "The elements of this value were not counted: the page counts those of the calls where a person looks first.");
  const unequal = found.nonfinite + found.counts.reduce((sum, count) => sum + count, 0), all = unequal + found.equal;
  const { first = [], worst = [] } = found;
  return el("details", { class: "elements", open: true }, el("summary", {}, say("{} of {} elements differ, by |target - golden|", grouped(unequal), grouped(all))), bars(found), found.values ? distribution(found.values) : null,
    worst.length ? el("div", { class: "wide" }, placeTable("largest", worst), first.length && first[0][0] !== worst[0][0] ? placeTable("first", first) : null) : null);
}
