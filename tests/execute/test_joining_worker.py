"""A worker that joins: what it offers, and when it ends. How it trains is seen with the executor."""

from __future__ import annotations

import os
import signal
import socket
import threading

import pytest
from tests.execute.joiners import find_port

from headwater.errors import StudyError
from headwater.execute.joining import Entrance, Gone, Joined, Leaves
from headwater.execute.joining_worker import SIGNALS, Left, Offer, work_for_study

KEY = b"k" * 32


@pytest.mark.parametrize("device", ["tpu", "cpu:1", "cuda:x", ""])
def test_only_a_core_or_a_gpu_can_be_offered(device: str) -> None:
    with pytest.raises(StudyError, match="cuda:1"):
        Offer(url="a:1", key=KEY, device=device)


def test_a_certain_gpu_is_all_that_the_process_sees() -> None:
    assert Offer(url="a:1", key=KEY, device="cuda:3").environment == {"CUDA_VISIBLE_DEVICES": "3"}
    assert Offer(url="a:1", key=KEY, device="cuda").environment == {}


def test_the_key_is_not_shown() -> None:
    assert "kkk" not in repr(Offer(url="a:1", key=KEY))


def test_a_worker_that_finds_no_study_ends_and_gives_signals_back() -> None:
    before = [signal.getsignal(number) for number in SIGNALS]
    offer = Offer(url=f"127.0.0.1:{find_port()}", key=KEY, patience_s=0.1)
    assert work_for_study(offer) is Left.NO_STUDY
    assert [signal.getsignal(number) for number in SIGNALS] == before


def test_a_worker_whose_lease_ends_before_it_finds_a_study_ends() -> None:
    offer = Offer(url=f"127.0.0.1:{find_port()}", key=KEY, patience_s=600.0, lease_s=0.1)
    assert work_for_study(offer) is Left.ASKED


def test_a_port_that_hangs_up_is_given_up_after_a_while() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:

        def hang_up() -> None:
            while server.fileno() >= 0:
                try:
                    server.accept()[0].close()
                except OSError:
                    return

        thread = threading.Thread(target=hang_up)
        thread.start()
        offer = Offer(url=f"127.0.0.1:{server.getsockname()[1]}", key=KEY, patience_s=0.2)
        assert work_for_study(offer) is Left.NO_STUDY
        server.shutdown(socket.SHUT_RDWR)
        thread.join()


def test_a_signal_tells_the_study_and_the_worker_ends_when_it_is_let_go() -> None:
    entrance = Entrance("127.0.0.1:0", KEY, "cpu")
    entrance.attend(True)
    heard: list[object] = []

    def attend() -> None:
        joined = entrance.news.get()
        assert isinstance(joined, Joined)
        os.kill(os.getpid(), signal.SIGTERM)
        os.kill(os.getpid(), signal.SIGTERM)  # as a scheduler does that signals every process of a job
        heard.append(entrance.news.get())
        joined.line.dismiss()
        while not isinstance(heard[-1], Gone):
            heard.append(entrance.news.get())

    thread = threading.Thread(target=attend)
    thread.start()
    assert work_for_study(Offer(url=entrance.url, key=KEY)) is Left.ASKED
    thread.join()
    entrance.close()
    leaves = heard[0]
    assert isinstance(leaves, Leaves)
    assert leaves.reason == "SIGTERM asked it to"


def test_a_worker_that_nobody_needs_now_ends_with_the_first_signal() -> None:
    entrance = Entrance("127.0.0.1:0", KEY, "cpu")

    def interrupt() -> None:
        assert isinstance(entrance.news.get(), Joined)
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    thread.start()
    assert work_for_study(Offer(url=entrance.url, key=KEY)) is Left.ASKED
    thread.join()
    assert isinstance(entrance.news.get(), Leaves)
    entrance.close()


def test_a_second_ctrl_c_ends_it_at_once() -> None:
    entrance = Entrance("127.0.0.1:0", KEY, "cpu")
    entrance.attend(True)

    def attend() -> None:
        assert isinstance(entrance.news.get(), Joined)
        os.kill(os.getpid(), signal.SIGINT)
        assert isinstance(entrance.news.get(), Leaves)
        os.kill(os.getpid(), signal.SIGINT)
        while not isinstance(entrance.news.get(), Gone):
            pass

    thread = threading.Thread(target=attend)
    thread.start()
    assert work_for_study(Offer(url=entrance.url, key=KEY)) is Left.ASKED
    thread.join()
    entrance.close()
