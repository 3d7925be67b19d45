"""`seqloom demo`: train a translator in three minutes on the corpus in the package."""

import threading
import webbrowser
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from seqloom.cli.arguments import JsonEvents
from seqloom.cli.console import clean, duration, examples, score_rows, show_events
from seqloom.core.errors import UsageError
from seqloom.core.events import json_line

if TYPE_CHECKING:
    from seqloom.serve.models import ServedModels

EXAMPLES = examples("seqloom demo", "seqloom demo --open", "seqloom demo --out runs/again --steps 300")


def demo(
    out: Annotated[Path, typer.Option("--out", metavar="RUN", help="Run folder.")] = Path("runs/demo"),
    force: Annotated[
        bool, typer.Option("--force", help="Delete an earlier demo in that folder and start over.")
    ] = False,
    open_page: Annotated[
        bool, typer.Option("--open", help="Then serve the model and open its page in the browser; Ctrl-C ends it.")
    ] = False,
    steps: Annotated[int | None, typer.Option("--steps", min=1, metavar="N", help="Number of training steps.")] = None,
    json: JsonEvents = False,
) -> None:
    """Train a small English-German translator on the corpus that comes with Seqloom, and evaluate it.

    No download, no GPU, about three minutes. Prints scores on unseen sentences and ten translations.

    Run again, it resumes an interrupted demo, or prints the results of a finished one.
    """
    from seqloom.apps.demo import demo as recipe

    if open_page and json:
        raise UsageError("--open cannot be combined with --json")
    with show_events(as_json=json) as listener:
        result = recipe(out, steps=steps, force=force, listener=listener)
    if json:
        print(json_line(result))
        return
    trained, model = result.trained, result.trained.model
    lines = [f"Trained {trained.outcome.step:,} steps in {duration(trained.outcome.seconds)}.", ""]
    parts = (
        ("New sentences", result.test_scores),
        ("New combinations: words that never occurred together in training", result.unseen_scores),
    )
    for title, scores in parts:
        lines += [title, *(f"  {row}" for row in score_rows(scores)), ""]
    lines += ["Translations of new sentences (=: reference)"]
    for sample in result.samples:
        lines += [f"    {sample.source}", f"  → {sample.translation}", f"  = {sample.reference}", ""]
    first = result.samples[0].source if result.samples else "The small dog sees a tree."
    quoted = first.replace("'", "'\\''")
    lines += [
        f"The model is in {model}. Next:",
        f"  seqloom serve {model}   (translate in the browser, and see why)",
        f"  echo '{quoted}' | seqloom translate {model}",
        f"  seqloom evaluate {model} --source SOURCE --reference REFERENCE",
        f"  seqloom info {model}",
        "  seqloom train --train yours.de --train yours.en --out runs/yours",
    ]
    print("\n".join(map(clean, lines)), flush=True)
    if open_page:
        open_workbench(model)


def open_workbench(model: Path) -> None:
    """Serve a model on a free port and open its page in the browser, until a signal ends it."""
    from seqloom.serve.server import ServerOptions, run_server

    def announce(address: str, _served: "ServedModels") -> None:
        print(f"\nWorkbench: {address}/   (Ctrl-C ends it)", flush=True)
        # A browser in the terminal would hold up the server.
        threading.Thread(target=webbrowser.open, args=(f"{address}/",), daemon=True).start()

    run_server(ServerOptions((str(model),), port=0), on_ready=announce)
