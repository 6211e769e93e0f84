"""Instances of AWS EC2 as nodes. This is the one module that imports boto3.

What must never happen is an instance that nobody knows of. So there is no list of them anywhere but in EC2: each has
the name of its study and the end of its lease as tags from the request on, which launches and tags it as one; a
process that is killed before it hears the answer has lost nothing. The study renews the lease while it runs. An
instance whose lease has passed shuts itself down, which terminates it (`cloud.watchdog`), and `headwater
cluster sweep` ends those that could not.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import count
from typing import Any
from uuid import uuid4

from headwater.cloud.protocol import Node, NodeState
from headwater.cloud.watchdog import write_user_data
from headwater.errors import StudyError

STUDY_TAG = "headwater:study"
LEASE_TAG = "headwater:lease-until"
"""In whole seconds since 1970."""
RUN_TAG = "headwater:run"
"""Tells the instances of one run from those of another study of the same name, in another record."""
LEASE_S = 600.0
"""So long after it was last heard of does a study keep its instances."""
UNSEEN_S = 120.0
"""So long may EC2 take to list an instance that it has launched."""
RETRY_S = 30.0
"""So long is nothing asked for after EC2 had nothing to give."""
NO_CAPACITY = (
    "InsufficientInstanceCapacity",
    "InsufficientHostCapacity",
    "SpotMaxPriceTooLow",
    "MaxSpotInstanceCountExceeded",
    "RequestLimitExceeded",
)
"""Why nothing may be launched now, which may be otherwise in a while."""
GONE = ("InvalidInstanceID.NotFound",)
MARKED = "marked-for-termination"
"""The status of the request of a spot instance that is about to be taken back,"""
NOTICE_S = 120.0
"""which is announced so long before."""
FORBIDDEN = ("UnauthorizedOperation",)
NUM_ATTEMPTS = 10
"""So often is a request made that EC2 does not answer, or answers with too many of them."""
_LIVE = ("pending", "running", "stopping", "stopped")


@dataclass(frozen=True, slots=True, kw_only=True)
class Ec2Settings:
    """What instances are like, and whom they join."""

    image: str
    """The AMI: with the same Python, Ray and Headwater as here."""
    instance: str
    """The type, such as p3.8xlarge."""
    head: str
    """The address of the Ray head that they join, host:port; this process must run in its cluster."""
    num_devices: int = 1
    kind: str = "cpu"
    init_script: str = ""
    """Shell commands that each runs first."""
    subnet: str | None = None
    security_groups: tuple[str, ...] = ()
    key_name: str | None = None
    is_spot: bool = False
    """Whether to ask for spot instances, as long as nobody wants them on demand."""
    region: str | None = None
    endpoint_url: str | None = None
    lease_s: float = LEASE_S


class Ec2Cluster:
    """Instances that are launched for one study and end with it, whatever becomes of this process."""

    def __init__(self, settings: Ec2Settings, *, clock: Callable[[], float] = time.time) -> None:
        self._settings = settings
        self._clock = clock
        self._client = open_client(settings.region, settings.endpoint_url)
        self._study = ""
        self._run = uuid4().hex[:12]
        self._numbers = count()
        self._unseen: dict[str, Node] = {}
        """Instances that EC2 has answered with and not listed yet."""
        self._released: set[str] = set()
        self._launch_s = {True: 0.0, False: 0.0}
        """From when on it is asked again for instances, on demand or not."""
        self._taken_s: dict[str, float] = {}
        """When instances will be taken back."""

    def start(self, study: str) -> str:
        """Return the address of the head."""
        self._study = study
        return self._settings.head

    def list_nodes(self) -> list[Node]:
        """Return the instances of the study, and renew their leases where these have lost a third.

        What EC2 says of spot instances that are about to be taken back is read from their requests.
        """
        now_s = self._clock()
        there = list_instances(self._client, run=self._run, num_devices=self._settings.num_devices)
        listed = {node.id: node for node in there}
        self._unseen = {
            name: node
            for name, node in self._unseen.items()
            if name not in listed and now_s - node.launched_s < UNSEEN_S
        }
        nodes = [node for name, node in {**self._unseen, **listed}.items() if name not in self._released]
        fading = [node.id for node in nodes if (node.lease_s or 0.0) - now_s < self._settings.lease_s * 2 / 3]
        if fading:
            lease = {"Key": LEASE_TAG, "Value": self._end_lease()}
            with _telling("renew the lease of instances"):
                self._client.create_tags(Resources=fading, Tags=[lease])
        if any(node.is_spot for node in nodes):
            marked = list_marked(self._client)
            self._taken_s |= {name: now_s + NOTICE_S for name in marked if name not in self._taken_s}
        return [replace(node, taken_s=self._taken_s.get(node.id)) for node in nodes]

    def launch(self, count: int, *, on_demand: bool = False) -> int:
        """Ask for so many instances, one by one; where EC2 has none to give, it is not asked for a while."""
        now_s = self._clock()
        if now_s < self._launch_s[on_demand]:
            return 0
        for number in range(count):
            if not self._launch_one(on_demand=on_demand):
                self._launch_s[on_demand] = now_s + RETRY_S
                return number
        return count

    def _launch_one(self, *, on_demand: bool) -> bool:
        settings = replace(self._settings, is_spot=self._settings.is_spot and not on_demand)
        request = {
            "ImageId": settings.image,
            "InstanceType": settings.instance,
            "MinCount": 1,
            "MaxCount": 1,
            "ClientToken": f"{self._run}-{next(self._numbers)}",  # a request that is repeated launches nothing twice
            "UserData": write_user_data(settings, int(self._end_lease())),
            "InstanceInitiatedShutdownBehavior": "terminate",
            "MetadataOptions": {"InstanceMetadataTags": "enabled", "HttpTokens": "required"},
            "TagSpecifications": [{"ResourceType": kind, "Tags": self._make_tags()} for kind in ("instance", "volume")],
            **_choose_place(settings),
        }
        with _telling(f"launch a {settings.instance}", passed=NO_CAPACITY) as asked:
            answer = self._client.run_instances(**request)
            self._unseen |= {one["InstanceId"]: _read_node(one, settings.num_devices) for one in answer["Instances"]}
        return not asked.has_failed

    def release(self, nodes: Sequence[Node]) -> None:
        """Terminate these instances."""
        names = [node.id for node in nodes if node.id not in self._released]
        end_instances(self._client, names)
        self._released.update(names)

    def close(self) -> None:
        """Terminate all instances that this run has launched."""
        if self._study:
            self.release(self.list_nodes())

    def _end_lease(self) -> str:
        return str(int(self._clock() + self._settings.lease_s))

    def _make_tags(self) -> list[dict[str, str]]:
        lease = {"Key": LEASE_TAG, "Value": self._end_lease()}
        words = {STUDY_TAG: self._study, RUN_TAG: self._run, "Name": f"headwater {self._study}"}
        return [lease, *({"Key": key, "Value": value} for key, value in words.items())]


def open_client(region: str | None = None, endpoint_url: str | None = None) -> Any:  # Any: boto3 has no types
    """Return a client of EC2, by the user's own credentials.

    Raises:
        StudyError: boto3 is not there, or does not know the region.
    """
    try:
        import boto3
        from botocore.config import Config
        from botocore.exceptions import NoRegionError
    except ImportError as error:
        raise StudyError("nodes of EC2 need boto3; install it with pip install 'headwater[cloud]'") from error
    try:
        patient = Config(retries={"mode": "standard", "max_attempts": NUM_ATTEMPTS})
        return boto3.client("ec2", region_name=region, endpoint_url=endpoint_url, config=patient)
    except NoRegionError as error:
        raise StudyError("no AWS region is chosen; set AWS_REGION, or give one in the file of the cluster") from error


def has_credentials() -> bool:
    """Whether boto3 is there and finds credentials and a region."""
    try:
        import boto3
    except ImportError:
        return False
    session = boto3.Session()
    return session.region_name is not None and session.get_credentials() is not None


def list_instances(
    client: Any,  # Any: as above
    study: str | None = None,
    *,
    run: str | None = None,
    num_devices: int = 1,
) -> list[Node]:
    """Return the instances that bear the tags of a study or of a run, or of any, and are not terminated.

    Raises:
        StudyError: EC2 does not answer.
    """
    states = {"Name": "instance-state-name", "Values": list(_LIVE)}
    whose = {"Name": "tag-key", "Values": [STUDY_TAG]}
    if study is not None:
        whose = {"Name": f"tag:{STUDY_TAG}", "Values": [study]}
    if run is not None:
        whose = {"Name": f"tag:{RUN_TAG}", "Values": [run]}
    nodes = []
    with _telling("list instances"):
        for page in client.get_paginator("describe_instances").paginate(Filters=[whose, states]):
            found = [one for reservation in page["Reservations"] for one in reservation["Instances"]]
            nodes += [_read_node(one, num_devices) for one in found]
    return sorted(nodes, key=lambda node: (node.launched_s, node.id))


def list_marked(client: Any) -> set[str]:  # Any: as above
    """Return the spot instances of the account that are about to be taken back; none where nobody may ask for that.

    Raises:
        StudyError: EC2 does not answer.
    """
    marked = set()
    with _telling("list spot requests", passed=FORBIDDEN):
        active = {"Name": "state", "Values": ["active"]}
        for page in client.get_paginator("describe_spot_instance_requests").paginate(Filters=[active]):
            found = [one for one in page["SpotInstanceRequests"] if one.get("Status", {}).get("Code") == MARKED]
            marked |= {one["InstanceId"] for one in found if "InstanceId" in one}
    return marked


def end_instances(client: Any, names: Sequence[str]) -> None:  # Any: as above
    """Terminate instances; those that are not there any more are passed over.

    Raises:
        StudyError: EC2 does not answer.
    """
    for name in names:  # one that is gone would spare all others of the same request
        with _telling(f"terminate {name}", passed=GONE):
            client.terminate_instances(InstanceIds=[name])


@dataclass(slots=True)
class _Asked:
    has_failed: bool = False


@contextmanager
def _telling(what: str, passed: Sequence[str] = ()) -> Iterator[_Asked]:
    """Say in one line what EC2 refuses, and why it was not asked; reasons that are passed over are no error."""
    from botocore.exceptions import BotoCoreError, ClientError

    asked = _Asked()
    try:
        yield asked
    except ClientError as error:
        code = error.response.get("Error", {}).get("Code", "")
        asked.has_failed = True
        if code not in passed:
            raise StudyError(f"EC2 refused to {what}: {error}; headwater cluster ls shows what there is") from error
    except BotoCoreError as error:
        raise StudyError(f"EC2 could not be asked to {what}: {error}; check the network and credentials") from error


def _choose_place(settings: Ec2Settings) -> dict[str, Any]:  # Any: what boto3 takes
    """Return the parts of a request that are there only if they are asked for."""
    chosen: dict[str, Any] = {}
    if settings.subnet is not None:
        chosen["SubnetId"] = settings.subnet
    if settings.security_groups:
        chosen["SecurityGroupIds"] = list(settings.security_groups)
    if settings.key_name is not None:
        chosen["KeyName"] = settings.key_name
    if settings.is_spot:
        options = {"SpotInstanceType": "one-time", "InstanceInterruptionBehavior": "terminate"}
        chosen["InstanceMarketOptions"] = {"MarketType": "spot", "SpotOptions": options}
    return chosen


def _read_node(about: Mapping[str, Any], num_devices: int) -> Node:  # Any: as boto3 describes instances
    tags = {tag["Key"]: tag["Value"] for tag in about.get("Tags", ())}
    lease = tags.get(LEASE_TAG, "")
    state = {"pending": NodeState.PENDING, "running": NodeState.RUNNING}.get(about["State"]["Name"], NodeState.ENDING)
    return Node(
        id=about["InstanceId"],
        instance=about["InstanceType"],
        num_devices=num_devices,
        state=state,
        launched_s=about["LaunchTime"].timestamp(),
        is_spot=about.get("InstanceLifecycle") == "spot",
        study=tags.get(STUDY_TAG, ""),
        lease_s=float(lease) if lease.isdecimal() else None,
    )
