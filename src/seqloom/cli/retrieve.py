"""`seqloom retrieve`: the lines of a text that are nearest to others, and translation pairs of two texts."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from seqloom.cli.arguments import STANDARD_INPUT, Encoding, FromLanguage, ModelFolder, OnBadUtf8, ToLanguage
from seqloom.cli.console import counted, examples, one_line, score_rows, show_events
from seqloom.cli.inputs import TextEncoding, languages_for, read_some, require_same_count
from seqloom.core.errors import DataError, UsageError
from seqloom.core.events import Listener, json_line, notice, progress
from seqloom.text.normalise import is_blank

if TYPE_CHECKING:
    import numpy as np
    from jaxtyping import Float32

    from seqloom.apps.encoder import Encoder

EXAMPLES = examples(
    "seqloom retrieve run/model queries.txt texts.txt --best 3",
    "seqloom retrieve run/model test.de test.en --parallel",
    "seqloom retrieve run/model news.de news.en --mine > pairs.tsv",
)

Queries = Annotated[Path, typer.Argument(metavar="QUERIES", help="Lines to look for; of both sides, the source.")]
Texts = Annotated[Path, typer.Argument(metavar="TEXTS", help="Lines to look in; of both sides, the target.")]
Best = Annotated[int | None, typer.Option("--best", min=1, max=1000, metavar="K", help="Lines per query (1).")]
Mine = Annotated[
    bool,
    typer.Option("--mine", help="Print the pairs of lines that translate each other: score, query, text, best first."),
]
Threshold = Annotated[
    float | None,
    typer.Option(
        "--threshold",
        metavar="MARGIN",
        min=0,
        help="--mine: the lowest score of a pair, by default 1.06. The score is its cosine, divided by the mean cosine "
        "of both lines to their four nearest ones.",
    ),
]
Parallel = Annotated[
    bool,
    typer.Option(
        "--parallel",
        help="Line i of QUERIES belongs to line i of TEXTS: print how many lines find theirs first, both ways.",
    ),
]
JsonLines = Annotated[bool, typer.Option("--json", help="Print a JSON record per line or pair, or one of scores.")]


def retrieve(
    model: ModelFolder,
    queries: Queries,
    texts: Texts,
    best: Best = None,
    mine: Mine = False,
    threshold: Threshold = None,
    parallel: Parallel = False,
    source: FromLanguage = None,
    target: ToLanguage = None,
    encoding: Encoding = None,
    on_bad_utf8: OnBadUtf8 = None,
    json: JsonLines = False,
) -> None:
    """Find the lines of TEXTS whose vectors are nearest to those of QUERIES, by cosine.

    Prints, with tabs between them: line of the query, rank, cosine, line of the text, text. All lines are compared with
    all others, in blocks that fit in memory. Blank lines are left out, and counted.

    With [bold]--mine[/bold], the two texts are searched for pairs of lines that translate each other. With
    [bold]--parallel[/bold] they are known to, and the share that is found first measures the model.
    """
    if mine and (parallel or best is not None):
        raise UsageError(f"--mine cannot be combined with {'--parallel' if parallel else '--best'}")
    if parallel and best is not None:
        raise UsageError("--parallel counts the lines that are found first, and cannot be combined with --best")
    if threshold is not None and not mine:
        raise UsageError(f"--threshold {threshold:g} requires --mine")
    if queries == texts == STANDARD_INPUT:
        raise UsageError("standard input (-) can be QUERIES or TEXTS, not both")
    decoding = TextEncoding.of(encoding, on_bad_utf8)

    from seqloom.apps.encoder import Encoder

    with show_events(as_json=json) as listener:
        languages = languages_for(model, [queries, texts])
        ours = read_some(queries, decoding, side="source", languages=languages, listener=listener)
        theirs = read_some(texts, decoding, side="target", languages=languages, listener=listener)
        encoder = Encoder.load(model, source=source, target=target)
        if parallel:
            _print_scores(encoder, (ours, theirs), (queries, texts), json=json, listener=listener)
        elif mine:
            _print_pairs(encoder, (ours, theirs), (queries, texts), threshold, json=json, listener=listener)
        else:
            _print_nearest(encoder, (ours, theirs), (queries, texts), best or 1, json=json, listener=listener)


def _visible(lines: Sequence[str], path: Path, *, is_once: bool = False, listener: Listener) -> list[int]:
    """Places of the lines that are not blank, or of the first of equal ones."""
    places = [at for at, line in enumerate(lines) if not is_blank(line)]
    if not places:
        raise DataError(f"{path} is blank; expected at least one line of text")
    if len(places) < len(lines):
        notice(listener, f"{path}: {counted(len(lines) - len(places), 'blank line')} of {len(lines):,} left out")
    if not is_once:
        return places
    first = list({lines[at]: at for at in reversed(places)}.values())[::-1]
    if len(first) < len(places):
        notice(listener, f"{path}: {counted(len(places) - len(first), 'line')} left out that repeat an earlier one")
    return sorted(first)


def _encode(
    encoder: "Encoder", lines: Sequence[str], places: Sequence[int], path: Path, *, listener: Listener
) -> "Float32[np.ndarray, 'lines width']":
    return encoder.encode([lines[at] for at in places], progress=partial(progress, listener, f"reading {path}"))


def _print_nearest(
    encoder: "Encoder",
    texts: tuple[list[str], list[str]],
    paths: tuple[Path, Path],
    best: int,
    *,
    json: bool,
    listener: Listener,
) -> None:
    from seqloom.metrics.retrieval import nearest

    ours, theirs = texts
    asked, known = (_visible(lines, path, listener=listener) for lines, path in zip(texts, paths, strict=True))
    queries = _encode(encoder, ours, asked, paths[0], listener=listener)
    found = nearest(queries, _encode(encoder, theirs, known, paths[1], listener=listener), best=best)
    for query, places, cosines in zip(asked, found.places.tolist(), found.cosines.tolist(), strict=True):
        rows = [
            {"rank": rank, "score": round(cosine, 6), "line": known[place] + 1, "text": theirs[known[place]]}
            for rank, (place, cosine) in enumerate(zip(places, cosines, strict=True), start=1)
        ]
        if json:
            print(json_line({"query": query + 1, "nearest": rows}))
            continue
        for row in rows:
            text = one_line(str(row["text"]))
            print(f"{query + 1}\t{row['rank']}\t{row['score']:.4f}\t{row['line']}\t{text}")


def _print_pairs(
    encoder: "Encoder",
    texts: tuple[list[str], list[str]],
    paths: tuple[Path, Path],
    threshold: float | None,
    *,
    json: bool,
    listener: Listener,
) -> None:
    from seqloom.metrics.retrieval import THRESHOLD, mine_pairs

    lowest = THRESHOLD if threshold is None else threshold
    ours, theirs = (
        _visible(lines, path, is_once=True, listener=listener) for lines, path in zip(texts, paths, strict=True)
    )
    vectors = [
        _encode(encoder, lines, places, path, listener=listener)
        for lines, places, path in zip(texts, (ours, theirs), paths, strict=True)
    ]
    found = mine_pairs(*vectors, threshold=lowest)
    columns = (found.margins.tolist(), found.sources.tolist(), found.targets.tolist())
    for margin, one, other in zip(*columns, strict=True):
        places = ours[one], theirs[other]
        pair = [lines[place] for lines, place in zip(texts, places, strict=True)]
        if json:
            numbers = [place + 1 for place in places]
            print(json_line({"score": round(margin, 6), "lines": numbers, "source": pair[0], "target": pair[1]}))
        else:
            print("\t".join([f"{margin:.4f}", *(one_line(text).replace("\t", " ") for text in pair)]))
    fewer = min(len(ours), len(theirs))
    notice(listener, f"{counted(len(found.margins), 'pair')} with a margin of {lowest:g} or more, of at most {fewer:,}")


def _print_scores(
    encoder: "Encoder",
    texts: tuple[list[str], list[str]],
    paths: tuple[Path, Path],
    *,
    json: bool,
    listener: Listener,
) -> None:
    from seqloom.metrics.retrieval import score_parallel
    from seqloom.metrics.scoring import Bootstrap

    require_same_count(paths, *texts)
    pairs = list(zip(*texts, strict=True))
    kept = [at for at, pair in enumerate(pairs) if not any(map(is_blank, pair))]
    if not kept:
        raise DataError(f"{paths[0]} and {paths[1]} have no line that is filled on both sides")
    if len(kept) < len(pairs):
        notice(listener, f"{counted(len(pairs) - len(kept), 'pair')} of {len(pairs):,} with a blank side left out")
    vectors = [_encode(encoder, lines, kept, path, listener=listener) for lines, path in zip(texts, paths, strict=True)]
    config = encoder.config
    scores = score_parallel(
        vectors[0],
        vectors[1],
        texts=([texts[0][at] for at in kept], [texts[1][at] for at in kept]),
        languages=(config.data.source, config.data.target),
        bootstrap=Bootstrap(seed=config.seed, resamples=config.evaluation.resamples),
    )
    print(json_line({"lines": len(kept), "scores": scores}) if json else "\n".join(score_rows(scores)))
