"""`seqloom score`: log-probabilities of given translations."""

from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from seqloom.cli.arguments import Encoding, ModelFolder, OnBadUtf8, parse_words, require_search_settings
from seqloom.cli.console import examples, json_line, show_events
from seqloom.cli.inputs import (
    TextEncoding,
    languages_for,
    open_translator,
    read_pairs,
    report_doubts,
)
from seqloom.core.errors import UsageError

if TYPE_CHECKING:
    from seqloom.apps.translator import Translator

EXAMPLES = examples(
    "seqloom score run/model news.de news.en",
    "seqloom score run/model pairs.tsv --per-token",
    "seqloom score first/model --with second/model news.de news.en",
)
PAIRS_PER_BLOCK = 2_000
"""Pairs scored before their scores are printed."""


def score(
    model: ModelFolder,
    words: Annotated[
        list[str],
        typer.Argument(
            metavar="SOURCE TARGET", help="Two text files, or one with both sides: .tsv, .tmx, .po, .xlf or .jsonl."
        ),
    ],
    per_token: Annotated[
        bool,
        typer.Option(
            "--per-token", help="Print the mean per target token, including the end symbol, instead of the sum."
        ),
    ] = False,
    companions: Annotated[
        list[Path] | None,
        typer.Option(
            "--with",
            metavar="MODEL",
            help="Add a model to an ensemble, as in seqloom translate: the mean of the log-probabilities at each "
            "token, renormalised. Repeatable; all models must share their vocabulary.",
        ),
    ] = None,
    encoding: Encoding = None,
    on_bad_utf8: OnBadUtf8 = None,
    json: Annotated[bool, typer.Option("--json", help="Print a record per line: log_prob, tokens, per_token.")] = False,
) -> None:
    """Print log P(target | source) of each pair in nats, one per line; null where a side is blank."""
    given = parse_words(words)
    _require_effect(given.overrides)
    with show_events(as_json=json, has_progress=False) as listener:
        paths, decoding = [Path(name) for name in given.others], TextEncoding.of(encoding, on_bad_utf8)
        pairs = read_pairs(paths, decoding, languages=languages_for(model, paths), listener=listener)
        translator = open_translator(model, given.overrides, companions=companions or ())
        report_doubts(translator, *zip(*pairs, strict=True), listener=listener)
    number = 0
    remaining = iter(pairs)
    while some := list(islice(remaining, PAIRS_PER_BLOCK)):
        for log_prob, tokens in _scored(translator, some, first=number + 1):
            number += 1
            mean = None if log_prob is None else log_prob / tokens
            if json:
                print(json_line({"line": number, "log_prob": log_prob, "tokens": tokens, "per_token": mean}))
            else:
                value = mean if per_token else log_prob
                print("null" if value is None else f"{value:.6f}")


def _require_effect(overrides: Sequence[str]) -> None:
    """Refuse search settings, which do not affect scores."""
    require_search_settings(overrides)
    for override in overrides:
        if override.partition("=")[0] not in ("device", "search.tokens_per_batch"):
            raise UsageError(
                f"{override} has no effect here: pairs are scored without a search. Only search.tokens_per_batch and "
                "device can be set"
            )


def _scored(
    translator: "Translator", pairs: Sequence[tuple[str, str]], *, first: int
) -> Iterator[tuple[float | None, int]]:
    """Log-probability and number of target tokens of each pair."""
    sources, targets = [pair[0] for pair in pairs], [pair[1] for pair in pairs]
    encoded = translator.loaded.tokenizers.target.encode_many(targets)
    for log_prob, ids in zip(translator.score(sources, targets, first=first), encoded, strict=True):
        yield log_prob, len(ids) + 1
