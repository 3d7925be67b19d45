"""`seqloom info`, `config` and `average`: what a model is, what can be set, one model from several."""

from pathlib import Path

import pytest
import yaml

from cli.calling import call
from cli.conftest import Tiny
from seqloom.core.events import ignore
from seqloom.runs.loading import load
from seqloom.runs.prepare import choose_config


def test_info_tells_sizes_languages_data_scores_and_files(tiny: Tiny) -> None:
    called = call("info", tiny.run)
    assert called.code == 0, called.err
    for part in ("transformer", "en → de", "width 16", str(tiny.train[0]), "60 pairs", "4 steps", "on dev, 6 lines"):
        assert part in called.out
    assert "|bs:40|seed:1" in called.out
    assert "model.safetensors" in called.out


def test_info_as_json(tiny: Tiny) -> None:
    (record,) = call("info", tiny.run, "--json").records
    weights = tiny.run / "model" / "model.safetensors"
    assert record["files"]["model.safetensors"] == weights.stat().st_size
    assert record["config"]["model"]["width"] == 16
    assert (record["source"], record["target"], record["trained_on"]["pairs"]) == ("en", "de", 60)


def test_info_shows_how_a_text_is_cut(tiny: Tiny, tmp_path: Path) -> None:
    text = tmp_path / "text.en"
    text.write_text("Good  morning.\nAn Ω.\n", encoding="utf-8")
    called = call("info", tiny.run, "--text", text)
    assert f"{text}: 2 lines, " in called.out
    assert "1 line changed by normalisation; 1 line different after detokenising" in called.out
    assert called.lines[-1] == "  'An Ω.' → 'An ⁇.'"
    (record,) = call("info", tiny.run, "--text", text, "--json").records
    tokenizer = load(tiny.run).tokenizers.source
    assert record["text"]["tokens"] == sum(map(len, tokenizer.encode_many(["Good morning.", "An Ω."])))
    assert (record["text"]["unknown"], record["text"]["count"]) == (1, 2)


def test_look_heads_finds_the_head_whose_links_are_given(tiny: Tiny, tmp_path: Path) -> None:
    text, links = tmp_path / "text.de", tmp_path / "text.links"
    words = [tiny.run, tiny.dev[0], "--out", text, "--align", links, "search.heads=0/1"]
    assert call("translate", *words).code == 0
    (record,) = call("look", "heads", tiny.run, tiny.dev[0], text, "--links", links, "--json").records
    assert (record["heads"], record["pairs"]) == ("0/1", 6)
    assert record["agreements"][0][1] == 1 > record["agreements"][0][0]
    shown = call("look", "heads", tiny.run, *tiny.dev)
    assert (shown.code, shown.lines[1].split()) == (0, ["head", "0", "head", "1"]), shown.err
    assert shown.lines[-1].startswith("Best  search.heads=0/")
    # A long line is left out before its attention, whose memory grows with the square of the length, is computed.
    for path in (tiny.dev[0], text):
        longer = tmp_path / f"long.{path.suffix[1:]}"
        longer.write_text(path.read_text(encoding="utf-8") + "the dog " * 6000 + "\n", encoding="utf-8")
    called = call("look", "heads", tiny.run, tmp_path / f"long{tiny.dev[0].suffix}", tmp_path / "long.de", "--json")
    assert (called.code, called.records[0]["pairs"]) == (0, 6), called.err
    assert "1 of 7 pairs have 256 tokens or more on a side; they are left out" in called.err


def test_info_of_nothing_is_a_usage_error() -> None:
    called = call("info", "nowhere")
    assert (called.code, called.err) == (2, "error: nowhere: model directory not found\n")


def test_config_prints_a_file_that_reads_back_as_it_is(tmp_path: Path) -> None:
    called = call("config", "model.kind=seq2seq", "seed=5")
    assert called.code == 0, called.err
    assert "# The seed of every random number" in called.out
    assert yaml.safe_load(called.out)["model"]["kind"] == "seq2seq"
    path = tmp_path / "run.yaml"
    path.write_text(called.out)
    assert call("config", path).out == called.out


@pytest.mark.parametrize("kind", ["transformer", "seq2seq", "rnn_lm", "elmo", "ngram", "word2vec"])
@pytest.mark.parametrize("pieces", [None, "char"])
def test_config_prints_what_train_chooses_for_any_text(tmp_path: Path, kind: str, pieces: str | None) -> None:
    settings = [f"model.kind={kind}", *([f"text.kind={pieces}"] if pieces else [])]
    paths = [tmp_path / "a.de", tmp_path / "a.en"]
    for path in paths:
        path.write_text("".join(f"word {at % 9} and more, {at} of it\n" for at in range(60)))
    files = list(map(str, paths if kind in ("transformer", "seq2seq") else paths[:1]))
    chosen = choose_config(None, settings, train=files, dev=(), listener=ignore).model_dump(mode="json")
    (printed,) = call("config", *settings, "--json").records
    names = {"text": ["kind", "shared"], "search": ["method", "length_factor", "length_constant"]}
    names |= {"training": ["schedule", "clip_norm", "patience", "average"], "model": ["order"], "task": ["kind"]}
    for section, fields in names.items():
        wanted, found = ({name: each[section].get(name) for name in fields} for each in (chosen, printed))
        assert found == wanted, section


def test_config_of_a_run_with_one_change(tiny: Tiny) -> None:
    (record,) = call("config", "--from", tiny.run, "training.steps=9", "--json").records
    assert (record["training"]["steps"], record["model"]["width"]) == (9, 16)


def test_config_lists_every_setting_with_type_default_and_meaning() -> None:
    called = call("config", "--fields")
    assert "training.warmup: whole number, at least 0, default 1000" in called.out
    assert "    Steps over which the learning rate rises linearly" in called.out
    (fields,) = call("config", "--fields", "--json").records
    assert {"path", "type", "default", "description"} <= fields[0].keys()


def test_config_refuses_invalid_arguments(tiny: Tiny) -> None:
    for words, part in (
        (["--fields", "seed=1"], "--fields cannot be combined with config files"),
        (["a.yaml", "--from", "run"], "--from run cannot be combined with a.yaml"),
        (["--from", "nowhere"], "nowhere: no such run"),
        (["--from", tiny.run.parent], "config.yaml is missing"),
        (["model.widht=3"], "width"),
        (["seed=x"], "override 'seed=x'"),
    ):
        called = call("config", *words)
        assert (called.code, called.out) == (2, ""), words
        assert part in called.err


def test_the_average_of_a_model_with_itself_translates_the_same(tiny: Tiny, tmp_path: Path) -> None:
    out = tmp_path / "averaged"
    called = call("average", tiny.run, tiny.run / "model", "--out", out)
    assert (called.code, called.out) == (0, f"Model  {out}\n")
    assert call("translate", out, tiny.dev[0]).out == call("translate", tiny.run, tiny.dev[0]).out
    again = call("average", tiny.run, tiny.run, "--out", out)
    assert again.code == 2
    assert f"{out} exists already" in again.err


def test_one_checkpoint_becomes_a_model_by_itself(tiny: Tiny, tmp_path: Path) -> None:
    (checkpoint, *_) = sorted((tiny.run / "checkpoints").glob("step-*"))
    called = call("average", checkpoint, "--out", tmp_path / "x")
    assert called.code == 0
    assert call("info", tmp_path / "x").code == 0


def test_look_attention_draws_a_map_and_prints_the_translation(tiny: Tiny, tmp_path: Path) -> None:
    picture = tmp_path / "map.svg"
    (record,) = call("look", "attention", tiny.run, "The dog sleeps.", "--out", picture, "--json").records
    assert picture.read_bytes().startswith(b"<?xml")
    assert len(record["weights"]) == len(record["target"])
    assert all(len(row) == len(record["source"]) for row in record["weights"])


def test_look_attention_refuses_blank_sentences_and_odd_pictures(tiny: Tiny, tmp_path: Path) -> None:
    blank = call("look", "attention", tiny.run, "  ", "--out", tmp_path / "map.png")
    assert (blank.code, "the sentence is blank" in blank.err) == (3, True)
    odd = call("look", "attention", tiny.run, "The dog sleeps.", "--out", tmp_path / "map.doc")
    assert (odd.code, "neither .png nor .svg" in odd.err) == (2, True)


def test_look_drift_ablation_and_heads_draw_and_print(tiny: Tiny, tmp_path: Path) -> None:
    """A translator writes what it is not given, and its dev set is what it is measured on."""
    picture = tmp_path / "pictures" / "drift.svg"
    shown = call("look", "drift", tiny.run, "The dog sleeps.", "--out", picture, "--near", 2)
    assert shown.code == 0, shown.err
    assert picture.exists()
    assert picture.with_stem("drift-decoder").exists()
    assert "embedding  layer 0" in shown.out
    words = ["The dog sleeps.", "Der Hund schläft."]
    (record,) = call("look", "ablation", tiny.run, *words, "--out", tmp_path / "one.png", "--json").records
    assert {name: (len(grid), len(grid[0])) for name, grid in record["costs"].items()} == {
        "encoder self": (1, 2),
        "decoder self": (1, 2),
        "decoder cross": (1, 2),
    }
    (on_dev,) = call("look", "ablation", tiny.run, "--lines", 2, "--out", tmp_path / "dev.png", "--json").records
    assert (on_dev["texts"], on_dev["tokens"] > record["tokens"]) == (2, True)
    grids = call("look", "heads", tiny.run, "--text", words[0], "--out", tmp_path / "heads.png", "--json").records
    assert [grid["attention"] for grid in grids] == ["encoder self", "decoder self", "decoder cross"]
    assert (tmp_path / "heads-decoder-cross.png").exists()


def test_look_inside_refuses_invalid_arguments(tiny: Tiny, tmp_path: Path) -> None:
    for words, part in (
        (["heads", tiny.run], "give two text files to compare heads, or --text"),
        (["heads", tiny.run, tiny.dev[0], "--text", "A dog."], "--text cannot be combined with"),
        (["ablation", tiny.run, "A dog."], "expected a sentence and its translation, got 1"),
        (["ablation", tiny.run, "--source", tiny.dev[0]], "requires --reference FILE"),
        (["drift", tiny.run, "A dog.", "--out", tmp_path / "x.doc"], "neither .png nor .svg"),
    ):
        called = call("look", *words)
        assert (called.code, called.out) == (2, ""), called.err
        assert part in called.err
    assert not list(tmp_path.iterdir())
