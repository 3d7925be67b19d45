"""`seqloom caption`: what images show, in words."""

import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from seqloom.cli.arguments import Encoding, ModelFolder, OnBadUtf8
from seqloom.cli.console import clean, examples, score_rows, show_events
from seqloom.cli.inputs import TextEncoding
from seqloom.core.errors import UsageError
from seqloom.core.events import Listener, json_line, progress

if TYPE_CHECKING:
    from seqloom.apps.captioner import Caption, Captioner, CaptionScores
    from seqloom.data.captioned import CaptionedImage

EXAMPLES = examples(
    "seqloom caption run/model scene.png",
    "seqloom caption run/model images/*.png --json",
    "seqloom caption run/model scenes.tsv > captions.tsv",
    "seqloom caption run/model --reference test.tsv",
    "seqloom caption run/model scene.png --beam 8 --nbest 3",
)

IMAGES_AT_ONCE = 256
"""Images whose captions are printed together."""

Files = Annotated[
    list[Path] | None,
    typer.Argument(
        metavar="[IMAGE]...",
        help="Images (.png, .jpg, …), or tables that name them (.tsv, .jsonl), whose captions are not read.",
    ),
]
Reference = Annotated[
    Path | None,
    typer.Option(
        "--reference",
        metavar="TABLE",
        help="Images with their captions, in any form that training reads: print exact match, BLEU and chrF instead. "
        "Several captions of an image are several right answers.",
    ),
]
Beam = Annotated[
    int | None,
    typer.Option("--beam", metavar="N", min=1, max=1_000, help="Captions kept at each step; 1 is greedy search."),
]
Nbest = Annotated[
    int | None,
    typer.Option("--nbest", metavar="N", min=1, max=1_000, help="Captions of each image, best first; at most --beam."),
]
Json = Annotated[bool, typer.Option("--json", help="Print a JSON record per image, or one with all scores.")]


def caption(
    model: ModelFolder,
    files: Files = None,
    reference: Reference = None,
    beam: Beam = None,
    nbest: Nbest = None,
    encoding: Encoding = None,
    on_bad_utf8: OnBadUtf8 = None,
    json: Json = False,
) -> None:
    """Print what each image shows: its file, a tab and the caption.

    Train a model with [bold]seqloom train task.kind=captioning --train captions.tsv --out run[/bold], where each line
    of the table has the name of an image, a tab and its caption.
    """
    given = files or []
    if reference is not None and given:
        raise UsageError(f"--reference {reference} names its own images; leave out {given[0]}")
    if reference is None and not given:
        raise UsageError("no images: name images, or tables of them")
    if reference is not None and nbest is not None:
        raise UsageError(
            f"--nbest {nbest} is for captions that are printed; --reference scores the best one of each image"
        )
    search: dict[str, Any] = {name: number for name, number in (("beam", beam), ("nbest", nbest)) if number is not None}
    decoding = TextEncoding.of(encoding, on_bad_utf8)

    from seqloom.apps.captioner import Captioner
    from seqloom.apps.search_settings import search_with

    captioner = Captioner.load(model)
    search_with(captioner.config.search, None, search, method=captioner.caption)  # refused before an image is read
    with show_events(as_json=json, has_progress=reference is not None) as listener:
        if reference is not None:
            scores = _score(captioner, reference, search, decoding=decoding, listener=listener)
            print(json_line(_record(scores)) if json else "\n".join(score_rows(list(scores.scores))))
        else:
            _print(captioner, _images(given, decoding), search, json=json)


def _images(files: Sequence[Path], decoding: TextEncoding) -> list[Path]:
    """The images that are named, and those that tables name."""
    from seqloom.data.captioned import read_captioned
    from seqloom.data.transcribed import is_table

    found = list[Path]()
    for path in files:
        if path.is_dir():
            raise UsageError(f"{path} is a folder; name its images, such as '{path / '*.png'}'")
        if is_table(path):
            named = read_captioned([path], encoding=decoding.encoding, on_bad=decoding.on_bad, needs_captions=False)
            found += [image.path for image in named]
        else:
            found.append(path)
    return found


def _print(captioner: "Captioner", images: Sequence[Path], search: dict[str, Any], *, json: bool) -> None:
    for begin in range(0, len(images), IMAGES_AT_ONCE):
        some = images[begin : begin + IMAGES_AT_ONCE]
        for image, found in zip(some, captioner.caption(some, **search), strict=True):
            if json:
                record = {"image": str(image), **_of_caption(found)}
                others = {"others": [_of_caption(each) for each in found.others]} if found.others else {}
                print(json_line({**record, **others}))
            else:
                for each in (found, *found.others):
                    print(f"{clean(str(image))}\t{clean(each.text)}")
        sys.stdout.flush()


def _of_caption(found: "Caption") -> dict[str, Any]:
    terms = {name: round(term, 6) for name, term in found.terms.items()}
    return {"caption": found.text, "score": round(found.score, 6), "terms": terms}


def _score(
    captioner: "Captioner", reference: Path, search: dict[str, Any], *, decoding: TextEncoding, listener: Listener
) -> "CaptionScores":
    from seqloom.data.captioned import check_captioned, read_captioned
    from seqloom.runs.captioning import caption_settings

    images: list[CaptionedImage] = read_captioned([reference], encoding=decoding.encoding, on_bad=decoding.on_bad)
    check_captioned(images, captioner.config.data.images, size=caption_settings(captioner.config).image_size)
    shown = partial(progress, listener, f"describing {reference}")
    answers = [image.captions for image in images]
    return captioner.evaluate([image.path for image in images], answers, progress=shown, **search)


def _record(scores: "CaptionScores") -> dict[str, object]:
    return {"images": len(scores.outputs), "scores": list(scores.scores), "captions": list(scores.outputs)}
