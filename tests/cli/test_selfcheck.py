"""`seqloom selfcheck`: what it prints, and its exit status."""

import shutil
from pathlib import Path

import pytest

from cli.calling import call
from cli.conftest import Tiny
from seqloom.cli.console import Bars, PlainLines
from seqloom.core.events import Event, Value
from seqloom.selfcheck import run
from seqloom.selfcheck.promises import Check, CheckResult


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> dict[str, CheckResult]:
    """In place of the checks, findings that a test writes down: what they find is tested where they are."""
    findings = {"greedy": CheckResult("holds", "44 outputs are the same", {"outputs": 44})}
    checks = lambda *_, **__: (  # noqa: E731
        "2 lines",
        [Check(name, f"promise of {name}", lambda name=name: findings[name]) for name in findings],
    )
    monkeypatch.setattr(run, "_checks", checks)
    return findings


def test_it_prints_a_row_for_each_promise(tiny: Tiny, few: dict[str, CheckResult], tmp_path: Path) -> None:
    few["plan"] = CheckResult("not applicable", "a recurrent model has none")
    out = tmp_path / "report.html"
    called = call("selfcheck", tiny.run, "--out", out)
    assert called.code == 0, called.err
    assert "✓ files       every file is what was written, by its SHA-256" in called.lines
    assert "✓ greedy      promise of greedy" in called.lines
    assert "              44 outputs are the same" in called.lines
    assert "– plan        promise of plan" in called.lines
    assert any(
        line.startswith("All 2 promises hold (1 of 3 do not apply to this model); it took") for line in called.lines
    )
    assert called.lines[-1] == f"report: {out}"
    page = out.read_text(encoding="utf-8")
    assert page.startswith("<!doctype html>")
    assert "promise of greedy" in page


def test_a_broken_promise_is_named_with_its_worst_case(tiny: Tiny, few: dict[str, CheckResult]) -> None:
    few["terms"] = CheckResult("broken", "1.0e-03 is missing", {"scores": 4}, "'a\x1b[31m' is off")
    called = call("selfcheck", tiny.run)
    assert called.code == 1
    assert "✗ terms       promise of terms" in called.lines
    assert any(line.startswith("              worst: 'a") and line.endswith("' is off") for line in called.lines)
    assert "\x1b" not in called.out
    assert any(line.startswith("1 of 3 promises is broken: terms; it took") for line in called.lines)
    assert any(line.startswith("This is a mistake in Seqloom") and "torch" in line for line in called.lines)


@pytest.mark.parametrize("form", [[], ["--json"]])
def test_an_interruption_leaves_what_was_found(tiny: Tiny, monkeypatch: pytest.MonkeyPatch, form: list[str]) -> None:
    def stop() -> CheckResult:
        raise KeyboardInterrupt

    ways = {"greedy": lambda: CheckResult("holds", "44 outputs are the same"), "plan": stop, "terms": stop}
    checks = [Check(name, f"promise of {name}", way) for name, way in ways.items()]
    monkeypatch.setattr(run, "_checks", lambda *_, **__: ("2 lines", checks))
    called = call("selfcheck", tiny.run, *form)
    assert called.code == 130
    assert "interrupted" in called.err
    if form:
        assert [record["name"] for record in called.records] == ["files", "greedy"]
        return
    assert "✓ greedy      promise of greedy" in called.lines
    assert called.lines[-1].startswith(
        "Of those checked, all 2 promises hold; 2 were not checked: plan, terms; it took "
    )
    assert "promise of plan" not in called.out


def test_progress_has_the_time_that_is_left(capsys: pytest.CaptureFixture[str]) -> None:
    now = [0.0]
    lines, bars = PlainLines(clock=lambda: now[0]), Bars(clock=lambda: now[0])

    def note(done: int, left: float | None) -> str:
        values: dict[str, Value] = {"what": "promises checked", "done": done, "all": 13}
        event = Event("progress", values if left is None else {**values, "left": left})
        lines(event)
        bars(event)
        return str(bars._progress.tasks[0].fields["note"])

    try:
        assert note(1, None) == "1 of 13", "there is no estimate before anything was done"
        now[0] = 12.0
        assert note(4, 75.0) == "4 of 13, about 1 min 15 s left"
        assert note(5, None) == "5 of 13, 24 s left"
    finally:
        bars.stop()
    assert "promises checked: 4 of 13, about 1 min 15 s left\n" in capsys.readouterr().err


def test_records_hold_figures_and_the_verdict(tiny: Tiny, few: dict[str, CheckResult]) -> None:
    few["terms"] = CheckResult("broken", "1.0e-03 is missing", {"scores": 4}, "this one")
    called = call("selfcheck", tiny.run, "--json", "--count", 3, "--seed", 7)
    assert called.code == 1
    *promises, verdict = called.records
    assert [(each["name"], each["outcome"]) for each in promises] == [
        ("files", "holds"),
        ("greedy", "holds"),
        ("terms", "broken"),
    ]
    assert promises[2]["figures"] == {"scores": 4}
    assert promises[2]["worst"] == "this one"
    assert (verdict["is_kept"], verdict["broken"], verdict["count"], verdict["seed"]) == (False, ["terms"], 3, 7)
    assert "seqloom" in verdict["versions"]
    assert called.messages == []


def test_a_damaged_file_is_a_broken_promise(tiny: Tiny, tmp_path: Path) -> None:
    folder = tmp_path / "model"
    shutil.copytree(tiny.run / "model", folder)
    with (folder / "model.safetensors").open("r+b") as file:
        file.seek(-1, 2)
        file.write(b"\x7f")
    called = call("selfcheck", folder)
    assert called.code == 1
    assert "✗ files       every file is what was written, by its SHA-256" in called.lines
    assert any("model.safetensors: SHA-256 is" in line for line in called.lines)


def test_bad_input_has_the_usual_codes(tiny: Tiny, tmp_path: Path) -> None:
    empty = tmp_path / "empty"
    empty.write_text("")
    wrong = [
        (2, "model directory not found", ["selfcheck", tmp_path / "nowhere"]),
        (2, "does not end in .html", ["selfcheck", tiny.run, "--out", tmp_path / "report.txt"]),
        (2, "nofile", ["selfcheck", tiny.run, "--lines", tmp_path / "nofile"]),
        (2, "--count", ["selfcheck", tiny.run, "--count", 0]),
        (3, "is empty", ["selfcheck", tiny.run, "--lines", empty]),
        (4, "is not a model directory", ["selfcheck", tmp_path]),
    ]
    for code, message, words in wrong:
        called = call(*words)
        assert (called.code, message in called.err) == (code, True), called
