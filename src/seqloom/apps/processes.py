"""Translating with several processes: each has the model and one thread, and gets lines of similar length.

    with ProcessTranslator(translator, ["search.beam=8"], jobs=2) as several:
        results = several.run(lines, Request())

Two processes of one thread translate more than one process of two threads: the products of a step are too small to be
shared. A program that starts processes must guard its beginning with `if __name__ == "__main__":`.
"""

import os
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

import torch

from seqloom.apps.request import ConstraintSet, Request
from seqloom.apps.translator import PartListener, Translation, Translator, open_translator
from seqloom.core.errors import SeqloomError, UsageError
from seqloom.data.workers import OwnProcesses, end_with_parent

SHARES_PER_JOB = 4
"""Shares of the lines for each process, so that none waits long for the last one."""

MAX_IDLE_SECONDS = 600.0
"""Seconds without any work done after which the processes are assumed to hang: none of them ends, nor computes."""

MIN_SHARE_LINES = 64
"""Lines that are worth a share of their own: fewer do not fill a batch."""

MIN_WORK_SECONDS = 0.05
"""Processor seconds that an idle process does not use."""

Results = list[list[Translation]]


class ProcessTranslator:
    """Translates as the translator that it is made of, in several processes that load its model again.

    All lines of a request must have the same constraints. The processes end with the `with` block, also on an error.
    """

    def __init__(self, translator: Translator, overrides: Sequence[str] = (), *, jobs: int) -> None:
        """`overrides` are the search settings with which the translator was opened."""
        if jobs < 1:
            raise UsageError(f"{jobs} processes cannot translate; give 1 or more")
        self._translator = translator
        self.tokenizers, self.longest = translator.tokenizers, translator.longest
        self.source_language, self.calibration = translator.source_language, translator.calibration
        self._jobs = jobs
        self._processes = OwnProcesses()
        self._pool = ProcessPoolExecutor(
            jobs,
            mp_context=self._processes,
            initializer=_begin,
            initargs=(translator.loaded.folder, tuple(overrides)),
        )

    def __enter__(self) -> "ProcessTranslator":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._pool.shutdown(wait=kind is None, cancel_futures=True)
        if kind is not None:  # the results are no longer needed
            self._processes.end()

    def run(
        self,
        lines: Sequence[str],
        request: Request,
        *,
        first: int = 0,
        progress: Callable[[int], None] = lambda _lines: None,
        watch: PartListener | None = None,
    ) -> Results:
        """The best translations of each line, best first; `watch` is called for lines in parts once they are done.

        Lines are numbered from `first`, as the translator does it.
        """
        if not (request.constraints is None or isinstance(request.constraints, ConstraintSet)):
            raise UsageError("several processes need the same constraints for all lines; translate with one process")
        found: Results = [[] for _ in lines]
        try:
            tasks: dict[Future[Results | _Failure], list[int]] = {}
            for places in shares(lines, jobs=self._jobs):
                # Blank lines take the place of other processes' lines: the place of a line decides its random draws.
                sent = [""] * (max(places) + 1)
                for at in places:
                    sent[at] = lines[at]
                tasks[self._pool.submit(_work, sent, places, request, first)] = places
            for task in self._completed(set(tasks)):
                results, places = task.result(), tasks[task]
                if isinstance(results, _Failure):
                    raise results.kind(results.message)
                for at, result in zip(places, results, strict=True):
                    found[at] = result
                progress(len(places))
        except BrokenProcessPool as error:
            raise SeqloomError(
                f"one of {self._jobs} processes was killed, perhaps for lack of memory; "
                "use fewer, or a smaller search.tokens_per_batch"
            ) from error
        if watch is not None and (request.search or self._translator.config.search).split == "long":
            for number, translations in enumerate(found):
                if len(translations[0].hypotheses) > 1:
                    watch.cut(number, len(translations[0].hypotheses))
        return found

    def _completed(self, pending: "set[Future[Results | _Failure]]") -> "Iterator[Future[Results | _Failure]]":
        """Tasks as they are done. Processes that do nothing at all for long are an error, not an endless wait."""
        worked, since = 0.0, time.monotonic()
        while pending:
            done, pending = wait(pending, timeout=min(1.0, MAX_IDLE_SECONDS), return_when=FIRST_COMPLETED)
            yield from done
            seconds = sum(_processor_seconds(process.pid) for process in self._processes.alive)
            if done or abs(seconds - worked) > MIN_WORK_SECONDS:
                worked, since = seconds, time.monotonic()
            elif time.monotonic() - since > MAX_IDLE_SECONDS:
                raise SeqloomError(
                    f"none of {self._jobs} processes has done any work for {MAX_IDLE_SECONDS:g} seconds; something has "
                    "stopped them. Try again, or translate with one process"
                )


def _processor_seconds(pid: int | None) -> float:
    """Processor time of a process so far. Without /proc it is that of the clock: no process can be seen to hang."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
    except OSError:  # it has just ended, or there is no /proc
        return 0.0 if Path("/proc/self").exists() else time.monotonic()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def shares(lines: Sequence[str], *, jobs: int) -> list[list[int]]:
    """Places of lines in shares of similar length, the longest first."""
    order = sorted(range(len(lines)), key=lambda at: (-len(lines[at]), at))
    size = max(MIN_SHARE_LINES, -(-len(lines) // (SHARES_PER_JOB * jobs)))
    return [order[begin : begin + size] for begin in range(0, len(order), size)]


# --- in the processes ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Failure:
    """An error that can be pickled whatever its class holds."""

    kind: type[SeqloomError]
    message: str


_opened_with: tuple[Path, tuple[str, ...]] | None = None
_translator: Translator | None = None


def _begin(folder: Path, overrides: tuple[str, ...]) -> None:
    global _opened_with
    _opened_with = folder, overrides
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches all of them; the first process ends the others
    end_with_parent()
    torch.set_num_threads(1)
    os.environ["OMP_NUM_THREADS"] = "1"


def _work(lines: list[str], places: list[int], request: Request, first: int) -> Results | _Failure:
    global _translator
    assert _opened_with is not None
    try:
        if _translator is None:
            _translator = open_translator(*_opened_with)
        found = _translator.run(lines, request, first=first)
    except SeqloomError as error:
        return _Failure(type(error), str(error))
    return [found[at] for at in places]
