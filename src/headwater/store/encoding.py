"""How values become text: plain JSON with the three floats that JSON lacks, and text that every database takes."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from json.encoder import encode_basestring_ascii
from typing import Any

_TAG = "$float"
_STRICT = json.JSONEncoder(allow_nan=False)
"""Made once: a record has a text of every report."""


def encode_json(value: Any) -> str:  # Any: a JSON value
    """Write `value` as standard JSON; NaN and the infinities become `{"$float": "nan"}`."""
    try:
        return _STRICT.encode(value)
    except ValueError:
        return _STRICT.encode(_tag(value))


def encode_numbers(numbers: Mapping[str, float]) -> str:
    """Write named numbers as `encode_json` does, as floats: there are many of them, and a report waits for each."""
    floats = {name: float(value) for name, value in numbers.items()}
    if not all(map(math.isfinite, floats.values())):
        return encode_json(floats)
    return f"{{{', '.join([f'{encode_basestring_ascii(name)}: {value!r}' for name, value in floats.items()])}}}"


def decode_json(text: str) -> Any:  # Any: a JSON value
    """Read what `encode_json` wrote; floats come back exactly."""
    return json.loads(text, object_hook=_untag if _TAG in text else None)


def clean_text(text: str) -> str:
    """Escape what a database may refuse: lone surrogates (from odd file names) and the NUL character."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8").replace("\0", "\\x00")


def _tag(value: Any) -> Any:  # Any: a JSON value
    if isinstance(value, float) and not math.isfinite(value):
        return {_TAG: repr(float(value))}
    if isinstance(value, dict):
        return {key: _tag(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_tag(item) for item in value]
    return value


def _untag(mapping: dict[str, Any]) -> Any:  # Any: a JSON value
    return float(mapping[_TAG]) if mapping.keys() == {_TAG} else mapping
