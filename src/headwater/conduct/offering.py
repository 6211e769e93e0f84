"""What an earlier study of the same function, space and kind of device has learnt, offered to a new one."""

from __future__ import annotations

from dataclasses import asdict
from functools import cache
from importlib.metadata import PackageNotFoundError, version

from headwater.conduct.identity import describe_surrogate
from headwater.conduct.setup import name_learnt
from headwater.store import Recorder
from headwater.trials import Brief, Learnt
from headwater.trials.fingerprint import fingerprint

MADE_OF = "made of"
"""The key of the fact that tells studies whose groups behave alike from all others."""


def identify(brief: Brief, kind: str) -> str | None:
    """Return what is the same for studies whose groups behave alike; None where that cannot be told.

    That is the function with all of the user's own that it reaches, the space, the width, whether loading is shared,
    the kind of device with its threads, how torch is set up, and the versions of torch and Headwater.
    """
    space = brief.space
    return fingerprint(
        brief.function,
        [asdict(row) for row in space.describe()],
        space.options,
        space.conditions,
        describe_surrogate(brief.surrogate),
        (brief.shares_loading, brief.compiles, brief.divides, brief.chooses_threads),
        sorted(brief.process_settings.items()),
        kind,
        [_find_version(name) for name in ("torch", "headwater")],
    )


def take_offer(recorder: Recorder, brief: Brief, made_of: str) -> str | None:
    """Write what the newest study that is made of the same has learnt into the record of this one.

    Return what is to be said of it; None where there is no such study, or none that has learnt anything.
    """
    recorder.add_fact(MADE_OF, made_of)
    store, key = recorder.store, name_learnt(brief.device)
    for other in store.find_studies(MADE_OF, made_of):
        fact = store.fact(other.id, key)
        learnt = Learnt.from_json(fact, brief.space.options) if isinstance(fact, str) else Learnt()
        if learnt != Learnt() and other.id != recorder.info.id:
            recorder.add_fact(key, fact)
            for item in learnt.profiles:
                recorder.add_profile(item.profile)
            return f"{_name_known(learnt)} known from study {other.name}"
    return None


def _name_known(learnt: Learnt) -> str:
    """Say what is known in a few words."""
    has_shares = any(item.shares for item in learnt.times)
    if learnt.profiles:
        return "group sizes and what several devices gain" if has_shares else "group sizes"
    return "what several devices gain" if has_shares else "what parts lanes"


@cache
def _find_version(name: str) -> str | None:
    """Return the version of an installed package; it is read from files, and stays what it is."""
    try:
        return version(name)
    except PackageNotFoundError:
        return None
