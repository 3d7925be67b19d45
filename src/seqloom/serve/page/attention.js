/** Attention: who looked at whom, in words or pieces; the grid of all heads is the picker. */

import { call, kept, useCall } from "./api.js";
import { Figure } from "./figure.js";
import { HeatMap, heatRows, heatSvg } from "./heat.js";
import { Segments, Waiting } from "./parts.js";
import { clamp, html, number, rove, useMemo } from "./lib.js";
import { headName, headOf, isOff, mergeWords, pieceLabels, wordLabels } from "./search.js";
import { set, useStore } from "./state.js";
import { t } from "./words.js";

/** Labels and matrix of a map over the pieces of a look, in the unit that the state names. */
export function inUnit(look, matrix, unit) {
  if (unit === "pieces") return { rows: pieceLabels(look.target), columns: pieceLabels(look.source), matrix };
  return { rows: wordLabels(look.target), columns: wordLabels(look.source), matrix: mergeWords(matrix, look.target.words, look.source.words) };
}

/** Words or pieces. */
export function Unit() {
  const state = useStore();
  return html`<${Segments} label=${t("unit")} choices=${[["words", t("words")], ["pieces", t("pieces")]]} value=${state.unit} choose=${(unit) => set({ unit })} />`;
}

/** What can be set for the lens, whatever the number of models. */
export const AttentionControls = () => html`<div class="controls"><${Unit} /></div>`;

/** @param {{model: any, sentence: any, look: any, isMain: boolean}} props */
export function Attention({ model, sentence, look, isMain }) {
  const state = useStore();
  const target = look.target.pieces.map((piece) => piece.id);
  const body = { model: model.name, source: sentence.source, target };
  const heads = useCall(model.can.heads !== false && model.attention ? (signal) => call("/api/attention", body, signal) : null, [body], kept("/api/attention", body));
  const given = heads.isCurrent ? heads.value : null;
  const chosen = headOf(state.head);
  const one = given && chosen ? given.weights[chosen[0]]?.[chosen[1]] : null;
  const map = useMemo(() => {
    if (one) return inUnit(look, one, state.unit);
    if (state.unit === "words" && look.words?.attention) return { rows: wordLabels(look.target), columns: wordLabels(look.source), matrix: look.words.attention };
    return look.attention ? inUnit(look, look.attention, state.unit) : null;
  }, [look, one, state.unit]);
  if (!map) return html`<p class="notice">${model.why_not?.attention ?? t("cannot", { lens: t("lens_attention") })}</p>`;
  const title = one ? t("headTitle", { layer: chosen[0] + 1, head: chosen[1] + 1 }) : t("meanTitle");
  return html`<div class="attention">
    <div class="side-by-side">
      <${Figure} title=${title} name="attention" rows=${() => heatRows(map)} svg=${() => heatSvg(map)} data=${{ model: model.name, head: one ? chosen : "mean", unit: state.unit, ...map }}>
        <${HeatMap} ...${map} label=${title} rowName=${t("target")} columnName=${t("source")} />
      <//>
      ${(given && given.cost) || heads.error || heads.loading
        ? html`<div class="picker">${given ? html`<${Heads} given=${given} isMain=${isMain} />` : html`<${Waiting} result=${heads} />`}</div>`
        : null}
    </div>
  </div>`;
}

/** The grid of all heads: each cell is shaded by what switching that head off costs. */
function Heads({ given, isMain }) {
  const state = useStore();
  const most = given.cost.reduce((top, row) => row.reduce((high, value) => Math.max(high, Math.abs(value)), top), 1e-9);
  const chosen = headOf(state.head);
  const isChosen = (layer, head) => Boolean(chosen) && chosen[0] === layer && chosen[1] === head;
  const label = (layer, head) =>
    t(isOff(layer, head, state.off) ? "headOff" : "headLabel", { layer: layer + 1, head: head + 1, cost: number(given.cost[layer][head], 3) });
  const switchOff = (layer, head) =>
    set({
      off: isOff(layer, head, state.off) ? state.off.filter(([l, h]) => l !== layer || h !== head) : [...state.off, [layer, head]],
      prefix: [],
      node: -1,
      step: -1,
    });
  return html`<h3>${t("heads")}</h3>
    <p class="quiet small">${t("headsHint")}</p>
    <div class="row">
      <button type="button" class="button" aria-pressed=${chosen ? "false" : "true"} onClick=${() => set({ head: "mean" })}>${t("mean")}</button>
      ${chosen &&
      isMain &&
      html`<button type="button" class="button" aria-pressed=${isOff(chosen[0], chosen[1], state.off) ? "true" : "false"} onClick=${() => switchOff(chosen[0], chosen[1])}>
        ${t(isOff(chosen[0], chosen[1], state.off) ? "switchOn" : "switchOff", { layer: chosen[0] + 1, head: chosen[1] + 1 })}
      </button>`}
      ${isMain && state.off.length > 0 && html`<button type="button" class="button" onClick=${() => set({ off: [] })}>${t("allOn", { n: state.off.length })}</button>`}
    </div>
    <div class="heads" role="group" aria-label=${t("heads")} style=${{ gridTemplateColumns: `max-content repeat(${given.heads}, minmax(24px, 44px))` }} onKeyDown=${(event) => rove(event, ".head", { columns: given.heads })}>
      <span></span>
      ${Array.from({ length: given.heads }, (_, head) => html`<span key=${`h${head}`} class="quiet small centre" aria-hidden="true">${head + 1}</span>`)}
      ${given.cost.map(
        (row, layer) => html`<span key=${`l${layer}`} class="quiet small" aria-hidden="true">${t("layer", { n: layer + 1 })}</span>
          ${row.map(
            (cost, head) => html`<button
              type="button"
              key=${`${layer}.${head}`}
              class=${`head${isOff(layer, head, state.off) ? " off" : ""}`}
              aria-pressed=${isChosen(layer, head) ? "true" : "false"}
              tabindex=${isChosen(layer, head) || (!chosen && !layer && !head) ? 0 : -1}
              aria-label=${label(layer, head)}
              title=${label(layer, head)}
              style=${{ backgroundColor: `color-mix(in srgb, var(${cost < 0 ? "--warm" : "--heat"}) ${Math.round(85 * clamp(Math.abs(cost) / most, 0, 1))}%, var(--paper))` }}
              onClick=${() => set({ head: headName(layer, head) })}
            ></button>`,
          )}`,
      )}
    </div>
    <p class="scale small quiet" aria-hidden="true"><span>0</span><span class="ramp"></span><span>${t("costScale", { n: number(most, 2) })}</span></p>`;
}
