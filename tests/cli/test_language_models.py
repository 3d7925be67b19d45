"""Training, measuring and generating with language models, from the command line."""

import lzma
import math
import shutil
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import torch

from cli.calling import Called, call, into_closed_pipe
from cli.conftest import Tiny
from seqloom.data.phrasebook import sample_pairs
from seqloom.runs.loading import load, load_fitted
from seqloom.runs.model_dir import save_model
from seqloom.training.weights import weights_of

WORDS = ("text.kind=word", "text.minimum_count=1", "text.size=1000")
RECURRENT = (
    "model.kind=rnn_lm",
    "model.width=16",
    "task.rows=4",
    "task.length=8",
    "training.steps=4",
    "training.validate_every=2",
    "training.save_every=2",
    "training.average=0",
)


@dataclass(frozen=True)
class Models:
    """A recurrent model and a counted one of the same words, their text, and what the commands said."""

    text: Path
    dev: Path
    recurrent: Path
    counted: Path
    said: dict[str, Called]


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Models:
    folder = tmp_path_factory.mktemp("language-models")
    text, dev = folder / "text.txt", folder / "dev.txt"
    for path, count, seed in ((text, 60, 1), (dev, 12, 2)):
        lines = [pair.source for pair in sample_pairs("en", "de", count=count, seed=seed, split="train")]
        path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    said = {}
    for name, settings in (("recurrent", RECURRENT), ("counted", ("model.kind=ngram", "model.order=3"))):
        words = [*settings, *WORDS, "--train", text, "--dev", dev, "--out", folder / name]
        said[name] = call("train", *words)
        assert said[name].code == 0, said[name].err
    return Models(text, dev, folder / "recurrent", folder / "counted", said)


def test_a_run_ends_with_perplexities_and_the_next_commands(models: Models) -> None:
    for name, took in (("recurrent", "Steps  4 in"), ("counted", "Fitted to")):
        out = models.said[name].out
        assert took in out
        assert "perplexity/word" in out
        assert "|end:yes|" in out
        assert f"seqloom generate {models.text.parent / name / 'model'} --prompt" in out
        assert "seqloom translate" not in out
    assert "train: 60 lines" in models.said["recurrent"].err
    assert "step 4: dev loss" in models.said["recurrent"].err


def test_perplexity_is_reported_in_three_units_with_signatures(models: Models) -> None:
    called = call("perplexity", models.counted, models.dev)
    assert called.code == 0, called.err
    assert [line.split()[0] for line in called.lines[:3]] == [f"perplexity/{u}" for u in ("token", "word", "character")]
    (record,) = call("perplexity", models.counted, models.dev, "--json").records
    token = record["perplexity"]["token"]
    assert token["bits"] == pytest.approx(math.log2(token["value"]))
    assert f"{token['value']:.2f}" in called.lines[0]
    assert record["lines"] == 12


def test_perplexity_of_known_tokens_and_the_cost_of_unknown_ones(models: Models, tmp_path: Path) -> None:
    text = tmp_path / "odd.txt"
    text.write_text("The dog qxqx.\n\nqxqx\n")
    (record,) = call("perplexity", models.counted, text, "--json").records
    token, known = record["perplexity"]["token"], record["perplexity"]["known"]
    unknown = record["unknown"]
    assert unknown == token["count"] - known["count"] >= 2
    assert known["signature"].endswith("|unknown:skipped")
    whole = known["bits"] * known["count"] + record["unknown_bits"] * unknown
    assert whole == pytest.approx(token["bits"] * token["count"])
    said = call("perplexity", models.counted, text).lines
    assert f"{record['unknown_bits']:.2f} bits on average, the others {known['bits']:.2f}; compare" in said[-1]
    # Where all is known, nothing of this is said.
    assert len(call("perplexity", models.counted, models.text).lines) == 3


def test_a_text_may_come_from_standard_input(models: Models) -> None:
    (named,) = call("perplexity", models.counted, models.dev, "--json").records
    (piped,) = call("perplexity", models.counted, "-", "--json", stdin=models.dev.read_bytes()).records
    assert piped["perplexity"] == named["perplexity"]
    empty = call("perplexity", models.counted, "-")
    assert empty.code == 3
    assert "standard input is empty" in empty.err


def test_texts_of_several_files_of_any_kind_are_measured_as_one(models: Models, tmp_path: Path) -> None:
    lines = models.dev.read_text().splitlines()
    (tmp_path / "1.txt.xz").write_bytes(lzma.compress("\n".join(lines[:5]).encode()))
    units = "".join(
        f'<tu><tuv xml:lang="en"><seg>{line}</seg></tuv><tuv xml:lang="xx"><seg>x</seg></tuv></tu>'
        for line in lines[5:]
    )
    (tmp_path / "2.tmx").write_text(f'<tmx version="1.4"><header srclang="en"/><body>{units}</body></tmx>')
    (whole,) = call("perplexity", models.counted, models.dev, "--json").records
    asked = call("perplexity", models.counted, tmp_path / "1.txt.xz", tmp_path / "2.tmx")
    assert asked.code == 3
    assert "holds texts in en and xx; choose one of them" in asked.err
    settings = ["model.kind=ngram", "model.order=3", *WORDS, "data.target=en"]
    texts = ["--train", models.text, "--dev", tmp_path / "2.tmx", "--out", tmp_path / "run"]
    assert call("train", *settings, *texts).code == 0
    (parts,) = call("perplexity", tmp_path / "run", tmp_path / "[12].*", "--json").records
    assert parts["lines"] == whole["lines"] == len(lines)
    assert parts["perplexity"]["token"]["count"] == whole["perplexity"]["token"]["count"]
    assert parts["perplexity"]["token"]["value"] == pytest.approx(whole["perplexity"]["token"]["value"], rel=1e-9)
    both = call("perplexity", models.counted, models.dev, "-")
    assert (both.code, "cannot be combined with other files" in both.err) == (2, True)


def test_an_arpa_file_is_exported_measured_and_writes(models: Models, tmp_path: Path) -> None:
    dev, out = tmp_path / "dev.txt", tmp_path / "new" / "model.arpa.gz"
    dev.write_text("the dog qxqx sleeps\n")
    words = ["text.kind=word", "text.segmentation=spaces", "--train", models.text, "--dev", models.dev]
    assert call("train", "model.kind=ngram", "model.order=2", *words, "--out", tmp_path / "run").code == 0
    exported = call("export", tmp_path / "run", "--to", "arpa", "--out", out)
    assert (exported.code, f"Written  {out}" in exported.out) == (0, True), exported.err
    (ours,), (theirs,) = (call("perplexity", model, dev, "--json").records for model in (tmp_path / "run", out))
    assert theirs["perplexity"]["token"]["value"] == pytest.approx(ours["perplexity"]["token"]["value"], rel=1e-5)
    assert theirs["unknown"] == ours["unknown"] > 0
    written = call("generate", out, "--count", "2", "search.length_constant=5", "search.seed=2")
    assert (written.code, len(written.lines)) == (0, 2), written.err
    again = call("export", tmp_path / "run", "--to", "arpa", "--out", out)
    assert (again.code, "already exists" in again.err) == (2, True)
    wrong = call("export", models.recurrent, "--to", "arpa", "--out", tmp_path / "no.arpa")
    assert (wrong.code, "which is for n-grams" in wrong.err) == (2, True)


def test_scores_of_lines_add_up_to_the_perplexity(models: Models) -> None:
    (record,) = call("perplexity", models.recurrent, models.dev, "--json").records
    scores = [float(line) for line in call("perplexity", models.recurrent, models.dev, "--per-line").lines]
    assert len(scores) == 12
    mean = -sum(scores) / record["perplexity"]["token"]["count"]
    assert math.exp(mean) == pytest.approx(record["perplexity"]["token"]["value"], rel=1e-5)


def test_models_are_mixed_with_given_or_tuned_weights(models: Models) -> None:
    both = [models.recurrent, models.dev, "--with", models.counted]
    given = call("perplexity", *both, "--weight", "0.3", "--json").records[0]
    assert [model["weight"] for model in given["models"]] == pytest.approx([0.7, 0.3])
    tuned = call("perplexity", *both, "--tune", models.dev, "--json").records[0]
    assert tuned["perplexity"]["token"]["value"] <= given["perplexity"]["token"]["value"] + 1e-6
    said = call("perplexity", *both, "--tune", models.dev)
    assert "is also measured: the result is too optimistic" in said.err
    for model in (models.recurrent, models.counted):
        (alone,) = call("perplexity", model, models.dev, "--json").records
        assert f"{model} (alone {alone['perplexity']['token']['value']:.2f})" in said.lines[-1]


def test_a_model_in_place_of_a_text_points_to_with(models: Models) -> None:
    called = call("perplexity", models.recurrent, models.counted, models.text)
    assert (called.code, f"use --with {models.counted}" in called.err) == (2, True)


def test_settings_of_steps_are_reported_for_fitted_models(models: Models, tmp_path: Path) -> None:
    file = tmp_path / "run.yaml"
    file.write_text("training: {steps: 300}\n", encoding="utf-8")
    words = [file, "model.kind=ngram", "training.patience=4", *WORDS]
    called = call("train", *words, "--train", models.text, "--dev", models.dev, "--out", tmp_path / "run")
    assert called.code == 0
    assert "no effect: training.steps, training.patience; a model of kind ngram is fitted" in called.err
    assert "no effect" not in models.said["counted"].err


def test_texts_are_written_and_the_seed_decides(models: Models) -> None:
    words = ["generate", models.counted, "--prompt", "The", "--count", "3"]
    one, again = (call(*words, "search.seed=3") for _ in range(2))
    assert one.code == 0, one.err
    assert len(one.lines) == 3
    assert all(line.startswith("The") for line in one.lines)
    assert one.out == again.out != call(*words, "search.seed=4").out
    records = call(*words, "--json").records
    assert [record["number"] for record in records] == [1, 2, 3]
    assert all(record["log_prob"] < 0 for record in records)
    long = call("generate", models.recurrent, "--past-line-ends", "search.length_constant=60", "--json").records[0]
    assert (long["tokens"], long["is_finished"]) == (60, False)


def test_unknown_words_of_a_prompt_are_reported(models: Models) -> None:
    called = call("generate", models.counted, "--prompt", "The qxqx", "search.length_constant=3")
    assert called.code == 0
    assert called.out.startswith("The qxqx")
    assert "1 of 2 tokens of the prompt are unknown to the model" in called.err
    assert call("generate", models.counted, "--prompt", "The", "search.length_constant=3").err == ""


def test_a_beam_is_wide_enough_for_all_texts_and_for_its_groups(models: Models) -> None:
    words = ["search.method=beam", "search.beam=4", "search.groups=2", "search.length_constant=4", "--count", "5"]
    called = call("generate", models.counted, *words)
    assert called.code == 0, called.err
    assert 4 <= len(called.lines) <= 5  # groups may find the same text


def test_a_token_of_probability_zero_is_reported_with_the_infinite_perplexity(models: Models, tmp_path: Path) -> None:
    words = ["model.kind=ngram", "model.order=2", "model.smoothing=mle", *WORDS, "--out", tmp_path / "run"]
    assert call("train", *words, "--train", models.text, "--dev", models.dev).code == 0
    (tmp_path / "unheard.txt").write_text("qxqx\n")
    called = call("perplexity", tmp_path / "run", tmp_path / "unheard.txt")
    assert called.code == 0, called.err
    assert called.lines[0].split()[:2] == ["perplexity/token", "inf"]
    assert "1 of 2 tokens have probability 0, the first is <unk> in line 1" in called.out
    (record,) = call("perplexity", tmp_path / "run", tmp_path / "unheard.txt", "--json").records
    assert record["perplexity"]["token"]["value"] is None
    assert record["impossible"] >= 1


def test_weights_that_are_no_numbers_are_a_damaged_model_and_no_perplexity(models: Models, tmp_path: Path) -> None:
    loaded = load(models.recurrent)
    weights = {name: torch.full_like(tensor, math.nan) for name, tensor in weights_of(loaded.model).items()}
    broken = tmp_path / "broken"
    save_model(broken, loaded.config, tokenizers=loaded.tokenizers, weights=weights, card=loaded.card)
    for words in (["perplexity", broken, models.dev], ["perplexity", broken, models.dev, "--per-line"]):
        called = call(*words)
        assert (called.code, called.out) == (4, ""), called.err
        assert f"{broken} gives no number (NaN) for log P of" in called.err
    called = call("perplexity", models.recurrent, models.dev, "--with", broken, "--tune", models.dev)
    assert called.code == 4
    assert f"{broken} gives no number" in called.err
    written = call("generate", broken)
    assert (written.code, written.out) == (4, "")
    assert "NaN" in written.err


def test_an_unfinished_fit_reports_how_to_resume(models: Models, tmp_path: Path) -> None:
    shutil.copytree(models.counted, tmp_path / "run")
    shutil.rmtree(tmp_path / "run" / "model")
    called = call("generate", tmp_path / "run")
    assert called.code == 4
    assert f"seqloom train --resume {tmp_path / 'run'}" in called.err


def test_info_describes_language_models(models: Models) -> None:
    out = call("info", models.counted).out
    assert "ngram" in out
    assert "language model" in out
    assert "60 lines" in out
    assert "perplexity/token" in out
    assert "→" not in out
    arrays = load_fitted(models.counted).model.arrays()
    sizes = [f"{size:,} of length {length}" for length, size in enumerate(np.diff(arrays["borders"]).tolist(), start=1)]
    assert f"N-grams  {', '.join(sizes)}\n" in out
    assert f"Text     {arrays['borders'][1]:,} pieces\n         size 1000" in out
    assert "alpha" not in out
    assert "Search   method sample, length_factor 0.0, length_constant" in out
    assert call("info", models.recurrent, "--json").records[0]["config"]["task"]["kind"] == "language_modelling"


@pytest.mark.parametrize("name", ["recurrent", "counted"])
def test_what_only_translators_do_is_refused_with_what_these_models_do(name: str, models: Models) -> None:
    model = getattr(models, name)
    for words in (["translate", model, models.dev], ["score", model, models.dev, models.dev], ["export", model]):
        called = call(*words, *(["--to", "onnx"] if words[0] == "export" else []))
        assert called.code in (2, 4), called.err
        assert "internal error" not in called.err
        if words[0] != "export":
            assert "does not translate: it is a language model" in called.err
            assert "seqloom generate" in called.err


@pytest.fixture(scope="module")
def target_lm(tiny: Tiny, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A language model of the target text with the tokenisers of the translator, as the error message says."""
    out = tmp_path_factory.mktemp("target") / "lm"
    called = call(
        "train", "model.kind=ngram", "--train", tiny.train[1], "--out", out, f"data.tokenizers_from={tiny.run}"
    )
    assert called.code == 0, called.err
    assert f"tokenisers of {tiny.run}, " in called.err
    return out


def test_a_fused_language_model_counts_by_its_weight(tiny: Tiny, target_lm: Path) -> None:
    words = ["translate", tiny.run, tiny.dev[0], "--json", "search.beam=1"]
    fused = {weight: call(*words, "--fuse", target_lm, "--fuse-weight", weight) for weight in (0, 1000)}
    assert fused[0].code == 0, fused[0].err
    for ours, alone in zip(fused[0].records, call(*words).records, strict=True):
        (one,), (other,) = ours["translations"], alone["translations"]
        assert one["tokens"] == other["tokens"]
        assert one["token_log_probs"] == pytest.approx(other["token_log_probs"], abs=1e-5)
    # With almost all of the weight it writes what it finds most probable, whatever the source is.
    wanted = call("generate", target_lm, "search.method=beam", "search.beam=1", "--json").records[0]["text"]
    assert {each["translations"][0]["text"] for each in fused[1000].records} == {wanted.strip()}


def test_evaluate_compares_a_model_with_and_without_a_language_model(tiny: Tiny, target_lm: Path) -> None:
    words = ["evaluate", tiny.run, "--against", tiny.run, "--source", tiny.dev[0], "--reference", tiny.dev[1], "--json"]
    alone, fused = call(*words, "--fuse", target_lm, "--fuse-weight", 50).records[0]["systems"]
    assert (alone["name"], fused["name"]) == (str(tiny.run), f"{tiny.run} + 50 · {target_lm}")
    assert alone["scores"] != fused["scores"]


def test_a_language_model_that_cannot_be_fused_is_refused_with_the_way_to_train_one(
    tiny: Tiny, models: Models, target_lm: Path
) -> None:
    for words, part in (
        (["--with", models.counted], f"--with takes translators; add it with --fuse {models.counted}"),
        (["--fuse", models.counted], f"--train TEXT --out LM data.tokenizers_from={tiny.run / 'model'}"),
        (["--fuse", tiny.run], "is not a language model"),
        (["--fuse-weight", "0.1"], "--fuse-weight 0.1 has no effect without a language model; add --fuse LM"),
        (["--fuse", target_lm, "--jobs", "2"], "--fuse cannot be combined with --jobs"),
        (["--fuse", target_lm, "--engine", "ctranslate2"], "--fuse"),
    ):
        called = call("translate", tiny.run, tiny.dev[0], *words)
        assert (called.code, called.out) == (2, ""), called.err
        assert part in called.err


def test_a_text_in_place_of_a_vocabulary_is_refused_with_the_setting(models: Models, tmp_path: Path) -> None:
    words = ["train", "model.kind=ngram", "--train", models.text, "--out", tmp_path / "run"]
    called = call(*words, f"data.tokenizers_from={models.text}")
    assert called.code == 3
    assert f"data.tokenizers_from={models.text} is neither a model nor a vocabulary file" in called.err
    assert f"{models.text}:1: " in called.err


def test_a_vocabulary_file_gives_the_words_of_a_language_model(models: Models, tmp_path: Path) -> None:
    vocabulary = tmp_path / "vocab.txt"
    vocabulary.write_text("<unk>\n<eos>\nThe 12\ndog 3\n")
    words = ["train", "model.kind=ngram", "--train", models.text, "--out", tmp_path / "run"]
    clash = call(*words, f"data.tokenizers_from={vocabulary}", "text.kind=char")
    assert (clash.code, "is a list of words, for text.kind=word" in clash.err) == (2, True)
    trained = call(*words, f"data.tokenizers_from={vocabulary}")
    assert trained.code == 0, trained.err
    assert load_fitted(tmp_path / "run").tokenizers.target.vocabulary[4:] == ("The", "dog")


def test_a_translator_is_no_language_model(tiny: Tiny, models: Models) -> None:
    for words in (["perplexity", tiny.run, models.dev], ["generate", tiny.run]):
        called = call(*words)
        assert called.code == 2
        assert "is not a language model: it is a translator of kind transformer; use seqloom translate" in called.err


@pytest.mark.parametrize(
    ("words", "code", "parts"),
    [
        (["perplexity", "MODEL", "no.txt"], 2, ["no.txt: no such file"]),
        (["perplexity", "MODEL", "empty.txt"], 3, ["empty.txt", "expected at least one line"]),
        (["perplexity", "MODEL", "TEXT", "--tune", "TEXT"], 2, ["--tune", "--tune requires --with MODEL"]),
        (["perplexity", "MODEL", "TEXT", "--with", "MODEL", "--weight", "1.5"], 2, ["--weight 1.5 leaves -0.5"]),
        (["perplexity", "MODEL", "TEXT", "--with", "MODEL", "--weight", "nan"], 2, ["--weight nan"]),
        (["perplexity", "MODEL", "TEXT", "--weight", "0.5"], 2, ["got 1 --weight for 0 --with"]),
        (["perplexity", "MODEL", "TEXT", "--context", "text"], 2, ["each line by itself"]),
        (["generate", "MODEL", "Once"], 2, ["'Once'", "--prompt"]),
        (["generate", "MODEL", "model.order=2"], 2, ["cannot be changed after training"]),
        (["generate", "MODEL", "temperature=0.8"], 2, ["did you mean search.temperature=0.8?"]),
        (["perplexity", "no.arpa.gz", "TEXT"], 2, ["no.arpa.gz: no such file"]),
        (["generate", "MODEL", "--count", "0"], 2, ["count=0"]),
        (["generate", "MODEL", "--count", "1000000"], 2, ["count=1000000", "at most 100,000"]),
        (["generate", "MODEL", "--count", "1001", "search.method=beam"], 2, ["count=1001", "at most 1,000"]),
        (["generate", "MODEL", "search.nbest=3"], 2, ["search.nbest=3", "--count"]),
        (["generate", "MODEL", "search.precision=int8"], 2, ["search.precision=int8 has no effect"]),
        (["generate", "MODEL", "search.shortlist=5"], 2, ["search.shortlist=5 has no effect"]),
        (["generate", "MODEL", "search.diversity=2"], 2, ["search.diversity=2 has no effect", "search.groups"]),
        (["generate", "MODEL", "search.temperature=.nan"], 2, ["search.temperature"]),
        (
            ["train", "model.kind=ngram", "--train", "blank.txt", "--out", "run"],
            3,
            ["blank.txt: 12 lines, all of them"],
        ),
        (
            ["train", "model.kind=ngram", "--train", "TEXT", "--dev", "blank.txt", "--out", "run"],
            3,
            ["blank.txt: 12 lines, all of them blank"],
        ),
        (["train", "model.kind=ngram", "--train", "TEXT", "--out", "run", "model.prune=[0,2,1]"], 2, ["never fall"]),
        (
            ["train", "model.kind=ngram", "--train", "TEXT", "--out", "run", "model.discount_fallback=[-1,5,9]"],
            2,
            ["[-1.0, 5.0, 9.0]", "0 to 3"],
        ),
        (["train", "model.kind=ngram", "--train", "empty.txt", "--out", "run"], 3, ["empty.txt", "at least one line"]),
        (["train", "model.kind=ngram", "--train", "two.txt", "--out", "run"], 3, ["2 lines are too few", "--dev"]),
        (["train", "model.kind=ngram", "--train", "TEXT", "--out", "run", "model.order=0"], 2, ["model.order"]),
        (["train", "model.kind=rnn_lm", "--train", "TEXT", "--out", "run", "task.length=0"], 2, ["task.length"]),
        (["train", "model.kind=rnn_lm", "--out", "run"], 2, ["no training files: give --train TEXT"]),
        (
            ["train", "model.kind=rnn_lm", "task.kind=translation", "--train", "TEXT", "--out", "run"],
            2,
            ["task.kind is translation", "rnn_lm"],
        ),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else str(value),
)
def test_invalid_arguments_are_refused_with_a_message(
    words: list[str], code: int, parts: list[str], models: Models, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("empty.txt").write_text("")
    Path("blank.txt").write_text("\n \n\u200b\n" * 4, encoding="utf-8")
    Path("two.txt").write_text("one\ntwo\n")
    named = {"MODEL": str(models.counted), "TEXT": str(models.text)}
    called = call(*(named.get(word, word) for word in words))
    assert (called.code, called.out) == (code, ""), called.err
    assert [part for part in parts if part not in called.err] == []
    assert "internal error" not in called.err
    assert not Path("run").exists()


def test_generating_into_a_closed_pipe_ends_quietly(models: Models) -> None:
    called = into_closed_pipe("generate", models.counted, "--count", 3)
    assert (called.code, called.err) == (0, "")
