/** The first screen: two boxes, what each word looked at, rivals and alternatives; lenses and comparison below. */

import { diffWords } from "./diff.js";
import { Menu, save, snapshotTexts } from "./figure.js";
import { icon } from "./icons.js";
import { Lenses } from "./lenses.js";
import { clamp, copy, html, number, percent, placesIn, useEffect, useMemo, useRef, useSettled, useState } from "./lib.js";
import { placeWords, prefixBefore, spaced, useLook, useTranslation, wordProbability } from "./search.js";
import { set, useStore } from "./state.js";
import { languageName, t } from "./words.js";

const PAUSE_MILLISECONDS = 250;
const DOUBT = 0.5;
/** Under this probability a word has a dotted line. */
const MOST_COMPARED = 3;

/** The strength of a tint as a background. */
const tint = (share) => (share > 0.02 ? { backgroundColor: `color-mix(in srgb, var(--heat) ${Math.round(clamp(share, 0, 1) * 62)}%, transparent)` } : {});

/** The sentence at a place of the text. */
function sentenceAt(sentences, place) {
  const found = sentences.findIndex((each) => place <= each.end);
  return found < 0 ? Math.max(0, sentences.length - 1) : found;
}

/** @param {{about: any, model: any}} props */
export function Translate({ about, model }) {
  const state = useStore();
  const text = useSettled(state.text, PAUSE_MILLISECONDS);
  const translation = useTranslation(model.name, text);
  const [pointed, point] = useState(/** @type {{side: "source" | "target", word: number} | null} */ (null));

  const answer = text.trim() ? translation.value : null;
  const places = useMemo(() => placesIn(text), [text]);
  const isOurs = translation.isCurrent && answer;
  const sentences = useMemo(
    () => (isOurs ? answer.sentences.map((each) => ({ ...each, begin: places(each.begin), end: places(each.end) })) : []),
    [isOurs, answer],
  );
  const index = clamp(state.sentence, 0, Math.max(0, sentences.length - 1));
  const sentence = sentences[index];
  const looking = useLook(model, sentence?.source ?? "");
  // The last look is seen until the next one is there, but it belongs to its own sentence.
  const seen = looking.value?.asked.model === model.name && state.text.trim() ? looking.value : null;
  const look = sentence && seen?.asked.source === sentence.source ? seen : null;
  const isChanging = looking.loading && (state.prefix.length > 0 || state.off.length > 0 || Boolean(look));
  const isStale = state.text !== text || !translation.isCurrent || isChanging;
  const attention = look?.words?.attention ?? null;

  snapshotTexts.current = () => [
    [languageName(model.source, model.source_name) || t("source"), state.text],
    [languageName(model.target, model.target_name) || t("translation"), answer ? whole(answer, index, look) : ""],
  ];

  const error = translation.error ?? looking.error;
  return html`<div class="translate">
    <div class="boxes">
      <${SourceBox} about=${about} model=${model} sentences=${sentences} sentence=${sentence} look=${isStale ? null : look} attention=${attention} pointed=${pointed} point=${point} />
      <${TargetBox}
        model=${model}
        answer=${answer}
        index=${index}
        sentence=${sentence}
        look=${look}
        attention=${attention}
        pointed=${pointed}
        point=${point}
        isStale=${isStale && Boolean(state.text.trim())}
        error=${error}
        retry=${() => (translation.error ? translation.retry() : looking.retry())}
        examples=${model.examples ?? []}
      />
    </div>
    <div class="below">${look && html`<${Choices} look=${look} />`}<${CompareMenu} about=${about} model=${model} sentence=${sentence} /></div>
    <${Compared} about=${about} sentence=${sentence} look=${look} />
    <${Lenses} about=${about} model=${model} sentence=${seen ? { ...sentence, source: seen.asked.source } : sentence} look=${seen} isStale=${isStale || looking.loading} />
  </div>`;
}

/** The whole translation, with what was chosen for the sentence that is looked into. */
function whole(answer, index, look) {
  if (!look || answer.sentences[index] === undefined) return answer.text;
  const parts = splitTarget(answer);
  return parts.map((part) => (part.sentence === index ? look.translation : part.text)).join("");
}

/** The translation cut into sentences and what stands between them. */
function splitTarget(answer) {
  const parts = [];
  let at = 0;
  answer.sentences.forEach((sentence, index) => {
    const begin = sentence.translation ? answer.text.indexOf(sentence.translation, at) : -1;
    if (begin < 0) return;
    if (begin > at) parts.push({ text: answer.text.slice(at, begin), sentence: null });
    parts.push({ text: sentence.translation, sentence: index });
    at = begin + sentence.translation.length;
  });
  if (at < answer.text.length) parts.push({ text: answer.text.slice(at), sentence: null });
  return parts;
}

function SourceBox({ about, model, sentences, sentence, look, attention, pointed, point }) {
  const state = useStore();
  const area = useRef(null), mirror = useRef(null), file = useRef(null);
  const [problem, complain] = useState("");
  const [isTerms, showTerms] = useState(false);
  const words = useMemo(() => {
    if (!look || !sentence) return [];
    const own = state.text.slice(sentence.begin, sentence.end);
    return placeWords(look.source, own, placesIn(look.source.text ?? own)).map((each) => ({
      ...each,
      begin: each.begin + sentence.begin,
      end: each.end + sentence.begin,
    }));
  }, [look, sentence, state.text]);

  /** How much the word that is pointed at looked at each source word, or which word is pointed at itself. */
  const weights = (index) => {
    if (!pointed) return 0;
    if (pointed.side === "source") return pointed.word === index ? 0.35 : 0;
    return attention?.[pointed.word]?.[index] ?? 0;
  };

  function change(text, extra = {}) {
    complain("");
    set({ text, prefix: [], node: -1, step: -1, ...extra });
  }
  async function open(given) {
    if (!given) return;
    const limit = about.limits?.characters ?? 5000;
    if (given.size > 4 * limit + 4) return complain(t("fileTooLong", { n: limit }));
    const text = await given.text();
    if (text.includes("\u0000")) return complain(t("fileNotText", { name: given.name }));
    if ([...text].length > limit) return complain(t("fileTooLong", { n: limit }));
    change(text, { sentence: 0 });
    return undefined;
  }
  function follow() {
    if (!sentences.length) return;
    const index = sentenceAt(sentences, area.current.selectionStart);
    if (index !== state.sentence) set({ sentence: index, prefix: [], node: -1, step: -1 });
  }
  function onMove(event) {
    const under = document.elementsFromPoint(event.clientX, event.clientY).find((each) => each.dataset?.word !== undefined && mirror.current.contains(each));
    const next = under ? Number(under.dataset.word) : null;
    if ((pointed?.side === "source" ? pointed.word : null) !== next) point(next === null ? null : { side: "source", word: next });
  }
  const pieces = [];
  let at = 0;
  for (const { index, begin, end } of words) {
    if (begin > at) pieces.push(state.text.slice(at, begin));
    pieces.push(html`<mark key=${index} data-word=${index} style=${tint(weights(index))}>${state.text.slice(begin, end)}</mark>`);
    at = end;
  }
  pieces.push(state.text.slice(at), "\u200b");

  const reverse = about.models.find((each) => each.purpose === "translator" && each.source === model.target && each.target === model.source);
  const swap = reverse && t("swap", { pair: `${languageName(reverse.source, reverse.source_name)} → ${languageName(reverse.target, reverse.target_name)}` });
  return html`<section
    class="box"
    aria-label=${t("source")}
    onDragOver=${(event) => event.preventDefault()}
    onDrop=${(event) => {
      if (!event.dataTransfer.files.length) return;
      event.preventDefault();
      open(event.dataTransfer.files[0]);
    }}
  >
    <header class="box-head">
      <h2><bdi>${languageName(model.source, model.source_name) || t("source")}</bdi></h2>
      <span class="grow"></span>
      <button type="button" class="quiet-button" aria-pressed=${isTerms ? "true" : "false"} onClick=${() => showTerms(!isTerms)} title=${t("termsHint")}>
        ${t("terms")}${state.terms.length ? ` (${state.terms.length})` : ""}
      </button>
      <button type="button" class="icon-button" title=${t("openFile")} aria-label=${t("openFile")} onClick=${() => file.current.click()}>${icon("file")}</button>
      <input ref=${file} type="file" accept=".txt,text/plain" class="hidden" tabindex="-1" aria-hidden="true" onChange=${(event) => {
        open(event.currentTarget.files[0]);
        event.currentTarget.value = "";
      }} />
      ${reverse &&
      html`<button
        type="button"
        class="icon-button"
        title=${swap}
        aria-label=${swap}
        onClick=${() => {
          const output = document.querySelector("[data-translation]")?.textContent ?? "";
          set({ model: reverse.name, text: output || state.text, sentence: 0, prefix: [], off: [], head: "mean", node: -1, step: -1 });
        }}
      >${icon("swap")}</button>`}
      ${state.text &&
      html`<button type="button" class="icon-button" title=${t("clear")} aria-label=${t("clear")} onClick=${() => {
        change("", { sentence: 0 });
        area.current.focus();
      }}>${icon("close")}</button>`}
    </header>
    ${isTerms && html`<${Terms} close=${() => showTerms(false)} />`}
    <div class="writing">
      <div class="mirror" ref=${mirror} aria-hidden="true" dir="auto" lang=${model.source ?? null}>${pieces}</div>
      <textarea
        id="source"
        ref=${area}
        dir="auto"
        lang=${model.source ?? null}
        spellcheck=${false}
        aria-label=${t("sourceText")}
        placeholder=${t("placeholder")}
        value=${state.text}
        onInput=${(event) => change(event.currentTarget.value)}
        onKeyUp=${follow}
        onClick=${follow}
        onPointerMove=${onMove}
        onPointerLeave=${() => pointed?.side === "source" && point(null)}
      ></textarea>
    </div>
    ${problem && html`<p class="error" role="alert">${problem}</p>`}
  </section>`;
}

/** Terms, one per line, source and target apart by a tab or "=". */
function Terms({ close }) {
  const state = useStore();
  const [text, change] = useState(state.terms.map((pair) => pair.join(" = ")).join("\n"));
  const lines = text.split("\n").map((line) => line.trim()).filter(Boolean);
  const pairs = lines.map((line) => line.split(/\t|=/).map((part) => part.trim()));
  const bad = pairs.findIndex((pair) => pair.length !== 2 || !pair[0] || !pair[1]);
  return html`<form
    class="terms"
    onSubmit=${(event) => {
      event.preventDefault();
      if (bad >= 0) return;
      set({ terms: pairs, prefix: [] });
      close();
    }}
  >
    <label for="terms">${t("termsHint")}</label>
    <textarea id="terms" rows="4" dir="auto" value=${text} onInput=${(event) => change(event.currentTarget.value)} placeholder=${t("termsExample")}></textarea>
    ${bad >= 0 && html`<p class="error" role="alert">${t("termsBad", { n: bad + 1 })}</p>`}
    <div class="row"><button type="submit" class="button" disabled=${bad >= 0}>${t("apply")}</button></div>
  </form>`;
}

function TargetBox({ model, answer, index, sentence, look, attention, pointed, point, isStale, error, retry, examples }) {
  const state = useStore();
  const [chosen, choose] = useState(/** @type {number | null} */ (null));
  const [copied, tell] = useState(false);
  const shown = answer && state.text.trim() ? answer : null;
  useEffect(() => choose(null), [look, state.text]);
  const full = shown ? whole(shown, index, look) : "";

  const body = () => {
    if (!shown) return state.text.trim() || error ? null : html`<${Examples} examples=${examples} />`;
    const parts = splitTarget(shown);
    return html`<p class="translation" data-translation dir="auto" lang=${model.target ?? null}>
      ${parts.map((part, at) => {
        if (part.sentence === null) return part.text;
        if (part.sentence === index && look) {
          return html`<${Words} key="look" look=${look} attention=${attention} pointed=${pointed} point=${point} chosen=${chosen} choose=${choose} isSeveral=${shown.sentences.length > 1} />`;
        }
        const isCurrent = part.sentence === index;
        return html`<span key=${at} class=${`sentence${isCurrent && shown.sentences.length > 1 ? " current" : ""}`} onClick=${() => set({ sentence: part.sentence, prefix: [], node: -1, step: -1 })}>${part.text}</span>`;
      })}
    </p>`;
  };
  return html`<section class="box" aria-label=${t("translation")}>
    <header class="box-head">
      <h2><bdi>${languageName(model.target, model.target_name) || t("translation")}</bdi></h2>
      <span class="grow"></span>
      ${full &&
      html`<button type="button" class="icon-button" title=${t("copy")} aria-label=${copied ? t("copied") : t("copy")} onClick=${async () => {
            tell(await copy(full));
            setTimeout(() => tell(false), 1500);
          }}>${icon(copied ? "check" : "copy")}</button>
        <button type="button" class="icon-button" title=${t("saveText")} aria-label=${t("saveText")} onClick=${() => save("translation.txt", "text/plain", full)}>${icon("save")}</button>`}
    </header>
    <div class=${`writing${isStale ? " stale" : ""}`} aria-busy=${isStale ? "true" : "false"}>
      ${body()}
      ${chosen !== null && look && html`<${Rivals} look=${look} word=${chosen} close=${() => choose(null)} />`}
    </div>
    ${error &&
    html`<div class="error" role="alert">
      <span>${error.message}</span>
      <button type="button" class="button" onClick=${retry}>${t("retry")}</button>
    </div>`}
    ${shown && html`<${Status} answer=${shown} look=${look} isStale=${isStale} />`}
  </section>`;
}

function Examples({ examples }) {
  if (!examples.length) return html`<p class="quiet">${t("emptyTarget")}</p>`;
  return html`<div class="examples">
    <p class="quiet">${t("tryOne")}</p>
    <ul>
      ${examples.slice(0, 3).map(
        (text) => html`<li key=${text}><button type="button" dir="auto" onClick=${() => set({ text, sentence: 0, prefix: [] })}>${text}</button></li>`,
      )}
    </ul>
  </div>`;
}

/** The words of a translation: pointed at, they tint the source; clicked, they open their rivals. */
function Words({ look, attention, pointed, point, chosen, choose, isSeveral }) {
  const text = look.translation;
  const placed = useMemo(() => placeWords(look.target, text, placesIn(look.target.text ?? text)), [look]);
  const parts = [];
  let at = 0;
  const weight = (index) => {
    if (chosen === index) return 0.5;
    if (!pointed) return 0;
    if (pointed.side === "target") return pointed.word === index ? 0.35 : 0;
    return attention?.[index]?.[pointed.word] ?? 0;
  };
  function onKey(event) {
    if (!["ArrowLeft", "ArrowRight", "Home", "End"].includes(event.key)) return;
    const all = [...event.currentTarget.querySelectorAll("[data-word]")];
    const now = all.indexOf(document.activeElement);
    const next = { ArrowLeft: now - 1, ArrowRight: now + 1, Home: 0, End: all.length - 1 }[event.key];
    if (!all[next]) return;
    event.preventDefault();
    all[next].focus();
  }
  placed.forEach(({ word, index, begin, end }, place) => {
    if (begin > at) parts.push(text.slice(at, begin));
    const p = wordProbability(look, word);
    parts.push(html`<span
      key=${index}
      role="button"
      tabindex=${place === 0 ? 0 : -1}
      data-word=${index}
      class=${`word${p < DOUBT ? " doubtful" : ""}`}
      style=${tint(weight(index))}
      aria-haspopup="dialog"
      aria-expanded=${chosen === index ? "true" : "false"}
      aria-label=${t("wordLabel", { word: word.text, p: percent(p) })}
      onPointerEnter=${() => point({ side: "target", word: index })}
      onPointerLeave=${() => point(null)}
      onFocus=${() => point({ side: "target", word: index })}
      onBlur=${() => point(null)}
      onClick=${() => choose(chosen === index ? null : index)}
      onKeyDown=${(event) => {
        if (event.key !== "Enter" && event.key !== " ") return;
        event.preventDefault();
        choose(chosen === index ? null : index);
      }}
    >${text.slice(begin, end)}</span>`);
    at = end;
  });
  parts.push(text.slice(at));
  return html`<span class=${`words${isSeveral ? " current" : ""}`} role="group" aria-label=${t("wordsHint")} onKeyDown=${onKey}>${parts}</span>`;
}

/** The five best symbols at the place of a word. */
function Rivals({ look, word, close }) {
  const given = look.target.words[word];
  const [piece, choose] = useState(given.first);
  const place = useRef(null);
  const [left, put] = useState(0);
  useEffect(() => {
    const opener = place.current.parentElement.querySelector(`.words [data-word="${word}"]`);
    if (opener) {
      const box = opener.getBoundingClientRect(), frame = place.current.parentElement.getBoundingClientRect();
      put(clamp(box.left - frame.left - 8, 0, Math.max(0, frame.width - place.current.offsetWidth)));
      place.current.style.top = `${box.bottom - frame.top + 6}px`;
    }
    place.current.querySelector(".rival")?.focus({ preventScroll: true });
    return () => opener?.isConnected && document.activeElement === document.body && opener.focus({ preventScroll: true });
  }, [word]);
  useEffect(() => {
    const outside = (event) => {
      if (!place.current?.contains(event.target) && !event.target.closest?.("[data-word]")) close();
    };
    addEventListener("pointerdown", outside);
    return () => removeEventListener("pointerdown", outside);
  }, []);
  const at = look.target.pieces[piece];
  const pieces = look.target.pieces.slice(given.first, given.last + 1);
  return html`<div
    class="rivals"
    ref=${place}
    style=${{ left: `${left}px` }}
    role="dialog"
    aria-label=${t("rivals", { word: given.text })}
    onKeyDown=${(event) => {
      if (event.key === "Escape") {
        event.stopPropagation();
        const opener = place.current.parentElement.querySelector(`.words [data-word="${word}"]`);
        close();
        opener?.focus();
      } else if (event.key === "ArrowDown" || event.key === "ArrowUp") {
        const all = [...place.current.querySelectorAll(".rival")];
        const next = all[all.indexOf(document.activeElement) + (event.key === "ArrowDown" ? 1 : -1)];
        event.preventDefault();
        next?.focus();
      }
    }}
  >
    <p class="rivals-head"><bdi>${given.text}</bdi> <span class="quiet">${percent(wordProbability(look, given))}</span></p>
    ${pieces.length > 1 &&
    html`<div class="segments" role="group" aria-label=${t("pieceOfWord")}>
      ${pieces.map(
        (each, offset) => html`<button type="button" key=${offset} aria-pressed=${piece === given.first + offset ? "true" : "false"} onClick=${() => choose(given.first + offset)}><bdi>${spaced(each.shown)}</bdi></button>`,
      )}
    </div>`}
    <ul>
      ${(at?.rivals ?? []).slice(0, 5).map(
        (rival) => html`<li key=${rival.id}>
          <button type="button" class="rival" onClick=${() => set({ prefix: prefixBefore(look, piece, rival.id), node: -1, step: -1 })}>
            <span class="bar"><span style=${{ width: `${100 * rival.probability}%` }}></span></span>
            <bdi class="rival-text">${spaced(rival.shown ?? rival.text).replace(/^·(?=.)/, "")}</bdi>
            <span class="figure-text">${percent(rival.probability)}</span>
          </button>
        </li>`,
      )}
    </ul>
    <p class="quiet small">${t("rivalsHint")}</p>
  </div>`;
}

/** One line: time, words in doubt, share unknown to the model. */
function Status({ answer, look, isStale }) {
  const doubtful = look ? look.target.words.filter((word) => wordProbability(look, word) < DOUBT && word.text).length : null;
  const parts = [t("seconds", { n: number(answer.seconds, 2) })];
  if (doubtful !== null) parts.push(t(doubtful === 1 ? "oneDoubt" : "doubts", { n: doubtful }));
  parts.push(t("unknown", { n: percent(answer.unknown_share ?? 0) }));
  return html`<p class="status" aria-live="polite">${isStale ? html`<span class="late">${t("translating")}</span>` : parts.join(" · ")}</p>`;
}

/** What was fixed, and the other translations of the search. */
function Choices({ look }) {
  const state = useStore();
  const others = look.hypotheses.filter((each) => each.text !== look.translation).slice(0, 4);
  const fixed = state.prefix.length ? look.target.pieces.slice(0, state.prefix.length).map((piece) => piece.text).join("").replaceAll("▁", " ").trim() : "";
  return html`<div class="choices">
    ${state.prefix.length > 0 &&
    html`<p class="chips"><span class="chip"><span class="quiet">${t("fixed")}</span> <bdi>${fixed}</bdi>
      <button type="button" aria-label=${t("release")} title=${t("release")} onClick=${() => set({ prefix: [], node: -1, step: -1 })}>${icon("close")}</button></span></p>`}
    ${others.length > 0 &&
    html`<div class="alternatives" role="group" aria-label=${t("alternatives")}>
      <span class="quiet small">${t("alternatives")}</span>
      <ul>
        ${others.map(
          (each) => html`<li key=${each.ids.join(" ")}>
            <button type="button" dir="auto" title=${t("score", { n: number(each.score) })} onClick=${() => set({ prefix: each.ids, node: -1, step: -1 })}>${diffWords(look.translation, each.text).map(
              (part) => (part.isNew ? html`<b>${part.text}</b>` : part.text),
            )}</button>
          </li>`,
        )}
      </ul>
    </div>`}
  </div>`;
}

const comparedModels = (about, names) => names.map((name) => about.models.find((each) => each.name === name)).filter(Boolean).slice(0, MOST_COMPARED);

/** The models of the same pair that can be added. */
function CompareMenu({ about, model, sentence }) {
  const state = useStore();
  const others = about.models.filter((each) => each.purpose === "translator" && each.name !== model.name && each.source === model.source && each.target === model.target);
  // A model may be compared with itself: that its columns are equal is a check.
  const choices = [...others, model].filter((each) => !state.compare.includes(each.name));
  if (!sentence || !choices.length || comparedModels(about, state.compare).length >= MOST_COMPARED) return null;
  return html`<${Menu} label=${t("compare")} title=${t("compareHint")}>
    ${choices.map((each) => html`<button type="button" key=${each.name} onClick=${() => set({ compare: [...state.compare, each.name] })}><bdi>${each.name}</bdi></button>`)}
  <//>`;
}

/** Up to three other models under the translation. */
function Compared({ about, sentence, look }) {
  const state = useStore();
  const chosen = comparedModels(about, state.compare);
  if (!sentence || !chosen.length) return null;
  return html`<div class="compare">
    ${chosen.map(
      (each) => html`<${ComparedModel} key=${each.name} model=${each} sentence=${sentence} translation=${look?.translation ?? sentence.translation} remove=${() => set({ compare: state.compare.filter((name) => name !== each.name) })} />`,
    )}
  </div>`;
}

function ComparedModel({ model, sentence, translation, remove }) {
  const result = useTranslation(model.name, sentence.source);
  const look = useLook(model, sentence.source, { own: false });
  const text = result.value?.text ?? "";
  const parts = diffWords(translation, text);
  return html`<div class=${`compared${result.loading ? " stale" : ""}`}>
    <div class="compared-head"><bdi>${model.name}</bdi><span class="quiet small">${(model.scores ?? []).join(" · ")}${look.value?.score !== undefined && look.value?.score !== null ? ` · ${t("score", { n: number(look.value.score) })}` : ""}</span>
      <button type="button" class="icon-button" aria-label=${t("removeModel", { name: model.name })} onClick=${remove}>${icon("close")}</button></div>
    ${result.error
      ? html`<p class="error" role="alert">${result.error.message}</p>`
      : html`<p class="translation" dir="auto" lang=${model.target ?? null}>${parts.map((part) => (part.isNew ? html`<ins>${part.text}</ins>` : part.text))}</p>
          ${text && text === translation && html`<p class="quiet small">${t("same")}</p>`}`}
  </div>`;
}
