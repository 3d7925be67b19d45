"""`seqloom perplexity`: how well a language model predicts a text."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from seqloom.cli.arguments import Encoding, JsonResult, OnBadUtf8, TextModel
from seqloom.cli.console import clean, examples, show_events, table
from seqloom.cli.inputs import TextEncoding, open_input, read_blocks, read_text
from seqloom.core.errors import DataError, UsageError
from seqloom.core.events import Listener, json_line, notice, progress

if TYPE_CHECKING:
    from seqloom.apps.language_model import LanguageModel, PerplexityReport

EXAMPLES = examples(
    "seqloom perplexity run/model test.txt",
    "seqloom perplexity lstm/model test.txt --with ngram/model --weight 0.3",
    "seqloom perplexity lstm/model test.txt --with ngram/model --tune dev.txt --json",
    "seqloom perplexity run/model test.txt --per-line > scores",
    "seqloom perplexity run/model 'news/*.txt.xz' memory.tmx",
    "zcat news.gz | seqloom perplexity model.arpa.gz -",
)

STDIN = Path("-")

MAX_COMPARABLE_UNKNOWN = 0.01
"""Share of unknown tokens above which perplexities of different vocabularies are not comparable."""


Files = Annotated[
    list[Path],
    typer.Argument(
        metavar="FILE...",
        help="Texts: plain, .gz, .xz or .zst; of .tmx, .po, .xlf and .jsonl, the language of the model. Names may "
        "contain *; - is standard input.",
    ),
]
With = Annotated[
    list[Path] | None,
    typer.Option(
        "--with", metavar="MODEL", help="Another model with the same vocabulary to interpolate with. Repeatable."
    ),
]
Weights = Annotated[
    list[float] | None,
    typer.Option("--weight", metavar="SHARE", help="Weight of each model of --with, in order; by default equal."),
]
Tune = Annotated[
    Path | None,
    typer.Option("--tune", metavar="DEV", help="Choose the weights that give the lowest perplexity on this text."),
]
ContextOf = Annotated[
    Literal["line", "text"] | None,
    typer.Option(
        "--context",
        help="Score each line on its own, or the text as one sequence; by default as the model was trained.",
    ),
]
PerLine = Annotated[
    bool, typer.Option("--per-line", help="Print log P of each line in nats instead of the perplexity.")
]


def perplexity(
    model: TextModel,
    files: Files,
    others: With = None,
    weights: Weights = None,
    tune: Tune = None,
    context: ContextOf = None,
    per_line: PerLine = False,
    encoding: Encoding = None,
    on_bad_utf8: OnBadUtf8 = None,
    json: JsonResult = False,
) -> None:
    """Compute the perplexity of a text under a language model, per token, per word and per character.

    Perplexities per word and per character are comparable between tokenisations if about as many words are unknown.
    perplexity/known leaves unknown words out. The signature records how line ends and unknown words are counted.
    """
    if STDIN in files and len(files) > 1:
        raise UsageError("standard input (-) cannot be combined with other files")
    companions = others or []
    for file in files:
        if any((folder / "model.json").is_file() for folder in (file, file / "model")):
            raise UsageError(
                f"{file} is a model, expected a text; to interpolate it with {model}, use --with {file}",
                file=file,
            )
    shares = None
    if tune is not None and (weights or not companions):
        raise UsageError("--tune cannot be combined with --weight" if weights else "--tune requires --with MODEL")
    if weights:
        if len(weights) != len(companions):
            raise UsageError(f"got {len(weights)} --weight for {len(companions)} --with; give one weight per model")
        rest = 1 - sum(weights)
        if not all(weight > 0 for weight in weights) or not rest > 0:
            given = ", ".join(f"{weight:g}" for weight in weights)
            raise UsageError(
                f"--weight {given} leaves {rest:g} for the first model; weights must be positive and sum to less than 1"
            )
        shares = [rest, *weights]

    from seqloom.apps.language_model import open_language_model

    decoding = TextEncoding.of(encoding, on_bad_utf8)
    opened = open_language_model(model, companions=companions, weights=shares)
    with show_events(as_json=json) as listener:
        lines = [line for file in files for line in _read(file, opened, decoding, listener=listener)]
        if tune is not None:
            if tune.exists() and any(file.exists() and tune.samefile(file) for file in files):
                notice(
                    listener, f"the weights are tuned on {tune}, which is also measured: the result is too optimistic"
                )
            dev = _read(tune, opened, decoding, listener=listener)
            opened = opened.tuned(
                dev, context=context, progress=partial(progress, listener, f"tuning weights on {tune}")
            )
        if per_line:
            for number, score in enumerate(opened.score(lines, context=context), start=1):
                record = {"line": number, "log_prob": score.log_prob, "tokens": score.tokens}
                print(json_line(record) if json else f"{score.log_prob:.6f}")
            return
        name = ", ".join(map(str, files))
        found = opened.measure(lines, context=context, progress=partial(progress, listener, f"reading {name}"))
    names = [str(model), *map(str, companions)]
    if json:
        values, models = found.perplexities, zip(names, opened.weights, found.alone, strict=True)
        known = [] if values.known is None else [("known", values.known)]
        result: dict[str, object] = {
            "file": name,
            "lines": len(lines),
            "models": [{"path": path, "weight": weight, "perplexity": alone} for path, weight, alone in models],
            "unknown": values.unknown,
            "unknown_bits": values.unknown_bits,
            "impossible": values.impossible,
            "first_impossible": found.first_impossible,
            "perplexity": {
                unit: {"value": each.value, "bits": each.bits, "count": each.count, "signature": each.signature}
                for unit, each in [*((each.unit, each) for each in values.all), *known]
            },
        }
        print(json_line(result))
    else:
        print("\n".join(_describe(found, names=names, weights=opened.weights)))


def _read(file: Path, model: "LanguageModel", decoding: TextEncoding, *, listener: Listener) -> list[str]:
    from seqloom.data.plain_text import TextCorpus, split_pieces
    from seqloom.text.formats.readers import holds_both_sides

    data, warn = model.config.data, partial(notice, listener)
    if file == STDIN:
        with open_input(None) as stream:
            blocks = read_blocks(stream, "standard input", encoding=decoding, warn=warn)
            lines = [line for block in blocks for line in block]
    elif file.is_file() and not holds_both_sides(file):
        lines = read_text(file, decoding, warn=warn).lines
    else:
        corpus = TextCorpus(
            [file], encoding=decoding.encoding, unit=data.text_unit, on_bad=decoding.on_bad, language=data.target
        )
        for sentence in corpus.notices:
            warn(sentence)
        return [line.text for line in corpus]
    pieces = [text for _, text in split_pieces(iter(lines), data.text_unit)]
    if not pieces:
        name = "standard input" if file == STDIN else str(file)
        raise DataError(f"{name} is {'empty' if not lines else 'blank'}; expected at least one line of text")
    return pieces


def _describe(measured: "PerplexityReport", *, names: Sequence[str], weights: Sequence[float]) -> list[str]:
    found = measured.perplexities
    shown = [(str(each.unit), each) for each in found.all]
    if found.known is not None:
        shown.append(("known", found.known))
    lines = table(
        [(f"perplexity/{name}", f"{each.value:.2f}", f"{each.bits:.3f} bits", each.signature) for name, each in shown]
    )
    if found.token.is_bound:
        lines.append("upper bounds: the model gives a lower bound of log P of each line, not log P itself")
    if found.unknown:
        share = found.unknown / found.token.count
        beside = f", the others {found.known.bits:.2f}" if found.known is not None else ""
        compare = "; compare only with models that have about as many unknown tokens"
        lines.append(
            f"{found.unknown:,} tokens ({share:.2%}) are unknown: each counts as one symbol and costs "
            f"{found.unknown_bits:.2f} bits on average{beside}{compare if share > MAX_COMPARABLE_UNKNOWN else ''}"
        )
    if measured.first_impossible is not None:
        first = measured.first_impossible
        lines.append(
            f"{found.impossible:,} of {found.token.count:,} tokens have probability 0, the first is "
            f"{clean(first.token)} in line {first.line:,}, so the perplexity is infinite: use smoothing "
            "(model.smoothing=kneser_ney), or interpolate with --with"
        )
    if len(names) > 1:
        parts = zip(weights, names, measured.alone, strict=True)
        shares = (f"{weight:.4f} {name} (alone {alone:.2f})" for weight, name, alone in parts)
        lines.append(f"mixed: {' + '.join(shares)}")
    return lines
