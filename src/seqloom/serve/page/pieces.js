/** Pieces: both sides as the model reads them, with everything that is otherwise not seen. */

import { call, kept, useCall } from "./api.js";
import { Figure } from "./figure.js";
import { Waiting } from "./parts.js";
import { html, percent } from "./lib.js";
import { languageName, t } from "./words.js";

/** @param {{model: any, sentence: any, look: any, isMain: boolean}} props */
export function Pieces({ model, sentence, look }) {
  const target = look?.translation ?? sentence.translation ?? "";
  return html`<div class="stack">
    <${Side} model=${model} side="source" text=${sentence.source} title=${languageName(model.source, model.source_name) || t("source")} own=${look?.source.pieces} />
    ${target && html`<${Side} model=${model} side="target" text=${target} title=${languageName(model.target, model.target_name) || t("translation")} own=${look?.target.pieces} />`}
  </div>`;
}

function Side({ model, side, text, title, own }) {
  const body = { model: model.name, text, side };
  const result = useCall((signal) => call("/api/pieces", body, signal), [body], kept("/api/pieces", body));
  if (!result.isCurrent || !result.value) return html`<${Waiting} result=${result} />`;
  // What the model wrote is cut as it was written; cutting its text again may cut it otherwise.
  const given = result.value.pieces;
  const pieces = own ? own.map((piece, at) => ({ ...(given[at]?.id === piece.id ? given[at] : given.find((each) => each.id === piece.id)), ...piece })) : given;
  const hidden = pieces.filter((piece) => piece.unknown).length;
  const rows = () => [
    [t("id"), t("piece"), t("script"), t("direction"), t("unknownName")],
    ...pieces.map((piece) => [piece.id, piece.shown, piece.script ?? "", piece.direction ?? "", piece.unknown ? t("yes") : ""]),
  ];
  return html`<${Figure} title=${title} name=${`pieces-${side}`} rows=${rows} data=${pieces}>
    <p class="quiet small">${t("pieceCount", { n: pieces.length, unknown: hidden })}</p>
    <ol class="pieces" dir="ltr">
      ${pieces.map(
        (piece, at) => html`<li key=${at} class=${`piece${piece.unknown ? " unknown" : ""}${piece.direction === "rtl" ? " rtl" : ""}`} title=${[piece.script, piece.probability !== undefined ? percent(piece.probability) : ""].filter(Boolean).join(" · ")}>
          <span class="piece-text">${show(piece.text || piece.shown)}</span>
          <span class="piece-id">${piece.id}${piece.direction === "rtl" ? " ←" : ""}${piece.unknown ? ` ${t("unknownShort")}` : ""}</span>
        </li>`,
      )}
    </ol>
  <//>`;
}

// What no eye sees: controls, formats (bidi marks, joiners, soft hyphens), separators, and blanks other than a space.
const HIDDEN = /([▁\p{Cc}\p{Cf}\p{Zl}\p{Zp}\p{Zs}])/u;

/** A piece with its invisible characters written out, and its letters kept apart from the direction of their neighbours. */
function show(text) {
  if (text === "</s>") return "END";
  return text.split(HIDDEN).filter(Boolean).map((part, at) => {
    if (part === "▁") return html`<span key=${at} class="quiet">·</span>`;
    if (!HIDDEN.test(part)) return html`<bdi key=${at}>${part}</bdi>`;
    const code = part === " " ? "␣" : `U+${part.codePointAt(0).toString(16).toUpperCase().padStart(4, "0")}`;
    return html`<code key=${at} class="invisible">${code}</code>`;
  });
}
