"""Folders from strangers: refused with one sentence and exit code 4, nothing is kept, and no code of theirs is run."""

import json
import os
import random
import shutil
import signal
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

import seqloom
from published_folders import write_llama_folder, write_sentence_folder
from seqloom.core.errors import ModelError, UsageError
from seqloom.runs import importing
from seqloom.runs.importing import import_published
from seqloom.runs.loading import find_model

MAX_SECONDS, MAX_WAIT = 20, 120
"""Of the processor and of the clock, for one folder: a machine may be busy."""


@pytest.fixture(scope="session")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small sentence encoder; nothing may be written into it."""
    return write_sentence_folder(tmp_path_factory.mktemp("hub") / "small-sentences")


@pytest.fixture(scope="session")
def llama(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small language model; nothing may be written into it."""
    return write_llama_folder(tmp_path_factory.mktemp("hub") / "small-llama")


@pytest.fixture(autouse=True)
def _own_temporary_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """So that what is left behind can be counted; and without waiting for the disk."""
    (tmp_path / "tmp").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))
    monkeypatch.setattr(os, "fsync", lambda _file: None)


@pytest.fixture
def copied(encoder: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(encoder, tmp_path / "folder"))


def edit_json(path: Path, **changes: Any) -> None:
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


class Evil:
    """What unpickling would run."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> Any:
        return os.system, (f"touch {self.mark}",)


# --- named cases -----------------------------------------------------------------------------------------------------


def another_architecture(folder: Path) -> None:
    edit_json(folder / "config.json", architectures=["BertForQuestionAnswering"])


def another_family(folder: Path) -> None:
    edit_json(folder / "config.json", model_type="whisper")


def foreign_code(folder: Path) -> None:
    edit_json(folder / "config.json", auto_map={"AutoModel": "modeling.py--Model"})
    (folder / "modeling.py").write_text(f"open({str(folder / 'executed')!r}, 'w')")


def foreign_code_of_tokenizer(folder: Path) -> None:
    edit_json(folder / "tokenizer_config.json", auto_map={"AutoTokenizer": ["tokenizing.py", None]})


def missing_shard(folder: Path) -> None:
    state = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    index = {"weight_map": dict.fromkeys(state, "model-00001-of-00001.safetensors")}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))


def escaping_shard(folder: Path) -> None:
    state = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").rename(folder.parent / "outside.safetensors")
    index = {"weight_map": dict.fromkeys(state, "../outside.safetensors")}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))


def pickled_code(folder: Path) -> None:
    (folder / "model.safetensors").unlink()
    torch.save({"embeddings.word_embeddings.weight": Evil(folder / "executed")}, folder / "pytorch_model.bin")


def old_pickled_code(folder: Path) -> None:
    (folder / "model.safetensors").unlink()
    state = {"a": torch.zeros(2), "b": Evil(folder / "executed")}
    torch.save(state, folder / "pytorch_model.bin", _use_new_zipfile_serialization=False)


def pickled_code_in_a_part(folder: Path) -> None:
    torch.save({"linear.weight": Evil(folder / "executed")}, folder / "2_Dense" / "pytorch_model.bin")


def absurd_width(folder: Path) -> None:
    edit_json(folder / "config.json", hidden_size=10**12)


def absurd_depth(folder: Path) -> None:
    edit_json(folder / "config.json", num_hidden_layers=10**6)


def large_but_allowed(folder: Path) -> None:
    edit_json(folder / "config.json", hidden_size=60_000, intermediate_size=1_000_000, num_hidden_layers=500)


def deep_json(folder: Path) -> None:
    (folder / "config.json").write_text('{"model_type": ' + "[" * 100_000 + "]" * 100_000 + "}")


def wrong_type(folder: Path) -> None:
    edit_json(folder / "config.json", num_attention_heads="2")


def unknown_activation(folder: Path) -> None:
    edit_json(folder / "config.json", hidden_act="mish")


def larger_vocabulary(folder: Path) -> None:
    with (folder / "vocab.txt").open("a") as file:
        file.write("".join(f"word{number}\n" for number in range(100)))


def other_rows(folder: Path) -> None:
    edit_json(folder / "config.json", vocab_size=1000)


def one_row_more(folder: Path) -> None:
    edit_json(folder / "config.json", vocab_size=17)


def no_vocabulary(folder: Path) -> None:
    (folder / "vocab.txt").unlink()


def no_weights(folder: Path) -> None:
    (folder / "model.safetensors").unlink()


def missing_tensor(folder: Path) -> None:
    state = load_file(folder / "model.safetensors")
    del state["encoder.layer.0.output.dense.bias"]
    save_file(state, folder / "model.safetensors")


def further_tensor(folder: Path) -> None:
    state = load_file(folder / "model.safetensors")
    save_file({**state, "encoder.layer.1.output.dense.bias": torch.zeros(16)}, folder / "model.safetensors")


def whole_numbers(folder: Path) -> None:
    state = load_file(folder / "model.safetensors")
    save_file({name: tensor.to(torch.int32) for name, tensor in state.items()}, folder / "model.safetensors")


def escaping_part(folder: Path) -> None:
    modules = json.loads((folder / "modules.json").read_text())
    modules[1]["path"] = "../1_Pooling"
    (folder / "modules.json").write_text(json.dumps(modules))


def unknown_rotary(folder: Path) -> None:
    edit_json(folder / "config.json", rope_scaling={"rope_type": "spiral", "factor": 2.0})


def unknown_rotary_of_today(folder: Path) -> None:
    edit_json(folder / "config.json", rope_scaling=None, rope_parameters={"rope_type": "spiral", "rope_theta": 1e4})


def unshared_heads(folder: Path) -> None:
    edit_json(folder / "config.json", num_key_value_heads=3)


def foreign_pattern(folder: Path) -> None:
    """A regular expression that takes exponential time."""
    parts = json.loads((folder / "tokenizer.json").read_text())
    split = {"type": "Split", "pattern": {"Regex": "(a+)+$"}, "behavior": "Isolated", "invert": False}
    (folder / "tokenizer.json").write_text(json.dumps({**parts, "pre_tokenizer": split}))


def smaller_table(folder: Path) -> None:
    edit_json(folder / "config.json", vocab_size=200)


LANGUAGE_MODEL_CASES: dict[Callable[[Path], None], str] = {
    unknown_rotary: "rope.*spiral",
    unknown_rotary_of_today: "rope.*spiral",
    unshared_heads: "num_key_value_heads|3",
    foreign_pattern: "pattern|Split|pre_tokenizer",
    smaller_table: "the vocabulary does not fit the weights",
}

CASES: dict[Callable[[Path], None], str] = {
    another_architecture: "names the architecture .*BertForQuestionAnswering.*these are read: BertModel",
    another_family: "model_type='whisper', which is not supported; known: ",
    foreign_code: "has auto_map: this model needs code",
    foreign_code_of_tokenizer: "has auto_map: this model needs code",
    missing_shard: "model-00001-of-00001.safetensors",
    escaping_shard: "outside.safetensors",
    pickled_code: "posix.*system|system.*posix",
    old_pickled_code: "posix.*system|system.*posix",
    pickled_code_in_a_part: "posix.*system|system.*posix",
    absurd_width: "hidden_size=1000000000000, which is not a number from",
    absurd_depth: "num_hidden_layers=1000000, which is not a number from",
    large_but_allowed: "the weights in .* lack encoder.layer.1.",
    deep_json: "config.json is not valid JSON",
    wrong_type: "num_attention_heads='2', which is not a number",
    unknown_activation: "hidden_act='mish', which is not supported; known: gelu",
    larger_vocabulary: "the vocabulary does not fit the weights",
    other_rows: "the vocabulary does not fit the weights",
    one_row_more: "embeddings.word_embeddings.weight .*shape .16, 16. in the file",
    no_vocabulary: "vocab.txt",
    no_weights: "weights|model.safetensors",
    missing_tensor: "lack encoder.layer.0.output.dense.bias",
    further_tensor: "hold encoder.layer.1.output.dense.bias",
    whole_numbers: "int32",
    escaping_part: "not a plain name of a folder",
}


@pytest.mark.parametrize("damage", CASES, ids=lambda damage: damage.__name__)
def test_a_hostile_folder_is_refused(copied: Path, damage: Callable[[Path], None], tmp_path: Path) -> None:
    refuse(copied, damage, CASES[damage], tmp_path / "out")
    assert left_behind(tmp_path) == ["folder", *([] if damage is not escaping_shard else ["outside.safetensors"])]


@pytest.mark.parametrize("damage", LANGUAGE_MODEL_CASES, ids=lambda damage: damage.__name__)
def test_a_hostile_language_model_is_refused(llama: Path, damage: Callable[[Path], None], tmp_path: Path) -> None:
    folder = Path(shutil.copytree(llama, tmp_path / "folder"))
    refuse(folder, damage, LANGUAGE_MODEL_CASES[damage], tmp_path / "out")
    assert left_behind(tmp_path) == ["folder"]


def test_a_killed_import_leaves_nothing_behind(encoder: Path, tmp_path: Path) -> None:
    """No half-written model; and the next import removes what the killed process could not."""
    out, child = tmp_path / "out", os.fork()
    if not child:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(importing.ConversionRecord, "write", lambda *_values: time.sleep(60))
            import_published(encoder, out)
        os._exit(0)
    try:
        with time_limit():
            while not list(tmp_path.glob("out.partial-*/pretrained/modules.json")):
                time.sleep(0.01)
        (partial,) = tmp_path.glob("out.partial-*")
        in_use = Path(shutil.copytree(partial, tmp_path / "out.partial-other"))
        with importing._lock(in_use):  # that of a process that is still at work
            import_published(encoder, tmp_path / "other")
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            assert not out.exists()
            import_published(encoder, out)
            assert sorted(path.name for path in tmp_path.iterdir()) == ["other", "out", "out.partial-other", "tmp"]
    finally:
        with suppress(ProcessLookupError, ChildProcessError):
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)


def refuse(folder: Path, damage: Callable[[Path], None], message: str, out: Path) -> None:
    """Check that a damaged folder is refused by every way in, and that nothing in it was changed or run."""
    damage(folder)
    before = contents(folder)
    for open_folder in (lambda: find_model(folder), lambda: import_published(folder, out)):
        with pytest.raises(ModelError, match=message) as caught, time_limit():
            open_folder()
        require_sentence(caught.value)
    assert not (folder / "executed").exists()
    assert contents(folder) == before


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def left_behind(folder: Path) -> list[str]:
    """Everything in a folder that is not empty."""
    return sorted(path.name for path in folder.iterdir() if path.is_file() or any(path.iterdir()))


def require_sentence(error: BaseException) -> None:
    """One line for a user."""
    text = str(error)
    assert isinstance(error, ModelError), repr(error)
    assert 10 < len(text) < 900, text
    assert "\n" not in text.strip(), text


@contextmanager
def time_limit() -> Iterator[None]:
    """Raises in what takes too long."""

    def stop(_number: int, _frame: object) -> None:
        raise AssertionError(f"more than {MAX_SECONDS} seconds of work, or {MAX_WAIT} in all")

    old = [signal.signal(number, stop) for number in (signal.SIGALRM, signal.SIGPROF)]
    signal.setitimer(signal.ITIMER_REAL, MAX_WAIT)
    signal.setitimer(signal.ITIMER_PROF, MAX_SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.setitimer(signal.ITIMER_PROF, 0)
        for number, handler in zip((signal.SIGALRM, signal.SIGPROF), old, strict=True):
            signal.signal(number, handler)


# --- mutated folders -------------------------------------------------------------------------------------------------

VALUES: list[Any] = [
    None, True, False, -1, 0, 1, 2, 3, 7, 1 << 20, 1 << 31, 1 << 63, 10**40, -(10**40), 0.0, -0.5, 1e308, float("nan"),
    float("inf"), "", "x", "\0", "../x", "é" * 300, "a" * 5000, [], {}, [[]], [None], [1, 2, 3], {"a": {"b": []}},
]  # fmt: skip


def places(value: Any, at: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The path of every value inside."""
    parts = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, part in parts:
        yield (*at, key)
        yield from places(part, (*at, key))


def mutate_json(path: Path, dice: random.Random) -> str:
    values = json.loads(path.read_text())
    for _ in range(dice.choice([1, 1, 1, 2, 5])):
        found = list(places(values))
        if not found:
            break
        where = dice.choice(found[:400])
        parent = values
        for key in where[:-1]:
            parent = parent[key]
        match dice.randrange(4):
            case 0:
                del parent[where[-1]]
            case 1 if isinstance(parent, dict):
                parent[dice.choice(["auto_map", "quantization_config", "x", "", "type", "rope_scaling"])] = parent[
                    where[-1]
                ]
            case _:
                parent[where[-1]] = dice.choice(VALUES)
    path.write_text(json.dumps(values))
    return f"{path.name}: {where if found else ''}"


def mutate_bytes(path: Path, dice: random.Random) -> str:
    content = bytearray(path.read_bytes())
    how = dice.randrange(5)
    if how == 0:
        del content[dice.randrange(len(content) + 1) :]
    elif how == 1:
        content[:0] = dice.randbytes(dice.randrange(1, 20))
    else:
        reach = len(content) if how == 2 else min(len(content), 400)
        for _ in range(dice.choice([1, 3, 30])):
            if content:
                content[dice.randrange(reach)] = dice.randrange(256)
    path.write_bytes(content)
    return f"{path.name}: bytes {how}"


def mutate_file(path: Path, dice: random.Random) -> str:
    how = dice.choice(["remove", "folder", "fifo", "loop", "empty", "twin", "nested"])
    others = sorted(other for other in path.parent.iterdir() if other.is_file())
    content = path.read_bytes()
    path.unlink()
    match how:
        case "folder":
            path.mkdir()
        case "fifo":
            os.mkfifo(path)
        case "loop":
            path.symlink_to(path.name)
        case "empty":
            path.touch()
        case "twin":
            shutil.copyfile(dice.choice([each for each in others if each != path] or [Path(__file__)]), path)
        case "nested":
            path.write_text("[" * 50_000)
        case _:
            path.with_name(path.name + "x").write_bytes(content)
    return f"{path.name}: {how}"


def mutated(folder: Path, out: Path, dice: random.Random) -> str:
    """A copy of a folder with one or two changes, and what they are."""
    shutil.copytree(folder, out)
    said = []
    for _ in range(dice.choice([1, 1, 2])):
        files = sorted(path for path in out.rglob("*") if path.is_file() and not path.is_symlink())
        path = dice.choice(files)
        change = dice.choice([mutate_json, mutate_json, mutate_bytes, mutate_bytes, mutate_file])
        if change is mutate_json and path.suffix != ".json":
            change = mutate_bytes
        try:
            said.append(change(path, dice))
        except (ValueError, RecursionError):  # an earlier change has made it unreadable
            said.append(mutate_bytes(path, dice))
    return ", ".join(said)


def try_mutated(folder: Path, tmp_path: Path, seed: int, *, is_used: bool) -> bool:
    """Whether a mutated folder was opened; anything but a ModelError is a failure."""
    dice = random.Random(seed)
    place, out = tmp_path / "mutated", tmp_path / "out"
    said = mutated(folder, place, dice)
    try:
        with time_limit():
            import_published(place, out)
            if is_used:
                loaded = seqloom.load(out)
                if loaded.config.purpose == "encoder":
                    seqloom.Encoder(loaded).encode(["the old man reads", ""])
                elif loaded.config.purpose == "translator":
                    seqloom.Translator(loaded).translate(["Good morning."])
                else:
                    seqloom.LanguageModel(loaded).generate("Good", seed=1)
    except (ModelError, UsageError) as error:
        if isinstance(error, ModelError) or not out.exists():
            require_sentence(error)
        return False
    except BaseException as error:
        raise AssertionError(f"seed {seed}, {said}: {type(error).__name__}: {error}") from error
    finally:
        shutil.rmtree(place)
        leftover = [path.name for path in tmp_path.iterdir() if path.name not in ("tmp", "out")]
        shutil.rmtree(out, ignore_errors=True)
        assert not leftover, (seed, leftover)
    return True


@pytest.mark.filterwarnings("ignore")
def test_mutated_folders_are_refused_or_opened(encoder: Path, opus: Path, llama: Path, tmp_path: Path) -> None:
    folders = (encoder, encoder, encoder, llama, llama, llama, llama, opus)
    opened = sum(try_mutated(folders[seed % 8], tmp_path, seed, is_used=seed % 8 < 3) for seed in range(200))
    assert 20 <= opened <= 180


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_many_mutated_folders_are_refused_or_opened(encoder: Path, opus: Path, llama: Path, tmp_path: Path) -> None:
    seqloom.Translator.load(opus).translate(["Good morning."])  # compiles the loops
    seqloom.LanguageModel.load(llama).generate("Good")
    folders = (encoder, llama, opus)
    opened = sum(try_mutated(folders[seed % 3], tmp_path, seed, is_used=True) for seed in range(1000, 3000))
    assert 200 <= opened <= 1800
