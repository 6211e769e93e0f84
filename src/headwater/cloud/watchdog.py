"""What an instance runs when it starts: a watchdog that ends it with its lease, and the raylet that joins the head."""

from __future__ import annotations

import shlex
from typing import Protocol

METADATA = "http://169.254.169.254"
"""Where an instance reads about itself."""
LEASE_PATH = "latest/meta-data/tags/instance/headwater:lease-until"
LOOK_S = 30.0


class Settings(Protocol):
    """What a start depends on."""

    @property
    def head(self) -> str:
        """The address of the Ray head."""

    @property
    def num_devices(self) -> int:
        """How many devices it has for Ray."""

    @property
    def kind(self) -> str:
        """What they are."""

    @property
    def init_script(self) -> str:
        """What runs before the raylet."""


def write_watchdog(lease_until: int, *, metadata: str = METADATA, look_s: float = LOOK_S) -> str:
    """Return a shell script that shuts the machine down once its lease has passed.

    The lease is the tag of the instance, which its study renews. Where that cannot be read, the last one holds that
    could be, so that nothing that goes wrong keeps a machine alive. It tries again for as long as it lives.
    """
    return f"""#!/bin/bash
lease={lease_until}
while sleep {look_s:g}; do
  token=$(curl -sf -m 5 -X PUT -H 'X-aws-ec2-metadata-token-ttl-seconds: 60' {metadata}/latest/api/token)
  tag=$(curl -sf -m 5 -H "X-aws-ec2-metadata-token: $token" {metadata}/{LEASE_PATH})
  case "$tag" in ''|*[!0-9]*) ;; *) lease=$tag ;; esac
  if [ "$(date +%s)" -gt "$lease" ]; then shutdown -h now; fi
done
"""


def write_user_data(settings: Settings, lease_until: int, *, metadata: str = METADATA) -> str:
    """Return what an instance runs when it starts; the watchdog comes first, so that nothing else can prevent it."""
    count = "--num-cpus" if settings.kind == "cpu" else "--num-gpus"
    return f"""#!/bin/bash
cat > /usr/local/bin/headwater-watchdog <<'END_OF_WATCHDOG'
{write_watchdog(lease_until, metadata=metadata)}END_OF_WATCHDOG
chmod +x /usr/local/bin/headwater-watchdog
nohup setsid /usr/local/bin/headwater-watchdog > /dev/null 2>&1 < /dev/null &
token=$(curl -sf -m 5 -X PUT -H 'X-aws-ec2-metadata-token-ttl-seconds: 60' {metadata}/latest/api/token)
name=$(curl -sf -m 5 -H "X-aws-ec2-metadata-token: $token" {metadata}/latest/meta-data/instance-id)
{settings.init_script}
ray start --address={shlex.quote(settings.head)} {count}={settings.num_devices} --labels=headwater-node="$name" \\
  --disable-usage-stats
"""
