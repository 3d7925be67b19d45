"""Plays and chats as pairs of what was said before and the reply."""

import json
from pathlib import Path

import pytest

from cli.calling import call
from seqloom.apps.translator import Translator
from seqloom.core.config import resolve
from seqloom.core.errors import ConfigError, DataError
from seqloom.data.corpus import open_corpus
from seqloom.runs.config import DataConfig, RunConfig
from seqloom.runs.recognition import recognise
from tiny_runs import TINY

PLAY = """\
ANNA:
Are you there?
I am waiting.

BEN: Yes,
I am.

[Enter CARL]

CARL:
Good day: to you.

SCENE II. A garden.

ANNA:
A new scene.

ANNA:
And more.

BEN:
Indeed.


CARL:
Far away.

BEN:
"""
PLAY_TURNS = [
    ("Are you there? I am waiting.", "Yes, I am."),
    ("Yes, I am.", "Good day: to you."),
    ("A new scene. And more.", "Indeed."),
]
CHAT = [("anna", "are you there?"), ("ben", "yes"), ("ben", "and listening"), ("anna", "good: then we begin")]
CHAT_TURNS = [("are you there?", "yes and listening"), ("yes and listening", "good: then we begin")]


def pairs_of(path: Path, text: str, **settings: int) -> list[tuple[str, str]]:
    """The pairs that are made of a file with this text."""
    path.write_text(text, encoding="utf-8")
    data = DataConfig(train=(str(path),), unit="turn", **settings)
    corpus = open_corpus([path], formats=data.training_formats())
    return [(line.source, line.target) for line in corpus]


def test_a_play_and_the_same_chat_in_each_form_become_pairs(tmp_path: Path) -> None:
    assert pairs_of(tmp_path / "play.txt", PLAY) == PLAY_TURNS
    assert pairs_of(tmp_path / "play", PLAY.replace("\n", "\r\n")) == PLAY_TURNS
    lines = [f"{name}: {text}\n" for name, text in CHAT]
    lines[2] = "and listening\n"  # continues the turn
    others = [f"Carl: {at}\nBen: {at + 1}\n" for at in range(6)]
    chat = pairs_of(tmp_path / "a.log", "".join([*lines, "\n", *others]))
    assert chat[:4] == [*CHAT_TURNS, ("0", "1"), ("1", "1")]
    assert pairs_of(tmp_path / "a.tsv", "".join(f"{name}\t{text}\n" for name, text in CHAT)) == CHAT_TURNS
    records = "".join(json.dumps({"speaker": name, "text": text, "at": 3}) + "\n" for name, text in CHAT)
    assert pairs_of(tmp_path / "a.jsonl", records) == CHAT_TURNS
    # Speeches of one line each, with blank lines between them, are a play and not conversations of one turn.
    assert pairs_of(tmp_path / "b.txt", "A: one\n\nB: two\n\nA: three\n") == [("one", "two"), ("two", "three")]


def test_a_longer_history_does_not_reach_into_another_scene(tmp_path: Path) -> None:
    found = pairs_of(tmp_path / "play.txt", PLAY, history=2)
    assert found[1] == ("Are you there? I am waiting. || Yes, I am.", "Good day: to you.")
    assert [found[0], found[2]] == [PLAY_TURNS[0], PLAY_TURNS[2]]


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("a.txt", "\nOnce there was a man.\nHe had a dog.\n", "a.txt:2: no turns, expected"),
        ("a.txt", "", "a.txt:1: no turns"),
        ("a.txt", "\nANNA:\nHello.\n", "a.txt:2: only one turn"),
        ("a.txt", "ANNA:\nHello.\n\n\nBEN:\nHello.\n", "a.txt:1: 2 turns, none of which follows another one"),
        ("a.tsv", "anna\thello\nben\n", "a.tsv:2: 1 column, expected speaker, tab, text"),
        ("a.jsonl", '{"text": "hello"}\n{"speaker": "ben"}\n', "a.jsonl:2:1: no member 'text'; there are speaker"),
    ],
)
def test_a_file_without_replies_is_refused_with_its_line(name: str, text: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(DataError) as refused:
        pairs_of(tmp_path / name, text)
    assert message in str(refused.value)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (["model.kind=rnn_lm"], "makes pairs of turns for translators, not for model.kind=rnn_lm"),
        (["data.symbols=[3]"], "cannot be combined with data.symbols"),
        (["data.source=en", "data.target=de"], "the same language on both sides"),
    ],
)
def test_settings_that_do_not_fit_turns_are_refused(settings: list[str], message: str) -> None:
    with pytest.raises(ConfigError, match=r"data\.unit=turn") as refused:
        resolve(RunConfig, overrides=["data.unit=turn", *settings])
    assert message in str(refused.value)


def test_replies_are_sampled_unless_another_search_is_chosen() -> None:
    found = resolve(RunConfig, overrides=["data.unit=turn"])
    assert (found.search.method, found.search.top_p, found.task.kind) == ("sample", 0.9, "translation")
    assert resolve(RunConfig, overrides=["data.unit=turn", "search.method=beam"]).search.method == "beam"
    assert resolve(RunConfig, overrides=["data.unit=turn", "task.kind=translation"]).search.method == "sample"
    assert resolve(RunConfig, overrides=["data.unit=turn", "model.kind=phrases"]).search.method == "beam"


def test_a_play_is_recognised_and_a_chat_may_be_labelled_text(tmp_path: Path) -> None:
    path = tmp_path / "play.txt"
    path.write_text("".join(f"{'ANNA' if at % 2 else 'BEN'}:\nspeech {at} of it\nand more\n\n" for at in range(20)))
    (reading,) = recognise([str(path)])
    assert reading.setting == "data.unit=turn"
    assert reading.reason == "its blocks of lines begin with a name and a colon: BEN, ANNA"
    path.write_text("".join(f"{'Anna' if at % 2 else 'Ben'}: it is number {at}\n" for at in range(20)))
    assert [each.setting for each in recognise([str(path)])] == ["task.kind=classification", "data.unit=turn"]


def test_a_play_becomes_a_model_that_replies(tmp_path: Path) -> None:
    questions = {"Where is the king?": "In the garden.", "Who comes there?": "A friend.", "What now?": "We wait."}
    speeches = [
        f"{name}:\n{text}\n"
        for at in range(120)
        for name, text in zip(("ANNA", "BEN"), [*questions.items()][at % 3], strict=True)
    ]
    path = tmp_path / "play.en.txt"
    path.write_text("\n".join(speeches), encoding="utf-8")
    words = [each for each in TINY if not each.startswith(("training.steps", "search."))]
    found = call("train", *words, "training.steps=60", "data.history=1", "--train", path, "--out", tmp_path / "run")
    assert found.code == 0, found.err
    assert "data.unit=turn, because of" in found.err
    assert "239 replies, each to the 1 turn before it; names of speakers are left out" in found.err
    assert "the last 23 of 239 replies are held out" in found.err
    assert "distinct-2 of the references" in found.out
    translator = Translator.load(tmp_path / "run")
    assert (translator.card.source, translator.card.target) == ("en", "en")
    true, false = (translator.score(list(questions), [*map(questions.get, order)]) for order in (  # type: ignore[list-item]
        list(questions), [*questions][1:] + [*questions][:1]))  # fmt: skip
    assert sum(true) > sum(false)
    (tmp_path / "contexts.txt").write_text("Who comes there?\n" * 3)
    first, again = (call("translate", tmp_path / "run", tmp_path / "contexts.txt") for _ in range(2))
    assert first.code == 0, first.err
    assert first.out == again.out
    assert len(first.out.splitlines()) == 3
