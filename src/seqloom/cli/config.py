"""`seqloom config`: every setting, its value and its meaning."""

import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from seqloom.cli.arguments import JsonResult, config_and_overrides
from seqloom.cli.console import examples, json_line
from seqloom.core.errors import UsageError

if TYPE_CHECKING:
    from seqloom.core.config import FieldDoc

EXAMPLES = examples(
    "seqloom config model.kind=seq2seq > run.yaml",
    "seqloom config --from runs/demo training.steps=2000",
    "seqloom config --fields",
)


HEADER = """\
# Every setting with its meaning. Settings in a file are not chosen from the size of the data any more:
# keep the lines you want to fix and delete the rest.
"""


def config(
    words: Annotated[
        list[str] | None,
        typer.Argument(metavar="CONFIG.yaml path=value", help="A config file, and settings that override it."),
    ] = None,
    run: Annotated[
        Path | None, typer.Option("--from", metavar="RUN", help="Start from the settings of a run or a model.")
    ] = None,
    fields: Annotated[bool, typer.Option("--fields", help="List all settings with type, default and meaning.")] = False,
    json: JsonResult = False,
) -> None:
    """Print a complete config file with a comment on each setting.

    Sizes that [bold]seqloom train[/bold] chooses from the data are printed with their general defaults.
    """
    file, overrides = config_and_overrides(words, hint="name a run with --from RUN")
    if fields and (file is not None or overrides or run is not None):
        raise UsageError("--fields cannot be combined with config files, settings or --from")
    if file is not None and run is not None:
        raise UsageError(f"--from {run} cannot be combined with {file}; leave one out")

    from seqloom.core.config import describe_fields, resolve, to_yaml
    from seqloom.runs.config import RunConfig
    from seqloom.runs.prepare import general_config

    if fields:
        docs = describe_fields(RunConfig)
        print(json_line(docs) if json else "\n".join(_describe(doc) for doc in docs))
        return
    if run is not None:
        resolved = resolve(RunConfig, file=_config_of(run), overrides=overrides)
    else:
        resolved = general_config(file, overrides)
    text = json_line(resolved.model_dump(mode="json")) if json else HEADER + to_yaml(resolved, comments=True)
    print(text.rstrip("\n"))


def _config_of(run: Path) -> Path:
    if not run.is_dir():
        raise UsageError(f"{run}: no such run or model folder")
    found = run / "config.yaml"
    if not found.is_file():
        raise UsageError(f"{run} is neither a run nor a model: config.yaml is missing")
    return found


def _describe(doc: "FieldDoc") -> str:
    kind = f" [{doc.kind}]" if doc.kind else ""
    default = f", default {doc.default}" if doc.default else ""
    meaning = textwrap.wrap(" ".join(doc.description.split()), 100, initial_indent="    ", subsequent_indent="    ")
    return "\n".join([f"{doc.path}{kind}: {doc.type}{default}", *meaning])
