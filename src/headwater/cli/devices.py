"""The verb `devices`: which devices a running study has, and the wish that it has others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape

from headwater.cli.terminal import (
    JsonOption,
    StorageOption,
    find_running,
    name_asker,
    open_out,
    print_json,
    telling_errors,
)
from headwater.errors import StudyError
from headwater.settings import DEFAULT_STORAGE

if TYPE_CHECKING:
    from headwater.store import Runner, Store, StudyInfo
    from headwater.store.device_wishes import DeviceWork, ShownDevices
    from headwater.trials import DevicePool, DeviceWish

ACTIONS = ("add", "remove")


def devices(
    action: Annotated[
        str | None, typer.Argument(metavar="[add|remove]", help="What is wished; without it, they are listed.")
    ] = None,
    which: Annotated[
        list[str] | None, typer.Argument(metavar="[N|DEVICE...]", help="How many, 1 by default; or which are to go.")
    ] = None,
    study: Annotated[
        str | None, typer.Option(metavar="NAME", help="The name of the study; without it, the newest one.")
    ] = None,
    as_json: JsonOption = False,
    storage: StorageOption = DEFAULT_STORAGE,
) -> None:
    """List the devices of a running study, or ask for more or fewer from its next report on.

    `add 2` asks for two more, `remove` gives up the last one, `remove cpu:1` this one. What trains on a device that is
    to go leaves it at its next report, with its state saved. No result changes.
    """
    with telling_errors():
        wish = None if action is None else _read_wish(action, which or [])
        from headwater.store import find_asker, open_store
        from headwater.store.device_wishes import wish_devices

        with open_store(storage, create=False) as reader:
            run = _read_run(reader, study, storage)
            asker = find_asker(reader, run.info.id, run.runner)
            if wish is None:
                _list_devices(run, _collect_work(reader, run), as_json=as_json)
                return
        if asker is not None:
            raise StudyError(f"study {run.info.name!r} was asked to stop by {asker}, and needs no other devices")
        _check_wish(run, wish)
        with open_store(storage) as writer:
            wish_devices(writer, run.info.id, run.runner, wish)
        open_out().print(escape(_confirm(run, wish)), soft_wrap=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Run:
    """A study that runs, and its devices as they are and as they are wished."""

    info: StudyInfo
    runner: Runner
    shown: ShownDevices
    wished: DevicePool


def _read_wish(action: str, which: Sequence[str]) -> DeviceWish:
    """Return what the words ask for; which devices there are is seen later."""
    from headwater.store.device_wishes import MOST_DEVICES
    from headwater.trials import DeviceWish

    if action not in ACTIONS:
        raise StudyError(f"{action!r} is nothing that devices can do; give add or remove, or neither to list them")
    is_count = len(which) <= 1 and all(_is_number(word) for word in which)
    if not is_count and action == "add":
        raise StudyError(
            f"add got {' '.join(which)!r}; give how many devices are to come, as in headwater devices add 2"
        )
    if not is_count:
        return DeviceWish(gone=tuple(which), asker=name_asker())
    number = int(which[0]) if which else 1
    if not 1 <= number <= MOST_DEVICES:
        raise StudyError(f"{action} got {number}; give a number from 1 to {MOST_DEVICES:,}")
    return DeviceWish(num_more=number if action == "add" else -number, asker=name_asker())


def _is_number(word: str) -> bool:
    return word.removeprefix("-").isdecimal()


def _read_run(store: Store, study: str | None, storage: str) -> _Run:
    from headwater.store.device_wishes import read_devices, read_wishes

    info, runner = find_running(store, study, storage, wish="add devices to or to take them from")
    shown = read_devices(store, info.id, runner)
    if shown is None:
        raise StudyError(
            f"study {info.name!r} has not said which devices it has: it is about to begin, or trains on an executor of "
            "your own or of an older version; look again in a moment"
        )
    wished = shown.pool
    for wish in read_wishes(store, info.id, runner, shown.num_heard)[0]:
        wished = wished.change(wish)
    return _Run(info=info, runner=runner, shown=shown, wished=wished)


def _check_wish(run: _Run, wish: DeviceWish) -> None:
    """Refuse what cannot be."""
    pool, name = run.wished, run.info.name
    if pool.fixed:
        raise StudyError(f"the devices of study {name!r} stay as they are: {pool.fixed}")
    if pool.limit and wish.num_more > pool.num_away:
        raise StudyError(f"{_count_more(wish.num_more, pool.num_away)} to study {name!r}: {pool.limit}")
    there = ", ".join(pool.names)
    for device in wish.gone:
        if device in pool.names:
            continue
        is_leaving = device in pool.leaving
        reason = f"device {device} is leaving already" if is_leaving else f"study {name!r} has no device {device!r}"
        raise StudyError(f"{reason}; there are {there}")
    num_gone = max(len(set(wish.gone)), -wish.num_more)
    if num_gone >= len(pool.names):
        asked = f"{num_gone} of the {len(pool.names)} devices" if len(pool.names) > 1 else f"{there}, its last device,"
        end = "end it with headwater stop, or leave one"
        raise StudyError(f"{asked} of study {name!r} cannot go, for it needs one to train on; {end}")
    num_wished = len(pool.names) + wish.num_more
    if pool.num_there is not None and pool.kind != "cpu" and num_wished > pool.num_there:
        raise StudyError(
            f"study {name!r} has {len(pool.names)} devices, and its machine {pool.num_there} of kind {pool.kind}; "
            f"{wish.num_more} more cannot come"
        )


def _count_more(num_asked: int, num_away: int) -> str:
    asked = "1 more device" if num_asked == 1 else f"{num_asked} more devices"
    return f"{asked} cannot come, but for {num_away} that had to go," if num_away else f"{asked} cannot come"


def _confirm(run: _Run, wish: DeviceWish) -> str:
    """Say what was asked for."""
    before, after = run.wished, run.wished.change(wish)
    come = [name for name in after.names if name not in before.names]
    gone = [name for name in before.names if name not in after.names]
    asked = (
        f"to train on {', '.join(come)} too" if come else f"to give up {', '.join(gone)} after what reports next there"
    )
    who = f"process {run.runner.pid} on {run.runner.host}"
    told = f"asked study {run.info.name} {asked}; {who} then has {len(after.names)}: {', '.join(after.names)}"
    if come and after.num_there is not None and len(after.names) > after.num_there:
        told += f"; its machine has {after.num_there} cores, which they share"
    return told


def _collect_work(store: Store, run: _Run) -> dict[str, tuple[str, DeviceWork]]:
    """Return what each device does, and for which study: of one with surrogates, the target may train beside others."""
    from headwater.store import find_runner, list_stages
    from headwater.store.device_wishes import read_devices

    whole = run.info.settings.get("part_of") or run.info.name
    work: dict[str, tuple[str, DeviceWork]] = {}
    for info in [store.study(whole), *list_stages(store, whole)]:
        runner = find_runner(store, info.id)
        shown = read_devices(store, info.id, runner) if runner is not None and runner.may_live() else None
        work |= {name: (info.name, one) for name, one in (shown.work if shown is not None else {}).items()}
    return work


def _list_devices(run: _Run, work: Mapping[str, tuple[str, DeviceWork]], *, as_json: bool) -> None:
    rows = [_describe(name, run, work.get(name)) for name in (*run.wished.names, *run.wished.leaving)]
    rows = [row for row in rows if row["is_there"] or row["is_wanted"]]  # some came and went before that was heard
    if as_json:
        process = {"pid": run.runner.pid, "host": run.runner.host}
        print_json({"study": run.info.name, "process": process, "devices": rows})
        return
    from headwater.report.tables import devices_table

    open_out().print(devices_table(rows))


def _describe(name: str, run: _Run, work: tuple[str, DeviceWork] | None) -> dict[str, Any]:  # Any: JSON values
    """Return a device as JSON has it: whether it is there and wanted, and what it does."""
    from headwater.trials import Purpose

    does = "idle" if work is None else "trains" if work[1].purpose is Purpose.TRAIN else "measures"
    return {
        "device": name,
        "is_there": name in (*run.shown.pool.names, *run.shown.pool.leaving),
        "is_wanted": name in run.wished.names,
        "does": does,
        "study": None if work is None else work[0],
        "trials": [] if work is None else list(work[1].trials),
    }
