/**
 * The state of the page: all of it stands in the fragment of the address, which no browser sends to a server.
 *
 * A value that equals its default is left out. Language and theme are also remembered for the next visit.
 */

import { useEffect, useState } from "./lib.js";

/** @typedef {typeof DEFAULTS} State */
export const DEFAULTS = {
  view: "translate",
  model: "",
  text: "",
  sentence: 0,
  prefix: /** @type {number[]} */ ([]),
  terms: /** @type {string[][]} */ ([]),
  compare: /** @type {string[]} */ ([]),
  lens: "attention",
  unit: "words",
  head: "mean",
  off: /** @type {number[][]} */ ([]),
  beam: 0,
  alpha: -1,
  stop: "",
  step: -1,
  node: -1,
  method: "gradient_x_input",
  other: "",
  pairs: "",
  runs: /** @type {string[]} */ ([]),
  smooth: 10,
  writer: "",
  prompt: "",
  temperature: 1,
  top_p: 1,
  language: "",
  theme: "",
};

const REMEMBERED = ["language", "theme"];

/** @returns {State} */
function read() {
  const found = { ...DEFAULTS };
  for (const name of REMEMBERED) {
    try {
      found[name] = localStorage.getItem(`seqloom-${name}`) ?? "";
    } catch {
      /* storage is switched off: nothing is remembered */
    }
  }
  for (const [name, text] of new URLSearchParams(location.hash.slice(1))) {
    if (!(name in DEFAULTS)) continue;
    const usual = DEFAULTS[name];
    if (typeof usual === "string") found[name] = text;
    else if (typeof usual === "number") found[name] = Number.isFinite(Number(text)) ? Number(text) : usual;
    else {
      try {
        const value = JSON.parse(text);
        if (Array.isArray(value)) found[name] = value;
      } catch {
        /* a damaged part of an address counts as absent */
      }
    }
  }
  return found;
}

function write(/** @type {State} */ state) {
  const parts = new URLSearchParams();
  for (const [name, usual] of Object.entries(DEFAULTS)) {
    const value = state[name];
    const text = typeof usual === "object" ? JSON.stringify(value) : String(value);
    if (text !== (typeof usual === "object" ? JSON.stringify(usual) : String(usual))) parts.set(name, text);
  }
  return `#${parts}`;
}

let current = read();
const listeners = new Set();

/** The state now. */
export const get = () => current;

/**
 * Change some of the state. A change of view is a place to come back to; everything else replaces the address.
 * @param {Partial<State>} changes
 */
export function set(changes) {
  const before = current;
  current = { ...current, ...changes };
  for (const name of REMEMBERED) {
    if (name in changes) {
      try {
        localStorage.setItem(`seqloom-${name}`, current[name]);
      } catch {
        /* nothing is remembered */
      }
    }
  }
  const address = write(current);
  if (address !== location.hash && !(address === "#" && !location.hash)) {
    history[current.view === before.view ? "replaceState" : "pushState"](null, "", address);
  }
  for (const each of listeners) each(current);
}

addEventListener("popstate", () => {
  current = read();
  for (const each of listeners) each(current);
});

/** The state, and a new drawing when it changes. @returns {State} */
export function useStore() {
  const [state, change] = useState(current);
  useEffect(() => {
    listeners.add(change);
    change(current);
    return () => listeners.delete(change);
  }, []);
  return state;
}
