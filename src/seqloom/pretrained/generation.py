"""How a published model is decoded: generation_config.json as settings of our search.

    num_beams                 beam                    1 if it is missing: greedy search, as in transformers
    length_penalty            peer_length_penalty
    early_stopping            peer_early_stopping
    max_length                length_constant         without the symbols that begin an output
    max_new_tokens            length_constant
    min_length                shortest_constant       without the symbols that begin an output
    min_new_tokens            shortest_constant
    forced_eos_token_id       peer_forced_end
    renormalize_logits        peer_renormalise
    forced_bos_token_id       peer_counts_begin       lengths count it
    no_repeat_ngram_size      no_repeat
    repetition_penalty        repetition_penalty
    bad_words_ids             never                   those of one symbol
    suppress_tokens           never
    num_return_sequences      nbest
    do_sample                 method=sample, with temperature, top_k, top_p and min_p

Old folders have the same keys in config.json. Symbols that begin an output (decoder_start_token_id, a language as
forced_bos_token_id) belong to the frame of a model, ends to its vocabulary. What has no counterpart is reported.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from seqloom.core.errors import ModelError, warn

MAX_OUTPUT = 10_000
"""Symbols of the longest output; a folder that allows more gets this."""

MAX_COUNT = 10**40
"""Some folders have a number of this size for "no limit"."""

TRANSLATION_LIMIT = {"length_factor": 2.0, "length_constant": 50}
"""The maximum output length of a translator that names none, where transformers would stop after 20 symbols."""

TEXT_LIMIT = {"length_factor": 0.0, "length_constant": 200}
"""The same for a language model, as for our own."""

DEFAULT_TOP_K = 50
"""What transformers samples from if a folder does not say."""

_FORCES_END = ("marian", "mbart", "pegasus")
"""Families whose outputs end at the maximum length unless config.json says otherwise."""

_UNUSED: Mapping[str, tuple[Any, ...]] = {
    "max_time": (),
    "stop_strings": (),
    "top_h": (),
    "typical_p": (1,),
    "epsilon_cutoff": (0,),
    "eta_cutoff": (0,),
    "encoder_repetition_penalty": (1,),
    "encoder_no_repeat_ngram_size": (0,),
    "exponential_decay_length_penalty": (),
    "begin_suppress_tokens": ([],),
    "forced_decoder_ids": ([],),
    "sequence_bias": ({}, []),
    "guidance_scale": (1,),
    "watermarking_config": (),
    "penalty_alpha": (0,),
    "dola_layers": (),
    "diversity_penalty": (0,),
    "num_beam_groups": (1,),
    "constraints": ([],),
    "force_words_ids": ([],),
}
"""Options that change outputs in transformers and have no counterpart here, with the values that change nothing."""


def search_settings(
    generation: Mapping[str, Any],
    config: Mapping[str, Any],
    *,
    renumber: Callable[[int], int],
    begins: int = 1,
    positions: int | None = None,
) -> dict[str, Any]:
    """Values for the section `search` of a model's settings.

    `generation` is generation_config.json, empty if there is none; then `config` is read. `renumber` gives our id of a
    foreign one. `begins` counts the symbols that are read before the first one that is written, `positions` those that
    an output can have with them. What is not supported is reported in one SeqloomWarning.
    """
    options = _Options(generation, "generation_config.json") if generation else _Options(config, "config.json")
    is_translator = config.get("is_encoder_decoder") is True
    default_end = config.get("eos_token_id") if not generation and config.get("model_type") in _FORCES_END else None
    beams = options.whole_number("num_beams", least=1, most=1_000, default=1)
    count = options.whole_number("num_return_sequences", least=1, most=100_000, default=1)
    is_sampled = options.flag("do_sample")
    penalty = options.real_number("repetition_penalty", least=1e-6, most=100.0, default=1.0)
    notes = [*options.unused(), *_contradictions(options, config, begins=begins)]
    found: dict[str, Any] = {
        "no_repeat": options.whole_number("no_repeat_ngram_size", least=0, most=1_000, default=0),
        "repetition_penalty": penalty,
        "nbest": count if is_sampled else min(count, beams),
        **_lengths(options, is_translator=is_translator, begins=begins, positions=positions),
    }
    never, phrases = _never(options, renumber)
    found["never"] = never
    if phrases:
        notes.append(f"bad_words_ids with {phrases:,} of several symbols")
    if is_sampled:
        found |= {
            "method": "sample",
            "temperature": options.real_number("temperature", least=0.0, most=100.0, default=1.0),
            "top_k": options.whole_number("top_k", least=0, most=MAX_COUNT, default=DEFAULT_TOP_K),
            "top_p": options.real_number("top_p", least=1e-9, most=1.0, default=1.0),
            "min_p": options.real_number("min_p", least=0.0, most=1.0, default=0.0),
        }
        if beams > 1:
            notes.append(f"num_beams={beams} together with do_sample=true")
    else:
        found |= {
            "mode": "huggingface",
            "beam": beams,
            "peer_length_penalty": options.real_number("length_penalty", least=-100.0, most=100.0, default=1.0),
            "peer_early_stopping": options.early_stopping(),
            "peer_forced_end": options.value("forced_eos_token_id", default=default_end) is not None,
            "peer_renormalise": options.flag("renormalize_logits"),
        }
        if begins > 1:  # a language that is forced there is a symbol that was written
            found["peer_counts_begin"] = True
    if penalty != 1 and (is_sampled or beams == 1):
        notes.append(f"repetition_penalty={penalty:g} on scores before the softmax (it is applied to log P)")
    if notes:
        warn(f"{options.file}: not supported, so outputs may differ from transformers: {'; '.join(notes)}")
    return found


@dataclass(frozen=True)
class _Options:
    """The options of a file, checked one by one."""

    values: Mapping[str, Any]
    file: str

    def value(self, name: str, default: Any = None) -> Any:
        return self.values.get(name, default)

    def whole_number(self, name: str, *, least: int, most: int, default: int) -> int:
        value = self.values.get(name)
        if value is None:
            return default
        if type(value) is not int or not least <= value <= most:
            raise self.wrong(name, f"a number from {least:,} to {most:,}")
        return value

    def real_number(self, name: str, *, least: float, most: float, default: float) -> float:
        value = self.values.get(name)
        if value is None:
            return default
        if isinstance(value, bool) or not isinstance(value, int | float) or not least <= value <= most:
            raise self.wrong(name, f"a number from {least:g} to {most:g}")
        return float(value)

    def flag(self, name: str) -> bool:
        value = self.values.get(name)
        if value is not None and not isinstance(value, bool):
            raise self.wrong(name, "true or false")
        return bool(value)

    def early_stopping(self) -> bool | str:
        return "never" if self.values.get("early_stopping") == "never" else self.flag("early_stopping")

    def symbols(self, name: str, value: Any, renumber: Callable[[int], int]) -> list[int]:
        """Our ids of a list of foreign ones."""
        if not isinstance(value, Sequence) or isinstance(value, str) or len(value) > MAX_OUTPUT:
            raise self.wrong(name, "a list of symbols")
        found = []
        for symbol in value:
            if type(symbol) is not int or symbol < 0:
                raise self.wrong(name, "a list of symbols")
            try:
                found.append(int(renumber(symbol)))
            except (IndexError, KeyError, ValueError, OverflowError):
                raise self.wrong(name, "a list of symbols of its vocabulary") from None
        return found

    def unused(self) -> list[str]:
        """Options that change outputs and are not supported, with their values."""
        return [
            f"{name}={_shown(self.values[name])}"
            for name, neutral in _UNUSED.items()
            if self.values.get(name) is not None and self.values[name] is not False and self.values[name] not in neutral
        ]

    def wrong(self, name: str, wanted: str) -> ModelError:
        return ModelError(f"{self.file} has {name}={_shown(self.values.get(name))}, which is not {wanted}")


def _contradictions(options: _Options, config: Mapping[str, Any], *, begins: int) -> list[str]:
    """Symbols that a translator begins or ends its outputs with in transformers, and not here."""
    if config.get("is_encoder_decoder") is not True:
        return []
    used = {"eos_token_id": config.get("eos_token_id"), "decoder_start_token_id": config.get("decoder_start_token_id")}
    used["forced_eos_token_id"] = used["eos_token_id"]
    found = []
    for name, own in used.items():
        given = options.value(name)
        if given is not None and own is not None and given not in (own, [own]):
            found.append(f"{name}={_shown(given)} (the model uses {_shown(own)}, from config.json)")
    if begins == 1 and options.value("forced_bos_token_id") is not None:
        found.append(f"forced_bos_token_id={_shown(options.value('forced_bos_token_id'))}")
    return found


def _lengths(options: _Options, *, is_translator: bool, begins: int, positions: int | None) -> dict[str, Any]:
    """The least and the maximum output length, end included."""
    longest = options.whole_number("max_new_tokens", least=1, most=MAX_COUNT, default=0)
    whole = options.whole_number("max_length", least=1, most=MAX_COUNT, default=0)
    shortest = options.whole_number("min_new_tokens", least=0, most=MAX_COUNT, default=0)
    shortest = max(shortest, options.whole_number("min_length", least=0, most=MAX_COUNT, default=0) - begins)
    found = dict(TRANSLATION_LIMIT if is_translator else TEXT_LIMIT)
    if longest or whole:
        found = {"length_factor": 0.0, "length_constant": min(MAX_OUTPUT, longest or max(1, whole - begins))}
    if positions is not None:
        most = max(1, positions - begins)
        constant = found["length_constant"] if longest or whole or not is_translator else most
        found = {"length_factor": 0.0, "length_constant": min(constant, most, MAX_OUTPUT)}
    # An end may be the symbol after the least ones.
    return {**found, "shortest_constant": min(shortest + 1, MAX_OUTPUT) if shortest > 0 else 0}


def _never(options: _Options, renumber: Callable[[int], int]) -> tuple[tuple[int, ...], int]:
    """Symbols that are never written, and how many phrases of several symbols are forbidden besides."""
    never: set[int] = set()
    phrases = 0
    ends = options.value("eos_token_id")
    ends = ends if isinstance(ends, list) else [ends]
    words = options.value("bad_words_ids")
    if words is not None:
        if not isinstance(words, list):
            raise options.wrong("bad_words_ids", "a list of lists of symbols")
        for word in words:
            symbols = options.symbols("bad_words_ids", word, renumber)
            if len(symbols) == 1 and word[0] not in ends:  # transformers never forbids an end so
                never.add(symbols[0])
            phrases += len(symbols) > 1
    suppressed = options.value("suppress_tokens")
    if suppressed is not None:
        never.update(options.symbols("suppress_tokens", suppressed, renumber))
    return tuple(sorted(never)), phrases


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}…"
