"""`seqloom look zipf`: what a text is made of."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from seqloom.cli.arguments import sort_words
from seqloom.cli.console import show_events
from seqloom.cli.output import clean, examples, json_line, table
from seqloom.core.errors import UsageError
from seqloom.core.files import require_folders_above

if TYPE_CHECKING:
    from seqloom.inspection.text_statistics import OrderStatistics
    from seqloom.recipes.zipf import ZipfFindings

EXAMPLES = examples(
    "seqloom look zipf corpus.en",
    "seqloom look zipf corpus.en.gz --out zipf.png unit=characters orders=2",
    "seqloom look zipf corpus.en --pieces runs/demo --json",
)

FEWEST_RANKS = 20
"""Ranks below which an exponent is not worth telling: it would change with every word."""


def zipf(
    words: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="FILE… [path=value]",
            help="Text files, plain or .gz; settings: unit=characters, lowercase=false, punctuation=true, "
            "minimum_count=5, orders=2 …",
        ),
    ] = None,
    pieces: Annotated[
        Path | None,
        typer.Option("--pieces", metavar="MODEL", help="Count the pieces of this model's tokeniser instead of words."),
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", metavar="PICTURE", help="Where to draw it, PNG or SVG by the ending.")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="All numbers as one JSON record on stdout.")] = False,
) -> None:
    """See what a text is made of: its n-grams by rank, Zipf's law through them, and how its vocabulary grows.

    A line of a file is a sentence; n-grams stay within it. The exponent α of [bold]count ∝ 1 / (rank + b)^α[/bold] is
    the most likely one for the n-grams seen ten times at least, once with b = 0 (Zipf) and once with the best b
    (Mandelbrot); beside them stands the slope of the line through the logarithms.
    """
    from seqloom.core.config import resolve
    from seqloom.recipes.zipf import ZipfConfig, find_tokenizer, look_at_counts

    given = sort_words(words)
    if not given.others:
        raise UsageError("name the text to look at: seqloom look zipf corpus.en")
    if out is not None and out.suffix not in (".png", ".svg"):
        raise UsageError(f"{out} is neither .png nor .svg; name the picture with one of these endings")
    if out is not None:
        require_folders_above(out)
    config = resolve(ZipfConfig, overrides=given.overrides)
    tokenizer = None if pieces is None else find_tokenizer(pieces)
    with show_events(as_json=json) as listener:
        found = look_at_counts([Path(name) for name in given.others], config, tokenizer=tokenizer, listener=listener)
    if out is not None:
        out.parent.mkdir(parents=True, exist_ok=True)
        found.draw().savefig(out, dpi=144, metadata={"Date": None} if out.suffix == ".svg" else None)
    if json:
        picture = {} if out is None else {"picture": out}
        print(json_line({"unit": found.unit, "settings": config.model_dump(), "text": found.statistics, **picture}))
        return
    print("\n".join([*_lines(found), *([] if out is None else [f"drawn in {out}"])]))


def _lines(found: "ZipfFindings") -> list[str]:
    text, unit = found.statistics, found.unit
    lengths, growth = text.lengths, text.growth
    rows: list[tuple[str, ...]] = [
        ("", f"{unit}s", "different", "once", "Zipf α", "Mandelbrot α, b", "line α", "fitted ranks")
    ]
    rows += [_row(order) for order in text.orders]
    lines = [
        f"{lengths.lines:,} lines of {lengths.shortest:,} to {lengths.longest:,} {unit}s: mean {lengths.mean:.1f}, "
        f"median {lengths.median:g}, 95% have at most {lengths.ninety_fifth:.0f}; {lengths.blank:,} blank",
        "",
        *table(rows),
        "",
        f"Vocabulary: grows like {growth.scale:.3g} · tokens^{growth.exponent:.3f} (Heaps)",
    ]
    shares = [
        f"the first {k:,} are {share:.1%}" if k > 1 else f"the first is {share:.1%}" for k, share in _cover(found)
    ]
    lines += [f"Coverage: {', '.join(shares)} of all {unit}s", ""]
    for order in text.orders:
        if order.top:
            shown = ", ".join(f"{clean(ngram.text)} {ngram.count:,}" for ngram in order.top)
            lines.append(f"{order.order}-grams: {shown}")
    return lines


def _row(order: "OrderStatistics") -> tuple[str, ...]:
    head = (f"{order.order}-grams", f"{order.tokens:,}", f"{order.types:,}", f"{order.singletons:,}")
    if order.fits is None or order.fits.zipf.ranks < FEWEST_RANKS:
        ranks = 0 if order.fits is None else order.fits.zipf.ranks
        return (*head, "—", "—", "—", f"{ranks}: too few" if ranks else "too few frequent ones")
    zipf, mandelbrot, line = order.fits.zipf, order.fits.mandelbrot, order.fits.line
    shifted = f"{mandelbrot.exponent:.3f}, {mandelbrot.shift:.1f}"
    return (*head, f"{zipf.exponent:.3f}", shifted, f"{line.exponent:.3f}", f"{zipf.ranks:,}")


def _cover(found: "ZipfFindings") -> tuple[tuple[int, float], ...]:
    return found.statistics.orders[0].coverage
