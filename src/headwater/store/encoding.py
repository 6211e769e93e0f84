"""How values become text: plain JSON with the three floats that JSON lacks, and text that every database takes."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from json.encoder import encode_basestring_ascii
from typing import Any

_TAG = "$float"
_FLOATS = frozenset([float])


def encode_json(value: Any) -> str:  # Any: a JSON value
    """Write `value` as standard JSON; NaN and the infinities become `{"$float": "nan"}`."""
    try:
        return _STRICT.encode(value)
    except ValueError:
        return _STRICT.encode(_tag(value))


def encode_numbers(many: Iterable[Mapping[str, float]]) -> list[str]:
    """Write named numbers as `encode_json` does, as floats: there are many of them, and a report waits for each.

    The lanes of a group report under the same names, so these are written once.
    """
    texts, names, form = [], list[str](), "{}"
    for numbers in many:
        if [*numbers] != names:
            names = [*numbers]
            form = f"{{{', '.join(encode_basestring_ascii(name).replace('%', '%%') + ': %r' for name in names)}}}"
        values = tuple(numbers.values())
        if _FLOATS.issuperset(map(type, values)) and math.isfinite(sum(values)):  # else one of them may not be
            texts.append(form % values)
        else:
            texts.append(encode_json({name: float(value) for name, value in numbers.items()}))
    return texts


def decode_json(text: str) -> Any:  # Any: a JSON value
    """Read what `encode_json` wrote; floats come back exactly."""
    return _TAGGED.decode(text) if _TAG in text else _PLAIN.decode(text)


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


_STRICT = json.JSONEncoder(allow_nan=False)
_PLAIN = json.JSONDecoder()
_TAGGED = json.JSONDecoder(object_hook=_untag)
"""Made once: a record has a text of every report."""
