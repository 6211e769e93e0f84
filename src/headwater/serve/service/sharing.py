"""Studies of several users that train as lanes of common groups, in one process: who does, and what each of them pays.

They have asked for it, and were submitted with the very same files; nothing else can be told of code that the service
never loads. Whether their functions and spaces are the same is found by the process that trains them.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256

from headwater.serve.service.values import Submission, Wish

JOIN_S = 30.0
"""So long does a process that trains several studies go on before it is begun anew with one more of them."""


@dataclass(frozen=True, slots=True)
class Party:
    """Studies that have a process of their own, or are to have one."""

    members: tuple[str, ...]
    num_devices: int


def hash_files(file: str, files: Mapping[str, bytes]) -> str:
    """Return what is the same for submissions of the very same files."""
    parts = [file.encode(), *(part for path in sorted(files) for part in (path.encode(), files[path]))]
    return sha256(b"".join(len(part).to_bytes(8, "big") + part for part in parts)).hexdigest()


def form_parties(
    studies: Sequence[Submission],
    crews: Mapping[str, Hashable],
    shares: Mapping[str, int],
    may_join: Callable[[str], bool],
) -> list[Party]:
    """Return who has a process with how many devices: those that train together have all that each of them would have.

    Whoever is to train with studies that run already waits until these have come to a report: they have 0 devices then,
    and begin anew together.

    Args:
        studies: Those that run or wait, and are not to end but for the sake of others.
        crews: By study that runs, which process it is in.
        shares: How many devices each study is to have.
        may_join: Whether the process that has this study may be begun anew with more.
    """
    groups: dict[Hashable, list[Submission]] = defaultdict(list)
    for one in studies:
        groups[_find_kind(one)].append(one)
    parties: list[Party] = []
    for group in groups.values():
        staying = [one for one in group if one.wish is Wish.NONE]
        by_crew: dict[Hashable, list[Submission]] = defaultdict(list)
        for one in staying:
            by_crew[crews.get(one.id)].append(one)
        waiting, running = by_crew.pop(None, []), list(by_crew.values())
        is_leaving = len(staying) < len(group)
        if not waiting:
            parties += [_form_party(crew, crew, shares) for crew in running]
        elif not running:
            parties += [] if is_leaving else [_form_party(waiting, waiting, shares)]
        elif is_leaving or all(may_join(crew[0].id) for crew in running):
            parties += [Party(tuple(one.id for one in crew), 0) for crew in running]
        else:
            parties += [_form_party(running[0], [*running[0], *waiting], shares)]
            parties += [_form_party(crew, crew, shares) for crew in running[1:]]
    return parties


def _form_party(crew: Sequence[Submission], paying: Sequence[Submission], shares: Mapping[str, int]) -> Party:
    """Return a party with the devices of all studies that pay for it, at most as many as any of them may have."""
    share = sum(shares.get(one.id, 0) for one in paying)
    limits = [one.max_devices for one in paying if one.max_devices is not None]
    return Party(tuple(one.id for one in crew), min([share, *limits]))


def split_devices(lanes: Sequence[Mapping[str, int]], num_held: float) -> list[float]:
    """Return what each of several studies has of the devices of their process.

    Each device is divided by the lanes on it, and what is idle by heads.

    Args:
        lanes: Of each study, how many lanes it trains on which device.
        num_held: How many devices the process has.
    """
    on_device = Counter[str]()
    for own in lanes:
        on_device.update(own)
    busy = [device for device, count in on_device.items() if count > 0]
    shares = [sum(own.get(device, 0) / on_device[device] for device in busy) for own in lanes]
    scale = min(1.0, num_held / len(busy)) if busy else 0.0  # what is said of devices may be older than their number
    idle = max(num_held - len(busy), 0.0) / len(lanes)
    return [share * scale + idle for share in shares]


def _find_kind(one: Submission) -> Hashable:
    """Return what is the same for studies that train together; of all others, their own."""
    is_alone = not one.share or one.num_deaths > 0 or "surrogate" in one.options
    return one.id if is_alone else (one.share, *(one.options.get(name) for name in ("study", "seed", "max_epochs")))
