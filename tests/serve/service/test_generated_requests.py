"""Requests that schemathesis makes of the OpenAPI document: none makes a running service fail, or is wrongly taken."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, settings
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    allow_header_conformance,
    content_type_conformance,
    ignored_auth,
    negative_data_rejection,
    response_schema_conformance,
    status_code_conformance,
)
from tests.serve.service.conftest import SLOW, RunningService, bearer, submit

from headwater.serve.service.openapi import describe_api

pytestmark = pytest.mark.timeout(300)
"""A service starts as a real process, which a busy machine is slow at."""

NUM_EXAMPLES = 15
"""Of each place."""
CHECKS: list[Any] = [  # Any: schemathesis types its own checks loosely
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
    negative_data_rejection,
    ignored_auth,
    allow_header_conformance,
]


@pytest.fixture(scope="module")
def asked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningService]:
    folder = tmp_path_factory.mktemp("service")
    service = RunningService(str(folder / "service.db"), folder / "studies", ("--devices", "1", "--same-user"))
    service.start()
    yield service
    service.kill()
    service.end_all()


@pytest.fixture(scope="module")
def asked_study(asked: RunningService) -> str:
    return submit(asked.admin, SLOW)


schema = schemathesis.openapi.from_dict(describe_api()).exclude(path_regex="/events$")  # these never end


@schema.parametrize()
@settings(max_examples=NUM_EXAMPLES, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
def test_what_is_described_is_answered_as_described(
    case: schemathesis.Case[Any], asked: RunningService, asked_study: str
) -> None:
    is_slow = case.path.endswith(("/trials", "/archive")) and "weights" not in case.query  # a process reads them
    if "id" in case.path_parameters and case.method != "DELETE" and len(case.path_parameters["id"]) % 2 and not is_slow:
        case.path_parameters["id"] = asked_study  # else there is none of that name
    if str(case.query.get("wait")).isdecimal():
        case.query["wait"] = 0  # it would
    answer = case.call(asked.url, headers=bearer(asked.admin_token), timeout=60)
    case.validate_response(answer, checks=CHECKS, headers=bearer(asked.admin_token))
