/** The few icons of the page, as lines on a grid of 24. */

import { html } from "./lib.js";

const LINES = {
  copy: ["M9 9h11v11H9z", "M5 15H4V4h11v1"],
  check: ["M4 12.5l5 5L20 6.5"],
  close: ["M6 6l12 12", "M18 6L6 18"],
  swap: ["M4 8h15", "M15 4l4 4-4 4", "M20 16H5", "M9 12l-4 4 4 4"],
  file: ["M13 3H6v18h12V8z", "M13 3v5h5"],
  save: ["M12 4v11", "M7 10l5 5 5-5", "M5 20h14"],
  sun: ["M12 8a4 4 0 1 0 0 8 4 4 0 0 0 0-8z", "M12 2v2", "M12 20v2", "M2 12h2", "M20 12h2", "M5 5l1.4 1.4", "M17.6 17.6L19 19", "M5 19l1.4-1.4", "M17.6 6.4L19 5"],
  moon: ["M20 14.5A8 8 0 1 1 9.5 4a6.5 6.5 0 0 0 10.5 10.5z"],
  auto: ["M12 4a8 8 0 1 0 0 16 8 8 0 0 0 0-16z", "M12 4v16", "M15 6v12", "M18 8v8"],
  help: ["M9 9a3 3 0 1 1 4.2 2.8c-.8.4-1.2 1-1.2 1.9v.6", "M12 17.5v.1"],
};

/** @param {keyof typeof LINES} name */
export const icon = (name) => html`<svg class="icon" viewBox="0 0 24 24" width="18" height="18" aria-hidden="true" fill="none" stroke="currentColor" stroke-width="1.8" stroke-linecap="round" stroke-linejoin="round">
  ${LINES[name].map((line) => html`<path key=${line} d=${line} />`)}
</svg>`;
