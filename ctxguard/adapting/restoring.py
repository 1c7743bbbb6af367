"""Restore masked values in the texts and tool calls of one response, whatever the response consists of.

`WholeRestorer` restores a response that has arrived whole, and `StreamRestorer` one that arrives in pieces. Both have
the methods `text` and `call`, so that an adapter walks over a response and over a piece of one in the same way.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Hashable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

if TYPE_CHECKING:
    from ctxguard.pii import MaskSession, UnmaskStream
    from ctxguard.pii.mask.answers import AnswerPieces, AnswerScan
    from ctxguard.pii.mask.links import Links, NamesHost
    from ctxguard.report import Report

_MAY_HOLD: Final = re.compile(r"[<>]|&lt;|\\u00(?:3[ce]|26[lg]t;)", re.IGNORECASE)
"""Matches a part of each placeholder, as plain text, as HTML, or with JSON escapes. Texts without it stay unchanged."""


class Tool(NamedTuple):
    """A tool that a call in a response may mean.

    Attributes:
        name: The name of the tool; empty if it is not known for certain.
        is_providers: Whether the provider itself defines the tool: a shell, a computer, or an interpreter.
    """

    name: str = ""
    is_providers: bool = False


@dataclass(slots=True, eq=False)
class Restorer:
    """Restores masked values in the response to one request.

    Attributes:
        session: The placeholders and their values.
        wants_json: Whether the text of the response is JSON, in which values have to be escaped.
        tools: Which tools receive restored values, see `ctxguard.pii.mask.unmask.gets_values`.
        outputs: The names of tools that are structured output, which is data for the program. Their arguments get
            values in any case.
        names_host: Function that returns whether the user named a host. In links to other hosts, placeholders are kept.
        scan: Searches the response for values that it introduces, before known values are restored. None if it is not
            searched.
    """

    session: MaskSession
    wants_json: bool = field(default=False, kw_only=True)
    tools: Mapping[str, bool] = field(default_factory=dict, kw_only=True)
    outputs: Collection[str] = field(default=(), kw_only=True)
    names_host: NamesHost | None = field(default=None, kw_only=True)
    scan: AnswerScan | None = field(default=None, kw_only=True)

    def gives(self, tools: Iterable[Tool]) -> bool:
        """Return whether a call gets values, which may mean any of these tools.

        Every call in every form of a response is decided here. A call of which no tool is known gets values only if no
        tool is denied them.
        """
        from ctxguard.pii.mask.unmask import gets_values

        candidates = list(tools) or [Tool()]
        return all(
            tool.name in self.outputs or gets_values(self.tools, tool.name, is_outward=tool.is_providers)
            for tool in candidates
        )

    def links(self) -> Links | None:
        """Return what reads the texts that a client may show as one, to keep values out of links that leak."""
        from ctxguard.pii.mask.links import Links

        return None if self.names_host is None else Links(self.names_host)

    def searched(self, text: str, *, is_call: bool = False) -> str:
        """Return a text of the response, or the arguments of a call, after the search for values that it introduces.

        Raises:
            WireError: If there is such a value, and it is to be refused.
        """
        if self.scan is None:
            return text
        return self.scan.arguments(text) if is_call or self.is_json(text) else self.scan.text(text)

    def is_json(self, text: str) -> bool:
        """Return whether a text that begins like this is an answer in JSON."""
        return self.wants_json and text.lstrip()[:1] in ("{", "[")

    def text(self, text: str, links: Links | None = None) -> str:
        """Return a text with masked values restored.

        Args:
            text: The text.
            links: Has read the texts before, and reads this text. None if there are none.
        """
        links = links or self.links()
        is_arguments = self.is_json(text)
        if _MAY_HOLD.search(text) is None:
            if links is not None:
                (links.read_json if is_arguments else links.read)(text)
            return text
        restored = self.session.restore_after(text, links, arguments=is_arguments)
        return text if restored == text else restored

    def arguments(self, text: str) -> str:
        """Return the JSON arguments of a tool call with masked values restored."""
        if _MAY_HOLD.search(text) is None:
            return text
        restored = self.session.restore_after(text, self.links(), arguments=True)
        return text if restored == text else restored

    def restored_arguments(self, arguments: Any, *, gives_values: bool) -> Any:  # noqa: ANN401 - JSON or a dict, and the result is the same
        """Return the arguments of a call, searched and with masked values restored; the same object if nothing changes.

        Args:
            arguments: The arguments, as JSON or parsed.
            gives_values: Whether the tool gets values. Otherwise, the arguments are only searched, see `searched`.
        """
        if self.scan is None and not gives_values:
            return arguments
        if not isinstance(arguments, str):
            written = json.dumps(arguments, ensure_ascii=False, default=str)
            restored = self.restored_arguments(written, gives_values=gives_values)
            return arguments if restored == written else json.loads(restored)
        searched = self.searched(arguments, is_call=True)
        return self.arguments(searched) if gives_values else searched

    def of_call(self, tool: str, arguments: Any) -> Any:  # noqa: ANN401 - as above
        """Return the arguments of a call, as JSON or parsed, see `restored_arguments`; `tool` is the tool's name."""
        return arguments and self.restored_arguments(arguments, gives_values=self.gives([Tool(tool)]))


@dataclass(slots=True)
class _Stream:
    """One text or call of a streamed response.

    Attributes:
        unmask: Restores the values.
        scan: Searches for values that the response introduces, before known ones are restored. None if nothing does.
        gives_values: Whether values are restored.
    """

    unmask: UnmaskStream
    scan: AnswerPieces | None
    gives_values: bool = True

    def feed(self, piece: str) -> str:
        piece = piece if self.scan is None else self.scan.feed(piece)
        return self.unmask.feed(piece) if self.gives_values else self.unmask.abandon() + piece

    def close(self) -> str:
        rest = "" if self.scan is None else self.scan.close()
        return self.unmask.feed(rest) + self.unmask.close() if self.gives_values else self.unmask.abandon() + rest


class WholeRestorer:
    """Restores masked values in the texts and tool calls of one response that has arrived whole."""

    def __init__(self, restorer: Restorer) -> None:
        self._restorer = restorer
        self._links = restorer.links()

    def text(self, key: Hashable, text: str) -> str:  # noqa: ARG002 - the signature of `StreamRestorer`, here and below
        """Return a text with masked values restored."""
        return self._restorer.text(self._restorer.searched(text), self._links)

    def call(self, key: Hashable, name: str, arguments: Any) -> Any:  # noqa: ANN401, ARG002
        """Return the arguments of a call, as JSON or parsed, with masked values restored if the tool gets values."""
        return self._restorer.of_call(name, arguments)


class StreamRestorer:
    """Restores masked values in the texts and tool calls of one streamed response, which are told apart by their keys.

    Text that may be the beginning of a placeholder is held back, up to 80 characters. If the response is searched for
    values that it introduces, a text is held back to the end of its line or sentence and 64 characters more, at most
    512 characters, a run without spaces at most 20,000, and JSON and the arguments of calls to their end.
    """

    def __init__(self, restorer: Restorer) -> None:
        self._restorer = restorer
        self._links = restorer.links()
        self._streams: dict[Hashable, _Stream] = {}
        self._names: dict[Hashable, str] = {}

    def text(self, key: Hashable, piece: str, links: Links | None = None) -> str:
        """Return what can be shown of a text after its next piece.

        Args:
            key: The key of the text.
            piece: The next piece.
            links: Has read the texts before. None means all texts of the response so far.
        """
        if key not in self._streams:
            if self._restorer.wants_json and not piece.strip():
                return piece  # whether the text is JSON is decided by its first character
            is_json = self._restorer.is_json(piece)
            self._add(key, links or self._links, is_json=is_json, in_full=is_json)
        return self._streams[key].feed(piece)

    def call(self, key: Hashable, name: str, arguments: Any) -> Any:  # noqa: ANN401 - as of `Restorer.of_call`
        """Return what can be shown of the arguments of a call after the next piece.

        Args:
            key: The key of the call.
            name: The next piece of the tool's name; empty if nothing is added to it.
            arguments: The next piece of the arguments. Parsed arguments are whole.
        """
        name = self._names[key] = self._names.get(key, "") + name
        if not isinstance(arguments, str):
            return self._restorer.of_call(name, arguments)
        return self.arguments(key, arguments, gets_values=self._restorer.gives([Tool(name)]))

    def arguments(self, key: Hashable, piece: str, *, gets_values: bool, is_json: bool = True) -> str:
        """Return what can be shown of the arguments of a call after the next piece.

        Args:
            key: The key of the call.
            piece: The next piece.
            gets_values: Whether the tool gets values. Otherwise, placeholders are kept.
            is_json: Whether the arguments are JSON.
        """
        if key not in self._streams:
            if not gets_values and self._restorer.scan is None:
                return piece
            self._add(key, self._restorer.links(), is_json=is_json, in_full=True)
        stream = self._streams[key]
        stream.gives_values = gets_values
        return stream.feed(piece)

    def _add(self, key: Hashable, links: Links | None, *, is_json: bool, in_full: bool) -> None:
        scan = self._restorer.scan
        unmask = self._restorer.session.stream_after(links, arguments=is_json)
        self._streams[key] = _Stream(unmask, None if scan is None else scan.pieces(in_full=in_full))

    def close(self, key: Hashable) -> str:
        """End a text or a call, and return what was held back."""
        self._names.pop(key, None)
        stream = self._streams.pop(key, None)
        return "" if stream is None else stream.close()

    @property
    def open(self) -> list[Hashable]:
        """The keys of the texts and calls that have not ended."""
        return list(self._streams)


AnyRestorer: TypeAlias = WholeRestorer | StreamRestorer
"""Restores a response, or the next piece of one."""


def restorer_for(report: Report, tools: Mapping[str, bool], scan: AnswerScan | None = None) -> Restorer | None:
    """Return what restores the response to a request; None if the request has no placeholders, and nothing searches it.

    Args:
        report: The report on the request.
        tools: Which tools receive restored values, see `ctxguard.pii.mask.unmask.gets_values`.
        scan: Searches the response for values that it introduces. None if it is not searched.
    """
    session = session_of(report.masks)
    if session is None or not (session.can_restore or scan is not None):
        return None
    return Restorer(session, tools=tools, names_host=report.user_names, scan=scan)


def session_of(masks: Iterable[object]) -> MaskSession | None:
    """Return the masking session of a history, found through the `masks` of its report; None if there is none."""
    from ctxguard.pii import MaskSession

    sessions = (getattr(mask, "__self__", None) for mask in masks)
    return next((one for one in sessions if isinstance(one, MaskSession)), None)
