"""Every config in examples/ is read without complaint, builds its model, and can be trained on."""

from pathlib import Path

import numpy as np
import pytest
import torch

from seqloom.classical.alignment import Bitext
from seqloom.classical.extraction import RatedDocument
from seqloom.core.config import read_config_file, resolve
from seqloom.core.events import ignore
from seqloom.core.reading import ReadsText
from seqloom.core.stepping import Source
from seqloom.core.symbols import BEGIN, END, RESERVED
from seqloom.models.bert import Bert
from seqloom.models.captioner import Captioner
from seqloom.models.classifier import ClassifierConfig, TextClassifier
from seqloom.models.ctc import Ctc
from seqloom.models.elmo import Elmo
from seqloom.models.forecaster import Forecaster
from seqloom.models.listener import Listener
from seqloom.models.protocols import TranslationModel
from seqloom.models.tagger import Tagger, TaggerInput
from seqloom.models.vae import Vae
from seqloom.models.vision import ImageModelSettings
from seqloom.nn.embeddings import Symbols
from seqloom.runs.config import MODELS, FitsDocuments, FitsPairs, FitsText, RunConfig
from seqloom.runs.translator import source_sentence
from seqloom.smt.pairs import EncodedPairs
from seqloom.text.tokenizer import EncodedText
from seqloom.text.tokenizer_training import train_tokenizers

VOCABULARY = (*RESERVED, "a", "b", "c", "d", "e", "f", "g")
EXAMPLES = sorted((Path(__file__).parent.parent / "examples").glob("*.yaml"))
TINY = {
    "outputs": (3,),
    "width": 16,
    "embedding_width": 16,
    "feed_forward": 16,
    "encoder_layers": 1,
    "decoder_layers": 1,
}
IMAGES = {"width": 48, "image_size": (64, 64), "classes": 3, "dropout_rate": 0.0, "stochastic_depth_rate": 0.0}


def test_there_are_examples_of_every_model_and_every_kind_of_text() -> None:
    configs = [resolve(RunConfig, file=path) for path in EXAMPLES]
    assert {config.model.kind for config in configs} == set(MODELS) - {"outside"}
    assert {config.text.kind for config in configs} == {"word", "char", "bpe", "unigram"}


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_builds_a_model_that_learns_and_steps(path: Path) -> None:
    config = resolve(RunConfig, file=path)
    if isinstance(config.model, FitsText):
        # The loops of word2vec are compiled for each width; this one the other tests have too.
        narrow = {"width": 8} if "width" in type(config.model).model_fields else {}
        every = {"subsampling": 0.0} if "subsampling" in type(config.model).model_fields else {}  # of so few words
        fitted = config.model.model_copy(update={**narrow, **every}).fit(
            EncodedText(np.array([4, 5, END] * 20), VOCABULARY), seed=1, listener=ignore
        )
        assert fitted.arrays()
        return
    if isinstance(config.model, FitsPairs):
        pairs = _pairs(config)
        arrays = config.model.fit_pairs(pairs, seed=1).arrays()
        again = config.model.restore_pairs(arrays, pairs.tokenizers).arrays()
        assert {name: array.tobytes() for name, array in again.items()} == {
            name: np.ascontiguousarray(array).tobytes() for name, array in arrays.items()
        }
        return
    if isinstance(config.model, FitsDocuments):
        documents = [RatedDocument(["It is.", f"We show {n}."], [0.0, 1.0]) for n in range(10)]
        made = config.model.fit_documents(documents, lambda number, text: float(str(number) in text)).arrays()
        assert all(
            np.array_equal(made[name], array) for name, array in config.model.restore_documents(made).arrays().items()
        )
        return
    # Tiny, but otherwise the model of the example: its kind, norm, positions, attention and ties.
    fields = type(config.model).model_fields
    sizes = {**TINY, **IMAGES} if config.model.reads_images else TINY
    small = config.model.model_copy(update={name: size for name, size in sizes.items() if name in fields})
    pieces = VOCABULARY if config.text.shared else ()
    symbols = Symbols(11, 11 if config.text.shared else 13, is_shared=config.text.shared, pieces=pieces)
    if isinstance(small, ClassifierConfig):  # as many classes as its data would have
        small = small.model_copy(update={"classes": 3})
    model = small.build(symbols, seed=config.seed)
    source = Source(torch.tensor([[5, 6, END], [7, END, 0]]), torch.tensor([3, 2]))
    previous = torch.tensor([[BEGIN, 4, 5], [BEGIN, 6, 0]])
    if config.task.kind == "translation":
        assert isinstance(model, TranslationModel)
        features = model(source, previous, torch.tensor([3, 2]))
    elif isinstance(model, Elmo):
        both = model(source.ids[:, :2], torch.tensor([2, 1]))
        features = torch.cat([both.following, both.preceding])
    elif isinstance(small, ImageModelSettings):
        scores = model.class_scores(torch.randn(2, small.channels, *small.image_size))
        scores.sum().backward()
        assert all(parameter.grad is not None for parameter in model.parameters())
        return
    elif isinstance(model, TextClassifier):
        parts = model.part_scores(torch.tensor([[BEGIN, 5, END], [BEGIN, END, 0]]), torch.tensor([3, 2]))
        torch.stack(list(parts)).square().sum().backward()
        ungraded = {name for name, parameter in model.named_parameters() if parameter.grad is None}
        assert not ungraded
        return
    elif isinstance(model, Tagger):
        letters = TaggerInput(previous, previous % 3, torch.tensor([3, 2]), previous.T, torch.tensor([2, 2, 1]))
        states, packing = model(letters)
        model.outputs[0].loss(states, torch.tensor([0, 1, 2, 0, 1]), packing)[0].backward()
        assert all(parameter.grad is not None for parameter in model.parameters())
        return
    elif isinstance(model, Forecaster):
        model(torch.randn(2, model.history, model.columns)).sum().backward()
        assert all(parameter.grad is not None for parameter in model.parameters())
        return
    elif isinstance(model, Ctc):
        scores, _ = model.frame_scores(torch.randn(2, 7, config.model.features), torch.tensor([7, 5]))  # type: ignore[union-attr]
        scores.sum().backward()
        assert all(parameter.grad is not None for parameter in model.parameters())
        return
    elif isinstance(model, Listener):
        memory = model.remember(torch.randn(2, 7, config.model.features), torch.tensor([7, 5]))  # type: ignore[union-attr]
        features = model(memory, torch.tensor([[BEGIN, 4], [BEGIN, 4]]), torch.tensor([2, 1]))
        model.blank_scores(memory).sum().backward(retain_graph=True)
        (-model.output.log_probs(features)[:, END].sum()).backward()
        assert all(parameter.grad is not None for parameter in model.parameters())
        return
    elif isinstance(model, Captioner):
        images = torch.randn(2, small.channels, *small.image_size)  # type: ignore[union-attr]
        source = model.source(images)
        features = model(source, previous, torch.tensor([3, 2]))
    elif isinstance(model, Bert):
        features = model.masked_features(model.read(source.ids, source.lengths))
    elif isinstance(model, Vae):
        features, _ = model(source.ids[:, :2], previous, torch.tensor([2, 1]), torch.ones(2, model.latent))
    else:
        assert isinstance(model, ReadsText)
        features = model(previous, None)[0].flatten(0, 1)
    (-model.output.log_probs(features)[:, END].sum()).backward()
    assert all(parameter.grad is not None for parameter in model.parameters())
    if isinstance(model, Bert):
        return
    stepper = model.stepper()
    step = stepper.step(stepper.start(source), torch.tensor([BEGIN, BEGIN]))
    assert step.log_probs.shape == (2, symbols.target)


def _pairs(config: RunConfig) -> EncodedPairs:
    """A few sentence pairs."""
    sources = [f"the {noun} {verb} {n} ." for noun in ("dog", "cat") for verb in ("runs", "eats") for n in range(5)]
    targets = [line.upper() for line in sources]
    tokenizers = train_tokenizers(sources, targets, config.text)
    ids = tokenizers.source.encode_many(sources), tokenizers.target.encode_many(targets)
    train, dev = (Bitext.from_sentences(*(side[part] for side in ids)) for part in (slice(16), slice(16, 20)))
    sentences = [source_sentence(tokenizers.source, line) for line in sources[16:]]
    return EncodedPairs(train, dev, tokenizers, sentences, targets[16:])


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_says_what_it_is_and_how_it_is_run(path: Path) -> None:
    comments = [line for line in path.read_text(encoding="utf-8").splitlines() if line.startswith("#")]
    assert any(f"seqloom train examples/{path.name}" in line for line in comments)


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_holds_no_files_of_its_own(path: Path) -> None:
    """Files are named on the command line, so that an example serves any text."""
    given = read_config_file(path).values.get("data", {})
    assert not {"train", "dev"} & given.keys()
