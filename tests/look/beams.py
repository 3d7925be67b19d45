"""Beam searches over tables, and their trees."""

from typing import Any

from search.steppers import Bigram, Grammar, History, sentences
from seqloom.core.stepping import Stepper
from seqloom.look.beam_tree import BeamTree, lay_out
from seqloom.search.beam import beam_search
from seqloom.search.hypothesis import Hypothesis
from seqloom.search.settings import SearchConfig
from seqloom.search.trace import Recorder, Trace

GOLDEN = Grammar(
    ["<s>", "</s>", "我", "爱", "喜欢", "你", "他"],
    {
        "<s>": {"我": 0.6, "爱": 0.4},
        "我": {"你": 0.4, "他": 0.3, "喜欢": 0.3},
        "爱": {"你": 0.9, "他": 0.1},
        "你": {"</s>": 1.0},
        "他": {"</s>": 1.0},
        "喜欢": {"</s>": 1.0},
    },
    begin="<s>",
    end="</s>",
)
"""Greedy search takes 我 (0.6) and ends with 我你, 0.24; beam 2 finds 爱你, 0.36, which is behind at the first step."""


def searched(
    stepper: Stepper | None = None, *, seed: int = 1, length: int = 5, **settings: Any
) -> tuple[Trace, list[Hypothesis]]:
    """What a search records of its candidates, and what it returns."""
    recorder = Recorder()
    chosen = SearchConfig(**{"length_factor": 0.0, "length_constant": 12, **settings})
    (found,) = beam_search(stepper or History(9, seed=seed), sentences([length], seed=seed), chosen, recorder=recorder)
    return recorder.traces(1)[0], found


def tree_of(trace: Trace, found: list[Hypothesis], *, end: int = 2, pruned: int = 2) -> BeamTree:
    """Its tree, with symbols that are written as numbers."""
    return lay_out(
        trace,
        found,
        piece=lambda symbol: f"▁{symbol}",
        text=lambda ids: " ".join(map(str, ids)),
        pruned=pruned,
        end=end,
    )


def golden(beam: int) -> BeamTree:
    """The tree of the golden case."""
    trace, found = searched(GOLDEN, beam=beam, nbest=1, length_normalisation="none")
    return lay_out(trace, found, piece=GOLDEN.names.__getitem__, text=_golden_text, end=GOLDEN.end)


def _golden_text(ids: Any) -> str:
    return "".join(GOLDEN.names[symbol] for symbol in ids)


def long_search() -> BeamTree:
    """Beam 4 over twelve steps that never end by themselves: as full as a tree of this size gets."""
    stepper = Bigram(40, seed=3)
    stepper.table[:, :, stepper.end] = -30.0
    return tree_of(*searched(stepper, beam=4, nbest=4, length_constant=12))
