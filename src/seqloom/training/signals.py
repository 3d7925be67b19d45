"""Signals ask a run to stop; it finishes its step, saves, and then does so."""

import signal
import threading
from types import FrameType, TracebackType

STOPPING = tuple(getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name))
"""Ctrl-C, what a scheduler sends, and what comes when a terminal is closed (which Windows knows not)."""


def stopping_signals() -> list[signal.Signals]:
    """Those that this process hears of: under nohup it goes on when its terminal is closed."""
    return [number for number in STOPPING if number == signal.SIGINT or signal.getsignal(number) != signal.SIG_IGN]


class AtOnce(BaseException):
    """Raised in the main thread by a second SIGINT: stop now, without finishing the step."""


class Signals:
    """While it is entered, signals to stop are noted rather than obeyed; a second SIGINT raises `AtOnce`.

    Python lets only the main thread handle signals: in another thread this does nothing.
    """

    def __init__(self) -> None:
        self.received: signal.Signals | None = None
        self._before: dict[signal.Signals, object] = {}

    def __enter__(self) -> "Signals":
        if threading.current_thread() is threading.main_thread():
            for number in stopping_signals():
                self._before[number] = signal.signal(number, self._note)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)  # type: ignore[arg-type]

    def _note(self, number: int, _frame: FrameType | None) -> None:
        if self.received is signal.SIGINT and number == signal.SIGINT:
            raise AtOnce
        self.received = self.received or signal.Signals(number)
