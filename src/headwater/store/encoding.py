"""How values become text: plain JSON with the three floats that JSON lacks, and text that every database takes."""

from __future__ import annotations

import json
import math
from typing import Any

_TAG = "$float"


def encode_json(value: Any) -> str:  # Any: a JSON value
    """Write `value` as standard JSON; NaN and the infinities become `{"$float": "nan"}`."""
    try:
        return json.dumps(value, allow_nan=False)
    except ValueError:
        return json.dumps(_tag(value), allow_nan=False)


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
