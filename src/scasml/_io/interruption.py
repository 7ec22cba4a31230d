"""Deferred handling of Ctrl-C.

A loop enters an `Interruption` and checks `heard` between two pieces of work. Ctrl-C then ends the
loop after a complete piece, and not in the middle of one.
"""

import signal
import threading
from types import FrameType, TracebackType
from typing import Self


class Interruption:
    """A context in which the first Ctrl-C sets `heard` and the second raises KeyboardInterrupt.

    It has no effect in a thread other than the main one, where Python allows no signal handler.
    It also has no effect if the user has installed another handler for SIGINT.
    """

    def __init__(self) -> None:
        self.heard = False
        is_main = threading.current_thread() is threading.main_thread()
        self._is_active = is_main and signal.getsignal(signal.SIGINT) is signal.default_int_handler

    def __enter__(self) -> Self:
        if self._is_active:
            signal.signal(signal.SIGINT, self._on_signal)
        return self

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        self.heard = True
        signal.signal(signal.SIGINT, signal.default_int_handler)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._is_active:
            signal.signal(signal.SIGINT, signal.default_int_handler)
