"""What is shown while a run works."""

import io
import sys

import pytest

from seqloom.cli.console import Bars, PlainLines, clean, duration, one_line, sentences, show_events, size
from seqloom.core.events import Event, json_line


class Clock:
    """A clock that goes when it is told to."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def step(number: int) -> Event:
    values = {"step": number, "loss": 1.5, "tokens_per_second": 1234.5, "eta": 61.0}
    return Event("step", values)


def test_a_run_of_a_thousand_quick_steps_has_a_line_per_tenth(capsys: pytest.CaptureFixture[str]) -> None:
    listener = PlainLines(clock=Clock())
    listener(Event("model", {"kind": "gru", "parameters": 1000, "run": "run", "steps": 1000}))
    for number in range(1, 1001):
        listener(step(number))
    first, *lines = capsys.readouterr().err.splitlines()
    assert first == "gru with 1,000 parameters; run folder run"
    assert len(lines) == 10
    assert lines[0] == "step 100 of 1,000: loss 1.500, 1,234 tokens/s, 1 min 01 s left"


def test_slow_steps_have_a_line_every_ten_seconds(capsys: pytest.CaptureFixture[str]) -> None:
    clock = Clock()
    listener = PlainLines(clock=clock)
    for number in range(1, 26):
        clock.now += 1.0
        listener(step(number))
    assert [line.partition(":")[0] for line in capsys.readouterr().err.splitlines()] == ["step 10", "step 20"]


def test_quick_progress_needs_no_line(capsys: pytest.CaptureFixture[str]) -> None:
    clock = Clock()
    listener = PlainLines(clock=clock)
    for done in range(100):
        listener(Event("progress", {"what": "encoding", "done": done, "all": 100}))
    clock.now = 11.0
    listener(Event("progress", {"what": "encoding", "done": 100, "all": 100}))
    assert capsys.readouterr().err == "encoding: 100 of 100\n"


def test_quick_progress_that_asks_for_it_has_a_line_per_tenth(capsys: pytest.CaptureFixture[str]) -> None:
    listener = PlainLines(clock=Clock())
    for done in range(0, 1001, 5):
        listener(Event("progress", {"what": "tokens", "done": done, "all": 1000, "by_tenths": True}))
    lines = capsys.readouterr().err.splitlines()
    assert lines == [f"tokens: {done:,} of 1,000" for done in range(100, 1001, 100)]


def test_tenths_are_counted_for_each_activity_separately(capsys: pytest.CaptureFixture[str]) -> None:
    listener = PlainLines(clock=Clock())
    for what in ("one", "two", "two"):
        for done in (5, 10):
            listener(Event("progress", {"what": what, "done": done, "all": 10, "by_tenths": True}))
    lines = capsys.readouterr().err.splitlines()
    assert lines == ["one: 5 of 10", "one: 10 of 10"] + 2 * ["two: 5 of 10", "two: 10 of 10"]


def test_after_partial_progress_the_end_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    clock = Clock()
    listener = PlainLines(clock=clock)
    clock.now = 11.0
    for done in (3, 8, 14, 14):
        listener(Event("progress", {"what": "translating", "done": done, "all": 14}))
    assert capsys.readouterr().err == "translating: 3 of 14\ntranslating: 14 of 14\n"


@pytest.mark.parametrize(
    ("event", "said"),
    [
        (Event("sizing", {"reasons": ["60 pairs, so:", "small"]}), ["60 pairs, so:", "  small"]),
        (
            Event("threads", {"threads": 2, "wait_policy": {"reason": "quiet machine", "settings": {"A": "B"}}}),
            ["2 threads; A=B (quiet machine)"],
        ),
        (
            Event("threads", {"threads": 1, "wait_policy": {"reason": "environment", "settings": {"A": "B"}}}),
            ["1 thread"],
        ),
        (Event("threads", {"threads": 8, "wait_policy": {"reason": "torch", "settings": {}}}), ["8 threads"]),
        (Event("notice", {"message": "look here"}), ["look here"]),
        (
            Event("save_failed", {"step": 3, "message": "no space. Training continues"}),
            ["no space. Training continues"],
        ),
        (
            Event("validation", {"step": 1500, "loss": 2.25, "perplexity": 9.4877, "bleu": 12.0, "is_best": True}),
            ["step 1,500: dev loss 2.250, perplexity 9.488, BLEU 12.000 (lowest dev loss so far)"],
        ),
        (
            Event("resumed", {"step": 40, "steps": 80_000, "changed_settings": {"steps": [40, 80]}}),
            ["resuming after step 40 of 80,000; changed: steps from 40 to 80"],
        ),
        (
            Event("bad_step", {"step": 7, "loss": float("nan"), "norm": float("inf"), "where": "batch 3"}),
            ["step 7 was not finite (loss nan, gradient norm inf) and was skipped: batch 3"],
        ),
        (Event("saved", {"step": 3}), []),
        (Event("unheard_of", {}), []),
    ],
)
def test_messages_of_events(event: Event, said: list[str]) -> None:
    assert sentences(event) == said


def test_bars_print_sentences_above_and_take_no_markup_from_data(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = io.StringIO()
    monkeypatch.setattr(sys, "stderr", stream)
    bars = Bars(clock=Clock())
    bars(Event("phase", {"what": "learning [red]pieces"}))
    bars(Event("progress", {"what": "encoding", "done": 5, "all": 10}))
    bars(Event("model", {"kind": "gru", "parameters": 1, "run": "[bold]run", "steps": 10}))
    bars(step(5))
    bars(Event("notice", {"message": "a\x1b[31mb"}))
    bars.stop()
    text = stream.getvalue()
    assert "[bold]run" in text
    assert "a\\u001b[31mb" in text


def test_only_the_first_rank_speaks(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("RANK", "1")
    with show_events(as_json=False) as listener:
        listener(Event("notice", {"message": "hello"}))
    monkeypatch.setenv("RANK", "0")
    with show_events(as_json=True) as listener:
        listener(Event("notice", {"message": "hello"}))
        listener(Event("progress", {"what": "encoding", "done": 1, "all": 2}))
    assert capsys.readouterr().err == '{"event": "notice", "message": "hello"}\n'


def test_text_from_data_cannot_steer_the_terminal() -> None:
    assert clean("a\x1b[2Jb\u202ec\x9bd\te") == "a\\u001b[2Jb\\u202ec\\u009bd e"
    assert one_line("a\r\nb\u2028c") == "a  b\u2028c"


def test_durations_and_sizes() -> None:
    assert [duration(value) for value in (0.4, 59.6, 187.0, 7500.0)] == [
        "0 s",
        "1 min 00 s",
        "3 min 07 s",
        "2 h 05 min",
    ]
    assert [size(value) for value in (12, 1_500, 2_500_000, 3_000_000_000)] == [
        "12 bytes",
        "1.5 kB",
        "2.5 MB",
        "3.0 GB",
    ]
    assert json_line({"a": float("nan"), "b": (1.5, float("inf"))}) == '{"a": null, "b": [1.5, null]}'
