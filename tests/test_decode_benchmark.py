"""The parts of the decoding benchmark that are arithmetic: layouts, the best of them, the order of lines, the table."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

BENCHMARKS = Path(__file__).resolve().parent.parent / "benchmarks"
sys.path[:0] = [str(BENCHMARKS), str(BENCHMARKS / "contestants")]

import decode_ours  # noqa: E402

from harness.decoding import Entry, Layout, Team, best_entry, decoding_table, layouts, outputs, race  # noqa: E402
from seqloom.core.symbols import END  # noqa: E402
from seqloom.models.seq2seq import Seq2SeqConfig  # noqa: E402
from seqloom.nn.embeddings import Symbols  # noqa: E402


class FakeTeam(Team):
    """A team whose members take a set time for each command."""

    def __init__(self, layout: Layout, times: dict[str, Sequence[float]]) -> None:
        super().__init__("fake", layout, [])
        self.times = times

    def ask(self, command: str) -> list[dict[str, Any]]:
        shares = len(self.times[command])
        return [
            {"seconds": seconds, "outputs": [[number, [number]] for number in range(share, 6, shares)]}
            for share, seconds in enumerate(self.times[command])
        ]


def test_threads_are_used_in_two_ways() -> None:
    assert [str(each) for each in layouts(2)] == ["1×2", "2×1"]
    assert [str(each) for each in layouts(1)] == ["1×1"]
    assert [str(each) for each in layouts(4, 2)] == ["2×2"]


def test_the_fastest_layout_and_command_are_found_by_the_slowest_member() -> None:
    teams = [
        FakeTeam(Layout(1, 2), {"a": [2.0], "b": [1.0]}),
        FakeTeam(Layout(2, 1), {"a": [0.1, 1.5], "b": [0.7, 0.8]}),
    ]
    best = best_entry("x", teams, ["a", "b"], lines=8)
    assert (str(best.team.layout), best.command) == ("2×1", "b")
    race([best], rounds=3, what="x")
    assert best.rates == [10.0] * 3
    assert decoding_table([best], {"x": ("40.00", "3.0")})[2] == "| x | 2×1 | 10.0 | 10.0 – 10.0 | 40.00 | 3.0 |"


def test_lines_come_back_in_their_order() -> None:
    entry = Entry("x", FakeTeam(Layout(2, 1), {"a": [1.0, 1.0]}), "a", 6)
    assert outputs(entry, lambda output: str(output[0])) == ["0", "1", "2", "3", "4", "5"]


@pytest.mark.parametrize("length", [1, 7])
def test_forced_outputs_have_the_length_that_is_asked_for(length: int) -> None:
    model = Seq2SeqConfig(width=8, embedding_width=8).build(Symbols(12, 12, is_shared=True), seed=1).eval()
    decode_ours.force(model.stepper(), [[5, 6, END], [7, END]], beam=2, length=length)  # asserts it itself
    assert torch.is_grad_enabled()
