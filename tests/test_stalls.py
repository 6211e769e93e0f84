"""What a pipeline says of its stalls is what others read, for as long as it is there."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from tests.clocks import JumpingClock

from headwater.errors import StudyError
from headwater.stalls import LentPage, LentStage, StallPage, find_page, list_lent

STAGE = LentStage(stage=1, num_stages=2, pid=os.getpid(), cores=(0,))


def test_what_is_written_is_read(tmp_path: Path) -> None:
    clock = JumpingClock()
    page = StallPage(tmp_path, STAGE, clock)
    page.open(5000)
    clock.jump(2.0)
    page.begin_stall(expected_s=3.0)
    with LentPage(find_page(tmp_path, 1)) as reader:
        waiting = reader.state
        assert waiting.is_waiting
        assert (waiting.until_s or 0.0) - waiting.since_s == pytest.approx(3.0)
        clock.jump(2.0)
        assert page.end_stall() == pytest.approx(2.0)
        page.count_step()
        after = reader.state
        assert (after.is_waiting, after.until_s, after.num_stalls, after.num_steps) == (False, None, 1, 1)
        assert after.share == pytest.approx(0.5)
        assert page.state == after
        assert reader.stage == LentStage(stage=1, num_stages=2, pid=os.getpid(), cores=(0,), memory_bytes=5000)
    page.close()


def test_a_stage_is_lent_from_when_it_says_what_it_leaves_until_it_ends(tmp_path: Path) -> None:
    assert list_lent(tmp_path / "nowhere") == []
    page = StallPage(tmp_path, STAGE)
    assert list_lent(tmp_path) == []
    page.open(None)
    assert [stage.memory_bytes for stage in list_lent(tmp_path)] == [None]
    page.open(7000)
    page.open(9000)  # it never becomes more
    assert [stage.memory_bytes for stage in list_lent(tmp_path)] == [7000]
    page.open(0)
    assert [stage.memory_bytes for stage in list_lent(tmp_path)] == [0]
    page.close()
    assert list_lent(tmp_path) == []


def test_a_host_that_was_killed_lends_no_more(tmp_path: Path) -> None:
    script = (
        "import os, sys; from pathlib import Path; from headwater.stalls import LentStage, StallPage; "
        "page = StallPage(Path(sys.argv[1]), LentStage(stage=0, num_stages=1, pid=os.getpid())); page.open(1); "
        "print(flush=True); sys.stdin.read()"
    )
    host = subprocess.Popen(
        [sys.executable, "-c", script, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert host.stdout is not None
    assert host.stdin is not None
    host.stdout.readline()
    assert [stage.pid for stage in list_lent(tmp_path)] == [host.pid]
    host.send_signal(signal.SIGKILL)
    host.wait()
    assert find_page(tmp_path, 0).exists()
    assert list_lent(tmp_path) == []
    host.stdin.close()
    host.stdout.close()
    page = StallPage(tmp_path, LentStage(stage=0, num_stages=1, pid=1))  # and can be followed by another
    page.close()


def test_a_stage_is_lent_once(tmp_path: Path) -> None:
    page = StallPage(tmp_path, STAGE)
    with pytest.raises(StudyError, match=r"stage 1 is lent in .* already"):
        StallPage(tmp_path, STAGE)
    page.close()


def test_a_folder_that_others_can_write_to_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "open"
    folder.mkdir()
    folder.chmod(0o777)
    with pytest.raises(StudyError, match="others may write"):
        StallPage(folder, STAGE)


@pytest.mark.parametrize("header", [b'{"stage": -1}', b"[1]", b"nonsense", b'{"stage": 1, "num_stages": 2, "pid": 1}'])
def test_what_is_no_page_is_refused(tmp_path: Path, header: bytes) -> None:
    page = StallPage(tmp_path, STAGE)
    page.open(1)
    with find_page(tmp_path, 1).open("r+b") as file:
        file.seek(128)
        file.write(header.ljust(1000, b"\0"))
    with pytest.raises(StudyError, match="no page of a pipeline"):
        list_lent(tmp_path)
    page.close()
