/** The lenses under the boxes, as tabs; with compared models, side by side. */

import { Attention, AttentionControls } from "./attention.js";
import { html, rove, useRef } from "./lib.js";
import { Pieces } from "./pieces.js";
import { Reach } from "./reach.js";
import { Reasons, ReasonsControls } from "./reasons.js";
import { useLook } from "./search.js";
import { SearchControls, SearchTree } from "./searching.js";
import { set, useStore } from "./state.js";
import { t } from "./words.js";

/** Their order is that of the keys Alt+1 … Alt+5. */
export const LENSES = ["attention", "search", "reasons", "reach", "pieces"];
const VIEWS = { attention: Attention, search: SearchTree, reasons: Reasons, reach: Reach, pieces: Pieces };
const CONTROLS = { attention: AttentionControls, search: SearchControls, reasons: ReasonsControls };
/** What a model must be able to do for a lens. */
const NEEDS = { attention: "attention", search: "watch", reasons: "reasons", reach: "reach", pieces: null };

/** @param {{about: any, model: any, sentence: any, look: any, isStale: boolean}} props */
export function Lenses({ about, model, sentence, look, isStale }) {
  const state = useStore();
  const tabs = useRef(null);
  const lens = LENSES.includes(state.lens) ? state.lens : LENSES[0];
  const compared = state.compare.map((name) => about.models.find((each) => each.name === name)).filter(Boolean).slice(0, 3);
  return html`<section class="lenses" aria-label=${t("lenses")}>
    <div class="tabs" role="tablist" aria-label=${t("lenses")} ref=${tabs} onKeyDown=${(event) => {
      rove(event, "[role=tab]");
      const focused = document.activeElement?.getAttribute("data-lens");
      if (focused && focused !== lens) set({ lens: focused });
    }}>
      ${LENSES.map(
        (name, at) => html`<button
          type="button"
          key=${name}
          role="tab"
          id=${`tab-${name}`}
          data-lens=${name}
          aria-selected=${name === lens ? "true" : "false"}
          aria-controls="lens"
          tabindex=${name === lens ? 0 : -1}
          title=${`Alt+${at + 1}`}
          onClick=${() => set({ lens: name })}
        >${t(`lens_${name}`)}</button>`,
      )}
    </div>
    <div class="lens" id="lens" role="tabpanel" aria-labelledby=${`tab-${lens}`} tabindex="-1">
      <p class="about">${t(`about_${lens}`)}</p>
      ${CONTROLS[lens] && look && model.can[NEEDS[lens]] && html`<${CONTROLS[lens]} model=${model} />`}
      <div class=${`columns columns-${1 + compared.length}`}>
        <${OneLens} key=${`0${model.name}`} lens=${lens} model=${model} sentence=${sentence} look=${look} isStale=${isStale} isMain=${true} name=${compared.length ? model.name : ""} />
        ${compared.map((each) => html`<${OtherLens} key=${`1${each.name}`} lens=${lens} model=${each} sentence=${sentence} />`)}
      </div>
    </div>
  </section>`;
}

function OtherLens({ lens, model, sentence }) {
  const looking = useLook(model, sentence?.source ?? "", { own: false });
  const asked = looking.value ? { ...sentence, source: looking.value.asked.source } : sentence;
  return html`<${OneLens} lens=${lens} model=${model} sentence=${asked} look=${looking.value} isStale=${looking.loading} isMain=${false} name=${model.name} />`;
}

function OneLens({ lens, model, sentence, look, isStale, isMain, name }) {
  const need = NEEDS[lens];
  const View = VIEWS[lens];
  let body;
  if (need && !model.can[need]) body = html`<p class="notice">${model.why_not?.[need] ?? t("cannot", { lens: t(`lens_${lens}`) })}</p>`;
  else if (!sentence || (lens !== "pieces" && !look)) body = html`<p class="quiet empty">${t(sentence || isStale ? "loading" : "emptyLens")}</p>`;
  else body = html`<${View} model=${model} sentence=${sentence} look=${look} isMain=${isMain} />`;
  return html`<div class=${`column${isStale ? " stale" : ""}`}>${name && html`<p class="column-name"><bdi>${name}</bdi></p>`}${body}</div>`;
}
