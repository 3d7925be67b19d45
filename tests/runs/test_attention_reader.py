"""The attention of what a search found, read in one pass after it, is that of the steps of the search."""

import copy
from collections.abc import Sequence
from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn

import seqloom.runs.translator as core
from seqloom.apps.alignments import align_parts
from seqloom.apps.request import Request
from seqloom.apps.translator import Translator
from seqloom.core.errors import UsageError
from seqloom.core.stepping import Source, Stepper
from seqloom.core.symbols import END
from seqloom.models.seq2seq import Seq2SeqConfig
from seqloom.models.transformer import TransformerConfig
from seqloom.nn.embeddings import Symbols
from seqloom.runs.train import Trained
from seqloom.runs.translator import AttentionReader, Part, attention_of, model_stepper, source_batch
from seqloom.search.decode import decode
from seqloom.search.ensemble import Ensemble
from seqloom.search.greedy import forced_search
from seqloom.search.hypothesis import Hypothesis
from seqloom.search.settings import SearchConfig
from seqloom.text.tags import take_out

SYMBOLS = Symbols(source=15, target=15, is_shared=True)
CPU = torch.device("cpu")
SOURCES = [[7, 4, 9, 5, END], [6, END], [8, 8, 10, 4, 5, 6, 11, END], [5, 12, 4, END], [9, 9, END]]


def transformer(seed: int = 1, **settings: object) -> nn.Module:
    small: dict[str, object] = {"width": 8, "heads": 2, "encoder_layers": 1, "decoder_layers": 2, "feed_forward": 12}
    return louder(TransformerConfig.model_validate(small | settings).build(SYMBOLS, seed=seed))


def recurrent(seed: int = 1, **settings: object) -> nn.Module:
    small: dict[str, object] = {"width": 6, "embedding_width": 6, "encoder_layers": 1}
    return louder(Seq2SeqConfig.model_validate(small | settings).build(SYMBOLS, seed=seed))


def louder(model: nn.Module) -> nn.Module:
    """With weights large enough that attention is far from uniform."""
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(2.0)
    return model.eval()


def part(ids: list[int]) -> Part:
    return Part(0, "", ids, 0)


def by_steps(stepper: Stepper, sources: Sequence[list[int]] = SOURCES) -> list[Hypothesis]:
    """Hypotheses of all sorts, with the attention of each step: empty, of many lengths, half of them cut."""
    generator = torch.Generator().manual_seed(5)
    targets = [torch.randint(4, 15, (2 * place,), generator=generator).tolist() for place in range(len(sources))]
    found = forced_search(stepper, source_batch(sources, CPU), targets, settings=SearchConfig())
    cut = [replace(each, is_finished=False, token_log_probs=each.token_log_probs[:-1]) for each in found]
    cut = [replace(each, attention=None if each.attention is None else each.attention[:-1]) for each in cut]
    return [each for pair in zip(found, cut, strict=True) for each in pair]


def read(reader: AttentionReader, expected: Sequence[Hypothesis]) -> list[Tensor | None]:
    """The attention that the reader gives to hypotheses, two for each source."""
    bare = [replace(each, attention=None) for each in expected]
    found = [bare[at : at + 2] for at in range(0, len(bare), 2)]
    needed = [(at, rank) for at in range(len(found)) for rank in range(2)]
    return [each.attention for both in reader([*map(part, SOURCES)], found, needed) for each in both]


def differences(expected: Sequence[Hypothesis], found: Sequence[Tensor | None]) -> list[float]:
    """The largest difference of each hypothesis; a cut one without symbols has nothing to compare."""
    result = []
    for hypothesis, attention in zip(expected, found, strict=True):
        if not hypothesis.token_log_probs:
            assert attention is None
            continue
        assert attention is not None
        assert hypothesis.attention is not None
        assert attention.shape == hypothesis.attention.shape
        result.append(float((attention - hypothesis.attention).abs().max()))
    return result


MODELS = [
    *(transformer(positions=each) for each in ("sinusoidal", "concatenated", "learned", "shaw", "bias", "none")),
    transformer(norm="after"),
    *(recurrent(attention=score) for score in ("dot", "bilinear", "additive")),
    *(recurrent(query=query, input_feeding=True) for query in ("current", "previous")),
    recurrent(query="previous", attention="additive", cell="gru"),
    recurrent(context="first", decoder_layers=1),
    recurrent(context="every", skip="residual"),
]


@pytest.mark.parametrize("model", MODELS)
def test_one_pass_equals_the_steps(model: nn.Module) -> None:
    double = copy.deepcopy(model).double()
    for heads in ("mean", "max", "0/1", "1/0") if model is MODELS[0] else ("mean",):
        settings = SearchConfig(heads=heads, tokens_per_batch=16)
        expected = by_steps(model_stepper(model, attention=True, heads=heads))
        found = read(AttentionReader([model], CPU, settings), expected)
        assert max(differences(expected, found)) < 1e-5
        exact = by_steps(model_stepper(double, attention=True, heads=heads))
        assert max(differences(exact, read(AttentionReader([double], CPU, settings), exact))) < 1e-12
        # Other symbols attend elsewhere, so that a pass over the wrong ones would be seen.
        turned = [replace(each, symbols=each.symbols[::-1]) for each in expected]
        others = read(AttentionReader([model], CPU, settings), turned)
        assert max(differences(expected, others)) > 1e-2


def test_several_models_give_the_mean_of_those_that_attend() -> None:
    models = [transformer(seed=1), recurrent(seed=2), recurrent(seed=3, attention="none")]
    expected = by_steps(Ensemble([model_stepper(model, attention=True) for model in models]))
    assert max(differences(expected, read(AttentionReader(models, CPU, SearchConfig()), expected))) < 1e-5
    alone = read(AttentionReader(models[:1], CPU, SearchConfig()), expected)
    assert max(differences(expected, alone)) > 1e-2
    nobody = read(AttentionReader(models[2:], CPU, SearchConfig()), expected)
    assert nobody == [None] * len(expected)


class Stepped(nn.Module):
    """A model of somebody else, whose attention its steps give."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def stepper(self, *, attention: bool = False) -> Stepper:
        return model_stepper(self.model, attention=attention)


@pytest.mark.parametrize("way", ["outside", "long"])
def test_a_model_from_outside_and_a_long_hypothesis_are_read_step_by_step(
    way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = transformer()
    sizes: list[int] = []
    one_pass = type(model).teacher_forced_attention  # type: ignore[attr-defined]

    def counted(self: nn.Module, source: Source, previous: Tensor, lengths: Tensor, *, heads: str) -> Tensor:
        sizes.append(source.ids.shape[1] * previous.numel())
        return one_pass(self, source, previous, lengths, heads=heads)  # type: ignore[no-any-return]

    monkeypatch.setattr(type(model), "teacher_forced_attention", counted)
    expected = by_steps(model_stepper(model, attention=True))
    if way == "long":
        monkeypatch.setattr(core, "MAX_ATTENTION_PAIRS", 30)
    reader = AttentionReader([Stepped(model) if way == "outside" else model], CPU, SearchConfig())
    assert max(differences(expected, read(reader, expected))) < 1e-5
    assert all(size <= 30 for size in sizes)
    assert bool(sizes) is (way == "long")  # what fits is still read in one pass


def test_heads_that_a_model_does_not_have_are_refused_before_the_search() -> None:
    with pytest.raises(UsageError, match=r"search.heads=7/0 is not in this model"):
        AttentionReader([transformer()], CPU, SearchConfig(heads="7/0"))


# --- in a translator --------------------------------------------------------------------------------------------------

LINES = [
    "The cat sleeps.",
    "My <b>old</b> dog reads {0}.",
    "",
    "Where is the house? It sings.",
    "A zebra & <i>cat</i>.",
]


@pytest.fixture(scope="module")
def translator(tiny: Trained) -> Translator:
    return Translator.load(tiny.run / "model")


@pytest.mark.parametrize(
    "changes",
    [
        {"beam": 3, "nbest": 2},
        {"method": "sample", "nbest": 2, "split": "sentences", "seed": 3},
        {"beam": 2, "split": "sentences", "length_factor": 0.5, "length_constant": 0, "length_overrun": 1.0},
        {"beam": 2, "coverage": 0.2},
    ],
)
def test_links_are_those_of_a_search_that_returns_its_attention(
    translator: Translator, changes: dict[str, object]
) -> None:
    settings = translator.loaded.search_settings(SearchConfig(**{**translator.config.search.model_dump(), **changes}))  # type: ignore[arg-type]
    tokenizers, model = translator.tokenizers, translator.loaded.model
    found = translator.run(LINES, Request(settings, align=True))
    for number, (line, translations) in enumerate(zip(LINES, found, strict=True)):
        parts = core.make_parts([line], tokenizers.source, limit=translator.longest, split=settings.split, first=number)
        with torch.inference_mode():
            stepper, keys = model_stepper(model, attention=True), [each.key for each in parts]
            lists = (
                decode(stepper, source_batch([each.ids for each in parts], CPU), settings, keys=keys) if parts else []
            )
        for rank, translation in enumerate(translations):
            by_part = [hypotheses[rank] for hypotheses in lists]
            assert [each.symbols for each in translation.hypotheses] == [each.symbols for each in by_part]
            words = [attention_of(*pair, tokenizers) for pair in zip(parts, by_part, strict=True)]
            assert translation.alignment is not None
            assert translation.alignment.links == align_parts(words, [0] * len(words)).links


def test_only_hypotheses_whose_attention_is_used_are_read(
    translator: Translator, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[tuple[int, ...]] = []
    attends: list[bool] = []
    attention, stepper = AttentionReader._attention, core.model_stepper

    def counted(
        self: AttentionReader, sources: Sequence[list[int]], hypotheses: Sequence[Hypothesis]
    ) -> list[Tensor | None]:
        read.extend(each.symbols for each in hypotheses)
        return attention(self, sources, hypotheses)

    def recorded(model: nn.Module, **given: object) -> Stepper:
        attends.append(bool(given["attention"]))
        return stepper(model, **given)  # type: ignore[arg-type]

    monkeypatch.setattr(AttentionReader, "_attention", counted)
    monkeypatch.setattr("seqloom.apps.backends.model_stepper", recorded)
    translator = Translator(translator.loaded)  # which has made no steppers yet
    settings = translator.config.search.model_copy(update={"beam": 3, "nbest": 2})
    found = translator.run(LINES, Request(settings, tags=True))
    tagged = [each.hypotheses[0].symbols for line in (1, 4) for each in found[line]]
    assert sorted(read) == sorted(tagged)
    read.clear()
    symbols = [each.hypotheses[0].symbols for line in found for each in line if each.hypotheses]
    unknown = next(iter(set().union(*symbols) - set.intersection(*map(set, symbols))))  # is taken for unknown
    for module in ("seqloom.apps.translator", "seqloom.runs.translator"):
        monkeypatch.setattr(f"{module}.UNKNOWN", unknown)
    plain = [core.collapse_spaces(take_out(line).plain) for line in LINES]
    translator.run(plain, Request(settings.model_copy(update={"unknown": "copy"})))
    assert sorted(read) == sorted(each for each in symbols if unknown in each)
    assert attends
    assert not any(attends)


def test_int8_has_the_attention_of_the_weights_that_were_rounded(translator: Translator) -> None:
    settings = translator.config.search.model_copy(update={"precision": "int8"})
    for (translation, *_), line in zip(translator.run(LINES, Request(settings, pieces=True)), LINES, strict=True):
        for hypothesis in translation.hypotheses:
            (given,) = core.make_parts([line], translator.tokenizers.source, limit=translator.longest)
            source = source_batch([given.ids], CPU)
            stepper = model_stepper(translator.loaded.model, attention=True)
            (expected,) = forced_search(stepper, source, [hypothesis.symbols], settings=SearchConfig())
            assert hypothesis.attention is not None
            assert expected.attention is not None
            steps = len(hypothesis.token_log_probs)
            torch.testing.assert_close(hypothesis.attention, expected.attention[:steps], rtol=0, atol=1e-5)
