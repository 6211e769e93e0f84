"""Following a study: what is new is told once it is there, and nothing is missed."""

from __future__ import annotations

from headwater.store import Batch, Note, Store, StudyInfo, Transition
from headwater.store.following import Mark, News, read_news
from headwater.trials import Lane, Report, Span, SpanPurpose, Status


def add(store: Store, study_id: int, number: int) -> None:
    store.add_trials(study_id, [Lane(number=number, config={"shown": {}}, seed=0)])


def report(store: Store, study_id: int, number: int, epoch: int) -> None:
    store.write(study_id, Batch(reports=(Report(number=number, epoch=epoch, metrics={"loss": 1.0}),)))


def epochs(news: News) -> set[tuple[int, int]]:
    return {(row[0], row[1]) for row in news.reports}


def test_at_first_everything_is_new(store: Store, study_id: int) -> None:
    add(store, study_id, 0)
    report(store, study_id, 0, 1)
    move = Transition(number=0, status=Status.COMPLETED, epoch=1, seconds=2.0)
    span = Span(study="first", device="cpu:0", purpose=SpanPurpose.LANES, trials=(0,), begin_s=0.0, end_s=1.0)
    store.write(study_id, Batch(transitions=(move,), notes=(Note(kind="a", text="b", number=0),), spans=(span,)))
    store.add_fact(study_id, "x", 1)
    news = read_news(store, study_id, [], Mark())
    assert [row[0] for row in news.trials] == [0]
    assert epochs(news) == {(0, 1)}
    assert [tuple(row[:5]) for row in news.transitions] == [(0, "completed", 1, None, 2.0)]
    assert [tuple(row[:3]) for row in news.notes] == [("a", "b", 0)]
    assert news.has_facts
    assert news.has_spans


def test_later_only_what_came_is_new(store: Store, study_id: int) -> None:
    add(store, study_id, 0)
    report(store, study_id, 0, 1)
    mark = read_news(store, study_id, [], Mark()).mark
    quiet = read_news(store, study_id, [], mark)
    assert quiet.mark == mark
    assert not quiet.transitions
    assert not quiet.notes
    assert not quiet.has_facts
    assert not quiet.has_spans
    add(store, study_id, 1)
    report(store, study_id, 1, 1)
    report(store, study_id, 0, 2)
    store.add_fact(study_id, "x", 1)
    news = read_news(store, study_id, [], mark)
    assert {row[0] for row in news.trials} >= {1}
    assert epochs(news) >= {(1, 1), (0, 2)}
    assert news.has_facts


def test_other_studies_are_left_out(store: Store, study_id: int) -> None:
    other = store.create_study(StudyInfo(name="other", metric="loss", mode="min", seed=0))
    add(store, study_id, 0)
    add(store, other, 0)
    mark = read_news(store, study_id, [], Mark()).mark
    report(store, other, 0, 1)
    store.add_fact(other, "x", 1)
    news = read_news(store, study_id, [], mark)
    assert not news.reports
    assert not news.has_facts


def test_spans_of_stages_count(store: Store, study_id: int) -> None:
    stage = store.create_study(StudyInfo(name="stage", metric="loss", mode="min", seed=0))
    mark = read_news(store, study_id, [stage], Mark()).mark
    span = Span(study="stage", device="cpu:0", purpose=SpanPurpose.LANES, trials=(), begin_s=0.0, end_s=1.0)
    store.write(stage, Batch(spans=(span,)))
    assert read_news(store, study_id, [stage], mark).has_spans
    assert not read_news(store, study_id, [], mark).has_spans
