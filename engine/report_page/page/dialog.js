// @ts-check
// The keys, and the list of them that `?` opens.
import { el } from "./text.js";

/** Key, and what it does. The names of the actions are those of main.js. */
export const keys = [
  ["?", "help", "this list"],
  ["f", "first", "the first divergence"],
  ["n", "next", "the next call that introduces an error"],
  ["N", "previous", "the one before"],
  ["j", "down", "the next row (also ↓)"],
  ["k", "up", "the row before (also ↑)"],
  ["u", "upstream", "the call that made the wrong input of this call; of a backward call without one, its forward call"],
  ["d", "downstream", "the first call that takes the result of this call"],
  ["g", "graph", "the calls around this call: arrows move, Enter selects"],
  ["/", "filter", "type a filter"],
  ["x", "clear", "no filter (also Escape)"],
  ["s", "sort", "sort by size of the error, or in order of execution"],
  ["p", "trends", "parameters and outputs over steps: arrows choose a cell, Enter opens that step"],
  ["e", "tree", "the tree of modules"],
  ["+", "closer", "zoom in on the curve, around the selected call"],
  ["-", "farther", "zoom out"],
  ["0", "all", "the whole curve"],
  ["[", "partBefore", "the step or rank before"],
  ["]", "partBehind", "the next step or rank"],
  ["c", "copy", "copy the selected call as Markdown"],
  ["t", "theme", "light or dark"],
  ["l", "language", "English or Chinese"],
];

/** @returns {HTMLDialogElement} */
export function helpDialog() {
  const rows = keys.map(([key, , what]) => el("tr", {}, el("td", {}, el("kbd", {}, key)), el("td", {}, what)));
  const dialog = /** @type {HTMLDialogElement} */ (el("dialog", { id: "help", "aria-label": "keys" }, el("h2", {}, "Keys"), el("table", {}, el("tbody", {}, ...rows)), el("p", { class: "quiet" }, "Escape closes this list. On the curve: wheel zooms, dragging moves, a click selects.")));
  dialog.append(el("button", { onclick: () => dialog.close() }, "Close"));
  return dialog;
}
