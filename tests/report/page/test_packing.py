"""What a browser is given: compact, and the numbers of the record."""

from __future__ import annotations

import json
import math
import struct
from base64 import b64decode
from pathlib import Path
from typing import Any

import pytest
from tests.page_studies import HOSTILE, write_hostile, write_plain

from headwater.errors import StudyError
from headwater.report.page.columns import LACKING, pack_floats, pack_statuses, pack_values, pack_whole
from headwater.report.page.html import MODULES, PARTS, dashboard_html, embed_json
from headwater.report.page.report_file import make_report, write_report
from headwater.report.page.study_page import StudyPage
from headwater.store import Batch, Transition, open_store
from headwater.trials import Report, Status

CODES = {"f4": "f", "f8": "d", "i4": "i", "u2": "H", "u1": "B"}


def unpack(column: str) -> list[float]:
    kind, _, text = column.partition(":")
    if kind == "to":
        return list(range(int(text)))
    return [value for (value,) in struct.iter_unpack(f"<{CODES[kind]}", b64decode(text))]


def read_page(path: Path) -> StudyPage:
    with open_store(path, create=False) as store:
        page = StudyPage(store, store.study())
        page.refresh()
        return page


@pytest.mark.parametrize("values", [[], [0, 1, 2], [0], [5, 255], [5, 256], [70_000], [-1, 2], [2**40]])
def test_whole_numbers_come_back(values: list[int]) -> None:
    assert unpack(pack_whole(values)) == values


def test_floats_come_back_exactly_or_to_seven_digits() -> None:
    values = [0.1, -1e300, math.inf, -math.inf, 1e-9]
    assert unpack(pack_floats(values, exact=True)) == values
    short = unpack(pack_floats([0.1, math.inf, math.nan], exact=False))
    assert short[0] == pytest.approx(0.1, rel=1e-7)
    assert short[1] == math.inf
    assert math.isnan(short[2])


def test_statuses_are_a_letter_each() -> None:
    assert len(set(pack_statuses(list(Status)))) == len(Status)


def test_values_of_one_kind_are_numbers_and_others_words() -> None:
    assert pack_values([1, 2])["whole"] is True
    assert unpack(pack_values([0.5, 2])["numbers"]) == [0.5, 2.0]
    assert pack_values([0.5, LACKING])["lacking"] == [1]
    words = pack_values([True, None, "a", "a", LACKING])
    assert words["words"] == [True, None, "a"]
    assert unpack(words["index"]) == [0, 1, 2, 2, 1]
    assert words["lacking"] == [4]
    assert pack_values([2**60])["words"] == [2**60]
    assert len(pack_values(["x" * 100_000])["words"][0]) <= 400


def test_a_study_is_small(tmp_path: Path) -> None:
    write_plain(tmp_path / "record.db", num_trials=300, num_epochs=20)
    whole = json.dumps(read_page(tmp_path / "record.db").whole(), separators=(",", ":"))
    assert len(whole) < 500 * 300
    report = make_report(str(tmp_path / "record.db"), None)
    assert len(report) < 250_000 + 750 * 300


def test_the_page_is_small() -> None:
    parts = [dashboard_html(), *(part.read() for part in PARTS.values())]
    assert sum(len(part.encode()) for part in parts) <= 250_000


def test_modules_become_one_script_without_imports() -> None:
    script = PARTS["page.js"].read()
    assert not any(line.startswith(("import ", "export ")) for line in script.splitlines())
    assert "</script" not in script + PARTS["uplot.js"].read()
    assert len(MODULES) == len(set(MODULES))
    names = [line.split("(")[0].split(" ")[-1] for line in script.splitlines() if line.startswith("function ")]
    assert len(names) == len(set(names))


def test_json_in_a_page_cannot_end_its_element() -> None:
    text = embed_json({"a": f"{HOSTILE}<!--&"})
    assert not set("<>&") & set(text)
    assert json.loads(text) == {"a": f"{HOSTILE}<!--&"}


def test_a_hostile_study_is_strict_json(tmp_path: Path) -> None:
    write_hostile(tmp_path / "record.db")
    report = make_report(str(tmp_path / "record.db"), None)
    data = report.partition('id="data">')[2].partition("</script>")[0]

    def refuse(name: str) -> Any:  # Any: it never returns
        raise AssertionError(name)

    assert json.loads(data, parse_constant=refuse)["head"]["num_trials"] == 3
    assert report.count("<script") == 3
    assert len(report) < 600_000


def test_a_patch_holds_what_is_new_alone(tmp_path: Path) -> None:
    path = tmp_path / "record.db"
    write_plain(path, num_trials=6)
    with open_store(path) as store:
        page = StudyPage(store, store.study())
        assert page.refresh() is None
        assert page.refresh() is None
        report = Report(number=4, epoch=3, metrics={"accuracy": 0.99, "loss": 0.5})
        store.write(page.followed.info.id, Batch(reports=(report,)))
        patch = page.refresh()
        assert patch is not None
        assert unpack(patch["trials"]["number"]) == [4]
        assert unpack(patch["trials"]["start"]) == [2]
        assert unpack(patch["trials"]["curves"]["accuracy"]) == pytest.approx([0.99], rel=1e-6)
        assert patch["head"]["best"] == {"number": 4, "value": 0.99}
        assert "timeline" not in patch
        assert patch["version"] == page.version == 2


def test_a_report_that_cannot_be_written_says_so(tmp_path: Path) -> None:
    write_plain(tmp_path / "record.db", num_trials=6)
    with pytest.raises(StudyError, match="cannot be written"):
        write_report(str(tmp_path / "record.db"), None, tmp_path / "missing" / "x.html")


def test_errors_that_differ_in_numbers_alone_are_one(tmp_path: Path) -> None:
    write_plain(tmp_path / "record.db")
    with open_store(tmp_path / "record.db") as store:
        texts = {1: "rate 0.049 is too large", 2: "rate 1e-05 is too large", 3: "no data"}
        moves = [
            Transition(number=number, status=Status.FAILED, epoch=2, error=f"ValueError: {text}", seconds=0.0)
            for number, text in texts.items()
        ]
        store.write(store.study().id, Batch(transitions=tuple(moves)))
        page = StudyPage(store, store.study())
        page.refresh()
        errors = page.whole()["errors"]
    lines = [(one["line"], one["trials"]) for one in errors]
    assert lines[0] == ("ValueError: rate 0.049 is too large", pack_whole([1, 2]))
    assert {line for line, _ in lines[1:]} == {"ValueError: no data", "ValueError: five is not allowed"}
