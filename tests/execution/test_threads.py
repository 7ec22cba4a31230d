"""Threads of the user: who waits for whom when programs are compiled and run."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from scasml.execution.compilation import Compiled, Prepared, _CompiledPrograms

SECONDS = 30.0  # until a thread that waits for ever fails the test


def compiled(call=None, is_serial=False):
    return Compiled(call, is_serial, {})


def test_a_thread_does_not_wait_for_the_compilation_of_another_program():
    programs, begun, proceed = _CompiledPrograms(4), threading.Event(), threading.Event()

    def slow():
        begun.set()
        assert proceed.wait(SECONDS)
        return compiled()

    with ThreadPoolExecutor(3) as pool:
        first = pool.submit(programs.get, "slow", slow)
        assert begun.wait(SECONDS)
        same = pool.submit(programs.get, "slow", lambda: pytest.fail("compiled twice"))
        other = pool.submit(programs.get, "other", compiled)
        try:
            other.result(SECONDS / 6)
        finally:
            proceed.set()
        assert same.result(SECONDS) is first.result(SECONDS)


def test_a_compilation_that_fails_is_tried_again():
    programs = _CompiledPrograms(4)

    def fails():
        raise ValueError("no memory")

    with pytest.raises(ValueError, match="no memory"):
        programs.get("key", fails)
    good = compiled()
    assert programs.get("key", lambda: good) is good


@pytest.mark.parametrize("is_serial", [True, False])
def test_programs_that_call_a_library_run_one_at_a_time(is_serial):
    running, largest, lock = 0, 0, threading.Lock()

    def call(arrays, columns, count):
        nonlocal running, largest
        with lock:
            running += 1
            largest = max(largest, running)
        time.sleep(0.1)
        with lock:
            running -= 1
        return columns

    prepared = Prepared([], compiled(call, is_serial), np.dtype(np.float32), 0.0)
    rows = np.ones((3, 1), np.float32)
    with ThreadPoolExecutor(4) as pool:
        for result in list(pool.map(prepared, [rows] * 4)):
            np.testing.assert_array_equal(result, rows)
    assert (largest == 1) is is_serial
