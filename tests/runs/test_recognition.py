"""Which task training files are meant for: told by their shape, never against a setting, never where it is unsure."""

import json
import os
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from tests.tagged_text import sentences, write_conllu

from seqloom.core.errors import UsageError
from seqloom.core.events import Event, ignore
from seqloom.runs import recognition
from seqloom.runs.prepare import choose_config
from seqloom.runs.recognition import TrainFiles, recognise
from seqloom.runs.train import train

WORDS = [f"{one}{two}" for one in ("ka", "to", "mi", "se", "dra") for two in ("lo", "rim", "pan", "ster", "vu", "gel")]


def text_of(seed: int, words: int = 5) -> str:
    return " ".join(np.random.default_rng(seed).choice(WORDS, words))


def plain(count: int = 60, seed: int = 0) -> list[str]:
    return [text_of(seed + at) for at in range(count)]


def labelled(form: str, *, labels: tuple[str, ...] = ("good", "bad", "so-so"), count: int = 60) -> list[str]:
    return [form.format(label=labels[at % len(labels)], text=text) for at, text in enumerate(plain(count))]


def rows(form: str, count: int = 40) -> list[str]:
    return [form.format(at=at, day=1 + at % 28, month=1 + at // 28, value=at / 7) for at in range(count)]


def tokens(separator: str) -> list[str]:
    return [line for each in sentences(20) for line in (*(f"{form}{separator}{tag}" for form, _, tag, _ in each), "")]


PAIRS = [f"{one}\t{two}" for one, two in zip(plain(), plain(seed=100), strict=True)]
CASES: dict[str, tuple[str, list[str], list[str]]] = {
    "token columns": ("train.txt", tokens("\t"), ["task.kind=tagging"]),
    "token columns in a .tsv": ("train.tsv", tokens("\t"), ["task.kind=tagging"]),
    "tokens and spaces": ("train.conll", tokens(" "), ["task.kind=tagging"]),
    "label, space": ("train.txt", labelled("{label} {text}"), ["task.kind=classification"]),
    "fastText": ("train.txt", labelled("__label__{label} {text}"), ["task.kind=classification"]),
    "label last": ("train.tsv", labelled("{text}\t{label}"), ["task.kind=classification"]),
    "label first, no .tsv": ("train.txt", labelled("{label}\t{text}"), ["task.kind=classification"]),
    "label and a pair": ("train.tsv", labelled("{label}\t{text}\t{text} x"), ["task.kind=classification"]),
    "records with labels": (
        "train.jsonl",
        labelled('{{"label": "{label}", "text": "{text}"}}'),
        ["task.kind=classification"],
    ),
    "CSV with times": ("a.csv", ["day,x", *rows("2020-{month:02}-{day:02},{value:.3f}")], ["task.kind=forecasting"]),
    "CSV, no heading, gaps": ("a.csv", [*rows("{value:.3f},{at}.5"), ",1.5", "NA,2.5"], ["task.kind=forecasting"]),
    "one column": ("a.txt", rows("{value:.3f}"), ["task.kind=forecasting"]),
    "TSV with a heading": ("a.tsv", ["x\ty", *rows("{value:.3f}\t{at}.5")], ["task.kind=forecasting"]),
    "two columns of numbers": (
        "a.tsv",
        rows("{value:.3f}\t{at}.5"),
        ["task.kind=forecasting", "task.kind=translation"],
    ),
    "few sentences": (
        "a.tsv",
        labelled("{text}\t{label}", labels=("turn on the light", "turn it off")),
        ["task.kind=classification", "task.kind=translation"],
    ),
    "recordings": ("t.tsv", [f"d/{at}.wav\t{text}" for at, text in enumerate(plain())], ["task.kind=transcription"]),
    "strokes": ("t.jsonl", ['{"strokes": [[[0, 1]]], "text": "ab"}'] * 12, ["task.kind=transcription"]),
    "images": ("t.tsv", [f"{at}.png\t{word}" for at, word in enumerate(WORDS)], ["task.kind=transcription"]),
    "pairs": ("a.tsv", PAIRS, ["task.kind=translation"]),
    "few pairs, doubled": ("a.tsv", PAIRS[:5] * 20, ["task.kind=translation"]),
    "records of pairs": ("a.jsonl", ['{"source": "a b", "target": "c"}'] * 20, []),
    "records, one text": ("a.jsonl", ['{"text": "a b"}'] * 20, []),
    "one text": ("a.txt", plain(), []),
    "a text, two beginnings": ("a.txt", [f"{'the' if len(each) % 2 else 'a'} {each} the" for each in plain()], []),
    "sentences of equal length": ("a.txt", [f"{one} {two}" for one in WORDS for two in ("", "go")], []),
    "three columns": ("a.tsv", [f"{at} a\t{at} b\tV;{'SG' if at % 2 else 'PL'}" for at in range(60)], []),
}  # fmt: skip


def write(path: Path, lines: list[str]) -> Path:
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return path


@pytest.mark.parametrize("case", CASES)
def test_the_shape_of_a_file_tells_its_task(tmp_path: Path, case: str) -> None:
    name, lines, expected = CASES[case]
    path = write(tmp_path / name, lines)
    assert [each.setting for each in recognise([str(path)])] == expected


@pytest.mark.parametrize("reads_captions", [True, False])
def test_images_with_texts_of_several_words_may_be_captions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reads_captions: bool
) -> None:
    monkeypatch.setattr(recognition, "READS_CAPTIONS", reads_captions)
    rows = [f"{at}.png\t{text}" for at, text in enumerate(plain())]
    found = [
        [each.setting.removeprefix("task.kind=") for each in recognise([str(write(tmp_path / name, lines))])]
        for name, lines in {"lines.tsv": rows, "named.tsv": ["image\tcaption", *rows]}.items()
    ]
    assert found == (
        [["transcription", "captioning"], ["captioning"]] if reads_captions else [["transcription"], ["transcription"]]
    )


def test_folders_of_images_arrays_and_treebanks_are_recognised(tmp_path: Path) -> None:
    for name in ("cat", "dog"):
        (tmp_path / "photos" / name).mkdir(parents=True)
        Image.new("L", (4, 4)).save(tmp_path / "photos" / name / "1.png")
    (tmp_path / "texts" / "more").mkdir(parents=True)
    np.savez(tmp_path / "a.npz", images=np.zeros((4, 2, 2), np.uint8), labels=np.arange(4))
    treebank = write_conllu(tmp_path / "a.conllu", count=3)
    found = {
        place: [each.setting for each in recognise([str(tmp_path / place)])]
        for place in ("photos", "texts", "a.npz", "missing.csv")
    }
    assert found == {"photos": ["model.kind=vit"], "texts": [], "a.npz": ["model.kind=vit"], "missing.csv": []}
    both = recognise([str(treebank), str(write_conllu(tmp_path / "b.conllu", count=3))])
    assert [each.setting for each in both] == ["task.kind=tagging"]


def test_two_texts_are_translated_whatever_they_look_like(tmp_path: Path) -> None:
    for lines in (rows("{value:.3f}"), labelled("{label} {text}"), labelled("{label}\t{text}")[:5] + plain()):
        names = [str(write(tmp_path / name, lines)) for name in ("a.de", "a.en")]
        assert recognise(names) == (), lines[0]


def test_only_the_first_lines_are_read_and_pipes_are_not_opened(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", [*rows("{value:.3f}", 6_000), "not a number"])
    assert len(TrainFiles.open([str(path)]).lines[0]) == 5_000
    os.mkfifo(tmp_path / "pipe")  # opening it would wait forever
    assert recognise([str(tmp_path / "pipe")]) == ()


def test_two_readings_show_both_commands(tmp_path: Path) -> None:
    path = write(tmp_path / "my numbers.tsv", rows("{value:.3f}\t{at}.5"))
    with pytest.raises(UsageError) as refused:
        train(None, ["seed=3"], train=[str(path)], out=tmp_path / "run")
    message = str(refused.value)
    for kind in ("forecasting", "translation"):
        assert f"seqloom train task.kind={kind} seed=3 --train '{path}' --out {tmp_path / 'run'}\n" in message
    assert refused.value.exit_code == 2
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("setting", ["task.kind=translation", "model.kind=transformer"])
def test_a_kind_overrules_the_shape(tmp_path: Path, setting: str) -> None:
    path = write(tmp_path / "a.tsv", labelled("{text}\t{label}"))
    kinds = []
    for settings in ([], [setting]):
        events: list[Event] = []
        config = choose_config(None, settings, train=[str(path)], dev=(), listener=events.append)
        kinds.append((config.task.kind, any("because of" in str(each.values) for each in events)))
    assert kinds == [("classification", True), ("translation", False)]


def test_settings_of_the_recognised_task_are_known_and_the_file_may_be_in_the_config(tmp_path: Path) -> None:
    path = write_conllu(tmp_path / "a.conllu")
    file = tmp_path / "run.yaml"
    file.write_text(json.dumps({"data": {"train": [str(path)]}, "task": {"columns": ["upos"]}}))
    config = choose_config(file, (), train=(), dev=(), listener=ignore)
    assert (config.task.kind, config.model.kind) == ("tagging", "tagger")
    pairs = write(tmp_path / "a.tsv", labelled("{text}\t{label}"))
    languages = ["data.source=de", "data.target=en"]
    assert choose_config(None, languages, train=[str(pairs)], dev=(), listener=ignore).task.kind == "translation"
