"""Replay on a Ray cluster: batches of recordings are tasks, and their results are added in the order of the recordings.

Ray runs a task again if its worker dies. Results are added up here, in order, so that the report is identical for any
number of workers, except for times. `RAY_ADDRESS` names a cluster; without it, one is started here.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from ctxguard.errors import ConfigError
from ctxguard.harness.engine import Plan, Replayed, in_order, replayed
from ctxguard.harness.recordings import Source
from ctxguard.settings import extra

RETRIES: Final = 3
"""Number of retries for a batch whose worker was killed."""


def spread_on_ray(sources: Iterator[Source], plan: Plan, workers: int) -> Replayed:
    """Replay recordings in the workers of a Ray cluster; reading waits if they are behind.

    Raises:
        ImportError: ray is not installed.
        ConfigError: a batch killed its worker repeatedly.
    """
    with _cluster(workers) as ray:
        shared = ray.put(plan)
        task = ray.remote(max_retries=RETRIES, num_cpus=1)(replayed)
        yield from in_order(
            sources, workers, lambda batch: task.remote(batch, shared), lambda future: _result(ray, future)
        )


def _result(ray: Any, future: Any) -> Any:  # noqa: ANN401 - Ray may be absent where types are checked
    try:
        return ray.get(future)
    except ray.exceptions.RayTaskError as error:
        raise error.cause from None
    except ray.exceptions.RayError as error:
        raise ConfigError(
            f"a worker of the Ray cluster was lost {RETRIES + 1} times: {str(error).splitlines()[0]}", setting="engine"
        ) from error


@contextmanager
def _cluster(workers: int) -> Iterator[Any]:
    """Connect to the running cluster, or start one and stop it at the end."""
    with extra("ray", "--engine ray needs Ray"):
        import ray
    if ray.is_initialized():
        yield ray
        return
    local: dict[str, Any] = {} if "RAY_ADDRESS" in os.environ else {"num_cpus": workers, "include_dashboard": False}
    ray.init(log_to_driver=False, logging_level=logging.ERROR, **local)
    try:
        yield ray
    finally:
        ray.shutdown()
