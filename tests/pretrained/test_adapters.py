"""An OPUS-MT folder adapted to pairs: the run, its adapter, merging, resuming, and what is refused."""

import json
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from cli.calling import call
from published_folders import write_opus_folder
from seqloom.core.errors import ModelError
from seqloom.core.events import Event
from seqloom.data.phrasebook import sample_pairs
from seqloom.interop.peft import read_peft
from seqloom.runs.train import resume, train
from seqloom.training.checkpoint import checkpoint_folder

SETTINGS = (
    *("training.lora.rank=3", "training.lora.dropout=0.1", "training.learning_rate=0.02", "training.steps=4"),
    *("training.validate_every=2", "training.save_every=2", "training.average=2", "evaluation.resamples=40"),
    *("training.warmup=1", "search.length_factor=0", "search.length_constant=12"),
)


@pytest.fixture(scope="module")
def pairs(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    folder = tmp_path_factory.mktemp("text")
    some = sample_pairs("en", "de", count=60, seed=8, split="train")
    for language, lines in (("en", [each.source for each in some]), ("de", [each.target for each in some])):
        (folder / f"text.{language}").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return [str(folder / "text.en"), str(folder / "text.de")]


@pytest.fixture(scope="module")
def run(opus: Path, pairs: list[str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("runs") / "adapted"
    files = [word for name in pairs for word in ("--train", name)]
    trained = call("train", *files, "--out", out, f"training.start_from={opus}", *SETTINGS)
    assert trained.code == 0, trained.err
    assert "parameters are trained" in trained.err
    return out


def files_of(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def write_other_base(folder: Path) -> Path:
    """The folder of `opus` with other weights."""
    other = write_opus_folder(folder, dropout=0.2)
    weights = torch.load(other / "pytorch_model.bin")
    weights["model.shared.weight"][5] += 1
    torch.save(weights, other / "pytorch_model.bin")
    return other


def test_base_and_adapter_are_the_model_of_the_run(opus: Path, run: Path, pairs: list[str], tmp_path: Path) -> None:
    merged = call("merge", run / "adapter", "--out", tmp_path / "merged")
    assert merged.code == 0, merged.err
    assert f"merged with {opus}" in merged.out
    assert files_of(tmp_path / "merged") == files_of(run / "model")
    assert call("translate", tmp_path / "merged", pairs[0]).lines == call("translate", run, pairs[0]).lines

    # The adapter is what was learned, and little besides.
    before, after = load_file(run / "adapter" / "adapter.safetensors"), load_file(run / "model" / "model.safetensors")
    assert sum(tensor.numel() for tensor in before.values()) < 0.2 * sum(tensor.numel() for tensor in after.values())
    assert any(before[name].any() for name in before if name.endswith(".B"))
    assert set(load_file(checkpoint_folder(run, 4) / "model.safetensors")) == set(before)
    assert call("import", opus, "--out", tmp_path / "base").code == 0
    base = load_file(tmp_path / "base" / "model.safetensors")
    changed = {name for name in base if not torch.equal(base[name], after[name])}
    assert changed == {f"{name.partition('.lora.')[0]}.weight" for name in before}

    # Imported by itself, the base has the same weights.
    again = call("merge", run, "--base", tmp_path / "base", "--out", tmp_path / "again", "--json")
    assert again.code == 0, again.err
    assert again.records[0]["adapted"] == 2 * 2 + 2 * 4
    assert files_of(tmp_path / "again") == files_of(run / "model")


def test_an_interrupted_run_gives_the_same_bits(opus: Path, run: Path, pairs: list[str], tmp_path: Path) -> None:
    out = tmp_path / "run"
    train(None, [f"training.start_from={opus}", *SETTINGS, "training.steps=2"], out=out, train=pairs)
    shutil.rmtree(out / "model")
    shutil.rmtree(out / "adapter")
    for command in (["merge", out], ["export", out, "--to", "peft"]):
        early = call(*command, "--out", tmp_path / "early")
        assert early.code in (2, 4)
        assert f"{out} has not finished, so it has no adapter yet; finish it with" in early.err
    unfinished = call("translate", out, pairs[0])  # by its checkpoint, which holds the adapter alone
    assert (unfinished.code, len(unfinished.lines)) == (0, 60), unfinished.err
    averaged = call("average", out / "checkpoints" / "step-2", "--out", tmp_path / "averaged")
    assert averaged.code == 0, averaged.err
    assert call("translate", tmp_path / "averaged", pairs[0]).lines == unfinished.lines
    other = write_other_base(tmp_path / "other")
    with pytest.raises(ModelError, match=rf"was begun with another base: .* and those of {other} [0-9a-f]{{12}}…"):
        resume(out, ["training.steps=4", f"training.start_from={other}"])
    refused = call("train", "--resume", out, "training.lora.rank=4")
    assert (refused.code, "training.lora is" in refused.err) == (2, True)
    resume(out, ["training.steps=4"])
    mine, whole = (load_file(each / "adapter" / "adapter.safetensors") for each in (out, run))
    assert mine.keys() == whole.keys()
    assert all(torch.equal(mine[name], whole[name]) for name in whole)


def test_a_run_without_a_checkpoint_keeps_its_base(opus: Path, pairs: list[str], tmp_path: Path) -> None:
    def interrupt(event: Event) -> None:
        if event.kind == "model":  # the text is prepared, and nothing is trained
            raise KeyboardInterrupt

    out, other = tmp_path / "run", write_other_base(tmp_path / "other")
    with pytest.raises(KeyboardInterrupt):
        train(None, [f"training.start_from={opus}", *SETTINGS], out=out, train=pairs, listener=interrupt)
    begun = json.loads((out / "run.json").read_text())["base"]["sha256"]
    refused = call("train", "--resume", out, f"training.start_from={other}")
    assert refused.code == 4, refused.err
    assert f"the SHA-256 {begun[:12]}…, and those of {other} " in refused.err
    shutil.copytree(opus, tmp_path / "moved")
    with pytest.raises(KeyboardInterrupt):  # accepted: the same weights at another place
        resume(out, [f"training.start_from={tmp_path / 'moved'}"], listener=interrupt)


def test_what_does_not_fit_is_refused_and_leaves_nothing(opus: Path, run: Path, tmp_path: Path) -> None:
    adapter, out = tmp_path / "adapter", tmp_path / "out"
    shutil.copytree(run / "adapter", adapter)
    other = write_opus_folder(tmp_path / "opus-mt-en-de", languages=(">>deu<<",))
    wrong = call("merge", adapter, "--base", other, "--out", out)
    assert wrong.code == 4, wrong.err
    record = json.loads((adapter / "adapter.json").read_text())
    assert f"that base have the SHA-256 {record['base']['sha256'][:12]}…" in wrong.err
    record["base"]["path"] = "moved/base"
    (adapter / "adapter.json").write_text(json.dumps(record))
    damaged = call("merge", adapter, "--out", out)
    assert (damaged.code, "is damaged: adapter.json" in damaged.err) == (4, True)
    manifest = json.loads((adapter / "manifest.json").read_text())
    del manifest["files"]["adapter.json"]
    (adapter / "manifest.json").write_text(json.dumps(manifest))
    assert "does not list adapter.json" in call("merge", adapter, "--out", out).err
    used = call("info", run / "adapter")
    assert (used.code, "is an adapter, not a model; merge it" in used.err) == (4, True)
    neither = call("merge", opus, "--out", out)
    assert (neither.code, "is not an adapter" in neither.err) == (4, True)
    assert not out.exists()


def test_a_base_that_is_gone_is_named(run: Path, opus: Path, tmp_path: Path) -> None:
    moved = opus.with_name("moved")
    opus.rename(moved)
    try:
        missing = call("merge", run / "adapter", "--out", tmp_path / "out")
        assert missing.code == 2
        assert f"was not found at {opus}; name its place with --base" in missing.err
        assert call("merge", run / "adapter", "--base", moved, "--out", tmp_path / "out").code == 0
    finally:
        moved.rename(opus)


def test_a_folder_of_peft_is_the_adapter(run: Path, opus: Path, tmp_path: Path) -> None:
    exported = call("export", run / "adapter", "--to", "peft", "--out", tmp_path / "peft")
    assert exported.code == 0, exported.err
    unnamed = call("merge", tmp_path / "peft", "--out", tmp_path / "out")
    assert (unnamed.code, f"(it names {opus}) with --base" in unnamed.err) == (2, True)
    merged = call("merge", tmp_path / "peft", "--base", opus, "--out", tmp_path / "out")
    assert merged.code == 0, merged.err
    ours, back = (load_file(each / "model.safetensors") for each in (run / "model", tmp_path / "out"))
    assert all(torch.allclose(ours[name], back[name], rtol=0, atol=1e-6) for name in ours)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"peft_type": "IA3"}, r'has peft_type="IA3", which is not supported'),
        ({"use_dora": True}, "has use_dora=true, which is not supported"),
        ({"bias": "all"}, 'has bias="all"'),
        ({"init_lora_weights": "pissa"}, 'has init_lora_weights="pissa"'),
        ({"alpha_pattern": {"(a+)+b": 3}}, r'has the alpha_pattern "\(a\+\)\+b"'),
        ({"lora_alpha": "large"}, 'has lora_alpha="large", which is not a number'),
        ({"r": 0}, "has the rank 0 for .*, but its lora_A has 3 rows"),
        ({"rank_pattern": 5}, "has rank_pattern=5, which is not a table"),
        ({"target_modules": ["fc1"]}, r'has target_modules=\["fc1"\], without .*q_proj'),
    ],
)
def test_what_peft_can_do_and_we_cannot_is_refused(
    changes: dict[str, object], message: str, run: Path, tmp_path: Path
) -> None:
    call("export", run, "--to", "peft", "--out", tmp_path / "peft")
    path = tmp_path / "peft" / "adapter_config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))
    with pytest.raises(ModelError, match=message):
        read_peft(tmp_path / "peft")


def test_tensors_of_peft_that_do_not_fit_are_refused(run: Path, opus: Path, tmp_path: Path) -> None:
    call("export", run, "--to", "peft", "--out", tmp_path / "peft")
    path = tmp_path / "peft" / "adapter_model.safetensors"
    tensors = load_file(path)
    name = next(iter(tensors))
    for number, (key, message) in enumerate(
        (
            ("base_model.model.classifier.weight", "is for classifier.weight, which the base does not have"),
            ("base_model.model.model.shared.lora_embedding_A", "lora_embedding_A, which is not supported"),
            ("base_model.model.model.decoder.layers.0.fc1.weight", "it belongs to another model"),
            (name.replace("layers.0", "layers.9"), "have the shapes"),
        )
    ):
        save_file({**tensors, key: torch.zeros(3, 5)}, path)
        refused = call("merge", tmp_path / "peft", "--base", opus, "--out", tmp_path / f"out-{number}")
        assert (refused.code, message in refused.err) == (4, True), refused.err
        assert not (tmp_path / f"out-{number}").exists()
    save_file({**tensors, name: torch.full_like(tensors[name], torch.nan)}, path)
    refused = call("merge", tmp_path / "peft", "--base", opus, "--out", tmp_path / "out")
    assert (refused.code, "would have NaN or infinite numbers" in refused.err) == (4, True), refused.err
    used = call("translate", tmp_path / "peft")
    assert (used.code, "is an adapter of PEFT, not a model; merge it" in used.err) == (4, True)
