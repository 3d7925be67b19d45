/** The page: header, views, keys, and what is said when the server is gone. */

import { call, setKey, useCall, useServer } from "./api.js";
import { icon } from "./icons.js";
import { LENSES } from "./lenses.js";
import { Fragment, html, render, useEffect, useRef, useState } from "./lib.js";
import { Runs } from "./runs.js";
import { Sentences } from "./sentences.js";
import { get, set, useStore } from "./state.js";
import { Translate } from "./translate.js";
import { language, languageName, LANGUAGES, t } from "./words.js";
import { Write } from "./write.js";

const THEMES = ["", "light", "dark"];

function Page() {
  const state = useStore();
  const server = useServer();
  const about = useCall((signal) => call("/api/models", undefined, signal), ["models"]);
  const help = useRef(null);
  useEffect(() => {
    document.documentElement.lang = language();
    document.title = `${t(`view_${known(state.view)}`)} · Seqloom`;
  }, [state.language, state.view]);
  useEffect(() => {
    if (state.theme) document.documentElement.dataset.theme = state.theme;
    else delete document.documentElement.dataset.theme;
    dispatchEvent(new Event("seqloom-theme"));
  }, [state.theme]);
  useEffect(() => {
    const media = matchMedia("(prefers-color-scheme: dark)");
    const again = () => dispatchEvent(new Event("seqloom-theme"));
    media.addEventListener("change", again);
    return () => media.removeEventListener("change", again);
  }, []);
  useEffect(() => {
    const onKey = (event) => {
      const isWriting = event.target.closest?.("input:not([type=range]):not([type=checkbox]), textarea, select");
      if (event.altKey && !event.ctrlKey && !event.metaKey && /^Digit[1-5]$/.test(event.code)) {
        event.preventDefault();
        const lens = LENSES[Number(event.code.slice(5)) - 1];
        set({ view: "translate", lens });
        requestAnimationFrame(() => document.getElementById(`tab-${lens}`)?.focus());
      } else if (event.key === "/" && !isWriting && !event.ctrlKey && !event.metaKey && !event.altKey) {
        event.preventDefault();
        document.getElementById("source")?.focus();
      } else if (event.key === "?" && !isWriting) {
        event.preventDefault();
        help.current.showModal();
      }
    };
    addEventListener("keydown", onKey);
    return () => removeEventListener("keydown", onKey);
  }, []);

  const models = about.value?.models ?? [];
  const translators = models.filter((each) => each.purpose === "translator");
  const writers = models.filter((each) => each.purpose === "language model");
  const views = [...(translators.length ? ["translate", "sentences"] : []), ...(about.value?.has_runs !== false ? ["runs"] : []), ...(writers.length ? ["write"] : [])];
  const view = views.includes(state.view) ? state.view : (views.includes("write") && !translators.length ? "write" : views[0]);
  const model = translators.find((each) => each.name === state.model) ?? translators[0];
  return html`<${Fragment}>
    <a class="skip" href="#main" onClick=${(event) => {
      event.preventDefault();
      document.getElementById("main").focus();
    }}>${t("skip")}</a>
    <header class="top">
      <p class="brand"><${Mark} /><span>${!about.value || about.value.name === "seqloom" ? "Seqloom" : about.value.name}</span></p>
      <nav aria-label=${t("views")}>
        ${views.map((name) => html`<button type="button" key=${name} aria-current=${name === view ? "page" : null} onClick=${() => set({ view: name })}>${t(`view_${name}`)}</button>`)}
      </nav>
      ${model && (view === "translate" || view === "sentences") && html`<${Picker} translators=${translators} model=${model} />`}
      <div class="tools">
        <button type="button" class="quiet-button" lang=${language() === "en" ? "zh" : "en"} aria-label=${language() === "en" ? "中文" : "English"} onClick=${() => set({ language: LANGUAGES[(LANGUAGES.indexOf(language()) + 1) % LANGUAGES.length] })}>${language() === "en" ? "中文" : "English"}</button>
        <${Theme} />
        <button type="button" class="icon-button" title=${t("help")} aria-label=${t("help")} onClick=${() => help.current.showModal()}>${icon("help")}</button>
      </div>
    </header>
    ${server.gone && html`<p class="banner" role="alert">${t("gone")}</p>`}
    <main id="main" tabindex="-1">
      ${about.error && !server.needsKey && html`<div class="error" role="alert"><span>${about.error.message}</span><button type="button" class="button" onClick=${about.retry}>${t("retry")}</button></div>`}
      ${server.needsKey && html`<${Key} />`}
      ${!about.value && !about.error && html`<p class="quiet late empty">${t("loading")}</p>`}
      ${about.value && view === "translate" && model && html`<${Translate} about=${about.value} model=${model} />`}
      ${about.value && view === "sentences" && model && html`<${Sentences} about=${about.value} model=${model} />`}
      ${about.value && view === "runs" && html`<${Runs} />`}
      ${about.value && view === "write" && writers.length > 0 && html`<${Write} models=${writers} />`}
      ${about.value && !views.length && html`<p class="quiet empty">${t("nothingServed")}</p>`}
    </main>
    <dialog ref=${help} class="help" aria-labelledby="help-title" onClick=${(event) => event.target === help.current && help.current.close()}>
      <h2 id="help-title">${t("help")}</h2>
      <dl>
        ${[["/", "keySource"], ["Alt+1 … Alt+5", "keyLenses"], ["← → ↑ ↓", "keyArrows"], ["Enter", "keyEnter"], ["Esc", "keyEscape"], ["?", "keyHelp"]].map(
          ([keys, name]) => html`<${Fragment} key=${name}><dt><kbd>${keys}</kbd></dt><dd>${t(name)}</dd><//>`,
        )}
      </dl>
      <p class="quiet small">${t("private")}</p>
      <p class="quiet small">Seqloom ${about.value?.version ?? ""} · <a href="/openapi.json">OpenAPI</a></p>
      <form method="dialog"><button class="button strong">${t("close")}</button></form>
    </dialog>
  <//>`;
}

const known = (view) => (["translate", "sentences", "runs", "write"].includes(view) ? view : "translate");

/** Threads that cross. */
const Mark = () => html`<svg class="mark" viewBox="0 0 24 24" width="26" height="26" aria-hidden="true" fill="none" stroke-width="2.4" stroke-linecap="round">
  <path class="weft" d="M3 7h8M15 7h6M3 12h3M10 12h11M3 17h11M18 17h3" /><path class="warp" d="M13 3v7M8 9.5v5M16 14.5v6" />
</svg>`;

function Picker({ translators, model }) {
  const pair = (each) => [languageName(each.source, each.source_name), languageName(each.target, each.target_name)].filter(Boolean).join(" → ");
  const name = (each) => [pair(each) ? `${pair(each)} · ${each.name}` : each.name, ...(each.scores ?? []).slice(0, 1)].join(" · ");
  return html`<label class="picker-model"><span class="hidden-text">${t("model")}</span>
    <select value=${model.name} onChange=${(event) => {
      set({ model: event.currentTarget.value, prefix: [], off: [], head: "mean", node: -1, step: -1, beam: 0, alpha: -1, stop: "" });
    }}>${translators.map((each) => html`<option key=${each.name} value=${each.name}>${name(each)}</option>`)}</select></label>`;
}

function Theme() {
  const state = useStore();
  const next = THEMES[(THEMES.indexOf(state.theme) + 1) % THEMES.length];
  const label = t("theme", { name: t(`theme_${state.theme || "auto"}`) });
  return html`<button type="button" class="icon-button" title=${label} aria-label=${label} onClick=${() => set({ theme: next })}>${icon({ "": "auto", light: "sun", dark: "moon" }[state.theme] ?? "auto")}</button>`;
}

/** Ask for the key of a server that has keys. */
function Key() {
  const [text, change] = useState("");
  return html`<form class="key" onSubmit=${(event) => {
    event.preventDefault();
    setKey(text.trim());
  }}>
    <label for="key">${t("needsKey")}</label>
    <div class="row"><input id="key" type="password" autocomplete="off" value=${text} onInput=${(event) => change(event.currentTarget.value)} /><button class="button strong" disabled=${!text.trim()}>${t("apply")}</button></div>
  </form>`;
}

if (!get().view) set({ view: "translate" });
render(html`<${Page} />`, document.getElementById("page"));
