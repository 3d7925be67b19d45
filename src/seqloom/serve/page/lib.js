/** What every module of the page needs: elements, hooks, and small pure functions. */

import { h, render, Fragment } from "preact";
import { useCallback, useEffect, useLayoutEffect, useMemo, useRef, useState } from "preact/hooks";
import htm from "htm";

/** Elements from a template; every ${value} is a text node or an attribute, never markup. */
export const html = htm.bind(h);
export { render, Fragment, useCallback, useEffect, useLayoutEffect, useMemo, useRef, useState };

/** @param {number} value @param {number} low @param {number} high */
export const clamp = (value, low, high) => Math.min(high, Math.max(low, value));

/** A number with a true minus sign. @param {number | null | undefined} value */
export function number(value, digits = 3) {
  if (value === null || value === undefined || !Number.isFinite(value)) return "–";
  return value.toFixed(digits).replace("-", "−");
}

/** A probability or share in per cent. @param {number | null | undefined} share */
export function percent(share) {
  if (share === null || share === undefined) return "–";
  if (share > 0 && share < 0.0005) return "<0.1 %";
  return `${(100 * share).toFixed(share > 0 && share < 0.0995 ? 1 : 0)} %`;
}

/** The value only after it has been the same for so long. */
export function useSettled(value, milliseconds) {
  const [settled, settle] = useState(value);
  useEffect(() => {
    const timer = setTimeout(() => settle(value), milliseconds);
    return () => clearTimeout(timer);
  }, [value, milliseconds]);
  return milliseconds === 0 ? value : settled;
}

/**
 * Places in JavaScript's strings of places in Python's: the server counts characters, JavaScript counts half of those
 * beyond the basic plane twice.
 * @param {string} text
 * @returns {(offset: number) => number}
 */
export function placesIn(text) {
  if (!/[\ud800-\udbff]/.test(text)) return (offset) => offset;
  const places = [];
  let at = 0;
  for (const character of text) {
    places.push(at);
    at += character.length;
  }
  return (offset) => (offset < places.length ? places[offset] : at);
}

/** Move the focus among siblings that match, with the arrow keys, Home and End. */
export function rove(event, selector, { columns = 0 } = {}) {
  const steps = columns
    ? { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -columns, ArrowDown: columns }
    : { ArrowLeft: -1, ArrowUp: -1, ArrowRight: 1, ArrowDown: 1 };
  const all = [...event.currentTarget.querySelectorAll(selector)];
  const at = all.indexOf(document.activeElement);
  let next = null;
  if (event.key === "Home") next = all[0];
  else if (event.key === "End") next = all[all.length - 1];
  else if (event.key in steps && at >= 0) next = all[at + steps[event.key]];
  if (!next) return;
  event.preventDefault();
  next.focus();
}

/** A canvas colour between two CSS colours: [r, g, b] each. */
export const mix = (from, to, share) => from.map((value, at) => Math.round(value + (to[at] - value) * share));

/** The [r, g, b] of a custom property of the page. @param {string} name */
export function colour(name) {
  const text = getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const digits = text.replace("#", "");
  return [0, 2, 4].map((at) => parseInt(digits.slice(at, at + 2), 16));
}

/** Copy a text. Resolves to whether it worked. @param {string} text */
export async function copy(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    return false;
  }
}
