"""Translating with several processes, behind the same door as one translator."""

import os
import signal
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import TracebackType

import torch

from seqloom.apps.request import Wish
from seqloom.apps.translator import Translation, Translator, Watch, open_translator
from seqloom.core.arguments import as_lines
from seqloom.core.errors import SeqloomError, UsageError
from seqloom.data.workers import OwnProcesses, end_with_parent
from seqloom.text.glossary import Glossary
from seqloom.text.tokenizer import Tokenizers

# Whole files by several processes: each has the model and one thread, and gets lines of one length at a time.
#
#     with Workers(folder, ["search.beam=8"], jobs=2) as workers:
#         results = workers.search(lines)
#
# Two processes of one thread translate more than one process of two threads: the products of a step are too small to
# be shared. A program that starts processes must guard its beginning with `if __name__ == "__main__":`.

SHARES = 4
"""Shares of the lines for each process, so that none waits long for the last one."""

PATIENCE = 600.0
"""Seconds without any work done after which the processes are taken to hang: none of them ends, nor computes."""

LEAST = 64
"""Lines that are worth a share of their own: fewer do not fill a batch."""

Found = list[list[Translation]]

Search = Callable[[Translator, list[str], int], Found]
"""What a process does with its lines, of which the first has this number. It is sent there: a function of a module, or
a `partial` of one."""


def search_lines(translator: Translator, lines: list[str], first: int) -> Found:
    """The translations of each line."""
    return translator.search(lines, first=first)


class Workers:
    """Processes that translate. They end with the block that they are used in, also where it ends by an error."""

    def __init__(
        self, folder: Path, overrides: Sequence[str] = (), *, jobs: int, search: Search = search_lines
    ) -> None:
        if jobs < 1:
            raise UsageError(f"{jobs} processes translate nothing; give 1 or more")
        self._jobs = jobs
        self._processes = OwnProcesses()
        self._pool = ProcessPoolExecutor(
            jobs,
            mp_context=self._processes,
            initializer=_begin,
            initargs=(_Order(folder, tuple(overrides), search),),
        )

    def __enter__(self) -> "Workers":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._pool.shutdown(wait=kind is None, cancel_futures=True)
        if kind is not None:  # what they are at is wanted no more
            self._processes.end()

    def search(
        self, lines: Sequence[str], *, first: int = 0, progress: Callable[[int], None] = lambda _lines: None
    ) -> Found:
        """The translations of each line, in order, numbered from `first`; `progress` is told how many more are done."""
        given = as_lines(lines, "search")
        found: Found = [[] for _ in given]
        try:
            tasks = {self._send(given, places, first): places for places in shares(given, jobs=self._jobs)}
            for task in self._completed(set(tasks)):
                results, places = task.result(), tasks[task]
                if isinstance(results, _Failure):
                    raise results.kind(results.message)
                for at, result in zip(places, results, strict=True):
                    found[at] = result
                progress(len(places))
        except BrokenProcessPool as error:
            raise SeqloomError(
                f"one of {self._jobs} processes was ended from outside, perhaps for lack of memory; "
                "use fewer, or a smaller search.tokens_per_batch"
            ) from error
        return found

    def _completed(self, pending: "set[Future[Found | _Failure]]") -> "Iterator[Future[Found | _Failure]]":
        """Tasks as they are done. Processes that do nothing at all for long are an error, not an endless wait."""
        worked, since = 0.0, time.monotonic()
        while pending:
            done, pending = wait(pending, timeout=min(1.0, PATIENCE), return_when=FIRST_COMPLETED)
            yield from done
            seconds = sum(_processor_seconds(process.pid) for process in self._processes.alive)
            if done or abs(seconds - worked) > _WORK:
                worked, since = seconds, time.monotonic()
            elif time.monotonic() - since > PATIENCE:
                raise SeqloomError(
                    f"none of {self._jobs} processes has done any work for {PATIENCE:g} seconds; something has "
                    "stopped them. Try again, or translate with one process"
                )

    def _send(self, lines: Sequence[str], places: Sequence[int], first: int) -> "Future[Found | _Failure]":
        # Blank lines stand for those of others: where a line stands decides its random draws.
        sent = [""] * (max(places) + 1)
        for at in places:
            sent[at] = lines[at]
        return self._pool.submit(_work, sent, list(places), first)


_WORK = 0.05
"""Processor seconds that a process does not use by merely being there."""


def _processor_seconds(pid: int | None) -> float:
    """Processor time of a process so far. Without /proc it is that of the clock: no process can be seen to hang."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
    except OSError:  # it has just ended, or there is no such place
        return 0.0 if Path("/proc/self").exists() else time.monotonic()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def shares(lines: Sequence[str], *, jobs: int) -> list[list[int]]:
    """Places of lines, dealt into shares of similar length, the longest first."""
    order = sorted(range(len(lines)), key=lambda at: (-len(lines[at]), at))
    size = max(LEAST, -(-len(lines) // (SHARES * jobs)))
    return [order[begin : begin + size] for begin in range(0, len(order), size)]


# --- in the processes ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Order:
    """What a process is there for."""

    folder: Path
    overrides: tuple[str, ...]
    search: Search


@dataclass(frozen=True)
class _Failure:
    """An error, in a form that comes through whatever its class holds."""

    kind: type[SeqloomError]
    message: str


_order: _Order | None = None
_translator: Translator | None = None


def _begin(order: _Order) -> None:
    global _order
    _order = order
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches all of them; the first process ends the others
    end_with_parent()
    torch.set_num_threads(1)
    os.environ["OMP_NUM_THREADS"] = "1"


def _work(lines: list[str], places: list[int], first: int) -> Found | _Failure:
    global _translator
    assert _order is not None
    try:
        if _translator is None:
            _translator = open_translator(_order.folder, _order.overrides)
        found = _order.search(_translator, lines, first)
    except SeqloomError as error:
        return _Failure(type(error), str(error))
    return [found[at] for at in places]


@dataclass(frozen=True)
class _Asked:
    """What is asked of every line."""

    align: bool
    tags: bool
    wish: Wish | None
    glossary: Glossary | None
    dictionary: Mapping[str, str] | None


class ProcessTranslator:
    """Translates as the translator does that it is made of, in several processes that load its model again.

    What is asked for must be the same for all lines. The processes end with the block that it is used in.
    """

    def __init__(self, translator: Translator, overrides: Sequence[str] = (), *, jobs: int) -> None:
        """`overrides` are the settings of the search with which the translator was opened."""
        self._translator = translator
        self._overrides = tuple(overrides)
        self._jobs = jobs
        self._asked: _Asked | None = None
        self._workers: Workers | None = None

    def __enter__(self) -> "ProcessTranslator":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._workers is not None:
            self._workers.__exit__(kind, error, trace)
            self._workers = None

    @property
    def tokenizers(self) -> Tokenizers:
        """Those of the model."""
        return self._translator.tokenizers

    @property
    def longest(self) -> int:
        """Tokens of a source sentence, the end counted, up to which it is not cut."""
        return self._translator.longest

    @property
    def source_language(self) -> str | None:
        """The language that it reads, where the model says so."""
        return self._translator.source_language

    def unknown_rate(self, lines: Sequence[str]) -> float:
        """Share of source tokens that the model's vocabulary does not have."""
        return self._translator.unknown_rate(lines)

    def search(
        self,
        lines: Iterable[str],
        *,
        align: bool = False,
        tags: bool = False,
        wishes: Sequence[Wish | None] | None = None,
        glossary: Glossary | None = None,
        dictionary: Mapping[str, str] | None = None,
        first: int = 0,
        progress: Callable[[int], None] = lambda _lines: None,
        watch: Watch | None = None,
    ) -> list[list[Translation]]:
        """The best translations of each line, best first; `watch` is told of lines in parts once they are done.

        Lines are numbered on from `first`, as the translator does it.
        """
        given = as_lines(lines, "search")
        several = set(wishes or [None])
        if len(several) > 1:
            raise UsageError("several processes take the same constraints for all lines; translate with one process")
        asked = _Asked(align, tags, several.pop(), glossary, dictionary)
        results = self._workers_for(asked).search(given, first=first, progress=progress)
        if watch is not None and self._translator.config.search.split == "long":
            for number, found in enumerate(results):
                if len(found[0].hypotheses) > 1:
                    watch.cut(number, len(found[0].hypotheses))
        return results

    def _workers_for(self, asked: _Asked) -> Workers:
        if self._workers is None or asked != self._asked:
            self.__exit__(None, None, None)
            search = partial(_search, asked=asked)
            folder = self._translator.loaded.folder
            self._workers, self._asked = Workers(folder, self._overrides, jobs=self._jobs, search=search), asked
        return self._workers


def _search(translator: Translator, lines: list[str], first: int, *, asked: _Asked) -> list[list[Translation]]:
    return translator.search(
        lines,
        align=asked.align,
        tags=asked.tags,
        wishes=None if asked.wish is None else [asked.wish] * len(lines),
        glossary=asked.glossary,
        dictionary=asked.dictionary,
        first=first,
    )
