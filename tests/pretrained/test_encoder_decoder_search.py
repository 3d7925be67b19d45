"""Translations of published encoder-decoders that have learned a little: those of `generate`, token for token.

Where the scores of two translations are as good as equal, either is right.
"""

from typing import Any

import pytest
import torch
from torch import Tensor

from generated import Generated, generated
from pretrained.test_encoder_decoder import CASES, TARGET_LANGUAGE, Case, Pair, converted, padded, their_model
from seqloom.core.stepping import Source
from seqloom.core.symbols import END, PAD
from seqloom.pretrained.generation import search_settings
from seqloom.search.decode import decode
from seqloom.search.settings import SearchConfig

pytestmark = pytest.mark.parity

INPUTS, STEPS, LIMIT = 200, 150, 12


def texts(count: int, *, seed: int) -> list[list[int]]:
    """Random sentences of 1 to 8 symbols, in their ids."""
    generator = torch.Generator().manual_seed(seed)
    lengths = torch.randint(1, 9, (count,), generator=generator).tolist()
    return [torch.randint(4, 26, (length,), generator=generator).tolist() for length in lengths]


def their_source(case: Case, given: list[list[int]], config: Any) -> tuple[Tensor, Tensor]:
    end, pad = config.eos_token_id, config.pad_token_id
    return padded([[*case.before, *text, end, *case.after] for text in given], pad)


def trained(name: str) -> Pair:
    """A model that has learned to copy, with some symbols left out: what comes next, and when to end, is uncertain."""
    case = CASES[name]
    model = their_model(case)
    config, optimiser = model.config, torch.optim.Adam(model.parameters(), lr=5e-3)
    for step in range(STEPS):
        given, generator = texts(32, seed=100 + step), torch.Generator().manual_seed(step)
        ids, mask = their_source(case, given, config)
        is_kept = [(torch.rand(len(text), generator=generator) < 0.8).tolist() for text in given]
        kept = [[each for each, k in zip(text, ks, strict=True) if k] for text, ks in zip(given, is_kept, strict=True)]
        labels, _ = padded([[*case.begin[1:], *text, config.eos_token_id] for text in kept], -100)
        loss = model(input_ids=ids, attention_mask=mask, labels=labels).loss
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    return converted(case, model.eval())


@pytest.fixture(scope="module", params=["marian", "m2m100"])
def pair(request: pytest.FixtureRequest) -> Pair:
    return trained(request.param)


def options_of(pair: Pair) -> dict[str, Any]:
    """Those of a published OPUS-MT or M2M100 folder."""
    if pair.case.family.model_type == "m2m_100":
        return {"forced_bos_token_id": TARGET_LANGUAGE, "early_stopping": True, "length_penalty": 1.0}
    pad = pair.conversion.roles.pad
    return {"bad_words_ids": [[pad]], "forced_eos_token_id": pair.conversion.roles.end, "renormalize_logits": True}


def their_translations(pair: Pair, given: list[list[int]], options: dict[str, Any]) -> Generated:
    ids, mask = their_source(pair.case, given, pair.theirs.config)
    inputs = {"input_ids": ids, "attention_mask": mask}
    end, before = pair.conversion.roles.end, len(pair.case.begin) - 1
    assert end is not None
    return generated(pair.theirs, end=end, written=1, before=before, **inputs, **options)


def our_translations(
    pair: Pair, given: list[list[int]], options: dict[str, Any]
) -> tuple[list[list[int]], list[float]]:
    """Their symbols, and their scores."""
    source, target = pair.numbers["source"].ours, pair.numbers["target"]
    config = {"is_encoder_decoder": True, "model_type": pair.case.family.model_type}
    read = search_settings(
        options, config, renumber=lambda number: int(target.ours[number]), begins=len(pair.case.begin)
    )
    ids, mask = padded([[*(int(source[each]) for each in text), END] for text in given], PAD)
    with torch.inference_mode():
        found = decode(pair.ours.stepper(), Source(ids, mask.sum(1)), SearchConfig.model_validate(read))
    rows = [[target.foreign[symbol] for symbol in each[0].symbols] for each in found]
    return rows, [each[0].score for each in found]


@pytest.mark.parametrize("beams", [1, 4])
def test_translations_equal_those_of_generate(pair: Pair, beams: int) -> None:
    given = texts(INPUTS, seed=7)
    options = {**options_of(pair), "num_beams": beams, "max_length": LIMIT + len(pair.case.begin)}
    theirs = their_translations(pair, given, options)
    assert len({tuple(text) for text in theirs.rows}) > INPUTS / 2  # it has learned something
    assert any(len(text) < LIMIT for text in theirs.rows)
    assert theirs.differing(*our_translations(pair, given, options)) == 0


def test_another_beam_translates_differently(pair: Pair) -> None:
    """The negative control."""
    given = texts(INPUTS, seed=7)
    options = {**options_of(pair), "max_length": LIMIT + len(pair.case.begin)}
    ours = our_translations(pair, given, {**options, "num_beams": 1})
    assert their_translations(pair, given, {**options, "num_beams": 4}).differing(*ours) > 0
