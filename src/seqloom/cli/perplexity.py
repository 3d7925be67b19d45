"""`seqloom perplexity`: how well a language model expects a text."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from seqloom.cli.console import clean, examples, json_line, show_events, table
from seqloom.cli.inputs import Encoding, OnBadUtf8, TextEncoding, open_input, read_blocks, read_text
from seqloom.core.errors import DataError, UsageError
from seqloom.core.events import Event, Listener, notice

if TYPE_CHECKING:
    from seqloom.apps.language_model import LanguageModel, Measured, Tell
    from seqloom.metrics.perplexity import Perplexities

EXAMPLES = examples(
    "seqloom perplexity run/model test.txt",
    "seqloom perplexity lstm/model test.txt --with ngram/model --weight 0.3",
    "seqloom perplexity lstm/model test.txt --with ngram/model --tune dev.txt --json",
    "seqloom perplexity run/model test.txt --per-line > scores",
    "seqloom perplexity run/model 'news/*.txt.xz' memory.tmx",
    "zcat news.gz | seqloom perplexity model.arpa.gz -",
)

STDIN = Path("-")

MANY_UNKNOWN = 0.01
"""The share of unknown tokens from which on a perplexity may hardly be set beside that of another vocabulary."""


Model = Annotated[Path, typer.Argument(metavar="MODEL", help="A model folder, a run, or an ARPA file.")]
Files = Annotated[
    list[Path],
    typer.Argument(
        metavar="FILE...",
        help="Texts: plain, .gz, .xz or .zst; of .tmx, .po, .xlf and .jsonl what is in the language of the model. "
        "A name may have * in it; - is standard input.",
    ),
]
With = Annotated[
    list[Path] | None,
    typer.Option("--with", metavar="MODEL", help="Another model of the same vocabulary, mixed in. May be repeated."),
]
Weights = Annotated[
    list[float] | None,
    typer.Option("--weight", metavar="SHARE", help="The share of each model of --with, in order; alike if left out."),
]
Tune = Annotated[Path | None, typer.Option("--tune", metavar="DEV", help="Find the shares that suit this text best.")]
ContextOf = Annotated[
    Literal["line", "text"] | None,
    typer.Option(
        "--context",
        help="Read each line by itself, or on and on through the text; if left out, as the model was trained.",
    ),
]
PerLine = Annotated[
    bool, typer.Option("--per-line", help="Print log P of each line, in nats, in place of the perplexity.")
]
Json = Annotated[bool, typer.Option("--json", help="The same as JSON.")]


def perplexity(
    model: Model,
    files: Files,
    others: With = None,
    weights: Weights = None,
    tune: Tune = None,
    context: ContextOf = None,
    per_line: PerLine = False,
    encoding: Encoding = None,
    on_bad_utf8: OnBadUtf8 = None,
    json: Json = False,
) -> None:
    """Measure how well a language model expects a text: its perplexity per token, per word and per character.

    Those per word and per character compare models that cut text differently, if about as much is unknown to both.
    Where words are unknown, perplexity/known leaves them out. The end of each line is counted; how, and what became of
    unknown words, stands in the signature.
    """
    if STDIN in files and len(files) > 1:
        raise UsageError("standard input (-) cannot be read beside other files; give either")
    companions = others or []
    for file in files:
        if any((folder / "model.json").is_file() for folder in (file, file / "model")):
            raise UsageError(
                f"{file} is a model, but a text is expected here; to mix it with {model}, write --with {file}",
                file=file,
            )
    shares = _shares(weights or [], len(companions), is_tuned=tune is not None)

    from seqloom.apps.language_model import open_language_model

    decoding = TextEncoding.of(encoding, on_bad_utf8)
    opened = open_language_model(model, companions=companions, weights=shares)
    with show_events(as_json=json) as listener:
        lines = [line for file in files for line in _read(file, opened, decoding, listener=listener)]
        if tune is not None:
            if tune.exists() and any(file.exists() and tune.samefile(file) for file in files):
                notice(listener, f"the shares are found on {tune}, which is measured too: the result is too good")
            tell = _teller(listener, f"finding weights on {tune}")
            opened = opened.tuned(_read(tune, opened, decoding, listener=listener), context=context, progress=tell)
        if per_line:
            for number, score in enumerate(opened.score(lines, context=context), start=1):
                record = {"line": number, "log_prob": score.log_prob, "tokens": score.tokens}
                print(json_line(record) if json else f"{score.log_prob:.6f}")
            return
        name = ", ".join(map(str, files))
        found = opened.measure(lines, context=context, progress=_teller(listener, f"reading {name}"))
    names = [str(model), *map(str, companions)]
    if json:
        print(json_line(_record(found, file=name, lines=len(lines), names=names, weights=opened.weights)))
    else:
        print("\n".join(_describe(found, names=names, weights=opened.weights)))


def _shares(weights: Sequence[float], others: int, *, is_tuned: bool) -> list[float] | None:
    """The weight of every model, the first one's being what is left."""
    if is_tuned and (weights or not others):
        why = "--weight gives the shares already" if weights else "there is nothing to mix without --with MODEL"
        raise UsageError(f"--tune finds the shares of several models, but {why}; leave one out")
    if not weights:
        return None
    if len(weights) != others:
        raise UsageError(f"--weight was given {len(weights)} times for {others} models of --with; give each its share")
    rest = 1 - sum(weights)
    if not all(weight > 0 for weight in weights) or not rest > 0:
        given = ", ".join(f"{weight:g}" for weight in weights)
        raise UsageError(f"--weight {given} leaves {rest:g} for the first model; give shares above 0 that sum below 1")
    return [rest, *weights]


def _read(file: Path, model: "LanguageModel", decoding: TextEncoding, *, listener: Listener) -> list[str]:
    from seqloom.data.plain_text import TextCorpus, split_pieces
    from seqloom.text.formats.readers import holds_both_sides

    data = model.config.data

    def warn(message: str) -> None:
        notice(listener, message)

    if file == STDIN:
        with open_input(None) as stream:
            blocks = read_blocks(stream, "standard input", encoding=decoding, warn=warn)
            lines = [line for block in blocks for line in block]
    elif file.is_file() and not holds_both_sides(file):
        lines = read_text(file, decoding, warn=warn).lines
    else:
        corpus = TextCorpus(
            [file], encoding=decoding.encoding, unit=data.unit, on_bad=decoding.on_bad, language=data.target
        )
        for sentence in corpus.notices:
            warn(sentence)
        return [line.text for line in corpus]
    pieces = [text for _, text in split_pieces(iter(lines), data.unit)]
    if not pieces:
        name = "standard input" if file == STDIN else str(file)
        raise DataError(f"{name} is {'empty' if not lines else 'blank'}; expected at least one line of text")
    return pieces


def _teller(listener: Listener, what: str) -> "Tell":
    def tell(done: int, everything: int) -> None:
        listener(Event("progress", {"what": what, "done": done, "all": everything}))

    return tell


def _record(
    measured: "Measured", *, file: str, lines: int, names: Sequence[str], weights: Sequence[float]
) -> dict[str, object]:
    found = measured.perplexities
    known = [] if found.known is None else [("known", found.known)]
    models = zip(names, weights, measured.alone, strict=True)
    return {
        "file": file,
        "lines": lines,
        "models": [{"path": name, "weight": weight, "perplexity": alone} for name, weight, alone in models],
        "unknown": found.unknown,
        "unknown_bits": found.unknown_bits,
        "impossible": found.impossible,
        "first_impossible": measured.first_impossible,
        "perplexity": {
            name: {"value": each.value, "bits": each.bits, "count": each.count, "signature": each.signature}
            for name, each in [*((each.unit, each) for each in found.all), *known]
        },
    }


def _describe(measured: "Measured", *, names: Sequence[str], weights: Sequence[float]) -> list[str]:
    found = measured.perplexities
    shown = [(str(each.unit), each) for each in found.all]
    if found.known is not None:
        shown.append(("known", found.known))
    lines = table(
        [(f"perplexity/{name}", f"{each.value:.2f}", f"{each.bits:.3f} bits", each.signature) for name, each in shown]
    )
    if found.unknown:
        lines.append(_of_unknown(found))
    if measured.first_impossible is not None:
        first = measured.first_impossible
        lines.append(
            f"{found.impossible:,} of {found.token.count:,} tokens are impossible for the model, the first is "
            f"{clean(first.token)} in line {first.line:,}, so no perplexity is high enough: smooth the model "
            "(model.smoothing=kneser_ney), or mix in another with --with"
        )
    if len(names) > 1:
        parts = zip(weights, names, measured.alone, strict=True)
        shares = (f"{weight:.4f} {name} (alone {alone:.2f})" for weight, name, alone in parts)
        lines.append(f"mixed: {' + '.join(shares)}")
    return lines


def _of_unknown(found: "Perplexities") -> str:
    """What the unknown tokens cost, and what that means for comparisons."""
    share = found.unknown / found.token.count
    beside = f", the others {found.known.bits:.2f}" if found.known is not None else ""
    sentence = (
        f"{found.unknown:,} tokens ({share:.2%}) are unknown: each counts as one symbol, which costs "
        f"{found.unknown_bits:.2f} bits on average{beside}"
    )
    if share > MANY_UNKNOWN:
        sentence += "; compare these figures only with those of models to which as many are unknown"
    return sentence
