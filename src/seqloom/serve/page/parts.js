/** Small parts that several views share. */

import { html } from "./lib.js";
import { t } from "./words.js";

/** What is seen while a lens waits for the server, or was refused. */
export function Waiting({ result }) {
  if (result.error) {
    return html`<div class="error" role="alert"><span>${result.error.message}</span><button type="button" class="button" onClick=${result.retry}>${t("retry")}</button></div>`;
  }
  return html`<p class="quiet late">${t("loading")}</p>`;
}

/** Buttons of which one is pressed. @param {{label: string, choices: [string, string][], value: string, choose: (value: string) => void}} props */
export function Segments({ label, choices, value, choose }) {
  return html`<div class="segments" role="group" aria-label=${label}>
    ${choices.map(([name, text]) => html`<button type="button" key=${name} aria-pressed=${name === value ? "true" : "false"} onClick=${() => choose(name)}>${text}</button>`)}
  </div>`;
}
