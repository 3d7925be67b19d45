"""Peer modes against the peers themselves: n-best lists, token for token, from one trained model that all share."""

import copy
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, NamedTuple

import pytest
import torch

from models.test_marian_parity import PAD, SYMBOLS, copied
from models.test_marian_parity import theirs as marian  # noqa: F401 (a fixture)
from seqloom.core.stepping import Source, Stepper
from seqloom.core.symbols import END, RESERVED
from seqloom.interop.ctranslate2 import write_ctranslate2
from seqloom.models.transformer import Transformer
from seqloom.nn.blocks import sinusoids
from seqloom.search.hypothesis import Hypothesis
from seqloom.search.peers.rules import RULES, rules_of
from seqloom.search.peers.search import peer_search
from seqloom.search.settings import PeerMode

pytestmark = pytest.mark.parity

SENTENCES, BEAM, LIMIT = 500, 4, 12
STEPS = 150
NEAR = 1e-5
PIECES = [*RESERVED, *(f"s{symbol}" for symbol in range(len(RESERVED), SYMBOLS))]
OTHERS: tuple[PeerMode, ...] = ("fairseq", "marian", "sockeye", "joeynmt", "opennmt-py", "opennmt-lua")


class Found(NamedTuple):
    """A hypothesis as a peer gives it."""

    symbols: tuple[int, ...]
    score: float


def inputs(count: int = SENTENCES, *, seed: int = 11) -> Source:
    """Random sentences of 1 to 8 symbols and their end."""
    generator = torch.Generator().manual_seed(seed)
    lengths = torch.randint(2, 10, (count,), generator=generator)
    ids = torch.randint(4, SYMBOLS, (count, 9), generator=generator)
    positions = torch.arange(9)
    ids = ids.masked_fill(positions == lengths[:, None] - 1, END).masked_fill(positions >= lengths[:, None], PAD)
    return Source(ids, lengths)


def mismatches(ours: Sequence[Sequence[Hypothesis]], theirs: Sequence[Sequence[Found]]) -> int:
    """Sentences whose lists differ in a token, unless the scores there are as good as equal, or in a score."""
    count = 0
    for mine, other in zip(ours, theirs, strict=True):
        differs = len(mine) != len(other) or any(
            abs(hypothesis.score - found.score) > (10 * NEAR if hypothesis.symbols == found.symbols else NEAR)
            for hypothesis, found in zip(mine, other, strict=False)
        )
        count += differs
    return count


def ours(stepper: Stepper, source: Source, *, mode: PeerMode, alpha: float, **options: Any) -> list[list[Hypothesis]]:
    rules, limits = replace(rules_of(mode, alpha), **options), [LIMIT] * len(source.lengths)
    return peer_search(stepper, source, rules, beam=BEAM, nbest=BEAM, limits=limits)


def huggingface(
    model: Any, source: Source, *, alpha: float, early: bool | Literal["never"], forced: bool = False
) -> list[list[Found]]:
    found = model.generate(
        input_ids=source.ids,
        attention_mask=(source.ids != PAD).long(),
        num_beams=BEAM,
        num_return_sequences=BEAM,
        max_new_tokens=LIMIT,
        length_penalty=alpha,
        early_stopping=early,
        forced_eos_token_id=END if forced else None,
        do_sample=False,
        return_dict_in_generate=True,
        output_scores=True,
    )
    rows = [
        Found(_said(row), score)
        for row, score in zip(found.sequences[:, 1:].tolist(), found.sequences_scores.tolist(), strict=True)
    ]
    return [rows[first : first + BEAM] for first in range(0, len(rows), BEAM)]


def _said(row: Sequence[int]) -> tuple[int, ...]:
    """Up to the end; without one the sequence fills the whole row."""
    return tuple(row[: row.index(END)]) if END in row else tuple(row)


@pytest.fixture(scope="module")
def theirs(marian: Any) -> Any:  # noqa: F811
    """A model that has learned to copy, with some symbols left out: what comes next, and when to end, is uncertain."""
    model = copy.deepcopy(marian)
    with torch.no_grad():
        for stack in (model.model.encoder, model.model.decoder):  # so that the one model is shared by all three
            stack.embed_positions.weight.copy_(sinusoids(*stack.embed_positions.weight.shape))
    optimiser = torch.optim.Adam(model.parameters(), lr=5e-3)
    for step in range(STEPS):
        source = inputs(32, seed=100 + step)
        mask = (source.ids != PAD).long()
        loss = model(input_ids=source.ids, attention_mask=mask, labels=_thinned(source, seed=step)).loss
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    return model


def _thinned(source: Source, *, seed: int) -> torch.Tensor:
    """The same symbols, each left out with probability 0.2, and the end; −100 where there is nothing to learn."""
    generator = torch.Generator().manual_seed(seed)
    is_kept = (torch.rand(source.ids.shape, generator=generator) < 0.8) & (source.ids != PAD) | (source.ids == END)
    rows = [ids[kept] for ids, kept in zip(source.ids, is_kept, strict=True)]
    return torch.nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=-100)


@pytest.fixture(scope="module")
def stepper(theirs: Any) -> Stepper:
    return copied(theirs).stepper()


@pytest.mark.parametrize("early", [False, True, "never"])
@pytest.mark.parametrize("alpha", [0.0, 0.6, 1.0, 2.0, -0.5])
def test_huggingface(theirs: Any, stepper: Stepper, early: bool | Literal["never"], alpha: float) -> None:
    source = inputs()
    found = ours(stepper, source, mode="huggingface", alpha=alpha, early_stopping=early)
    assert mismatches(found, huggingface(theirs, source, alpha=alpha, early=early)) == 0


def test_huggingface_with_a_forced_end(theirs: Any, stepper: Stepper) -> None:
    source = inputs()
    found = ours(stepper, source, mode="huggingface", alpha=1.0, free_end=True)
    assert mismatches(found, huggingface(theirs, source, alpha=1.0, early=False, forced=True)) == 0
    assert mismatches(found, huggingface(theirs, source, alpha=1.0, early=False)) > 0


@pytest.mark.parametrize("mode", [*OTHERS, "ctranslate2"])
def test_no_other_mode_is_huggingface(theirs: Any, stepper: Stepper, mode: PeerMode) -> None:
    """The negative control: the comparison above notices any other rules."""
    source = inputs(40)
    found = ours(stepper, source, mode=mode, alpha=0.6)
    assert mismatches(found, huggingface(theirs, source, alpha=0.6, early=False)) > 0


@pytest.fixture(scope="module")
def exported(theirs: Any) -> Transformer:
    return copied(theirs).float()


@pytest.fixture(scope="module")
def engine(exported: Transformer, tmp_path_factory: pytest.TempPathFactory) -> Any:
    ctranslate2 = pytest.importorskip("ctranslate2", reason="ctranslate2 is installed by `make parity`")
    folder: Path = tmp_path_factory.mktemp("ctranslate2")
    write_ctranslate2(folder, exported, pieces=(PIECES, PIECES), quantization="none", positions=64)
    return ctranslate2.Translator(str(folder), compute_type="float32", intra_threads=1)


def ctranslate2_nbest(engine: Any, source: Source, *, alpha: float, patience: float, **more: int) -> list[list[Found]]:
    sentences = [
        [PIECES[symbol] for symbol in ids[: length - 1]]  # the engine adds the end
        for ids, length in zip(source.ids.tolist(), source.lengths.tolist(), strict=True)
    ]
    found = engine.translate_batch(
        sentences,
        beam_size=BEAM,
        num_hypotheses=BEAM,
        max_decoding_length=LIMIT,
        length_penalty=alpha,
        patience=patience,
        return_scores=True,
        **more,
    )
    return [
        [
            Found(tuple(PIECES.index(piece) for piece in pieces), score)
            for pieces, score in zip(each.hypotheses, each.scores, strict=True)
        ]
        for each in found
    ]


@pytest.mark.parametrize(("alpha", "patience"), [(0.0, 1.0), (0.6, 1.0), (1.0, 1.0), (1.0, 2.0), (-0.5, 1.0)])
def test_ctranslate2(exported: Transformer, engine: Any, alpha: float, patience: float) -> None:
    source = inputs()
    found = ours(exported.stepper(), source, mode="ctranslate2", alpha=alpha, patience=patience)
    assert mismatches(found, ctranslate2_nbest(engine, source, alpha=alpha, patience=patience)) == 0


def test_ctranslate2_with_a_minimum_length(exported: Transformer, engine: Any) -> None:
    source, limits = inputs(100), [LIMIT] * 100
    found = [
        peer_search(exported.stepper(), source, rules, beam=BEAM, nbest=BEAM, limits=limits)
        for rules in (replace(RULES["ctranslate2"], min_length=shortest) for shortest in (0, 4))
    ]
    for shortest, mine in zip((0, 4), found, strict=True):
        more = {"min_decoding_length": shortest}
        assert mismatches(mine, ctranslate2_nbest(engine, source, alpha=1.0, patience=1.0, **more)) == 0
    assert found[0] != found[1]


@pytest.mark.parametrize("mode", [*OTHERS, "huggingface"])
def test_no_other_mode_is_ctranslate2(exported: Transformer, engine: Any, mode: PeerMode) -> None:
    """The negative control, as above."""
    source = inputs(40)
    found = ours(exported.stepper(), source, mode=mode, alpha=0.6)
    assert mismatches(found, ctranslate2_nbest(engine, source, alpha=0.6, patience=1.0)) > 0
