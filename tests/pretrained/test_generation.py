"""generation_config.json as search settings: what is taken over, what is reported, what is refused."""

import warnings
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seqloom.core.errors import ModelError, SeqloomWarning
from seqloom.pretrained.generation import search_settings
from seqloom.search.settings import SearchConfig

TRANSLATOR = {"model_type": "marian", "is_encoder_decoder": True, "eos_token_id": 0}
PUBLISHED = {
    "num_beams": 6,
    "max_length": 512,
    "bad_words_ids": [[58100]],
    "forced_eos_token_id": 0,
    "renormalize_logits": True,
    "decoder_start_token_id": 58100,
    "eos_token_id": 0,
    "pad_token_id": 58100,
    "transformers_version": "4.30.0",
}


def settings_of(generation: dict[str, Any], config: dict[str, Any] = TRANSLATOR, **more: Any) -> SearchConfig:
    return SearchConfig(**search_settings(generation, config, renumber=lambda symbol: [*range(58101)][symbol], **more))


def test_a_published_translator() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = settings_of(PUBLISHED)
    assert (found.mode, found.beam, found.never) == ("huggingface", 6, (58100,))
    assert (found.length_factor, found.length_constant) == (0.0, 511)
    assert found.peer_forced_end
    assert found.peer_renormalise
    # An old folder has the same in config.json, and its family forces an end unless it says otherwise.
    assert settings_of({}, {**PUBLISHED, **TRANSLATOR}) == found
    assert settings_of({}).peer_forced_end
    assert not settings_of({}, {**TRANSLATOR, "forced_eos_token_id": None}).peer_forced_end


def test_defaults_are_greedy_with_room_for_a_translation() -> None:
    found = settings_of({"eos_token_id": 0})
    assert (found.mode, found.beam, found.length_factor, found.length_constant) == ("huggingface", 1, 2.0, 50)
    # A table of positions bounds every output.
    bounded = settings_of({"eos_token_id": 0}, begins=2, positions=512)
    assert (bounded.length_factor, bounded.length_constant) == (0.0, 510)
    assert settings_of({"max_length": 4096}, begins=2, positions=512).length_constant == 510
    assert settings_of({"eos_token_id": 0}, {"model_type": "gpt2"}).length_constant == 200


def test_a_sampled_language_model() -> None:
    sampled = {"do_sample": True, "temperature": 0.6, "top_p": 0.9, "max_length": 10**30}
    found = settings_of(sampled, {"model_type": "llama"})
    assert (found.method, found.temperature, found.top_p, found.top_k) == ("sample", 0.6, 0.9, 50)
    assert (found.mode, found.length_constant) == ("seqloom", 10_000)


def test_what_has_no_counterpart_is_reported_with_its_value() -> None:
    unsupported = {
        "num_beams": 4,
        "typical_p": 0.5,
        "num_beam_groups": 1,
        "bad_words_ids": [[1, 2]],
        "penalty_alpha": 0.6,
    }
    with pytest.warns(SeqloomWarning) as caught:
        settings_of(unsupported)
    assert [str(each.message) for each in caught] == [
        "generation_config.json: not supported, so outputs may differ from transformers: typical_p=0.5; "
        "penalty_alpha=0.6; bad_words_ids with 1 of several symbols"
    ]


def test_symbols_that_contradict_the_model_are_reported() -> None:
    config = {**TRANSLATOR, "eos_token_id": 0, "decoder_start_token_id": 9}
    given = {"eos_token_id": [0, 5], "decoder_start_token_id": 9, "forced_eos_token_id": 0, "forced_bos_token_id": 7}
    with pytest.warns(
        SeqloomWarning, match=r"eos_token_id=\[0, 5\] \(the model uses 0.*forced_bos_token_id=7"
    ) as caught:
        search_settings(given, config, renumber=lambda symbol: symbol)
    assert "start" not in str(caught[0].message)
    assert "forced_eos" not in str(caught[0].message)


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ({"num_beams": 10**9}, r"num_beams=1000000000, which is not a number from 1 to 1,000"),
        ({"num_beams": True}, "num_beams=True"),
        ({"length_penalty": float("nan")}, "length_penalty=nan"),
        ({"early_stopping": "always"}, "early_stopping='always', which is not true or false"),
        ({"bad_words_ids": [[-1]]}, "bad_words_ids"),
        ({"bad_words_ids": [["a"]]}, "bad_words_ids"),
        ({"suppress_tokens": [99_999_999]}, "not a list of symbols of its vocabulary"),
        ({"max_length": "512"}, "max_length='512'"),
        ({"temperature": [1], "do_sample": True}, "temperature"),
    ],
)
def test_a_wrong_value_is_refused_by_name(option: dict[str, Any], message: str) -> None:
    with pytest.raises(ModelError, match=rf"generation_config.json has .*{message}"):
        settings_of(option)


NAMES = [*PUBLISHED, "do_sample", "temperature", "top_k", "top_p", "min_p", "suppress_tokens", "no_repeat_ngram_size"]
NAMES += ["repetition_penalty", "min_length", "max_new_tokens", "early_stopping", "length_penalty", "sequence_bias"]
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3) | st.sampled_from([1, 4, 0.5]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=2), inner, max_size=2),
    max_leaves=4,
)


@given(st.dictionaries(st.sampled_from(NAMES), VALUES, max_size=6))
@pytest.mark.filterwarnings("ignore::seqloom.core.errors.SeqloomWarning")
def test_any_values_are_valid_settings_or_a_model_error(options: dict[str, Any]) -> None:
    try:
        found = search_settings(options, TRANSLATOR, renumber=lambda symbol: [*range(50)][symbol])
    except ModelError:
        return
    SearchConfig(**found)
