"""A Ray cluster: the connection to it, its workers, and errors in one line. `ray` is imported only when needed."""

from __future__ import annotations

import contextlib
import logging
import os
import socket
from collections.abc import Iterator
from typing import Any

from lidstone import __version__
from lidstone.errors import RunError

PROBE_SECONDS = 5.0
_HINT = "start one with `ray start --head`, or leave out --address"


def connect(address: str | None = None, cpus: int | None = None) -> Any:
    """Ray, connected to the cluster at an address, or to one that is started here, with `cpus` workers or all."""
    import ray

    address = address or os.environ.get("RAY_ADDRESS")
    _probe(address)
    try:
        ray.init(
            address=address or "local",  # else Ray would take one that another program has started here
            num_cpus=cpus,
            ignore_reinit_error=True,
            include_dashboard=False,
            log_to_driver=False,
            logging_level=logging.ERROR,
        )
    except (ConnectionError, ValueError, RuntimeError, TimeoutError) as error:
        raise _unreachable(address, first_line(error)) from error
    vars(ray._private.worker)["_worker_logs_enabled"] = False  # else it writes of lost machines to standard output
    return ray


def count_workers() -> int:
    """How many tasks the cluster runs at once."""
    import ray

    return max(1, int(ray.cluster_resources().get("CPU", 1)))


def live_nodes() -> list[dict[str, Any]]:
    """What Ray says of each machine that the cluster has now."""
    import ray

    return [node for node in ray.nodes() if node["Alive"]]


def check_version(driver: str) -> None:
    """On a worker: refuse to work for a driver with another version of lidstone."""
    if driver != __version__:
        hint = "install the same version on all nodes"
        raise RunError(f"a worker has lidstone {__version__}, the driver {driver}", hint=hint)


@contextlib.contextmanager
def named_errors() -> Iterator[None]:
    """Turn an error of Ray into one line."""
    import ray

    try:
        yield
    except ray.exceptions.RayError as error:
        hint = "look at `ray status` and the logs of the nodes"
        raise RunError(f"Ray stopped: {first_line(error)}", hint=hint) from error


def first_line(error: BaseException) -> str:
    r"""What an error says in one line.

    >>> first_line(ValueError()), first_line(ValueError("no such node\nat all"))
    ('ValueError', 'no such node')
    """
    return next(iter(str(error).splitlines()), type(error).__name__)


def _probe(address: str | None) -> None:
    """Check that something listens at the address: Ray itself would try for minutes."""
    host, _, port = (address or "").removeprefix("ray://").rpartition(":")
    if not address or address in ("auto", "local"):
        return
    if not host or not port.isdigit():
        hint = "use auto, HOST:6379 or ray://HOST:10001"
        raise RunError(f"{address!r} is not the address of a Ray cluster", hint=hint)
    try:
        with contextlib.closing(socket.create_connection((host.strip("[]"), int(port)), timeout=PROBE_SECONDS)):
            pass
    except (OSError, OverflowError) as error:
        raise _unreachable(address, str(error)) from error


def _unreachable(address: str | None, reason: str) -> RunError:
    where = f"at {address}" if address else "on this machine"
    return RunError(f"there is no Ray cluster {where}: {reason}", hint=_HINT)
