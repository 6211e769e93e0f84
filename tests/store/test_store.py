"""Conformance: every store keeps these promises, whatever the database."""

from __future__ import annotations

import math
import struct
import threading
from dataclasses import replace
from typing import Any

import pytest

from headwater.errors import StoreError
from headwater.space import Config
from headwater.store import Batch, Note, Runner, Store, StudyInfo, Transition, open_store
from headwater.trials import Arrival, Lane, Report, Status, TrialRecord

CLOCK_S = 1_700_000_000.5


def add_trials(store: Store, study_id: int, count: int = 1) -> None:
    store.add_trials(study_id, [Lane(number=n, config={"lr": n / 10}, seed=n) for n in range(count)])


def report(number: int = 0, epoch: int = 1, **metrics: float) -> Report:
    return Report(number=number, epoch=epoch, metrics=metrics)


def test_a_study_comes_back_as_it_was_given(store: Store) -> None:
    info = StudyInfo(
        name="späte Flüsse 河",
        metric="acc/top-1",
        mode="min",
        seed=-(2**63),
        space={"lr": [1e-4, math.inf]},
        settings={"lanes": "auto", "note": "\ud800\0"},
    )
    study_id = store.create_study(info)
    found = store.study(info.name)
    assert found == replace(info, id=study_id, created=CLOCK_S, uuid=found.uuid)


def test_studies_are_listed_oldest_first_and_the_newest_is_the_default(store: Store, study_id: int) -> None:
    store.create_study(StudyInfo(name="second", metric="loss", mode="min", seed=0))
    assert [info.name for info in store.studies()] == ["first", "second"]
    assert store.study().name == "second"
    assert store.study("first").id == study_id


def test_an_empty_store_has_no_studies(store: Store) -> None:
    assert store.studies() == []
    with pytest.raises(StoreError, match="holds no study yet; start one first"):
        store.study()


def test_an_unknown_study_is_answered_with_those_there_are(store: Store, study_id: int) -> None:
    with pytest.raises(StoreError, match="holds no study named 'frist'; there are 'first'"):
        store.study("frist")


def test_a_name_is_taken_once(store: Store, study_id: int) -> None:
    with pytest.raises(StoreError, match=r"named 'first' already; .*resume='auto'.*another name"):
        store.create_study(StudyInfo(name="first", metric="loss", mode="min", seed=0))
    assert len(store.studies()) == 1


def test_a_seed_beyond_64_bits_is_refused() -> None:
    with pytest.raises(StoreError, match=r"seed 9223372036854775808 .* below 2\*\*63"):
        StudyInfo(name="first", metric="loss", mode="min", seed=2**63)


def test_a_new_trial_is_about_to_run(store: Store, study_id: int) -> None:
    add_trials(store, study_id)
    assert store.trials(study_id) == [TrialRecord(number=0, config={"lr": 0.0}, status=Status.RUNNING)]


def test_a_trial_is_put_together_from_all_that_was_written_of_it(store: Store, study_id: int) -> None:
    add_trials(store, study_id, 2)
    store.write(study_id, Batch(reports=(report(0, 2, a=0.5), report(0, 1, a=0.25), report(1, 1, a=0.1))))
    store.write(
        study_id,
        Batch(
            transitions=(
                Transition(number=0, status=Status.PAUSED, epoch=1, seconds=1.5),
                Transition(number=0, status=Status.RUNNING, epoch=1),
                Transition(number=0, status=Status.FAILED, epoch=2, error="Traceback: ü", seconds=0.25),
                Transition(number=1, status=Status.COMPLETED, epoch=1, seconds=4.0),
            ),
            notes=(Note(number=0, kind="fuse", text="ran apart"), Note(number=0, kind="fuse", text="LSTM")),
        ),
    )
    assert store.trials(study_id) == [
        TrialRecord(
            number=0,
            config={"lr": 0.0},
            status=Status.FAILED,
            history=(report(0, 1, a=0.25), report(0, 2, a=0.5)),
            error="Traceback: ü",
            notes=("ran apart", "LSTM"),
            seconds=1.75,
        ),
        TrialRecord(number=1, config={"lr": 0.1}, status=Status.COMPLETED, history=(report(1, 1, a=0.1),), seconds=4.0),
    ]


def test_an_error_is_forgotten_when_a_later_attempt_succeeds(store: Store, study_id: int) -> None:
    add_trials(store, study_id)
    failed = Transition(number=0, status=Status.FAILED, epoch=0, error="out of memory")
    store.write(study_id, Batch(transitions=(failed, Transition(number=0, status=Status.COMPLETED, epoch=1))))
    record = store.trials(study_id)[0]
    assert (record.status, record.error) == (Status.COMPLETED, None)


def test_studies_do_not_mix(store: Store, study_id: int) -> None:
    other = store.create_study(StudyInfo(name="other", metric="loss", mode="min", seed=0))
    for number_of, value in ((study_id, 1.0), (other, 2.0)):
        add_trials(store, number_of)
        store.write(number_of, Batch(reports=(report(a=value),), notes=(Note(kind="k", text=str(value)),)))
        store.add_fact(number_of, "lanes", value)
    assert store.trials(other)[0].metrics == {"a": 2.0}
    assert [note.text for note in store.notes(other)] == ["2.0"]
    assert store.facts(study_id) == {"lanes": 1.0}


def test_of_two_reports_on_one_epoch_the_first_stays(store: Store, study_id: int) -> None:
    add_trials(store, study_id)
    store.write(study_id, Batch(reports=(report(a=1.0),)))
    store.write(study_id, Batch(reports=(report(a=2.0), report(epoch=2, a=3.0), report(epoch=2, a=4.0))))
    assert [entry.metrics["a"] for entry in store.trials(study_id)[0].history] == [1.0, 3.0]


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, -0.0, 0.1, 5e-324, 1.7976931348623157e308, 1 / 3])
def test_floats_come_back_to_the_bit(store: Store, study_id: int, value: float) -> None:
    add_trials(store, study_id)
    store.write(study_id, Batch(reports=(report(a=value),), transitions=()))
    assert struct.pack("d", store.trials(study_id)[0].metrics["a"]) == struct.pack("d", value)


def test_whole_numbers_in_metrics_become_floats(store: Store, study_id: int) -> None:
    add_trials(store, study_id)
    store.write(study_id, Batch(reports=(report(a=3),)))
    assert isinstance(store.trials(study_id)[0].metrics["a"], float)


def test_odd_floats_survive_inside_configurations_and_facts(store: Store, study_id: int) -> None:
    config = {"clip": [1, math.inf, {"x": -math.inf}], "name": "né\0\ud800"}
    store.add_trials(study_id, [Lane(number=0, config=config, seed=0)])
    store.add_fact(study_id, "speed", config)
    assert store.trials(study_id)[0].config == config
    assert store.facts(study_id) == {"speed": config}


@pytest.mark.parametrize("text", ["日本語 🌊", "x" * 5_000_000, "quote ' \" ; DROP TABLE trials; --\n\t"])
def test_any_traceback_is_kept_whole(store: Store, study_id: int, text: str) -> None:
    add_trials(store, study_id)
    failed = Transition(number=0, status=Status.FAILED, epoch=0, error=text)
    store.write(study_id, Batch(transitions=(failed,), notes=(Note(number=0, kind="k", text=text),)))
    record = store.trials(study_id)[0]
    assert record.error == text
    assert record.notes == (text,)


def test_text_that_no_database_takes_is_escaped(store: Store, study_id: int) -> None:
    add_trials(store, study_id)
    failed = Transition(number=0, status=Status.FAILED, epoch=0, error="file \udcff and \0")
    store.write(study_id, Batch(transitions=(failed,)))
    assert store.trials(study_id)[0].error == "file \\udcff and \\x00"


def test_configurations_are_decoded_on_request(store: Store, study_id: int) -> None:
    def decode(raw: Any) -> Config:  # Any: the stored JSON value
        return {"learning_rate": raw["lr"]}

    add_trials(store, study_id)
    assert store.trials(study_id, decode)[0].config == {"learning_rate": 0.0}


def test_a_trial_is_added_once(store: Store, study_id: int) -> None:
    add_trials(store, study_id, 2)
    with pytest.raises(StoreError, match=r"cannot add trials 2, 1: study \d+ has one of them already"):
        store.add_trials(study_id, [Lane(number=n, config={}, seed=0) for n in (2, 1)])
    assert [record.number for record in store.trials(study_id)] == [0, 1]


def test_a_batch_about_an_unknown_trial_leaves_nothing_behind(store: Store, study_id: int) -> None:
    add_trials(store, study_id)
    stray = Transition(number=9, status=Status.STOPPED, epoch=1)
    with pytest.raises(StoreError, match="lacks a trial that this batch is about; add_trials comes first"):
        store.write(study_id, Batch(reports=(report(a=1.0),), transitions=(stray,)))
    assert store.trials(study_id)[0].history == ()


def test_facts_of_an_unknown_study_are_refused(store: Store) -> None:
    with pytest.raises(StoreError, match="cannot add the fact 'lanes': study 5 is not in the store"):
        store.add_fact(5, "lanes", 8)


def test_empty_batches_write_nothing(store: Store, study_id: int) -> None:
    store.add_trials(study_id, [])
    store.write(study_id, Batch())
    assert (store.trials(study_id), store.notes(study_id)) == ([], [])


def test_notes_on_the_study_are_not_notes_on_a_trial(store: Store, study_id: int) -> None:
    add_trials(store, study_id)
    notes = (Note(kind="plan", text="8 lanes"), Note(kind="fuse", text="ran apart", number=0))
    store.write(study_id, Batch(notes=notes))
    assert store.notes(study_id) == list(notes)
    assert store.trials(study_id)[0].notes == ("ran apart",)


def test_the_latest_fact_counts(store: Store, study_id: int) -> None:
    store.add_fact(study_id, "lanes", 8)
    store.add_fact(study_id, "lanes", {"cpu": 16})
    assert store.facts(study_id) == {"lanes": {"cpu": 16}}


def test_the_ends_of_segments_are_told_in_the_order_of_writing(store: Store, study_id: int) -> None:
    add_trials(store, study_id, 3)
    steps = [(2, Status.PAUSED, 1), (0, Status.RUNNING, 0), (0, Status.FAILED, 0), (2, Status.RUNNING, 1)]
    moves = [Transition(number=number, status=status, epoch=epoch) for number, status, epoch in steps]
    store.write(study_id, Batch(transitions=tuple(moves[:3])))
    store.write(study_id, Batch(transitions=(moves[3], Transition(number=2, status=Status.COMPLETED, epoch=3))))
    assert store.arrivals(study_id) == [
        Arrival(number=2, epoch=1, status=Status.PAUSED),
        Arrival(number=0, epoch=0, status=Status.FAILED),
        Arrival(number=2, epoch=3, status=Status.COMPLETED),
    ]
    other = store.create_study(StudyInfo(name="second", metric="loss", mode="min", seed=0))
    assert store.arrivals(other) == []


def test_studies_are_found_by_what_a_fact_says_of_them(store: Store, study_id: int) -> None:
    second, third = (
        store.create_study(StudyInfo(name=name, metric="loss", mode="min", seed=0)) for name in ("second", "third")
    )
    for study, value in ((study_id, "x"), (second, "y"), (third, "x"), (third, "x")):
        store.add_fact(study, "made of", value)
    assert [info.name for info in store.find_studies("made of", "x")] == ["third", "first"]
    assert store.find_studies("made of", "z") == []
    assert store.find_studies("made", "x") == []


def test_threads_share_a_store(store: Store, study_id: int) -> None:
    add_trials(store, study_id, 4)

    def write(number: int) -> None:
        for epoch in range(1, 21):
            store.write(study_id, Batch(reports=(report(number, epoch, a=epoch),)))

    threads = [threading.Thread(target=write, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [record.epochs for record in store.trials(study_id)] == [20] * 4


def test_stores_in_memory_are_separate() -> None:
    with open_store() as first, open_store("memory:") as second:
        first.create_study(StudyInfo(name="only here", metric="loss", mode="min", seed=0))
        assert second.studies() == []


def test_what_is_written_late_is_there_for_whoever_reads_in_the_order_of_writing() -> None:
    with open_store(clock=lambda: CLOCK_S) as store:
        study_id = store.create_study(StudyInfo(name="first", metric="a", mode="max", seed=0))
        add_trials(store, study_id, 2)
        for number, epoch in [(0, 1), (1, 1), (0, 2)]:
            store.write_late(study_id, Batch(reports=(report(number, epoch, a=epoch),)))
        store.write_late(study_id, Batch(notes=(Note(kind="k", text="late"),)))
        assert [note.text for note in store.notes(study_id)] == ["late"]
        assert [record.epochs for record in store.trials(study_id)] == [2, 1]
        assert [record.epochs for record in store.trials(study_id)] == [2, 1], "it is written once"


def test_a_study_of_which_something_was_reported_late_is_not_discarded() -> None:
    with open_store() as store:
        study_id = store.create_study(StudyInfo(name="first", metric="a", mode="max", seed=0))
        add_trials(store, study_id, 1)
        fence = store.take_lease(study_id, Runner.here(), instead_of=None)
        assert fence is not None
        store.write_late(study_id, Batch(reports=(report(0, 1, a=1.0),)))
        store.discard_unreported(study_id, fence=fence)
        assert [info.name for info in store.studies()] == ["first"]
