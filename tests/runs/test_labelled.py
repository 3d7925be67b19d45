"""From labelled text to a classifier: what is chosen, stored, held out, started from and resumed."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from seqloom import Classifier
from seqloom.apps.merging import merge
from seqloom.core.config import resolve
from seqloom.core.errors import DataError, ModelError, SeqloomWarning, UsageError
from seqloom.core.events import Event, ignore, read_events
from seqloom.models.bert import BertConfig, DenseConfig, SentenceConfig
from seqloom.models.transformer import TransformerConfig
from seqloom.nn.embeddings import Symbols
from seqloom.runs.adapters import load_start
from seqloom.runs.config import RunConfig
from seqloom.runs.labelled import LabelledData, open_labelled
from seqloom.runs.loading import build_model, load
from seqloom.runs.model_dir import Card, read_card, read_settings, save_model
from seqloom.runs.prepare import choose_config, general_config
from seqloom.runs.train import Trained, resume, train
from seqloom.tasks.settings import ClassificationConfig
from seqloom.text.tokenizer import TextConfig, Tokenizers
from seqloom.text.tokenizer_training import train_tokenizer
from seqloom.training.weights import live_weights, weights_of

KIND = ("model.kind=bert", "task.kind=classification")
TINY = (
    *("text.size=60", "model.width=16", "model.heads=2", "model.feed_forward=16", "model.dropout_rate=0.1"),
    *("training.steps=6", "training.save_every=2", "training.validate_every=3", "training.average=2"),
    *("training.log_every=2", "training.warmup=2", "task.tokens_per_batch=64", "evaluation.resamples=40"),
)
LABELS = ("no", "null", "é 1")
"""Labels that YAML would read as something else, and one with a space."""


def write(path: Path, *, count: int = 60, labels: tuple[str, ...] = LABELS) -> Path:
    """A table whose label follows from a word of the text."""
    words = ("red", "green", "blue", "grey")
    rows = (f"the {words[n % len(labels)]} house number {n}\t{labels[n % len(labels)]}" for n in range(count))
    path.write_text("".join(f"{row}\n" for row in rows), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(tmp_path_factory.mktemp("labelled") / "train.tsv")


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory, text: Path) -> Trained:
    trained = train(None, [*KIND, *TINY], out=tmp_path_factory.mktemp("runs") / "run", train=[str(text)])
    assert trained is not None
    return trained


@pytest.fixture(scope="module")
def encoder(tmp_path_factory: pytest.TempPathFactory, text: Path) -> Path:
    """A model directory of an encoder with an output for hidden tokens, a pooler and a dense layer for sentences."""
    tokenizer = train_tokenizer(text.read_text(encoding="utf-8").split("\n"), TextConfig(kind="word"))
    sentence = SentenceConfig(pooling="cls", dense=(DenseConfig(width=6),), normalise=True, lowercase=True)
    settings = BertConfig(width=16, heads=2, layers=2, feed_forward=24, longest=10, has_pooler=True, sentence=sentence)
    model = settings.build(Symbols(tokenizer.size, tokenizer.size, is_shared=True), seed=4)
    path = tmp_path_factory.mktemp("encoder") / "model"
    config = RunConfig.model_validate({"model": settings, "text": tokenizer.config})
    tokenizers = Tokenizers(tokenizer, tokenizer)
    save_model(path, config, tokenizers=tokenizers, weights=weights_of(model), card=Card(None, None, 1))
    return path


def chosen(path: Path, *words: str, dev: tuple[str, ...] = ()) -> RunConfig:
    return choose_config(None, [*KIND, *words], train=[str(path)], dev=dev, listener=ignore)


def test_a_run_leaves_labels_in_its_settings_and_scores_on_its_card(tiny: Trained) -> None:
    config, card = read_settings(tiny.model), read_card(tiny.model)
    assert isinstance(config.task, ClassificationConfig)
    assert (config.task.labels, config.task.is_paired, config.data.label_column) == (LABELS, False, 2)
    assert (tiny.use, config.purpose, config.reads_pairs) == ("classifier", "classifier", False)
    names = [score["name"] for score in card.scores]
    assert names[:3] == ["accuracy", "macro-F1", "accuracy of most frequent label"]
    assert "macro-F1 of n-gram Bayes" in names
    assert (card.trained_on["lines"], card.trained_on["steps"]) == (54, 6)
    assert card.trained_on["texts_read"] > 0
    data = LabelledData.load(tiny.run, config)
    assert (len(data.train), len(data.dev)) == (54, 6)
    assert not set(data.train.lines.tolist()) & set(data.dev.lines.tolist())
    (validation, *_) = [event for event in read_events(tiny.run / "events.jsonl") if event.kind == "validation"]
    assert {"loss", "accuracy", "macro_f1"} <= set(validation.values)
    assert resolve(RunConfig, file=tiny.run / "config.yaml") == config


def test_sizes_follow_from_the_examples_and_are_explained(text: Path, tmp_path: Path) -> None:
    events: list[Event] = []
    config = choose_config(None, KIND, train=[str(text)], dev=(), listener=events.append)
    (sizing,) = [event for event in events if event.kind == "sizing"]
    assert sizing["reasons"][0] == "60 examples of 3 classes, so:"
    assert any("a larger model learns these texts by heart" in reason for reason in sizing["reasons"])
    assert isinstance(config.model, BertConfig)
    assert (config.model.classes, config.model.has_output, config.model.longest) == (3, False, 32)
    many = chosen(write(tmp_path / "many.tsv", count=30_000, labels=("a", "b")), "text.kind=word")
    assert isinstance(many.model, BertConfig)
    assert many.model.layers > config.model.layers
    assert many.model.dropout_rate < config.model.dropout_rate
    general = general_config(None, KIND)
    assert isinstance(general.task, ClassificationConfig)
    assert general.task.labels == ()


def test_few_dev_examples_with_a_high_loss_are_a_notice_and_not_a_failure(tmp_path: Path, text: Path) -> None:
    wrong = tmp_path / "dev.tsv"
    wrong.write_text("the red house number 3\tnull\n", encoding="utf-8")
    settings = [*KIND, *TINY, "training.steps=60", "training.learning_rate=0.02", "training.average=0"]
    # The last weights count: those of a run whose one validation is at its end.
    settings += ["training.validate_every=60", "training.save_every=60"]
    events: list[Event] = []
    trained = train(None, settings, out=tmp_path / "run", train=[str(text)], dev=[str(wrong)], listener=events.append)
    assert trained is not None
    notices = [str(event["message"]) for event in events if event.kind == "notice"]
    assert any("of a uniform guess among 3 classes" in each and "1 dev example is too few" in each for each in notices)


def test_what_cannot_be_learned_from_is_refused_before_anything_is_written(tmp_path: Path, text: Path) -> None:
    one = write(tmp_path / "one.tsv", labels=("same",))
    dev = write(tmp_path / "dev.tsv", count=8, labels=("no", "yes"))
    pairs = tmp_path / "pairs.tsv"
    pairs.write_text("".join(f"a {n}\tb {n}\tno\n" for n in range(20)), encoding="utf-8")
    for path, files, words, message in (
        (one, [], [], "one.tsv:1: 'same' is the only label of 60 examples; a classifier needs two or more"),
        (write(tmp_path / "few.tsv", count=9), [], [], "9 examples are too few to hold some out"),
        (text, [dev], [], "dev.tsv:2: the label 'yes' is not among the 3 labels of the training text ('no', 'null'"),
        (text, [pairs], [], "pairs.tsv:1: 2 texts in a line, but the model reads 1"),
        (text, [], ["task.labels=[no,other]"], "train.tsv:2: the label 'null' is not among the 2 labels"),
    ):
        run = tmp_path / "run"
        with pytest.raises(DataError) as caught:
            train(None, [*KIND, *TINY, *words], out=run, train=[str(path)], dev=[str(file) for file in files])
        assert message in str(caught.value)
        assert not run.exists()
    with pytest.raises(UsageError, match=r"is a folder; name files of labelled text"):
        chosen(tmp_path)
    with pytest.raises(UsageError, match=r"model\.classes=5, but task\.labels has 3"):
        chosen(text, "model.classes=5")
    with pytest.raises(UsageError, match=r"task\.kind is classification, but a model of kind gpt .*model\.kind=bert"):
        resolve(RunConfig, overrides=["model.kind=gpt", "task.kind=classification"])


def test_a_column_needs_a_table_and_many_labels_a_notice(tmp_path: Path) -> None:
    table, marked = tmp_path / "many.tsv", tmp_path / "marked.txt"
    table.write_text("".join(f"house number {n}\tname{n % 21}\n" for n in range(60)), encoding="utf-8")
    marked.write_text("".join(f"__label__{n % 2} house number {n}\n" for n in range(60)), encoding="utf-8")
    with pytest.raises(UsageError, match=r"data\.label_column=2 is for tables, but .*marked\.txt: read as __label__, "):
        chosen(marked, "data.label_column=2")
    events: list[Event] = []
    open_labelled(chosen(table), listener=events.append)
    said = [event["message"] for event in events if event.kind == "notice"]
    assert said[0] == f"{table}: read as a table, label: column 2; text: column 1"
    assert said[2].startswith("21 classes are many for 60 examples, 0 of them have one example")


def test_a_resumed_run_has_the_same_bits(tmp_path: Path, text: Path) -> None:
    words = [*KIND, *TINY, "training.schedule=constant"]  # cosine depends on the last step
    whole, half = tmp_path / "whole", tmp_path / "half"
    train(None, words, out=whole, train=[str(text)])
    train(None, [*words, "training.steps=3"], out=half, train=[str(text)])
    resume(half, ["training.steps=6"], exact=True)
    one, other = (load_file(each / "checkpoints" / "step-6" / "model.safetensors") for each in (whole, half))
    assert all(torch.equal(one[name], other[name]) for name in one)
    with pytest.raises(UsageError, match=r"task\.labels is \[.*\] in .* and cannot become"):
        resume(half, ["task.labels=[a,b,c]"])


def test_a_new_head_starts_from_the_trunk_of_an_encoder_bit_by_bit(encoder: Path, text: Path) -> None:
    events: list[Event] = []
    config = chosen(text, f"training.start_from={encoder}")
    assert isinstance(config.model, BertConfig)
    assert (config.model.classes, config.model.width, config.model.has_output) == (3, 16, False)
    assert config.model.sentence == SentenceConfig(pooling="cls", lowercase=True)
    assert (config.text.kind, config.training.learning_rate) == ("word", pytest.approx(1e-3 / 2))
    model = build_model(config.model, Tokenizers.load(encoder / "text"), seed=9)
    fresh = {name: tensor.detach().clone() for name, tensor in live_weights(model).items()}
    new_names = load_start(model, config, encoder, listener=events.append)
    assert new_names == ("classifier.bias", "classifier.weight")
    before = load_file(encoder / "model.safetensors")
    for name, tensor in live_weights(model).items():
        assert torch.equal(tensor, fresh[name] if name.startswith("classifier.") else before[name]), name
    new, unused = [event["message"] for event in events]
    assert new == "new: classifier.bias, classifier.weight (task masked_language_modelling → classification)"
    assert unused.startswith("not used: masked.dense.bias, masked.dense.weight, masked.norm.bias")
    assert "sentence.dense.0.weight" in unused


def test_a_trunk_without_dropout_is_adapted_with_some(encoder: Path, text: Path, tmp_path: Path) -> None:
    # A copy of the encoder whose settings say that it was trained without.
    copy, settings = tmp_path / "dry", read_settings(encoder)
    dry = settings.model_copy(update={"model": settings.model.model_copy(update={"dropout_rate": 0.0})})
    tokenizers, weights = Tokenizers.load(encoder / "text"), load_file(encoder / "model.safetensors")
    save_model(copy, dry, tokenizers=tokenizers, weights=weights, card=Card(None, None, 1))
    assert chosen(text, f"training.start_from={copy}").model.dropout_rate == 0.3  # type: ignore[union-attr]
    kept = chosen(text, f"training.start_from={encoder}").model
    assert kept.dropout_rate == settings.model.dropout_rate  # type: ignore[union-attr]
    assert chosen(text, f"training.start_from={copy}", "model.dropout_rate=0").model.dropout_rate == 0  # type: ignore[union-attr]


def test_a_trunk_that_does_not_fit_is_refused_by_name(encoder: Path, text: Path, tmp_path: Path) -> None:
    for setting, difference in (
        ("model.layers=3", "missing (layers.2.self.qkv.weight"),
        ("model.width=32", "of another shape (positions is 10 × 16 in place of 10 × 32"),
    ):
        words = [*KIND, f"training.start_from={encoder}", setting, "training.steps=1"]
        with pytest.raises(ModelError) as caught:
            train(None, words, out=tmp_path / "run", train=[str(text)])
        assert caught.value.exit_code == 4
        assert difference in str(caught.value)
        assert "cannot be the start of this model" in str(caught.value)
        assert not (tmp_path / "run").exists()


def test_a_start_of_another_kind_is_named(encoder: Path, text: Path, tmp_path: Path) -> None:
    files = [str(text)]
    start = f"training.start_from={encoder}"
    with pytest.raises(ModelError) as e:
        choose_config(None, ["model.kind=vit", start], train=files, dev=(), listener=ignore)
    assert str(e.value).startswith(f"{start} is a model of kind bert, which cannot be the start of one of kind vit; ")
    tokenizer = train_tokenizer(["a house"], TextConfig(kind="word"))
    settings = TransformerConfig(width=8, heads=2, encoder_layers=1, decoder_layers=1)
    model = settings.build(Symbols(tokenizer.size, tokenizer.size, is_shared=True), seed=4)
    save_model(
        tmp_path / "translator",
        RunConfig.model_validate({"model": settings, "text": tokenizer.config}),
        tokenizers=Tokenizers(tokenizer, tokenizer),
        weights=weights_of(model),
        card=Card("de", "en", 1),
    )
    start = f"training.start_from={tmp_path / 'translator'}"
    (tmp_path / "run.yaml").write_text("task: {kind: classification}\n")
    for file, words in ((None, ["task.kind=classification"]), (tmp_path / "run.yaml", [])):
        with pytest.raises(ModelError) as e:
            choose_config(file, [*words, start], train=files, dev=(), listener=ignore)
        assert str(e.value).startswith(f"{start} is a model of kind transformer, which can be the start of translation")
        assert "not of task.kind=classification" in str(e.value)


def test_lora_trains_the_adapters_and_the_new_head(encoder: Path, text: Path, tmp_path: Path) -> None:
    words = [*KIND, f"training.start_from={encoder}", "training.lora.rank=2", *TINY[5:]]
    trained = train(None, words, out=tmp_path / "run", train=[str(text)])
    assert trained is not None
    adapter = load_file(tmp_path / "run" / "adapter" / "adapter.safetensors")
    names = {name for name in adapter if ".lora." not in name}
    assert names == {"classifier.bias", "classifier.weight"}
    before, after = load_file(encoder / "model.safetensors"), load_file(trained.model / "model.safetensors")
    changed = {name for name in after if not torch.equal(before.get(name, torch.zeros(())), after[name])}
    assert changed == {*names, *(f"layers.{number}.self.qkv.weight" for number in range(2))}
    merge(tmp_path / "run", tmp_path / "merged")
    merged = load_file(tmp_path / "merged" / "model.safetensors")
    assert all(torch.equal(merged[name], after[name]) for name in after)


def test_a_classifier_starts_another_one(tiny: Trained, tmp_path: Path, text: Path) -> None:
    events: list[Event] = []
    same = [f"training.start_from={tiny.model}", "training.steps=1", "training.learning_rate=1e-9"]
    trained = train(None, same, out=tmp_path / "same", train=[str(text)], listener=events.append)
    assert trained is not None
    assert not [event for event in events if str(event.values.get("message", "")).startswith("new: ")]
    one, other = (load_file(each / "model.safetensors") for each in (tiny.model, trained.model))
    assert all(torch.allclose(one[name], other[name], atol=1e-6) for name in one)
    # As many other labels: the head has the same shape, and another meaning.
    others = write(tmp_path / "others.tsv", labels=("x", "y", "z"))
    config = choose_config(None, same, train=[str(others)], dev=(), listener=ignore)
    model = build_model(config.model, Tokenizers.load(tiny.model / "text"), seed=9)  # type: ignore[arg-type]
    events.clear()
    load_start(model, config, tiny.model, listener=events.append)
    assert [event["message"].split(" (")[0] for event in events] == [
        "new: classifier.bias, classifier.weight",
        "not used: classifier.bias, classifier.weight",
    ]
    assert not torch.equal(live_weights(model)["classifier.weight"], one["classifier.weight"])


def test_a_tiny_model_learns_to_tell_texts_apart(tmp_path: Path, text: Path) -> None:
    words = [
        *(*KIND, *TINY, "text.kind=word", "text.size=200", "training.steps=60", "training.learning_rate=5e-3"),
        *("training.save_every=30", "training.validate_every=30", "task.label_smoothing=0.0", "model.dropout_rate=0.0"),
    ]
    trained = train(None, words, out=tmp_path / "run", train=[str(text)])
    assert trained is not None
    classifier = Classifier.load(trained.model)
    lines = ["the green house number 777", "a red house", "the blue one"]
    found = classifier.classify(lines)
    assert [each.label for each in found] == ["null", "no", "é 1"]
    assert all(each.probability == max(each.probabilities.values()) > 0.6 for each in found)
    measured = classifier.evaluate(lines, ["null", "no", "no"])
    assert (measured.accuracy.value, measured.confusion.tolist()) == (
        pytest.approx(200 / 3),
        [[1, 0, 1], [0, 1, 0], [0, 0, 0]],
    )
    assert measured.accuracy.interval is not None


def test_batches_change_nothing_and_bad_arguments_are_refused(tiny: Trained) -> None:
    classifier = Classifier.load(tiny.run)
    lines = [f"the {'very ' * (n % 5)}red house {n}" for n in range(12)] + ["", "\u200b "]
    together = classifier.classify(lines)
    assert [(each.label, dict(each.probabilities)) for each in together[-2:]] == [("", {})] * 2
    for size in (1, 30, 10_000):
        for one, other in zip(together, classifier.classify(lines, tokens_per_batch=size), strict=True):
            assert one.label == other.label
            assert one.probabilities == pytest.approx(other.probabilities, abs=1e-6)
    assert list(together[0].probabilities) == list(LABELS)
    assert sum(together[0].probabilities.values()) == pytest.approx(1)
    assert classifier.classify([]) == []
    assert "classifier" not in repr(classifier)
    with pytest.warns(SeqloomWarning, match=r"1 of 1 texts are longer than the 32 symbols .* \d+ tokens at their ends"):
        classifier.classify(["a very long text " * 40])
    with pytest.raises(UsageError, match=r"lines takes lines of text \(str\); line 1 is \('a', 'b'\)"):
        classifier.classify([("a", "b")])
    for image in (Path("cat.png"), np.zeros((8, 8))):
        with pytest.raises(UsageError, match=r"reads texts, and line 2 is .*; images are read by models of kind") as e:
            classifier.classify(["a", image])  # type: ignore[list-item]
        assert "\n" not in str(e.value)
    with pytest.raises(DataError, match="labels:2: the label 'x' is not among those of the model"):
        classifier.evaluate(["a", "b"], ["no", "x"])
    with pytest.raises(DataError, match="lines:2: the text is blank"):
        classifier.evaluate(["a", " "], ["no", "no"])


def test_a_model_of_pairs_reads_pairs(tmp_path: Path) -> None:
    path = tmp_path / "pairs.jsonl"
    records = [
        {"label": n % 2, "text": f"a man reads {n}", "text_pair": f"a {'man' if n % 2 else 'dog'} reads {n}"}
        for n in range(40)
    ]
    path.write_text("".join(json.dumps(each) + "\n" for each in records), encoding="utf-8")
    trained = train(None, [*KIND, *TINY, "training.steps=2"], out=tmp_path / "run", train=[str(path)])
    assert trained is not None
    classifier = Classifier.load(trained.model)
    assert (classifier.labels, classifier.is_paired) == (("0", "1"), True)
    pairs = [("a man reads", "a dog reads"), ("a dog reads", "a man reads")]
    one, other = classifier.classify(pairs)
    assert one.probabilities != pytest.approx(other.probabilities, abs=1e-9)
    with pytest.raises(UsageError, match=r"the model was trained on pairs; line 1 is 'a man'"):
        classifier.classify(["a man"])
    assert load(trained.model).config.purpose == "classifier"
