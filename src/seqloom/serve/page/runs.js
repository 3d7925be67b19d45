/** Runs: the curves of every run, live, several over each other. */

import { call, Gone, listen, useCall, useServer } from "./api.js";
import { Figure, snapshotTexts } from "./figure.js";
import { html, number, useEffect, useMemo, useRef, useState } from "./lib.js";
import { smoothed } from "./smoothing.js";
import { set, useStore } from "./state.js";
import { t } from "./words.js";

const METRICS = ["loss", "dev_loss", "bleu", "norm", "rate", "tokens_per_second"];
const SERIES = 6;
const LIST_MILLISECONDS = 3000;
const AGAIN_MILLISECONDS = 1000;
const HEIGHT = 210;

/**
 * The events of runs, by name; a resume forgets what came after the step it goes back to.
 * @param {string[]} names
 */
function useEvents(names) {
  const all = useRef(/** @type {Map<string, any[]>} */ (new Map()));
  const [times, redraw] = useState(0);
  const [errors, complain] = useState(/** @type {Record<string, string>} */ ({}));
  const { times: starts } = useServer();
  useEffect(() => {
    const controller = new AbortController();
    let waiting = 0;
    const soon = () => {
      if (!waiting) waiting = requestAnimationFrame(() => {
        waiting = 0;
        redraw((count) => count + 1);
      });
    };
    for (const name of names) {
      const follow = async () => {
        const points = [];
        let after = 0;
        all.current.set(name, points);
        while (!controller.signal.aborted) {
          try {
            await listen(`/api/runs/${encodeURIComponent(name)}/events?after=${after}`, undefined, controller.signal, (event) => {
              if (event.rewind !== undefined) {
                const kept = points.filter((each) => each.step <= event.rewind);
                points.splice(0, points.length, ...kept);
              } else if (event.step !== undefined) points.push(event);
              if (event.id !== undefined) after = event.id;
              soon();
            });
          } catch (error) {
            if (controller.signal.aborted) return;
            if (!(error instanceof Gone)) {
              complain((before) => ({ ...before, [name]: error.message }));
              return;
            }
          }
          await new Promise((done) => setTimeout(done, AGAIN_MILLISECONDS));
        }
      };
      follow();
    }
    return () => {
      controller.abort();
      cancelAnimationFrame(waiting);
    };
  }, [names.join("\n"), starts]);
  return { all: all.current, times, errors };
}

/** Load uPlot once; it is a script of the old kind. */
let loading = null;
function plotter() {
  loading ??= new Promise((done, fail) => {
    const style = Object.assign(document.createElement("link"), { rel: "stylesheet", href: "/page/vendor/uPlot.min.css" });
    const script = Object.assign(document.createElement("script"), { src: "/page/vendor/uPlot.iife.min.js", onload: () => done(globalThis.uPlot), onerror: fail });
    document.head.append(style, script);
  });
  return loading;
}

/** Seconds in words. */
function duration(seconds) {
  if (seconds === null || seconds === undefined) return "";
  if (seconds < 90) return t("secondsShort", { n: Math.round(seconds) });
  if (seconds < 5400) return t("minutesShort", { n: Math.round(seconds / 60) });
  return t("hoursShort", { n: number(seconds / 3600, 1) });
}

/** The radius of a window that takes so many per cent of a curve. */
const reach = (points, share) => Math.round((points * share) / 200);

/** Each run has a colour by its place in the list. */
const seriesColour = (at) => `--series-${1 + (at % SERIES)}`;

export function Runs() {
  const state = useStore();
  const [times, again] = useState(0);
  const list = useCall((signal) => call("/api/runs", undefined, signal), ["runs", times]);
  useEffect(() => {
    const timer = setInterval(() => document.visibilityState === "visible" && again((count) => count + 1), LIST_MILLISECONDS);
    return () => clearInterval(timer);
  }, []);
  const runs = list.value?.runs ?? [];
  const chosen = useMemo(() => {
    const known = state.runs.filter((name) => runs.some((run) => run.name === name));
    if (known.length || state.runs.includes("none")) return known;
    const first = runs.find((run) => run.state === "training") ?? runs[0];
    return first ? [first.name] : [];
  }, [state.runs.join("\n"), runs.map((run) => run.name).join("\n")]);
  const { all, times: version, errors } = useEvents(chosen);
  const present = METRICS.filter((metric) => chosen.some((name) => all.get(name)?.some((event) => Number.isFinite(event[metric]))));
  snapshotTexts.current = () => [[t("view_runs"), chosen.join(", ")]];
  if (list.error) return html`<div class="sheet"><h2>${t("view_runs")}</h2><div class="error" role="alert"><span>${list.error.message}</span><button type="button" class="button" onClick=${list.retry}>${t("retry")}</button></div></div>`;
  return html`<div class="sheet">
    <h2>${t("view_runs")}</h2>
    <p class="about">${t("aboutRuns")}</p>
    ${list.value && !runs.length && html`<p class="quiet empty">${t("noRuns")}</p>`}
    ${runs.length > 0 &&
    html`<ul class="run-list">
      ${runs.map(
        (run, at) => html`<li key=${run.name}>
          <label>
            <input type="checkbox" checked=${chosen.includes(run.name)} onChange=${(event) => {
              const next = event.currentTarget.checked ? [...chosen, run.name] : chosen.filter((name) => name !== run.name);
              set({ runs: next.length ? next : ["none"] });
            }} />
            <span class="swatch" style=${{ backgroundColor: `var(${seriesColour(at)})` }}></span>
            <bdi class="run-name">${run.name}</bdi>
          </label>
          <span class=${`state state-${run.state}`}>${t(`state_${run.state}`)}</span>
          <span class="quiet small run-step">${run.steps ? t("stepOf", { n: run.step ?? 0, all: run.steps }) : t("stepN", { n: run.step ?? 0 })}${run.state === "training" && run.seconds_left ? ` · ${t("timeLeft", { time: duration(run.seconds_left) })}` : ""}</span>
          ${run.steps ? html`<progress aria-label=${run.name} max=${run.steps} value=${run.step ?? 0}></progress>` : html`<span></span>`}
        </li>`,
      )}
    </ul>
    <div class="controls"><label>${t("smoothing")} <input type="range" min="0" max="60" value=${state.smooth} onInput=${(event) => set({ smooth: Number(event.currentTarget.value) })} /><output>${state.smooth} %</output></label><span class="quiet small">${t("smoothingHint")}</span></div>`}
    ${Object.entries(errors).map(([name, message]) => chosen.includes(name) && html`<p key=${name} class="error" role="alert"><bdi>${name}</bdi>: ${message}</p>`)}
    <div class="curves">
      ${present.map((metric) => html`<${Curve} key=${metric} metric=${metric} names=${chosen} order=${runs.map((run) => run.name)} all=${all} version=${version} smooth=${state.smooth} />`)}
    </div>
    ${chosen.length > 0 && !present.length && !Object.keys(errors).length && html`<p class="quiet empty late">${t("noEvents")}</p>`}
  </div>`;
}

/** Points of one metric of one run, in the order of steps. */
function pointsOf(events, metric) {
  const byStep = new Map();
  for (const event of events ?? []) if (Number.isFinite(event[metric])) byStep.set(event.step, event[metric]);
  return [...byStep].sort((one, two) => one[0] - two[0]);
}

function Curve({ metric, names, order, all, version, smooth }) {
  const host = useRef(null), plot = useRef(null);
  const [theme, repaint] = useState(0);
  const [at, point] = useState(/** @type {number | null} */ (null));
  const curves = useMemo(() => names.map((name) => ({ name, points: pointsOf(all.get(name), metric) })).filter((each) => each.points.length), [names.join("\n"), version]);
  useEffect(() => {
    const again = () => repaint((count) => count + 1);
    addEventListener("seqloom-theme", again);
    return () => removeEventListener("seqloom-theme", again);
  }, []);
  useEffect(() => {
    let isOver = false;
    plotter().then((Plot) => {
      if (isOver || !host.current) return;
      const began = performance.now();
      const steps = [...new Set(curves.flatMap((each) => each.points.map((point) => point[0])))].sort((one, two) => one - two);
      const place = new Map(steps.map((step, at) => [step, at]));
      const data = [steps], series = [{ label: t("step") }];
      for (const { name, points } of curves) {
        const paint = getComputedStyle(document.documentElement).getPropertyValue(seriesColour(order.indexOf(name))).trim();
        const values = points.map((point) => point[1]);
        for (const [isRaw, line] of /** @type {[boolean, number[]][]} */ ([[true, values], [false, smoothed(values, reach(values.length, smooth))]])) {
          if (isRaw && !smooth) continue;
          const column = new Array(steps.length).fill(null);
          points.forEach((point, at) => (column[place.get(point[0])] = line[at]));
          data.push(column);
          series.push({ label: name, stroke: isRaw ? `${paint}55` : paint, width: isRaw ? 1 : 2, spanGaps: true, points: { show: points.length < 3 } });
        }
      }
      const looks = getComputedStyle(document.documentElement);
      const quiet = looks.getPropertyValue("--quiet").trim(), rule = looks.getPropertyValue("--rule").trim();
      const shape = series.map((each) => `${each.label}${each.stroke}`).join();
      if (plot.current && plot.current.shape === shape && plot.current.theme === theme) plot.current.view.setData(data);
      else {
        plot.current?.view.destroy();
        const axis = { stroke: quiet, grid: { stroke: rule, width: 1 }, ticks: { show: false }, font: "12px system-ui" };
        const view = new Plot(
          {
            width: host.current.clientWidth,
            height: HEIGHT,
            legend: { show: false },
            cursor: { points: { size: 6 } },
            scales: { x: { time: false } },
            axes: [{ ...axis, space: 70, size: 30 }, { ...axis, size: 58, values: (_, values) => values.map((value) => (value === null ? "" : short(value))) }],
            series,
            hooks: { setCursor: [(it) => point(it.cursor.idx ?? null)] },
          },
          data,
          host.current,
        );
        plot.current = { view, shape, theme };
      }
      performance.measure("seqloom-curve", { start: began, end: performance.now() });
    });
    return () => {
      isOver = true;
    };
  }, [curves, smooth, theme]);
  useEffect(() => {
    const observer = new ResizeObserver(() => host.current && plot.current?.view.setSize({ width: host.current.clientWidth, height: HEIGHT }));
    observer.observe(host.current);
    return () => {
      observer.disconnect();
      plot.current?.view.destroy();
      plot.current = null;
    };
  }, []);
  /** The values at the step under the pointer. */
  function pointed() {
    const { data, series } = plot.current.view;
    const values = data.slice(1).map((column, place) => [series[place + 1], column[at]]);
    const shown = values.filter(([line, value]) => value !== null && value !== undefined && line.width === 2);
    return `${t("stepN", { n: data[0][at] })}: ${shown.map(([line, value]) => `${line.label} ${short(value)}`).join(" · ")}`;
  }
  const newest = () => curves.map(({ name, points }) => `${curves.length > 1 ? `${name} ` : ""}${short(points[points.length - 1][1])}`).join(" · ");
  const title = t(`metric_${metric}`);
  const rows = () => [[t("run"), t("step"), title], ...curves.flatMap(({ name, points }) => points.map(([step, value]) => [name, step, value]))];
  return html`<${Figure} title=${title} name=${metric} rows=${rows} data=${curves} svg=${() => curveSvg(curves, order, smooth)}>
    <p class="readout small">${at !== null && plot.current?.view.data[0][at] !== undefined ? pointed() : newest()}</p>
    <div class="curve" ref=${host} role="img" aria-label=${`${title}: ${newest()}`}></div>
  <//>`;
}

function short(value) {
  const size = Math.abs(value);
  if (size !== 0 && (size < 0.001 || size >= 1e6)) return value.toExponential(1).replace("-", "−");
  return String(Number(value.toPrecision(4))).replace("-", "−");
}

/** The same curves as a drawing. */
function curveSvg(curves, order, smooth) {
  const width = 720, height = 320, left = 64, foot = 34;
  const draw = (name, attributes, text = "") => {
    const element = document.createElementNS("http://www.w3.org/2000/svg", name);
    for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, String(value));
    element.textContent = text;
    return element;
  };
  const looks = getComputedStyle(document.documentElement);
  const svg = draw("svg", { width, height, viewBox: `0 0 ${width} ${height}` });
  const points = curves.flatMap((each) => each.points);
  const xs = points.map((point) => point[0]), ys = points.map((point) => point[1]);
  const [x0, x1, y0, y1] = [xs, ys].flatMap((values) => [values.reduce((a, b) => Math.min(a, b)), values.reduce((a, b) => Math.max(a, b))]);
  const across = (x) => left + ((width - left - 12) * (x - x0)) / (x1 - x0 || 1);
  const down = (y) => 10 + ((height - foot - 14) * (y1 - y)) / (y1 - y0 || 1);
  const text = { fill: looks.getPropertyValue("--quiet").trim(), "font-size": 12, "font-family": "system-ui, sans-serif" };
  for (const share of [0, 0.25, 0.5, 0.75, 1]) {
    const y = y0 + (y1 - y0) * share, x = x0 + (x1 - x0) * share;
    svg.append(draw("line", { x1: left, x2: width - 12, y1: down(y), y2: down(y), stroke: looks.getPropertyValue("--rule").trim() }));
    svg.append(draw("text", { ...text, x: left - 6, y: down(y) + 4, "text-anchor": "end" }, short(y)));
    svg.append(draw("text", { ...text, x: across(x), y: height - 12, "text-anchor": "middle" }, short(Math.round(x))));
  }
  for (const { name, points: own } of curves) {
    const stroke = looks.getPropertyValue(seriesColour(order.indexOf(name))).trim();
    const line = smoothed(own.map((point) => point[1]), reach(own.length, smooth));
    if (smooth) svg.append(draw("polyline", { fill: "none", stroke, opacity: 0.3, points: own.map(([x, y]) => `${across(x)},${down(y)}`).join(" ") }));
    svg.append(draw("polyline", { fill: "none", stroke, "stroke-width": 2, points: own.map(([x], at) => `${across(x)},${down(line[at])}`).join(" ") }));
  }
  return svg;
}
