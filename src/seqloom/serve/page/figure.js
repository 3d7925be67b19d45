/** A figure with its table and its exports, and the snapshot page of all figures that are seen. */

import { html, useEffect, useRef, useState } from "./lib.js";
import { t } from "./words.js";

/**
 * @typedef {{title: string, name: string, rows: () => (string | number)[][], data: unknown,
 *   svg?: () => SVGElement | null}} FigureParts
 */

/** The figures on the page now, for the snapshot. @type {Map<object, () => FigureParts>} */
const mounted = new Map();
/** Texts that a view puts before its figures in a snapshot. @type {{current: () => [string, string][]}} */
export const snapshotTexts = { current: () => [] };

/** Text of a cell of a CSV file. A text that a spreadsheet would take for a formula gets a quote in front. */
export function cell(/** @type {unknown} */ value) {
  if (typeof value === "number") return String(value);
  let text = String(value ?? "");
  if (/^[=+\-@\t\r]/.test(text) && !/^-?\d+(\.\d+)?$/.test(text)) text = `'${text}`;
  return /[",\n\r]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}
export const csv = (rows) => rows.map((row) => row.map(cell).join(",")).join("\r\n") + "\r\n";

/** Offer a file. */
export function save(name, type, content) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(content instanceof Blob ? content : new Blob([content], { type }));
  link.download = name.replace(/[^\p{L}\p{N}._-]+/gu, "-").slice(0, 80);
  document.body.append(link);
  link.click();
  link.remove();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}

const LOOKS = ["fill", "stroke", "stroke-width", "stroke-dasharray", "stroke-linecap", "opacity", "visibility", "font-family", "font-size", "font-weight"];

/** A drawing that looks the same in a file of its own: what the style sheet says becomes attributes. */
export function standalone(/** @type {SVGElement} */ svg) {
  const twin = /** @type {SVGElement} */ (svg.cloneNode(true));
  if (svg.isConnected) {
    const ours = [svg, ...svg.querySelectorAll("*")], theirs = [twin, ...twin.querySelectorAll("*")];
    ours.forEach((element, at) => {
      const looks = getComputedStyle(element);
      for (const name of LOOKS) theirs[at].setAttribute(name, looks.getPropertyValue(name));
      for (const name of ["tabindex", "role", "class"]) theirs[at].removeAttribute(name);
    });
  }
  twin.setAttribute("xmlns", "http://www.w3.org/2000/svg");
  const ground = document.createElementNS("http://www.w3.org/2000/svg", "rect");
  const paper = getComputedStyle(document.documentElement).getPropertyValue("--paper").trim();
  for (const [name, value] of Object.entries({ width: "100%", height: "100%", fill: paper })) ground.setAttribute(name, value);
  twin.prepend(ground);
  return twin;
}
const written = (svg) => new XMLSerializer().serializeToString(svg);

async function picture(/** @type {SVGElement} */ svg) {
  const width = Number(svg.getAttribute("width")), height = Number(svg.getAttribute("height"));
  const scale = Math.min(2, 8000 / Math.max(width, height));
  const image = new Image();
  const address = URL.createObjectURL(new Blob([written(svg)], { type: "image/svg+xml" }));
  try {
    image.src = address;
    await image.decode();
    const canvas = document.createElement("canvas");
    canvas.width = Math.ceil(width * scale);
    canvas.height = Math.ceil(height * scale);
    canvas.getContext("2d").drawImage(image, 0, 0, canvas.width, canvas.height);
    return await new Promise((done) => canvas.toBlob(done, "image/png"));
  } finally {
    URL.revokeObjectURL(address);
  }
}

const SNAPSHOT_STYLE = `body{font:16px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem;color:#1d2326;background:#fff}
h1{font-size:1.4rem}h2{font-size:1.1rem;margin-top:2rem}p{white-space:pre-wrap;overflow-wrap:anywhere}.scroll{overflow-x:auto}
table{border-collapse:collapse;font-size:13px}td,th{border-bottom:1px solid #ddd;padding:2px 8px;text-align:left}small{color:#5c676c}`;

/** A page that opens without a network and has no script: texts, drawings and tables as they are now. */
export function snapshot() {
  const page = document.implementation.createHTMLDocument("Seqloom");
  const add = (parent, name, text = "", attributes = {}) => {
    const element = page.createElement(name);
    for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
    element.textContent = text;
    parent.append(element);
    return element;
  };
  add(page.head, "meta", "", { charset: "utf-8" });
  add(page.head, "meta", "", { "http-equiv": "Content-Security-Policy", content: "default-src 'none'; style-src 'unsafe-inline'; img-src data:" });
  add(page.head, "meta", "", { name: "viewport", content: "width=device-width, initial-scale=1" });
  add(page.body, "h1", "Seqloom");
  for (const [name, text] of snapshotTexts.current()) {
    if (!text) continue;
    add(page.body, "small", name);
    add(page.body, "p", text, { dir: "auto" });
  }
  for (const parts of mounted.values()) {
    const { title, rows, svg } = parts();
    add(page.body, "h2", title);
    const drawing = svg?.();
    if (drawing) add(page.body, "div", "", { class: "scroll" }).append(page.importNode(standalone(drawing), true));
    const table = add(add(page.body, "div", "", { class: "scroll" }), "table");
    rows().forEach((row, at) => {
      const line = add(table, "tr");
      for (const value of row) add(line, at ? "td" : "th", String(value), { dir: "auto" });
    });
  }
  // A style sheet inside a document of this page would be refused by its policy, so it comes in when all is text.
  const text = new XMLSerializer().serializeToString(page.documentElement);
  return `<!doctype html>\n${text.replace("</head>", () => `<style>${SNAPSHOT_STYLE}</style></head>`)}`;
}

/** A menu that closes when the focus leaves it, and on Escape. */
export function Menu({ label, children, title = label }) {
  const place = useRef(null);
  const close = () => place.current?.removeAttribute("open");
  return html`<details
    class="menu"
    ref=${place}
    onFocusOut=${(event) => event.relatedTarget && !event.currentTarget.contains(event.relatedTarget) && close()}
    onKeyDown=${(event) => {
      if (event.key !== "Escape" || !place.current.open) return;
      event.stopPropagation();
      close();
      place.current.querySelector("summary").focus();
    }}
    onClick=${(event) => event.target.closest("button") && close()}
  >
    <summary title=${title}>${label}</summary>
    <div class="menu-list">${children}</div>
  </details>`;
}

addEventListener("pointerdown", (event) => {
  for (const menu of document.querySelectorAll("details.menu[open]")) {
    if (!menu.contains(/** @type {Node} */ (event.target))) menu.removeAttribute("open");
  }
});

/** Rows as a table: the first row names the columns. */
export function Table({ rows, label }) {
  const [head = [], ...body] = rows;
  return html`<div class="scroll" tabindex="0" role="region" aria-label=${label}>
    <table class="figures">
      <thead>
        <tr>${head.map((text, at) => html`<th key=${at} scope="col"><bdi>${text}</bdi></th>`)}</tr>
      </thead>
      <tbody>
        ${body.map(
          (row, at) => html`<tr key=${at}>
            ${row.map((value, place) =>
              place ? html`<td key=${place}><bdi>${value}</bdi></td>` : html`<th key=${place} scope="row"><bdi>${value}</bdi></th>`,
            )}
          </tr>`,
        )}
      </tbody>
    </table>
  </div>`;
}

/** A drawing, with its table behind it and its exports. @param {FigureParts & {children?: any, plain?: boolean}} props */
export function Figure(props) {
  const { title, name, rows, data, svg, children, plain = false } = props;
  const [isOpen, open] = useState(false);
  const parts = useRef(props);
  parts.current = props;
  const me = useRef({});
  useEffect(() => {
    mounted.set(me.current, () => parts.current);
    return () => mounted.delete(me.current);
  }, []);
  const drawing = () => standalone(svg());
  return html`<figure class="figure">
    <figcaption>
      <h3>${title}</h3>
      <${Menu} label=${t("export")}>
        ${svg &&
        html`<button type="button" onClick=${async () => save(`${name}.png`, "image/png", await picture(drawing()))}>PNG</button>
          <button type="button" onClick=${() => save(`${name}.svg`, "image/svg+xml", written(drawing()))}>SVG</button>`}
        <button type="button" onClick=${() => save(`${name}.json`, "application/json", JSON.stringify(data, null, 1))}>JSON</button>
        <button type="button" onClick=${() => save(`${name}.csv`, "text/csv", csv(rows()))}>CSV</button>
        <button type="button" onClick=${() => save(`${name}.html`, "text/html", snapshot())}>${t("snapshot")}</button>
      <//>
    </figcaption>
    ${children}
    ${!plain &&
    html`<details class="table" onToggle=${(event) => open(event.currentTarget.open)}>
      <summary>${t("table")}</summary>
      ${isOpen && html`<${Table} rows=${rows()} label=${title} />`}
    </details>`}
  </figure>`;
}
