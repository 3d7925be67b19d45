"""One part of preparing and training on a large corpus, in a process of its own; its figures as a line of JSON.

prepare RUN SOURCE TARGET WORKERS      from files to a run that can be trained: check, learn pieces, encode
train RUN STEPS                        go on with that run
seek RUN                               find the place of a later epoch
"""

import json
import sys
import time
from pathlib import Path

SETTINGS = (
    "text.size=16000",
    "data.tokens_per_batch=4096",
    "data.held_out=100",
    "model.width=128",
    "model.heads=4",
    "model.feed_forward=256",
    "model.encoder_layers=2",
    "model.decoder_layers=2",
    "training.average=0",
    "training.warmup=10",
    "training.save_every=20",
    "training.validate_every=1000",
    "evaluation.resamples=40",
    "search.beam=1",
    "search.length_factor=0.0",
    "search.length_constant=5",
    "task.dev_lines=2",
)
"""A small model, so that the memory is that of the data."""


def prepare(run: str, source: str, target: str, workers: str) -> dict[str, float]:
    """Prepare a run, and say how long each part took."""
    from seqloom.core.events import Event
    from seqloom.runs.prepare import choose_config, prepare_run

    begins: dict[str, float] = {"checking": time.monotonic()}

    def listen(event: Event) -> None:
        if event.kind == "phase":
            begins["pieces"] = time.monotonic()
        elif event.kind == "progress":
            begins.setdefault("encoding", time.monotonic())

    overrides = [*SETTINGS, "training.steps=40", f"data.workers={workers}"]
    config = choose_config(None, overrides, train=[source, target], dev=[], listener=listen)
    prepare_run(Path(run), config, listener=listen)
    begins["end"] = time.monotonic()
    moments = list(begins.values())
    return {name: end - begin for name, begin, end in zip(begins, moments, moments[1:], strict=False)}


def train(run: str, steps: str) -> dict[str, float]:
    """Go on with a run, and say how long it took until the first step was on its way."""
    from seqloom.core.events import Event
    from seqloom.runs.train import resume

    started = time.monotonic()
    moments: list[float] = []

    def listen(event: Event) -> None:
        if event.kind in ("resumed", "step"):
            moments.append(time.monotonic())

    resume(run, [f"training.steps={steps}"], listener=listen)
    return {"start": moments[0] - started}


def seek(run: str) -> dict[str, float]:
    """Open the store, plan an epoch and put together the batch at its middle."""
    from seqloom.data.batches import BatchPlan, collate
    from seqloom.data.store import Store

    started = time.monotonic()
    store = Store.open(Path(run) / "data" / "train")
    plan = BatchPlan(store.source_lengths, store.target_lengths, tokens_per_batch=4096, seed=1)
    batches = plan.batches(3)
    collate(store, batches[len(batches) // 2])
    return {"seek": time.monotonic() - started, "pairs": len(store), "batches": len(batches)}


if __name__ == "__main__":
    part, *given = sys.argv[1:]
    print(json.dumps({"prepare": prepare, "train": train, "seek": seek}[part](*given)))
