"""The places of the service, from which its routes, its OpenAPI document and a page for people are made."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from html import escape
from importlib.metadata import version

from headwater.serve.service.requests import HIGHEST_PRIORITY, KEYS, MOST_FILES
from headwater.serve.service.run_options import OPTIONS
from headwater.serve.service.values import Json, Role, State

TEXT: Json = {"type": "string"}
NUMBER: Json = {"type": "number", "minimum": 0}
PRIORITY: Json = {"type": "integer", "minimum": -HIGHEST_PRIORITY, "maximum": HIGHEST_PRIORITY}

SUBMISSION: Json = {
    "type": "object",
    "required": ["file", "files"],
    "additionalProperties": False,
    "properties": {
        "file": {**TEXT, "description": "which of the files defines the study"},
        "files": {
            "type": "array",
            "minItems": 1,
            "maxItems": MOST_FILES,
            "items": {
                "type": "object",
                "required": ["path"],
                "additionalProperties": False,
                "properties": {"path": TEXT, "text": TEXT, "base64": TEXT},
            },
        },
        "options": {
            "type": "object",
            "additionalProperties": False,
            "properties": {name: {"description": f"as `headwater run --{name.replace('_', '-')}`"} for name in OPTIONS},
        },
        "name": TEXT,
        "priority": PRIORITY,
        "deadline_s": {**NUMBER, "description": "seconds from now"},
        "budget_device_s": {**NUMBER, "description": "device-seconds"},
        "max_devices": {"type": "integer", "minimum": 1},
        "share_lanes": {
            "type": "boolean",
            "description": "train in one process with studies of others who submit the same files and say so too",
        },
    },
}
assert set(SUBMISSION["properties"]) == set(KEYS)

STUDY: Json = {
    "type": "object",
    "required": ["id", "user", "state", "version"],
    "properties": {
        "id": TEXT,
        "user": TEXT,
        "state": {"enum": [state.value for state in State]},
        "wish": TEXT,
        "reason": TEXT,
        "file": TEXT,
        "options": {"type": "object"},
        "priority": {"type": "integer"},
        "num_devices": {"type": "integer"},
        "device_seconds": NUMBER,
        "version": {"type": "integer"},
        "progress": {"type": "object"},
    },
}
ERROR: Json = {"type": "object", "required": ["error"], "properties": {"error": TEXT}}


@dataclass(frozen=True, slots=True)
class Place:
    """One thing that can be asked."""

    method: str
    path: str
    name: str
    """Of the method of `Api` that answers."""
    summary: str
    _: KW_ONLY
    query: Sequence[str] = ()
    body: Json | None = None
    answer: Json | None = None
    """None: another type than JSON."""
    media_type: str = "application/json"
    status: int = 200


_NOW: Json = {"type": "object", "properties": {"now": {"type": "boolean"}}}
_PRIORITY: Json = {"type": "object", "required": ["priority"], "properties": {"priority": PRIORITY}}
_USER: Json = {"type": "object", "properties": {"name": TEXT, "role": {"enum": [role.value for role in Role]}}}
_STUDIES: Json = {"type": "object", "properties": {"studies": {"type": "array", "items": STUDY}, "user": _USER}}
_LOG: Json = {
    "type": "object",
    "properties": {"text": TEXT, "offset": {"type": "integer"}, "is_over": {"type": "boolean"}},
}
_ONE = "/v1/studies/{id}"
_STREAM = "text/event-stream"

PLACES = (
    Place("POST", "/v1/studies", "submit", "Submit a study", body=SUBMISSION, answer=STUDY, status=201),
    Place("GET", "/v1/studies", "list_studies", "List studies", answer=_STUDIES),
    Place("GET", "/v1/events", "events", "Follow all studies", media_type=_STREAM),
    Place("GET", "/v1/devices", "devices", "List devices", answer={"type": "object"}),
    Place("GET", _ONE, "show", "Show a study", query=("wait", "version"), answer=STUDY),
    Place("DELETE", _ONE, "remove", "Remove a study that has ended", answer={"type": "object"}),
    Place("GET", f"{_ONE}/logs", "logs", "Read its log", query=("offset", "wait"), answer=_LOG),
    Place("GET", f"{_ONE}/events", "events", "Follow a study", media_type=_STREAM),
    Place("GET", f"{_ONE}/trials", "trials", "List its trials", answer={"type": "array"}),
    Place(
        "GET",
        f"{_ONE}/page",
        "page",
        "Read what its page shows and, with importance=1, what matters",
        query=("importance",),
        answer={"type": "object"},
    ),
    Place(
        "GET",
        f"{_ONE}/archive",
        "archive",
        "Fetch its record and, with weights=1, its best weights",
        query=("weights",),
        media_type="application/x-tar",
    ),
    Place("POST", f"{_ONE}/stop", "stop", "End it after its next report", body=_NOW, answer=STUDY),
    Place("POST", f"{_ONE}/pause", "pause", "Have it wait after its next report", answer=STUDY),
    Place("POST", f"{_ONE}/resume", "resume", "Let it go on", answer=STUDY),
    Place("POST", f"{_ONE}/priority", "priority", "Put it before or behind others", body=_PRIORITY, answer=STUDY),
)


def describe_api() -> Json:
    """Return the OpenAPI document."""
    paths: Json = {}
    for place in PLACES:
        paths.setdefault(place.path, {})[place.method.lower()] = _describe(place)
    return {
        "openapi": "3.1.0",
        "info": {"title": "Headwater", "version": version("headwater")},
        "security": [{"token": []}],
        "components": {"securitySchemes": {"token": {"type": "http", "scheme": "bearer"}}},
        "paths": paths,
    }


def write_page() -> str:
    """Return a page that lists what can be asked; it asks nobody for anything."""
    rows = "".join(
        f"<tr><td><code>{place.method}</code></td><td><code>{escape(place.path)}</code></td>"
        f"<td>{escape(place.summary)}</td><td>{escape(', '.join(place.query))}</td></tr>"
        for place in PLACES
    )
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8"><title>Headwater</title></head><body>'
        "<h1>Headwater</h1><p>A queue of studies. Every request needs the header "
        "<code>Authorization: Bearer TOKEN</code>; <code>headwater submit</code> and <code>headwater queue</code> "
        'send it. <a href="/v1/openapi.json">The OpenAPI document</a> has the details.</p>'
        f"<table><tr><th>method<th>place<th>what it does<th>query</tr>{rows}</table></body></html>"
    )


def _describe(place: Place) -> Json:
    operation = f"{place.name}_study" if "{id}" in place.path else place.name
    parameters: list[Json] = [
        {"name": name, "in": "query", "schema": {"type": "integer", "minimum": 0}} for name in place.query
    ]
    if "{id}" in place.path:
        parameters.append({"name": "id", "in": "path", "required": True, "schema": TEXT})
    if place.name == "submit":
        parameters.append({"name": "Idempotency-Key", "in": "header", "schema": TEXT})
    if place.media_type == _STREAM:
        parameters.append({"name": "Last-Event-ID", "in": "header", "schema": TEXT})
    content = {place.media_type: {"schema": place.answer or TEXT}}
    refusals = {"content": {"application/json": {"schema": ERROR}}}
    described: Json = {
        "operationId": operation,
        "summary": place.summary,
        "parameters": parameters,
        "responses": {
            str(place.status): {"description": place.summary, "content": content},
            **({"200": {"description": "It was submitted before", "content": content}} if place.status != 200 else {}),
            **{status: {"description": text, **refusals} for status, text in _REFUSALS.items()},
        },
    }
    if place.body is not None:
        described["requestBody"] = {
            "required": "required" in place.body,
            "content": {"application/json": {"schema": place.body}},
        }
    return described


_REFUSALS = {
    "400": "The body is no JSON",
    "401": "There is no token that is known",
    "403": "The role does not allow it",
    "404": "There is no such study, or it is another user's",
    "409": "It is not possible as things stand",
    "413": "The body is too large",
    "422": "Something in the request is not what it must be",
    "429": "That is asked too often, or too much at once; try again",
    "503": "The database does not answer; try again",
}
