"""`seqloom distill`: a small, quick translator that learns from a large one."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from seqloom.cli.arguments import (
    Encoding,
    FromLanguage,
    JsonEvents,
    OnBadUtf8,
    ToLanguage,
    config_and_overrides,
    encoding_settings,
    file_names,
    language_settings,
    parse_words,
    require_utf8_names,
)
from seqloom.cli.console import examples, show_events
from seqloom.cli.train import describe, require_files
from seqloom.core.errors import UsageError
from seqloom.core.events import json_line
from seqloom.core.files import require_folders_above

EXAMPLES = examples(
    "seqloom distill run --train corpus.de,corpus.en --dev dev.de,dev.en --out student",
    "seqloom distill run-1 run-2 run-3 --train corpus.de,corpus.en --dev dev.de,dev.en --out student",
    "seqloom distill opus-mt-de-en --train more.de --dev dev.de,dev.en --out student model.width=128 search.beam=2",
)


def distill(
    words: Annotated[
        list[str],
        typer.Argument(
            metavar="TEACHER… CONFIG.yaml path=value",
            help="The model that the student learns from: a model folder, a run, an archive or a published folder. "
            "Several decide together, as with [bold]seqloom translate --with[/bold]. Also settings of the student.",
        ),
    ],
    out: Annotated[Path, typer.Option("--out", metavar="RUN", help="A new folder for the run of the student.")],
    train: Annotated[
        list[str] | None,
        typer.Option(
            "--train",
            metavar="FILE",
            help="What the teacher translates: a source text, or pairs: the source file, then the target file (or "
            "SOURCE,TARGET), or one file with both sides (.tsv, .jsonl, .tmx, .po, .xlf).",
        ),
    ] = None,
    dev: Annotated[
        list[str] | None,
        typer.Option(
            "--dev",
            metavar="FILE",
            help="Validation pairs; by default, part of the training pairs is held out.",
        ),
    ] = None,
    targets: Annotated[
        Literal["best", "closest"] | None,
        typer.Option(
            "--targets",
            metavar="NAME",
            help="What the student learns: [bold]best[/bold] is the best translation of the teacher; "
            "[bold]closest[/bold] is that of its beam with the highest BLEU against the reference, and the default "
            "where --train names pairs.",
        ),
    ] = None,
    keep_gold: Annotated[
        bool, typer.Option("--keep-gold", help="Learn from the pairs themselves, too, beside the translations.")
    ] = False,
    beam: Annotated[
        int | None,
        typer.Option(
            "--beam", metavar="N", min=1, max=1000, help="Beam of the teacher; by default, its own search settings."
        ),
    ] = None,
    source: FromLanguage = None,
    target: ToLanguage = None,
    encoding: Encoding = None,
    on_bad_utf8: OnBadUtf8 = None,
    json: JsonEvents = False,
) -> None:
    """Train a small translator on the translations of a large one, or of several: most of the quality, less time.

    The student has the size that suits the data, one decoder layer, and translates without a beam; settings change
    that, such as model.decoder_layers=2 or search.beam=4.

    Translating takes most of the time. If it is interrupted, the same command continues it; once training has begun,
    [bold]seqloom train --resume RUN[/bold] does so, too. The finished model is the folder RUN/model.
    """
    parsed = parse_words(words)
    teachers = [word for word in parsed.others if not word.lower().endswith((".yaml", ".yml"))]
    others = [word for word in words if word not in teachers]
    config, overrides = config_and_overrides(others, hint="name the teacher first")
    overrides = (*overrides, *encoding_settings(encoding, on_bad_utf8))
    if not teachers:
        raise UsageError("name the model that the student learns from: seqloom distill TEACHER --train … --out …")
    names, dev_names = file_names(train), file_names(dev)
    require_utf8_names([config, out, *teachers, *overrides, *names, *dev_names])
    require_folders_above(out)
    require_files(config, [*names, *dev_names])

    from seqloom.apps.distillation import distill as recipe

    with show_events(as_json=json) as listener:
        trained = recipe(
            teachers,
            names,
            out=out,
            dev=dev_names,
            config=config,
            overrides=overrides,
            targets=targets,
            keep_gold=keep_gold,
            teacher_settings=[*([] if beam is None else [f"search.beam={beam}"]), *language_settings(source, target)],
            listener=listener,
        )
    if trained is not None:
        print(json_line(trained) if json else "\n".join(describe(trained)))
