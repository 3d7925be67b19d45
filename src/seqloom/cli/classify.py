"""`seqloom classify`: the class of each line, or of each image."""

import sys
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from seqloom.cli.arguments import Encoding, ModelFolder, OnBadUtf8, require_picture
from seqloom.cli.console import clean, counted, examples, score_rows, show_events, table
from seqloom.cli.inputs import TextEncoding, open_input, read_blocks
from seqloom.core.errors import DataError, Problem, UsageError
from seqloom.core.events import Listener, json_line, notice, progress

if TYPE_CHECKING:
    from seqloom.apps.classifier import Classification, Classifier, ClassifierScores, Picture, Text

EXAMPLES = examples(
    "seqloom classify run/model reviews.txt > labels",
    "echo 'a delightful film' | seqloom classify run/model --probabilities",
    "seqloom classify run/model questions.txt --json",
    "seqloom classify run/model --reference test.tsv",
    "seqloom classify run/model --reference test.tsv --picture confusion.png",
    "cut -f 2,3 pairs.tsv | seqloom classify run/model",
    "seqloom classify images/model cat.png dog.png --probabilities",
    "seqloom classify images/model --reference test.npz",
)

STDIN = Path("-")

MAX_SHOWN_LABELS = 20
"""Labels of a confusion table on the screen; --json has all."""

IMAGES_AT_ONCE = 256
"""Images whose classes are printed together."""

Files = Annotated[
    list[Path] | None,
    typer.Argument(
        metavar="[FILE]...",
        help="A text, one per line; a model of pairs reads two texts separated by a tab. Plain, .gz, .xz or .zst; "
        "standard input by default. For a model of images: images, a folder of them, or an .npz file.",
    ),
]
Probabilities = Annotated[
    bool,
    typer.Option("--probabilities", help="After each label, print all labels with their probabilities, best first."),
]
Reference = Annotated[
    Path | None,
    typer.Option(
        "--reference",
        metavar="FILE",
        help="Labelled text or images, in any form that training reads: print accuracy, macro-F1 and which labels are "
        "confused, instead of labels.",
    ),
]
PictureFile = Annotated[
    Path | None,
    typer.Option(
        "--picture",
        metavar="FILE",
        help="Of --reference, draw which labels are confused and how far confidences can be trusted: .png or .svg.",
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print a JSON record per line or image, or one with all scores.")]


def classify(
    model: ModelFolder,
    files: Files = None,
    probabilities: Probabilities = False,
    reference: Reference = None,
    picture: PictureFile = None,
    encoding: Encoding = None,
    on_bad_utf8: OnBadUtf8 = None,
    json: Json = False,
) -> None:
    """Print the class of each line of a text, or of each image: one of the labels that the model was trained with.

    N lines in, N lines out; a blank line stays blank. Train a classifier with [bold]seqloom train
    task.kind=classification --train reviews.tsv --out run[/bold].

    A model of images prints the class and the name of each file, and only classes for an .npz file. Train one with
    [bold]seqloom train model.kind=vit --train FOLDER --out run[/bold].

    With [bold]--reference[/bold], or for a folder with one subfolder of images per class, the right labels are known,
    and the predicted ones are scored: accuracy, macro-F1, and the expected calibration error of the confidences.
    """
    given = files or []
    if reference is not None and given:
        raise UsageError(f"--reference {reference} holds texts and labels; leave out {given[0]}")
    if reference is not None and probabilities:
        raise UsageError("--probabilities cannot be combined with --reference, which prints scores")
    if picture is not None:
        require_picture(picture)
    decoding = TextEncoding.of(encoding, on_bad_utf8)

    from seqloom.apps.classifier import Classifier

    classifier = Classifier.load(model)
    if reference is None and classifier.reads_images and (reference := _folder_per_class(given)) and probabilities:
        raise UsageError(f"--probabilities cannot be combined with {reference}, a folder per class, which is scored")
    if picture is not None and reference is None:
        raise UsageError(f"--picture {picture} draws scores; give the right labels with --reference FILE")
    with show_events(as_json=json, has_progress=reference is not None) as listener:
        if reference is not None:
            score = _score_images if classifier.reads_images else partial(_score, decoding=decoding)
            scores = score(classifier, reference, listener=listener)
            print(json_line(_record(scores)) if json else "\n".join(_describe(scores)))
            if picture is not None:
                _draw(scores, picture)
        elif classifier.reads_images:
            _print_images(classifier, given, probabilities=probabilities, json=json)
        else:
            _print_lines(classifier, given, decoding, probabilities=probabilities, json=json, listener=listener)


def _print_lines(
    classifier: "Classifier",
    files: Sequence[Path],
    decoding: TextEncoding,
    *,
    probabilities: bool,
    json: bool,
    listener: Listener,
) -> None:
    """The class of each line of a text."""
    if len(files) > 1:
        raise UsageError(f"{files[1]}: a model of texts reads one file; give one, or join them with cat")
    path = None if not files or files[0] == STDIN else files[0]
    name, done = "standard input" if path is None else str(path), 0
    with open_input(path) as stream:
        for lines in read_blocks(stream, name, encoding=decoding, warn=partial(notice, listener)):
            texts: list[Text] = [*lines]
            if classifier.is_paired:
                texts = [_split(line, name, number) for number, line in enumerate(lines, start=done + 1)]
            for number, found in enumerate(classifier.classify(texts), start=done + 1):
                print(_line({"line": number}, found, probabilities=probabilities, json=json))
            sys.stdout.flush()
            done += len(lines)


# --- images ----------------------------------------------------------------------------------------------------------


def _folder_per_class(files: Sequence[Path]) -> Path | None:
    """The one folder that is given, if it has folders inside."""
    if len(files) == 1 and files[0].is_dir() and any(each.is_dir() for each in files[0].iterdir()):
        return files[0]
    return None


def _print_images(classifier: "Classifier", files: Sequence[Path], *, probabilities: bool, json: bool) -> None:
    """The class of each image."""
    if not files or STDIN in files:
        raise UsageError(
            f"a model of kind {classifier.config.model.kind} reads images: name some, a folder of them, or an .npz file"
        )
    images = _named_images(files)
    while some := list(islice(images, IMAGES_AT_ONCE)):
        for (place, _), found in zip(some, classifier.classify([image for _, image in some]), strict=True):
            print(_line(place, found, probabilities=probabilities, json=json))
        sys.stdout.flush()


def _named_images(files: Sequence[Path]) -> Iterator[tuple[Mapping[str, object], "Picture"]]:
    """Images with the places that are printed with their classes."""
    from seqloom.data.images import read_unlabelled

    for path in files:
        if path.is_dir():
            inside = sorted(each for each in path.iterdir() if not each.name.startswith("."))
            if not inside:
                raise DataError(f"{path}: no images in this folder")
            yield from (({"file": str(each)}, each) for each in inside)
        elif path.suffix.lower() == ".npz":
            arrays = read_unlabelled(path).pictures
            yield from (({"file": str(path), "image": number}, each) for number, each in enumerate(arrays, start=1))
        else:
            yield {"file": str(path)}, path


def _score_images(classifier: "Classifier", reference: Path, *, listener: Listener) -> "ClassifierScores":
    from seqloom.data.images import read_images
    from seqloom.runs.images import image_settings

    model, task = image_settings(classifier.config)
    images = read_images(reference, classifier.config.data.images, classes=task.labels, size=model.image_size)
    labels = [task.labels[label] for label in images.labels.tolist()]
    shown = partial(progress, listener, f"classifying {reference}")
    return classifier.evaluate(images.source.pictures, labels, progress=shown)


# --- texts -----------------------------------------------------------------------------------------------------------


def _split(line: str, name: str, number: int) -> tuple[str, str]:
    """The two texts of a line for a model of pairs."""
    columns = line.split("\t") if line.strip() else ["", ""]
    if len(columns) != 2:
        message = f"{counted(len(columns), 'column')}; the model reads pairs: a text, a tab and a text"
        raise DataError(problems=[Problem(message, name, number)])
    return columns[0], columns[1]


def _line(place: Mapping[str, object], found: "Classification", *, probabilities: bool, json: bool) -> str:
    if json:
        shares = {label: round(share, 6) for label, share in found.probabilities.items()}
        probability = round(found.probability, 6)
        return json_line({**place, "label": found.label or None, "probability": probability, "probabilities": shares})
    columns = [found.label]
    if "file" in place and "image" not in place:
        columns.append(clean(str(place["file"])))
    if probabilities:
        ordered = sorted(found.probabilities.items(), key=lambda item: -item[1])
        columns += [f"{label}={share:.4f}" for label, share in ordered]
    return "\t".join(columns)


def _score(
    classifier: "Classifier", reference: Path, *, decoding: TextEncoding, listener: Listener
) -> "ClassifierScores":
    from seqloom.data.labelled import LabelledCorpus

    corpus = LabelledCorpus(
        [reference],
        encoding=decoding.encoding,
        on_bad=decoding.on_bad,
        column=classifier.config.data.label_column,
        known=classifier.labels,
    )
    for sentence in corpus.notices:
        notice(listener, sentence)
    if corpus.texts != 1 + classifier.is_paired:
        message = (
            f"{corpus.texts} text{'s' * (corpus.texts > 1)} in a line, but the model reads {1 + classifier.is_paired}"
        )
        raise DataError(problems=[Problem(message, str(reference), 1)])
    lines = list(corpus)
    texts = [(line.texts[0], line.texts[1]) if classifier.is_paired else line.texts[0] for line in lines]
    labels = [line.label for line in lines]
    return classifier.evaluate(texts, labels, progress=partial(progress, listener, f"classifying {reference}"))


def _draw(scores: "ClassifierScores", picture: Path) -> None:
    from seqloom.drawing.confusion import plot_confusion

    picture.parent.mkdir(parents=True, exist_ok=True)
    plot_confusion(picture, labels=scores.labels, counts=scores.confusion, reliability=scores.reliability)


def _record(scores: "ClassifierScores") -> dict[str, object]:
    return {
        "lines": int(scores.confusion.sum()),
        "scores": [scores.accuracy, scores.macro_f1],
        "calibration_error": round(scores.reliability.error, 6),
        "labels": scores.labels,
        "confusion": scores.confusion.tolist(),
    }


def _describe(scores: "ClassifierScores") -> list[str]:
    """The scores, and how often each label was predicted as each other one."""
    labels, counts = scores.labels, scores.confusion
    rows = [*score_rows([scores.accuracy, scores.macro_f1])]
    trust = scores.reliability
    groups = f"{len(trust.rows)} groups of examples"
    rows.append(f"expected calibration error {trust.error:.3f} in {groups}: mean |share of right labels − confidence|")
    if len(labels) <= MAX_SHOWN_LABELS:
        names = [clean(label) for label in labels]
        right = [["right \\ predicted", *names, "recall"]]
        for name, row in zip(names, counts.tolist(), strict=True):
            place = names.index(name)
            recall = f"{100 * row[place] / sum(row):.1f}%" if sum(row) else "–"
            right.append([name, *map(str, row), recall])
        return [*rows, "", *table(right)]
    return [*rows, "", *_most_confused(labels, counts.tolist())]


def _most_confused(labels: Sequence[str], counts: Sequence[Sequence[int]]) -> list[str]:
    """The most frequent confusions among many labels."""
    pairs = [
        (count, right, found)
        for right, row in zip(labels, counts, strict=True)
        for found, count in zip(labels, row, strict=True)
        if right != found and count
    ]
    most = sorted(pairs, key=lambda pair: -pair[0])[:MAX_SHOWN_LABELS]
    rows = [(clean(right), "→", clean(found), f"{count:,}") for count, right, found in most]
    return [f"{len(labels):,} labels; the most frequent confusions (right → predicted):", *table(rows)] if rows else []
