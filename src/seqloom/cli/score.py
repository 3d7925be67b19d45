"""`seqloom score`: log-probabilities of given translations."""

from pathlib import Path
from typing import Annotated

import typer

from seqloom.cli.arguments import (
    Encoding,
    FromLanguage,
    ModelFolder,
    OnBadUtf8,
    ToLanguage,
    language_settings,
    parse_words,
    require_search_settings,
)
from seqloom.cli.console import examples, show_events
from seqloom.cli.inputs import TextEncoding, formats_for, languages_for, open_translator, read_pairs, report_doubts
from seqloom.core.errors import UsageError
from seqloom.core.events import json_line

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
    source: FromLanguage = None,
    target: ToLanguage = None,
    encoding: Encoding = None,
    on_bad_utf8: OnBadUtf8 = None,
    json: Annotated[bool, typer.Option("--json", help="Print a record per line: log_prob, tokens, per_token.")] = False,
) -> None:
    """Print log P(target | source) of each pair in nats, one per line; null where a side is blank."""
    given = parse_words(words)
    require_search_settings(given.overrides)
    for override in given.overrides:
        if override.partition("=")[0] not in ("device", "search.tokens_per_batch"):
            raise UsageError(
                f"{override} has no effect here: pairs are scored without a search. Only search.tokens_per_batch and "
                "device can be set"
            )
    overrides = [*given.overrides, *language_settings(source, target)]
    with show_events(as_json=json, has_progress=False) as listener:
        paths, decoding = [Path(name) for name in given.others], TextEncoding.of(encoding, on_bad_utf8)
        languages, formats = languages_for(model, paths, overrides), formats_for(model, overrides)
        pairs = read_pairs(paths, decoding, languages=languages, formats=formats, listener=listener)
        translator = open_translator(model, overrides, companions=companions or ())
        report_doubts(translator, *zip(*pairs, strict=True), listener=listener)
    for begin in range(0, len(pairs), PAIRS_PER_BLOCK):
        sources, targets = zip(*pairs[begin : begin + PAIRS_PER_BLOCK], strict=True)
        log_probs = translator.score(sources, targets, first=begin + 1)
        encoded = translator.tokenizers.target.encode_many(targets)
        for number, (log_prob, ids) in enumerate(zip(log_probs, encoded, strict=True), start=begin + 1):
            tokens = len(ids) + 1
            mean = None if log_prob is None else log_prob / tokens
            if json:
                print(json_line({"line": number, "log_prob": log_prob, "tokens": tokens, "per_token": mean}))
            else:
                value = mean if per_token else log_prob
                print("null" if value is None else f"{value:.6f}")
