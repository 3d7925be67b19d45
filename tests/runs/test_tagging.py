"""From tagged files to a tagger: what is chosen, stored, compared with counting, resumed and used."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from seqloom import Tagger
from seqloom.apps.tagger import find_words, token_layout
from seqloom.core.errors import DataError, SeqloomError, UsageError
from seqloom.core.events import Event, ignore
from seqloom.runs.loading import load, load_fitted
from seqloom.runs.model_dir import read_card
from seqloom.runs.prepare import choose_config, general_config
from seqloom.runs.tagging import TaggedData
from seqloom.runs.train import Trained, resume, train
from seqloom.tasks.settings import TaggingConfig
from seqloom.text.formats.conllu import TokenFile
from tagged_text import write_conllu, write_spans

KIND = ("model.kind=tagger",)
SMALL = ("model.width=16", "model.word_width=12", "model.letter_width=8", "model.filters=8", "model.layers=1")
SHORT = (
    *("training.steps=6", "training.save_every=2", "training.validate_every=3", "training.average=0"),
    *("training.log_every=2", "training.warmup=2", "task.tokens_per_batch=64", "evaluation.resamples=40"),
)


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("tagged")
    return write_conllu(folder / "train.conllu", count=120), write_conllu(folder / "dev.conllu", count=30, seed=2)


@pytest.fixture(scope="module")
def learned(tmp_path_factory: pytest.TempPathFactory, files: tuple[Path, Path]) -> Trained:
    """A tagger that has learned its language."""
    steps = ("training.steps=60", "training.learning_rate=0.01", "training.validate_every=30", "training.average=0")
    out = tmp_path_factory.mktemp("runs") / "run"
    trained = train(
        None,
        [*KIND, *SMALL, *SHORT, *steps, "task.tokens_per_batch=256"],
        out=out,
        train=[str(files[0])],
        dev=[str(files[1])],
    )
    assert trained is not None
    return trained


def test_a_run_learns_all_columns_and_beats_counting(learned: Trained) -> None:
    scores = {score.name: score.value for score in learned.scores}
    counted = json.loads((learned.run / "data" / "counted.json").read_text())
    assert {"upos accuracy", "feats accuracy", "lemma accuracy"} < set(scores)
    assert scores["upos accuracy of HMM"] == counted["upos"]["hmm"]
    assert counted["upos"]["majority"] < counted["upos"]["hmm"]
    for column in ("upos", "feats", "lemma"):
        assert scores[f"{column} accuracy"] > max(95, *counted[column].values())
    assert read_card(learned.model).trained_on["counted"] == counted
    assert read_card(learned.model).trained_on["tags_read"] > 0


def test_a_model_that_does_not_beat_counting_says_so(tmp_path: Path, files: tuple[Path, Path]) -> None:
    events: list[Event] = []
    train(
        None,
        [*KIND, *SMALL, *SHORT, "training.steps=1", "task.columns=[upos]"],
        out=tmp_path / "run",
        train=[str(files[0])],
        dev=[str(files[1])],
        listener=events.append,
    )
    said = [event["message"] for event in events if event.kind == "notice"]
    assert any("the model does not beat HMM (upos accuracy " in each for each in said)


def test_a_filled_file_differs_in_its_columns_only(learned: Trained, files: tuple[Path, Path], tmp_path: Path) -> None:
    """Comments, ranges, empty nodes and other columns stay byte for byte; wrong tags become right."""
    right = files[1].read_bytes()
    emptied = "".join(
        "\t".join([*cells[:2], "_", "X", "_", "_", *cells[6:]]) if (cells := line.split("\t"))[0].isdecimal() else line
        for line in right.decode().splitlines(keepends=True)
    )
    (tmp_path / "empty.conllu").write_bytes(emptied.encode())
    tagger = Tagger.load(learned.model)
    filled = list(tagger.fill(TokenFile(tmp_path / "empty.conllu")))
    text = "".join(each.text for each in filled)
    assert len(text.splitlines()) == len(right.decode().splitlines())
    wrong = [(a, b) for a, b in zip(text.splitlines(), right.decode().splitlines(), strict=True) if a != b]
    assert len(wrong) < 0.1 * len(text.splitlines())
    for one, other in wrong:  # a wrong tag, in one of the columns that are filled
        assert [cell for at, cell in enumerate(one.split("\t")) if at not in (2, 3, 5)] == [
            cell for at, cell in enumerate(other.split("\t")) if at not in (2, 3, 5)
        ]
    only_upos = "".join(each.text for each in tagger.fill(TokenFile(tmp_path / "empty.conllu"), columns=["upos"]))
    assert {line.split("\t")[2] for line in only_upos.splitlines() if line[:1].isdecimal()} == {"_"}


def test_raw_text_becomes_conllu(learned: Trained) -> None:
    tagger = Tagger.load(learned.model)
    sentence = tagger.annotate("ha kaltoro  sentoro.")
    assert sentence.forms == ("ha", "kaltoro", "sentoro", ".")
    assert sentence.column("upos") == ("DET", "NOUN", "VERB", "PUNCT")
    assert sentence.column("lemma") == ("ha", "kaltor", "sentori", ".")
    assert sentence.column("misc") == ("_", "_", "SpaceAfter=No", "_")
    assert sentence.text.startswith("# text = ha kaltoro sentoro.\n1\tha\t")
    assert [len(each.words) for each in tagger.annotate_many(["", "ha"])] == [0, 1]
    assert find_words("don't go, ￭ he said.") == ("don't", "go", ",", "￭", "he", "said", ".")


def test_neighbours_change_no_tag(learned: Trained, files: tuple[Path, Path]) -> None:
    tagger = Tagger.load(learned.model)
    forms = [each.forms for each in TokenFile(files[1]) if each.words]
    together, alone = tagger.tag([*forms, ()]), [tagger.tag([each])[0] for each in forms]
    assert together == [*alone, *tagger.tag([[]])]
    assert tagger.tag(forms, words_per_batch=1) == alone
    with pytest.raises(UsageError, match="unknown column 'xpos'"):
        alone[0]["xpos"]


def test_scores_of_a_file_and_values_that_training_has_not_seen(learned: Trained, tmp_path: Path) -> None:
    path = write_conllu(tmp_path / "test.conllu", count=20, seed=9)
    path.write_text(path.read_text().replace("\tPUNCT\t", "\tSYM\t"))
    scores = Tagger.load(learned.model).evaluate(TokenFile(path))
    by_name = {each.name: each.value for each in scores.scores}
    words = scores.words
    assert scores.unknown["upos"] == {"SYM": 20}
    assert by_name["upos accuracy"] <= 100 * (words - 20) / words
    assert by_name["lemma accuracy"] > 95


def test_stopping_and_resuming_gives_the_same_bits(tmp_path: Path, files: tuple[Path, Path]) -> None:
    names, settings = {"train": [str(files[0])], "dev": [str(files[1])]}, [*KIND, *SMALL, *SHORT]
    settings += ["model.output=crf", "training.schedule=constant"]
    train(None, settings, out=tmp_path / "whole", **names)
    train(None, [*settings, "training.steps=3"], out=tmp_path / "parts", **names)
    resume(tmp_path / "parts", ["training.steps=6"])
    whole, parts = (load_file(tmp_path / run / "model" / "model.safetensors") for run in ("whole", "parts"))
    assert all(torch.equal(whole[name], parts[name]) for name in {**whole, **parts})
    train(None, [*settings, "seed=2"], out=tmp_path / "other", **names)
    other = load_file(tmp_path / "other" / "model" / "model.safetensors")
    assert not torch.equal(whole["words.weight"], other["words.weight"])  # the comparison can fail


def test_spans_have_a_scheme_and_legal_steps(tmp_path: Path) -> None:
    path = write_spans(tmp_path / "names.txt", count=100)
    out = tmp_path / "run"
    steps = ("training.steps=30", "training.learning_rate=0.01", "task.tokens_per_batch=256")
    trained = train(None, [*KIND, *SMALL, *SHORT, *steps], out=out, train=[str(path)])
    assert trained is not None
    names = [score.name for score in trained.scores]
    assert names[:2] == ["2 accuracy", "2 span F1"]
    assert "2 span F1 of HMM" in names
    assert load(trained.model).config.task.schemes == {"2": "bio"}  # type: ignore[union-attr]
    tagger = Tagger.load(trained.model)
    sentence = tagger.annotate("ha kaltoro sentoro .")
    assert sentence.text.splitlines()[0].split("\t")[0] == "ha"
    (tmp_path / "words.txt").write_text("ha\nkaltoro\n\nsentoro\n")
    layout = token_layout(tmp_path / "words.txt", ["ha", "kaltoro", "", "sentoro"])
    assert layout is not None
    filled = "".join(each.text for each in tagger.fill(TokenFile(tmp_path / "words.txt", layout=layout)))
    assert [line.split(" ")[0] for line in filled.splitlines()] == ["ha", "kaltoro", "", "sentoro"]
    assert all(len(line.split(" ")) == 2 for line in filled.splitlines() if line)


def test_words_begin_with_vectors(tmp_path: Path, files: tuple[Path, Path]) -> None:
    """Also words that the tagged text does not have."""
    text = tmp_path / "text.txt"
    text.write_text("".join(f"{' '.join(each.forms)} extra\n" for each in TokenFile(files[0]) if each.words))
    words = ["model.kind=word2vec", "model.width=7", "text.segmentation=spaces"]
    train(None, words, out=tmp_path / "vectors", train=[str(text)])
    given = {"train": [str(files[0])], "dev": [str(files[1])]}
    settings = [*KIND, f"model.vectors={tmp_path / 'vectors'}", "model.width=8", "model.layers=1"]
    train(None, [*settings, *SHORT, "training.steps=1"], out=tmp_path / "run", **given)
    loaded, vectors = load(tmp_path / "run"), load_fitted(tmp_path / "vectors").model
    data = TaggedData.load(tmp_path / "run", loaded.config)
    data.task(loaded.config, device=torch.device("cpu"), listener=ignore).prepare(loaded.model)
    for word in ("extra", "ha"):
        row = loaded.model.get_parameter("words.weight")[data.tokenizers.target.id_of(word)]
        np.testing.assert_array_equal(row.detach().numpy(), vectors.vector(word))  # type: ignore[attr-defined]
    with pytest.raises(UsageError, match=r"model\.word_width=5, but the vectors of model\.vectors=.* have 7 numbers"):
        choose_config(None, [*settings, "model.word_width=5"], **given, listener=ignore)


@pytest.mark.parametrize(
    ("text", "overrides", "message"),
    [
        ("1\ta\ta\tX\t_\t_\t_\t_\t_\n", (), r"a\.conllu:1: 9 columns, but CoNLL-U has 10"),
        ("", (), r"a\.conllu: no words"),
        ("1\ta\ta\tX\t_\t_\t_\t_\t_\t_\n\n" * 30, (), r"a\.conllu:1: 'X' is the only tag in column upos of 27 words"),
        ("1\ta\ta\tX\t_\t_\t_\t_\t_\t_\n\n1\tb\ta\tY\t_\t_\t_\t_\t_\t_\n\n", (), "2 sentences are too few"),
        ("1\ta\ta\tX\t_\t_\t_\t_\t_\t_\n\n" * 30, ("task.columns=[xpos]",), r"a\.conllu:1: column xpos is empty"),
    ],
)
def test_bad_files_are_named_before_anything_slow(
    tmp_path: Path, text: str, overrides: tuple[str, ...], message: str
) -> None:
    (tmp_path / "a.conllu").write_text(text)
    with pytest.raises(DataError, match=message) as caught:
        train(None, [*KIND, *overrides], out=tmp_path / "run", train=[str(tmp_path / "a.conllu")])
    assert caught.value.exit_code == 3
    assert not (tmp_path / "run").exists()


def test_settings_that_contradict_the_data_are_refused(tmp_path: Path, files: tuple[Path, Path]) -> None:
    for override, message in (
        ("task.columns=[head]", "unknown column 'head'"),
        ("task.columns=['2']", "task.columns has '2', but the columns with tags are upos, xpos, feats, lemma"),
        ("text.kind=bpe", "text.kind=bpe, but a tagger reads whole words"),
        ("data.encoding=latin-1", "tagged files are read as UTF-8"),
        ("model.outputs=[3]", r"model.outputs=\[3\], but the columns upos, feats, lemma have"),
    ):
        with pytest.raises(SeqloomError, match=message):
            train(None, [*KIND, override], out=tmp_path / "run", train=[str(files[0])])
    with pytest.raises(UsageError, match=r"is a folder; name files, such as '.*\*\.conllu'"):
        train(None, KIND, out=tmp_path / "run", train=[str(files[0].parent)])
    assert isinstance(general_config(None, KIND).task, TaggingConfig)


def test_a_tagger_can_start_from_another_one(learned: Trained, tmp_path: Path) -> None:
    """With its words, letters, columns and tags, and so without loss; a new tag is counted."""
    path = write_conllu(tmp_path / "more.conllu", count=30, seed=5)
    path.write_text(path.read_text().replace("\tPUNCT\t", "\tSYM\t", 1))
    settings = [*KIND, f"training.start_from={learned.model}", *SHORT, "training.steps=1"]
    started = train(None, settings, out=tmp_path / "run", train=[str(path)], dev=[str(path)])
    assert started is not None
    assert load(started.model).config.task == load(learned.model).config.task.model_copy(
        update={"tokens_per_batch": 64}
    )
    assert started.scores[0].value > 95
