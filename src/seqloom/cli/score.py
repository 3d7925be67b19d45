"""`seqloom score`: how probable a model finds given translations."""

from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from seqloom.cli.arguments import require_search_settings, sort_words
from seqloom.cli.console import show_events
from seqloom.cli.lines import Decoding, Encoding, OnBadUtf8, read_side, read_sides
from seqloom.cli.loading import open_translator
from seqloom.cli.output import examples, json_line
from seqloom.core.errors import UsageError
from seqloom.core.events import Listener, ignore, notice
from seqloom.text.formats.readers import Languages, format_of, holds_both_sides

if TYPE_CHECKING:
    from seqloom.apps.translator import Translator

EXAMPLES = examples(
    "seqloom score run/model news.de news.en",
    "seqloom score run/model pairs.tsv --per-token",
    "seqloom score first/model --with second/model news.de news.en",
)
AT_ONCE = 2_000
"""Pairs scored before their scores are written."""


def score(
    model: Annotated[Path, typer.Argument(metavar="MODEL", help="A model folder or a run.")],
    words: Annotated[
        list[str],
        typer.Argument(
            metavar="SOURCE TARGET", help="Two text files, or one of both: .tsv, .tmx, .po, .xlf or .jsonl."
        ),
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
    encoding: Encoding = None,
    on_bad_utf8: OnBadUtf8 = None,
    json: Annotated[bool, typer.Option("--json", help="A record per line: log_prob, tokens, per_token.")] = False,
) -> None:
    """Print log P(target | source) of each pair, a line per pair, in nats; null where a side is blank."""
    given = sort_words(words)
    _require_effect(given.overrides)
    with show_events(as_json=json, has_progress=False) as listener:
        paths, decoding = [Path(name) for name in given.others], Decoding.asked(encoding, on_bad_utf8)
        pairs = read_pairs(paths, decoding, languages=languages_for(model, paths), listener=listener)
        translator = open_translator(model, given.overrides, companions=companions or ())
        tell_doubts(translator, *zip(*pairs, strict=True), listener=listener)
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


def read_pairs(
    paths: Sequence[Path],
    decoding: Decoding = Decoding(),
    *,
    languages: Languages = (None, None),
    listener: Listener = ignore,
) -> list[tuple[str, str]]:
    """The pairs of two files, or of one that holds both sides."""

    def warn(message: str) -> None:
        notice(listener, message)

    if len(paths) == 1:
        if not holds_both_sides(paths[0]):
            raise UsageError(
                f"{paths[0]} is one file of text; give SOURCE and TARGET, or one file of both (.tsv, .tmx, .po, .xlf, "
                ".jsonl)"
            )
        sources, targets = read_sides(paths[0], decoding, languages=languages, warn=warn)
        return list(zip(sources.lines, targets.lines, strict=True))
    if len(paths) != 2:
        raise UsageError(f"give SOURCE and TARGET, or one file of both (.tsv, .tmx …); {len(paths)} files were named")
    source = read_side(paths[0], decoding, side="source", languages=languages, warn=warn).lines
    target = read_side(paths[1], decoding, side="target", languages=languages, warn=warn).lines
    require_same_count((paths[0], paths[1]), source, target)
    return list(zip(source, target, strict=True))


def languages_for(model: Path | None, paths: Sequence[Path | None]) -> Languages:
    """The languages of a model, where files are read that may hold several."""
    if model is None or not any(path is not None and format_of(path) for path in paths):
        return None, None
    from seqloom.apps.search_settings import resolved

    data = resolved(model, ()).data
    return data.source, data.target


def require_same_count(paths: tuple[Path, Path], one: Sequence[str], other: Sequence[str]) -> None:
    """Refuse files that cannot be read side by side, with the place where they part."""
    if len(one) != len(other):
        from seqloom.data.corpus import unequal

        raise unequal(paths, one, other)


def tell_doubts(
    translator: "Translator", source: Sequence[str] = (), target: Sequence[str] = (), *, listener: Listener
) -> None:
    """Say so if the texts are hardly in the languages of the model, or hardly known to it."""
    from seqloom.runs.language_check import Sample, doubts_of_pair
    from seqloom.text.tokenizer import are_unknown

    card = translator.card
    for sentence in doubts_of_pair(Sample(source), Sample(target), (card.source, card.target)):
        notice(listener, sentence)
    tokenizers = translator.tokenizers
    for side, tokenizer, lines in (("source", tokenizers.source, source), ("target", tokenizers.target, target)):
        if are_unknown(tokenizer, lines):
            notice(listener, f"100% of the {side} is unknown to this model; is this the right language and model?")


def _scored(
    translator: "Translator", pairs: Sequence[tuple[str, str]], *, first: int
) -> Iterator[tuple[float | None, int]]:
    """Log-probability and number of target tokens of each pair."""
    sources, targets = [pair[0] for pair in pairs], [pair[1] for pair in pairs]
    encoded = translator.loaded.tokenizers.target.encode_many(targets)
    for log_prob, ids in zip(translator.score(sources, targets, first=first), encoded, strict=True):
        yield log_prob, len(ids) + 1
