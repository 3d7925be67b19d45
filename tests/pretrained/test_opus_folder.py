"""A folder as OPUS-MT publishes it, with every command: each works, or refuses by name, and writes nothing into it."""

import hashlib
import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

import seqloom
from cli.calling import call
from live_server import running_server
from seqloom.core.stepping import Source
from seqloom.core.symbols import END
from seqloom.data.phrasebook import sample_pairs
from seqloom.pretrained.weights import WeightFiles
from seqloom.search.settings import SearchConfig


@pytest.fixture(autouse=True)
def _is_untouched(opus: Path) -> Iterator[None]:
    """Nothing is written into the folder."""
    before = listing(opus)
    yield
    assert listing(opus) == before


def listing(folder: Path) -> dict[str, str]:
    files = (path for path in sorted(folder.rglob("*")) if path.is_file())
    return {path.relative_to(folder).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with lines of both languages: few for use, more for training."""
    folder = tmp_path_factory.mktemp("text")
    pairs = sample_pairs("en", "de", count=40, seed=8, split="train")
    for name, some in (("few", pairs[:3]), ("more", pairs)):
        (folder / f"{name}.en").write_text("".join(f"{pair.source}\n" for pair in some), encoding="utf-8")
        (folder / f"{name}.de").write_text("".join(f"{pair.target}\n" for pair in some), encoding="utf-8")
    (folder / "tagged.en").write_text("We <b>see</b> the house.\n", encoding="utf-8")
    (folder / "terms.tsv").write_text(f"{pairs[0].source.split()[0]}\tBank\n", encoding="utf-8")
    return folder


def test_translate_with_all_that_it_has(opus: Path, text: Path, tmp_path: Path) -> None:
    lines = text / "few.en"
    plain = call("translate", opus, lines)
    assert plain.code == 0, plain.err
    assert len(plain.lines) == 3
    assert any(plain.lines)

    records = call("translate", opus, lines, "--json", "search.nbest=3").records
    assert [len(record["translations"]) for record in records] == [3, 3, 3]
    assert [record["translations"][0]["text"] for record in records] == plain.lines

    aligned = call("translate", opus, lines, "--align", tmp_path / "links")
    assert (aligned.code, aligned.lines) == (0, plain.lines)
    assert len((tmp_path / "links").read_text().splitlines()) == 3

    tagged = call("translate", opus, text / "tagged.en", "--tags")
    assert tagged.code == 0, tagged.err
    assert tagged.out.count("<b>") == tagged.out.count("</b>") == 1

    together = call("translate", opus, lines, "--with", opus)
    assert (together.code, together.lines) == (0, plain.lines)

    rounded = call("translate", opus, lines, "search.precision=int8")
    assert (rounded.code, len(rounded.lines)) == (0, 3)


def test_a_glossary_is_searched_by_our_own_rules(opus: Path, text: Path) -> None:
    found = call("translate", opus, text / "few.en", "--glossary", text / "terms.tsv")
    assert found.code == 0, found.err
    assert "Bank" in found.lines[0]
    own = call(
        *("translate", opus, text / "few.en", "--glossary", text / "terms.tsv"),
        *("search.mode=seqloom", "search.length_normalisation=power", "search.alpha=1"),
    )
    assert own.lines == found.lines


def test_a_shortlist_needs_an_imported_model(opus: Path, text: Path, tmp_path: Path) -> None:
    files = ("--train", text / "more.en", "--train", text / "more.de")
    refused = call("shortlist", opus, *files)
    assert (refused.code, refused.out) == (2, "")
    assert f"nothing is added to {opus}, a published folder; import it first: seqloom import" in refused.err
    missing = call("translate", opus, text / "few.en", "search.shortlist=20")
    assert missing.code == 2
    assert "search.shortlist needs a lexicon" in missing.err
    assert call("import", opus, "--out", tmp_path / "model").code == 0
    learned = call("shortlist", tmp_path / "model", *files)
    assert learned.code == 0, learned.err
    found = call("translate", tmp_path / "model", text / "few.en", "search.shortlist=20")
    assert (found.code, len(found.lines)) == (0, 3), found.err


def test_score_evaluate_info_and_look(opus: Path, text: Path, tmp_path: Path) -> None:
    few = text / "few.en", text / "few.de"
    scored = call("score", opus, *few)
    assert scored.code == 0, scored.err
    assert all(-1000 < float(value) < 0 for value in scored.lines)

    evaluated = call("evaluate", opus, "--source", few[0], "--reference", few[1], "--json")
    assert evaluated.code == 0, evaluated.err
    refused = call("evaluate", opus, "--source", few[0], "--reference", few[1], "--calibrate")
    assert refused.code == 2
    assert "nothing is added to" in refused.err

    described = call("info", opus, "--text", few[0])
    assert described.code == 0, described.err
    assert "en → de" in described.out
    assert str(opus) in described.out

    seen = call("look", "beam", opus, "We see.", "--out", tmp_path / "beam.html")
    assert seen.code == 0, seen.err

    for command in (("generate", opus), ("perplexity", opus, few[0]), ("vectors", "nearest", opus, "house")):
        wrong = call(*command)
        assert wrong.code == 2
        assert "it is a translator of kind transformer; use seqloom translate" in wrong.err


@pytest.mark.slow
def test_selfcheck_keeps_every_promise(opus: Path, tmp_path: Path) -> None:
    checked = call("selfcheck", opus, "--json")
    assert checked.code == 0, checked.out + checked.err
    drawn = call("look", "attention", opus, "We see.", "--out", tmp_path / "attention.png")
    assert drawn.code == 0, drawn.err


@pytest.mark.slow
def test_a_server_gives_the_translations_of_the_command(opus: Path, text: Path, tmp_path: Path) -> None:
    lines = (text / "few.en").read_text(encoding="utf-8").splitlines()
    expected = call("translate", opus, text / "few.en").lines
    with running_server([f"en-de={opus}"], tmp_path) as server:
        # Both languages are known by their script alone, which says nothing about these.
        for source in ("en", "auto"):
            answer = server.call("/translate", {"q": lines, "source": source, "target": "de"})
            assert (answer.status, answer.json["translatedText"]) == (200, expected)


def test_places_that_are_not_the_folder_are_refused_with_the_right_one(
    opus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    snapshot = tmp_path / "models--owner--name" / "snapshots" / "0a1b"
    shutil.copytree(opus, snapshot)
    assert f"give one of them: {snapshot}\n" in call("info", snapshot.parents[1]).err
    weights = next(path for path in snapshot.iterdir() if path.suffix in (".bin", ".safetensors"))
    assert f"give its folder: {snapshot}\n" in call("info", weights).err
    monkeypatch.chdir(tmp_path)
    assert "models are not downloaded" in call("info", "owner/name").err
    (snapshot / "source.spm").unlink()
    assert "has no tokenizer" in call("info", snapshot).err


def test_its_encoder_gives_lines_vectors(opus: Path) -> None:
    encoder = seqloom.Encoder.load(opus)
    vectors = encoder.encode(["A dog.", "Two dogs run.", "A dog."])
    assert vectors.shape == (3, encoder.width)
    assert (vectors[0] == vectors[2]).all()
    assert not (vectors[0] == vectors[1]).all()


def test_pack_is_used_as_the_folder_is(opus: Path, text: Path, tmp_path: Path) -> None:
    packed = call("pack", opus, tmp_path / "model.zip")
    assert packed.code == 0, packed.err
    lines = text / "few.en"
    assert call("translate", tmp_path / "model.zip", lines).lines == call("translate", opus, lines).lines
    back = call("export", tmp_path / "model.zip", "--to", "huggingface", "--out", tmp_path / "back")
    assert back.code == 0, back.err
    assert are_bitwise_equal(opus, tmp_path / "back")
    rounded = call("pack", opus, tmp_path / "small.zip", "--precision", "int8")
    assert rounded.code == 2
    assert "no linear layer (attention, feed-forward) has 100,000 weights" in rounded.err


def are_bitwise_equal(folder: Path, other: Path) -> bool:
    ours, theirs = WeightFiles.open(folder), WeightFiles.open(other)
    assert set(ours.names) == set(theirs.names)
    return all(
        ours.dtype(name) == theirs.dtype(name) and torch.equal(ours.tensor(name), theirs.tensor(name))
        for name in ours.names
    )


def test_exports_give_the_same_or_refuse(opus: Path, tmp_path: Path) -> None:
    loaded = seqloom.load(opus)
    rows = [
        [*row, END] for row in loaded.tokenizers.source.encode_many(["We see the house.", "Where is the bank?", "No."])
    ]
    padded = torch.nn.utils.rnn.pad_sequence([torch.tensor(row) for row in rows], batch_first=True)
    source = Source(padded, torch.tensor([len(row) for row in rows]))
    refused = call("export", opus, "--to", "argos", "--out", tmp_path / "x.argosmodel")
    assert refused.code == 4
    assert "text.kind=published" in refused.err
    wrong = call("export", opus, "--to", "arpa", "--out", tmp_path / "x.arpa")
    assert wrong.code == 2
    assert "cannot be exported to ARPA" in wrong.err

    pytest.importorskip("onnxruntime")
    from seqloom.interop.onnx_stepper import OnnxStepper
    from seqloom.search.beam import beam_search

    assert call("export", opus, "--to", "onnx", "--out", tmp_path / "onnx").code == 0
    settings = SearchConfig(beam=4, nbest=4, length_factor=0, length_constant=12)
    ours = beam_search(loaded.model.stepper(), source, settings)
    theirs = beam_search(OnnxStepper(tmp_path / "onnx"), source, settings)
    assert [[each.symbols for each in row] for row in ours] == [[each.symbols for each in row] for row in theirs]
    for ours_row, theirs_row in zip(ours, theirs, strict=True):
        assert [each.score for each in ours_row] == pytest.approx([each.score for each in theirs_row], abs=1e-4)

    pytest.importorskip("ctranslate2")
    from seqloom.interop.ctranslate2_engine import CTranslate2Engine
    from seqloom.search.peers.rules import rules_of
    from seqloom.search.peers.search import peer_search

    assert call("export", opus, "--to", "ctranslate2", "--out", tmp_path / "ct2").code == 0
    engine = CTranslate2Engine(tmp_path / "ct2")
    found = engine.translate_ids(rows, settings.model_copy(update={"mode": "ctranslate2"}))
    expected = peer_search(
        loaded.model.stepper(), source, rules_of("ctranslate2"), beam=4, nbest=4, limits=[12] * len(rows)
    )
    assert [[each.ids for each in row] for row in found] == [[each.symbols for each in row] for row in expected]


def test_fine_tuning_starts_from_the_folder_and_goes_back(opus: Path, text: Path, tmp_path: Path) -> None:
    trained = call(
        *("train", "--train", text / "more.en", "--train", text / "more.de", "--out", tmp_path / "run"),
        *(f"training.start_from={opus}", "training.steps=2", "training.validate_every=2", "training.save_every=2"),
        *("training.average=0", "evaluation.resamples=40"),
    )
    assert trained.code == 0, trained.err
    assert call("translate", tmp_path / "run", text / "few.en").code == 0
    exported = call("export", tmp_path / "run", "--to", "huggingface", "--out", tmp_path / "folder")
    assert exported.code == 0, exported.err
    # The new folder is a model as the old one is, with the weights that were trained.
    assert not are_bitwise_equal(opus, tmp_path / "folder")
    assert {name for name in listing(tmp_path / "folder") if name != "model.safetensors"} == {
        name for name in listing(opus) if name != "pytorch_model.bin"
    }
    lines = text / "few.en"
    assert call("translate", tmp_path / "folder", lines).lines == call("translate", tmp_path / "run", lines).lines


def test_import_describes_the_model_and_leaves_nothing_if_it_fails(opus: Path, tmp_path: Path) -> None:
    out = tmp_path / "model"
    shown = call("import", opus, "--out", out)
    assert shown.code == 0, shown.err
    assert "marian: translator" in shown.out
    assert "en → de" in shown.out
    assert f"seqloom translate {out} text" in shown.out
    again = call("import", opus, "--out", out)
    assert (again.code, f"{out} already exists" in again.err) == (2, True)
    ours = call("import", out, "--out", tmp_path / "other")
    assert (ours.code, "it is a model of Seqloom already" in ours.err) == (2, True)
    missing = call("import", tmp_path / "nothing", "--out", tmp_path / "other")
    assert (missing.code, "folder not found" in missing.err) == (2, True)

    broken = tmp_path / "broken"
    broken.mkdir()
    for path in opus.iterdir():
        (broken / path.name).write_bytes(path.read_bytes())
    config = json.loads((broken / "config.json").read_text())
    (broken / "config.json").write_text(json.dumps({**config, "encoder_ffn_dim": 60, "decoder_ffn_dim": 60}))
    failed = call("import", broken, "--out", tmp_path / "other")
    assert failed.code == 4, failed.err
    assert sorted(path.name for path in tmp_path.iterdir()) == ["broken", "model"]
