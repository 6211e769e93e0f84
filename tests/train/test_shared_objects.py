"""Objects outside a training function: its changes are found and put back, and what Python adds is no change."""

from __future__ import annotations

import threading
import warnings

from headwater.train.shared_objects import SharedObjects

LEVEL = 1


class Plain:
    """A class without annotations."""


def warn() -> None:
    warnings.warn("mind the step", stacklevel=1)


def set_level() -> None:
    global LEVEL  # noqa: PLW0603 - as a user writes it
    LEVEL = 2


def test_a_warning_and_a_look_at_annotations_change_nothing() -> None:
    globals().pop("__warningregistry__", None)
    objects = SharedObjects(warn)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        warn()
    assert not Plain.__annotations__
    assert "__warningregistry__" in globals()
    assert objects.restore() == ""


def test_a_global_variable_that_was_changed_is_named_and_put_back() -> None:
    objects = SharedObjects(set_level)
    set_level()
    assert objects.restore() == "LEVEL"
    assert LEVEL == 1


PER_THREAD = threading.local()


def read_own() -> object:
    return getattr(PER_THREAD, "value", None)


def test_what_each_thread_has_for_itself_is_not_shared() -> None:
    PER_THREAD.value = 1
    objects, found = SharedObjects(read_own), []
    unit = threading.Thread(target=lambda: found.append(objects.restore()))
    unit.start()
    unit.join()
    assert found == [""]
