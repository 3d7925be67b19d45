"use strict";
(() => {
  const find = (id) => document.getElementById(id);
  const data = JSON.parse(find("data").textContent);
  const tree = find("tree"), slider = find("step"), play = find("play"), panel = find("panel");
  const nodes = [...tree.querySelectorAll(".node")];
  const byNumber = new Map(nodes.map((node) => [Number(node.dataset.number), node]));
  const last = Number(slider.max);
  let timer = null;

  // --- replay: whatever belongs to a later step is hidden -----------------------------------------------------------
  function show(step) {
    slider.value = String(step);
    for (const part of tree.querySelectorAll("[data-step]")) {
      part.classList.toggle("later", Number(part.dataset.step) > step);
    }
    tree.classList.toggle("running", step < last);  // who wins is not known before the end
    find("at").textContent = step < last ? `${step} of ${last}` : `all ${last} steps`;
  }
  function stop() {
    clearInterval(timer);
    timer = null;
    play.textContent = "Play";
  }
  function go(step) {
    stop();
    show(Math.min(last, Math.max(0, step)));
  }
  slider.addEventListener("input", () => go(Number(slider.value)));
  find("back").addEventListener("click", () => go(Number(slider.value) - 1));
  find("on").addEventListener("click", () => go(Number(slider.value) + 1));
  play.addEventListener("click", () => {
    if (timer !== null) return stop();
    if (Number(slider.value) === last) show(0);
    play.textContent = "Pause";
    timer = setInterval(() => {
      show(Number(slider.value) + 1);
      if (Number(slider.value) === last) stop();
    }, 900);
  });

  // --- the panel of a node ------------------------------------------------------------------------------------------
  const written = (value) => value.toFixed(6).replace("-", "−");
  function row(name, value) {
    const line = document.createElement("tr");
    for (const text of [name, value]) {
      const cell = document.createElement("td");
      cell.textContent = text;
      line.append(cell);
    }
    return line;
  }
  function way(number) {
    const numbers = [];
    for (let at = number; at !== null; at = data[at].parent) numbers.unshift(at);
    return numbers;
  }
  function showNode(number) {
    const node = data[number];
    const head = document.createElement("h3");
    head.textContent = way(number).map((at) => data[at].symbol).join(" ");
    const line = document.createElement("p");
    const others = node.others ? `; ${node.others} more of its siblings were pruned` : "";
    line.textContent = `Step ${node.step}, place ${node.rank}; ${node.fate}${others}.`;
    const table = document.createElement("table");
    table.append(
      row("probability of the symbol", Math.exp(node.logProbability).toFixed(6)),
      row("log-probability of the symbol", written(node.logProbability)),
      ...Object.entries(node.terms).map(([name, value]) => row(name === "log_prob" ? "log P of the whole" : name, written(value))),
      row("score, if it ends here", written(node.score)),
    );
    panel.replaceChildren(head, line, table);
    for (const [at, shape] of byNumber) shape.classList.toggle("chosen", at === number);
  }
  const isShown = (number) => byNumber.has(number) && !byNumber.get(number).classList.contains("later");

  // --- pointer and keys ---------------------------------------------------------------------------------------------
  function reach(number) {
    for (const node of nodes) node.setAttribute("tabindex", "-1");
    const node = byNumber.get(number);
    node.setAttribute("tabindex", "0");
    node.focus();
  }
  function neighbour(number, key) {
    const { parent, children, step } = data[number];
    if (key === "ArrowLeft") return parent;
    if (key === "ArrowRight") return children[0];
    const column = nodes.map((node) => Number(node.dataset.number)).filter((at) => data[at].step === step);
    return column[column.indexOf(number) + (key === "ArrowUp" ? -1 : 1)];
  }
  for (const [number, node] of byNumber) {
    node.addEventListener("pointerenter", () => showNode(number));
    node.addEventListener("focus", () => showNode(number));
    node.addEventListener("click", () => reach(number));
    node.addEventListener("keydown", (event) => {
      if (!["ArrowLeft", "ArrowRight", "ArrowUp", "ArrowDown"].includes(event.key)) return;
      event.preventDefault();
      const next = neighbour(number, event.key);
      if (next !== null && next !== undefined && isShown(next)) reach(next);
    });
  }
  nodes[0].setAttribute("tabindex", "0");

  // --- the list: a click shows a way ----------------------------------------------------------------------------------
  let chosen = null;
  for (const button of document.querySelectorAll("[data-path]")) {
    button.addEventListener("click", () => {
      const number = Number(button.dataset.path);
      chosen = chosen === number ? null : number;
      go(last);
      const path = new Set(chosen === null ? [] : way(chosen));
      for (const [at, node] of byNumber) node.classList.toggle("faint", chosen !== null && !path.has(at));
      if (chosen !== null) showNode(chosen);
    });
  }
})();
