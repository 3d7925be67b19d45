"""A worker of the server: a process with every model and one thread, which answers batches of texts.

Messages are JSON, each preceded by its length in four bytes, over a pair of connected sockets.

    server → worker   {"batch": 7, "do": "translate", "model": "en-de", "options": {…}, "groups": [["a text", …], …]}
                      {"cancel": 7, "group": 0}
    worker → server   {"ready": true} once, or {"failed": "sentence", "code": 4}
                      {"batch": 7, "group": 0, "text": 0, "part": …}   while a text is written, where it is streamed
                      {"batch": 7, "groups": [{"results": […]} or {"error": "sentence"}
                           or {"failed": "KeyError", "where": ["file.py:7 name", …]}, …], "dropped_rows": 0}

The texts of a group belong to one request. A group that cannot be answered, because of a term that the model cannot
write, say, costs no other group anything. A group that is cancelled leaves the search at its next step.
"""

import gc
import json
import os
import queue
import signal
import socket
import struct
import threading
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch

from seqloom.core.declaration import Purpose
from seqloom.core.errors import DataError, SeqloomError, UsageError, exit_code_of
from seqloom.core.events import json_line
from seqloom.data.workers import end_with_parent
from seqloom.serve.actions import Engine, open_actions
from seqloom.serve.groups import Action, GroupCancellation
from seqloom.serve.log import places_of

LENGTH = struct.Struct("!I")
"""How the length of a message is written."""


@dataclass(frozen=True)
class WorkerModel:
    """A model that every worker opens."""

    name: str
    path: str
    purpose: Purpose
    languages: tuple[str, ...] = ()
    """Settings that choose its languages."""


@dataclass(frozen=True)
class WorkerSpec:
    """What a worker is started with."""

    models: tuple[WorkerModel, ...]
    overrides: tuple[str, ...] = ()
    """Search settings in place of the models' own."""
    engine: Engine = "seqloom"


def main(connection: socket.socket, spec: WorkerSpec) -> None:
    """The whole life of a worker. It ends when the server closes the connection, or ends itself."""
    # A signal to all processes of the group is for the server, which lets accepted requests finish.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    end_with_parent()
    torch.set_num_threads(1)
    os.environ["OMP_NUM_THREADS"] = "1"
    warnings.simplefilter("ignore")  # each worker would repeat those of the others
    try:
        models = {
            each.name: open_actions(
                each.purpose, Path(each.path), (*spec.overrides, *each.languages), engine=spec.engine
            )
            for each in spec.models
        }
    except SeqloomError as error:
        connection.sendall(framed({"failed": str(error), "code": exit_code_of(error)}))
        return
    gc.freeze()
    connection.sendall(framed({"ready": True}))
    _Worker(connection, models).run()


class _Worker:
    """Reads messages on one thread and computes on the other, so that a cancellation arrives during a search."""

    def __init__(self, connection: socket.socket, models: Mapping[str, Mapping[str, Action]]) -> None:
        self._connection, self._models = connection, models
        self._tasks: queue.SimpleQueue[tuple[dict[str, Any], GroupCancellation] | None] = queue.SimpleQueue()
        self._cancellations: dict[int, GroupCancellation] = {}

    def run(self) -> None:
        """Answer batches until the connection is closed."""
        threading.Thread(target=self._read, daemon=True).start()
        while (task := self._tasks.get()) is not None:
            message, cancellation = task
            answer = self._answer(message, cancellation)
            del self._cancellations[message["batch"]]
            try:
                self._connection.sendall(framed(answer))
            except OSError:  # the server is gone
                return

    def _read(self) -> None:
        stream = self._connection.makefile("rb")
        while True:
            try:
                (length,) = LENGTH.unpack(stream.read(LENGTH.size))
                message = json.loads(stream.read(length))
            except (OSError, ValueError, struct.error):  # the server has closed the connection
                self._tasks.put(None)
                return
            if "cancel" not in message:
                cancellation = self._cancellations[message["batch"]] = GroupCancellation()
                self._tasks.put((message, cancellation))
            elif (known := self._cancellations.get(message["cancel"])) is not None:
                known.cancel(message["group"])

    def _answer(self, message: Mapping[str, Any], cancellation: GroupCancellation) -> dict[str, Any]:
        number, groups, options = message["batch"], message["groups"], message["options"]
        action = self._models[message["model"]][message["do"]]
        try:
            results = action(groups, options, cancellation, partial(self._emit, number))
            answers: list[dict[str, Any]] = [{"results": each} for each in results]
        except Exception as error:
            answers = [_failure(error)]
            if len(groups) > 1:  # the error belongs to one of them
                answers = [self._alone(message, at, cancellation) for at in range(len(groups))]
        return {"batch": number, "groups": answers, "dropped_rows": cancellation.dropped_rows}

    def _alone(self, message: Mapping[str, Any], at: int, cancellation: GroupCancellation) -> dict[str, Any]:
        """The answer to one group of a batch."""
        if at in cancellation.groups:
            return {"results": []}
        action = self._models[message["model"]][message["do"]]
        emit = partial(self._emit, message["batch"])
        try:
            (found,) = action(
                [message["groups"][at]],
                message["options"],
                GroupCancellation(),
                lambda _, text, part: emit(at, text, part),
            )
        except Exception as error:
            return _failure(error)
        return {"results": found}

    def _emit(self, batch: int, group: int, text: int, part: Any) -> None:
        self._connection.sendall(framed({"batch": batch, "group": group, "text": text, "part": part}))


def _failure(error: Exception) -> dict[str, Any]:
    """The answer to a group that cannot be answered: because of what it asks for, or by a mistake of ours."""
    if isinstance(error, UsageError | DataError):
        return {"error": str(error)}
    return {"failed": type(error).__name__, "where": places_of(error)}


def framed(message: Mapping[str, Any]) -> bytes:
    """A message as it is sent: its length, and its JSON."""
    try:
        data = json.dumps(message, ensure_ascii=False, allow_nan=False).encode()
    except ValueError:  # a number that JSON cannot represent, which becomes null
        data = json_line(message).encode()
    return LENGTH.pack(len(data)) + data
