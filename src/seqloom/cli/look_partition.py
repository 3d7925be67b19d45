"""`seqloom look partition`: the normaliser of a language model."""

from pathlib import Path
from typing import Annotated

import typer

from seqloom.cli.arguments import sort_words
from seqloom.cli.console import show_events
from seqloom.cli.output import clean, examples, json_line
from seqloom.core.errors import UsageError
from seqloom.core.events import Event
from seqloom.core.files import require_folders_above

EXAMPLES = examples(
    "seqloom look partition run/model test.txt",
    "seqloom look partition run/model test.txt --out partition.svg tokens=4096 samples=[64,1024]",
)


def partition(
    model: Annotated[Path, typer.Argument(metavar="MODEL", help="A recurrent language model, or its run.")],
    words: Annotated[
        list[str],
        typer.Argument(
            metavar="FILE [path=value]", help="A text; settings: tokens=4096, samples=[64,1024], power=0.75 …"
        ),
    ],
    out: Annotated[
        Path, typer.Option("--out", metavar="PICTURE", help="Where to draw it, PNG or SVG by the ending.")
    ] = Path("partition.png"),
    json: Annotated[bool, typer.Option("--json", help="All numbers as JSON on stdout, a record per picture.")] = False,
) -> None:
    """See how far a language model is from normalised: log Z = log Σ exp(score) at the positions of a text.

    NCE takes log Z for 0, maximum likelihood does not care. Two more pictures tell what a sampled loss would see of
    this model: PICTURE-gradient-cosine, how its gradient points beside that of the full softmax, by the number of
    samples; and PICTURE-importance-variance, how well Z is known from importance samples.
    """
    from seqloom.core.config import resolve
    from seqloom.recipes.load import load_any
    from seqloom.recipes.partition import PartitionConfig, look_at_partition

    given = sort_words(words)
    if len(given.others) != 1:
        raise UsageError(f"name one text to look at, not {len(given.others)}: seqloom look partition MODEL test.txt")
    if out.suffix not in (".png", ".svg"):
        raise UsageError(f"{out} is neither .png nor .svg; name the picture with one of these endings")
    require_folders_above(out)
    config = resolve(PartitionConfig, overrides=given.overrides)
    loaded = load_any(model)
    with show_events(as_json=json) as listener:
        found = look_at_partition(
            loaded,
            Path(given.others[0]),
            config,
            progress=lambda done, parts: listener(
                Event("progress", {"what": "looking at log Z, parts of the work", "done": done, "all": parts})
            ),
        )
    out.parent.mkdir(parents=True, exist_ok=True)
    for finding in found:
        picture = out if finding is found[0] else out.with_stem(f"{out.stem}-{finding.name}")
        finding.draw().savefig(picture, dpi=144, metadata={"Date": None} if picture.suffix == ".svg" else None)
        if json:
            values = {"name": finding.name, "sentence": finding.sentence, **finding.data, "picture": picture}
            print(json_line(values))
        else:
            print(clean(finding.sentence))
            print(f"drawn in {picture}")
