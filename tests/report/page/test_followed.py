"""A study that is followed is the study that is in the record, however it was read."""

from __future__ import annotations

import math
import random
import sqlite3
from dataclasses import replace
from pathlib import Path

import pytest
from tests.page_studies import write_hostile, write_plain

from headwater.report.page.best_curve import BestCurve, follow_best
from headwater.report.page.followed import FollowedStudy
from headwater.report.page.study_page import StudyPage
from headwater.report.reading import read_result, read_study
from headwater.store import ATTRIBUTE, Batch, Note, StudyInfo, Transition, open_store, read_shown
from headwater.trials import Lane, Report, Status


def same(one: float, other: float) -> bool:
    return one == other or (math.isnan(one) and math.isnan(other))


def assert_as_recorded(study: FollowedStudy, path: Path) -> None:
    with open_store(path, create=False) as store:
        result = read_result(store, study.info, str(path))
    assert [study.trials[number].as_record().status for number in sorted(study.trials)] == [
        trial.status for trial in result.trials
    ]
    for recorded in result.trials:
        followed = study.trials[recorded.number].as_record()
        assert followed.config == recorded.config or repr(followed.config) == repr(recorded.config)
        assert (followed.seconds, followed.error, followed.epochs) == (
            recorded.seconds,
            recorded.error,
            recorded.epochs,
        )
        assert (followed.notes, followed.attributes) == (recorded.notes, recorded.attributes)
        for report, other in zip(followed.history, recorded.history, strict=True):
            assert all(same(report.metrics[name], value) for name, value in other.metrics.items())
    best = study.best.best
    assert best == ((result.ranked[0].number, result.ranked[0].value(result.metric)) if result.ranked else None)


@pytest.mark.parametrize("write", [write_plain, write_hostile])
def test_a_study_is_read_as_the_record_has_it(tmp_path: Path, write: object) -> None:
    path = tmp_path / "record.db"
    write(path)  # type: ignore[operator]  # one of the two above
    with open_store(path, create=False) as store:
        study = FollowedStudy(store, store.study())
        study.refresh()
        assert_as_recorded(study, path)
        assert study.num_damaged == 0


@pytest.mark.parametrize("num_seeds", [1, 2])
def test_attributes_of_a_trial_are_no_notes(tmp_path: Path, num_seeds: int) -> None:
    path = tmp_path / "record.db"
    with open_store(path) as writer, open_store(path, create=False) as reader:
        info = StudyInfo(name="s", metric="loss", mode="min", seed=0, settings={"num_seeds": num_seeds})
        page = StudyPage(reader, replace(info, id=writer.create_study(info)))
        writer.add_trials(1, [Lane(number=n, config={"codes": {}, "shown": {}}, seed=0) for n in range(num_seeds)])
        for number in range(num_seeds):
            notes = (
                Note(kind=ATTRIBUTE, text='{"parameters": 18, "kind": "small"}', number=number),
                Note(kind="lanes", text="trained apart", number=number),
                Note(kind=ATTRIBUTE, text='{"kind": "large"}', number=number),
            )
            writer.write(1, Batch(reports=(Report(number=number, epoch=1, metrics={"loss": 1.0}),), notes=notes))
        page.refresh()
        assert_as_recorded(page.followed, path)
    trial = page.trial(0)
    assert trial is not None
    assert (trial["attributes"], trial["notes"]) == ({"parameters": 18, "kind": "large"}, ["trained apart"])
    report = page.whole(all_metrics=True)
    assert [note["text"] for note in report["notes"]] == ["trained apart"]
    assert report["attributes"] == [{"number": 0, "values": {"parameters": 18, "kind": "large"}}]


def test_an_attribute_that_cannot_be_read_is_left_out_and_counted(tmp_path: Path) -> None:
    path = tmp_path / "record.db"
    write_plain(path)
    with open_store(path) as store:
        store.write(1, Batch(notes=(Note(kind=ATTRIBUTE, text="no JSON", number=1),)))
        study = FollowedStudy(store, store.study())
        study.refresh()
    assert study.num_damaged == 1
    assert study.trials[1].notes.attributes == {}


@pytest.mark.parametrize(
    "settings", [{"judge": "best"}, {"constraints": ["cost <= 0.5"]}, {"constraints": ["cost <= -1"]}]
)
def test_trials_are_ranked_as_the_command_ranks_them(tmp_path: Path, settings: dict[str, object]) -> None:
    path = tmp_path / "record.db"
    draw = random.Random(5)
    with open_store(path) as writer, open_store(path, create=False) as reader:
        info = StudyInfo(name="s", metric="loss", mode="min", seed=0, settings={"num_seeds": 1, **settings})
        followed = FollowedStudy(reader, replace(info, id=writer.create_study(info)))
        writer.add_trials(1, [Lane(number=n, config={"codes": {}, "shown": {}}, seed=0) for n in range(9)])
        for epoch in range(1, 4):
            reports = (Report(number=n, epoch=epoch, metrics={"loss": draw.random(), "cost": n / 9}) for n in range(9))
            writer.write(1, Batch(reports=tuple(reports)))
            followed.refresh()
        ranked = read_result(reader, followed.info, str(path)).ranked
    value_of = followed.objective.value_of
    assert [trial.number for trial in followed.rank()] == [trial.number for trial in ranked]
    assert [followed.value_of(trial) for trial in followed.rank()] == [value_of(trial) for trial in ranked]
    assert followed.find_best() == (ranked[0].number, value_of(ranked[0]))


@pytest.mark.parametrize("num_seeds", [1, 2])
def test_what_is_read_bit_by_bit_is_what_is_read_at_once(tmp_path: Path, num_seeds: int) -> None:
    path = tmp_path / "record.db"
    draw = random.Random(3)
    with open_store(path) as writer, open_store(path, create=False) as reader:
        info = StudyInfo(name="s", metric="loss", mode="min", seed=0, settings={"num_seeds": num_seeds})
        key = writer.create_study(info)
        study = FollowedStudy(reader, reader.study())
        epochs = [0] * 12
        for turn in range(60):
            if turn % 5 == 0:
                number = turn // 5
                config = {"shown": {"lr": draw.random()}, "codes": {}}
                writer.add_trials(key, [Lane(number=number, config=config, seed=0)])
            number = draw.randrange(turn // 5 + 1)
            epochs[number] += 1
            value = draw.choice([draw.random(), math.nan, math.inf])
            moves: tuple[Transition, ...] = ()
            if draw.random() < 0.3:
                status = draw.choice([Status.FAILED, Status.PAUSED, Status.RUNNING])
                moves = (Transition(number=number, status=status, epoch=epochs[number], seconds=1.0),)
            report = Report(number=number, epoch=epochs[number], metrics={"loss": value})
            writer.write(key, Batch(reports=(report,), transitions=moves))
            if draw.random() < 0.5:
                assert study.refresh()
        study.refresh()
        assert not study.refresh()
        again = FollowedStudy(reader, reader.study())
        again.refresh()
        assert repr([trial for _, trial in sorted(again.trials.items())]) == repr(
            [trial for _, trial in sorted(study.trials.items())]
        )
        assert_ends_alike(study, again)


def assert_ends_alike(one: FollowedStudy, other: FollowedStudy) -> None:
    """A trial that failed and went on later is counted again by who saw that happen; the others agree."""
    failed = {trial.number for trial in one.trials.values() if any(m.status is Status.FAILED for m in trial.moves)}
    if not failed:
        assert one.best.best == other.best.best


def test_the_curve_of_the_best_ends_with_the_best_of_the_ranking(tmp_path: Path) -> None:
    path = tmp_path / "record.db"
    write_plain(path)
    with open_store(path, create=False) as store:
        study = FollowedStudy(store, store.study())
        study.refresh()
        stored = read_study(store, None, str(path))
    last = study.best.steps[-1]
    assert (last.number, last.value) == (stored.result.best.number, stored.result.best.value("accuracy"))
    assert [step.time for step in study.best.steps] == sorted(step.time for step in study.best.steps)


@pytest.mark.parametrize("mode", ["min", "max"])
@pytest.mark.parametrize("seed", range(20))
def test_the_best_is_the_best_last_value_at_every_moment(mode: str, seed: int) -> None:
    draw = random.Random(seed)
    curve, current = BestCurve(mode), dict[int, float]()
    for time in range(200):
        number = draw.randrange(8)
        value = draw.choice([round(draw.random(), 1), math.nan])
        curve.hear(float(time), number, value)
        current.pop(number, None)
        if math.isfinite(value):
            current[number] = value
        sign = -1 if mode == "max" else 1
        wanted = min(((sign * value, number) for number, value in current.items()), default=None)
        assert curve.best == (None if wanted is None else (wanted[1], sign * wanted[0]))


def test_a_trial_that_failed_is_not_the_best() -> None:
    curve = follow_best("max", [(0.0, 0, 0.5), (1.0, 1, 0.9)], failed=[1])
    assert curve.best == (0, 0.5)
    assert [step.number for step in curve.steps] == [0, 1, 0]


def test_damaged_rows_are_counted_and_left_out(tmp_path: Path) -> None:
    path = tmp_path / "record.db"
    write_plain(path, num_trials=6)
    connection = sqlite3.connect(path)
    connection.execute('update reports set metrics = \'{"accuracy": "much"}\' where number = 0 and epoch = 1')
    connection.execute("update reports set metrics = '{' where number = 1 and epoch = 1")
    connection.execute("update trials set config = '[]' where number = 2")
    connection.execute("update transitions set status = 'happy' where number = 3")
    connection.commit()
    connection.close()
    with open_store(path, create=False) as store:
        study = FollowedStudy(store, store.study())
        study.refresh()
    assert sorted(study.trials) == [0, 1, 3, 4, 5]
    assert study.trials[0].epochs[0] == 2
    assert study.trials[3].status is Status.RUNNING
    assert study.num_damaged >= 4


def test_configurations_are_those_that_people_can_read(tmp_path: Path) -> None:
    path = tmp_path / "record.db"
    write_plain(path, num_trials=6)
    with open_store(path, create=False) as store:
        study = FollowedStudy(store, store.study())
        study.refresh()
        assert [study.trials[number].config for number in range(6)] == [
            trial.config for trial in store.trials(study.info.id, read_shown)
        ]
