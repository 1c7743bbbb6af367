"""ctxguard for pytest: check that recorded sessions are stabilized without violating a law.

`ctxguard.harness.judging` lists the laws: each request is within the budget, for example. The option
`--ctxguard-sessions=recordings/` names the sessions. The fixture `assert_stable` replays a session and fails at the
first call that violates a law. The fixture `ctxguard_session` runs a test once for each session in the option. The rest
of ctxguard is only imported when a fixture is used.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

__all__ = ["assert_stable", "ctxguard_session"]

if TYPE_CHECKING:
    from ctxguard.harness.judging import Figures
    from ctxguard.harness.sessions import RecordedSession
    from ctxguard.stabilizer import Stabilizer


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option that names recorded sessions."""
    group = parser.getgroup("ctxguard")
    group.addoption(
        "--ctxguard-sessions",
        action="append",
        default=[],
        metavar="PATH",
        help="recorded sessions for the fixture ctxguard_session: files, folders, globs; may be repeated",
    )


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run each test that uses `ctxguard_session` once per session of the option. An unreadable session fails."""
    if "ctxguard_session" not in metafunc.fixturenames:
        return
    from ctxguard.harness.recordings import Recording, recordings

    sources = list(recordings(metafunc.config.getoption("--ctxguard-sessions")))
    names = [f"{s.path}:{s.line}" if isinstance(s, Recording) else s.path for s in sources]
    metafunc.parametrize("ctxguard_session", sources, ids=names, indirect=True)


@pytest.fixture
def ctxguard_session(request: pytest.FixtureRequest) -> RecordedSession:
    """Return one of the sessions in `--ctxguard-sessions`."""
    from ctxguard.harness.recordings import Recording, Skipped, open_session

    source = request.param
    session = open_session(source) if isinstance(source, Recording) else source
    if isinstance(session, Skipped):
        pytest.fail(str(session), pytrace=False)
    return session


@pytest.fixture
def assert_stable() -> Callable[..., Figures]:
    """Return a function that replays a session and fails the test if it violates a law (see `ctxguard_pytest`).

    The function takes a session or a list of messages, a stabilizer (by default, one with a budget of 8,000 tokens),
    and `min_support`, the minimum of the figure `support`. It returns the figures of the replay.
    """
    return _assert_stable


def _assert_stable(
    session: RecordedSession | list[object], stabilizer: Stabilizer | None = None, *, min_support: float = 0.0
) -> Figures:
    from ctxguard.harness.replay import replay
    from ctxguard.harness.sessions import parse_session
    from ctxguard.stabilizer import Stabilizer

    known = parse_session(session) if isinstance(session, list) else session
    replayed = replay(known, stabilizer or Stabilizer(8_000))
    figures = replayed.figures
    if not figures.served:
        what = f"all {figures.calls} calls were refused" if figures.calls else "it has no model call"
        pytest.fail(f"session {replayed.id}: nothing was judged: {what}", pytrace=False)
    if replayed.places:
        pytest.fail("\n".join(f"call {place.call}: {place}" for place in replayed.places), pytrace=False)
    if figures.support is not None and figures.support < min_support:
        pytest.fail(f"session {replayed.id}: support is {figures.support:.2f}, below {min_support:.2f}", pytrace=False)
    return figures
