"""Options of generation_config.json against transformers itself: the same outputs from one model that both share."""

from typing import Any

import pytest
import torch

from generated import Generated, generated
from models.test_marian_parity import PAD
from models.test_marian_parity import theirs as marian  # noqa: F401 (a fixture)
from search.test_peers_parity import BEAM, END, LIMIT, Found, _said, inputs, mismatches
from search.test_peers_parity import stepper as stepper
from search.test_peers_parity import theirs as theirs
from seqloom.core.stepping import Source, Stepper
from seqloom.pretrained.generation import search_settings
from seqloom.search.decode import decode
from seqloom.search.hypothesis import Hypothesis
from seqloom.search.settings import SearchConfig

pytestmark = pytest.mark.parity

COMMON = 7
"""A symbol of many outputs."""

OPTIONS: dict[str, dict[str, Any]] = {
    "beams": {"num_beams": 4, "length_penalty": 0.6, "early_stopping": True, "max_length": LIMIT + 1},
    "new_tokens": {"num_beams": 3, "early_stopping": "never", "max_new_tokens": 6, "length_penalty": 1.2},
    "published": {
        "num_beams": 4,
        "max_length": 8,
        "bad_words_ids": [[PAD], [COMMON]],
        "forced_eos_token_id": END,
        "renormalize_logits": True,
    },
    "not_renormalised": {"num_beams": 4, "max_length": 8, "bad_words_ids": [[PAD], [COMMON]], "min_length": 4},
    "suppressed": {"num_beams": 4, "suppress_tokens": [COMMON, 9], "min_new_tokens": 5, "max_new_tokens": LIMIT},
    "no_repeat": {"num_beams": 4, "no_repeat_ngram_size": 2, "max_new_tokens": LIMIT, "min_length": 9},
    "no_symbol_twice": {"num_beams": 2, "no_repeat_ngram_size": 1, "max_new_tokens": LIMIT},
    "repetition": {"num_beams": 4, "repetition_penalty": 2.5, "max_new_tokens": LIMIT, "min_length": 8},
    "greedy": {"max_new_tokens": LIMIT, "suppress_tokens": [COMMON], "no_repeat_ngram_size": 1},
}
CHANGES = {
    "beams": {"peer_early_stopping": False},
    "new_tokens": {"length_constant": 7},
    "published": {"peer_renormalise": False},
    "not_renormalised": {"peer_renormalise": True},
    "suppressed": {"never": (9,)},
    "no_repeat": {"no_repeat": 0},
    "no_symbol_twice": {"no_repeat": 2},
    "repetition": {"repetition_penalty": 1.5},
    "greedy": {"never": ()},
}
"""For each of them, a setting without which outputs differ."""


def their_outputs(model: Any, source: Source, options: dict[str, Any]) -> list[list[Found]] | Generated:
    """What transformers finds: lists of a beam, or what greedy search writes."""
    beams = options.get("num_beams", 1)
    inputs = {"input_ids": source.ids, "attention_mask": (source.ids != PAD).long()}
    options = {"forced_eos_token_id": None, **options}
    if beams == 1:
        return generated(model, end=END, written=1, **inputs, **options)
    found = model.generate(
        **inputs,
        num_return_sequences=beams,
        return_dict_in_generate=True,
        output_scores=True,
        do_sample=False,
        **options,
    )
    scores = found.sequences_scores.tolist()
    rows = [Found(_said(row), score) for row, score in zip(found.sequences[:, 1:].tolist(), scores, strict=True)]
    return [rows[first : first + beams] for first in range(0, len(rows), beams)]


def ours(stepper: Stepper, source: Source, settings: dict[str, Any]) -> list[list[Hypothesis]]:
    return decode(stepper, source, SearchConfig(**settings))


def are_equal(found: list[list[Hypothesis]], theirs: list[list[Found]] | Generated) -> bool:
    if isinstance(theirs, Generated):
        return theirs.differing([each.symbols for [each] in found], [each.score for [each] in found]) == 0
    return mismatches(found, theirs) == 0


@pytest.mark.parametrize("name", OPTIONS)
def test_an_option_gives_what_generate_gives(theirs: Any, stepper: Stepper, name: str) -> None:
    source, options = inputs(200, seed=5), OPTIONS[name]
    config = {"is_encoder_decoder": True}
    settings = search_settings({**options, "eos_token_id": END}, config, renumber=lambda symbol: symbol)
    settings["nbest"] = settings["beam"]
    wanted = their_outputs(theirs, source, options)
    with torch.inference_mode():
        assert are_equal(ours(stepper, source, settings), wanted)
        assert not are_equal(ours(stepper, source, {**settings, **CHANGES[name]}), wanted)
    # An old folder has the same options in config.json.
    assert search_settings({}, {**config, **options}, renumber=lambda symbol: symbol)["beam"] == settings["beam"]
    assert options.get("num_beams", 1) == settings["beam"] <= BEAM
