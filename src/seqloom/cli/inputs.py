"""What commands read: text with as many lines as it has line feeds, pairs of lines, and translators."""

import math
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, Protocol, TextIO, cast

import typer

from seqloom.core.errors import DataError, ModelError, UsageError
from seqloom.core.events import Listener, ignore, notice
from seqloom.core.files import LineReader, open_output, require_file
from seqloom.core.text_files import LineDecoder, OnBad, open_bytes
from seqloom.text.formats.readers import FORMATS, PairReader, format_of, holds_both_sides, split_rows
from seqloom.text.formats.segments import Format, Languages

if TYPE_CHECKING:
    from seqloom.apps.translator import Translator

CHUNK = 1 << 18
"""Bytes read at most before the lines in them are passed on; a pipe or a terminal passes on what it has."""


@dataclass(frozen=True)
class TextEncoding:
    """How bytes become text."""

    encoding: str = "utf-8"
    on_bad: OnBad = "error"

    @staticmethod
    def of(encoding: str | None, on_bad: OnBad | None) -> "TextEncoding":
        """From the flags; an unknown encoding is refused."""
        LineDecoder("", encoding)
        return TextEncoding(encoding or "utf-8", on_bad or "error")


# --- lines -----------------------------------------------------------------------------------------------------------


class ByteStream(Protocol):
    """Bytes that can be read as they arrive."""

    def read1(self, size: int, /) -> bytes:
        """At most `size` bytes, as soon as there are any; none at the end."""
        ...


@contextmanager
def open_input(path: Path | None) -> Iterator[ByteStream]:
    """A file (`.gz`, `.xz` and `.zst` are decompressed), or standard input for None."""
    if path is None:
        yield cast("ByteStream", sys.stdin.buffer)
        return
    require_file(path)
    with open_bytes(path) as stream:
        yield stream


def open_or_stdout(out: Path | None) -> AbstractContextManager[TextIO]:
    """Standard output for None, or a file that appears under its name when it is complete."""
    return nullcontext(sys.stdout) if out is None else open_output(out)


def read_blocks(
    stream: ByteStream,
    name: str,
    *,
    encoding: TextEncoding = TextEncoding(),
    warn: Callable[[str], None] = lambda _: None,
    is_checked_whole: bool = False,
) -> Iterator[list[str]]:
    """The lines that have arrived, in blocks that are never empty and do not wait for another line.

    Lines are split at LF only. A CR before LF and a byte-order mark at the start are removed; NUL becomes a space,
    with one warning. An invalid byte is reported at once, or (`is_checked_whole`) with all others at the end.
    """
    decoder = LineDecoder(name, encoding.encoding, on_bad=encoding.on_bad, nul_is_space=True)
    has_warned = is_at_end = False
    while not is_at_end:
        chunk = stream.read1(CHUNK)
        is_at_end = not chunk
        lines = decoder.feed(chunk)
        if not is_checked_whole or is_at_end:
            decoder.require_good()
        if decoder.first_nul is not None and not has_warned:
            warn(_nul_message(name, decoder.first_nul))
            has_warned = True
        if lines and is_at_end:
            lines[-1] = lines[-1].removesuffix("\r")
        if lines:
            yield lines
    for sentence in decoder.notices():
        warn(sentence)


def _nul_message(name: str, line: int) -> str:
    return f"{name}:{line}: NUL characters are read as spaces; is this binary data?"


@dataclass(frozen=True)
class InputText:
    """The lines of a file, and the numbers (from 1) of those skipped for invalid bytes."""

    lines: list[str]
    skipped: frozenset[int]


def read_text(path: Path, encoding: TextEncoding, *, warn: Callable[[str], None]) -> InputText:
    """All lines of a file, NUL read as space; every correction is warned of."""
    reader = LineReader(path, encoding.encoding, on_bad=encoding.on_bad, nul_is_space=True)
    lines = list(reader)
    for sentence in reader.notices():
        warn(sentence)
    if reader.decoder.first_nul is not None:
        warn(_nul_message(str(path), reader.decoder.first_nul))
    return InputText(lines, frozenset(reader.decoder.bad) if encoding.on_bad == "skip" else frozenset())


def read_sides(
    path: Path,
    encoding: TextEncoding,
    *,
    languages: Languages = (None, None),
    formats: Sequence[Format] = FORMATS,
    warn: Callable[[str], None],
) -> tuple[InputText, InputText]:
    """Sources and targets of a file with both sides; `languages` selects among those of a translation memory."""
    require_file(path)
    if format_of(path, formats) is None:
        read = read_text(path, encoding, warn=warn)
        pairs = list(split_rows(read.lines, path, skipped=read.skipped))
        skipped = read.skipped
    else:
        reader = PairReader(path, languages=languages, encoding=encoding.encoding, formats=formats)
        pairs, skipped = [(pair.source, pair.target) for pair in reader], frozenset[int]()
        for sentence in reader.notices():
            warn(sentence)
    return InputText([source for source, _ in pairs], skipped), InputText([target for _, target in pairs], skipped)


def read_side(
    path: Path,
    encoding: TextEncoding,
    *,
    side: Literal["source", "target"],
    languages: Languages = (None, None),
    formats: Sequence[Format] = FORMATS,
    warn: Callable[[str], None],
) -> InputText:
    """All lines of a text, or one side of a file with both: .tsv, .tmx, .po, .mo, .xlf, .jsonl."""
    if not holds_both_sides(path, formats):
        return read_text(path, encoding, warn=warn)
    both = read_sides(path, encoding, languages=languages, formats=formats, warn=warn)
    return both[0 if side == "source" else 1]


def read_some(
    path: Path,
    encoding: TextEncoding,
    *,
    side: Literal["source", "target"],
    languages: Languages = (None, None),
    listener: Listener,
) -> list[str]:
    """At least one line, of standard input (-), a text, or one side of a file with both."""
    warn = partial(notice, listener)
    if path == Path("-"):
        with open_input(None) as stream:
            blocks = read_blocks(stream, "standard input", encoding=encoding, warn=warn)
            lines = [line for block in blocks for line in block]
    else:
        lines = read_side(path, encoding, side=side, languages=languages, warn=warn).lines
    if not lines:
        name = "standard input" if path == Path("-") else str(path)
        raise DataError(f"{name} is empty; expected at least one line of text")
    return lines


def read_pairs(
    paths: Sequence[Path],
    encoding: TextEncoding = TextEncoding(),
    *,
    languages: Languages = (None, None),
    formats: Sequence[Format] = FORMATS,
    listener: Listener = ignore,
) -> list[tuple[str, str]]:
    """The pairs of two files, or of one file with both sides."""
    warn = partial(notice, listener)
    if len(paths) == 1:
        if not holds_both_sides(paths[0], formats):
            raise UsageError(
                f"{paths[0]} has one side only; give SOURCE and TARGET, or one file with both sides (.tsv, .tmx, .po, "
                ".xlf, .jsonl)"
            )
        sources, targets = read_sides(paths[0], encoding, languages=languages, formats=formats, warn=warn)
        return list(zip(sources.lines, targets.lines, strict=True))
    if len(paths) != 2:
        raise UsageError(f"expected SOURCE and TARGET, or one file with both (.tsv, .tmx …); got {len(paths)} files")
    source = read_side(paths[0], encoding, side="source", languages=languages, warn=warn).lines
    target = read_side(paths[1], encoding, side="target", languages=languages, warn=warn).lines
    require_same_count((paths[0], paths[1]), source, target)
    return list(zip(source, target, strict=True))


def require_same_count(paths: tuple[Path, Path], one: Sequence[str], other: Sequence[str]) -> None:
    """Refuse files with different numbers of lines, and report where they diverge."""
    if len(one) != len(other):
        from seqloom.data.corpus import unequal

        raise unequal(paths, one, other)


# --- models ----------------------------------------------------------------------------------------------------------

FUSE_WEIGHT = 0.2
"""Default weight of a language model that is fused with a translator."""

Fuse = Annotated[
    Path | None,
    typer.Option(
        "--fuse",
        metavar="LM",
        help="Add a language model of the target language at every decoding step (shallow fusion): "
        "log P = log P(translator) + weight · log P(LM), renormalised. It must share the target vocabulary: train it "
        "with data.tokenizers_from=MODEL.",
    ),
]
FuseWeight = Annotated[
    float | None,
    typer.Option(
        "--fuse-weight",
        metavar="WEIGHT",
        min=0,
        help=f"Weight of --fuse, by default {FUSE_WEIGHT}; tune it on dev text with seqloom evaluate.",
    ),
]


def parse_fusion(folder: Path | None, weight: float | None) -> tuple[Path, float] | None:
    """The values of --fuse and --fuse-weight; a weight without a language model is refused."""
    if folder is None and weight is not None:
        raise UsageError(f"--fuse-weight {weight:g} has no effect without a language model; add --fuse LM")
    if weight is not None and not math.isfinite(weight):
        raise UsageError(f"--fuse-weight {weight} is not a finite number; give 0 or more, such as 0.2")
    return None if folder is None else (folder, FUSE_WEIGHT if weight is None else weight)


def open_translator(
    model: Path,
    overrides: Sequence[str] = (),
    *,
    companions: Sequence[Path] = (),
    fusion: tuple[Path, float] | None = None,
    listener: Listener = ignore,
) -> "Translator":
    """Load a model, and others that decide with it; `overrides` are search settings and the device."""
    from seqloom.apps import translator as translate

    translator = translate.open_translator(model, overrides, companions=companions, fuse=fusion)
    if translator.card.is_rounded and translator.config.search.precision == "float32":
        notice(
            listener,
            f"{model}: the weights were rounded to eight bits when the model was packed; search.precision=float32 "
            "cannot restore them. Use the model it was packed from",
        )
    return translator


def languages_for(model: Path | None, paths: Sequence[Path | None], overrides: Sequence[str] = ()) -> Languages:
    """The languages of a model, where files are read that can contain several."""
    if model is None or not any(path is not None and format_of(path) for path in paths):
        return None, None
    from seqloom.apps.search_settings import resolved

    data = resolved(model, overrides).data
    return data.source, data.target


def formats_for(model: Path | None, overrides: Sequence[str] = ()) -> Sequence[Format]:
    """The formats of pairs, as the model was trained on them: with symbols.

    A model that cannot be read is reported when it is opened, after the arguments have been checked.
    """
    if model is None:
        return FORMATS
    from seqloom.apps.search_settings import resolved

    try:
        return resolved(model, overrides).data.formats()
    except (UsageError, ModelError):
        return FORMATS


def report_doubts(
    translator: "Translator", source: Sequence[str] = (), target: Sequence[str] = (), *, listener: Listener
) -> None:
    """Warn if the texts do not look like the languages of the model, or are unknown to it."""
    from seqloom.text.scripts import Sample, doubts_of_pair
    from seqloom.text.tokenizer import are_unknown, symbols_notice

    card = translator.card
    for sentence in doubts_of_pair(Sample(source), Sample(target), (card.source, card.target)):
        notice(listener, sentence)
    tokenizers = translator.tokenizers
    for side, tokenizer, lines in (("source", tokenizers.source, source), ("target", tokenizers.target, target)):
        if are_unknown(tokenizer, lines):
            notice(listener, f"100% of the {side} is unknown to this model; is this the right language and model?")
    if unknown := symbols_notice(tokenizers.source, source):
        notice(listener, unknown)
