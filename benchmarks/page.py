"""How fast the page of the server is: from the last key to the text, and the drawing of large maps, trees and curves.

    python benchmarks/page.py MODEL [--lines FILE] [--repeats 12]

The model is served on a free port by one worker. For each line, the time of a call of `/translate` is measured, and in
Chromium the time from the last key to the new text on the page, without the pause of 250 ms that the page waits for
more keys. Their medians are compared. Then a map of 200 × 200 cells, a tree of 1,000 candidates and a curve of 20,000
steps are drawn, and what the page itself measured is printed. Needs playwright (`pip install --group browser`) and the
Chromium of the system.
"""

import argparse
import json
import shutil
import statistics
import subprocess
import sys
import time
import urllib.request
from pathlib import Path
from typing import Any

PAUSE_MILLISECONDS = 250.0
CELLS, CANDIDATES, STEPS = 200, 1_000, 20_000
LINES = (
    "A small dog runs over the grass.",
    "Two men are playing guitar in front of a large audience.",
    "A woman in a red coat is waiting for the bus.",
    "Children are building a castle of sand on the beach.",
)

WATCH = """() => new Promise((done) => {
  const before = document.querySelector("[data-translation]")?.textContent ?? "";
  const begun = performance.now();
  const look = () => {
    const text = document.querySelector("[data-translation]")?.textContent ?? "";
    const isNew = text && text !== before && !document.querySelector(".writing.stale");
    if (isNew) done(performance.now() - begun);
    else requestAnimationFrame(look);
  };
  look();
})"""

DRAW_MAP = """async (size) => {
  const { html, render } = await import("/page/lib.js");
  const { HeatMap } = await import("/page/heat.js");
  const host = document.body.appendChild(document.createElement("div"));
  const labels = Array.from({ length: size }, (_, at) => `word${at}`);
  const matrix = labels.map((_, y) => labels.map((_, x) => Math.abs(Math.sin(x * y))));
  const parts = { rows: labels, columns: labels, matrix, label: "map", rowName: "", columnName: "" };
  render(html`<${HeatMap} ...${parts} />`, host);
  await new Promise((done) => setTimeout(done, 1500));
  return performance.getEntriesByName("seqloom-heat").at(-1).duration;
}"""

DRAW_TREE = """async (candidates) => {
  const { mountTree } = await import("/page/beam_tree.js");
  const host = document.body.appendChild(document.createElement("div"));
  const perStep = 20, steps = candidates / perStep, nodes = [];
  for (let number = 0; number < candidates; number += 1) {
    const step = 1 + Math.floor(number / perStep), row = number % perStep;
    nodes.push({ number, parent: step === 1 ? null : number - perStep, step, symbol: number, shown: `s${number}`,
      label: `s${number}`, note: "50%", fate: row < 5 ? "kept" : "pruned", rank: row + 1, others: 0, winner: row === 0,
      probability: 0.5, log_probability: -0.7, terms: { log_prob: -0.7 }, score: -0.7, x: 20 * step, y: row,
      start: [20 * step - 8, row], bend: 20 * step - 4, width: 12, cells: 5 });
  }
  const columns = Array.from({ length: steps + 2 }, (_, at) => 20 * at);
  const begun = performance.now();
  mountTree(host, { nodes, columns, steps, root: 0, span: [0, perStep], fates: { kept: 1, pruned: 1 } });
  host.getBoundingClientRect();
  return performance.now() - begun;
}"""


def main() -> int:
    """Measure and print."""
    from playwright.sync_api import sync_playwright

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", help="a translator")
    parser.add_argument("--lines", type=Path, help="lines to translate, one per line")
    parser.add_argument("--repeats", type=int, default=12)
    given = parser.parse_args()
    lines = given.lines.read_text(encoding="utf-8").splitlines() if given.lines else list(LINES)
    command = [sys.executable, "-m", "seqloom", "serve", given.model, "--port", "0", "--jobs", "1", "--json"]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    try:
        assert server.stdout is not None
        address = json.loads(server.stdout.readline())["address"]
        (model,) = ask(f"{address}/api/models")["models"]
        with sync_playwright() as driver:
            path = shutil.which("chromium") or shutil.which("chromium-browser")
            arguments = ["--no-sandbox", "--disable-gpu", "--disable-background-networking"]
            browser = driver.chromium.launch(executable_path=path, args=arguments)
            page = browser.new_page()
            page.set_default_timeout(120_000)
            calls, keys = [], []
            page.goto(f"{address}/#lens=pieces")
            page.locator("#source").wait_for()
            for number in range(given.repeats):
                line = f"{lines[number % len(lines)]} {number}"  # the page keeps answers: each text is new
                begun = time.perf_counter()
                body = {"q": line, "source": model["source"], "target": model["target"]}
                ask(f"{address}/translate", body)
                calls.append(1_000 * (time.perf_counter() - begun))
                page.locator("#source").fill(line[:-1])
                page.wait_for_timeout(150)
                page.keyboard.press("End")
                page.keyboard.type(line[-1])
                keys.append(page.evaluate(WATCH) - PAUSE_MILLISECONDS)
                page.wait_for_timeout(1_000)
            call, key = statistics.median(calls), statistics.median(keys)
            print(f"{'a call of /translate':32}{call:8.1f} ms, median of {len(calls)}")
            print(f"{'last key to text':32}{key:8.1f} ms, without the pause; {key / call:.2f} times a call")
            print(f"{f'map of {CELLS} × {CELLS}':32}{page.evaluate(DRAW_MAP, CELLS):8.1f} ms")
            print(f"{f'tree of {CANDIDATES:,} candidates':32}{page.evaluate(DRAW_TREE, CANDIDATES):8.1f} ms")
            print(f"{f'curve of {STEPS:,} steps':32}{draw_curve(page, address):8.1f} ms")
            browser.close()
    finally:
        server.terminate()
        server.wait()
    return 0


def draw_curve(page: Any, address: str) -> float:
    """Milliseconds to draw a run that reports at each of so many steps."""
    events = "".join(f"data: {json.dumps({'id': at, 'step': at, 'loss': 5 / at})}\n\n" for at in range(1, STEPS + 1))
    run = {"name": "long", "state": "finished", "step": STEPS, "steps": STEPS, "seconds_left": None, "model": ""}
    page.route("**/api/runs", lambda route: route.fulfill(json={"runs": [run]}))
    page.route("**/api/runs/long/events*", lambda route: route.fulfill(body=events, content_type="text/event-stream"))
    page.goto("about:blank")
    page.goto(f"{address}/#view=runs")
    page.locator(".uplot").first.wait_for()
    page.wait_for_timeout(1_500)
    longest: float = page.evaluate(
        "Math.max(...performance.getEntriesByName('seqloom-curve').map((each) => each.duration))"
    )
    return longest


def ask(address: str, body: Any = None) -> Any:
    """The JSON of a call."""
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(address, data, {"x-seqloom": "1", "content-type": "application/json"})
    with urllib.request.urlopen(request, timeout=120) as answer:
        return json.load(answer)


if __name__ == "__main__":
    sys.exit(main())
