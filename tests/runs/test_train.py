"""From two files to a model directory, and on from there."""

import json
import os
import re
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import pytest
import torch
from safetensors.torch import load_file
from torch import nn

import seqloom
from cli.calling import call
from seqloom.apps.translator import Translator
from seqloom.core.errors import ConfigError, DataError, ModelError, TrainingError, UsageError
from seqloom.core.events import Event, Listener, ignore, read_events
from seqloom.data.corpus import hold_out, hold_out_pairs, open_corpus
from seqloom.data.store import Store
from seqloom.models.rnn_lm import RnnLmConfig
from seqloom.models.seq2seq import Seq2Seq, Seq2SeqConfig
from seqloom.models.transformer import TransformerConfig
from seqloom.nn.embeddings import Symbols
from seqloom.nn.recurrent import MakeCell
from seqloom.runs.config import OutsideConfig, RunConfig
from seqloom.runs.loading import load, require_device
from seqloom.runs.memory import require_memory
from seqloom.runs.model_dir import add_file, read_card, read_settings, save_model
from seqloom.runs.prepare import choose_config, prepare_resume, prepare_run
from seqloom.runs.train import Trained, average, resume, train
from seqloom.runs.translation import PairText, open_pairs
from seqloom.text.formats.segments import Format
from tiny_runs import TINY, write_corpus

Corpus = tuple[list[str], list[str]]


def test_a_run_leaves_config_events_checkpoints_model_and_curve(tiny: Trained) -> None:
    for name in ("config.yaml", "run.json", "events.jsonl", "text", "checkpoints", "learning-curve.png", "model"):
        assert (tiny.run / name).exists(), name
    assert {event.kind for event in read_events(tiny.run / "events.jsonl")} >= {"step", "validation", "scores"}
    card = read_card(tiny.model)
    assert (card.source, card.target) == ("en", "de")
    assert card.trained_on["steps"] == 6
    assert [score["name"] for score in card.scores] == ["BLEU", "chrF2"]
    assert all(score["signature"] for score in card.scores)


def mean_of(run: Path, *steps: int) -> dict[str, torch.Tensor]:
    several = [load_file(run / f"checkpoints/step-{step}/model.safetensors") for step in steps]
    return {name: (sum(each[name].double() for each in several) / len(several)).float() for name in several[0]}  # type: ignore[union-attr]


def test_the_model_is_the_mean_of_the_last_checkpoints_or_the_best_one(tiny: Trained) -> None:
    weights = load_file(tiny.model / "model.safetensors")
    trained_on = read_card(tiny.model).trained_on
    best = int((tiny.run / "checkpoints" / "best").read_text().strip().removeprefix("step-"))
    chosen = {"the mean of the last 2 checkpoints": (4, 6), "the best checkpoint": (best,)}
    expected = mean_of(tiny.run, *chosen[trained_on["weights"]])
    assert all(torch.equal(weights[name], expected[name]) for name in weights)
    assert trained_on["dev_loss"] <= trained_on["best_dev_loss"] + 1e-6


def test_an_existing_run_is_refused_with_the_command_to_resume(tiny: Trained, corpus: Corpus) -> None:
    with pytest.raises(UsageError, match=rf"exists already.*--resume {tiny.run}, or seqloom\.resume\('{tiny.run}'\)"):
        train(None, TINY, out=tiny.run, train=corpus[0], dev=corpus[1])


def test_a_failure_while_preparing_leaves_nothing_behind(tmp_path: Path, corpus: Corpus) -> None:
    with pytest.raises(DataError, match="no pairs left"):
        train(None, [*TINY, "data.longest=2"], out=tmp_path / "run", train=corpus[0], dev=corpus[1])
    assert not (tmp_path / "run").exists()


def test_a_head_that_the_chosen_model_lacks_is_refused_before_anything_is_written(
    tiny: Trained, tmp_path: Path, corpus: Corpus
) -> None:
    sizes = [setting for setting in TINY if "layers" not in setting]
    deep = ["model.decoder_layers=5", "search.heads=4/1"]
    assert choose_config(None, [*sizes, *deep], train=corpus[0], dev=corpus[1], listener=ignore).search.heads == "4/1"
    with pytest.raises(UsageError, match=r"search.heads=1/0 is not in this model: it has layers 0 to 0"):
        train(None, [*TINY, "search.heads=1/0"], out=tmp_path / "run", train=corpus[0], dev=corpus[1])
    assert not (tmp_path / "run").exists()
    with pytest.raises(UsageError, match=r"search.heads=1/0 is not in this model"):
        resume(tiny.run, ["training.steps=8", "search.heads=1/0"])


def test_no_training_files_is_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no training files"):
        train(out=tmp_path / "run")


def test_resume_trains_more_steps_and_writes_a_new_model(tiny: Trained, tmp_path: Path) -> None:
    shutil.copytree(tiny.run, tmp_path / "run")
    events: list[Event] = []
    further = resume(tmp_path / "run", ["training.steps=8"], listener=events.append)
    assert further is not None
    assert further.outcome.step == 8
    assert any(event.kind == "resumed" and event["step"] == 6 for event in events)
    assert read_card(further.model).trained_on["steps"] == 8
    again = resume(tmp_path / "run")
    assert again is not None
    assert again.outcome.message == "the run has finished: 8 of 8 steps; continue with training.steps=16"


def test_a_finished_run_refuses_fewer_steps_and_reports_settings_that_it_stores(tiny: Trained, tmp_path: Path) -> None:
    run = shutil.copytree(tiny.run, tmp_path / "run")
    before = {path: path.stat().st_mtime_ns for path in run.rglob("*.yaml")}
    (run / "learning-curve.png").unlink()  # as after a kill that came before it was drawn
    with pytest.raises(ConfigError, match=rf"training\.steps=3 is less than the 6 steps that {run} has made"):
        resume(run, ["training.steps=3"])
    again = resume(run)
    assert again is not None
    assert again.scores == tiny.scores
    assert (run / "learning-curve.png").is_file()
    assert {path: path.stat().st_mtime_ns for path in run.rglob("*.yaml")} == before
    events: list[Event] = []
    resume(run, ["search.length_factor=3"], listener=events.append)
    notices = [event["message"] for event in events if event.kind == "notice"]
    was = length_factor(tiny.run)
    stored = f"no steps left to train; stored in {run} and its model: search.length_factor from {was} to 3.0"
    assert stored in notices
    assert length_factor(run) == length_factor(run / "model") == 3


def length_factor(folder: Path) -> float | None:
    return read_settings(folder).search.length_factor


def test_resuming_in_one_go_or_in_two_gives_the_same_weights(tiny: Trained, tmp_path: Path, corpus: Corpus) -> None:
    shutil.copytree(tiny.run, tmp_path / "two")
    resume(tmp_path / "two", ["training.steps=9"])
    train(None, [*TINY, "training.steps=9"], out=tmp_path / "one", train=corpus[0], dev=corpus[1])
    one, two = (load_file(tmp_path / name / "checkpoints/step-9/model.safetensors") for name in ("one", "two"))
    assert all(torch.equal(one[name], two[name]) for name in one)


def test_changed_text_is_refused_on_resume_unless_allowed(tmp_path: Path) -> None:
    files, dev = write_corpus(tmp_path)
    train(None, TINY, out=tmp_path / "run", train=files, dev=dev)
    with Path(files[0]).open("a", encoding="utf-8") as source, Path(files[1]).open("a", encoding="utf-8") as target:
        source.write("Good morning.\n")
        target.write("Guten Morgen.\n")
    with pytest.raises(DataError, match=r"has changed since it began.*--allow-data-change"):
        resume(tmp_path / "run", ["training.steps=8"])
    allowed = resume(tmp_path / "run", ["training.steps=8"], allow_data_change=True)
    assert allowed is not None
    assert allowed.outcome.step == 8
    Path(files[0]).unlink()
    gone = resume(tmp_path / "run", ["training.steps=9"], allow_data_change=True)
    assert gone is not None


def test_text_that_was_not_touched_is_not_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files, dev = write_corpus(tmp_path)
    train(None, TINY, out=tmp_path / "run", train=files, dev=dev)
    opened: list[object] = []

    def counted(
        config: RunConfig, *, split: Literal["sources", "pairs"], formats: Sequence[Format], listener: Listener
    ) -> PairText:
        opened.append(config)
        return open_pairs(config, split=split, formats=formats, listener=listener)

    monkeypatch.setattr("seqloom.runs.translation.open_pairs", counted)
    resume(tmp_path / "run", ["training.steps=8", "data.workers=1"])
    assert not opened
    # The same text with another time, as a copy has it, is known by its hash.
    os.utime(files[0], ns=(1, 1))
    resume(tmp_path / "run", ["training.steps=9"])
    assert len(opened) == 1


def test_without_dev_files_a_tenth_at_most_is_held_out(tmp_path: Path, corpus: Corpus) -> None:
    events: list[Event] = []
    train(None, [*TINY, "training.steps=2"], out=tmp_path / "run", train=corpus[0], listener=events.append)
    kept = {event["name"]: event["kept"] for event in events if event.kind == "encoded"}
    assert kept == {"train": 108, "dev": 12}


def test_unknown_languages_are_reported_with_what_is_lost(tmp_path: Path, corpus: Corpus) -> None:
    names = []
    for name, path in zip(("old.txt", "new.txt"), corpus[0], strict=True):
        shutil.copy(path, tmp_path / name)
        names.append(str(tmp_path / name))

    def said(*settings: str) -> list[str]:
        events: list[Event] = []
        config = choose_config(None, [*TINY, *settings], train=names, dev=(), listener=ignore)
        open_pairs(config, listener=events.append)
        return [each["message"] for each in events if "unknown" in each["message"]]

    (both,) = said()
    assert both.startswith(f"the languages are unknown: {names[0]}, {names[1]} do not name them.")
    assert both.endswith("Give them, as in: data.source=de data.target=en")
    assert said("data.source=en")[0].startswith("the target language is unknown")
    assert said("data.source=en", "data.target=de") == []


@pytest.mark.parametrize("split", ["sources", None])
def test_ids_made_again_have_the_dev_pairs_of_the_run(tmp_path: Path, split: str | None) -> None:
    """Runs of versions that held pairs out one by one have no entry of it."""
    lines = [f"s{at % 50} x" for at in range(200)]
    paths = [tmp_path / "a.en", tmp_path / "a.de"]
    paths[0].write_text("".join(f"{line}\n" for line in lines))
    paths[1].write_text("".join(f"t{at} y\n" for at in range(200)))
    config = choose_config(None, TINY, train=list(map(str, paths)), dev=(), listener=ignore)
    prepare_run(tmp_path / "run", config, listener=ignore)
    record = json.loads((tmp_path / "run/run.json").read_text())
    assert record.pop("split") == "sources"
    if split is not None:
        record["split"] = split
    shutil.rmtree(tmp_path / "run/data/dev")
    prepare_resume(tmp_path / "run", config, record=record, allow_data_change=False, listener=ignore)
    dev = Store.open(tmp_path / "run/data/dev")
    held = (hold_out if split else hold_out_pairs)(open_corpus(paths), 20, seed=config.seed).held
    assert {dev.line(at) for at in range(len(dev))} == held.numbers
    train = Store.open(tmp_path / "run/data/train")
    sources = [{lines[each.line(at) - 1] for at in range(len(each))} for each in (train, dev)]
    assert bool(sources[0] & sources[1]) == (split is None)


def test_start_from_takes_weights_text_and_model_of_another(tiny: Trained, tmp_path: Path, corpus: Corpus) -> None:
    tuned = train(
        None,
        [f"training.start_from={tiny.model}", "training.steps=1", "training.learning_rate=1e-9"],
        out=tmp_path / "run",
        train=corpus[0],
        dev=corpus[1],
    )
    assert tuned is not None
    before, after = (load_file(each.model / "model.safetensors") for each in (tiny, tuned))
    for name in before:
        torch.testing.assert_close(before[name], after[name], atol=1e-6, rtol=0)
    assert load(tuned.model).tokenizers == load(tiny.model).tokenizers


def test_a_run_that_ends_before_its_first_checkpoint_resumes_from_the_weights_it_started_from(
    tiny: Trained, tmp_path: Path, corpus: Corpus
) -> None:
    def stop(event: Event) -> None:
        if event.kind == "model":
            raise KeyboardInterrupt

    words = [f"training.start_from={tiny.model}", "training.steps=1", "training.learning_rate=1e-9"]
    with pytest.raises(KeyboardInterrupt):
        train(None, words, out=tmp_path / "run", train=corpus[0], dev=corpus[1], listener=stop)
    loaded, weights = load(tiny.model), load_file(tiny.model / "model.safetensors")
    weights[sorted(weights)[0]][0] += 1
    save_model(tmp_path / "other", loaded.config, tokenizers=loaded.tokenizers, weights=weights, card=loaded.card)
    with pytest.raises(ModelError, match="was begun with another base"):
        resume(tmp_path / "run", [f"training.start_from={tmp_path / 'other'}"])
    resumed = resume(tmp_path / "run")
    assert resumed is not None
    before, after = (load_file(each.model / "model.safetensors") for each in (tiny, resumed))
    for name in before:
        torch.testing.assert_close(before[name], after[name], atol=1e-6, rtol=0)


def test_a_start_from_weights_that_are_not_finite_is_refused_before_the_first_step(
    tiny: Trained, tmp_path: Path, corpus: Corpus
) -> None:
    loaded, weights = load(tiny.model), load_file(tiny.model / "model.safetensors")
    name = sorted(weights)[0]
    weights[name][0] = torch.nan
    save_model(tmp_path / "bad", loaded.config, tokenizers=loaded.tokenizers, weights=weights, card=loaded.card)
    with pytest.raises(ModelError, match=rf"bad cannot be the start of a run: {name} has NaN or infinite numbers"):
        train(None, [f"training.start_from={tmp_path / 'bad'}"], out=tmp_path / "run", train=corpus[0], dev=corpus[1])
    assert not (tmp_path / "run").exists()


def test_a_recurrent_model_runs_on_the_same_path(tmp_path: Path, corpus: Corpus) -> None:
    settings = [each for each in TINY if not each.startswith("model.")]
    small = ["model.kind=seq2seq", "model.width=16", "model.embedding_width=16", "model.encoder_layers=1"]
    trained = train(None, [*settings, *small], out=tmp_path / "run", train=corpus[0], dev=corpus[1])
    assert trained is not None
    assert isinstance(load(trained.model).config.model, Seq2SeqConfig)
    assert len(Translator.load(trained.model).translate(["The dog sleeps.", "Where is my book?"])) == 2


def test_a_run_that_ends_above_a_uniform_guess_has_diverged_and_is_kept(tmp_path: Path, corpus: Corpus) -> None:
    events: list[Event] = []
    wild = [*TINY, "training.learning_rate=100", "training.warmup=1"]
    sentence = (
        r"training has diverged: the dev loss is [\d,]+ after step 6, above the 5\.\d+ of a uniform guess among \d+ "
        r"symbols; it was 5\.\d+ before training\. .*training\.learning_rate, now 100.*kept in"
    )
    with pytest.raises(TrainingError, match=sentence):
        train(None, wild, out=tmp_path / "run", train=corpus[0], dev=corpus[1], listener=events.append)
    assert read_card(tmp_path / "run" / "model").scores == ()
    assert (tmp_path / "run" / "learning-curve.png").is_file()
    # A model that has hardly begun is worse than a guess too, but no worse than it was before.
    new = [*TINY, "training.steps=1", "training.learning_rate=1e-9"]
    assert train(None, new, out=tmp_path / "new", train=corpus[0], dev=corpus[1], listener=events.append) is not None
    said = [event["message"] for event in events if event.kind == "notice"]
    assert any("has learned nothing useful yet" in message for message in said)


def test_weights_too_large_to_search_with_are_a_divergence_not_damage(tmp_path: Path, corpus: Corpus) -> None:
    settings = [each for each in TINY if not each.startswith("model.")]
    wild = ["model.kind=seq2seq", "model.width=8", "training.learning_rate=1e30", "training.warmup=1"]
    with pytest.raises(TrainingError, match=r"training has diverged: .*training\.learning_rate, now 1e\+30") as caught:
        train(None, [*settings, *wild], out=tmp_path / "run", train=corpus[0], dev=corpus[1])
    assert "damaged" not in str(caught.value)


def test_a_warm_up_longer_than_the_run_is_reported_before_it_begins(tmp_path: Path, corpus: Corpus) -> None:
    events: list[Event] = []
    slow = [*TINY, "training.steps=2", "training.warmup=100"]
    train(None, slow, out=tmp_path / "run", train=corpus[0], dev=corpus[1], listener=events.append)
    sentence = "training.warmup=100 is longer than the run (training.steps=2)"
    (at,) = [at for at, event in enumerate(events) if event.values.get("message", "").startswith(sentence)]  # type: ignore[union-attr]
    assert "reaches 2% of training.learning_rate" in events[at]["message"]
    assert at < next(at for at, event in enumerate(events) if event.kind == "phase")
    resume(tmp_path / "run", ["training.steps=3"], listener=events.append)
    assert any(str(event.values.get("message")).startswith(sentence.replace("2", "3")) for event in events)


def test_more_steps_keep_what_was_chosen_for_fewer_and_say_so(tmp_path: Path, corpus: Corpus) -> None:
    files = {"train": corpus[0], "dev": corpus[1]}
    open_to_choice = [each for each in TINY if not each.startswith(("training.steps", "training.warmup"))]
    events: list[Event] = []
    train(None, [*open_to_choice, "training.steps=4"], out=tmp_path / "parts", **files)
    resume(tmp_path / "parts", ["training.steps=8"], listener=events.append)
    said = [event["message"] for event in events if event.kind == "notice"]
    kept = "kept from the beginning: training.warmup=1, training.validate_every=3, training.save_every=2"
    assert any(message.startswith("training.steps was 4 and is 8") and kept in message for message in said)
    # As promised: a run of its own gives the same bits if it is given what was kept, and chooses otherwise by itself.
    train(None, [*open_to_choice, "training.steps=8", "training.warmup=1"], out=tmp_path / "whole", **files)
    parts, whole = (load_file(tmp_path / run / "checkpoints/step-8/model.safetensors") for run in ("parts", "whole"))
    assert all(torch.equal(parts[name], whole[name]) for name in whole)
    free = choose_config(None, [*open_to_choice, "training.steps=8"], **files, listener=events.append)
    assert free.training.warmup == 2
    # With another rate, what was learned up to here is of another run.
    with pytest.raises(
        ConfigError, match=r"cannot be resumed with bit-identical results.*training\.learning_rate was .* and is 1\.0"
    ):
        resume(tmp_path / "parts", ["training.steps=9", "training.learning_rate=1"], exact=True)


def test_a_model_larger_than_the_memory_is_refused_before_the_text_is_prepared(tmp_path: Path, corpus: Corpus) -> None:
    events: list[Event] = []
    large = [each for each in TINY if "width" not in each] + ["model.width=100000"]
    sentence = r"model\.width=100000 .*needs at least [\d.]+ TB .*has [\d.]+ GB.*The largest model\.width that fits is"
    with pytest.raises(ConfigError, match=sentence):
        train(None, large, out=tmp_path / "run", train=corpus[0], dev=corpus[1], listener=events.append)
    assert not (tmp_path / "run").exists()
    assert not [event for event in events if event.kind in ("phase", "encoded")]


@pytest.mark.parametrize("model", [TransformerConfig(width=4096), Seq2SeqConfig(width=4096), RnnLmConfig(width=4096)])
def test_the_size_that_is_advised_fits_and_a_tenth_more_does_not(model: Any) -> None:
    symbols, memory = Symbols(50, 50, is_shared=True, pieces=tuple("ab" * 25)), 20_000_000
    with pytest.raises(ConfigError, match=r"model\.width=4096") as caught:
        require_memory(RunConfig(model=model), symbols, memory=memory)
    advised = int(re.search(r"that fits is (\d+)", str(caught.value))[1])  # type: ignore[index]
    require_memory(RunConfig(model=model.model_copy(update={"width": advised})), symbols, memory=memory)
    more = model.model_copy(update={"width": advised + max(advised // 10 // 8 * 8, 8)})
    with pytest.raises(ConfigError):
        require_memory(RunConfig(model=more), symbols, memory=memory)


@dataclass(frozen=True)
class Outside:
    """A model that the house does not know: the recurrent one, by another name."""

    size: int = 8
    places: tuple[Path, ...] = (Path("some") / "where",)
    """A value that JSON does not have."""

    def build(self, symbols: Symbols, *, seed: int) -> nn.Module:
        sizes = {"width": self.size, "embedding_width": self.size, "encoder_layers": 1, "decoder_layers": 1}
        return Seq2SeqConfig(**sizes).build(symbols, seed=seed)  # type: ignore[arg-type]


def test_a_model_from_outside_is_trained_and_loaded(tmp_path: Path, corpus: Corpus) -> None:
    trained = train(None, TINY, out=tmp_path / "run", train=corpus[0], dev=corpus[1], model=Outside())
    assert trained is not None
    words = rf"{re.escape(__name__)}\.Outside\(places=\['some/where'\], size=8\)"
    with pytest.raises(ModelError, match=rf"holds a model from outside, {words}.*seqloom\.load\(.*, model="):
        load(trained.model)
    assert len(Translator.load(trained.model, model=Outside()).translate(["Hello."])) == 1
    with pytest.raises(ModelError, match=rf"do not fit this model.*trained with {words}"):
        load(trained.model, model=Outside(size=16))


def test_a_model_from_outside_that_cannot_be_built_leaves_no_run(tmp_path: Path, corpus: Corpus) -> None:
    class Broken:
        def build(self, symbols: object) -> None: ...

    class Empty:
        def build(self, symbols: object, *, seed: int) -> None: ...

    for model, error, words in (
        (Outside, UsageError, r"is a class; give an instance"),
        (Broken(), ModelError, r"Broken\.build\(symbols, seed=…\) failed: TypeError"),
        (Empty(), ModelError, r"must return a torch\.nn\.Module; got None"),
    ):
        with pytest.raises(error, match=words):
            train(None, TINY, out=tmp_path / "run", train=corpus[0], dev=corpus[1], model=model)  # type: ignore[arg-type]
        assert not (tmp_path / "run").exists()


def test_a_fitted_model_takes_no_settings_of_another(tmp_path: Path, corpus: Corpus) -> None:
    trained = train(None, ["model.kind=ngram"], out=tmp_path / "run", train=corpus[0][:1])
    assert trained is not None
    with pytest.raises(UsageError, match="leave out model="):
        seqloom.load(trained.model, model=Outside())


def test_a_set_among_settings_is_recorded_in_one_order() -> None:
    names = [f"layer{number}" for number in range(20)]
    model = Outside()
    object.__setattr__(model, "places", frozenset(names))
    assert OutsideConfig.of(model).settings["places"] == sorted(names)


def test_a_model_from_outside_is_recorded_and_resumed_as_what_it_is(tmp_path: Path, corpus: Corpus) -> None:
    run, record = tmp_path / "run", {"builder": f"{__name__}.Outside", "settings": {"size": 8, "places": []}}
    events: list[Event] = []
    train(None, TINY, out=run, train=corpus[0], dev=corpus[1], model=Outside(places=()), listener=events.append)
    told = "\n".join(str(reason) for event in events if event.kind == "sizing" for reason in event["reasons"])
    assert "Transformer" not in told
    kept = read_settings(run / "model").model.model_dump()
    assert kept == {"kind": "outside", **record}
    assert read_card(run / "model").trained_on["outside_model"] == record
    shown = call("info", run).out
    assert f"{__name__}.Outside" in shown
    assert "size 8" in shown
    assert "heads" not in shown.split("Search")[0]
    with pytest.raises(ModelError, match=rf"seqloom\.resume\('{run}', model={re.escape(__name__)}\.Outside\(places"):
        resume(run, ["training.steps=8"])
    with pytest.raises(UsageError, match=r"model\.settings\.size is 8 in .* and cannot become 9"):
        resume(run, ["training.steps=8"], model=Outside(size=9, places=()))
    more = seqloom.resume(run, ["training.steps=8"], model=Outside(places=()))
    assert more is not None
    assert more.outcome.step == 8
    assert average([run / "checkpoints/step-6", run / "checkpoints/step-8"], tmp_path / "mean").is_dir()
    with pytest.raises(UsageError, match=r"model\.kind=outside .*seqloom\.train\(…, model=…\)"):
        train(None, ["model.kind=outside", "model.builder=a.b"], out=tmp_path / "no", train=corpus[0])


def test_settings_of_our_own_given_as_a_model_are_recorded_as_such(tmp_path: Path, corpus: Corpus) -> None:
    settings = [each for each in TINY if not each.startswith("model.")]
    ours = Seq2SeqConfig(width=8, embedding_width=8, encoder_layers=1, decoder_layers=1)
    trained = train(None, settings, out=tmp_path / "run", train=corpus[0], dev=corpus[1], model=ours)
    assert trained is not None
    assert load(trained.model).config.model == ours


class Widened(Seq2SeqConfig):
    """Settings of our own with another `build`."""

    def build(self, symbols: Symbols, *, seed: int, make_cell: MakeCell | None = None) -> Seq2Seq:
        wide = Seq2SeqConfig(**{**self.model_dump(), "width": 2 * self.width})
        return wide.build(symbols, seed=seed, make_cell=make_cell)


def test_a_subclass_of_our_settings_is_a_model_from_outside(tmp_path: Path, corpus: Corpus) -> None:
    settings = [each for each in TINY if not each.startswith("model.")]
    model = Widened(width=8, embedding_width=8, encoder_layers=1, decoder_layers=1)
    trained = train(None, settings, out=tmp_path / "run", train=corpus[0], dev=corpus[1], model=model)
    assert trained is not None
    with pytest.raises(ModelError, match=r"holds a model from outside, .*Widened\("):
        load(trained.model)
    assert len(Translator.load(trained.model, model=model).translate(["Hello."])) == 1


def test_average_of_two_checkpoints_is_their_mean(tiny: Trained, tmp_path: Path) -> None:
    places = [tiny.run / f"checkpoints/step-{step}" for step in (4, 6)]
    made = load_file(average(places, tmp_path / "mean") / "model.safetensors")
    expected = mean_of(tiny.run, 4, 6)
    assert all(torch.equal(made[name], expected[name]) for name in expected)
    with pytest.raises(UsageError, match="exists already"):
        average(places, tmp_path / "mean")
    alone = load_file(average(places[:1], tmp_path / "one") / "model.safetensors")
    assert all(torch.equal(alone[name], weight) for name, weight in load_file(places[0] / "model.safetensors").items())


def test_a_damaged_or_newer_model_is_not_loaded(tiny: Trained, tmp_path: Path) -> None:
    folder = tmp_path / "model"
    shutil.copytree(tiny.model, folder)
    path = folder / "model.safetensors"
    content = bytearray(path.read_bytes())
    content[-3] ^= 1
    path.write_bytes(content)
    with pytest.raises(ModelError, match=r"damaged.*model\.safetensors"):
        load(folder)
    path.unlink()
    with pytest.raises(ModelError, match=r"damaged.*model\.safetensors"):
        load(folder)
    manifest = json.loads((folder / "manifest.json").read_text())
    (folder / "manifest.json").write_text(json.dumps({**manifest, "format": 99}))
    with pytest.raises(ModelError, match="format 99"):
        load(folder)
    (folder / "manifest.json").unlink()
    with pytest.raises(ModelError, match=r"manifest\.json is missing"):
        load(folder)


def test_a_card_of_a_newer_format_is_refused_as_a_manifest_is(tiny: Trained, tmp_path: Path) -> None:
    folder = tmp_path / "model"
    shutil.copytree(tiny.model, folder)
    card = json.loads((folder / "model.json").read_text())
    add_file(folder, "model.json", write=lambda path: path.write_text(json.dumps({**card, "format": 99})) and None)
    with pytest.raises(ModelError, match=rf"{folder / 'model.json'} has format 99, and this Seqloom .* reads up to \d"):
        load(folder)


def test_what_is_no_model_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="model directory not found"):
        load(tmp_path / "nothing")
    with pytest.raises(ModelError, match=r"model\.json is missing"):
        load(tmp_path)
    (tmp_path / "checkpoints").mkdir()
    with pytest.raises(ModelError, match="has not finished"):
        load(tmp_path)
    with pytest.raises(UsageError, match="'potato' is unknown; use cpu"):
        require_device("potato")


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU here")
def test_a_missing_gpu_is_reported() -> None:
    with pytest.raises(UsageError, match="no GPU found; use device=cpu"):
        require_device("cuda")
