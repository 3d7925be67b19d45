"""`seqloom demo`: train a translator in three minutes on the corpus in the package."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from seqloom.cli.console import clean, duration, examples, json_line, score_rows, show_events

if TYPE_CHECKING:
    from seqloom.apps.demo import DemoResult

EXAMPLES = examples("seqloom demo", "seqloom demo --out runs/again --steps 300")


def demo(
    out: Annotated[Path, typer.Option("--out", metavar="RUN", help="Run folder.")] = Path("runs/demo"),
    force: Annotated[
        bool, typer.Option("--force", help="Delete an earlier demo in that folder and start over.")
    ] = False,
    steps: Annotated[int | None, typer.Option("--steps", min=1, metavar="N", help="Number of training steps.")] = None,
    json: Annotated[
        bool, typer.Option("--json", help="Print the result as JSON on stdout and events as JSON on stderr.")
    ] = False,
) -> None:
    """Train a small English-German translator on the corpus that comes with Seqloom, and evaluate it.

    No download, no GPU, about three minutes. Prints scores on unseen sentences and ten translations.

    Run again, it resumes an interrupted demo, or prints the results of a finished one.
    """
    from seqloom.apps.demo import demo as recipe

    with show_events(as_json=json) as listener:
        result = recipe(out, steps=steps, force=force, listener=listener)
    print(json_line(result) if json else "\n".join(_describe(result)))


def _describe(result: "DemoResult") -> list[str]:
    trained = result.trained
    lines = [f"Trained {trained.outcome.step:,} steps in {duration(trained.outcome.seconds)}.", ""]
    parts = (
        ("New sentences", result.test_scores),
        ("New combinations: words that never occurred together in training", result.unseen_scores),
    )
    for title, scores in parts:
        lines += [title, *(f"  {row}" for row in score_rows(scores)), ""]
    lines += ["Translations of new sentences (=: reference)"]
    for sample in result.samples:
        lines += [
            f"    {clean(sample.source)}",
            f"  → {clean(sample.translation)}",
            f"  = {clean(sample.reference)}",
            "",
        ]
    model = trained.model
    return [
        *lines,
        f"The model is in {model}. Next:",
        f"  echo '{_quoted(result)}' | seqloom translate {model}",
        f"  seqloom evaluate {model} --source SOURCE --reference REFERENCE",
        f"  seqloom info {model}",
        "  seqloom train --train yours.de --train yours.en --out runs/yours",
    ]


def _quoted(result: "DemoResult") -> str:
    first = result.samples[0].source if result.samples else "The small dog sees a tree."
    return clean(first).replace("'", "'\\''")
