/** Reasons: which source symbols a translation depends on, by three methods, beside attention. */

import { call, kept, useCall } from "./api.js";
import { inUnit, Unit } from "./attention.js";
import { Figure } from "./figure.js";
import { HeatMap, heatRows, heatSvg } from "./heat.js";
import { Segments, Waiting } from "./parts.js";
import { html, number, useMemo } from "./lib.js";
import { set, useStore } from "./state.js";
import { t } from "./words.js";

const METHODS = ["gradient_x_input", "integrated_gradients", "occlusion"];

const methodOf = (state) => (METHODS.includes(state.method) ? state.method : METHODS[0]);

/** Method and unit. */
export function ReasonsControls() {
  const state = useStore();
  return html`<div class="controls">
    <${Segments} label=${t("method")} choices=${METHODS.map((name) => [name, t(name)])} value=${methodOf(state)} choose=${(name) => set({ method: name })} />
    <${Unit} />
  </div>`;
}

/** @param {{model: any, sentence: any, look: any, isMain: boolean}} props */
export function Reasons({ model, sentence, look }) {
  const state = useStore();
  const method = methodOf(state);
  const body = { model: model.name, source: sentence.source, target: look.target.pieces.map((piece) => piece.id), method };
  const result = useCall((signal) => call("/api/reasons", body, signal), [body], kept("/api/reasons", body));
  const reasons = result.isCurrent && result.value ? result.value : null;
  const map = useMemo(() => reasons && inUnit(look, reasons.matrix, state.unit), [reasons, state.unit]);
  const seen = useMemo(() => look.attention && inUnit(look, look.attention, state.unit), [look, state.unit]);
  return html`<div>
    <div class="side-by-side">
      ${map
        ? html`<${Figure} title=${t(method)} name=${method} rows=${() => heatRows(map)} svg=${() => heatSvg(map)} data=${{ model: model.name, method, unit: state.unit, gap: reasons.gap, ...map }}>
            <${HeatMap} ...${map} label=${t(method)} rowName=${t("target")} columnName=${t("source")} />
            <p class="small quiet">${t(`about_${method}`)}${reasons.gap !== null && reasons.gap !== undefined ? ` ${t("gap", { n: `${number(100 * reasons.gap, 2)} %`, steps: reasons.steps })}` : ""}</p>
          <//>`
        : html`<${Waiting} result=${result} />`}
      ${seen &&
      html`<${Figure} title=${t("meanTitle")} name="attention" rows=${() => heatRows(seen)} svg=${() => heatSvg(seen)} data=${{ model: model.name, unit: state.unit, ...seen }}>
        <${HeatMap} ...${seen} label=${t("meanTitle")} rowName=${t("target")} columnName=${t("source")} />
      <//>`}
    </div>
  </div>`;
}
