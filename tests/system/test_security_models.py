"""Models that mean harm, or were damaged: a sentence that names the file, exit code 4, and nothing else happens."""

import json
import os
import pickle
import random
import shutil
import struct
from pathlib import Path
from typing import Any

import pytest
import torch

from cli.calling import Called, call
from core.zips import File, build
from seqloom.apps.export import pack, unpack
from seqloom.core.errors import ModelError, SeqloomError
from seqloom.core.events import read_events
from seqloom.runs.loading import find_model, load
from seqloom.training.run_guard import RECORD, locked
from system.small_models import change_json, vouch_again, write_small_model

FILES = [
    "config.yaml",
    "manifest.json",
    "model.json",
    "model.safetensors",
    "text/shared/text.json",
    "text/shared/vocabulary.txt",
]


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_small_model(tmp_path_factory.mktemp("small") / "model")


@pytest.fixture
def model(small: Path, tmp_path: Path) -> Path:
    """A model of its own for a test that damages it."""
    return Path(shutil.copytree(small, tmp_path / "model"))


def contents(folder: Path) -> dict[str, bytes]:
    return {file.relative_to(folder).as_posix(): file.read_bytes() for file in folder.rglob("*") if file.is_file()}


def translate(model: Path) -> Called:
    return call("translate", model, stdin=b"the cat\n")


def refused(called: Called) -> str:
    """The message of a command that refused a model."""
    assert (called.code, called.out) == (4, ""), called.err
    assert "internal error" not in called.err
    assert "Traceback" not in called.err
    return called.err


# --- hashes and links ------------------------------------------------------------------------------------------------


def test_the_files_of_a_model_are_those_that_are_tested_here(small: Path) -> None:
    assert sorted(contents(small)) == FILES
    assert translate(small).code == 0


@pytest.mark.parametrize("name", FILES)
def test_a_byte_changed_in_any_file_is_noticed_with_its_name(model: Path, name: str) -> None:
    data = bytearray((model / name).read_bytes())
    data[len(data) // 2] ^= 1
    (model / name).write_bytes(data)
    message = refused(call("info", model))
    assert Path(name).name in message or name == "manifest.json"  # which is wrong about one of the others
    with pytest.raises(SeqloomError):
        load(model)


def test_the_weights_that_training_starts_from_or_averages_are_checked(model: Path, tmp_path: Path) -> None:
    good = Path(shutil.copytree(model, tmp_path / "good"))
    data = bytearray((model / "model.safetensors").read_bytes())
    data[-1] ^= 1
    (model / "model.safetensors").write_bytes(data)
    texts = tmp_path / "text.en", tmp_path / "text.de"
    for text in texts:
        text.write_text("the cat\n" * 30)
    for words in (
        ["average", good, model, "--out", tmp_path / "mean"],
        ["train", "--train", texts[0], "--train", texts[1], "--out", tmp_path / "run", f"training.start_from={model}"],
    ):
        assert "model.safetensors: SHA-256" in refused(call(*words))
    assert call("average", good, good, "--out", tmp_path / "mean").code == 0


def test_a_link_that_leads_out_of_the_model_is_refused_and_one_that_stays_is_followed(
    model: Path, tmp_path: Path
) -> None:
    outside = tmp_path / "outside"
    (model / "model.json").rename(outside)
    (model / "model.json").symlink_to(outside)
    assert "model.json: lies outside" in refused(translate(model))
    (model / "model.json").unlink()
    outside.rename(model / "inside")
    (model / "model.json").symlink_to("inside")
    assert translate(model).code == 0
    (tmp_path / "linked").symlink_to(model)
    assert translate(tmp_path / "linked").code == 0


@pytest.mark.parametrize("name", ["../outside", "/etc/hostname", "text/../../outside", "a\0b", ""])
def test_a_manifest_cannot_make_us_read_elsewhere(model: Path, name: str) -> None:
    (model.parent / "outside").write_text("secret")
    manifest = json.loads((model / "manifest.json").read_text())
    manifest["files"][name] = {"size": 6, "sha256": "0" * 64}
    (model / "manifest.json").write_text(json.dumps(manifest))
    assert "damaged" in refused(translate(model))


# --- pickles ---------------------------------------------------------------------------------------------------------


class Evil:
    """What runs a command as it is unpickled."""

    def __init__(self, marker: Path) -> None:
        self._marker = marker

    def __reduce__(self) -> Any:
        return os.mkdir, (str(self._marker),)


def test_pickles_in_place_of_a_model_are_never_opened(model: Path, tmp_path: Path) -> None:
    marker = tmp_path / "ran"
    torch.save({"weights": Evil(marker)}, tmp_path / "evil.pt")  # what others load
    (tmp_path / "evil.pkl").write_bytes(pickle.dumps(Evil(marker)))
    for name in ("evil.pt", "evil.pkl"):
        assert "never opened" in refused(translate(tmp_path / name))
        shutil.copy(tmp_path / name, model / "model.safetensors")
        vouch_again(model)
        assert "model.safetensors cannot be read as safetensors" in refused(translate(model))
    shutil.copy(tmp_path / "evil.pt", tmp_path / "evil.zip")  # torch's files are archives
    assert "not" in refused(translate(tmp_path / "evil.zip"))
    (tmp_path / "hub").mkdir()
    shutil.copy(tmp_path / "evil.pt", tmp_path / "hub" / "pytorch_model.bin")
    assert "model.json is missing" in refused(translate(tmp_path / "hub"))
    assert not marker.exists()
    pickle.loads((tmp_path / "evil.pkl").read_bytes())
    assert marker.exists()  # the control: it would have


def test_a_file_that_is_no_model_is_not_even_opened(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "model.pt")  # whoever opens it waits for ever
    refused(translate(tmp_path / "model.pt"))


# --- numbers and nesting ---------------------------------------------------------------------------------------------


LARGEST_SETTING = 100_000
"""What the settings themselves let pass; the rest is a matter of how they fit the weights."""


def header(values: Any, data: bytes = b"") -> bytes:
    text = json.dumps(values).encode()
    return struct.pack("<Q", len(text)) + text + data


BOMBS = {
    "cut": b"\0\0",
    "a header longer than the file": struct.pack("<Q", 1 << 62) + b"{}",
    "a header of 200 MB": struct.pack("<Q", 200_000_000) + b"{}",
    "no JSON": struct.pack("<Q", 4) + b"{{{{",
    "nesting": struct.pack("<Q", 200_000) + b"[" * 200_000,
    "a huge shape": header({"a": {"dtype": "F32", "shape": [1 << 40, 1 << 40], "data_offsets": [0, 4]}}, bytes(4)),
    "a product that runs over": header(
        {"a": {"dtype": "F32", "shape": [1 << 32, 1 << 32], "data_offsets": [0, 0]}}, b""
    ),
    "offsets outside": header(
        {"a": {"dtype": "F32", "shape": [1], "data_offsets": [1 << 40, (1 << 40) + 4]}}, bytes(4)
    ),
    "offsets turned round": header({"a": {"dtype": "F32", "shape": [1], "data_offsets": [8, 4]}}, bytes(8)),
    "negative": header({"a": {"dtype": "F32", "shape": [-1, -1], "data_offsets": [0, 4]}}, bytes(4)),
    "another type": header({"a": {"dtype": "F99", "shape": [1], "data_offsets": [0, 4]}}, bytes(4)),
    "words": header({"a": {"dtype": "F32", "shape": ["1"], "data_offsets": ["0", "4"]}}, bytes(4)),
    "nothing at all": b"",
}


@pytest.mark.parametrize("bomb", BOMBS)
def test_a_file_of_weights_that_lies_is_refused(model: Path, bomb: str) -> None:
    (model / "model.safetensors").write_bytes(BOMBS[bomb])
    vouch_again(model)
    assert "model.safetensors cannot be read as safetensors" in refused(translate(model))


@pytest.mark.parametrize("bomb", BOMBS)
def test_a_mapped_file_that_lies_is_refused(tmp_path: Path, bomb: str) -> None:
    from seqloom.core.arrays import map_safetensors

    (tmp_path / "arrays").write_bytes(BOMBS[bomb])
    with pytest.raises(ModelError, match="not a complete safetensors file"):
        map_safetensors(tmp_path / "arrays")


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("width", 100_000),
        ("width", 1_000_000_000),
        ("feed_forward", 10**12),
        ("encoder_layers", 1_000),
        ("encoder_layers", 1_000_000),
        ("decoder_layers", 10**17),
    ],
)
def test_settings_far_larger_than_the_weights_are_refused_before_memory_is_taken(
    model: Path, key: str, value: int
) -> None:
    lines = (model / "config.yaml").read_text().split("\n")
    changed = [f"  {key}: {value}" if line.startswith(f"  {key}: ") else line for line in lines]
    assert changed != lines
    (model / "config.yaml").write_text("\n".join(changed))
    vouch_again(model)
    message = refused(translate(model))
    is_allowed = value <= LARGEST_SETTING
    assert "its settings describe a model far larger than the" in message if is_allowed else "at most" in message


@pytest.mark.parametrize("name", ["manifest.json", "model.json", "text/shared/text.json"])
@pytest.mark.parametrize("text", ["[" * 100_000, '{"a":' * 100_000, "[]", "7", '{"a": 1e999999}', "\ud800"])
def test_nesting_and_other_json_in_place_of_a_description_is_refused(model: Path, name: str, text: str) -> None:
    (model / name).write_bytes(text.encode("utf-8", errors="surrogatepass"))
    if name != "manifest.json":
        vouch_again(model)
    assert Path(name).name in refused(translate(model))


def test_a_description_of_absurd_size_is_not_read(model: Path) -> None:
    with (model / "manifest.json").open("r+b") as file:
        file.truncate(1 << 40)  # a hole: it takes no room
    assert "more than 67,108,864 bytes" in refused(translate(model))


@pytest.mark.parametrize(
    "values",
    [
        {"source": ["\x1b[2J"]},
        {"parameters": "many"},
        {"trained_on": []},
        {"trained_on": {"pairs": "x"}},
        {"trained_on": {"files": 3}},
        {"scores": 7},
        {"scores": [3]},
        {"scores": [{"name": "BLEU", "value": "high", "signature": ""}]},
        {"scores": [{"name": "BLEU", "value": 1.0, "signature": "", "interval": [1]}]},
    ],
)
def test_a_card_with_values_of_another_kind_is_refused(model: Path, values: dict[str, Any]) -> None:
    change_json(model / "model.json", **values)
    vouch_again(model)
    assert "model.json is not a valid model card" in refused(call("info", model))


def test_a_run_record_that_is_a_bomb_is_refused(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "config.yaml").write_text("seed: 1\n")
    (tmp_path / "run" / "run.json").write_text("[" * 100_000)
    assert "nested too deeply" in refused(call("train", "--resume", tmp_path / "run"))


@pytest.mark.parametrize("text", ["[" * 100_000, '{"pid": 1e999, "host": ""}'])
def test_a_lock_record_that_is_a_bomb_is_ignored(tmp_path: Path, text: str) -> None:
    (tmp_path / RECORD).write_text(text)
    with locked(tmp_path):
        assert str(os.getpid()) in (tmp_path / RECORD).read_text()


def test_a_line_of_a_journal_that_is_a_bomb_is_left_out(tmp_path: Path) -> None:
    (tmp_path / "events.jsonl").write_text("[" * 100_000 + '\n{"event": "step"}\n')
    assert [event.kind for event in read_events(tmp_path / "events.jsonl")] == ["step"]


# --- archives --------------------------------------------------------------------------------------------------------


def test_a_packed_model_comes_back_and_translates_the_same(small: Path, tmp_path: Path) -> None:
    archive, again = tmp_path / "small.zip", tmp_path / "again"
    told = call("pack", small, archive, "--json")
    assert (told.code, told.records[0]["files"]) == (0, len(FILES))
    assert call("unpack", archive, again).code == 0
    assert contents(again) == contents(small)
    assert translate(archive).out == translate(again).out == translate(small).out
    assert pack(again, tmp_path / "second.zip").sha256 == told.records[0]["sha256"]
    for words in (["info", archive], ["average", archive, archive, "--out", tmp_path / "mean"]):
        assert call(*words).code == 0
    assert "unpack it first" in call("shortlist", archive).err


def test_only_what_the_manifest_lists_is_packed(model: Path, tmp_path: Path) -> None:
    (model / "private.txt").write_text("notes")
    pack(model, tmp_path / "out.zip")
    unpack(tmp_path / "out.zip", tmp_path / "out")
    assert sorted(contents(tmp_path / "out")) == FILES


def test_a_damaged_model_is_not_packed(model: Path, tmp_path: Path) -> None:
    (model / "config.yaml").write_text("seed: 2\n")
    assert "config.yaml" in refused(call("pack", model, tmp_path / "out.zip"))
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


def test_places_that_are_taken_or_of_another_name_are_refused(small: Path, tmp_path: Path) -> None:
    archive = tmp_path / "a.zip"
    pack(small, archive)
    before = archive.read_bytes()
    for words in (["pack", small, archive], ["unpack", archive, small], ["pack", small, tmp_path / "a.tar"]):
        called = call(*words)
        assert called.code == 2
    assert call("unpack", tmp_path / "none.zip", tmp_path / "out").code == 2
    assert call("unpack", small / "model.json", tmp_path / "out").code == 2
    assert archive.read_bytes() == before
    assert [path.name for path in tmp_path.iterdir()] == ["a.zip"]


@pytest.mark.parametrize(
    "files",
    [
        [File(b"../evil", b"x")],
        [File(b"model.json", b"{}")],
        [File(b"a", b"x")],
    ],
)
def test_an_archive_without_a_whole_model_leaves_nothing(tmp_path: Path, files: list[File]) -> None:
    (tmp_path / "evil.zip").write_bytes(build(files))
    refused(call("unpack", tmp_path / "evil.zip", tmp_path / "out"))
    refused(translate(tmp_path / "evil.zip"))
    assert [path.name for path in tmp_path.iterdir()] == ["evil.zip"]


def test_files_besides_the_model_are_refused(small: Path, tmp_path: Path) -> None:
    files = [File(name.encode(), data) for name, data in contents(small).items()]
    (tmp_path / "more.zip").write_bytes(build([*files, File(b"run.sh", b"rm -rf ~")]))
    assert "does not list run.sh" in refused(call("unpack", tmp_path / "more.zip", tmp_path / "out"))
    assert "does not list run.sh" in refused(translate(tmp_path / "more.zip"))
    (tmp_path / "whole.zip").write_bytes(build(files))
    assert call("unpack", tmp_path / "whole.zip", tmp_path / "out").code == 0


def test_an_archive_of_a_folder_says_where_the_model_lies_in_it(small: Path, tmp_path: Path) -> None:
    shutil.copytree(small, tmp_path / "mine")
    archive = Path(shutil.make_archive(str(tmp_path / "a"), "zip", tmp_path, "mine"))
    with pytest.raises(
        ModelError,
        match=rf"^{archive} is not a model archive: its files are in mine/ inside it; create it with seqloom pack",
    ):
        unpack(archive, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_messages_name_the_archive_and_not_the_folder_it_is_unpacked_to(small: Path, tmp_path: Path) -> None:
    archive = tmp_path / "..zip"  # of which nothing is left before its dot
    pack(small, archive)
    assert translate(archive).out == translate(small).out
    said = call("perplexity", archive, small / "config.yaml")
    assert said.code == 2
    assert str(archive) in said.err
    assert "seqloom-" not in said.err


def test_a_name_too_long_for_the_file_system_is_a_matter_of_usage(small: Path, tmp_path: Path) -> None:
    called = call("pack", small, tmp_path / f"{'x' * 300}.zip")
    assert (called.code, "File name too long" in called.err) == (2, True)


def test_whoever_is_killed_while_unpacking_leaves_no_model(
    small: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """F22: killed at every call that makes or writes something, in a process of its own."""
    archive, codes = tmp_path / "a.zip", []
    pack(small, archive)
    for point in range(100):
        home = tmp_path / f"home-{point}"
        home.mkdir()
        child = os.fork()
        if child == 0:
            _die_at(point, monkeypatch)
            try:
                unpack(archive, home / "model")
            finally:
                os._exit(0)
        codes.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
        for name in home.iterdir():
            if name.name == "model":
                load(find_model(name))
            else:
                assert name.name.startswith(".model.partial-")
        if codes[-1] == 0:
            break
        assert codes[-1] == 9
    assert codes[-1] == 0
    assert len(codes) > 8


def _die_at(point: int, monkeypatch: pytest.MonkeyPatch) -> None:
    left = [point]

    def dying(function: Any) -> Any:
        def call_or_die(*args: Any, **kwargs: Any) -> Any:
            if left[0] == 0:
                os._exit(9)
            left[0] -= 1
            return function(*args, **kwargs)

        return call_or_die

    for name in ("mkdir", "rename", "open"):
        monkeypatch.setattr(Path, name, dying(getattr(Path, name)))
    monkeypatch.setattr(os, "fsync", dying(os.fsync))


def test_bytes_changed_anywhere_in_an_archive_give_the_same_model_or_a_refusal(small: Path, tmp_path: Path) -> None:
    archive = tmp_path / "home" / "a.zip"
    archive.parent.mkdir()
    pack(small, archive)
    whole, good = archive.read_bytes(), contents(small)
    chance, kept = random.Random(2), 0
    for number in range(150):
        changed = bytearray(whole)
        for _ in range(chance.choice([1, 1, 1, 4])):
            changed[chance.randrange(len(changed))] = chance.randrange(256)
        if number % 10 == 0:
            changed = changed[: chance.randrange(len(changed))]
        archive.write_bytes(changed)
        out = tmp_path / "home" / "out"
        try:
            unpack(archive, out)
        except ModelError:
            assert not out.exists()
        else:
            kept += 1
            assert contents(out) == good
            shutil.rmtree(out)
        assert [path.name for path in archive.parent.iterdir()] == ["a.zip"]
        assert [path.name for path in tmp_path.iterdir()] == ["home"]
    assert kept < 100
