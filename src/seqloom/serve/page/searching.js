/** Search: the tree of the beam and its replay, beam, alpha and stop as controls; a pruned candidate can be forced. */

import { mountTree } from "beam_tree";
import { Figure } from "./figure.js";
import { html, number, useEffect, useRef, useState } from "./lib.js";
import { set, useStore } from "./state.js";
import { t, treeWords } from "./words.js";

const MOST_BEAM = 16;
const STOPS = ["exact", "k_finished", "first"];

/** @param {{model: any, sentence: any, look: any, isMain: boolean}} props */
export function SearchTree({ look, isMain }) {
  const state = useStore();
  const host = useRef(null), view = useRef(null);
  const [path, follow] = useState(/** @type {number | null} */ (null));
  const tree = look.tree;
  useEffect(() => {
    if (!tree) return undefined;
    const began = performance.now();
    view.current = mountTree(host.current, tree, {
      words: treeWords(),
      step: isMain && state.step >= 0 && state.step <= tree.steps ? state.step : undefined,
      node: isMain && state.node >= 0 ? state.node : undefined,
      onForce: isMain ? (ids) => set({ prefix: ids, node: -1, step: -1 }) : undefined,
      onStep: isMain ? (step) => set({ step: step === tree.steps ? -1 : step }) : undefined,
      onSelect: isMain ? (node) => set({ node }) : undefined,
    });
    performance.measure("seqloom-tree", { start: began, end: performance.now() });
    follow(null);
    return () => view.current.stop();
  }, [tree, state.language]);
  const names = tree ? [...new Set(tree.leaves.flatMap((leaf) => Object.keys(leaf.terms)))] : [];
  const rows = () => [
    ["", t("hypothesis"), t("symbols"), t("scoreName"), ...names, ""],
    ...tree.leaves.map((leaf, at) => [at + 1, leaf.text, leaf.step, leaf.score, ...names.map((name) => leaf.terms[name] ?? 0), leaf.returned ? t("returned") : ""]),
  ];
  return html`<div>
    ${tree
      ? html`<p lang="en" class="quiet seen">${tree.sentence}</p>
          <${Figure} title=${t("treeTitle")} name="beam-tree" rows=${rows} svg=${() => view.current.svg} data=${tree} plain>
            <div class="tree" ref=${host}></div>
          <//>
          <h3>${t("leaves")}</h3>
          <p class="quiet small">${t("leavesHint")}</p>
          <div class="scroll" tabindex="0" role="region" aria-label=${t("leaves")}><table class="figures">
            <thead><tr><th scope="col">#</th><th scope="col" class="text">${t("hypothesis")}</th><th scope="col">${t("symbols")}</th><th scope="col">${t("scoreName")}</th>${names.map((name) => html`<th scope="col" key=${name}><bdi>${name}</bdi></th>`)}<th scope="col" class="text">${t("remark")}</th></tr></thead>
            <tbody>${tree.leaves.map(
              (leaf, at) => html`<tr key=${leaf.number}>
                <td>${at + 1}</td>
                <td class="text"><button type="button" class="link" dir="auto" aria-pressed=${path === leaf.number ? "true" : "false"} onClick=${() => {
                  const next = path === leaf.number ? null : leaf.number;
                  follow(next);
                  view.current.showPath(next);
                }}>${leaf.text || t("emptyText")}</button></td>
                <td>${leaf.step}</td><td>${number(leaf.score, 4)}</td>${names.map((name) => html`<td key=${name}>${number(leaf.terms[name] ?? 0, 4)}</td>`)}
                <td class="text">${[leaf.returned && t("returned"), leaf.complete && t("complete")].filter(Boolean).join(", ")}</td>
              </tr>`,
            )}</tbody>
          </table></div>`
      : html`<p class="notice">${t("noTree")}</p>`}
  </div>`;
}

/** Beam, alpha and stop; the line is searched again when one of them changes. */
export function SearchControls({ model }) {
  const state = useStore();
  const given = model.search ?? {};
  const beam = state.beam > 0 ? state.beam : (given.beam ?? 4);
  const alpha = state.alpha >= 0 ? state.alpha : (given.alpha ?? 0);
  const stop = state.stop || given.stop || "";
  const stops = [...new Set([...STOPS, stop].filter(Boolean))];
  const again = (changes) => set({ ...changes, node: -1, step: -1 });
  const isOwn = state.beam > 0 || state.alpha >= 0 || state.stop;
  return html`<div class="controls">
    <label>${t("beam")} <input type="range" min="1" max=${MOST_BEAM} value=${beam} onInput=${(event) => again({ beam: Number(event.currentTarget.value) })} /><output>${beam}</output></label>
    <label title=${t("alphaHint")}>${t("alpha")} <input type="range" min="0" max="2" step="0.1" value=${alpha} onInput=${(event) => again({ alpha: Number(event.currentTarget.value) })} /><output>${number(alpha, 1)}</output></label>
    ${stops.length > 0 &&
    html`<label>${t("stop")} <select value=${stop} onChange=${(event) => again({ stop: event.currentTarget.value })}>${stops.map((name) => html`<option key=${name} value=${name}>${name}</option>`)}</select></label>`}
    ${isOwn && html`<button type="button" class="button" onClick=${() => again({ beam: 0, alpha: -1, stop: "" })}>${t("ownSettings")}</button>`}
  </div>`;
}
