"use strict";
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);

  // --- the partners of a word ---------------------------------------------------------------------------------------
  function partners(pair, side, at) {
    const linked = new Map(pair.links.filter((link) => link[side] === at).map((link) => [link[1 - side], link[2]]));
    const found = pair.likely.filter((each) => each[side] === at).map((each) => [each[1 - side], each[2] / 1000]);
    for (const place of linked.keys()) {
      if (!found.some((each) => each[0] === place)) found.push([place, 0]);
    }
    return found
      .sort((a, b) => b[1] - a[1])
      .slice(0, 6)
      .map(([place, probability]) => ({ place, probability, kind: linked.get(place) || null }));
  }
  function clear(section) {
    for (const part of section.querySelectorAll(".chosen, .partner, .on")) part.classList.remove("chosen", "partner", "on");
    section.querySelector("svg").classList.remove("pointed");
    section.querySelector(".panel").replaceChildren();
  }
  function point(word) {
    const section = word.closest(".pair"), pair = data[Number(section.dataset.pair)];
    const side = Number(word.dataset.side), at = Number(word.dataset.at), panel = section.querySelector(".panel");
    clear(section);
    section.querySelector("svg").classList.add("pointed");
    word.classList.add("chosen");
    for (const link of pair.links.filter((each) => each[side] === at)) {
      section.querySelector(`[data-link="${link[0]}-${link[1]}"]`).classList.add("on");
      section.querySelector(`[data-side="${1 - side}"][data-at="${link[1 - side]}"]`).classList.add("partner");
    }
    const own = document.createElement("b");
    own.textContent = pair.words[side][at];
    panel.append(own, " ");
    const found = partners(pair, side, at);
    if (!found.length) panel.append("has no likely partner");
    found.forEach((each, number) => {
      const text = `${pair.words[1 - side][each.place]} ${each.probability.toFixed(2)}`;
      const part = document.createElement(each.kind && each.kind !== "missed" ? "b" : "span");
      part.textContent = each.kind === "missed" ? `${text} (missed)` : text;
      panel.append(number ? ", " : "↔ ", part);
    });
  }
  for (const word of document.querySelectorAll(".word")) {
    for (const event of ["pointerenter", "focus", "click"]) word.addEventListener(event, () => point(word));
    word.addEventListener("keydown", (event) => {
      if (event.key === "Escape") clear(word.closest(".pair"));
    });
  }

  // --- the table of probabilities, made when it is opened -----------------------------------------------------------
  function matrix(pair) {
    const table = document.createElement("table"), head = table.createTHead().insertRow();
    head.append(document.createElement("td"));
    for (const word of pair.words[0]) {
      const cell = document.createElement("th");
      cell.textContent = word;
      head.append(cell);
    }
    const likely = new Map(pair.likely.map(([i, j, value]) => [`${i}-${j}`, value / 1000]));
    const kinds = new Map(pair.links.map(([i, j, kind]) => [`${i}-${j}`, kind]));
    const body = table.createTBody();
    pair.words[1].forEach((word, j) => {
      const row = body.insertRow(), name = document.createElement("th");
      name.textContent = word;
      row.append(name);
      pair.words[0].forEach((_, i) => {
        const cell = row.insertCell(), value = likely.get(`${i}-${j}`) || 0;
        if (value >= 0.01) cell.textContent = value >= 0.995 ? "1" : value.toFixed(2).replace(/^0/, "");
        cell.style.background = `rgba(var(--heat), ${(0.75 * value).toFixed(3)})`;
        if (kinds.has(`${i}-${j}`)) cell.className = kinds.get(`${i}-${j}`);
      });
    });
    return table;
  }
  for (const details of document.querySelectorAll("details")) {
    details.addEventListener("toggle", () => {
      const place = details.querySelector(".matrix");
      if (details.open && !place.firstChild) place.append(matrix(data[Number(details.closest(".pair").dataset.pair)]));
    });
  }

  const errors = document.getElementById("errors");
  if (errors) errors.addEventListener("change", () => document.body.classList.toggle("only-errors", errors.checked));
})();
