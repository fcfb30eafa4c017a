// @ts-check
// The neighbourhood of the selected call as a graph: calls that made its inputs above it, calls that
// took its results below it, two steps each way. A few layers are readable, the whole graph is not.
import { joined, say } from "./language.js";
import { svg } from "./svg.js";
import { clean, el, ends, named } from "./text.js";

/** @typedef {import("./calls.js").Calls} Calls */
/** @typedef {{call: number, layer: number, x: number}} Near */

const hops = 2;
const mostInLayer = 4;
const layerHeight = 44;

/**
 * The calls around call `i`, and the pairs [maker, taker] among them.
 * @param {Calls} calls
 * @param {number} i
 */
export async function neighbours(calls, i) {
  /** @type {Map<number, Near>} */
  const nodes = new Map([[i, { call: i, layer: 0, x: 0.5 }]]);
  /** @type {Map<string, [number, number]>} */
  const edges = new Map();
  let left = 0; // neighbours that are not shown
  for (const side of [-1, 1]) {
    let layer = [i];
    for (let hop = 1; hop <= hops; hop++) {
      /** @type {number[]} */
      const next = [];
      for (const call of layer) {
        for (const row of (await calls.values(call)) || []) {
          const maker = Number(row[6]), takers = /** @type {number[]} */ (row[7] || []);
          for (const other of side < 0 ? (maker >= 0 ? [maker] : []) : takers) {
            if (other === call || !(other < calls.count)) continue;
            if (!nodes.has(other)) {
              if (next.length >= mostInLayer) {
                left++;
                continue;
              }
              next.push(other);
              nodes.set(other, { call: other, layer: side * hop, x: 0 });
            }
            const edge = /** @type {[number, number]} */ (side < 0 ? [other, call] : [call, other]);
            edges.set(edge.join(), edge);
          }
        }
      }
      layer = next;
    }
  }
  place(nodes, [...edges.values()]);
  return { nodes: [...nodes.values()].sort((a, b) => a.layer - b.layer || a.x - b.x), edges: [...edges.values()], left };
}

/**
 * Spreads each layer over the width, in the order of what its calls are joined with: few lines cross.
 * @param {Map<number, Near>} nodes
 * @param {[number, number][]} edges
 */
function place(nodes, edges) {
  for (const layer of [-1, -2, 1, 2]) {
    const inside = [...nodes.values()].filter((node) => node.layer === layer);
    const wanted = new Map(inside.map((node) => {
      const inner = edges.filter((e) => e.includes(node.call)).map((e) => nodes.get(e[0] === node.call ? e[1] : e[0])).filter((n) => n && Math.abs(n.layer) < Math.abs(layer));
      return [node, inner.reduce((sum, n) => sum + (n ? n.x : 0), 0) / Math.max(inner.length, 1)];
    }));
    inside.sort((a, b) => Number(wanted.get(a)) - Number(wanted.get(b)) || a.call - b.call);
    inside.forEach((node, k) => { node.x = (k + 0.5) / inside.length; });
  }
}

/**
 * @param {Calls} calls
 * @param {number} i
 * @param {(i: number) => void} onGo
 * @returns {Promise<HTMLElement|null>} null: nothing is known around the call
 */
export async function nearGraph(calls, i, onGo) {
  const { nodes, edges, left } = await neighbours(calls, i);
  if (nodes.length < 2) return null;
  const top = nodes[0].layer, rows = nodes[nodes.length - 1].layer - top + 1, height = rows * layerHeight;
  const y = (/** @type {Near} */ node) => (node.layer - top + 0.5) * layerHeight;
  const of = new Map(nodes.map((node) => [node.call, node]));
  const lines = svg("svg", { viewBox: `0 0 100 ${height}`, preserveAspectRatio: "none", "aria-hidden": "true" });
  for (const [maker, taker] of edges) {
    const a = of.get(maker), b = of.get(taker);
    if (a && b) lines.append(svg("line", { x1: 100 * a.x, y1: y(a), x2: 100 * b.x, y2: y(b) }));
  }
  const buttons = nodes.map((node) => {
    const look = calls.classOf(node.call), name = clean(calls.name(node.call), 200), here = node.call === i;
    const where = here ? "the selected call" : node.layer < 0 ? "made an input" : "takes a result";
    const button = el("button", { class: "near-call color" + look.color, title: named(name), "aria-label": joined([named(name), calls.classWords(node.call).replace(/^\S /, ""), where], ", "), "aria-current": here ? "true" : null, "data-call": node.call, onclick: () => onGo(node.call) }, ends(`${look.sign} ${name.replace(/^[A-Za-z]+\./, "").replace(/\.(forward|backward)$/, "")}`, 7));
    const width = 96 / nodes.filter((other) => other.layer === node.layer).length;
    button.style.left = `${100 * node.x - width / 2}%`;
    button.style.width = `${width}%`;
    button.style.top = `${y(node) - 12}px`;
    return button;
  });
  const box = el("div", { class: "near", role: "group", "aria-label": "calls around the selected call: above it what made its inputs, below it what takes its results", onkeydown: (/** @type {KeyboardEvent} */ e) => {
    const by = { ArrowUp: -1, ArrowLeft: -1, ArrowDown: 1, ArrowRight: 1 }[e.key];
    if (!by) return;
    buttons[buttons.indexOf(/** @type {HTMLElement} */ (document.activeElement)) + by]?.focus();
    e.preventDefault();
    e.stopPropagation();
  } }, lines, ...buttons);
  box.style.height = `${height}px`;
  return el("details", { class: "around", open: true }, el("summary", {}, "Around this call: inputs from above, results below"), box, left ? el("p", { class: "quiet" }, say("{} more are not drawn.", left)) : null);
}
