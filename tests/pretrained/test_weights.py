"""Weights of published models are read as torch and safetensors wrote them, and nothing in a file is ever run."""

import contextlib
import io
import json
import os
import pickle
import struct
import time
import zipfile
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import save_file
from torch import Tensor, nn

from seqloom.core.errors import ModelError
from seqloom.pretrained.pickles import MAX_TENSORS
from seqloom.pretrained.weights import WeightFiles, write_safetensors

LAYOUTS = {"zip": True, "old": False}
TYPES = [
    *(torch.float16, torch.bfloat16, torch.float32, torch.float64),
    *(torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool),
]


def state_dict() -> dict[str, Tensor]:
    """Every type, and the views that state dicts have: tied, transposed, a slice, a scalar, empty, repeated."""
    state: dict[str, Tensor] = OrderedDict()
    for dtype in TYPES:
        state[f"as.{dtype}"] = (torch.randn(3, 5) * 10).to(dtype)
    table = torch.randn(7, 4)
    state |= {"shared.weight": table, "lm_head.weight": table, "transposed": table.t(), "columns": table[2:, 1:3]}
    state |= {"scalar": torch.tensor(2.5), "empty": torch.zeros(0, 3), "parameter": nn.Parameter(torch.randn(4))}
    state["cube"] = torch.randn(2, 3, 4).permute(2, 0, 1)
    state["repeated"] = torch.arange(5.0).expand(1, 5)
    state["schön"] = torch.randn(1, 1, 1, 1)
    return state


def assert_equal(found: WeightFiles, wanted: dict[str, Tensor]) -> None:
    assert sorted(found.names) == sorted(wanted)
    for name, tensor in wanted.items():
        assert (found.shape(name), found.dtype(name)) == (tuple(tensor.shape), tensor.dtype)
        read = found.tensor(name)
        assert read.is_contiguous()
        assert read.dtype == tensor.dtype
        assert torch.equal(read, tensor.detach()), name
        assert read.untyped_storage().nbytes() == tensor.numel() * tensor.element_size() or not tensor.is_contiguous()


@pytest.mark.parametrize("protocol", [2, 4])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_files_of_torch_are_read_as_they_were_saved(layout: str, protocol: int, tmp_path: Path) -> None:
    state = state_dict()
    path = tmp_path / "pytorch_model.bin"
    torch.save(state, path, _use_new_zipfile_serialization=LAYOUTS[layout], pickle_protocol=protocol)
    assert_equal(WeightFiles.open(tmp_path), state)

    # A state dict of modules has attributes of its own; the file may be a link, as in the cache of a hub.
    module = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4))
    torch.save(module.state_dict(), tmp_path / "blob", _use_new_zipfile_serialization=LAYOUTS[layout])
    path.unlink()
    path.symlink_to("blob")
    assert_equal(WeightFiles.open(tmp_path), module.state_dict())


def test_safetensors_are_read_and_written_as_the_library_does(tmp_path: Path) -> None:
    state = {name: tensor.detach().clone().contiguous() for name, tensor in state_dict().items()}
    save_file(state, tmp_path / "model.safetensors", metadata={"format": "pt"})
    (tmp_path / "pytorch_model.bin").write_bytes(b"is not looked at")
    found = WeightFiles.open(tmp_path)
    assert_equal(found, state)
    parts = [(name, found.shape(name), found.dtype(name), lambda name=name: found.tensor(name)) for name in found.names]
    write_safetensors(tmp_path / "again", parts[::-1], metadata={"format": "pt"})
    assert (tmp_path / "again").read_bytes() == (tmp_path / "model.safetensors").read_bytes()


@pytest.mark.parametrize("kind", ["safetensors", "bin"])
def test_shards_are_one_model(kind: str, tmp_path: Path) -> None:
    state = {f"layer.{at}": torch.randn(2, 3) for at in range(5)}
    stem = {"safetensors": "model", "bin": "pytorch_model"}[kind]
    save: Callable[[Any, Path], None] = save_file if kind == "safetensors" else torch.save
    index = tmp_path / f"{stem}.{kind}.index.json"
    files = [f"{stem}-0000{at}-of-00002.{kind}" for at in (1, 2)]
    listed = {name: files[at % 2] for at, name in enumerate(state)}
    for file in files:
        save({name: state[name] for name in state if listed[name] == file}, tmp_path / file)

    def write_index(weight_map: Any) -> None:
        index.write_text(json.dumps({"metadata": {"total_size": 1}, "weight_map": weight_map}))

    write_index(listed)
    assert_equal(WeightFiles.open(tmp_path), state)
    assert WeightFiles.open(tmp_path).names == tuple(state)
    outside = tmp_path / "inner"
    outside.mkdir()
    for wrong, message in {
        f"../{files[0]}": "which is not a plain name in the same folder",
        f"inner/{files[0]}": "which is not a plain name in the same folder",
        str(tmp_path / files[0]): "which is not a plain name in the same folder",
        "missing.bin": "names missing.bin, which is missing",
        files[1]: "does not fit",
        "inner": "inner is not a file",
    }.items():
        write_index(listed | {"layer.0": wrong})
        with pytest.raises(ModelError, match=message):
            WeightFiles.open(tmp_path)
    for weight_map in (None, [], {}, {"layer.0": 3}, {"layer.0": files[0]}, listed | {"layer.9": files[0]}):
        write_index(weight_map)
        with pytest.raises(ModelError, match=r"index\.json"):
            WeightFiles.open(tmp_path)
    for content in (b"{", b"[" * 100_000, b"\xff", b"3"):
        index.write_bytes(content)
        with pytest.raises(ModelError, match=r"index\.json"):
            WeightFiles.open(tmp_path)


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (["config.json"], "has no weights: neither model.safetensors, pytorch_model.bin nor an index"),
        (["tf_model.h5"], r"has weights of TensorFlow only \(tf_model.h5\).*save_pretrained"),
        (["flax_model.msgpack"], r"has weights of Flax only \(flax_model.msgpack\)"),
        (["adapter_model.safetensors"], r"has an adapter only \(adapter_model.safetensors\); merge it"),
        (["llama.Q4.gguf"], r"has quantised weights only \(llama.Q4.gguf\)"),
    ],
)
def test_folders_without_weights_say_what_is_there(names: list[str], message: str, tmp_path: Path) -> None:
    for name in names:
        (tmp_path / name).write_bytes(b"x")
    with pytest.raises(ModelError, match=message):
        WeightFiles.open(tmp_path)


def safetensors(header: Any, data: bytes = b"") -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + data


def entry(shape: list[Any], begin: Any, end: Any, dtype: str = "F32") -> dict[str, Any]:
    return {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "header would have 0 bytes, and the file has 0"),
        ((1 << 62).to_bytes(8, "little"), "header would have 4,611,686,018,427,387,904 bytes"),
        (safetensors(b"{"), "its header is not JSON"),
        (safetensors(b"[" * 50_000), "nested too deeply"),
        (safetensors([]), "its header is not an object"),
        (safetensors({}), "holds no tensors"),
        (safetensors({"a": entry([2], 0, 8)}), "its tensors end at byte"),
        (safetensors({"a": entry([2], 0, 8)}, bytes(9)), "its tensors end at byte"),
        (safetensors({"a": entry([2], 0, 4)}, bytes(4)), "of shape .2. and type F32 lies at bytes 0 to 4"),
        (safetensors({"a": entry([1 << 40, 1 << 40], 0, 0)}), "lies at bytes 0 to 0"),
        (safetensors({"a": entry([-2, -2], 0, 16)}, bytes(16)), "has the shape"),
        (safetensors({"a": entry([True], 0, 4)}, bytes(4)), "has the shape"),
        (safetensors({"a": entry([1] * 100, 0, 4)}, bytes(4)), "has the shape"),
        (safetensors({"a": entry([1], 0, 4), "b": entry([1], 0, 4)}, bytes(4)), "overlaps another tensor"),
        (safetensors({"a": entry([1], 4, 8)}, bytes(8)), "bytes before it belong to none"),
        (
            safetensors({"a": entry([4], 0, 4, "F8_E4M3")}, bytes(4)),
            "'a' in the type 'F8_E4M3', which is not supported",
        ),
        (safetensors({"a\n": entry([1], 0, 4)}, bytes(4)), "is not the name of a tensor"),
        (safetensors({"a": 3}), "is described as 3"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:0", "pointer of Git LFS"),
    ],
)
def test_damaged_safetensors_are_refused(content: bytes, message: str, tmp_path: Path) -> None:
    (tmp_path / "model.safetensors").write_bytes(content)
    with pytest.raises(ModelError, match=message) as found:
        WeightFiles.open(tmp_path)
    assert "model.safetensors" in str(found.value)
    assert str(found.value).isprintable()


# --- hostile pickles -------------------------------------------------------------------------------------------------


class Call:
    """What calls a function with arguments when it is unpickled."""

    def __init__(self, function: Callable[..., Any], *arguments: Any) -> None:
        self._reduced = function, arguments

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        return self._reduced


def archive(description: bytes, members: dict[str, bytes] | None = None, *, compression: int = 0) -> bytes:
    """A file as the zip layout has it."""
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", compression) as file:
        for name, data in {"m/data.pkl": description, **(members or {})}.items():
            file.writestr(name, data)
    return content.getvalue()


def old_file(description: bytes, keys: list[str], data: bytes, system: Any = None) -> bytes:
    """A file as the old layout has it."""
    head = [0x1950A86A20F9469CFC6C, 1001, system or {"little_endian": True}]
    return b"".join([*(pickle.dumps(part, 2) for part in head), description, pickle.dumps(keys, 2), data])


def described(
    shape: tuple[Any, ...] = (2, 3),
    strides: tuple[Any, ...] = (3, 1),
    offset: Any = 0,
    elements: Any = 6,
    key: str = "0",
) -> bytes:
    """A state dict of one tensor, written instruction by instruction, so that its figures can be false."""

    def number(value: Any) -> bytes:
        return pickle.dumps(value, 2)[2:-1]

    storage = (
        b"((X\x07\x00\x00\x00storagectorch\nFloatStorage\n" + number(key) + number("cpu") + number(elements) + b"tQ"
    )
    arguments = storage + number(offset) + number(shape) + number(strides) + b"\x89ccollections\nOrderedDict\n)Rt"
    return b"\x80\x02}" + number("a") + b"ctorch._utils\n_rebuild_tensor_v2\n" + arguments + b"Rs."


STORAGE = {"m/data/0": struct.pack("<6f", *range(6))}


def test_descriptions_written_by_hand_are_valid_when_their_figures_are(tmp_path: Path) -> None:
    """So that the refusals below are those of the figures."""
    wanted = {"a": torch.arange(6.0).view(2, 3)}
    (tmp_path / "pytorch_model.bin").write_bytes(archive(described(), STORAGE))
    assert_equal(WeightFiles.open(tmp_path), wanted)
    data = struct.pack("<q6f", 6, *range(6))
    (tmp_path / "pytorch_model.bin").write_bytes(old_file(described(), ["0"], data))
    assert_equal(WeightFiles.open(tmp_path), wanted)


@pytest.mark.parametrize("protocol", range(6))
def test_functions_in_a_file_are_named_and_not_run(protocol: int, tmp_path: Path) -> None:
    marker, path = tmp_path / "marker", tmp_path / "pytorch_model.bin"
    description = pickle.dumps({"a": Call(os.mkdir, str(marker))}, protocol)
    for content in (archive(description, STORAGE), old_file(description, [], b""), description):
        path.write_bytes(content)
        with pytest.raises(ModelError) as found:
            WeightFiles.open(tmp_path)
        message = str(found.value)
        assert str(path) in message
        if protocol >= 2:  # of which torch's own are; the others are refused sooner
            assert "contains posix.mkdir, which is code; it was not run" in message
        assert not marker.exists()
    pickle.loads(description)  # the description does what it is refused for
    assert marker.exists()


def laughs() -> bytes:
    """A tuple of ten tuples of ten tuples …: 10⁵⁰ values, which nobody may count."""
    return b"(" * 50 + b")q\x00" + (b"h\x00" * 9 + b"tq\x00") * 50


HOSTILE: dict[str, tuple[bytes, str]] = {
    "too many elements": (archive(described(shape=(2, 4)), STORAGE), r"shape \[2, 4\] at 0 needs more than the 6"),
    "repeated": (archive(described(shape=(1 << 40, 1), strides=(0, 1)), STORAGE), "needs more than the 6"),
    "offset": (archive(described(offset=1), STORAGE), "at 1 needs more than the 6"),
    "negative offset": (archive(described(offset=-1), STORAGE), "invalid shape"),
    "negative stride": (archive(described(strides=(-3, 1)), STORAGE), "invalid shape"),
    "absurd shape": (archive(described(shape=(1 << 2000, 3)), STORAGE), "an absurd number, 3"),
    "axes": (archive(described(shape=(1,) * 50, strides=(1,) * 50), STORAGE), "50 sizes and 50 strides"),
    "strides missing": (archive(described(strides=(1,)), STORAGE), "2 sizes and 1 strides"),
    "shape of names": (archive(described(shape=("a", "b")), STORAGE), "invalid shape"),
    "absurd storage": (archive(described(elements=1 << 60), STORAGE), "one of its storages has the invalid number"),
    "lying storage": (archive(described(elements=7), STORAGE), "data/0 has 24 bytes, not 28"),
    "storage missing": (archive(described(key="1"), STORAGE), "it has no data/1"),
    "escaping key": (archive(described(key="../../x"), STORAGE), "it has no data/../../x"),
    "escaping member": (archive(described(), STORAGE | {"m/../../evil": b""}), "lies outside of"),
    "other member": (archive(described(), STORAGE | {"other/x": b""}), "lies outside of"),
    "compressed": (archive(described(), STORAGE, compression=zipfile.ZIP_DEFLATED), "is compressed"),
    "big-endian": (archive(described(), STORAGE | {"m/byteorder": b"big"}), "its byte order is b'big'"),
    "no description": (archive(described(), STORAGE).replace(b"data.pkl", b"date.pkl"), "0 members named data.pkl"),
    "truncated zip": (archive(described(), STORAGE)[:-30], "does not end like a zip archive"),
    "truncated description": (archive(described()[:-9], STORAGE), "is truncated: it ends within the description"),
    "not a dict": (archive(pickle.dumps([1], 2)), "does not hold a state dict but a value of type list"),
    "nested": (archive(pickle.dumps({"model": {}}, 2)), "a value of type dict under the name 'model'; only tensors"),
    "itself": (archive(b"\x80\x02}q\x00X\x01\x00\x00\x00ah\x00s."), "a value of type dict under the name 'a'"),
    "name": (archive(b"\x80\x02}K\x01K\x02s."), "is not the name of a tensor"),
    "deep": (archive(b"\x80\x02" + b"(" * 100_000), "nested more than 64 deep"),
    "deep tuples": (archive(b"\x80\x02)" + b"\x85" * 300_000 + b"."), "a value of type tuple"),
    "endless": (archive(b"\x80\x02N" + b"q\x00" * 400_001 + b"."), "more than 400,000 instructions"),
    "laughs as a key": (archive(b"\x80\x02}" + laughs() + b"K\x01s."), "a value of type tuple is not the name"),
    "laughs as a module": (archive(b"\x80\x04" + laughs() + laughs() + b"\x93."), "has no name"),
    "laughs as a version": (
        old_file(described(), [], b"").replace(pickle.dumps(1001, 2), b"\x80\x02" + laughs() + b".", 1),
        r"version \[…\] of the layout, not 1001",
    ),
    "laughs as a shape": (archive(described().replace(b"K\x02K\x03\x86", laughs(), 1), STORAGE), "sizes and 2 strides"),
    "stack": (archive(b"\x80\x02R."), "lacks its values"),
    "mark": (archive(b"\x80\x02]((K\x01e."), "ends too early|lacks its values"),
    "memo": (archive(b"\x80\x02h\x07."), "uses value 7, which it does not have"),
    "instruction": (archive(b"\x80\x02\x82\x01."), "instruction EXT1, which weights do not need"),
    "unknown byte": (archive(b"\x80\x02\xff."), "is damaged: the description of its tensors is invalid"),
    "long text": (archive(b"\x80\x02X\xff\xff\xff\x7fabc"), "an item of 2,147,483,647 bytes"),
    "long line": (archive(b"\x80\x02c" + b"x" * 200_000), "is damaged|is truncated"),
    "control characters": (archive(b"\x80\x02cos\nsys\x1b[2Jtem\n."), r"contains os.sys\\u001b\[2Jtem, which is code"),
    "old truncated": (old_file(described(), ["0"], struct.pack("<q5f", 6, *range(5))), "6 elements is not complete"),
    "old lying count": (
        old_file(described(), ["0"], struct.pack("<q6f", 1 << 62, *range(6))),
        "6 elements is not compl",
    ),
    "old trailing": (old_file(described(), ["0"], struct.pack("<q7f", 6, *range(7))), "4 bytes after its last storage"),
    "old keys": (old_file(described(), ["0", "0"], b""), "list of its storages is invalid"),
    "old key unknown": (old_file(described(), ["1"], b""), "no tensor belongs to its storage '1'"),
    "old key missing": (old_file(described(), [], b""), "1 of its 1 storages are missing"),
    "old big-endian": (old_file(described(), ["0"], b"", {"little_endian": False}), "little-endian machine"),
    "old not torch": (pickle.dumps({"a": 1}, 2), "is a pickle, but not one of torch.save"),
    "TensorFlow": (b"\x89HDF\r\n", "is not a file of torch.save: it begins with"),
    "nothing": (b"", "is not a file of torch.save"),
    "pointer": (b"version https://git-lfs.github.com/spec/v1\n", "pointer of Git LFS"),
}


@pytest.mark.parametrize("case", HOSTILE)
def test_hostile_files_are_refused_in_one_sentence(case: str, tmp_path: Path) -> None:
    content, message = HOSTILE[case]
    (tmp_path / "pytorch_model.bin").write_bytes(content)
    start = time.perf_counter()
    with pytest.raises(ModelError, match=message) as found:
        WeightFiles.open(tmp_path)
    assert time.perf_counter() - start < 30
    assert "pytorch_model.bin" in str(found.value)
    assert str(found.value).isprintable()
    assert len(str(found.value)) < 500


def test_duplicate_members_and_unsupported_tensors_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "pytorch_model.bin"
    content = archive(described(), {**STORAGE, "m/data/1": STORAGE["m/data/0"]})
    path.write_bytes(content.replace(b"m/data/1", b"m/data/0"))
    with pytest.raises(ModelError, match="two members of its zip archive have the same name"):
        WeightFiles.open(tmp_path)
    for tensor in (
        torch.zeros(2).to(torch.float8_e4m3fn),
        torch.eye(2).to_sparse(),
        torch.zeros(2, dtype=torch.complex64),
    ):
        torch.save({"a": tensor}, path)
        with pytest.raises(ModelError, match=r"holds tensors of an unsupported type \(torch\."):
            WeightFiles.open(tmp_path)
    names = b"".join(b"X" + struct.pack("<I", 6) + b"%06d" % at + b"N" for at in range(MAX_TENSORS + 1))
    path.write_bytes(archive(b"\x80\x02}(" + names + b"u."))
    with pytest.raises(ModelError, match="it holds 20,001 tensors; at most 20,000 are allowed"):
        WeightFiles.open(tmp_path)


def test_a_file_that_becomes_shorter_while_it_is_used_is_refused(tmp_path: Path) -> None:
    save_file({"a": torch.randn(4)}, tmp_path / "model.safetensors")
    found = WeightFiles.open(tmp_path)
    os.truncate(tmp_path / "model.safetensors", 40)
    with pytest.raises(ModelError, match="became shorter while it was read"):
        found.tensor("a")


def sample(layout: str) -> bytes:
    content = io.BytesIO()
    table = torch.arange(12.0).view(3, 4)
    state = OrderedDict(a=table, b=table.t(), c=torch.arange(5).half())
    torch.save(state, content, _use_new_zipfile_serialization=LAYOUTS[layout])
    return content.getvalue()


SAMPLES = {layout: sample(layout) for layout in LAYOUTS}


@pytest.mark.parametrize("layout", LAYOUTS)
@settings(max_examples=400)
@given(data=st.data())
def test_damaged_files_give_tensors_or_one_error(
    layout: str, data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    content = bytearray(SAMPLES[layout])
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(content) - 1))
        match data.draw(st.sampled_from(["flip", "set", "cut", "remove", "insert", "repeat"])):
            case "flip":
                content[at] ^= 1 << data.draw(st.integers(0, 7))
            case "set":
                content[at] = data.draw(st.integers(0, 255))
            case "cut":
                del content[max(at, 1) :]
            case "remove":
                del content[at : at + data.draw(st.integers(1, 20))]
            case "insert":
                content[at:at] = data.draw(st.binary(min_size=1, max_size=8))
            case _:
                content[at:at] = content[at : at + data.draw(st.integers(1, 40))]
        content = content or bytearray(1)
    folder = tmp_path_factory.getbasetemp() / "mutated"
    folder.mkdir(exist_ok=True)
    (folder / "pytorch_model.bin").write_bytes(content)
    with contextlib.suppress(ModelError):
        found = WeightFiles.open(folder)
        for name in found.names:
            tensor = found.tensor(name)
            assert (tuple(tensor.shape), tensor.dtype) == (found.shape(name), found.dtype(name))
            assert tensor.nbytes <= len(content)
