"""T5 1.0, T5 1.1 and mT5 against transformers: scores, cached steps, searches, and what config.json leaves open."""

import copy
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import seqloom
from generated import generated
from published_folders import write_t5_folder
from seqloom.core.errors import ModelError
from seqloom.core.stepping import Source
from seqloom.core.symbols import BEGIN, PAD
from seqloom.models.frames import FrameConfig
from seqloom.models.t5 import T5Config
from seqloom.models.transformer import Transformer
from seqloom.nn.embeddings import Symbols
from seqloom.pretrained.convert import PublishedModel
from seqloom.pretrained.families import Conversion
from seqloom.pretrained.mapping import exported, imported
from seqloom.pretrained.renumbering import Renumbering
from seqloom.pretrained.t5 import FAMILIES
from seqloom.search.peers.rules import rules_of
from seqloom.search.peers.search import peer_search

SYMBOLS, THEIR_END = 23, 1
SIZES = {
    "vocab_size": SYMBOLS,
    "d_model": 16,
    "d_kv": 6,
    "d_ff": 24,
    "num_layers": 2,
    "num_decoder_layers": 3,
    "num_heads": 3,
    "relative_attention_num_buckets": 8,
    "relative_attention_max_distance": 6,
    "decoder_start_token_id": 0,
    "dropout_rate": 0.0,
}
VERSIONS: dict[str, dict[str, Any]] = {
    "1.0": {},
    "1.1": {"feed_forward_proj": "gated-gelu", "tie_word_embeddings": False},
    "mt5": {},
}
FAMILY = {family.model_type: family for family in FAMILIES}


@dataclass(frozen=True)
class Tensors:
    """A state dict as the tensors of a folder."""

    by_name: Mapping[str, Tensor]

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self.by_name)

    def shape(self, name: str) -> tuple[int, ...]:
        return tuple(self.by_name[name].shape)

    def dtype(self, name: str) -> torch.dtype:
        return self.by_name[name].dtype

    def tensor(self, name: str) -> Tensor:
        return self.by_name[name]


@dataclass(frozen=True)
class Pair:
    """A model of theirs, and the same as ours."""

    theirs: Any
    ours: Transformer
    numbers: Renumbering
    conversion: Conversion

    def scores(self, source: Source, previous: Tensor) -> tuple[Tensor, Tensor]:
        """Both scores of all positions by foreign symbols: [batch, target, symbols]. The symbols given are ours."""
        lengths = torch.full((len(previous),), previous.shape[1])
        ours = self.ours.output(self.ours(source, previous, lengths)).view(*previous.shape, -1)
        return ours[..., torch.from_numpy(self.numbers.ours)], self.theirs(**self.inputs(source, previous)).logits

    def inputs(self, source: Source, previous: Tensor | None = None) -> dict[str, Tensor]:
        """In their ids."""
        foreign = torch.tensor(self.numbers.foreign)
        mask = torch.arange(source.ids.shape[1]) < source.lengths[:, None]
        given = {"input_ids": foreign[source.ids].where(mask, 0), "attention_mask": mask.long()}
        if previous is None:
            return given
        begun = foreign[previous].clone()
        begun[:, 0] = self.conversion.begins_with[0]
        return {**given, "decoder_input_ids": begun}


def published(version: str, *, double: bool = False, **settings: Any) -> Any:
    transformers = pytest.importorskip("transformers", reason="transformers is installed by `make parity`")
    torch.manual_seed(3)
    name = "MT5" if version == "mt5" else "T5"
    config = getattr(transformers, f"{name}Config")(**SIZES | VERSIONS[version] | settings)
    model = getattr(transformers, f"{name}ForConditionalGeneration")(config).eval()
    if version != "1.0":  # as published: the output has a table of its own, in variance about that of a tied one
        model.lm_head.weight = torch.nn.Parameter(torch.randn(SYMBOLS, 16))
    return model.double() if double else model


def config_of(model: Any) -> dict[str, Any]:
    return dict(model.config.to_dict())


def pair_of(theirs: Any, *, change: Callable[[T5Config], T5Config] = lambda model: model) -> Pair:
    """Our model with their weights, built from what their config says, `change`d."""
    stored = Tensors(theirs.state_dict())
    conversion = FAMILY[theirs.config.model_type].read(config_of(theirs), stored)
    numbers = Renumbering.of(conversion.roles, conversion.symbols)
    begin = tuple(int(numbers.ours[each]) for each in conversion.begins_with if each != "language")
    assert isinstance(conversion.model, T5Config)
    settings = conversion.model.model_copy(update={"absent": numbers.absent, "frame": FrameConfig(target_before=begin)})
    count = len(numbers.foreign)
    ours = change(settings).build(Symbols(count, count, is_shared=True), seed=1).eval().to(theirs.dtype)
    tensors = {map.ours: imported(map, stored.tensor, {"target": numbers}) for map in conversion.tensors}
    missing, unexpected = ours.load_state_dict(tensors, strict=False)
    tied = {"decoder.embedding.weight"} | ({"output.weight"} if settings.tying == "all" else set())
    assert set(missing) == tied
    assert not unexpected
    return Pair(theirs, ours, numbers, conversion)


def inputs(count: int = 3, *, seed: int = 5) -> Source:
    """Sentences of 1 to 10 symbols and their end, in our ids; long enough for the widest bucket."""
    generator = torch.Generator().manual_seed(seed)
    lengths = torch.randint(2, 12, (count,), generator=generator)
    lengths[0] = 11
    ids = torch.randint(4, SYMBOLS + 1, (count, 11), generator=generator)
    ids = ids.masked_fill(torch.arange(11) == lengths[:, None] - 1, 2)
    return Source(ids.masked_fill(torch.arange(11) >= lengths[:, None], PAD), lengths)


def targets(count: int = 3) -> Tensor:
    previous = torch.randint(4, SYMBOLS + 1, (count, 13), generator=torch.Generator().manual_seed(6))
    previous[:, 0] = BEGIN
    return previous


@pytest.mark.parity
@pytest.mark.parametrize("double", [False, True])
@pytest.mark.parametrize("version", VERSIONS)
def test_scores_equal_those_of_transformers(version: str, double: bool) -> None:
    pair, source, previous = pair_of(published(version, double=double)), inputs(), targets()
    with torch.no_grad():
        ours, theirs = pair.scores(source, previous)
        torch.testing.assert_close(ours, theirs, rtol=0, atol=5e-6 if double else 1e-5)
        assert theirs.std() > 0.3  # they differ from symbol to symbol
        expected, stepper = theirs.log_softmax(-1), pair.ours.stepper()
        state = stepper.start(source)
        for position, last in enumerate(previous.unbind(1)):
            step = stepper.step(state, last)
            state, log_probs = step.state, step.log_probs[:, torch.from_numpy(pair.numbers.ours)]
            torch.testing.assert_close(log_probs, expected[:, position], rtol=0, atol=5e-6 if double else 2e-5)


@pytest.mark.parity
@pytest.mark.parametrize("version", VERSIONS)
def test_every_tensor_comes_back_bit_by_bit(version: str) -> None:
    pair = pair_of(published(version))
    weights, stored = pair.ours.state_dict(), pair.theirs.state_dict()
    back: dict[str, Tensor] = {}
    for map in pair.conversion.tensors:
        rows = tuple(stored[name].shape[1 if map.is_transposed else 0] for name in map.theirs)
        tensors = exported(map, weights[map.ours], {"target": pair.numbers}, rows)
        back |= dict(zip(map.theirs, tensors, strict=True))
    copies = {"encoder.embed_tokens.weight", "decoder.embed_tokens.weight"} | ({"lm_head.weight"} - back.keys())
    assert back.keys() == stored.keys() - copies
    assert all(torch.equal(tensor, stored[name]) for name, tensor in back.items())


CONTROLS: dict[str, Callable[[T5Config], T5Config]] = {
    "output scaled the other way": lambda model: model.model_copy(update={"scaled_output": not model.scaled_output}),
    "exact gelu": lambda model: model.model_copy(update={"activation": "gelu"}),
    "begins with the end": lambda model: model.model_copy(update={"frame": FrameConfig(target_before=(2,))}),
    "another epsilon": lambda model: model.model_copy(update={"norm_epsilon": 1e-2}),
    "another farthest": lambda model: model.model_copy(update={"farthest": 12}),
}


@pytest.mark.parity
@pytest.mark.parametrize("change", [*CONTROLS, "divided by √d", "bias of the first layer only"])
def test_a_small_change_is_noticed(change: str) -> None:
    """The negative control: the comparison above can fail."""
    pair = pair_of(published("1.1"), change=CONTROLS.get(change, lambda model: model))
    if change == "divided by √d":
        for stack in (pair.ours.encoder, pair.ours.decoder):
            for layer in stack.layers:
                layer.self.scale = None
    elif change == "bias of the first layer only":
        for layer in pair.ours.encoder.layers[1:]:
            layer.register_forward_pre_hook(lambda _, given: (*given[:2], given[2].where(given[2].isinf(), 0.0)))
    with torch.no_grad():
        ours, theirs = pair.scores(inputs(), targets())
    assert (ours - theirs).abs().max() > 1e-3


def trained(theirs: Any) -> Any:
    """It has learned to copy, with some symbols left out: what comes next, and when to end, is uncertain."""
    model, pair = copy.deepcopy(theirs).train(), pair_of(theirs)
    optimiser = torch.optim.Adam(model.parameters(), lr=1e-2)
    for step in range(150):
        given = pair.inputs(inputs(32, seed=100 + step))
        ids, generator = given["input_ids"], torch.Generator().manual_seed(step)
        is_kept = (torch.rand(ids.shape, generator=generator) < 0.8) & (ids != 0) | (ids == THEIR_END)
        rows = [row[kept] for row, kept in zip(ids, is_kept, strict=True)]
        labels = torch.nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=-100)
        loss = model(**given, labels=labels).loss
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    return model.eval()


@pytest.mark.parity
@pytest.mark.parametrize("version", ["1.0", "1.1"])
def test_searches_equal_generate(version: str) -> None:
    """200 inputs, token for token, unless scores are as good as equal."""
    # Their cache has as many layers as the encoder.
    pair, source, limit = pair_of(trained(published(version, num_decoder_layers=2))), inputs(200), 14
    given = pair.inputs(source)
    foreign = torch.tensor(pair.numbers.foreign)
    for beam in (1, 4):
        rules = replace(rules_of("huggingface", 1.0), early_stopping=False)
        with torch.inference_mode():
            found = peer_search(pair.ours.stepper(), source, rules, beam=beam, nbest=1, limits=[limit] * 200)
            theirs = generated(pair.theirs, end=THEIR_END, written=1, **given, num_beams=beam, max_new_tokens=limit)
        ours = [foreign[torch.tensor(best.symbols, dtype=torch.long)].tolist() for (best,) in found]
        assert theirs.differing(ours, [best.score for (best,) in found]) == 0
        assert len(set(map(tuple, ours))) > 100


# What config.json and the weights say, without transformers.

PUBLISHED: dict[str, Any] = {**SIZES, "model_type": "t5", "eos_token_id": 1, "pad_token_id": 0}


def stored(*, output: Tensor | None = None, **more: Tensor) -> Tensors:
    table = torch.arange(SYMBOLS * 16.0).view(SYMBOLS, 16)
    named = {name.replace("_at_", "."): tensor for name, tensor in more.items()}
    return Tensors({"shared.weight": table, **({} if output is None else {"lm_head.weight": output}), **named})


def settings_of(tensors: Tensors, **config: Any) -> T5Config:
    family = FAMILY[config.get("model_type", "t5")]
    model = family.read({**PUBLISHED, **config}, tensors).model
    assert isinstance(model, T5Config)
    return model


def test_the_weights_decide_what_is_tied_and_the_config_what_is_scaled() -> None:
    table = stored().tensor("shared.weight")
    for other, tying in ((None, "all"), (table.clone(), "all"), (table + 1, "inputs")):
        for tied in (True, False):
            model = settings_of(stored(output=other), tie_word_embeddings=tied)
            assert (model.tying, model.scaled_output) == (tying, tied)
    assert settings_of(stored()).scaled_output
    assert not settings_of(stored(), scale_decoder_outputs=False, tie_word_embeddings=True).scaled_output
    assert not settings_of(stored(), model_type="mt5", tie_word_embeddings=True).scaled_output


def test_forms_of_the_feed_forward_layer() -> None:
    forms = {"relu": ("relu", False), "gated-gelu": ("gelu_tanh", True), "gated-silu": ("silu", True)}
    for named, expected in forms.items():
        model = settings_of(stored(), feed_forward_proj=named)
        assert (model.activation, model.gated) == expected
    assert settings_of(stored(), model_type="mt5").gated
    with pytest.raises(ModelError, match=r"feed_forward_proj='gated-tanh', which is not supported"):
        settings_of(stored(), feed_forward_proj="gated-tanh")


def test_instructions_of_the_config_are_offered_by_languages() -> None:
    tasks = {
        "summarization": {"prefix": "summarize: "},
        "translation_en_to_de": {"prefix": "translate English to German: ", "num_beams": 4},
        "translation_en_to_fr": {"prefix": 7},
        "translation_en_to_ro": None,
    }
    conversion = FAMILY["t5"].read({**PUBLISHED, "task_specific_params": tasks}, stored())
    assert conversion.instructions == {"en-de": "translate English to German: "}


def test_roles_of_madlad_and_of_t5() -> None:
    conversion = FAMILY["t5"].read({**PUBLISHED, "pad_token_id": 1, "eos_token_id": 2}, stored())
    assert conversion.roles.reserved() == (1, None, 2, 0)
    assert conversion.begins_with == (0,)
    assert FAMILY["t5"].read(PUBLISHED, stored()).roles.reserved() == (0, None, 1, 2)


def test_copies_of_the_table_are_ignored_if_they_are_equal() -> None:
    table = stored().tensor("shared.weight")
    same = stored(encoder_at_embed_tokens_at_weight=table.clone())
    assert any("embed_tokens" in pattern for pattern in FAMILY["t5"].read(PUBLISHED, same).ignored)
    with pytest.raises(ModelError, match=r"encoder\.embed_tokens\.weight differs from shared\.weight"):
        FAMILY["t5"].read(PUBLISHED, stored(encoder_at_embed_tokens_at_weight=table + 1))
    alone = Tensors({"decoder.embed_tokens.weight": table})  # what some files keep of equal tables
    assert FAMILY["t5"].read(PUBLISHED, alone).tensors[0].theirs == ("decoder.embed_tokens.weight",)


def test_a_folder_translates_with_the_instruction_of_its_config(tmp_path: Path) -> None:
    folder = write_t5_folder(tmp_path / "t5")
    before = sorted(folder.iterdir())
    model = seqloom.load(folder)
    frame = model.config.model.frame
    assert (frame.scheme, frame.target_before) == ("instructions", (PAD,))
    encode = model.tokenizers.source.encode
    assert [*frame.instructions["en-de"], *encode("Hello!")] == encode("translate English to German: Hello!")
    assert model.config.model.absent == (BEGIN,)
    with pytest.warns(UserWarning, match="maximum output length"):  # its weights are random
        assert len(seqloom.Translator.load(folder).translate(["Good morning!"])) == 1
    assert sorted(folder.iterdir()) == before


def test_languages_that_are_named_in_the_source(tmp_path: Path) -> None:
    pieces = ("<2de>", "<2en>", "<2fr>")
    folder = write_t5_folder(
        tmp_path / "madlad", pieces=pieces, task_specific_params=None, feed_forward_proj="gated-gelu"
    )
    published = PublishedModel.open(folder)
    frame = published.settings["model"]["frame"]
    assert frame["scheme"] == "named_in_source"
    assert {code: published.text.tokenizers.source.piece(number) for code, number in frame["languages"].items()} == {
        piece[2:-1]: piece for piece in pieces
    }


@pytest.mark.parametrize(
    ("name", "value"),
    [("d_model", 10**9), ("num_layers", -1), ("num_heads", "8"), ("d_kv", None), ("eos_token_id", 99), ("d_ff", 1.5)],
)
def test_absurd_settings_are_refused_by_name(name: str, value: Any) -> None:
    with pytest.raises(ModelError, match=rf"config\.json has {name}="):
        settings_of(stored(), **{name: value})
