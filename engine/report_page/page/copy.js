// @ts-check
// The selected call as Markdown.
import { relative } from "./call.js";
import { clean, short } from "./text.js";

/**
 * Text in a cell of a table: no markup of Markdown or HTML.
 * @param {string} text
 */
const cell = (text) => clean(text, 200).replace(/[\\`*_[\]|~<>]/g, "\\$&");

/**
 * @param {{calls: import("./calls.js").Calls, i: number, values: any[]|null, frames: any[][]}} shown
 * @returns {string}
 */
export function markdownOf({ calls, i, values, frames }) {
  const code = (/** @type {string} */ text) => "`" + clean(text, 1000).replaceAll("`", "'") + "`";
  const out = [`**${calls.classOf(i).name}** ${code(calls.name(i))}`, ""];
  const path = calls.path(calls.module[i]);
  if (path) out.push(`- in module ${code(path)}`);
  if (calls.partner(i)) out.push(`- in the golden ${code(calls.partner(i))}`);
  if (i === calls.head.first && calls.head.source) out.push(`- ${code(calls.head.source)}`);
  else if (frames.length && frames[0].length >= 4) out.push(`- ${code(`${frames[0][0]}:${frames[0][1]} in ${frames[0][2]}: ${frames[0][3].trim()}`)}`);
  if (i === calls.head.first && calls.head.why) out.push(`- ${cell(calls.head.why)}`);
  out.push(`- target ${code(calls.head.target)}` + (calls.head.golden === null ? "" : `, golden ${code(calls.head.golden)}`));
  if (values && values.length) {
    out.push("", "| value | | target | golden | difference | roundings |", "| --- | --- | --- | --- | --- | --- |");
    for (const v of values) {
      const t = v.target || [], g = v.golden || [];
      const lines = (v.target || v.golden)[0] === "t" ? [["max", 3], ["min", 4], ["mean", 5], ["norm", 6]] : [["value", 11]];
      for (const [name, at] of lines) {
        if (t[at] || g[at]) out.push(`| ${cell(v.label)} | ${name} | ${cell(t[at] || "")} | ${cell(g[at] || "")} | ${relative(t[at], g[at])} | ${short(v.severity)} |`);
      }
    }
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
