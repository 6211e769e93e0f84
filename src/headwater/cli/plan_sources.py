"""What a plan is made of: the stages of a search, how long epochs take, and which instances can be had."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from headwater.cli.study_stages import find_scale, list_job_stages, list_scales
from headwater.cli.terminal import open_err
from headwater.errors import PlanError, StoreError
from headwater.plan.catalogue import Offer, extend_catalogue, find_offer, load_catalogue
from headwater.plan.jobs import Job, JobStage
from headwater.plan.profiles import Basis, TimeProfile, read_profile, write_profile
from headwater.plan.spot_history import read_history

if TYPE_CHECKING:
    from headwater.study import Study

T = TypeVar("T")
MOST_STAGES = 100
"""Planning takes time that grows with the square of their number."""
_DURATION = re.compile(r"(?:(\d+(?:\.\d+)?)h)?(?:(\d+(?:\.\d+)?)m)?(?:(\d+(?:\.\d+)?)s?)?")

_AMOUNT = re.compile(r"\$?(\d+(?:\.\d+)?)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What a user wants planned."""

    file: Path | None
    stages: str | None
    trials: int | None
    max_epochs: int | None
    search: str | None
    storage: str | None
    study: str | None
    profile: Path | None
    is_measured: bool
    instances: Sequence[str]
    catalogue: Path | None
    is_spot: bool
    relative_speed: float | None
    spot_history: Path | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Sources:
    """What all plans have in common."""

    stages: Sequence[JobStage]
    profile: TimeProfile
    jobs: Sequence[Job]
    """One for each type of instance, on demand and at the spot price."""
    bases: Mapping[str, Basis]
    """What the times are based on, by the name of the instance."""
    offers: Mapping[str, Offer]


def collect_sources(asked: Asked) -> Sources:
    """Find out what to plan.

    Raises:
        PlanError: Something is missing or makes no sense.
    """
    if (asked.file is None) == (asked.stages is None):
        raise PlanError("give the file of a study, or --stages such as 32x1,10x3,3x9,1x37 and a --profile")
    if asked.file is None and (asked.profile is None or asked.is_measured):
        raise PlanError("--stages needs a --profile; only the function of a study can be measured or found in a record")
    study = None if asked.file is None else _load(asked, asked.file)
    stages = parse_stages(asked.stages or "") if study is None else _list_stages(study)
    profile = _find_profile(study, asked, max(stage.num_trials for stage in stages))
    known = load_catalogue()
    if profile.offer is not None and profile.offer.kind is None and profile.offer.name in known:
        profile = replace(profile, offer=replace(profile.offer, kind=known[profile.offer.name].kind))
    offers = _name_history(_find_offers(profile, known, asked), asked)
    jobs, bases = [], {}
    for offer in offers.values():
        markets = [False, True] if asked.is_spot and offer.spot_dollars_per_hour is not None else [False]
        for is_spot in markets:
            job, bases[offer.name] = _build_job(stages, profile, offer, asked, is_spot=is_spot)
            jobs.append(job)
    if asked.is_spot and not any(job.instance.is_spot for job in jobs):
        next(iter(offers.values())).rent(is_spot=True)  # which says that there is no spot price
    return Sources(stages=stages, profile=profile, jobs=jobs, bases=bases, offers=offers)


def parse_stages(text: str) -> list[JobStage]:
    """Read stages such as `32x1,10x3`.

    Raises:
        PlanError: That is no list of stages.
    """
    parts = [part.strip() for part in text.split(",")]
    if len(parts) > MOST_STAGES or not all(re.fullmatch(r"\d{1,500}x\d{1,500}", part) for part in parts):
        raise PlanError(
            f"--stages is {text!r:.60}; give trials x epochs of at most {MOST_STAGES} stages, for instance "
            "32x1,10x3,3x9,1x37"
        )
    pairs = [part.split("x") for part in parts]
    return [JobStage(num_trials=int(trials), num_epochs=int(epochs)) for trials, epochs in pairs]


def parse_seconds(text: str) -> float:
    """Read a time such as `30m`, `1h30m`, `90s` or `90`.

    Raises:
        PlanError: That is no time, or none at all.
    """
    found = _DURATION.fullmatch(text.strip())
    hours, minutes, seconds = ((float(part) if part else 0.0) for part in found.groups()) if found else (0.0,) * 3
    total = 3600 * hours + 60 * minutes + seconds
    if total <= 0:
        raise PlanError(f"{text!r} is no time to plan for; write it as 90s, 30m or 1h30m")
    return total


def parse_dollars(text: str) -> float:
    """Read an amount such as `15`, `14.50` or `$15`.

    Raises:
        PlanError: That is no amount, or none at all.
    """
    found = _AMOUNT.fullmatch(text.strip())
    if found is None or not float(found[1]):
        raise PlanError(f"{text!r} is no amount to spend; write it as 15 or 14.50")
    return float(found[1])


def save_profile(profile: TimeProfile, path: Path) -> None:
    """Write a profile into a file that --profile reads.

    Raises:
        PlanError: It cannot be written.
    """
    import yaml

    text = "".join(f"# {note}\n" for note in profile.notes) + yaml.safe_dump(write_profile(profile), sort_keys=False)
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise PlanError(f"the profile cannot be written to {str(path)!r}: {error.strerror}") from error


def _load(asked: Asked, file: Path) -> tuple[Study, int]:
    """Return the study as the options change it, and its number of trials."""
    from headwater.loading import load_study_file

    loaded = load_study_file(file, asked.study)
    options = {"search": asked.search, "max_epochs": asked.max_epochs, "storage": asked.storage}
    study = replace(loaded.study, **{key: value for key, value in options.items() if value is not None})  # type: ignore[arg-type] # settings of a study
    return study, study.count_trials(asked.trials or loaded.num_trials)


def _list_stages(loaded: tuple[Study, int]) -> list[JobStage]:
    study, num_trials = loaded
    stages = list_job_stages(study, num_trials)
    if find_scale(study) is None:
        raise PlanError("surrogate 'auto' chooses its width on the way, so it has no plan; give a number, such as 8")
    if stages is None:
        name = study.search if isinstance(study.search, str) else type(study.search).__name__
        raise PlanError(
            f"search {name!r} decides on the way which trials go on, so its stages cannot be planned; those of random, "
            "grid, halving, hyperband and sync-bohb can: choose one with --search, or give --stages"
        )
    return stages


def _find_profile(study: tuple[Study, int] | None, asked: Asked, num_trials: int) -> TimeProfile:
    if asked.profile is not None:
        return _read_file(asked.profile, "profile", read_profile)
    assert study is not None
    from headwater.measuring import measure_times, recall_times

    scales = list_scales(study[0])
    if asked.is_measured:
        with open_err().status("training a few epochs to see how long they take"):
            return measure_times(study[0], num_trials, scales)
    try:
        return recall_times(study[0], scales)
    except StoreError as error:
        raise PlanError(
            f"there is no record of an earlier study ({error}); measure its function with --measure, or give --profile"
        ) from error


def _find_offers(profile: TimeProfile, known: Mapping[str, Offer], asked: Asked) -> dict[str, Offer]:
    own = {} if profile.offer is None else {profile.offer.name: profile.offer}
    catalogue = {**known, **own}
    if asked.catalogue is not None:
        packaged = catalogue
        catalogue = _read_file(asked.catalogue, "catalogue", lambda content: extend_catalogue(packaged, content))
    if asked.instances:
        return {name: find_offer(catalogue, name) for name in asked.instances}
    if profile.offer is None:
        raise PlanError(
            "nothing says what to rent; give --instance, such as --instance p3.8xlarge, or a profile, which then needs "
            "`instance: {devices, dollars_per_hour, provision_s, initialise_s}`"
        )
    return {profile.offer.name: catalogue[profile.offer.name]}


def _name_history(offers: dict[str, Offer], asked: Asked) -> dict[str, Offer]:
    """Return the offers with the history that was asked for."""
    if asked.spot_history is None:
        return offers
    if not asked.is_spot:
        raise PlanError("--spot-history is for spot instances; ask for them with --spot, or is_spot: true of a cluster")
    if len(offers) > 1:
        raise PlanError(
            f"--spot-history is that of one type, and {len(offers)} are compared; give each its own spot_history in a "
            "--catalogue"
        )
    return {name: replace(offer, spot_history=str(asked.spot_history)) for name, offer in offers.items()}


def _anchor_histories(content: Mapping[str, Any], folder: Path) -> dict[str, Any]:  # Any: what a YAML file holds
    """Return what a file holds with the histories that it names as seen from its folder."""
    return {
        name: {**values, "spot_history": str(folder / str(values["spot_history"]))}
        if isinstance(values, Mapping) and values.get("spot_history")
        else values
        for name, values in content.items()
    }


def _read_file(path: Path, what: str, read: Callable[[Mapping[str, Any]], T]) -> T:  # Any: what a YAML file holds
    import yaml

    from headwater.cli.yaml_files import read_yaml

    try:
        content = read_yaml(path)
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise PlanError(f"the {what} {str(path)!r} cannot be read: {' '.join(str(error).split())}") from error
    try:
        if not isinstance(content, Mapping):
            held = "nothing" if content is None else f"a {type(content).__name__}"
            raise PlanError(f"it holds {held}, and needs names with values; see docs/plan.md")
        return read(_anchor_histories(content, path.parent))
    except PlanError as error:
        raise PlanError(f"the {what} {str(path)!r}: {error}") from error


def _build_job(
    stages: Sequence[JobStage], profile: TimeProfile, offer: Offer, asked: Asked, *, is_spot: bool
) -> tuple[Job, Basis]:
    instance = offer.rent(is_spot=is_spot)
    if is_spot and offer.spot_history is not None:
        instance = replace(instance, spot_history=read_history(offer.spot_history))
    fitted, basis = profile.fit_to(instance, asked.relative_speed)
    assert fitted.epoch_seconds is not None
    job = Job(
        stages=stages,
        epoch_seconds=fitted.epoch_seconds,
        instance=instance,
        billing=profile.billing,
        max_instances=profile.max_instances,
        start_up=profile.start_up,
        checkpoint=profile.checkpoint,
        by_scale=fitted.by_scale,
    )
    return job, basis
