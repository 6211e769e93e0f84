"""Where the states of a study's trials lie, beside its record."""

from __future__ import annotations

from hashlib import blake2b
from pathlib import Path


def states_folder(storage: str | Path | None, study: str) -> Path | None:
    """Return where the states of a study's trials lie: beside the record, or nowhere if that is in memory."""
    if storage in (None, "memory:", "sqlite://"):
        return None
    text = str(storage).removeprefix("sqlite:///")
    base = Path("headwater.states") if "://" in text else Path(f"{text}.states")
    plain = "".join(letter if letter.isalnum() or letter in "-_." else "_" for letter in study)
    if plain != study or not plain.strip("."):  # so that no two studies share a folder
        plain = f"{plain.strip('.')}-{blake2b(study.encode(), digest_size=4).hexdigest()}"
    return base / plain


def clear_states(folder: Path | None) -> None:
    """Remove what a study of this name left whose record is gone: a new one must not go on from it."""
    for path in folder.glob("*.safetensors") if folder is not None else ():
        path.unlink()


def has_states(folder: Path | None) -> bool:
    """Tell whether a trial under way could go on from what lies there."""
    return folder is not None and any(folder.glob("[0-9]*.safetensors"))
