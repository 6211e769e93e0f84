"""From the body of a request to a submission: everything is checked before anything is kept."""

from __future__ import annotations

import json
import re
from base64 import b64decode
from binascii import Error as Base64Error
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from pathlib import PurePosixPath
from secrets import token_hex
from typing import Any, NoReturn

from headwater.errors import StudyError
from headwater.serve.service.run_options import read_options
from headwater.serve.service.sharing import hash_files
from headwater.serve.service.values import Json, State, Submission, User
from headwater.settings import read_number, read_whole

_PART = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}", re.ASCII)
MOST_FILES = 200
DEEPEST = 8
LONGEST_S = 10.0 * 365 * 24 * 3600
HIGHEST_PRIORITY = 1000
KEYS = ("file", "files", "options", "name", "priority", "deadline_s", "budget_device_s", "max_devices", "share_lanes")
"""What a submission may say."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A submission that was read, and its files."""

    submission: Submission
    files: Mapping[str, bytes]
    body: str
    """A hash of what was asked, the same for the same."""


def parse_json(content: bytes) -> Json:
    """Read a JSON object, strictly.

    Raises:
        StudyError: It is none.
    """
    try:
        value = json.loads(content, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise StudyError(f"the body is no JSON: {error!s:.100}") from None
    if not isinstance(value, dict):
        raise StudyError(f"the body is {value!r:.40}; it must be a JSON object")
    return value


def read_submission(value: Json, user: User, now_s: float, longest_s: float = LONGEST_S) -> Asked:
    """Return what is submitted; no study has more time than the longest may have.

    Raises:
        StudyError: Something is missing, unknown or not what it must be.
    """
    unknown = [name for name in value if name not in KEYS]
    if unknown:
        raise StudyError(f"the submission has {unknown[0]!r:.60}; possible are {', '.join(KEYS)}")
    files = _read_files(value.get("files"))
    file = value.get("file")
    if not isinstance(file, str) or file not in files or not file.endswith(".py"):
        raise StudyError(f"file is {file!r:.100}; it must be one of the files that ends in .py: {_list(files)}")
    name = value.get("name", PurePosixPath(file).stem)
    if not isinstance(name, str) or not re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_-]{0,39}", name, re.ASCII):
        raise StudyError(f"name is {name!r:.60}; it has 1 to 40 letters, digits, dashes and underscores")
    deadline_s = _read_optional(value, "deadline_s", lambda key, one: read_number(key, one, 0, LONGEST_S))
    if longest_s < LONGEST_S:
        deadline_s = longest_s if deadline_s is None else min(deadline_s, longest_s)
    submission = Submission(
        id=f"{name}-{token_hex(4)}",
        user=user.name,
        file=file,
        options=read_options(value.get("options", {})),
        state=State.QUEUED,
        created=now_s,
        priority=read_priority(value.get("priority", 0)),
        deadline=None if deadline_s is None else now_s + deadline_s,
        budget_device_s=_read_optional(value, "budget_device_s", lambda key, one: read_number(key, one, 0, LONGEST_S)),
        max_devices=_read_optional(value, "max_devices", lambda key, one: read_whole(key, one, 1, 10_000)),
        place=user.place,
        share=hash_files(file, files) if _read_yes(value, "share_lanes") else "",
    )
    canonical = json.dumps(value, sort_keys=True).encode("utf-8", "surrogatepass")
    return Asked(submission=submission, files=files, body=sha256(canonical).hexdigest())


def read_priority(value: object) -> int:
    """Return how far before others a study is; below 0, behind them."""
    return read_whole("priority", value, -HIGHEST_PRIORITY, HIGHEST_PRIORITY)


def _read_optional(value: Json, key: str, read: Any) -> Any:  # Any: reads a JSON value
    return None if value.get(key) is None else read(key, value[key])


def _read_yes(value: Json, key: str) -> bool:
    given = value.get(key)
    if given is not None and not isinstance(given, bool):
        raise StudyError(f"{key} is {given!r:.40}; it must be true or false")
    return bool(given)


def _read_files(given: object) -> dict[str, bytes]:
    if not isinstance(given, list) or not 1 <= len(given) <= MOST_FILES:
        raise StudyError(f"files is {given!r:.40}; it must be a list of 1 to {MOST_FILES} files")
    files: dict[str, bytes] = {}
    for one in given:
        if not isinstance(one, dict) or set(one) - {"path", "text", "base64"} or ("text" in one) == ("base64" in one):
            raise StudyError(f"a file is {one!r:.60}; it has a path, and either text or base64")
        path = _read_path(one.get("path"))
        if path in files or any(path.startswith(f"{other}/") or other.startswith(f"{path}/") for other in files):
            raise StudyError(f"there are two files at {path!r:.100}")
        files[path] = _read_content(path, one)
    return files


def _read_path(path: object) -> str:
    parts = path.split("/") if isinstance(path, str) else []
    if not 1 <= len(parts) <= DEEPEST or not all(_PART.fullmatch(part) for part in parts):
        raise StudyError(
            f"the path of a file is {path!r:.100}; it must be relative, of at most {DEEPEST} names of letters, digits, "
            "dots, dashes and underscores that begin with no dot"
        )
    return "/".join(parts)


def _read_content(path: str, one: Json) -> bytes:
    content = one.get("text", one.get("base64"))
    if not isinstance(content, str):
        raise StudyError(f"the content of {path} is {content!r:.40}; it must be text")
    try:
        return content.encode() if "text" in one else b64decode(content, validate=True)
    except (UnicodeEncodeError, Base64Error, ValueError):
        raise StudyError(f"the content of {path} is no text, or no base64") from None


def _list(files: Mapping[str, bytes]) -> str:
    names = sorted(files)
    return ", ".join(names[:5]) + (", ..." if len(names) > 5 else "")


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no number in JSON")
