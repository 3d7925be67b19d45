"""`seqloom config`: every setting, its value and its meaning."""

import textwrap
from pathlib import Path
from typing import Annotated

import typer

from seqloom.cli.arguments import JsonResult, config_and_overrides
from seqloom.cli.console import examples
from seqloom.core.errors import UsageError
from seqloom.core.events import json_line

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
        if json:
            print(json_line(docs))
            return
        for doc in docs:
            kind = f" [{doc.kind}]" if doc.kind else ""
            default = f", default {doc.default}" if doc.default else ""
            meaning = textwrap.wrap(" ".join(doc.description.split()), 96)
            print("\n    ".join([f"{doc.path}{kind}: {doc.type}{default}", *meaning]))
        return
    if run is not None:
        if not run.is_dir():
            raise UsageError(f"{run}: no such run or model folder")
        if not (run / "config.yaml").is_file():
            raise UsageError(f"{run} is neither a run nor a model: config.yaml is missing")
        resolved = resolve(RunConfig, file=run / "config.yaml", overrides=overrides)
    else:
        resolved = general_config(file, overrides)
    text = json_line(resolved.model_dump(mode="json")) if json else HEADER + to_yaml(resolved, comments=True)
    print(text.rstrip("\n"))
