/** Sentences: the dev lines of a run, or pairs that were pasted, worst first; a row opens the first screen. */

import { listen } from "./api.js";
import { diffWords } from "./diff.js";
import { Figure, snapshotTexts } from "./figure.js";
import { html, number, useEffect, useMemo, useRef, useState } from "./lib.js";
import { set, useStore } from "./state.js";
import { t } from "./words.js";

export const MOST_PAIRS = 500;
const SHOWN = 100;

/** Pairs of lines with a tab, or the sentence that says which line is wrong. */
export function readPairs(/** @type {string} */ text) {
  const lines = text.replace(/\r/g, "").split("\n");
  while (lines.length && !lines[lines.length - 1].trim()) lines.pop();
  const pairs = [];
  for (const [at, line] of lines.entries()) {
    if (!line.trim()) continue;
    const parts = line.split("\t").map((part) => part.trim());
    if (parts.length < 2 || !parts[0] || !parts[1]) return { pairs: [], problem: t("noTab", { n: at + 1 }) };
    pairs.push([parts[0], parts[1]]);
    if (pairs.length > MOST_PAIRS) return { pairs: [], problem: t("tooMany", { n: at + 1, most: MOST_PAIRS }) };
  }
  return { pairs, problem: "" };
}

/** @param {{about: any, model: any}} props */
export function Sentences({ about, model }) {
  const state = useStore();
  const [isPasted, paste] = useState(Boolean(state.pairs));
  const [progress, advance] = useState(/** @type {{done: number, all: number} | null} */ (null));
  const [result, settle] = useState(/** @type {any} */ (null));
  const [error, complain] = useState("");
  const [worstFirst, turn] = useState(true);
  const [most, more] = useState(SHOWN);
  const running = useRef(/** @type {AbortController | null} */ (null));
  useEffect(() => () => running.current?.abort(), []);
  useEffect(() => {
    running.current?.abort();
    settle(null);
    advance(null);
    complain("");
  }, [model.name]);

  const others = about.models.filter((each) => each.purpose === "translator" && each.source === model.source && each.target === model.target);
  const other = others.find((each) => each.name === state.other);
  const given = useMemo(() => readPairs(state.pairs), [state.pairs, state.language]);
  const isReady = !isPasted || (given.pairs.length > 0 && !given.problem);

  async function start() {
    running.current?.abort();
    const controller = new AbortController();
    running.current = controller;
    complain("");
    settle(null);
    more(SHOWN);
    advance({ done: 0, all: isPasted ? given.pairs.length : 0 });
    try {
      const body = { model: model.name, pairs: isPasted ? given.pairs : null, limit: MOST_PAIRS };
      if (other) body.other = other.name;
      await listen("/api/sentences", body, controller.signal, (event) => {
        if (event.error) complain(event.error.message ?? String(event.error));
        if (event.rows) settle(event);
        else if (event.all !== undefined) advance(event);
      });
    } catch (problem) {
      if (!controller.signal.aborted) complain(problem.message);
    } finally {
      if (running.current === controller) {
        running.current = null;
        advance(null);
      }
    }
  }
  const rows = useMemo(() => {
    const all = [...(result?.rows ?? [])].sort((one, two) => one.chrf - two.chrf);
    return worstFirst ? all : all.reverse();
  }, [result, worstFirst]);
  snapshotTexts.current = () => [[t("model"), model.name], [t("scores"), scoreLines(result).join("\n")]];
  const table = () => [
    ["chrF", t("source"), t("reference"), model.name, ...(other ? [`chrF ${other.name}`, other.name] : [])],
    ...rows.map((row) => [row.chrf, row.source, row.reference, row.translation, ...(row.other ? [row.other.chrf, row.other.translation] : [])]),
  ];
  return html`<div class="sheet">
    <h2>${t("view_sentences")}</h2>
    <p class="about">${t("aboutSentences")}</p>
    <div class="controls">
      <div class="segments" role="group" aria-label=${t("lines")}>
        <button type="button" aria-pressed=${isPasted ? "false" : "true"} onClick=${() => paste(false)}>${t("devLines")}</button>
        <button type="button" aria-pressed=${isPasted ? "true" : "false"} onClick=${() => paste(true)}>${t("ownPairs")}</button>
      </div>
      <label>${t("against")} <select value=${state.other} onChange=${(event) => set({ other: event.currentTarget.value })}>
        <option value="">${t("nobody")}</option>
        ${others.map((each) => html`<option key=${each.name} value=${each.name}>${each.name}</option>`)}
      </select></label>
      ${progress
        ? html`<button type="button" class="button" onClick=${() => running.current?.abort()}>${t("cancel")}</button>`
        : html`<button type="button" class="button strong" disabled=${!isReady} onClick=${start}>${t("translateLines")}</button>`}
    </div>
    ${isPasted &&
    html`<label class="stacked" for="pairs">${t("pairsHint", { most: MOST_PAIRS })}
        <textarea id="pairs" rows="6" dir="auto" value=${state.pairs} placeholder=${t("pairsExample")} onInput=${(event) => set({ pairs: event.currentTarget.value })}></textarea></label>
      ${given.problem ? html`<p class="error" role="alert">${given.problem}</p>` : html`<p class="quiet small">${t("pairCount", { n: given.pairs.length })}</p>`}`}
    ${error && html`<div class="error" role="alert"><span>${error}</span><button type="button" class="button" onClick=${start}>${t("retry")}</button></div>`}
    ${progress &&
    html`<div class="progress"><progress aria-label=${t("progress")} max=${progress.all || 1} value=${progress.all ? progress.done : null}></progress>
      <span class="quiet">${progress.all ? t("doneOf", { n: progress.done, all: progress.all }) : t("loading")}</span></div>`}
    ${result &&
    html`<div class="tiles">${scoreLines(result).map((line) => html`<p class="tile" key=${line}>${line}</p>`)}</div>
      ${other && result.wins !== undefined && result.wins !== null && html`<${Contest} result=${result} model=${model} other=${other} />`}
      <${Figure} title=${t("linesTitle", { n: rows.length })} name="sentences" rows=${table} data=${result} plain>
        <div class="scroll" tabindex="0" role="region" aria-label=${t("linesTitle", { n: rows.length })}>
          <table class="figures lines">
            <thead><tr>
              <th scope="col" aria-sort=${worstFirst ? "ascending" : "descending"}><button type="button" class="link" onClick=${() => turn(!worstFirst)}>chrF ${worstFirst ? "↑" : "↓"}</button></th>
              <th scope="col" class="text">${t("lineAndReference")}</th><th scope="col" class="text"><bdi>${model.name}</bdi></th>
              ${other && html`<th scope="col">chrF</th><th scope="col" class="text"><bdi>${other.name}</bdi></th>`}
            </tr></thead>
            <tbody>
              ${rows.slice(0, most).map(
                (row, at) => html`<tr key=${at} class=${row.other ? (row.chrf > row.other.chrf ? "won" : row.chrf < row.other.chrf ? "lost" : "") : ""}>
                  <td>${number(row.chrf, 1)}</td>
                  <td class="text"><button type="button" class="link" dir="auto" title=${t("openLine")} onClick=${() => set({ view: "translate", text: row.source, sentence: 0, prefix: [], off: [], node: -1, step: -1 })}>${row.source}</button><p class="quiet" dir="auto">${row.reference}</p></td>
                  <td class="text" dir="auto">${marked(row.reference, row.translation)}</td>
                  ${row.other && html`<td>${number(row.other.chrf, 1)}</td><td class="text" dir="auto">${marked(row.reference, row.other.translation)}</td>`}
                </tr>`,
              )}
            </tbody>
          </table>
        </div>
        ${rows.length > most && html`<button type="button" class="button" onClick=${() => more(most + SHOWN)}>${t("showMore")}</button>`}
      <//>`}
    ${!result && !progress && !error && html`<p class="quiet empty">${t(isPasted ? "emptyPairs" : "emptySentences")}</p>`}
  </div>`;
}

/** What the reference does not have is marked. */
const marked = (reference, text) => diffWords(reference, text).map((part) => (part.isNew ? html`<ins>${part.text}</ins>` : part.text));

const scoreLines = (result) => (result?.scores ?? []).map((each) => (typeof each === "string" ? each : `${each.name ?? ""} ${each.text ?? number(each.value, 1)}`));

/** Wins, losses, ties, and whether the difference is more than chance. */
function Contest({ result, model, other }) {
  const { wins, losses, ties, bootstrap } = result;
  const all = Math.max(1, wins + losses + ties);
  const share = (count) => ({ width: `${(100 * count) / all}%` });
  return html`<div class="contest">
    <p>${t("contest", { model: model.name, other: other.name, wins, losses, ties })}</p>
    <div class="contest-bar" aria-hidden="true"><span class="won" style=${share(wins)}></span><span class="tied" style=${share(ties)}></span><span class="lost" style=${share(losses)}></span></div>
    ${bootstrap && html`<p class="quiet small">${bootstrapText(bootstrap)}</p>`}
  </div>`;
}

function bootstrapText(bootstrap) {
  if (typeof bootstrap === "string") return bootstrap;
  const parts = Object.entries(bootstrap).map(([name, value]) => `${name.replaceAll("_", " ")} ${typeof value === "number" ? number(value, 3) : Array.isArray(value) ? `[${value.map((each) => (typeof each === "number" ? number(each, 2) : String(each))).join(", ")}]` : String(value)}`);
  return `${t("bootstrap")}: ${parts.join(" · ")}`;
}
