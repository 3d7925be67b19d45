"""`seqloom import`: a published model as a model directory."""

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from seqloom.cli.arguments import JsonEvents
from seqloom.cli.console import clean, counted, examples, show_events, size
from seqloom.core.events import json_line

if TYPE_CHECKING:
    from seqloom.apps.importing import ImportedModel

EXAMPLES = examples(
    "seqloom import opus-mt-en-de --out en-de",
    "seqloom translate en-de text.en",
    "seqloom translate opus-mt-en-de text.en",
)

MAX_LANGUAGES = 6
"""Languages that are listed."""


def import_model(
    published: Annotated[
        Path,
        typer.Argument(
            metavar="FOLDER", help="A folder that was downloaded from the Hugging Face hub: config.json, weights …"
        ),
    ],
    out: Annotated[Path, typer.Option("--out", metavar="MODEL", help="New folder for the model.")],
    json: JsonEvents = False,
) -> None:
    """Convert a model from the Hugging Face hub to a model directory; nothing in it is executed.

    All commands also accept such a folder as MODEL, and convert it each time. [bold]seqloom export --to
    huggingface[/bold] goes back.
    """
    from seqloom.apps.importing import import_model as recipe

    with show_events(as_json=json) as listener:
        imported = recipe(published, out, listener=listener)
    print(json_line(imported) if json else "\n".join(map(clean, _described(imported))))


def _described(found: "ImportedModel") -> list[str]:
    vocabulary = " and ".join(f"{number:,}" for number in found.vocabularies)
    lines = [
        f"Written     {found.path}  ({size(found.bytes)})",
        f"Model       {found.model_type}: {found.purpose}, {counted(found.parameters, 'parameter')}, "
        f"{', '.join(found.dtypes)}",
    ]
    if found.languages:
        some = ", ".join(found.languages[:MAX_LANGUAGES]) + (", …" if len(found.languages) > MAX_LANGUAGES else "")
        lines.append(f"Languages   {counted(len(found.languages), 'language')}: {some}")
    elif found.source or found.target:
        lines.append(f"Languages   {found.source or '?'} → {found.target or '?'}")
    lines += [
        f"Vocabulary  {vocabulary} symbols",
        f"Longest     {counted(found.longest, 'token')}",
        "",
        "Next:",
        *(f"  {command}" for command in _next_commands(found)),
    ]
    return lines


def _next_commands(found: "ImportedModel") -> list[str]:
    model = shlex.quote(str(found.path))
    languages = " --from … --to …" if found.languages else ""
    by_purpose = {
        "translator": [
            f"seqloom translate {model}{languages} text",
            f"seqloom evaluate {model} --source text --reference translations",
        ],
        "language model": [f"seqloom generate {model} --prompt …", f"seqloom perplexity {model} text"],
        "encoder": [f"seqloom embed {model} text --out vectors.npy", f"seqloom serve {model}"],
        "word vectors": [f"seqloom vectors nearest {model} word"],
    }
    return [*by_purpose[found.purpose], f"seqloom info {model}"]
