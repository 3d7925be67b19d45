/**
 * The tree of a beam search: drawn as SVG, replayed step by step, walked with the arrow keys.
 *
 * Used by the page of `seqloom look beam`, which contains this text, and by the workbench of `seqloom serve`, which
 * imports it. Layout and figures are those of `seqloom.look.beam_tree.tree_record`; everything that a model wrote
 * becomes a text node.
 */

/** Pixels: a character of the fixed-width font of 12 pixels, a line, the edge, and the row with the numbers of steps. */
const CHARACTER = 7.4, LINE = 22, MARGIN = 12, HEAD = 30;
const MARKER = 2;
const REPLAY_MILLISECONDS = 900;

/** What the tree says; the workbench passes the same keys in other languages. */
export const ENGLISH = {
  tree: "The tree of the search",
  play: "Play",
  pause: "Pause",
  back: "One step back",
  on: "One step on",
  step: "Step",
  stepAt: "step {n}",
  at: "{n} of {all}",
  atEnd: "all {all} steps",
  best: "the best",
  kept: "kept: continued",
  pruned: "pruned: others of its step were better",
  finished: "finished",
  cut: "cut at the maximum length",
  left: "left when the sentence was decided",
  widths: "wider lines are more probable; +n: with n pruned siblings that are not shown",
  label: "{symbol}, probability {p}, {fate}",
  place: "Step {step}, place {rank}; {fate}.",
  others: "{n} more of its siblings were pruned.",
  probability: "probability of the symbol",
  logProbability: "log-probability of the symbol",
  logP: "log P of the whole",
  score: "score, if it ends here",
  force: "A click continues from here.",
  hint:
    "Point at a candidate or tap it to see its score. With the keyboard: Tab into the tree, ← parent, → best child, ↑ ↓ neighbours of the step.",
};

/**
 * @typedef {{number: number, parent: number | null, step: number, symbol: number, shown: string, label: string,
 *   note: string, fate: string, rank: number, others: number, winner: boolean, probability: number,
 *   log_probability: number, terms: Record<string, number>, score: number, x: number, y: number, start: number[],
 *   bend: number, width: number, cells: number}} TreeNode
 * @typedef {{columns: number[], steps: number, root: number, span: number[], nodes: TreeNode[],
 *   fates: Record<string, number>}} Tree
 */

/** A text with {name} replaced. @param {string} text @param {Record<string, unknown>} values */
const fill = (text, values) => text.replace(/\{(\w+)\}/g, (whole, name) => (name in values ? String(values[name]) : whole));
const written = (/** @type {number} */ value) => value.toFixed(6).replace("-", "−");
const percent = (/** @type {number} */ p) => (p > 0 && p < 0.005 ? "<1%" : `${(100 * p).toFixed(0)}%`);

/** An element with attributes and children; strings become text. */
function make(name, attributes = {}, ...children) {
  const element = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, String(value));
  element.append(...children);
  return element;
}

function draw(name, attributes = {}, ...children) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, String(value));
  element.append(...children);
  return element;
}

/** The mark of a fate: each has its own shape and colour. */
function mark(fate, x, y) {
  const outlines = {
    pruned: `M${x - 3} ${y - 3}l6 6m0 -6l-6 6`,
    finished: `M${x - 5} ${y - 5}h10v10h-10z`,
    cut: `M${x - 5} ${y - 4}h10l-5 9z`,
    left: `M${x} ${y - 6}l5 6l-5 6l-5 -6z`,
  };
  if (fate === "kept") return draw("circle", { class: "mark", cx: x, cy: y, r: 4.5 });
  return draw("path", { class: "mark", d: outlines[fate] });
}

/**
 * Fill `host` with the tree of a search.
 *
 * `onForce` is called with the ids of a path when a pruned candidate is chosen, `onStep` when the replay moves and
 * `onSelect` when a candidate is pointed at.
 *
 * @param {HTMLElement} host
 * @param {Tree} tree
 * @param {{words?: typeof ENGLISH, step?: number, node?: number, onForce?: (ids: number[], node: TreeNode) => void,
 *   onStep?: (step: number) => void, onSelect?: (number: number) => void}} options
 */
export function mountTree(host, tree, options = {}) {
  const words = { ...ENGLISH, ...options.words };
  const byNumber = new Map(tree.nodes.map((node) => [node.number, node]));
  const last = tree.steps;
  const [above, below] = tree.span;
  const right = (characters) => Number((MARGIN + CHARACTER * characters).toFixed(1));
  const down = (lines) => Number((MARGIN + HEAD + LINE * (lines - above + 0.5)).toFixed(1));

  // --- the drawing ----------------------------------------------------------------------------------------------------
  const width = Math.round(2 * MARGIN + CHARACTER * tree.columns[tree.columns.length - 1]);
  const height = Math.round(2 * MARGIN + HEAD + LINE * (below - above + 1));
  const svg = draw("svg", { class: "beam-tree", width, height, viewBox: `0 0 ${width} ${height}`, role: "group", "aria-label": words.tree });
  /** Everything that belongs to a step, so that the replay can hide it. */
  const parts = Array.from({ length: last + 1 }, () => []);
  const add = (step, element) => {
    parts[step].push(element);
    svg.append(element);
  };
  for (let step = 1; step <= last; step += 1) {
    add(step, draw("text", { class: "step", x: right(tree.columns[step]), y: MARGIN + 12 }, fill(words.stepAt, { n: step })));
  }
  const shapes = new Map();
  for (const node of tree.nodes) {
    // Level to the end of the parent's column, then in one curve over to the child; under the winner a band.
    const reach = right(node.x + 0.4), middle = right((node.bend + node.x + 0.4) / 2);
    const start = down(node.start[1]), y = down(node.y);
    const curve = `M${right(node.start[0])} ${start}L${right(node.bend)} ${start}C${middle} ${start} ${middle} ${y} ${reach} ${y}`;
    if (node.winner) add(node.step, draw("path", { class: "band", d: `${curve}H${right(node.x + node.width)}` }));
    const thickness = node.fate === "pruned" ? 0.6 : 0.6 + 4.4 * node.probability;
    add(node.step, draw("path", { class: node.fate, d: curve, "stroke-width": thickness.toFixed(2) }));
    const label = fill(words.label, { symbol: node.shown, p: percent(node.probability), fate: words[node.fate] });
    const shape = draw(
      "g",
      { class: `node ${node.fate}${node.winner ? " winner" : ""}`, role: "button", tabindex: -1, "aria-label": label, "data-number": node.number },
      draw("title", {}, label),
      draw("rect", { x: right(node.x - 0.4), y: y - LINE / 2, width: CHARACTER * (node.width + 0.6), height: LINE }),
      mark(node.fate, right(node.x + 0.6), y),
      draw("text", { x: right(node.x + MARKER), y: y + 4 }, node.label),
      draw("text", { class: "note", x: right(node.x + MARKER + node.cells + 1), y: y + 4 }, node.note),
    );
    shapes.set(node.number, shape);
  }
  for (const [number, shape] of shapes) add(byNumber.get(number).step, shape);
  svg.append(draw("circle", { class: "root", cx: right(0.6), cy: down(tree.root), r: 4 }));

  // --- replay: whatever belongs to a later step is hidden ---------------------------------------------------------------
  let timer = 0, current = last;
  const play = make("button", { type: "button", class: "play" }, words.play);
  const slider = make("input", { type: "range", min: 0, max: last, value: last, "aria-label": words.step });
  const output = make("output", { class: "quiet" });
  const back = make("button", { type: "button", "aria-label": words.back, title: words.back }, "◀");
  const on = make("button", { type: "button", "aria-label": words.on, title: words.on }, "▶");
  const bar = make("div", { class: "replay", role: "group" }, play, back, on, slider, output);

  function show(step) {
    current = Math.min(last, Math.max(0, step));
    slider.value = String(current);
    parts.forEach((elements, at) => elements.forEach((each) => each.classList.toggle("later", at > current)));
    svg.classList.toggle("running", current < last); // who wins is not known before the end
    output.textContent = current < last ? fill(words.at, { n: current, all: last }) : fill(words.atEnd, { all: last });
  }
  function stop() {
    clearInterval(timer);
    timer = 0;
    play.textContent = words.play;
  }
  function go(step) {
    stop();
    show(step);
    options.onStep?.(current);
  }
  slider.addEventListener("input", () => go(Number(slider.value)));
  back.addEventListener("click", () => go(current - 1));
  on.addEventListener("click", () => go(current + 1));
  play.addEventListener("click", () => {
    if (timer) return stop();
    if (current === last) show(0);
    play.textContent = words.pause;
    timer = setInterval(() => {
      show(current + 1);
      if (current === last) go(last);
    }, REPLAY_MILLISECONDS);
  });

  // --- the panel of a candidate -----------------------------------------------------------------------------------------
  const panel = make("div", { class: "panel", "aria-live": "polite" }, make("p", { class: "quiet" }, words.hint));
  /** @param {number} number @returns {TreeNode[]} from the first symbol to this one */
  function path(number) {
    const found = [];
    for (let at = byNumber.get(number); at; at = at.parent === null ? undefined : byNumber.get(at.parent)) found.unshift(at);
    return found;
  }
  const row = (name, value) => make("tr", {}, make("th", { scope: "row" }, name), make("td", {}, value));
  function describe(number) {
    const node = byNumber.get(number);
    if (!node) return;
    const sentence = [fill(words.place, { step: node.step, rank: node.rank, fate: words[node.fate] })];
    if (node.others) sentence.push(fill(words.others, { n: node.others }));
    if (node.fate === "pruned" && options.onForce) sentence.push(words.force);
    const table = make("table", {}, make("tbody", {},
      row(words.probability, node.probability.toFixed(6)),
      row(words.logProbability, written(node.log_probability)),
      ...Object.entries(node.terms).map(([name, value]) => row(name === "log_prob" ? words.logP : name, written(value))),
      row(words.score, written(node.score)),
    ));
    const title = make("p", { class: "path", dir: "auto" }, path(number).map((each) => each.shown).join(" "));
    panel.replaceChildren(title, make("p", {}, sentence.join(" ")), table);
    for (const [at, shape] of shapes) shape.classList.toggle("chosen", at === number);
    options.onSelect?.(number);
  }

  // --- pointer and keys -------------------------------------------------------------------------------------------------
  function reach(number) {
    for (const shape of shapes.values()) shape.setAttribute("tabindex", "-1");
    const shape = shapes.get(number);
    shape.setAttribute("tabindex", "0");
    shape.focus();
  }
  function neighbour(node, key) {
    if (key === "ArrowLeft") return node.parent;
    if (key === "ArrowRight") {
      const children = tree.nodes.filter((each) => each.parent === node.number);
      return children.sort((one, other) => one.rank - other.rank)[0]?.number;
    }
    const column = tree.nodes.filter((each) => each.step === node.step);
    return column[column.indexOf(node) + (key === "ArrowUp" ? -1 : 1)]?.number;
  }
  function choose(node) {
    if (node.fate === "pruned" && options.onForce) options.onForce(path(node.number).map((each) => each.symbol), node);
    else reach(node.number);
  }
  for (const [number, shape] of shapes) {
    const node = byNumber.get(number);
    shape.addEventListener("pointerenter", () => describe(number));
    shape.addEventListener("focus", () => describe(number));
    shape.addEventListener("click", () => choose(node));
    shape.addEventListener("keydown", (event) => {
      if (event.key === "Enter" || event.key === " ") {
        event.preventDefault();
        return choose(node);
      }
      if (!["ArrowLeft", "ArrowRight", "ArrowUp", "ArrowDown"].includes(event.key)) return;
      event.preventDefault();
      const next = neighbour(node, event.key);
      if (next !== null && next !== undefined && byNumber.get(next).step <= current) reach(next);
    });
  }
  const first = tree.nodes.find((node) => node.winner) ?? tree.nodes[0];
  if (first) shapes.get(first.number).setAttribute("tabindex", "0");

  // --- the legend -------------------------------------------------------------------------------------------------------
  const legend = make("ul", { class: "legend" });
  legend.append(make("li", {}, draw("svg", { class: "beam-tree", width: 34, height: 16, "aria-hidden": true }, draw("path", { class: "band", d: "M0 8H34" })), words.best));
  for (const fate of ["kept", "pruned", "finished", "cut", "left"]) {
    if (!(fate in tree.fates)) continue;
    const sample = draw("svg", { class: "beam-tree", width: 16, height: 16, "aria-hidden": true }, draw("g", { class: `node ${fate}` }, mark(fate, 8, 8)));
    legend.append(make("li", {}, sample, words[fate]));
  }
  legend.append(make("li", {}, words.widths));

  const scroll = make("div", { class: "scroll" }, svg);
  host.replaceChildren(bar, scroll, legend, panel);
  show(options.step ?? last);
  if (options.node !== undefined && byNumber.has(options.node)) describe(options.node);

  return {
    svg,
    /** Show a step, and stop the replay. */
    go,
    /** The candidates on the way to this one. */
    path,
    /** Show the way to a candidate and fade the others; all again for null. @param {number | null} number */
    showPath(number) {
      go(last);
      const kept = new Set(number === null ? [] : path(number).map((node) => node.number));
      for (const [at, shape] of shapes) shape.classList.toggle("faint", number !== null && !kept.has(at));
      if (number === null) return;
      describe(number);
      const node = byNumber.get(number);
      scroll.scrollTo({ left: Math.max(0, right(node.x) - scroll.clientWidth / 2) });
    },
    stop,
  };
}
