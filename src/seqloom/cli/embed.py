"""`seqloom embed`: a vector for each line."""

from functools import partial
from pathlib import Path
from typing import Annotated, Literal

import typer

from seqloom.cli.arguments import (
    STANDARD_INPUT,
    Encoding,
    FromLanguage,
    ModelFolder,
    OnBadUtf8,
    OutputFile,
    ToLanguage,
    require_new_file,
)
from seqloom.cli.console import counted, examples, show_events
from seqloom.cli.inputs import TextEncoding, languages_for, open_or_stdout, read_some
from seqloom.core.errors import UsageError
from seqloom.core.events import json_line, notice, progress
from seqloom.core.files import open_output
from seqloom.text.normalise import is_blank

EXAMPLES = examples(
    "seqloom embed run/model texts.txt --out vectors.npy",
    "seqloom embed all-MiniLM-L6-v2 texts.txt --normalise --out vectors.tsv",
    "echo 'A man reads.' | seqloom embed run/model",
    "seqloom embed opus-mt-de-en texts.de --pooling max --out vectors.npy",
)

Side = Literal["source", "target"]
Pools = Literal["mean", "cls", "last", "max"]

Files = Annotated[
    list[Path] | None,
    typer.Argument(
        metavar="[FILE...]",
        help="Texts, one per line: plain, .gz, .xz or .zst, or a side of .tsv, .tmx, .po, .xlf or .jsonl; standard "
        "input (-) by default.",
    ),
]
SideOption = Annotated[Side, typer.Option("--side", help="Which side of files with both sides is read.")]
Pooling = Annotated[
    Pools | None,
    typer.Option(
        "--pooling",
        metavar="mean|cls|last|max",
        help="How the vectors of tokens become one: their mean, the first (cls), the last, or the largest of each "
        "column; by default as the model was trained, and the mean for translators and language models.",
    ),
]
Normalise = Annotated[
    bool, typer.Option("--normalise", help="Scale vectors to length 1, so that their products are cosines.")
]
JsonLines = Annotated[bool, typer.Option("--json", help="Print a JSON record per line.")]


def embed(
    model: ModelFolder,
    files: Files = None,
    out: OutputFile = None,
    side: SideOption = "source",
    pooling: Pooling = None,
    normalise: Normalise = False,
    source: FromLanguage = None,
    target: ToLanguage = None,
    encoding: Encoding = None,
    on_bad_utf8: OnBadUtf8 = None,
    json: JsonLines = False,
) -> None:
    """Give each line a vector: N lines in, N vectors out.

    [bold]--out[/bold] FILE.npy is an array of float32, lines × width; FILE.tsv, and standard output, have a line of
    numbers with tabs between them. The model is an encoder, such as a BERT, a folder of sentence-transformers, or one
    trained on sentence pairs with [bold]task.kind=contrastive[/bold]; of a translator or language model, the vector of
    a line is the mean of its states.

    A line that is longer than the model reads is cut, and such lines are counted. A blank line has the vector of a text
    without words; these are counted too.
    """
    paths = files or [STANDARD_INPUT]
    if STANDARD_INPUT in paths and len(paths) > 1:
        raise UsageError("standard input (-) cannot be combined with other files")
    if out is not None and json:
        raise UsageError("--json prints records on standard output, and cannot be combined with --out")
    if out is not None and out.suffix not in (".npy", ".tsv"):
        raise UsageError(f"--out {out}: vectors are written as .npy or .tsv; choose one of these endings")
    require_new_file(out, inputs=[path for path in paths if path != STANDARD_INPUT])
    decoding = TextEncoding.of(encoding, on_bad_utf8)

    from seqloom.apps.encoder import Encoder

    with show_events(as_json=json) as listener:
        read = partial(read_some, side=side, languages=languages_for(model, paths), listener=listener)
        lines = [line for path in paths for line in read(path, decoding)]
        encoder = Encoder.load(model, pooling=pooling, source=source, target=target)
        if blank := sum(map(is_blank, lines)):
            notice(listener, f"{counted(blank, 'blank line')} of {len(lines):,}: the vector is that of an empty text")
        blocks = encoder.encode_blocks(
            lines, normalise=normalise, progress=partial(progress, listener, f"reading {counted(len(lines), 'line')}")
        )
        if out is not None and out.suffix == ".npy":
            from numpy.lib import format as npy

            with open_output(out) as file:
                # The array is written block by block after its header, in the layout of numpy.save.
                header = {"descr": "<f4", "fortran_order": False, "shape": (len(lines), encoder.width)}
                npy.write_array_header_1_0(file.buffer, header)
                for block in blocks:
                    file.buffer.write(block.astype("<f4").tobytes())
            return
        number = 0
        with open_or_stdout(out) as written:
            for block in blocks:
                for vector in block:
                    number += 1
                    values = list(map(str, vector))  # as many digits as single precision has
                    record = {"line": number, "vector": list(map(float, values))} if json else None
                    print("\t".join(values) if record is None else json_line(record), file=written)
