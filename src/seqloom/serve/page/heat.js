/** A heat map: one ImageData on a canvas, a cursor for pointer and keys, and the same as SVG for export. */

import { clamp, colour, html, mix, number, useEffect, useLayoutEffect, useRef, useState } from "./lib.js";
import { t } from "./words.js";

const LEAST = 4, MOST = 56, READABLE = 12;
/** Pixels of a cell, and from where on labels can be read. */
const LONGEST = 120;
/** Pixels of a label. */
const FONT = "13px system-ui, 'Noto Sans CJK SC', sans-serif";

/** The largest magnitude of a matrix, at least a little above zero. @param {number[][]} matrix */
export const peak = (matrix) => matrix.reduce((most, row) => row.reduce((top, value) => Math.max(top, Math.abs(value)), most), 1e-9);

/** [r, g, b] of each share from −1 to 1: from paper to the accent, or to the warm colour below zero. */
function ramp() {
  const paper = colour("--paper"), high = colour("--heat"), low = colour("--warm");
  return (share) => mix(paper, share < 0 ? low : high, Math.abs(clamp(share, -1, 1)));
}

function fit(context, text, most) {
  if (context.measureText(text).width <= most) return text;
  let short = [...text];
  while (short.length > 1 && context.measureText(`${short.join("")}…`).width > most) short = short.slice(0, -1);
  return `${short.join("")}…`;
}

/** Where everything stands, for a width that is available. */
function layOut(rows, columns, available) {
  const context = document.createElement("canvas").getContext("2d");
  context.font = FONT;
  const widest = (labels) => labels.reduce((most, text) => Math.max(most, context.measureText(text).width), 0);
  const left = Math.min(LONGEST, Math.max(24, widest(rows))) + 10;
  const size = clamp(Math.floor((available - left) / Math.max(1, columns.length)), LEAST, MOST);
  const cell = Math.max(size, columns.length <= 60 ? READABLE + 2 : LEAST);
  const across = Math.max(cell, 6);
  const down = rows.length > 60 ? Math.max(LEAST, Math.min(cell, 12)) : clamp(Math.round(0.62 * cell), READABLE + 10, 34);
  const isLevel = widest(columns) + 6 <= across;
  const top = cell < READABLE ? 10 : isLevel ? 24 : Math.min(LONGEST, widest(columns)) + 12;
  return { left, top, across, down, isLevel, width: left + across * columns.length + 2, height: top + down * rows.length + 2 };
}

/**
 * @param {{rows: string[], columns: string[], matrix: number[][], label: string, rowName: string, columnName: string,
 *   onPoint?: (row: number | null, column: number | null) => void, digits?: number}} props
 */
export function HeatMap({ rows, columns, matrix, label, rowName, columnName, onPoint, digits = 4 }) {
  const frame = useRef(null), canvas = useRef(null);
  const [available, measure] = useState(0);
  const [at, point] = useState(/** @type {[number, number] | null} */ (null));
  const [theme, repaint] = useState(0);

  useLayoutEffect(() => {
    const observer = new ResizeObserver(() => frame.current && measure(frame.current.clientWidth));
    observer.observe(frame.current);
    measure(frame.current.clientWidth);
    const again = () => repaint((times) => times + 1);
    addEventListener("seqloom-theme", again);
    return () => {
      observer.disconnect();
      removeEventListener("seqloom-theme", again);
    };
  }, []);

  const place = available ? layOut(rows, columns, available) : null;
  useEffect(() => {
    if (place) paint(canvas.current, place, { rows, columns, matrix, at });
  }, [available, rows, columns, matrix, at, theme]);

  function move(row, column) {
    const next = row === null ? null : [clamp(row, 0, rows.length - 1), clamp(column, 0, columns.length - 1)];
    if (String(next) === String(at)) return;
    point(/** @type {any} */ (next));
    onPoint?.(next ? next[0] : null, next ? next[1] : null);
    if (next && place) {
      // The cursor stays in sight while it is moved by keys.
      const x = place.left + next[1] * place.across;
      if (x < frame.current.scrollLeft + place.left) frame.current.scrollLeft = x - place.left;
      else if (x + place.across > frame.current.scrollLeft + frame.current.clientWidth) frame.current.scrollLeft = x + place.across - frame.current.clientWidth;
    }
  }
  function onPointer(event) {
    const box = canvas.current.getBoundingClientRect();
    const row = Math.floor((event.clientY - box.top - place.top) / place.down);
    const column = Math.floor((event.clientX - box.left - place.left) / place.across);
    if (row >= 0 && row < rows.length && column >= 0 && column < columns.length) move(row, column);
    else move(null, null);
  }
  function onKey(event) {
    const steps = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] };
    if (event.altKey || event.ctrlKey || event.metaKey) return;
    if (event.key === "Escape") return move(null, null);
    const step = steps[event.key];
    if (!step) return;
    event.preventDefault();
    move(at ? at[0] + step[0] : 0, at ? at[1] + step[1] : 0);
  }
  const value = at && matrix[at[0]] ? matrix[at[0]][at[1]] : null;
  return html`<div class="heat">
    <div
      class="scroll"
      ref=${frame}
      tabindex="0"
      role="application"
      aria-roledescription=${t("heatMap")}
      aria-label=${`${label}. ${t("arrows")}`}
      onKeyDown=${onKey}
      onPointerMove=${onPointer}
      onPointerDown=${onPointer}
      onPointerLeave=${() => move(null, null)}
    >
      <canvas ref=${canvas}></canvas>
    </div>
    <p class="readout" aria-live="polite">
      ${value === null || value === undefined
        ? html`<span class="quiet">${rowName} ↓ · ${columnName} →</span>`
        : html`<bdi>${rows[at[0]]}</bdi><span class="quiet"> ← </span><bdi>${columns[at[1]]}</bdi><span class="quiet">: </span><b>${number(value, digits)}</b>`}
    </p>
  </div>`;
}

function paint(canvas, place, { rows, columns, matrix, at }) {
  const began = performance.now();
  const scale = Math.min(window.devicePixelRatio || 1, 3);
  canvas.width = Math.ceil(place.width * scale);
  canvas.height = Math.ceil(place.height * scale);
  canvas.style.width = `${place.width}px`;
  canvas.style.height = `${place.height}px`;
  const context = canvas.getContext("2d");
  context.scale(scale, scale);
  const [ink, quiet, rule] = ["--ink", "--quiet", "--rule"].map((name) => `rgb(${colour(name).join(" ")})`);

  const pixels = new ImageData(columns.length, rows.length), paintOf = ramp(), most = peak(matrix);
  matrix.forEach((row, y) =>
    row.forEach((value, x) => {
      const [r, g, b] = paintOf(value / most);
      pixels.data.set([r, g, b, 255], 4 * (y * columns.length + x));
    }),
  );
  const small = document.createElement("canvas");
  small.width = columns.length;
  small.height = rows.length;
  small.getContext("2d").putImageData(pixels, 0, 0);
  context.imageSmoothingEnabled = false;
  context.drawImage(small, place.left, place.top, place.across * columns.length, place.down * rows.length);
  context.strokeStyle = rule;
  context.strokeRect(place.left - 0.5, place.top - 0.5, place.across * columns.length + 1, place.down * rows.length + 1);

  context.font = FONT;
  context.textBaseline = "middle";
  rows.forEach((text, y) => {
    if (place.down < READABLE && at?.[0] !== y) return;
    context.fillStyle = at && at[0] !== y ? quiet : ink;
    context.textAlign = "right";
    context.fillText(fit(context, text, place.left - 10), place.left - 7, place.top + place.down * (y + 0.5));
  });
  columns.forEach((text, x) => {
    if (place.across < READABLE) return;
    context.fillStyle = at && at[1] !== x ? quiet : ink;
    const centre = place.left + place.across * (x + 0.5);
    if (place.isLevel) {
      context.textAlign = "center";
      context.fillText(text, centre, place.top - 12);
      return;
    }
    context.save();
    context.translate(centre, place.top - 7);
    context.rotate(-Math.PI / 2);
    context.textAlign = "left";
    context.fillText(fit(context, text, LONGEST), 0, 0);
    context.restore();
  });
  if (at) {
    context.strokeStyle = ink;
    context.lineWidth = 1.5;
    context.strokeRect(place.left + place.across * at[1], place.top + place.down * at[0], place.across, place.down);
  }
  performance.measure("seqloom-heat", { start: began, end: performance.now() });
}

/** The same map as a drawing. */
export function heatSvg({ rows, columns, matrix }) {
  const place = layOut(rows, columns, 900), paintOf = ramp(), most = peak(matrix);
  const draw = (name, attributes, text = "") => {
    const element = document.createElementNS("http://www.w3.org/2000/svg", name);
    for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, String(value));
    element.textContent = text;
    return element;
  };
  const svg = draw("svg", { width: place.width, height: place.height, viewBox: `0 0 ${place.width} ${place.height}` });
  const ink = `rgb(${colour("--ink").join(",")})`;
  const looks = { fill: ink, "font-size": 13, "font-family": "system-ui, sans-serif" };
  matrix.forEach((row, y) =>
    row.forEach((value, x) =>
      svg.append(
        draw("rect", {
          x: place.left + x * place.across,
          y: place.top + y * place.down,
          width: place.across,
          height: place.down,
          fill: `rgb(${paintOf(value / most).join(",")})`,
        }),
      ),
    ),
  );
  rows.forEach((text, y) => svg.append(draw("text", { ...looks, x: place.left - 7, y: place.top + place.down * (y + 0.5) + 4, "text-anchor": "end" }, text)));
  columns.forEach((text, x) => {
    const centre = place.left + place.across * (x + 0.5);
    const turn = place.isLevel ? { "text-anchor": "middle" } : { transform: `rotate(-90 ${centre + 4} ${place.top - 7})` };
    svg.append(draw("text", { ...looks, x: centre + (place.isLevel ? 0 : 4), y: place.top - 7, ...turn }, text));
  });
  return svg;
}

/** A matrix with its labels as rows of a table. */
export const heatRows = ({ rows, columns, matrix }, digits = 6) => [
  ["", ...columns],
  ...matrix.map((row, at) => [rows[at], ...row.map((value) => Number(value.toFixed(digits)))]),
];
