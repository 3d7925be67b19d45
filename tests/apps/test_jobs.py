"""Several processes find what one finds, in the same order, and end together."""

import multiprocessing
import os
import signal
from itertools import pairwise

import pytest

from seqloom.apps import processes as jobs
from seqloom.apps.processes import ProcessTranslator, shares
from seqloom.apps.request import Request
from seqloom.apps.translator import open_translator
from seqloom.core.errors import SeqloomError, UsageError
from seqloom.runs.train import Trained

LINES = ["the cat sleeps .", "", "we see a red house .", "a dog", "the cat sleeps .", "good morning"]


@pytest.mark.slow
def test_two_processes_give_what_one_gives_also_by_chance(tiny: Trained) -> None:
    overrides = ["search.method=sample", "search.nbest=2", "search.beam=2"]
    alone = open_translator(tiny.run, overrides).search(LINES * 30)
    reported: list[int] = []
    with ProcessTranslator(open_translator(tiny.run, overrides), overrides, jobs=2) as several:
        together = several.run(LINES * 30, Request(), progress=reported.append)
    assert [[each.text for each in found] for found in together] == [[each.text for each in found] for found in alone]
    assert sum(reported) == 180
    assert len({found[0].text for found in alone}) > 3  # or their order would not be tested
    assert not multiprocessing.active_children()


def test_lines_are_dealt_by_length_and_none_is_lost() -> None:
    lines = ["x" * (number % 37) for number in range(1000)]
    dealt = shares(lines, jobs=2)
    assert sorted(at for share in dealt for at in share) == list(range(1000))
    assert len(dealt) == 8
    assert all(len(lines[first[-1]]) >= len(lines[second[0]]) for first, second in pairwise(dealt))
    assert shares([], jobs=2) == []


@pytest.mark.slow
def test_errors_are_passed_on_and_no_process_stays(tiny: Trained) -> None:
    translator = open_translator(tiny.run)
    with (
        pytest.raises(UsageError, match=r"search\.shortlist needs a lexicon"),
        ProcessTranslator(translator, ["search.shortlist=5"], jobs=1) as several,
    ):
        several.run(LINES, Request())
    with pytest.raises(UsageError, match="0 processes cannot translate"):
        ProcessTranslator(translator, jobs=0)
    assert not multiprocessing.active_children()


def test_a_process_that_hangs_or_is_killed_is_missed(tiny: Trained, monkeypatch: pytest.MonkeyPatch) -> None:
    with ProcessTranslator(open_translator(tiny.run), jobs=1) as several:
        assert len(several.run(LINES, Request())) == 6
        (process,) = multiprocessing.active_children()
        assert process.pid is not None
        os.kill(process.pid, signal.SIGSTOP)
        with monkeypatch.context() as patch:
            patch.setattr(jobs, "MAX_IDLE_SECONDS", 0.5)
            with pytest.raises(
                SeqloomError, match=r"none of 1 processes has done any work for 0\.5 seconds; something"
            ):
                several.run(LINES, Request())
        process.kill()
        process.join()
        with pytest.raises(SeqloomError, match="one of 1 processes was killed"):
            several.run(LINES, Request())


def interrupt(_lines: int) -> None:
    raise KeyboardInterrupt


@pytest.mark.slow
def test_an_interrupt_ends_them_at_once(tiny: Trained) -> None:
    before = set(multiprocessing.active_children())
    with pytest.raises(KeyboardInterrupt), ProcessTranslator(open_translator(tiny.run), jobs=1) as several:
        several.run(LINES, Request(), progress=interrupt)
    assert not set(multiprocessing.active_children()) - before
