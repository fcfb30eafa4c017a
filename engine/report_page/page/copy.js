// @ts-check
// The selected call as Markdown: all that a ticket needs.
import { measured, relative, statistics, verdicts } from "./call.js";
import { drawn, say, told } from "./language.js";
import { clean, short } from "./text.js";

/** @typedef {import("./call.js").CallView["shown"]} Shown */

const longestName = 100000; // characters of a name; a dump may be hostile

/**
 * Text between the marks of Markdown and HTML, which it does not have itself.
 * @param {string} text
 */
const plain = (text) => clean(text, longestName).replace(/[\\`*_[\]|~<>]/g, "\\$&");
const code = (/** @type {string} */ text) => {
  const whole = clean(text, longestName), ticks = "`".repeat(1 + Math.max(0, ...[...whole.matchAll(/`+/g)].map(([run]) => run.length)));
  return ticks.length > 1 ? `${ticks} ${whole} ${ticks}` : ticks + whole + ticks;
};

/**
 * What is wrong, where, why, and what to do next.
 * @param {NonNullable<Shown>} shown
 */
function headOf({ calls, i, values, place }) {
  const { head } = calls, first = i === head.first, [line, caller] = place;
  const where = [["step", head.step], ["rank", head.rank]].filter(([, n]) => n >= 0).map(([word, n]) => `${word} ${n}`).join(", ");
  const path = calls.path(calls.module[i] ?? 0), partner = calls.partner(i);
  const out = [`**${drawn.text(calls.classWords(i))}** ${code(calls.name(i))}${where ? `, ${where}` : ""}`, ""];
  const fact = (/** @type {string} */ label, /** @type {string} */ text) => { if (text) out.push(`- ${drawn.text(label)}: ${text}`); };
  fact("line", line && code(line));
  fact("called from", caller && code(caller));
  fact("in the golden", first && head.goldenLine ? code(head.goldenLine) : partner && code(partner));
  fact("in module", path && code(path));
  for (const v of values || []) if (v.verdict === 2 && v.maker >= 0) fact("made by", `${code(calls.name(v.maker))} (${plain(v.label)})`);
  fact("why", first ? plain(drawn.text(told(head.why, longestName))) : calls.inheritedFrom ? plain(drawn.text(say("inherited from step {}", calls.inheritedFrom))) : "");
  fact("next", first ? plain(drawn.text(told(head.advice, longestName))) : "");
  if (!first && head.first >= 0) fact("first divergence", code(calls.name(head.first)) + (head.source ? ", " + code(head.source) : ""));
  fact("target", code(head.target));
  if (head.golden !== null) fact("golden", code(head.golden));
  return out;
}

/**
 * The rows of a value: its numbers on both sides where they differ.
 * @param {ReturnType<import("./call.js").valueOf>} v
 * @param {boolean} both whether there are two sides
 */
function rowsOf(v, both) {
  const t = v.target || [], g = v.golden || [], rows = /** @type {string[]} */ ([]);
  const isTensor = (v.target || v.golden)?.[0] === "t";
  const lines = /** @type {[string, number][]} */ (isTensor ? [["dtype", 1], ["shape", 2], ...statistics] : [["value", 11]]);
  for (const [name, at] of lines) {
    const a = t[at] ?? (v.target || !both ? "" : "not there"), b = g[at] ?? (v.golden ? "" : "not there");
    if (both ? a === b : !a) continue;
    rows.push(both ? `| ${plain(v.label)} | ${name} | ${plain(a)} | ${plain(b)} | ${relative(a, b)} | ${short(v.severity)} |` : `| ${plain(v.label)} | ${name} | ${plain(a)} |`);
  }
  for (const [name, value] of Object.entries(both && v.elements && v.verdict !== 0 ? v.elements : {}))
    rows.push(`| ${plain(v.label)} | ${plain(name)} | | | ${plain(typeof value === "number" ? measured(value) : String(value))} | |`);
  if (v.reason) rows.push(`| ${plain(v.label)} | ${both ? drawn.text(String(verdicts[v.verdict]?.[1])) : ""} | ${plain(drawn.text(told(v.reason, longestName)))}${both ? " | | | |" : " |"}`);
  return rows;
}

/**
 * @param {NonNullable<Shown>} shown
 * @returns {string}
 */
export function markdownOf(shown) {
  const { calls, values } = shown, both = calls.head.golden !== null, out = headOf(shown);
  const rows = (values || []).filter((v) => !both || v.verdict !== 0).flatMap((v) => rowsOf(v, both));
  if (rows.length) {
    out.push("", both ? "| value | | target | golden | difference | roundings |" : "| value | | recorded |", both ? "| --- | --- | --- | --- | --- | --- |" : "| --- | --- | --- |", ...rows);
    const equal = (values || []).filter((v) => v.verdict === 0).length;
    if (both && equal) out.push("", drawn.text(say("{} other values of this call are equal", equal)));
  } else if (both && values?.length) {
    out.push("", drawn.text("All recorded values of this call are equal."));
  }
  return out.join("\n") + "\n";
}

/**
 * @param {string} text
 * @returns {Promise<boolean>}
 */
export async function copyText(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    const area = document.createElement("textarea");
    area.value = text;
    document.body.append(area);
    area.select();
    const done = document.execCommand("copy");
    area.remove();
    return done;
  }
}
