// @ts-check
// How the values of the selected call are known to be the golden's, or that they are not.
import { told } from "./language.js";
import { el } from "./text.js";

/**
 * @param {any[]|null} proof of AppendProofs in part_of_comparison.cc; null: it is not in the page
 */
export function proofView(proof) {
  if (!proof) return el("p", { class: "quiet" }, "The proof of this call is not in the page: it would be too large. msprobe compare --why CALL prints it.");
  const [more, ...lines] = proof, root = el("ul", {});
  /** @type {HTMLElement[]} */
  const lists = [root]; // of each depth the one that was begun last
  for (const [depth, exposed, sentence] of lines) {
    const below = el("ul", {}), wrong = "a result of the step is made of it, with nothing right between";
    const item = el("li", { class: exposed ? "wrong" : null }, el("span", {}, told(sentence, 1000)), exposed ? el("small", {}, wrong) : null, below);
    (lists[depth] || root).append(item);
    lists.length = depth + 1;
    lists.push(below);
  }
  return el("details", { class: "proof" }, el("summary", {}, "How this is known"), root, more ? el("p", { class: "quiet" }, "What is farther away is left out: select one of these calls to see more.") : null);
}
