"""`seqloom score`: how probable a model finds given translations."""

from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from seqloom.cli.arguments import require_search_settings, sort_words
from seqloom.cli.loading import open_translator
from seqloom.cli.output import examples, json_line
from seqloom.core.errors import DataError, Problem, UsageError

if TYPE_CHECKING:
    from seqloom.recipes.translate import Translator

EXAMPLES = examples(
    "seqloom score run/model news.de news.en",
    "seqloom score run/model pairs.tsv --per-token",
    "seqloom score first/model --with second/model news.de news.en",
)
AT_ONCE = 2_000
"""Pairs scored before their scores are written."""


def score(
    model: Annotated[Path, typer.Argument(metavar="MODEL", help="A model folder, or a run that has finished.")],
    words: Annotated[
        list[str], typer.Argument(metavar="SOURCE TARGET", help="Two text files, or one .tsv with both columns.")
    ],
    per_token: Annotated[
        bool,
        typer.Option("--per-token", help="The mean over the target's tokens, the end counted, in place of the sum."),
    ] = False,
    companions: Annotated[
        list[Path] | None,
        typer.Option(
            "--with",
            metavar="MODEL",
            help="Another model that scores with the first one, as in seqloom translate: the mean of their "
            "log-probabilities at each token, renormalised. May be given again; all must share their vocabulary.",
        ),
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="A record per line: log_prob, tokens, per_token.")] = False,
) -> None:
    """Print log P(target | source) of each pair, a line per pair, in nats; null where a side is blank."""
    given = sort_words(words)
    _require_effect(given.overrides)
    pairs = read_pairs([Path(name) for name in given.others])
    translator = open_translator(model, given.overrides, companions=companions or ())
    number = 0
    remaining = iter(pairs)
    while some := list(islice(remaining, AT_ONCE)):
        for log_prob, tokens in _scored(translator, some, first=number + 1):
            number += 1
            mean = None if log_prob is None else log_prob / tokens
            if json:
                print(json_line({"line": number, "log_prob": log_prob, "tokens": tokens, "per_token": mean}))
            else:
                value = mean if per_token else log_prob
                print("null" if value is None else f"{value:.6f}")


def _require_effect(overrides: Sequence[str]) -> None:
    """Refuse settings that change no score: nothing is searched here."""
    require_search_settings(overrides)
    for override in overrides:
        if override.partition("=")[0] not in ("device", "search.tokens_per_batch"):
            raise UsageError(
                f"{override} has no effect here: pairs are scored as they are, without a search; leave it out "
                "(what can be set is search.tokens_per_batch and device)"
            )


def read_pairs(paths: Sequence[Path]) -> list[tuple[str, str]]:
    """The pairs of two files, or of a TSV file."""
    from seqloom.core.files import read_lines
    from seqloom.text.formats.tsv import read_tsv

    if len(paths) == 1:
        if ".tsv" not in paths[0].suffixes:
            raise UsageError(f"{paths[0]} is one file; give SOURCE and TARGET, or a file that ends in .tsv")
        return [(row[0], row[1]) for row in read_tsv(paths[0])]
    if len(paths) != 2:
        raise UsageError(f"give SOURCE and TARGET, or one .tsv; {len(paths)} files were named")
    source, target = (list(read_lines(path)) for path in paths)
    require_same_count(paths[0], len(source), other=paths[1], lines=len(target))
    return list(zip(source, target, strict=True))


def require_same_count(path: Path, count: int, *, other: Path, lines: int) -> None:
    """Refuse files that cannot be read side by side."""
    if count != lines:
        message = f"{count:,} lines, but {other} has {lines:,}; each line needs its partner (only LF ends a line)"
        raise DataError(problems=[Problem(message, str(path))])


def _scored(
    translator: "Translator", pairs: Sequence[tuple[str, str]], *, first: int
) -> Iterator[tuple[float | None, int]]:
    """Log-probability and number of target tokens of each pair."""
    sources, targets = [pair[0] for pair in pairs], [pair[1] for pair in pairs]
    encoded = translator.loaded.tokenizers.target.encode_many(targets)
    for log_prob, ids in zip(translator.score(sources, targets, first=first), encoded, strict=True):
        yield log_prob, len(ids) + 1
