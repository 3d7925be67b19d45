"""Zero-config: what is chosen, in which order settings hold, and that reasons are given."""

import random
from itertools import pairwise
from pathlib import Path

import pytest

from seqloom.core.config import resolve
from seqloom.core.declaration import DataFacts
from seqloom.core.errors import ConfigError
from seqloom.core.events import Event, ignore
from seqloom.data.batches import BatchPlan
from seqloom.data.store import Store
from seqloom.models.seq2seq import Seq2SeqConfig
from seqloom.models.transformer import TransformerConfig
from seqloom.runs.config import RunConfig
from seqloom.runs.prepare import choose_config
from seqloom.runs.sizing import choose_sizes, passes_text
from seqloom.runs.train import Trained, train
from tiny_runs import TINY

Corpus = tuple[list[str], list[str]]


def facts(pairs: int) -> DataFacts:
    return DataFacts(pairs, source_characters=60.0, target_characters=65.0, are_unspaced=False)


def test_more_data_never_gets_a_smaller_model_or_stronger_dropout() -> None:
    sizes = [choose_sizes(facts(pairs), TransformerConfig()).defaults for pairs in (500, 5_000, 50_000, 10**6, 10**7)]
    for before, after in pairwise(sizes):
        assert before["model"]["width"] <= after["model"]["width"]
        assert before["text"]["size"] <= after["text"]["size"]
        assert before["model"]["dropout_rate"] >= after["model"]["dropout_rate"]


@pytest.mark.parametrize("pairs", [20, 500, 5_000, 29_000, 300_000, 10**6, 10**8])
def test_every_size_is_a_valid_config_and_its_reasons_name_its_numbers(pairs: int) -> None:
    sizing = choose_sizes(facts(pairs), TransformerConfig())
    config = resolve(RunConfig, defaults=sizing.defaults)
    text = " ".join(sizing.reasons_in(config))
    assert f"{pairs:,} pairs" in text
    assert f"{config.training.steps:,} steps" in text
    assert f"width {config.model.width}" in text


@pytest.mark.parametrize("pairs", [20, 500, 5_000, 29_000, 300_000, 10**6, 10**8])
def test_a_recurrent_model_has_sizes_of_its_own(pairs: int) -> None:
    sizing = choose_sizes(facts(pairs), Seq2SeqConfig())
    config = resolve(RunConfig, defaults=sizing.defaults)
    assert isinstance(config.model, Seq2SeqConfig)
    text = " ".join(sizing.reasons_in(config))
    sizes = f"width {config.model.width}, {config.model.encoder_layers}+{config.model.decoder_layers} layers"
    assert f"a recurrent model of {sizes}, symbols of width {config.model.embedding_width}" in text
    assert "Transformer" not in text
    plain = choose_sizes(facts(pairs), TransformerConfig()).defaults
    training = {**sizing.defaults["training"], "learning_rate": plain["training"]["learning_rate"]}
    same = {**sizing.defaults, "model": plain["model"], "training": training}
    assert same == plain, "all but the model and its rate is as for a Transformer"


def test_more_data_never_gets_a_smaller_recurrent_model() -> None:
    sizes = [choose_sizes(facts(pairs), Seq2SeqConfig()).defaults["model"] for pairs in (500, 5_000, 50_000, 10**6)]
    for before, after in pairwise(sizes):
        for name in ("width", "embedding_width", "encoder_layers"):
            assert before[name] <= after[name]
        assert before["dropout_rate"] >= after["dropout_rate"]


def test_symbols_are_as_wide_as_a_width_that_was_given(corpus: Corpus) -> None:
    def chosen(*overrides: str) -> tuple[Seq2SeqConfig, str]:
        events: list[Event] = []
        config = choose_config(
            None, ["model.kind=seq2seq", *overrides], train=corpus[0], dev=corpus[1], listener=events.append
        )
        assert isinstance(config.model, Seq2SeqConfig)
        (sizing,) = [event for event in events if event.kind == "sizing"]
        return config.model, " ".join(sizing["reasons"])

    model, text = chosen()
    assert (model.width, model.embedding_width, model.encoder_layers, model.dropout_rate) == (64, 64, 1, 0.3)
    assert "a recurrent model of width 64, 1+1 layers" in text
    model, text = chosen("model.width=24")
    assert (model.width, model.embedding_width) == (24, 24)
    assert "symbols of width 24, as wide as the states" in text
    model, text = chosen("model.width=24", "model.embedding_width=32")
    assert (model.width, model.embedding_width) == (24, 32)
    assert "symbols of width" not in text


def test_a_run_of_one_step_promises_no_ten_checkpoints() -> None:
    sizing = choose_sizes(facts(5_000), TransformerConfig(), steps=1)
    text = " ".join(sizing.reasons_in(resolve(RunConfig, defaults=sizing.defaults)))
    assert "1 step at most" in text
    assert "ten" not in text
    usual = " ".join(reason.text for reason in choose_sizes(facts(5_000), TransformerConfig()).reasons)
    assert "the last ten checkpoints" in usual


@pytest.mark.parametrize(
    ("steps", "per_pass", "text"),
    [
        (1, 20.0, "1 step: less than one pass over the training text"),
        (24, 20.0, "24 steps: about one pass over the training text"),
        (1_200, 29.5, "1,200 steps: about 41 passes over the training text"),
    ],
)
def test_passes_are_counted_in_batches(steps: int, per_pass: float, text: str) -> None:
    assert passes_text(steps, per_pass=per_pass) == text


def test_the_passes_that_a_run_reports_are_those_it_makes(tmp_path: Path, corpus: Corpus) -> None:
    """With letters there are more batches than with subwords."""
    events: list[Event] = []
    settings = [
        *TINY,
        "text.kind=char",
        "training.steps=40",
        "training.validate_every=40",
        "training.save_every=40",
    ]
    train(None, settings, out=tmp_path / "run", train=corpus[0], dev=corpus[1], listener=events.append)
    store = Store.open(tmp_path / "run/data/train")
    batches = len(BatchPlan(store.source_lengths, store.target_lengths, tokens_per_batch=512, seed=1).batches(0))
    assert batches > 6
    (said,) = [each["message"] for each in events if each.kind == "notice" and "over the training" in each["message"]]
    assert said == f"40 steps: about {40 / batches:.0f} passes over the training text"


WORDS = [f"{''.join(random.Random(at).choices('abcdefghij', k=7))}" for at in range(300)]
SENTENCES = [f"{one} saw {other} and {one}ed" for one, other in pairwise([*WORDS, "x"])]


@pytest.mark.parametrize(
    ("sources", "targets", "found"),
    [
        (WORDS, [f"{word}ed" for word in WORDS], "single words"),
        (WORDS, [" ".join(word.upper()) for word in WORDS], "words and phones"),
        ([f"{word} V {'PST' if at % 2 else 'PRS'}" for at, word in enumerate(WORDS)], WORDS, "words and tags"),
        (SENTENCES, WORDS, None),
        (SENTENCES, ["good", "bad", "so-so"] * 100, None),
        (WORDS, ["good", "bad", "so-so"] * 100, "single words"),
        (["今天天气很好。"] * 300, SENTENCES, None),
        (["jump twice", "walk and run", "run"] * 100, ["JUMP JUMP", "WALK RUN", "RUN"] * 100, None),
    ],
)
def test_letters_are_the_pieces_of_single_words(
    tmp_path: Path, sources: list[str], targets: list[str], found: str | None
) -> None:
    path = tmp_path / "pairs.tsv"
    path.write_text("".join(f"{one}\t{other}\n" for one, other in zip(sources, targets, strict=True)))
    events: list[Event] = []
    config = choose_config(None, ["task.kind=translation"], train=[str(path)], dev=(), listener=events.append)
    (sizing,) = [event for event in events if event.kind == "sizing"]
    reasons = [reason for reason in sizing["reasons"] if "pieces" in reason]
    if found is None:
        assert config.text.kind == "bpe"
        assert "subword" in reasons[0]
    else:
        assert config.text.kind == "char"
        assert f"the pairs are {found}" in reasons[0]
        has_phones = found == "words and phones"
        assert config.text.is_joint != has_phones
        assert config.text.side("target").kind == ("word" if has_phones else "char")
        joint = choose_config(
            None, ["task.kind=translation", "text.shared=true"], train=[str(path)], dev=(), listener=ignore
        )
        assert joint.text.side("target").kind == "char"
    asked = choose_config(None, ["task.kind=translation", "text.kind=bpe"], train=[str(path)], dev=(), listener=ignore)
    assert asked.text.kind == "bpe"
    assert asked.training.steps <= config.training.steps or found is None


def test_the_file_beats_the_chosen_size_and_an_override_beats_the_file(tmp_path: Path, corpus: Corpus) -> None:
    file = tmp_path / "run.yaml"
    file.write_text("model: {width: 32, heads: 2}\ntraining: {steps: 11}\n")
    events: list[Event] = []
    config = choose_config(file, ["training.steps=12"], train=corpus[0], dev=corpus[1], listener=events.append)
    assert (config.model.width, config.training.steps, config.model.dropout_rate) == (32, 12, 0.3)
    assert (config.data.source, config.data.target) == ("en", "de")
    assert config.data.train == tuple(corpus[0])
    (sizing,) = [event for event in events if event.kind == "sizing"]
    text = " ".join(sizing["reasons"])
    assert "dropout 0.3" in text
    assert "of width" not in text, "what the user chose needs no reason"


@pytest.mark.parametrize(("name", "score"), [("bahdanau", "additive"), ("Luong", "bilinear")])
def test_an_attention_by_the_name_of_its_paper_is_refused_with_its_score(name: str, score: str) -> None:
    with pytest.raises(ConfigError, match=rf"one of none, dot, bilinear, additive; {name} is model\.attention={score}"):
        resolve(RunConfig, overrides=["model.kind=seq2seq", f"model.attention={name}"])


def test_tables_that_cannot_be_shared_are_refused_with_the_remedies() -> None:
    with pytest.raises(ConfigError, match=r"text\.shared is false; set text\.shared=true.*model\.tying=output"):
        resolve(RunConfig, overrides=["text.shared=false"])


def test_a_wrong_setting_is_refused_before_the_files_are_opened() -> None:
    with pytest.raises(ConfigError, match=r"model\.widht.*width"):
        choose_config(None, ["model.widht=3"], train=["no-such.en", "no-such.de"], dev=[], listener=lambda _: None)


@pytest.mark.parametrize("pairs", [500, 29_000, 5_000_000])
def test_a_recurrent_model_gets_no_higher_rate_than_its_example(pairs: int) -> None:
    recurrent, plain = (
        choose_sizes(facts(pairs), model).defaults["training"] for model in (Seq2SeqConfig(), TransformerConfig())
    )
    assert recurrent["learning_rate"] <= min(1e-3, plain["learning_rate"])


def test_an_explicit_null_is_the_language_that_file_names_give(corpus: tuple[list[str], list[str]]) -> None:
    """As `seqloom config` prints it."""
    config = choose_config(None, ["data.source=null"], train=corpus[0], dev=corpus[1], listener=ignore)
    assert (config.data.source, config.data.target) == ("en", "de")
    given = choose_config(None, ["data.source=fr"], train=corpus[0], dev=corpus[1], listener=ignore)
    assert given.data.source == "fr"


def test_the_warm_up_of_fine_tuning_fits_into_its_steps(tiny: Trained, corpus: tuple[list[str], list[str]]) -> None:
    for steps, warmup in ((8, 2), (4_000, 100)):
        settings = [f"training.start_from={tiny.model}", f"training.steps={steps}"]
        config = choose_config(None, settings, train=corpus[0], dev=corpus[1], listener=ignore)
        assert config.training.warmup == warmup
