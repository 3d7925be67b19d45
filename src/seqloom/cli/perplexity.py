"""`seqloom perplexity`: how well a language model expects a text."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from seqloom.cli.console import show_events
from seqloom.cli.output import examples, json_line, table
from seqloom.core.errors import UsageError
from seqloom.core.events import Event, Listener

if TYPE_CHECKING:
    from seqloom.metrics.perplexity import Perplexities
    from seqloom.recipes.language_model import LanguageModel, Tell

EXAMPLES = examples(
    "seqloom perplexity run/model test.txt",
    "seqloom perplexity lstm/model test.txt --with ngram/model --weight 0.3",
    "seqloom perplexity lstm/model test.txt --with ngram/model --tune dev.txt --json",
    "seqloom perplexity run/model test.txt --per-line > scores",
)


def perplexity(
    model: Annotated[Path, typer.Argument(metavar="MODEL", help="A model folder, or a run that has finished.")],
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A text, plain or .gz.")],
    others: Annotated[
        list[Path] | None,
        typer.Option(
            "--with", metavar="MODEL", help="Another model of the same vocabulary, mixed in. May be repeated."
        ),
    ] = None,
    weights: Annotated[
        list[float] | None,
        typer.Option(
            "--weight", metavar="SHARE", help="The share of each model of --with, in order; alike if left out."
        ),
    ] = None,
    tune: Annotated[
        Path | None, typer.Option("--tune", metavar="DEV", help="Find the shares that suit this text best.")
    ] = None,
    context: Annotated[
        Literal["line", "text"] | None,
        typer.Option(
            "--context",
            help="Read each line by itself, or on and on through the text; if left out, as the model was trained.",
        ),
    ] = None,
    per_line: Annotated[
        bool, typer.Option("--per-line", help="Print log P of each line, in nats, in place of the perplexity.")
    ] = False,
    json: Annotated[bool, typer.Option("--json", help="The same as JSON.")] = False,
) -> None:
    """Measure how well a language model expects a text: its perplexity per token, per word and per character.

    Those per word and per character compare models of different vocabularies. The end of each line is counted; how,
    and what became of unknown words, stands in the signature.
    """
    companions = others or []
    shares = _shares(weights or [], len(companions), is_tuned=tune is not None)

    from seqloom.recipes.language_model import open_language_model

    opened = open_language_model(model, companions=companions, weights=shares)
    lines = _read(file, opened)
    with show_events(as_json=json) as listener:
        if tune is not None:
            tell = _teller(listener, f"finding weights on {tune}")
            opened = opened.tuned(_read(tune, opened), context=context, progress=tell)
        if per_line:
            for number, score in enumerate(opened.score(lines, context=context), start=1):
                record = {"line": number, "log_prob": score.log_prob, "tokens": score.tokens}
                print(json_line(record) if json else f"{score.log_prob:.6f}")
            return
        found = opened.perplexity(lines, context=context, progress=_teller(listener, f"reading {file}"))
    names = [str(model), *map(str, companions)]
    if json:
        print(json_line(_record(found, file=file, lines=len(lines), names=names, weights=opened.weights)))
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


def _read(file: Path, model: "LanguageModel") -> list[str]:
    from seqloom.data.text import TextCorpus

    return [line.text for line in TextCorpus([file], unit=model.config.data.unit)]


def _teller(listener: Listener, what: str) -> "Tell":
    def tell(done: int, everything: int) -> None:
        listener(Event("progress", {"what": what, "done": done, "all": everything}))

    return tell


def _record(
    found: "Perplexities", *, file: Path, lines: int, names: Sequence[str], weights: Sequence[float]
) -> dict[str, object]:
    return {
        "file": file,
        "lines": lines,
        "models": [{"path": name, "weight": weight} for name, weight in zip(names, weights, strict=True)],
        "unknown": found.unknown,
        "impossible": found.impossible,
        "perplexity": {
            each.unit: {"value": each.value, "bits": each.bits, "count": each.count, "signature": each.signature}
            for each in found.all
        },
    }


def _describe(found: "Perplexities", *, names: Sequence[str], weights: Sequence[float]) -> list[str]:
    rows = [
        (f"perplexity/{each.unit}", f"{each.value:.2f}", f"{each.bits:.3f} bits", each.signature) for each in found.all
    ]
    lines = table(rows)
    if found.impossible:
        lines.append(
            f"{found.impossible:,} of {found.token.count:,} tokens are impossible for the model, so no perplexity is "
            "high enough: smooth it (model.smoothing=kneser_ney), or mix in another with --with"
        )
    elif found.unknown:
        share = found.unknown / found.token.count
        lines.append(f"{found.unknown:,} tokens ({share:.2%}) are unknown: each counts as one symbol, which is cheap")
    if len(names) > 1:
        shares = (f"{weight:.4f} {name}" for name, weight in zip(names, weights, strict=True))
        lines.append(f"mixed: {' + '.join(shares)}")
    return lines
