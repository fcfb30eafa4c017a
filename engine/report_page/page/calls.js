// @ts-check
// The calls of one comparison, or of one dump.
import { column, json, lines } from "./data.js";
import { clean } from "./text.js";

/** What a class looks like: its sign, and the number of its colour in style.css. Worse ones have a higher rank. */
export const looks = {
  equal: { sign: "=", color: 0, rank: 0 },
  noise: { sign: "≈", color: 1, rank: 1 },
  rewrite: { sign: "⇄", color: 5, rank: 2 },
  unknown: { sign: "?", color: 4, rank: 3 },
  inherited: { sign: "↳", color: 3, rank: 4 },
  introduced: { sign: "✕", color: 2, rank: 5 },
  finite: { sign: "·", color: 0, rank: 0 },
  "not measured": { sign: "?", color: 4, rank: 1 },
  "non-finite": { sign: "✕", color: 2, rank: 5 },
};
export const worstRank = 5;
export const directions = ["forward", "backward", "parameters_grad", ""];
export const sideWords = ["", "only in the target", "only in the golden", ""];
const none = 0xffffffff;

export class Calls {
  /**
   * @param {number} part
   * @returns {Promise<Calls|null>} null: this pair of dumps could not be compared
   */
  static async load(part) {
    const id = (/** @type {string} */ name) => `p${part}-${name}`;
    const head = await json(id("head"));
    if (!head) return null;
    const names = ["class", "form", "sides", "name", "number", "module", "stack", "dtype", "shape", "size", "module-parent", "partner-form", "partner-name", "partner-number", "region", "rewritten"];
    const got = await Promise.all(names.map((name) => column(id(name))));
    const calls = new Calls();
    calls.part = part;
    calls.head = head;
    let rewritten;
    [calls.judged, calls.form, calls.sides, calls.nameOf, calls.number, calls.module, calls.stack, calls.dtype, calls.shape, calls.size, calls.parents, calls.partnerForm, calls.partnerName, calls.partnerNumber, calls.region, rewritten] = got;
    calls.texts = await json(id("texts"));
    calls.count = calls.judged.length;
    if (calls.count !== head.calls) throw new Error(`${calls.count} of ${head.calls} calls are there`);
    calls.classes = head.classes.map((/** @type {string} */ name) => ({ name, .../** @type {any} */ (looks)[name] }));
    calls.inherit(part);
    calls.markRewrites(rewritten);
    calls.sumModules();
    return calls;
  }

  /** @type {any} */ head;
  /** @type {any} */ texts;
  /** @type {{name: string, sign: string, color: number, rank: number}[]} */ classes = [];
  part = 0;
  count = 0;
  /** What a call is shown as: its judgement, or "rewrite". @type {Uint8Array} */ kind = new Uint8Array(0);
  /** What a call was judged to be, as the counts of the terminal have it. @type {Uint8Array} */ judged = this.kind;
  /** The step from which this one inherits what differs; "": none. */
  inheritedFrom = "";
  /** @type {Uint8Array} */ form = this.kind;
  /** @type {Uint8Array} */ sides = this.kind;
  /** @type {Uint32Array} */ nameOf = new Uint32Array(0);
  /** @type {Uint32Array} */ number = this.nameOf;
  /** @type {Uint32Array} */ module = this.nameOf;
  /** @type {Uint32Array} */ stack = this.nameOf;
  /** @type {Uint32Array} */ dtype = this.nameOf;
  /** @type {Uint32Array} */ shape = this.nameOf;
  /** @type {Uint32Array} */ parents = this.nameOf;
  /** @type {Float32Array} */ size = new Float32Array(0);
  /** @type {Uint8Array|null} */ partnerForm = null;
  /** @type {Uint32Array|null} */ partnerName = null;
  /** @type {Uint32Array|null} */ partnerNumber = null;
  /** @type {Uint32Array|null} */ region = null;
  /** @type {string[]} */ paths = [];

  /**
   * @param {number} text
   * @param {number} form
   * @param {number} number
   */
  spell(text, form, number) {
    const name = this.texts.names[text];
    const direction = directions[form >> 2];
    if ((form & 3) === 0) return `${name}.${number}.${direction}`;
    return (form & 3) === 1 ? `${name}.${direction}.${number}` : name;
  }
  /**
   * The name of the call as its dump has it.
   * @param {number} i
   * @returns {string}
   */
  name(i) { return this.spell(this.nameOf[i], this.form[i], this.number[i]); }
  /**
   * The name in the golden where it is another one; else "".
   * @param {number} i
   * @returns {string}
   */
  partner(i) {
    if (!this.partnerName || !this.partnerForm || !this.partnerNumber || this.partnerName[i] === none) return "";
    return this.spell(this.partnerName[i], this.partnerForm[i], this.partnerNumber[i]);
  }
  /**
   * The forward call of a backward call, or of gradients of parameters; -1: there is none.
   * @param {number} i
   */
  forwardOf(i) {
    const direction = this.form[i] >> 2;
    if (direction !== 1 && direction !== 2) return -1;
    for (let k = i - 1; k >= 0; k--) {
      const same = this.nameOf[k] === this.nameOf[i] && this.form[k] >> 2 === 0;
      if (same && (direction === 2 || this.number[k] === this.number[i])) return k;
    }
    return -1;
  }
  /** @param {number} i */
  direction(i) { return directions[this.form[i] >> 2]; }
  /**
   * "layers.3.mlp", "" for the whole model.
   * @param {number} node
   * @returns {string}
   */
  path(node) {
    if (node === 0) return "";
    if (this.paths[node] === undefined) {
      const above = this.path(this.parents[node]);
      this.paths[node] = (above ? above + "." : "") + this.texts.modules[node];
    }
    return this.paths[node];
  }
  /**
   * Its class for a person; of a call that only one side makes, which side that is.
   * @param {number} i
   */
  classWords(i) {
    const { sign, name } = this.classOf(i), side = sideWords[/** @type {number} */ (this.sides[i])];
    return name === "unknown" && side ? side : `${sign} ${name}`;
  }
  /** @param {number} i */
  classOf(i) { return this.classes[this.kind[i]]; }

  /**
   * A step that only carries on what an earlier step began has no first divergence, and no call of it introduces an
   * error: in the summary of the steps stands from which one it inherits.
   * @param {number} part
   */
  inherit(part) {
    this.inheritedFrom = document.querySelector(`#pairs [data-part="${part}"]`)?.getAttribute("data-inherited") ?? "";
    const introduced = this.head.classes.indexOf("introduced"), inherited = this.head.classes.indexOf("inherited");
    if (!this.inheritedFrom || introduced < 0 || inherited < 0) return;
    this.head = { ...this.head, first: -1, firstInStep: this.head.first, why: "", source: "", caller: "", advice: "" };
    for (let i = 0; i < this.count; i++) if (this.judged[i] === introduced) this.judged[i] = inherited;
  }
  /** @param {Uint8Array|null} rewritten 1: part of a rewrite */
  markRewrites(rewritten) {
    const rewrite = this.head.classes.indexOf("rewrite");
    this.kind = this.judged;
    if (!rewritten || rewrite < 0) return;
    this.kind = this.judged.map((own, i) => (rewritten[i] ? rewrite : own));
  }
  /** How many calls were judged to be of each class; of a rewrite: how many calls are part of one. */
  counts() {
    const counts = new Uint32Array(this.classes.length), rewrite = this.head.classes.indexOf("rewrite");
    for (let i = 0; i < this.count; i++) {
      counts[this.judged[i]]++;
      if (this.kind[i] === rewrite) counts[rewrite]++;
    }
    return counts;
  }

  /** Of each module, with all that is inside it: how many calls of each class, and the worst class. */
  sumModules() {
    const modules = this.parents.length, kinds = this.classes.length;
    this.moduleCounts = new Uint32Array(modules * kinds);
    for (let i = 0; i < this.count; i++) this.moduleCounts[this.module[i] * kinds + this.kind[i]]++;
    for (let node = modules - 1; node > 0; node--) {
      for (let k = 0; k < kinds; k++) this.moduleCounts[this.parents[node] * kinds + k] += this.moduleCounts[node * kinds + k];
    }
    this.moduleWorst = new Uint8Array(modules);
    for (let node = 0; node < modules; node++) {
      let worst = -1;
      for (let k = 0; k < kinds; k++) {
        if (this.moduleCounts[node * kinds + k] && (worst < 0 || this.classes[k].rank > this.classes[worst].rank)) worst = k;
      }
      this.moduleWorst[node] = Math.max(worst, 0);
    }
  }

  /**
   * The values of a call; null when the page does not have them.
   * @param {number} i
   * @returns {Promise<any[]|null>}
   */
  async values(i) {
    const block = await lines(`p${this.part}-values-${Math.floor(i / this.head.block)}`);
    const line = block[i % this.head.block];
    return line ? JSON.parse(line) : null;
  }
  /**
   * How its values are known, as proofView takes it.
   * @param {number} i
   * @returns {Promise<any[]|null>}
   */
  async proof(i) {
    const block = await lines(`p${this.part}-proofs-${Math.floor(i / this.head.block)}`);
    const line = block[i % this.head.block];
    return line ? JSON.parse(line) : null;
  }
  /**
   * Where the call was made, innermost first: [path, line, function, source, first line, lines].
   * @param {number} i
   * @returns {Promise<any[][]>}
   */
  async frames(i) {
    if (this.stack[i] === none) return [];
    const stacks = await json(`p${this.part}-stacks`);
    return (stacks.stacks[this.stack[i]] || []).map((/** @type {number} */ frame) => stacks.frames[frame]);
  }
  /**
   * The line of the program that made the call, and the line that called that one; "" where they are not known.
   * @param {number} i
   * @returns {Promise<[string, string]>}
   */
  async place(i) {
    if (i === this.head.first && this.head.source) return [this.head.source, this.head.caller];
    if (this.stack[i] === none) return ["", ""];
    return (await json(`p${this.part}-stacks`)).places[this.stack[i]] ?? ["", ""];
  }
  /**
   * The next call of the worst class before or after a call; -1: there is none.
   * @param {number} i
   * @param {number} by 1 or -1
   */
  nextWorst(i, by) {
    for (let at = i + by; at >= 0 && at < this.count; at += by) if (this.classOf(at).rank === worstRank) return at;
    return -1;
  }
  /**
   * The region of a call, in which the two runs make other calls; null: none.
   * @param {number} i
   * @returns {{number: number, wrong: boolean, target: string, golden: string, calls: number[]}|null}
   */
  regionOf(i) {
    const region = this.region, number = region ? region[i] : 0;
    if (!region || !number) return null;
    const [wrong, target, golden] = this.head.regions[number - 1] || [0, "", ""], calls = [];
    for (let at = region.indexOf(number); at >= 0; at = region.indexOf(number, at + 1)) calls.push(at);
    return { number, wrong: wrong === 1, target, golden, calls };
  }
  /**
   * A name for people.
   * @param {number} i
   */
  title(i) { return clean(this.name(i)); }
}
