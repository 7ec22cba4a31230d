"""Ctrl-C, heard between two pieces of work instead of in the middle of one."""

import signal
import threading
from types import FrameType, TracebackType
from typing import Self


class Interruption:
    """While entered, the first Ctrl-C is only noted; a second one is Python's own again."""

    def __init__(self) -> None:
        self.heard = False
        # A handler of the user's own, and a thread that cannot have one, are left alone.
        is_main = threading.current_thread() is threading.main_thread()
        self._listens = is_main and signal.getsignal(signal.SIGINT) is signal.default_int_handler

    def __enter__(self) -> Self:
        if self._listens:
            signal.signal(signal.SIGINT, self._note)
        return self

    def _note(self, number: int, frame: FrameType | None) -> None:
        self.heard = True
        signal.signal(signal.SIGINT, signal.default_int_handler)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._listens:
            signal.signal(signal.SIGINT, signal.default_int_handler)
