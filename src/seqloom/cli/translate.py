"""`seqloom translate`: lines in, as many lines out."""

import os
import sys
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Protocol

import typer

from seqloom.cli.arguments import require_new_file, require_search_settings, sort_words
from seqloom.cli.console import show_events
from seqloom.cli.lines import open_input, read_blocks
from seqloom.cli.loading import open_translator
from seqloom.cli.output import clean, examples, json_line, one_line, require_open
from seqloom.core.errors import UsageError
from seqloom.core.events import Event, Listener, notice
from seqloom.core.files import open_output

if TYPE_CHECKING:
    from seqloom.recipes.translate import Translation, Translator

EXAMPLES = examples(
    "echo 'Guten Morgen.' | seqloom translate run/model",
    "seqloom translate run/model news.de --out news.en search.beam=8",
    "seqloom translate run/model news.de --nbest 4",
)


class Output(Protocol):
    """Where translations go: standard output, or a file."""

    def write(self, text: str, /) -> int: ...

    def flush(self) -> None: ...

    def isatty(self) -> bool: ...


Model = Annotated[Path, typer.Argument(metavar="MODEL", help="A model folder, or a run that has finished.")]
Words = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="FILE search.beam=8",
        help="Text, a sentence per line, plain or .gz; standard input without it. Settings of the search.",
    ),
]
Out = Annotated[Path | None, typer.Option("--out", metavar="FILE", help="Where to write; standard output without it.")]
Nbest = Annotated[
    int | None,
    typer.Option(
        "--nbest",
        metavar="N",
        min=1,
        help="The N best of each line, as [bold]line ||| text ||| score[/bold]: lines are counted from 1, scores "
        "are log-probabilities with the length normalisation. N is at most search.beam.",
    ),
]
Scores = Annotated[
    bool, typer.Option("--scores", help="Score and text of each line, with a tab between; null for a blank line.")
]
Json = Annotated[
    bool,
    typer.Option("--json", help="A record per line: translations, score terms, token log-probabilities."),
]


def translate(
    model: Model,
    words: Words = None,
    out: Out = None,
    nbest: Nbest = None,
    scores: Scores = False,
    json: Json = False,
) -> None:
    """Translate text, line by line.

    N lines in, N lines out, always; a blank line stays blank. Only LF ends a line. Text is UTF-8.
    """
    given = sort_words(words)
    if len(given.others) > 1:
        raise UsageError(f"one text file at most, but {len(given.others)} were given: {', '.join(given.others)}")
    path = Path(given.others[0]) if given.others and given.others[0] != "-" else None
    require_search_settings(given.overrides)
    if scores and (json or nbest is not None):
        raise UsageError(f"{'--json' if json else '--nbest'} shows the scores already; leave out --scores")
    require_new_file(out, inputs=[path] if path else [])
    _refuse_same_stdout(path, out)
    overrides = [*given.overrides, *([f"search.nbest={nbest}"] if nbest is not None else [])]
    write = _as_json if json else _as_nbest if nbest is not None else _as_scored if scores else _as_text

    if path is None:
        require_open(sys.stdin, "standard input")
    # Lines that are typed or piped in have no end to progress to, and a bar would run into results on a terminal.
    has_progress = path is not None and (out is not None or not sys.stdout.isatty())
    with show_events(as_json=json, has_progress=has_progress) as listener:
        total = _check_file(path)
        translator = open_translator(model, overrides)
        if path is None and sys.stdin.isatty():
            print("Type a sentence and press Enter; Ctrl-D ends.", file=sys.stderr)
        with _opened(out) as stream:
            _go(translator, path, stream=stream, write=write, listener=listener, total=total)


def _go(
    translator: "Translator",
    path: Path | None,
    *,
    stream: Output,
    write: "Callable[[Translator, int, str, Sequence[Translation]], list[str]]",
    listener: Listener,
    total: int | None,
) -> None:
    name = str(path) if path else "standard input"
    done, has_warned = 0, False
    with open_input(path) as source:
        for block in read_blocks(source, name, warn=lambda message: notice(listener, message)):
            if not has_warned and translator.unknown_rate(block) == 1:
                notice(listener, "100% of the source is unknown to this model; is this the right language and model?")
                has_warned = True

            first = done + 1
            watch = _Telling(listener, name, first=first, total=total, limit=translator.config.data.longest)
            results = translator.search(block, progress=watch.lines_done, watch=watch)
            for number, (line, found) in enumerate(zip(block, results, strict=True), start=first):
                for text in write(translator, number, line, found):
                    stream.write((clean(text) if stream.isatty() else text) + "\n")
            stream.flush()
            done = first + len(block) - 1


@dataclass
class _Telling:
    """How far a block of lines has got: in lines, or in parts where some line had to be cut."""

    listener: Listener
    name: str
    first: int
    total: int | None
    limit: int
    done: int = 0
    has_parts: bool = False

    def cut(self, line: int, parts: int) -> None:
        place = f"{self.name}:{self.first + line}"
        notice(self.listener, f"{place}: longer than {self.limit} tokens, translated in {parts} parts")
        self.has_parts = True

    def parts_done(self, done: int, everything: int) -> None:
        if self.has_parts:
            self._tell("translating parts of lines", done, everything)

    def lines_done(self, lines: int) -> None:
        self.done += lines
        if not self.has_parts:
            self._tell("translating", self.first - 1 + self.done, self.total)

    def _tell(self, what: str, done: int, everything: int | None) -> None:
        self.listener(Event("progress", {"what": what, "done": done, "all": everything}))


# --- formats ---------------------------------------------------------------------------------------------------------


def _as_text(_translator: "Translator", _number: int, _line: str, found: "Sequence[Translation]") -> list[str]:
    return [one_line(found[0].text)]


def _as_scored(_translator: "Translator", _number: int, _line: str, found: "Sequence[Translation]") -> list[str]:
    return [f"{_score(found[0])}\t{one_line(found[0].text)}"]


def _as_nbest(_translator: "Translator", number: int, _line: str, found: "Sequence[Translation]") -> list[str]:
    return [f"{number} ||| {one_line(each.text)} ||| {_score(each)}" for each in found]


def _as_json(translator: "Translator", number: int, line: str, found: "Sequence[Translation]") -> list[str]:
    records = [_record(translator, each) for each in found]
    return [json_line({"line": number, "source": line, "translations": records})]


def _score(translation: "Translation") -> str:
    return "null" if translation.score is None else f"{translation.score:.6f}"


def _record(translator: "Translator", translation: "Translation") -> dict[str, Any]:
    """A translation with its score itemised; the parts of a long line are added up."""
    from seqloom.core.symbols import END

    piece = translator.loaded.tokenizers.target.piece
    terms: dict[str, float] = {}
    tokens: list[str] = []
    log_probs: list[float] = []
    for hypothesis in translation.hypotheses:
        ids = [*hypothesis.symbols, *([END] if hypothesis.is_finished else [])]
        tokens += [piece(id) for id in ids]
        log_probs += hypothesis.token_log_probs
        for name, value in hypothesis.terms.items():
            terms[name] = terms.get(name, 0.0) + value
    return {
        "text": translation.text,
        "score": translation.score,
        "terms": terms,
        "tokens": tokens,
        "token_log_probs": log_probs,
        "is_finished": all(hypothesis.is_finished for hypothesis in translation.hypotheses),
    }


# --- files -----------------------------------------------------------------------------------------------------------


def _check_file(path: Path | None) -> int | None:
    """Read a file through once, so that a bad byte is told before the slow part; its number of lines."""
    if path is None:
        return None
    with open_input(path) as source:
        return sum(len(block) for block in read_blocks(source, str(path)))


def _refuse_same_stdout(path: Path | None, out: Path | None) -> None:
    if path is None or out is not None:
        return
    with suppress(OSError, ValueError):
        if os.path.samestat(path.stat(), os.fstat(sys.stdout.fileno())):
            raise UsageError(f"{path} is the input and standard output as well; write to another file")


def _opened(out: Path | None) -> AbstractContextManager[Output]:
    """Standard output, or a file that appears under its name when it is whole."""
    return nullcontext(sys.stdout) if out is None else open_output(out)
