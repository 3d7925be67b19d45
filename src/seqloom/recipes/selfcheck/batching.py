"""Batch size and padding change no token: each sentence by itself, and among others with padding that holds anything.

In float32 the sums of a product may be taken in another order when more rows are multiplied at once, which moves a
score by some 1e-6; hence two candidates within `TIE` may change places. In eight bits a last digit can turn a rounding
the other way: on a Transformer of width 128, 2 scores of 50 moved by some 2e-3, each by one token (up to 5e-3), the
others by less than 1e-6. Hence candidates within `ROUNDING` may change places there.
"""

import torch

from seqloom.core.errors import UsageError
from seqloom.nn.int8 import Int8Linear, Int8Output, with_int8
from seqloom.recipes.selfcheck.cases import Bench
from seqloom.recipes.selfcheck.findings import TIE, Finding, counted, judged, shown, within
from seqloom.recipes.selfcheck.ties import Agreement, agreement, rows_of
from seqloom.search.settings import Precision

ROUNDING = 1e-2
"""The tie of a search in eight bits: what two candidates may move by that are each off by such a rounding."""


def check_batches(bench: Bench) -> Finding:
    """In float32."""
    found = _compare(bench, "float32", tie=TIE)
    return _finding(found, is_kept=not found.breaks and found.drift <= TIE)


def check_int8_batches(bench: Bench) -> Finding:
    """In eight bits, where the model has products that are made so."""
    try:
        modules = list(with_int8(bench.translator.loaded.model).modules())
    except UsageError as error:
        return Finding("not applicable", str(error))
    rounded = sum(isinstance(module, Int8Linear | Int8Output) for module in modules)
    if not rounded:
        return Finding("not applicable", "no matrix of the model is large enough to be multiplied in eight bits")
    found = _compare(bench, "int8", tie=ROUNDING)
    narrow = sum(each.gap <= TIE for each in found.ties)
    return _finding(found, is_kept=not found.breaks, more={"matrices_in_8_bits": rounded, "ties_within_1e-4": narrow})


def _compare(bench: Bench, precision: Precision, *, tie: float) -> Agreement:
    settings = bench.settings.model_copy(update={"precision": precision})
    with torch.inference_mode():
        return agreement(rows_of(bench.alone), rows_of(bench.mixed), settings, tie=tie)


def _finding(found: Agreement, *, is_kept: bool, more: dict[str, int] | None = None) -> Finding:
    figures = {
        "sentences": found.compared,
        "changed": len(found.breaks),
        "ties": len(found.ties),
        "largest_score_change": found.drift,
        **(more or {}),
    }
    sentence = f"{counted(found.compared, 'sentence')} alone and in padded batches: "
    if found.breaks:
        sentence += f"{len(found.breaks):,} came out otherwise"
    elif not is_kept:
        sentence += f"the same tokens, but a score moved by {found.drift:.1e}, more than {TIE:g}"
    else:
        sentence += f"the same tokens, scores {within(found.drift)}"
    if found.ties:
        widest = max(each.gap for each in found.ties)
        sentence += f"; {counted(len(found.ties), 'tie')} decided otherwise, candidates at most {widest:.0e} apart"
    worst = str(found.widest) if found.widest else None
    if worst is None and found.drifted is not None:
        worst = f"the score of {shown(found.drifted)} moved by {found.drift:.1e}"
    return judged(is_kept, sentence, figures=figures, worst=worst)
