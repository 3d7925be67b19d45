/** What the calls of the first screen ask for, made from the state: the same question in every lens. */

import { call, kept, useCall } from "./api.js";
import { get, useStore } from "./state.js";

/** Beam, alpha and stop, where they differ from those of the model. */
export function searchOf(state) {
  const search = {};
  if (state.beam > 0) search.beam = state.beam;
  if (state.alpha >= 0) search.alpha = state.alpha;
  if (state.stop) search.stop = state.stop;
  return search;
}

/** The body of a /api/translate call. */
export const translateBody = (state, model, text) => ({ model, text, search: searchOf(state), terms: state.terms });

/** The body of a /api/look call. A prefix and heads that are off belong to the model that was looked at. */
export function lookBody(state, model, source, { own = true } = {}) {
  return {
    model,
    source,
    prefix: own && state.prefix.length ? state.prefix : null,
    off: own ? state.off : [],
    search: searchOf(state),
    terms: state.terms,
  };
}

/** Translate a text with a model: the old value stays while a new one is on its way. */
export function useTranslation(model, text) {
  const state = useStore();
  const body = translateBody(state, model, text);
  const run = model && text.trim() ? (signal) => call("/api/translate", body, signal) : null;
  return useCall(run, [body], run ? kept("/api/translate", body) : undefined);
}

/** Look into one sentence. What was asked is part of the answer, which stays until the next one is there. */
export function useLook(model, source, options = {}) {
  const state = useStore();
  const body = lookBody(state, model?.name, source, options);
  const asked = { source, model: model?.name };
  const run = model && source.trim() && model.can.watch ? async (signal) => ({ ...(await call("/api/look", body, signal)), asked }) : null;
  const known = run ? kept("/api/look", body) : undefined;
  return useCall(run, [body], known && { ...known, asked });
}

/** Symbols of the output up to a word, and then another one: what is searched from there on. */
export const prefixBefore = (look, position, id) => [...look.target.pieces.slice(0, position).map((piece) => piece.id), id];

/** log P of a word: the sum over its pieces. */
export function wordProbability(look, word) {
  let product = 1;
  for (const piece of look.target.pieces.slice(word.first, word.last + 1)) product *= piece.probability ?? 1;
  return product;
}

/**
 * Each word of a side with its place in `text`, as far as it can be found there.
 * @returns {{word: any, index: number, begin: number, end: number}[]}
 */
export function placeWords(side, text, places) {
  const found = [];
  let after = 0;
  // Models that read small letters say so in their text; its places are those of ours as long as nothing else differs.
  const fold = (given) => given.toLowerCase();
  const isSame = fold(side.text ?? "") === fold(text);
  const folded = fold(text);
  side.words.forEach((word, index) => {
    if (word.begin === null || word.begin === undefined || !word.text) return;
    let begin = places(word.begin), end = places(word.end);
    if (!isSame && text.slice(begin, end) !== word.text) {
      begin = folded.indexOf(fold(word.text), after);
      end = begin + word.text.length;
    }
    if (begin < after || end <= begin) return;
    found.push({ word, index, begin, end });
    after = end;
  });
  return found;
}

/** A matrix over pieces as one over words: the mean over the pieces of a target word, the sum over those of a source word. */
export function mergeWords(matrix, targetWords, sourceWords) {
  return targetWords.map((target) => {
    const rows = matrix.slice(target.first, target.last + 1);
    return sourceWords.map((source) => {
      let sum = 0;
      for (const row of rows) for (let at = source.first; at <= source.last; at += 1) sum += row[at] ?? 0;
      return rows.length ? sum / rows.length : 0;
    });
  });
}

/** The pieces of a side as labels. */
export const pieceLabels = (side) => side.pieces.map((piece) => spaced(piece.shown ?? piece.text));
export const wordLabels = (side) => side.words.map((word) => spaced(word.text || (side.pieces[word.first]?.shown ?? "")));

/** A piece with a small dot for the mark of a space, and the end of a sentence by its name. */
export const spaced = (text) => (text === "</s>" ? "END" : text.replaceAll("▁", "·"));

/** A head as the state writes it, and back. */
export const headName = (layer, head) => `${layer}.${head}`;
export function headOf(name) {
  const parts = name.split(".").map(Number);
  return parts.length === 2 && parts.every(Number.isInteger) ? parts : null;
}
export const isOff = (layer, head, off = get().off) => off.some(([l, h]) => l === layer && h === head);
