/** Reach: how far back an input still moves an output, as maps and as a profile by lag. */

import { call, kept, useCall } from "./api.js";
import { Figure } from "./figure.js";
import { HeatMap, heatRows, heatSvg } from "./heat.js";
import { Waiting } from "./parts.js";
import { html, useMemo } from "./lib.js";
import { spaced } from "./search.js";
import { t } from "./words.js";

const WIDTH = 460, HEIGHT = 240, LEFT = 56, FOOT = 36;

/** @param {{model: any, sentence: any, look: any, isMain: boolean}} props */
export function Reach({ model, sentence, look }) {
  const body = { model: model.name, source: sentence.source, target: look.target.pieces.map((piece) => piece.id) };
  const result = useCall((signal) => call("/api/reach", body, signal), [body], kept("/api/reach", body));
  if (!result.isCurrent || !result.value) return html`<${Waiting} result=${result} />`;
  const { maps, profile, sentence: seen } = result.value;
  return html`<div>
    ${seen && html`<p lang="en" class="quiet seen">${seen}</p>`}
    <div class="side-by-side by-two">
      ${maps.map(
        (given) => ({ ...given, rows: given.rows.map(spaced), columns: given.columns.map(spaced) }),
      ).map(
        (map) => html`<${Figure} key=${map.name} title=${map.name} name=${`reach-${map.name}`} rows=${() => heatRows(map)} svg=${() => heatSvg(map)} data=${map}>
          <${HeatMap} rows=${map.rows} columns=${map.columns} matrix=${map.matrix} label=${map.name} rowName=${t("output")} columnName=${t("input")} />
        <//>`,
      )}
      ${profile?.length > 1 && html`<${Profile} profile=${profile} />`}
    </div>
  </div>`;
}

/** The norm by lag, on a logarithmic axis. */
function Profile({ profile }) {
  const drawing = useMemo(() => lines(profile), [profile]);
  const make = () => {
    const svg = document.querySelector(".profile");
    return /** @type {SVGElement} */ (svg);
  };
  return html`<${Figure} title=${t("profile")} name="profile" rows=${() => [[t("lag"), t("norm")], ...profile.map((each) => [each.lag, each.norm])]} svg=${make} data=${profile}>
    <div class="scroll" tabindex="0" role="region" aria-label=${t("profile")}>
      <svg class="profile" width=${WIDTH} height=${HEIGHT} viewBox=${`0 0 ${WIDTH} ${HEIGHT}`} role="img" aria-label=${t("profileLabel")}>
        ${drawing.marks.map(
          (mark) => html`<line key=${`g${mark.text}`} class="grid" x1=${LEFT} x2=${WIDTH - 8} y1=${mark.y} y2=${mark.y} /><text key=${mark.text} x=${LEFT - 8} y=${mark.y + 4} text-anchor="end">${mark.text}</text>`,
        )}
        <polyline class="line" points=${drawing.points.map(([x, y]) => `${x},${y}`).join(" ")} />
        ${drawing.points.map(([x, y], at) => html`<circle key=${at} class="dot" cx=${x} cy=${y} r="3"><title>${`${profile[at].lag}: ${profile[at].norm.toPrecision(3)}`}</title></circle>`)}
        ${drawing.lags.map(([x, lag]) => html`<text key=${`x${lag}`} x=${x} y=${HEIGHT - FOOT + 16} text-anchor="middle">${lag}</text>`)}
        <text x=${(LEFT + WIDTH) / 2} y=${HEIGHT - 4} text-anchor="middle">${t("lagAxis")}</text>
      </svg>
    </div>
  <//>`;
}

function lines(profile) {
  const logs = profile.map((each) => Math.log10(Math.max(each.norm, 1e-30)));
  const high = Math.ceil(Math.max(...logs)), low = Math.min(high - 1, Math.floor(Math.min(...logs)));
  const least = Math.min(...profile.map((each) => each.lag)), most = Math.max(...profile.map((each) => each.lag));
  const across = (lag) => LEFT + 8 + ((WIDTH - LEFT - 24) * (lag - least)) / Math.max(1, most - least);
  const down = (log) => 10 + ((HEIGHT - FOOT - 16) * (high - log)) / (high - low);
  const every = Math.max(1, Math.ceil((high - low) / 5));
  const marks = [];
  for (let at = high; at >= low; at -= every) marks.push({ y: down(at), text: `10${String(at).replace(/[-\d]/g, (digit) => "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"["-0123456789".indexOf(digit)])}` });
  const step = Math.max(1, Math.ceil(profile.length / 10));
  return {
    points: profile.map((each, at) => [across(each.lag), down(logs[at])]),
    lags: profile.filter((_, at) => at % step === 0).map((each) => [across(each.lag), each.lag]),
    marks,
  };
}
