"""The writers' queue."""

from __future__ import annotations

import signal
import threading
import time

import pytest

from twofold.stores.fifo import FifoLock


def test_threads_get_it_in_the_order_they_asked() -> None:
    lock = FifoLock()
    assert lock.acquire(1)
    order: list[int] = []

    def wait(n: int) -> None:
        assert lock.acquire(10)
        order.append(n)
        lock.release()

    threads = []
    for n in range(8):
        threads.append(threading.Thread(target=wait, args=(n,)))
        threads[-1].start()
        while len(lock._waiting) <= n:
            time.sleep(0.001)
    lock.release()
    for one in threads:
        one.join()
    assert order == list(range(8))


def test_a_thread_in_a_loop_does_not_starve_another() -> None:
    lock = FifoLock()
    turns = 0
    got = threading.Event()

    def greedy() -> None:
        nonlocal turns
        while not got.is_set():
            assert lock.acquire(10)
            turns += 1
            time.sleep(0.0005)
            lock.release()

    thread = threading.Thread(target=greedy)
    thread.start()
    while not turns:
        time.sleep(0.0005)
    before = turns
    assert lock.acquire(10)
    waited = turns - before
    lock.release()
    got.set()
    thread.join()
    assert waited <= 2


def test_a_wait_that_times_out_leaves_the_queue() -> None:
    lock = FifoLock()
    assert lock.acquire(1)
    assert lock.mine()
    results = []
    thread = threading.Thread(target=lambda: results.append((lock.acquire(0.05), lock.mine())))
    thread.start()
    thread.join()
    assert results == [(False, False)]
    assert not lock._waiting
    lock.release()
    assert not lock.mine()
    assert lock.acquire(0)
    lock.release()


def test_a_signal_while_waiting_leaves_the_queue() -> None:
    class Alarm(Exception):
        pass

    def ring(*_: object) -> None:
        raise Alarm

    lock = FifoLock()
    held = threading.Event()
    free = threading.Event()

    def hold() -> None:
        assert lock.acquire(1)
        held.set()
        free.wait()
        lock.release()

    thread = threading.Thread(target=hold)
    thread.start()
    held.wait()
    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, 0.05)
    try:
        with pytest.raises(Alarm):
            lock.acquire(30)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert not lock._waiting
    free.set()
    thread.join()
    assert lock.acquire(1)


def test_many_threads_exclude_each_other() -> None:
    lock = FifoLock()
    inside = 0
    most = 0

    def work() -> None:
        nonlocal inside, most
        for _ in range(200):
            if not lock.acquire(0.001):
                continue
            inside += 1
            most = max(most, inside)
            inside -= 1
            lock.release()

    threads = [threading.Thread(target=work) for _ in range(6)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert most == 1
    assert lock.acquire(0)
