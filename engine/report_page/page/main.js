// @ts-check
// Puts the page together, and keeps what is shown in the address: a link shows the same again.
import { CallView } from "./call.js";
import { Calls } from "./calls.js";
import { copyText, markdownOf } from "./copy.js";
import { Curve } from "./curve.js";
import { helpDialog, keys } from "./dialog.js";
import { json } from "./data.js";
import { Panes } from "./drag.js";
import { dumpFilterHelp, filterCalls, filterHelp, sortCalls } from "./filter.js";
import { Language, say } from "./language.js";
import { matrixOf } from "./matrix.js";
import { explainNothing } from "./nearest.js";
import { Table } from "./table.js";
import { breakAtDots, byId, clean, el, grouped } from "./text.js";
import { Tree } from "./tree.js";
import { Trends, placeTrends } from "./trends.js";

class Page {
  constructor() {
    /** @type {Calls|null} */ this.calls = null;
    this.part = Number(byId("finding").dataset.part) || 0;
    breakAtDots(document.querySelector("#finding h1"));
    this.parts = Number(byId("end").dataset.parts);
    this.order = { key: "order", down: false };
    this.selected = -1;
    this.curve = new Curve((i) => this.select(i), () => this.keepSoon());
    this.tree = new Tree((path) => this.setWord("module", path));
    this.table = new Table((i) => this.select(i), (key) => this.sortBy(key), () => this.keepSoon());
    this.view = new CallView((i) => this.select(i), () => this.copy(), (number) => this.setWord("region", String(number)));
    this.panes = new Panes(this.tree.root, this.table.root, this.view.root, () => this.keepSoon());
    this.matrix = matrixOf((part) => this.open(part, true));
    this.chips = el("span", { id: "chips", role: "group", "aria-label": "classes" });
    this.query = /** @type {HTMLInputElement} */ (el("input", { id: "query", type: "search", placeholder: filterHelp, title: filterHelp, "aria-label": "filter", spellcheck: "false", oninput: () => this.filter() }));
    this.shown = el("output", { id: "shown", "aria-live": "polite" });
    this.help = helpDialog();
    /** @type {Trends|null} */ this.trends = null;
    /** @type {import("./trends.js").Losses|null} */ this.losses = null;
    /** @type {Language|null} */ this.language = null;
    this.tongue = el("button", { lang: "zh", translate: "no", onclick: () => this.speak() }, "中文");
    const bar = el("div", { id: "bar" }, this.chips, this.query, this.shown);
    document.querySelector("header")?.append(el("span", { id: "tools" }, el("button", { onclick: () => this.help.showModal() }, "Keys ", el("kbd", {}, "?")), " ", el("button", { onclick: () => this.theme() }, "Light or dark"), " ", this.tongue));
    byId("calls").append(this.curve.root, bar, this.panes.root);
    document.body.append(this.help);
    document.addEventListener("keydown", (e) => this.key(e));
    addEventListener("hashchange", () => { if (location.hash.slice(1) !== this.kept) this.restore(); });
  }

  /**
   * @param {number} part
   * @param {boolean} anew whether the first divergence is selected
   */
  async open(part, anew) {
    if (this.parts === 0) return this.withoutCalls();
    const asked = (this.asked = Symbol());
    const calls = await Calls.load(part);
    if (asked !== this.asked) return;
    this.part = part;
    this.matrix?.querySelectorAll("button").forEach((b) => b.setAttribute("aria-pressed", String(Number(b.dataset.part) === part)));
    this.losses?.show(part);
    this.calls = calls;
    byId("calls").hidden = calls === null;
    byId("state").textContent = calls === null ? "This pair of dumps could not be compared: the table above says why." : "";
    byId("state").hidden = calls !== null;
    if (!calls) return this.keep();
    document.documentElement.classList.add("ready");
    this.curve.show(calls);
    this.tree.show(calls);
    const counts = calls.counts();
    this.chips.replaceChildren(...calls.classes.map((look, k) => el("button", { class: "color" + look.color, "data-class": look.name, title: chipTitle(look.name, counts[k] ?? 0), onclick: () => this.toggleClass(look.name) }, el("i", {}, look.sign), ` ${look.name} `, el("b", {}, grouped(counts[k])))));
    for (const name of ["placeholder", "title"]) this.query.setAttribute(name, calls.head.golden === null ? dumpFilterHelp : filterHelp);
    this.selected = -1;
    this.filter();
    document.documentElement.classList.toggle("empty", calls.count === 0);
    if (anew && calls.count) this.select(Math.max(0, calls.head.firstInStep ?? calls.head.first));
  }

  /** A page of gradients has parameters over steps, and no calls. */
  withoutCalls() {
    byId("state").hidden = true;
    if (!this.trends) return;
    this.trends.root.open = true;
    const { parameter, step, rank } = byId("finding").dataset;
    if (parameter !== undefined && !this.trendOfAddress) this.trends.chooseNamed(parameter, Number(step), Number(rank));
  }
  async loadTrends() {
    const { trends, losses } = await Trends.load((part, call) => this.openCall(part, call), () => this.keepSoon());
    this.trends = trends;
    this.losses = losses;
    placeTrends(trends, losses);
  }
  /**
   * @param {number} part
   * @param {number} call
   */
  async openCall(part, call) {
    if (part !== this.part) await this.open(part, false);
    this.select(call);
    this.view.root.scrollIntoView({ block: "nearest" });
  }

  filter() {
    if (!this.calls) return;
    const rows = sortCalls(this.calls, filterCalls(this.calls, this.query.value), this.order);
    this.table.show(this.calls, rows, this.order);
    if (this.selected >= 0) this.table.select(this.selected);
    this.sayNothing(rows.length);
    this.shown.textContent = say("{} of {} calls", grouped(rows.length), grouped(this.calls.count));
    const wanted = this.word("class").split(",");
    this.chips.querySelectorAll("button").forEach((b) => b.setAttribute("aria-pressed", String(wanted.includes((b.dataset.class || "").replaceAll(" ", "")))));
    this.keepSoon();
  }
  /**
   * Where no call passes the filter: why, and the nearest word.
   * @param {number} rows
   */
  sayNothing(rows) {
    if (rows > 0 || !this.calls || !this.calls.count) return this.table.say();
    const { wrong, instead } = explainNothing(this.calls, this.query.value);
    const why = wrong.length ? wrong.map((word) => el("p", {}, el("b", { translate: "no" }, clean(word, 200)), " ", el("span", {}, "is in no call."))) : [el("p", {}, "No call has all these words together.")];
    const near = instead ? el("p", {}, el("span", {}, "Nearest:"), " ", el("button", { class: "link", translate: "no", onclick: () => { this.query.value = instead; this.filter(); } }, clean(instead, 400))) : "";
    this.table.say(...why, near, el("p", { class: "quiet" }, "Escape shows all calls again."));
  }
  clear() {
    this.query.value = "";
    this.filter();
  }
  /**
   * The value of "key:value" in the filter.
   * @param {string} key
   */
  word(key) { return this.query.value.split(/\s+/).find((w) => w.startsWith(key + ":"))?.slice(key.length + 1) ?? ""; }
  /**
   * @param {string} key
   * @param {string} value "": the word is taken away
   */
  setWord(key, value) {
    const words = this.query.value.split(/\s+/).filter((w) => w && !w.startsWith(key + ":"));
    if (value) words.push(`${key}:${value.replaceAll(/\s+/g, "")}`);
    this.query.value = words.join(" ");
    this.filter();
  }
  /** @param {string} name */
  toggleClass(name) {
    const wanted = new Set(this.word("class").split(",").filter(Boolean)), word = name.replaceAll(" ", "");
    if (!wanted.delete(word)) wanted.add(word);
    this.setWord("class", [...wanted].join(","));
  }
  /** @param {string} key */
  sortBy(key) {
    const falling = key === "size" || key === "class"; // the largest first
    this.order = this.order.key === key && this.order.down === falling ? { key, down: !falling } : { key, down: falling };
    this.filter();
  }
  /** @param {number} i */
  select(i) {
    if (!this.calls || !(i >= 0 && i < this.calls.count)) return;
    this.selected = i;
    this.table.select(i);
    this.curve.select(i);
    this.viewed = this.view.show(this.calls, i);
    this.keepSoon();
  }
  async copy() {
    if (!this.view.shown) return;
    const done = await copyText(markdownOf(this.view.shown));
    const said = document.getElementById("copied");
    if (said) said.textContent = done ? "Copied." : "The browser does not allow copying.";
  }
  theme() {
    const root = document.documentElement, dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
    root.dataset.theme = dark ? "light" : "dark";
    this.curve.draw();
    this.trends?.draw();
    this.keepSoon();
  }

  /** Chinese in place of English, and the other way round. */
  speak() {
    this.language?.set(!this.language.chinese);
    this.tongue.lang = this.language?.chinese ? "en" : "zh";
    this.tongue.textContent = this.language?.chinese ? "English" : "中文";
    this.curve.draw();
    this.keepSoon();
  }
  /**
   * The language of the address, else that of the reader or of who wrote the page.
   * @param {string|null} asked
   */
  async loadLanguage(asked) {
    if (!this.language) this.language = new Language((await json("catalogue")) || {});
    const chinese = asked === "zh" || (asked !== "en" && this.language.wanted);
    if (chinese !== this.language.chinese) this.speak();
  }

  /**
   * What the keys do; the names stand in dialog.js.
   * @type {Record<string, () => void>}
   */
  actions = {
    help: () => this.help.showModal(),
    first: () => this.select(this.calls?.head.first ?? -1),
    next: () => this.select(this.calls?.nextWorst(this.selected, 1) ?? -1),
    previous: () => this.select(this.calls?.nextWorst(this.selected, -1) ?? -1),
    down: () => this.table.step(1),
    up: () => this.table.step(-1),
    upstream: () => this.select(this.view.links().upstream),
    downstream: () => this.select(this.view.links().downstream),
    graph: () => this.view.focusGraph(),
    filter: () => this.query.focus(),
    clear: () => this.clear(),
    sort: () => { this.order = this.order.key === "size" ? { key: "order", down: false } : { key: "size", down: true }; this.filter(); },
    trends: () => this.trends?.focus(),
    tree: () => this.tree.root.focus(),
    closer: () => this.curve.zoom(0.5, this.selected < 0 ? this.curve.from : this.selected),
    farther: () => this.curve.zoom(2, this.selected < 0 ? this.curve.from : this.selected),
    all: () => this.curve.range(0, this.calls?.count ?? 0),
    partBefore: () => { if (this.part > 0) this.open(this.part - 1, true); },
    partBehind: () => { if (this.part + 1 < this.parts) this.open(this.part + 1, true); },
    copy: () => this.copy(),
    theme: () => this.theme(),
    language: () => this.speak(),
  };
  /** @param {KeyboardEvent} e */
  key(e) {
    if (e.ctrlKey || e.metaKey || e.altKey || this.help.open) return;
    if (/** @type {HTMLElement} */ (e.target).tagName === "INPUT") {
      if (e.key !== "Escape" && e.key !== "Enter") return;
      e.preventDefault();
      if (e.key === "Escape") this.clear();
      this.table.scroll.focus();
      return;
    }
    /** @type {Record<string, number>} */
    const rows = { ArrowDown: 1, ArrowUp: -1, PageDown: this.table.inSight(), PageUp: -this.table.inSight(), Home: -Infinity, End: Infinity };
    const action = e.key === "Escape" ? "clear" : keys.find(([key]) => key === e.key)?.[1];
    if (rows[e.key]) this.table.step(rows[e.key]);
    else if (action) this.actions[action]();
    else return;
    e.preventDefault();
  }

  keepSoon() {
    if (!this.restored) return; // the address still says what is to be shown
    clearTimeout(this.later);
    this.later = setTimeout(() => this.keep(), 150);
  }
  keep() {
    const state = new URLSearchParams();
    if (this.parts > 1) state.set("part", String(this.part));
    if (this.selected >= 0) state.set("call", String(this.selected));
    if (this.query.value) state.set("filter", this.query.value);
    if (this.order.key !== "order" || this.order.down) state.set("sort", (this.order.down ? "-" : "") + this.order.key);
    if (this.calls && this.curve.to - this.curve.from < this.calls.count) state.set("range", `${Math.round(this.curve.from)}-${Math.round(this.curve.to)}`);
    const theme = document.documentElement.dataset.theme;
    if (theme) state.set("theme", theme);
    if (this.language && this.language.chinese !== this.language.wanted) state.set("lang", this.language.chinese ? "zh" : "en");
    for (const [name, text] of [["cols", this.table.state()], ["panes", this.panes.state()]]) if (text) state.set(/** @type {string} */ (name), text);
    const trend = this.trends?.state();
    if (trend) state.set("trend", trend);
    this.kept = state.toString();
    history.replaceState(null, "", "#" + this.kept);
  }
  async restore() {
    const state = new URLSearchParams(location.hash.slice(1)), number = (/** @type {string} */ name) => (/^\d+$/.test(state.get(name) || "") ? Number(state.get(name)) : -1);
    const theme = state.get("theme"), sort = state.get("sort") || "order", range = /^(\d+)-(\d+)$/.exec(state.get("range") || "");
    if (theme === "dark" || theme === "light") document.documentElement.dataset.theme = theme;
    await this.loadLanguage(state.get("lang"));
    this.query.value = state.get("filter") || "";
    const key = sort.replace(/^-/, "");
    if (["order", "class", "name", "module", "dtype", "shape", "size"].includes(key)) this.order = { key, down: sort.startsWith("-") };
    this.panes.restore(state.get("panes") || "");
    this.table.restore(state.get("cols") || "");
    if (!this.trends) await this.loadTrends();
    this.trendOfAddress = state.has("trend");
    this.trends?.restore(state.get("trend") || "");
    const part = number("part");
    await this.open(part >= 0 && part < this.parts ? part : this.part, number("call") < 0);
    if (range) this.curve.range(Number(range[1]), Number(range[2]));
    this.select(number("call"));
    await this.viewed;
    this.restored = true;
    this.keepSoon();
  }
}

/**
 * What the number on the button of a class counts.
 * @param {string} name
 * @param {number} count
 */
function chipTitle(name, count) {
  if (name === "rewrite") return say("calls that are part of a rewrite: {}; each is counted with its class, too", grouped(count));
  return name === "noise" ? say("calls within rounding: {}", grouped(count)) : say("calls of this class: {}", grouped(count));
}

async function main() {
  const state = byId("state");
  if (!document.getElementById("end")) {
    state.textContent = "This file is incomplete: its end is missing. Copy the file once more, or write it again. What is above is complete.";
    document.documentElement.dataset.state = "incomplete";
    return;
  }
  try {
    const page = new Page();
    await page.restore();
    document.documentElement.dataset.state = "ready";
    performance.mark("ready");
  } catch (error) {
    byId("calls").hidden = true;
    state.hidden = false;
    state.textContent = say("The calls of this file cannot be read: {}. Copy the file once more, or write it again. What is above is complete.", error instanceof Error ? error.message : String(error));
    document.documentElement.dataset.state = "damaged";
  }
}
main();
