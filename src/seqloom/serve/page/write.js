/** Write: a language model, its ten next tokens as bars, and the perplexity of what stands there. */

import { call, kept, useCall } from "./api.js";
import { Figure, snapshotTexts } from "./figure.js";
import { html, number, percent, rove, useSettled } from "./lib.js";
import { set, useStore } from "./state.js";
import { spaced } from "./search.js";
import { t } from "./words.js";

const PAUSE_MILLISECONDS = 250;

/** @param {{models: any[]}} props */
export function Write({ models }) {
  const state = useStore();
  const model = models.find((each) => each.name === state.writer) ?? models[0];
  const prompt = useSettled(state.prompt, PAUSE_MILLISECONDS);
  const body = { model: model.name, prompt, temperature: state.temperature, top_p: state.top_p };
  const result = useCall((signal) => call("/api/next", body, signal), [body], kept("/api/next", body));
  const tokens = result.value?.tokens ?? [];
  const isStale = prompt !== state.prompt || !result.isCurrent;
  snapshotTexts.current = () => [[model.name, state.prompt]];
  const most = Math.max(...tokens.map((token) => token.probability), 1e-9);
  const rows = () => [[t("token"), t("probability")], ...tokens.map((token) => [token.shown, token.probability])];
  return html`<div class="sheet">
    <h2>${t("view_write")}</h2>
    <p class="about">${t("aboutWrite")}</p>
    <div class="write">
      <div>
        <label class="stacked" for="source">${t("prompt")}
          <textarea id="source" rows="8" dir="auto" spellcheck=${false} value=${state.prompt} placeholder=${t("promptExample")} onInput=${(event) => set({ prompt: event.currentTarget.value })}></textarea></label>
        <p class="status" aria-live="polite">${result.value && state.prompt ? t("perplexity", { n: number(result.value.perplexity, 1) }) : t("noPerplexity")}</p>
        ${result.value?.pieces?.length > 0 &&
        state.prompt &&
        html`<p class="strip" aria-label=${t("strip")} role="img">${result.value.pieces.map(
          (piece, at) => html`<span key=${at} title=${percent(piece.probability)} style=${{ backgroundColor: `color-mix(in srgb, var(--warm) ${Math.round(piece.probability === null ? 0 : 45 * (1 - piece.probability))}%, transparent)` }}><bdi>${piece.shown.replaceAll("▁", " ")}</bdi></span>`,
        )}</p>`}
      </div>
      <div class=${isStale ? "stale" : ""}>
        <div class="controls">
          ${models.length > 1 && html`<label>${t("model")} <select value=${model.name} onChange=${(event) => set({ writer: event.currentTarget.value })}>${models.map((each) => html`<option key=${each.name} value=${each.name}>${each.name}</option>`)}</select></label>`}
          <label title=${t("temperatureHint")}>${t("temperature")} <input type="range" min="0.1" max="2" step="0.1" value=${state.temperature} onInput=${(event) => set({ temperature: Number(event.currentTarget.value) })} /><output>${number(state.temperature, 1)}</output></label>
          <label title=${t("topPHint")}>top-p <input type="range" min="0.05" max="1" step="0.05" value=${state.top_p} onInput=${(event) => set({ top_p: Number(event.currentTarget.value) })} /><output>${number(state.top_p, 2)}</output></label>
        </div>
        ${result.error
          ? html`<div class="error" role="alert"><span>${result.error.message}</span><button type="button" class="button" onClick=${result.retry}>${t("retry")}</button></div>`
          : html`<${Figure} title=${t("next")} name="next" rows=${rows} data=${result.value}>
              <ol class="bars" onKeyDown=${(event) => rove(event, "button")}>
                ${tokens.map(
                  (token, at) => html`<li key=${token.id}><button type="button" tabindex=${at ? -1 : 0} onClick=${() => set({ prompt: prompt + token.text })} aria-label=${t("append", { token: token.shown, p: percent(token.probability) })}>
                    <bdi class="bar-text">${spaced(token.shown)}</bdi><span class="bar"><span style=${{ width: `${(100 * token.probability) / most}%` }}></span></span><span class="figure-text">${percent(token.probability)}</span>
                  </button></li>`,
                )}
              </ol>
            <//>`}
      </div>
    </div>
  </div>`;
}
