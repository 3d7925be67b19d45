"""Encoder-decoders as transformers wrote them, read by us: scores, steps, losses and gradients."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import pytest
import torch
from torch import Tensor

from seqloom.core.errors import ModelError
from seqloom.core.stepping import Source
from seqloom.core.symbols import BEGIN, END, PAD
from seqloom.models.frames import FrameConfig
from seqloom.models.transformer import Transformer, TransformerConfig
from seqloom.nn.embeddings import Symbols
from seqloom.pretrained.encoder_decoder import M2M100, MARIAN, MBART, PEGASUS
from seqloom.pretrained.families import Conversion, Family
from seqloom.pretrained.mapping import Side, imported
from seqloom.pretrained.renumbering import Renumbering
from seqloom.training.weights import load_weights

pytestmark = pytest.mark.parity

SYMBOLS, WIDTH, HEADS, INNER = 31, 16, 4, 32
SOURCE_LANGUAGE, TARGET_LANGUAGE = 27, 29
SIZES = {
    "vocab_size": SYMBOLS,
    "d_model": WIDTH,
    "encoder_layers": 2,
    "decoder_layers": 3,
    "encoder_attention_heads": HEADS,
    "decoder_attention_heads": HEADS,
    "encoder_ffn_dim": INNER,
    "decoder_ffn_dim": INNER,
    "max_position_embeddings": 40,
    "dropout": 0.0,
    "attention_dropout": 0.0,
    "activation_dropout": 0.0,
    "init_std": 0.2,  # weights that matter: with the usual 0.02 attention is all but uniform
    "encoder_layerdrop": 0.0,
    "decoder_layerdrop": 0.0,
}


@dataclass(frozen=True)
class Case:
    """A published model, and what it reads around texts, in its own ids."""

    family: Family
    config: str
    model: str
    settings: Mapping[str, Any]
    before: tuple[int, ...] = ()
    after: tuple[int, ...] = ()
    begin: tuple[int, ...] = ()
    exactness: float = 5e-6
    """In double precision; their sinusoids are in single precision."""


MARIAN_SYMBOLS = {"pad_token_id": 30, "eos_token_id": 0, "decoder_start_token_id": 30, "bos_token_id": None}
CASES = {
    "marian": Case(
        MARIAN,
        "MarianConfig",
        "MarianMTModel",
        {**MARIAN_SYMBOLS, "activation_function": "swish", "scale_embedding": True},
        begin=(30,),
    ),
    "marian, two vocabularies": Case(
        MARIAN,
        "MarianConfig",
        "MarianMTModel",
        {
            **MARIAN_SYMBOLS,
            "vocab_size": 37,
            "decoder_vocab_size": SYMBOLS,
            "share_encoder_decoder_embeddings": False,
            "activation_function": "relu",
        },
        begin=(30,),
    ),
    "marian, four tables": Case(
        MARIAN,
        "MarianConfig",
        "MarianMTModel",
        {**MARIAN_SYMBOLS, "tie_word_embeddings": False, "activation_function": "gelu"},
        begin=(30,),
    ),
    "m2m100": Case(
        M2M100,
        "M2M100Config",
        "M2M100ForConditionalGeneration",
        {"d_model": 20, "scale_embedding": True},
        before=(SOURCE_LANGUAGE,),
        begin=(2, TARGET_LANGUAGE),
    ),
    "mbart": Case(
        MBART,
        "MBartConfig",
        "MBartForConditionalGeneration",
        {"scale_embedding": True},
        after=(SOURCE_LANGUAGE,),
        begin=(TARGET_LANGUAGE,),
        exactness=1e-10,
    ),
    "mbart-50": Case(
        MBART,
        "MBartConfig",
        "MBartForConditionalGeneration",
        {"decoder_start_token_id": 2, "activation_function": "relu"},
        before=(SOURCE_LANGUAGE,),
        begin=(2, TARGET_LANGUAGE),
        exactness=1e-10,
    ),
    "pegasus": Case(
        PEGASUS,
        "PegasusConfig",
        "PegasusForConditionalGeneration",
        {"activation_function": "gelu_new", "scale_embedding": True},
        begin=(0,),
    ),
}


@dataclass(frozen=True)
class Stored:
    """The tensors that transformers would save, without those that it ties."""

    tensors: Mapping[str, Tensor]

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self.tensors)

    def shape(self, name: str) -> tuple[int, ...]:
        return tuple(self.tensors[name].shape)

    def dtype(self, name: str) -> torch.dtype:
        return self.tensors[name].dtype

    def tensor(self, name: str) -> Tensor:
        return self.tensors[name]


@dataclass(frozen=True)
class Pair:
    """Their model, the same one as ours, and its symbols."""

    case: Case
    theirs: Any
    conversion: Conversion
    numbers: Mapping[Side, Renumbering]
    ours: Transformer

    def batch(self) -> "Batch":
        """Texts of random symbols, in both numberings: with padding, of odd lengths, one of them without symbols."""
        generator = torch.Generator().manual_seed(5)
        lengths, target_lengths = (6, 0, 3, 1), (4, 7, 1, 2)
        texts = [torch.randint(4, 26, (length,), generator=generator).tolist() for length in lengths]
        targets = [torch.randint(4, 26, (length,), generator=generator).tolist() for length in target_lengths]
        case, end, pad = self.case, self.conversion.roles.end, self.conversion.roles.pad
        sources = [[*case.before, *text, end, *case.after] for text in texts]
        read = [[*case.begin, *target] for target in targets]
        source, target = self.numbers["source"].ours, self.numbers["target"].ours
        ids, _ = padded([[*(int(source[each]) for each in text), END] for text in texts], PAD)
        previous, _ = padded([[BEGIN, *(int(target[each]) for each in text)] for text in targets], PAD)
        return Batch(
            source=Source(ids, torch.tensor(lengths) + 1),
            previous=previous,
            lengths=torch.tensor(target_lengths) + 1,
            their_source=padded(sources, pad or 0),
            their_previous=padded(read, pad or 0)[0],
        )

    def their_scores(self) -> Tensor:
        """Scores of the callers' positions in our numbering: [batch, target, symbols]."""
        batch = self.batch()
        ids, mask = batch.their_source
        found = self.theirs(
            input_ids=ids, attention_mask=mask, decoder_input_ids=batch.their_previous, use_cache=False
        ).logits
        own = found[:, len(self.case.begin) - 1 :]
        absent = own.new_full((*own.shape[:2], 1), float("-inf"))
        return torch.cat([own, absent], 2)[:, :, torch.tensor(self.numbers["target"].foreign)]


@dataclass(frozen=True)
class Batch:
    source: Source
    previous: Tensor
    lengths: Tensor
    their_source: tuple[Tensor, Tensor]
    their_previous: Tensor


def padded(rows: list[list[int]], pad: int) -> tuple[Tensor, Tensor]:
    longest = max(map(len, rows))
    ids = torch.tensor([row + [pad] * (longest - len(row)) for row in rows])
    return ids, torch.tensor([[1] * len(row) + [0] * (longest - len(row)) for row in rows])


def their_model(case: Case) -> Any:
    transformers = pytest.importorskip("transformers", reason="transformers is installed by `make parity`")
    torch.manual_seed(3)
    config = getattr(transformers, case.config)(**{**SIZES, **case.settings})
    model = getattr(transformers, case.model)(config)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.requires_grad and "embed_positions" not in name:
                parameter.add_(0.05 * torch.randn_like(parameter))  # biases and norms too
        if hasattr(model, "final_logits_bias"):
            model.final_logits_bias.normal_()
    return model.eval()


def stored_tensors(model: Any) -> Stored:
    first: dict[int, str] = {}
    names = {name: first.setdefault(tensor.data_ptr(), name) for name, tensor in model.state_dict().items()}
    return Stored({name: model.state_dict()[name] for name in dict.fromkeys(names.values())})


def converted(
    case: Case, theirs: Any, *, change: Callable[[TransformerConfig], TransformerConfig] = lambda config: config
) -> Pair:
    stored = stored_tensors(theirs)
    conversion = case.family.read(json.loads(theirs.config.to_json_string()), stored)
    roles = replace(conversion.roles, unknown=3)
    target = Renumbering.of(roles, conversion.symbols)
    source = target
    if conversion.source_symbols is not None:
        source = Renumbering.of(roles, conversion.source_symbols)
    numbers: dict[Side, Renumbering] = {"source": source, "target": target}
    assert isinstance(conversion.model, TransformerConfig)
    frame = FrameConfig(
        source_before=tuple(int(source.ours[each]) for each in case.before),
        source_after=tuple(int(source.ours[each]) for each in case.after),
        target_before=tuple(int(target.ours[each]) for each in case.begin),
    )
    settings = change(conversion.model.model_copy(update={"absent": target.absent, "frame": frame}))
    symbols = Symbols(len(source.foreign), len(target.foreign), is_shared=conversion.source_symbols is None)
    ours = settings.build(symbols, seed=1).eval()
    load_weights(
        ours, {each.ours: imported(each, stored.tensor, numbers) for each in conversion.tensors}, origin="theirs"
    )
    return Pair(case, theirs, conversion, numbers, ours)


def our_scores(pair: Pair) -> Tensor:
    """Scores of the real target positions, sentence after sentence."""
    batch = pair.batch()
    return pair.ours.output(pair.ours(batch.source, batch.previous, batch.lengths))  # type: ignore[no-any-return]


def their_packed(pair: Pair) -> Tensor:
    rows = zip(pair.their_scores(), pair.batch().lengths.tolist(), strict=True)
    return torch.cat([row[:length] for row, length in rows])


@pytest.mark.parametrize("name", CASES)
@torch.inference_mode()
def test_scores_equal_theirs(name: str) -> None:
    case = CASES[name]
    pair = converted(case, their_model(case))
    torch.testing.assert_close(our_scores(pair), their_packed(pair), rtol=0, atol=1e-5)
    pair.theirs.double()
    pair.ours.double()
    torch.testing.assert_close(our_scores(pair), their_packed(pair), rtol=0, atol=case.exactness)


@pytest.mark.parametrize("precision", ["float32", "float32 in a batch", "float64"])
@pytest.mark.parametrize("name", CASES)
@torch.inference_mode()
def test_steps_equal_theirs(name: str, precision: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """One by one: as one compiled call, by the plan of the layers, and by the layers themselves."""
    case = CASES[name]
    pair = converted(case, their_model(case))
    if precision == "float64":
        pair.theirs.double()
        pair.ours.double()
    stepper, batch = pair.ours.stepper(attention=precision == "float64"), pair.batch()
    if precision == "float32 in a batch":
        monkeypatch.setattr(stepper, "compiled", None)
    assert precision == "float64" or name == "m2m100" or stepper.plan is not None
    expected = pair.their_scores().log_softmax(-1)
    state = stepper.start(batch.source)
    for position, last in enumerate(batch.previous.unbind(1)):
        step = stepper.step(state, last)
        state = step.state
        real = batch.lengths > position
        tolerance = 1e-5 if precision != "float64" else case.exactness
        torch.testing.assert_close(step.log_probs[real], expected[real, position], rtol=0, atol=tolerance)
        if step.attention is not None:
            assert step.attention.shape == batch.source.ids.shape


CHANGES: Mapping[str, tuple[str, dict[str, Any]]] = {
    "activation": ("marian", {"activation": "gelu"}),
    "layout of the sinusoids": ("marian", {"sinusoids": "alternating"}),
    "scale": ("marian", {"scale_embeddings": False}),
    "rates": ("m2m100", {"sinusoids": "halves"}),
    "first position": ("m2m100", {"first_position": 1}),
    "the language of the target": ("m2m100", {"frame": FrameConfig(target_before=(END,))}),
    "tanh": ("pegasus", {"activation": "gelu"}),
}


@pytest.mark.parametrize("change", CHANGES)
@torch.inference_mode()
def test_a_wrong_setting_is_noticed(change: str) -> None:
    """The negative control: the comparisons above can fail."""
    name, settings = CHANGES[change]
    case = CASES[name]
    pair = converted(case, their_model(case), change=lambda config: config.model_copy(update=settings))
    ours, theirs = our_scores(pair), their_packed(pair)
    is_real = theirs.isfinite()
    assert (ours[is_real] - theirs[is_real]).abs().max() > 1e-4


@torch.inference_mode()
def test_positions_of_mbart_are_counted_from_two() -> None:
    """The negative control of its table."""
    case = CASES["mbart"]
    pair = converted(case, their_model(case))
    pair.ours.decoder.positions.weight.copy_(pair.ours.decoder.positions.weight.roll(1, 0))  # type: ignore[attr-defined]
    difference = (our_scores(pair) - their_packed(pair)).abs()
    assert difference[difference.isfinite()].max() > 1e-2
    with pytest.raises(ModelError, match="a text of 41 tokens does not fit"):
        pair.ours.encode(Source(torch.full((1, 40), 5), torch.tensor([40])))


def test_tying_is_decided_by_the_file() -> None:
    """A table that differs is one of its own, whatever config.json says; a copy is the same one."""
    case = CASES["marian"]
    theirs = their_model(case)
    stored, config = stored_tensors(theirs), json.loads(theirs.config.to_json_string())
    shared = stored.tensor("model.shared.weight")

    def read(**tables: Tensor) -> Conversion:
        names = {"encoder": "model.encoder.embed_tokens.weight", "decoder": "model.decoder.embed_tokens.weight"}
        added = {names.get(name, "lm_head.weight"): table for name, table in tables.items()}
        return case.family.read(config, Stored({**stored.tensors, **added}))

    assert read(encoder=shared.clone(), decoder=shared.clone(), output=shared.clone()).model.tying == "all"  # type: ignore[attr-defined]
    assert read(output=shared + 1).model.tying == "inputs"  # type: ignore[attr-defined]
    assert read(encoder=shared + 1).model.tying == "output"  # type: ignore[attr-defined]
    assert read(decoder=shared + 1, output=shared + 2).model.tying == "none"  # type: ignore[attr-defined]
    with pytest.raises(ModelError, match=r"lm_head\.weight has the shape"):
        read(output=shared[:-1])


def test_a_training_step_has_their_loss_and_gradients() -> None:
    case = CASES["marian"]
    pair = converted(case, their_model(case).double())
    pair.ours.double()
    batch, numbers = pair.batch(), pair.numbers["target"]
    labels = torch.tensor([[*row[1:], END] for row in batch.previous.tolist()])  # [batch, target]
    wanted = []
    for row, length in enumerate(batch.lengths.tolist()):
        labels[row, length - 1] = END
        wanted += labels[row, :length].tolist()
        labels[row, length:] = -1
    foreign = torch.tensor([*numbers.foreign, -100])[labels]
    ids, mask = batch.their_source
    theirs = pair.theirs(input_ids=ids, attention_mask=mask, labels=foreign).loss
    features = pair.ours(batch.source, batch.previous, batch.lengths)
    ours = pair.ours.output.cross_entropy(features, torch.tensor(wanted)) / len(wanted)
    torch.testing.assert_close(ours, theirs, rtol=0, atol=5e-6)
    ours.backward()  # type: ignore[no-untyped-call]
    theirs.backward()
    parameters = dict(pair.theirs.named_parameters())
    found = dict(pair.ours.named_parameters())
    for each in pair.conversion.tensors:
        if each.ours == "output.bias":  # they do not train it
            continue
        expected = imported(each, lambda name: parameters[name].grad, pair.numbers)
        actual = found[each.ours].grad
        assert actual is not None
        assert expected.abs().max() > 0
        torch.testing.assert_close(
            actual, expected, rtol=0, atol=5e-6, msg=lambda text, name=each.ours: f"{name}: {text}"
        )
