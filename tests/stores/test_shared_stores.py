"""Many processes at one store: one winner, nothing lost, a killed writer leaves nothing behind."""

from __future__ import annotations

import os
import signal
import time
from functools import partial
from typing import TYPE_CHECKING

import pytest
from forked import processes as workers
from patience import PATIENCE

from ctxguard.stores import SQLiteStore, open_store

if TYPE_CHECKING:
    from collections.abc import Callable
    from multiprocessing.connection import Connection
    from multiprocessing.synchronize import Barrier
    from pathlib import Path

PROCESSES = 4


def race(place: str, start: Barrier, answers: Connection, number: int) -> None:
    start.wait(PATIENCE)
    with open_store(place) as store:
        answers.send([store.put_new("n", str(key), f"{number}".encode() * 100) for key in range(50)])


def write(place: str, start: Barrier, answers: Connection, number: int) -> None:
    start.wait(PATIENCE)
    # a sweep waits until nobody else reads, which may take long where all of them write and the machine is busy
    opened = partial(open_store, place) if "://" in place else partial(SQLiteStore, place, busy_timeout=PATIENCE)
    with opened(max_bytes=100_000) as store:
        for key in range(60):
            store.put(f"n{number}", str(key), bytes(990), ttl=0.01 if key % 3 == 0 else None)
        answers.send(store.sweep())


def together(work: Callable[..., None], place: str) -> list[object]:
    """Run the work in several processes that begin at the same moment; return what each says."""
    start = workers.Barrier(PROCESSES)
    pipes = [workers.Pipe(duplex=False) for _ in range(PROCESSES)]
    started = [workers.Process(target=work, args=(place, start, pipes[n][1], n)) for n in range(PROCESSES)]
    for worker in started:
        worker.start()
    answers = [receiver.recv() for receiver, _ in pipes if receiver.poll(PATIENCE)]
    for worker in started:
        worker.join(PATIENCE)
    assert [worker.exitcode for worker in started] == [0] * PROCESSES
    return answers


def test_processes_that_make_the_store_together_agree_on_the_first_writer(shared_place: str) -> None:
    answers = together(race, shared_place)
    assert len(answers) == PROCESSES
    assert all(answer == answers[0] for answer in answers)
    with open_store(shared_place) as store:
        assert [store.get("n", str(key)) for key in range(50)] == answers[0]


def test_processes_that_write_and_evict_together_keep_the_limit(shared_place: str) -> None:
    together(write, shared_place)
    with open_store(shared_place, max_bytes=100_000) as store:
        store.sweep()
        total = sum(usage.size for usage in store.usage())
        assert 50_000 < total <= 100_000
        store.put("n", "k", b"v")
        assert store.get("n", "k") == b"v"


def write_for_ever(place: str, ready: Connection) -> None:
    with open_store(place) as store:
        for number in range(1_000_000):
            store.put("n", str(number % 20), f"{number} ".encode() * 20_000)
            ready.send(number)


@pytest.mark.parametrize("delay", [0.0, 0.013, 0.031])
def test_a_writer_killed_at_any_time_leaves_whole_values(shared_place: str, delay: float) -> None:
    receiver, sender = workers.Pipe(duplex=False)
    writer = workers.Process(target=write_for_ever, args=(shared_place, sender))
    writer.start()
    assert receiver.poll(PATIENCE)
    time.sleep(delay)
    os.kill(writer.pid or 0, signal.SIGKILL)
    writer.join(PATIENCE)
    written = [receiver.recv()]
    sender.close()
    try:
        while receiver.poll(0):
            written.append(receiver.recv())
    except EOFError:
        pass
    with open_store(shared_place) as store:
        values = {key: store.get("n", key) for key in store.keys("n")}
        assert set(values) >= {str(number % 20) for number in written}
        for value in values.values():
            assert value is not None
            assert len(set(value.split())) == 1
        store.put("n", "after", b"v")


def stop_in_a_write(place: str, ready: Connection) -> None:
    with SQLiteStore(place).together() as connection:
        connection.execute("DELETE FROM ctxguard_records")
        ready.send("inside")
        time.sleep(600)


def test_a_writer_killed_inside_its_transaction_changes_nothing_and_holds_nothing(tmp_path: Path) -> None:
    place = str(tmp_path / "store.db")
    with SQLiteStore(place, busy_timeout=PATIENCE) as store:
        store.put("n", "k", b"v")
        receiver, sender = workers.Pipe(duplex=False)
        writer = workers.Process(target=stop_in_a_write, args=(place, sender))
        writer.start()
        assert receiver.recv() == "inside"
        os.kill(writer.pid or 0, signal.SIGKILL)
        writer.join(PATIENCE)
        store.put("n", "k2", b"v2")
        assert list(store.keys("n")) == ["k", "k2"]
