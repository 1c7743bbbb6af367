"""Find the installed adapters, by name or by the format of a history.

The formats of providers are built in. Packages register further adapters under the entry-point group
`ctxguard.adapters`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Final, Protocol, TypeVar, cast, runtime_checkable

from ctxguard.adapting.fields import is_field_name, is_list
from ctxguard.artifacts import Artifact, Kind
from ctxguard.draft import Stage
from ctxguard.errors import AdapterError, HistoryError
from ctxguard.settings import adapter_points

if TYPE_CHECKING:
    from ctxguard.draft import Chain

Native = TypeVar("Native")


@runtime_checkable
class Adapter(Protocol[Native]):
    """Reads native messages as artifacts, and writes changed artifacts back. Unchanged messages stay the same objects.

    An adapter may also have a `last_stage`, for a provider that refuses something that stages may produce, such as an
    empty message. This stage runs after all others, so that its changes are counted and reported. If the adapter's
    `starts_with_user` is True, the provider refuses histories that begin with a message of the assistant. If the
    provider refuses certain ids of calls, `call_ids` says which it accepts (see `FitCalls`). If `reads_one_by_one` is
    True, each message is read without its neighbors, so that a session reads only the new ones.

    What only a framework can do, its adapter's class offers, and nobody else imports the framework:
    `agent_of(model)` or `chat_model(name)` for summaries, and `attachment(data, mime_type, width, height)` for images
    that the file reader returns.

    Attributes:
        name: The adapter's name, for `--adapter` and in reports.
    """

    name: str

    def read(self, native: Native) -> list[Artifact]:
        """Return the artifacts of a history without changing the history.

        Args:
            native: The history as the framework's own messages.

        Returns:
            The artifacts. In `source`, the adapter stores what each artifact was read from. A message that was read
            before must yield the identical artifact object, by which a stabilizer finds its earlier results.

        Raises:
            HistoryError: If the history is not in the adapter's format. The error names the faulty message.
        """
        ...

    def write(self, native: Native, artifacts: Iterable[Artifact]) -> Native:
        """Return the history for these artifacts, as the original objects except for changed or added messages."""
        ...

    def detects(self, native: object) -> bool:
        """Return whether a history looks like it is in this adapter's format."""
        ...


def chain_for(adapter: Adapter[Native] | None, stages: Sequence[Stage], *, keep_thinking: bool = False) -> Chain:
    """Return the stages of a stabilizer, extended by the final stages that a native history needs.

    The final stages are `StartWithUser` if the provider requires it, `DropStaleThinking` for signed thinking,
    `FitCalls` for the ids of calls, and the adapter's own `last_stage`.
    """
    from ctxguard.draft import Chain
    from ctxguard.history.pairing import CallIds
    from ctxguard.stages.arrangement import FitCalls, StartWithUser
    from ctxguard.stages.arrival import DropStaleThinking

    last: Stage | None = getattr(adapter, "last_stage", None)
    chain = Chain(stages).with_missing(*([StartWithUser()] if _starts_with_user(adapter) else []))
    thinking: list[Stage] = [] if keep_thinking else [DropStaleThinking()]
    calls = FitCalls(getattr(adapter, "call_ids", CallIds()))
    return Chain((*chain, *thinking, calls, *([] if last is None else [last])))


def require_messages(adapter: Adapter[Native], given: Sequence[Artifact], left: Sequence[Artifact]) -> None:
    """Raise an error if no message is left, because providers reject such a request without a helpful reason.

    Args:
        adapter: The adapter of the history's format.
        given: The artifacts before stabilizing.
        left: The artifacts after stabilizing.

    Raises:
        HistoryError: If no message is left, for example because the only message was a result without its call.
    """
    unsaid = (Kind.SYSTEM,) if _starts_with_user(adapter) else ()
    if any(a.kind not in unsaid for a in given) and all(a.kind in unsaid for a in left):
        raise HistoryError("nothing is left of the history: its results answer no call; send the calls, too")


def _starts_with_user(adapter: object) -> bool:
    return getattr(adapter, "starts_with_user", False) is True


OBJECT_ADAPTERS: Final = ("langchain", "pydantic-ai")
"""Adapters whose messages are objects of a framework rather than dicts. Such messages do not occur in files."""


def adapter_names() -> list[str]:
    """Return the names of the installed adapters in alphabetical order."""
    return sorted({*adapter_points(), *_formats()})


@lru_cache(maxsize=1)
def _formats() -> Mapping[str, Callable[[], Adapter[object]]]:
    from ctxguard.formats.registry import FORMATS  # imported here, because it imports this package

    return {one.name: cast("Callable[[], Adapter[object]]", type(one)) for one in FORMATS}


def find_adapter(name: str) -> Adapter[object]:
    """Return the installed adapter with the given name.

    Raises:
        AdapterError: If there is no adapter with that name, or its framework is not installed.
    """
    if name in _formats():
        return _formats()[name]()
    point = adapter_points().get(name)
    if point is None:
        raise AdapterError(f"no adapter {name!r}; installed are {', '.join(adapter_names())}")
    try:
        adapter: Adapter[object] = point.load()()
    except ImportError as error:
        raise AdapterError(f"adapter {name!r} cannot be loaded: {error}") from error
    return adapter


def detect_adapter(native: object) -> Adapter[object] | None:
    """Return the first installed adapter that recognizes a history, or None if no adapter does."""
    # importing a framework takes seconds, so plain data is not shown to adapters that need one
    is_data = is_list(native) and all(isinstance(message, Mapping) for message in native)
    # Try Chat Completions first: a history that several adapters recognize, such as a list of user messages, is most
    # likely in that format.
    for name in sorted(adapter_names(), key=lambda name: name != "openai"):
        if is_data and name in OBJECT_ADAPTERS:
            continue
        try:
            adapter = find_adapter(name)
        except AdapterError:
            continue  # its framework is not installed, so the history cannot be in its format
        if adapter.detects(native):
            return adapter
    return None


def require_adapter(native: object) -> Adapter[object]:
    """Return the first installed adapter that recognizes a history.

    Raises:
        AdapterError: If no adapter recognizes the history.
    """
    adapter = detect_adapter(native)
    if adapter is None:
        members = native if is_list(native) else [native]
        if isinstance(native, str) or (members and isinstance(members[0], str)):
            raise AdapterError("texts have no roles; write [{'role': 'user', 'content': …}]")
        raise AdapterError(
            f"no adapter knows {_unknown_message(members)}; installed are {', '.join(adapter_names())}; read the "
            "messages with an adapter of your own and pass the artifacts"
        )
    return adapter


def _unknown_message(members: Sequence[object]) -> str:
    """Return the place and the type of the first message that no adapter recognizes, and its role if it has one."""
    for place, message in enumerate(members):
        if detect_adapter([message]) is None:
            role = message.get("role") if isinstance(message, Mapping) else None
            what = f"message {place} ({type(message).__name__})"
            is_named = isinstance(role, str) and is_field_name(role)
            return f"{what}: its role is {role!r}, not system, user, assistant, or tool" if is_named else what
    return "a list in which messages of several formats are mixed"
