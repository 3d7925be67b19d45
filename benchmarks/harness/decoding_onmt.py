"""OpenNMT-py for decoding: it can only load what it has trained, so it trains for one step, by its own command.

Its weights are then random, and outputs get a length by force; the arithmetic is that of a trained model.
"""

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from harness.peers import toolkit_program
from harness.sizes import RecurrentSize, Size
from harness.toolkits import onmt_settings


@dataclass(frozen=True)
class Peer:
    """What a process of OpenNMT-py is started with."""

    python: Path
    checkpoint: Path
    source: Path


def onmt_peer(size: Size | RecurrentSize, sentences: list[list[int]], *, symbols: int, folder: Path) -> Peer | None:
    """A checkpoint of this size, its source lines as ids; None where there is no environment for it."""
    program = toolkit_program("onmt", "onmt_train")
    if program is None:
        return None
    folder.mkdir()
    text = "".join(" ".join(map(str, sentence)) + "\n" for sentence in sentences)
    for name in ("train.source", "train.target", "lines"):
        (folder / name).write_text(text, encoding="utf-8")
    (folder / "vocabulary").write_text("".join(f"{id}\t1\n" for id in range(4, symbols)), encoding="utf-8")
    few = {"train_steps": 1, "save_checkpoint_steps": 1, "report_every": 1, "bucket_size": len(sentences)}
    settings = {**onmt_settings(size, folder), **few}
    (folder / "onmt.yaml").write_text(json.dumps(settings), encoding="utf-8")  # JSON is YAML
    subprocess.run(
        [program, "-config", folder / "onmt.yaml"],
        check=True,
        cwd=folder,
        stdout=sys.stderr,
        env=os.environ | {"TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD": "1"},
    )
    return Peer(program.with_name("python"), folder / "onmt_step_1.pt", folder / "lines")
