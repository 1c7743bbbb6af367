"""Histories of messages that consist of blocks: Anthropic's Messages, Gemini, and Bedrock Converse.

The blocks of a message can be kept or dropped separately: each tool result in a message becomes one artifact, and the
rest of the message becomes another.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from typing import TYPE_CHECKING, Any, ClassVar, cast

from ctxguard.adapting.content_format import ContentFormat
from ctxguard.adapting.fields import REMOVED, Path, are_same_objects, by_index, copy_with, get, messages_of
from ctxguard.adapting.json_walk import PlacedField, extra_fields
from ctxguard.adapting.message_view import (
    LEFT_OUT,
    Fragment,
    MessageView,
    PlacedCall,
    PlacedPart,
    fill_nulls,
    split_message,
)
from ctxguard.adapting.read_cache import ReadCache
from ctxguard.artifacts import Artifact, Half, Kind, Part
from ctxguard.formats.format import Format

if TYPE_CHECKING:
    from ctxguard.draft import Draft

PlacedBlock = tuple[Path, object]
"""The path of a block in its message, and the block."""


def open_halves(halves: Iterable[Half | None]) -> set[str | None]:
    """Return the ids of the calls that the provider executes and whose results are not among these halves."""
    waiting: set[str | None] = set()
    for half in halves:
        if half is not None:
            (waiting.discard if half.is_result else waiting.add)(half.id)
    return waiting


class BlockFormat(Format):
    """Reads and writes messages that consist of blocks. Subclasses define the blocks.

    Attributes:
        kinds: Kind of artifact for each role. Messages with another role are kept, and reports name the role.
        field: Key of the blocks in a message.
        own: Keys of a message that the adapter reads.
        blocks: Reader of blocks.
        exact: Keys whose values are compared exactly, including the order of keys and the types of numbers (see
            `ReadCache`).
        result_roles: Roles whose messages may contain tool results.
        fills_results: Whether a result without text is written as "…", because the API refuses it empty.
    """

    starts_with_user = True
    kinds: ClassVar[Mapping[str, Kind]] = {"user": Kind.USER, "assistant": Kind.ASSISTANT, "system": Kind.SYSTEM}
    field: ClassVar[str] = "content"
    own: ClassVar[frozenset[str]] = frozenset({"role", "content"})
    blocks: ClassVar[ContentFormat]
    exact: ClassVar[frozenset[str]]
    result_roles: ClassVar[tuple[str, ...]] = ("user",)
    fills_results: ClassVar[bool] = False
    _prompts: ClassVar[ReadCache[Any, Any]]
    _joined: ClassVar[ReadCache[tuple[object, ...], object]]
    _messages: ClassVar[ReadCache[Any, tuple[Artifact, ...]]]

    def __init_subclass__(cls) -> None:
        cls._prompts = ReadCache(lambda content: {"role": "system", cls.field: content})
        cls._joined = ReadCache(cls().join, key=lambda run: tuple(map(id, run)), exact=cls.exact)
        cls._messages = ReadCache(cls().read_message, exact=cls.exact)

    def read(self, native: Any) -> list[Artifact]:  # noqa: ANN401 - each format has its own
        """Return the artifacts of a request, starting with its system prompt, or of a list of messages.

        Raises:
            HistoryError: If `native` is neither, or a message cannot be read or is in another format.
        """
        read = (self._messages.read(one) for one in (self._prompt(native), self._turns(native)))
        return list(self.paired(chain.from_iterable(chain.from_iterable(read))))

    def write(self, native: Any, artifacts: Iterable[Artifact]) -> Any:  # noqa: ANN401 - each format has its own
        """Return the request or the list of messages that consists of these artifacts.

        Messages whose artifacts are unchanged remain the same objects, except for those that the provider only accepts
        as one (see `continues` and `joins`).
        """
        prompts = set(map(id, self._prompt(native)))
        system: object = None
        groups: list[list[Artifact]] = []
        for artifact in artifacts:
            if isinstance(artifact.source, Fragment) and id(artifact.source.message) in prompts:
                system = get(self._message([artifact]), self.field)
            elif groups and self.belongs(artifact, groups[-1][-1]):
                groups[-1].append(artifact)
            else:
                groups.append([artifact])
        messages = list(map(self._message, self.merged(groups)))
        return self.with_history(native, system, messages) if isinstance(native, Mapping) else messages

    def messages(self, native: Any) -> Sequence[object]:  # noqa: ANN401 - each format has its own
        """Return the messages of a request; if `native` is a list of messages, return the list itself."""
        return messages_of(native)

    @abstractmethod
    def prompt(self, native: Mapping[str, Any]) -> object:
        """Return the content of a request's system prompt; an empty value if there is none."""

    def with_history(self, native: Mapping[str, Any], system: object, messages: list[object]) -> Mapping[str, Any]:
        """Return a copy of a request with the given messages and, unless `system` is None, the given system prompt."""
        return {**native, **({} if system is None else {"system": system}), self.history: messages}

    def paired(self, artifacts: Iterable[Artifact]) -> Iterable[Artifact]:
        """Give each result that has no id the id of its call, and return all artifacts. By default, change nothing."""
        return artifacts

    @abstractmethod
    def placed(self, message: object) -> list[PlacedBlock]:
        """Return the blocks of a message with their paths.

        Raises:
            HistoryError: If `message` is not a message of the format.
        """

    def role(self, message: object) -> str:
        """Return the role of a message."""
        return str(get(message, "role"))

    def runs(self, rest: list[int], placed: Sequence[PlacedBlock], role: str) -> list[tuple[int, ...]]:  # noqa: ARG002
        """Group the indexes of the blocks that are not results (`rest`). The blocks of a group become one artifact."""
        return [tuple(rest)]

    @abstractmethod
    def result(self, block: object) -> object:
        """Return the tool result in a block; None if the block contains none."""

    @abstractmethod
    def answered(self, block: object, path: Path) -> tuple[object, Path, str | None]:
        """Return the id of the call that a result block answers, the path of this id, and the name of the tool."""

    @abstractmethod
    def calls(self, placed: Sequence[PlacedBlock]) -> list[PlacedCall]:
        """Return the tool calls in the given blocks."""

    @abstractmethod
    def block_fields(self, block: object, path: Path, role: str, read: Sequence[PlacedPart]) -> Iterator[PlacedField]:
        """Yield the fields of a block that are neither content nor a call, but have to be counted and searched."""

    def is_pinned(self, block: object) -> bool:  # noqa: ARG002 - the signature of all formats
        """Return whether a block must never be dropped."""
        return False

    def continues(self, message: object, run: Sequence[object]) -> bool:  # noqa: ARG002 - the signature of all formats
        """Return whether a message continues the message that the `run` of messages before it forms.

        The messages are then read and sent as one, so that no cut separates them.
        """
        return False

    def belongs(self, artifact: Artifact, last: Artifact) -> bool:
        """Return whether an artifact is written into the same message as the previous artifact."""
        fragment, before = artifact.source, last.source
        if isinstance(fragment, Fragment) and isinstance(before, Fragment) and before.occurrence is fragment.occurrence:
            return True
        return self.joins(artifact, last)

    def joins(self, artifact: Artifact, last: Artifact) -> bool:
        """Return whether two consecutive artifacts from different messages are written into one message."""
        return artifact.kind is last.kind is Kind.TOOL

    def merged(self, groups: list[list[Artifact]]) -> list[list[Artifact]]:
        """Return the groups of artifacts that are written into one message each. By default, change nothing."""
        return groups

    @abstractmethod
    def left_of(self, block: object) -> object:
        """Return a block without the empty parts that the API refuses; `REMOVED` if nothing is left.

        A block without empty parts is returned itself.
        """

    @abstractmethod
    def created(self, artifact: Artifact) -> list[object]:
        """Return the blocks for an artifact that a stage added: a summary, or a substitute for a missing result."""

    def with_blocks(self, message: object, blocks: list[object]) -> object:
        """Return a copy of a message with other blocks."""
        return copy_with(message, {(self.field,): blocks})

    def last_stage(self, draft: Draft) -> Draft:
        """Leave out empty texts, because the API refuses them, also in messages of the caller.

        A message in which nothing else is left gets the text "…".
        """
        draft = fill_nulls(draft, LEFT_OUT)
        emptied = {id(a) for a in draft.artifacts if a.origin is not None and a.origin.text.strip()}
        return draft.revise(
            map(self._filled, draft.artifacts),
            action="repaired",
            actions=dict.fromkeys(emptied, "bounded"),
            reason=dict.fromkeys(emptied, "nothing is left of it, and the API refuses that"),
            otherwise="the API refuses empty texts",
        )

    def _filled(self, artifact: Artifact) -> Artifact:
        """Return an artifact without empty texts. The blocks decide, because an empty text may stand for no block."""
        content, fragment = artifact.content, artifact.source
        texts = (content,) if isinstance(content, str) else [part.text for part in content if part.text is not None]
        is_ours = isinstance(fragment, Fragment)
        if all(map(str.strip, texts)) or (artifact.kind is Kind.SYSTEM and not is_ours):
            return artifact  # nearly every message, and the texts of the request outside the history
        said = "" if isinstance(content, str) else tuple(map(_without_blank, content))
        if self.fills_results and artifact.kind is Kind.TOOL and texts and not any(map(str.strip, texts)):
            said = LEFT_OUT
        if isinstance(fragment, Fragment):
            blocks = [*self._blocks(artifact)]
            left = [block for block in map(self.left_of, blocks) if block is not REMOVED]
            is_nothing, is_same = not left and fragment.is_whole, are_same_objects(left, blocks)
        else:  # a stage added it
            is_nothing, is_same = not any(map(str.strip, texts)), said == content
        if is_nothing and not artifact.calls and artifact.kind is not Kind.TOOL:
            return artifact.revised(content=_left_out(artifact))
        return artifact if is_same else artifact.revised(content=said)

    def _turns(self, native: object) -> Sequence[object]:
        """Return the messages, in which those that continue each other are joined (see `continues`)."""
        messages = self.messages(native)
        runs: list[list[object]] = []
        for message in messages:
            if runs and self.continues(message, runs[-1]):
                runs[-1].append(message)
            else:
                runs.append([message])
        if len(runs) == len(messages):
            return messages
        joined = iter(self._joined.read([tuple(run) for run in runs if len(run) > 1]))
        return [run[0] if len(run) == 1 else next(joined) for run in runs]

    def join(self, run: Sequence[object]) -> object:
        """Return one message with the blocks of several messages."""
        return self.with_blocks(run[0], [block for message in run for _, block in self.placed(message)])

    def _prompt(self, native: object) -> Sequence[object]:
        """Return a list with the system prompt as a message, cached by content; an empty list if there is no prompt."""
        content = self.prompt(native) if isinstance(native, Mapping) else None
        return self._prompts.read([content]) if content else []

    def read_message(self, message: object) -> tuple[Artifact, ...]:
        """Return the artifacts of one message."""
        placed = self.placed(message)
        role = self.role(message)
        answering = placed if role in self.result_roles else []
        results = [n for n, (_, block) in enumerate(answering) if self.result(block) is not None]
        rest = [number for number in range(len(placed)) if number not in results]
        groups = [*((number,) for number in results), *(self.runs(rest, placed, role) if rest or not placed else [])]
        return tuple([self._view(part, placed).artifact(part) for part in split_message(message, groups)])

    def _view(self, fragment: Fragment, placed: Sequence[PlacedBlock]) -> MessageView:
        role = self.role(fragment.message)
        own = [placed[number] for number in fragment.indexes]
        read = [self.blocks.read_part(block, path) for path, block in own]
        said = list(chain.from_iterable(read))
        fields = [f for (at, one), held in zip(own, read, strict=True) for f in self.block_fields(one, at, role, held)]
        if 0 in fragment.indexes or not fragment.indexes:
            # fields of the message as a whole belong to its first block
            whole = extra_fields(fragment.message, own=self.own) if self.field_of(fragment.message) is not None else ()
            fields += [((), replace(field, editable=False)) for _, field in whole]
        if own and role in self.result_roles and self.result(own[0][1]) is not None:
            path, block = own[0]
            identity, at, name = self.answered(block, path)
            answers = identity if isinstance(identity, str) else None
            return MessageView(Kind.TOOL, said, tool_call_id=answers, tool_call_id_at=at, name=name, fields=fields)
        return MessageView(
            self.kinds.get(role, Kind.ASSISTANT),
            said,
            self.calls(own),
            role=None if role in self.kinds else role,
            pinned=any(self.is_pinned(block) for _, block in own),
            fields=fields,
        )

    def field_of(self, message: object) -> object:
        """Return the content of a message; None if `message` is bare content without a role."""
        return get(message, self.field)

    def _message(self, group: list[Artifact]) -> object:
        """Return the message that consists of these artifacts.

        If they are all artifacts of one message, and none was changed, it is the original object.
        """
        first = group[0]
        sources = [artifact.source for artifact in group if isinstance(artifact.source, Fragment)]
        # the common case, detected without writing anything: one fragment, all of the message, unchanged
        if len(group) == 1 and sources and first.origin is None and sources[0].is_whole:
            return sources[0].message
        written = [block for artifact in group for block in self._written(artifact)]
        if sources and len({id(source.occurrence) for source in sources}) == 1 and len(sources) == len(group):
            message = sources[0].message
            was = [block for _, block in self.placed(message)]
            is_unchanged = bool(written) and are_same_objects(written, was)
            return message if is_unchanged else self.with_blocks(message, self.valid(written))
        role = next((role for role, kind in self.kinds.items() if kind is first.kind), "user")
        return self.made(role, self.valid(written))

    def made(self, role: str, blocks: list[object]) -> object:
        """Return a new message."""
        return {"role": role, self.field: blocks}

    def valid(self, blocks: list[object]) -> list[object]:
        """Return the blocks, or the text "…" if there are none, because the API rejects an empty message."""
        return blocks or self.created(Artifact(Kind.USER, LEFT_OUT))

    def _written(self, artifact: Artifact) -> Iterator[object]:
        """Yield the blocks of an artifact; unchanged blocks remain the same objects.

        Empty texts are left out of an artifact that a stage changed.
        """
        is_changed = artifact.origin is not None and isinstance(artifact.source, Fragment)
        for block in self._blocks(artifact):
            left = self.left_of(block) if is_changed else block
            if left is not REMOVED:
                yield left

    def _blocks(self, artifact: Artifact) -> Iterator[object]:
        """Yield the blocks of an artifact with the changes of stages, including empty texts and `REMOVED` blocks."""
        fragment = artifact.source
        if not isinstance(fragment, Fragment):
            yield from self.created(artifact)
            return
        placed = self.placed(fragment.message)
        changes = by_index(dict(self.changes(artifact, fragment, placed))) if artifact.origin else {}
        for number in fragment.indexes:
            block, new = placed[number][1], changes.get(number, {})
            if new.get(()) == LEFT_OUT and not isinstance(block, str):  # the whole block was replaced
                yield from self.created(Artifact(Kind.USER, LEFT_OUT))
            else:
                yield copy_with(block, new)

    def changes(
        self, artifact: Artifact, fragment: Fragment, placed: Sequence[PlacedBlock]
    ) -> Iterator[tuple[Path, object]]:
        """Yield the changes of an artifact as `(path, value)`; a path begins with the index of the block."""
        for (_, *inner), new in self._view(fragment, placed).changes(artifact).items():
            yield cast("Path", tuple(inner)) or (0,), new  # content that is a single string counts as one block


def _left_out(artifact: Artifact) -> str | tuple[Part, ...]:
    """Return the content of a message in which nothing is left: "…", in place of a part that `FitCalls` dropped."""
    was = artifact.root.content
    if isinstance(was, str) or isinstance(artifact.content, str):
        return LEFT_OUT
    dropped = next((n for n, part in enumerate(was) if part.half is not None), None)
    if dropped is None or len(was) != len(artifact.content):
        return LEFT_OUT
    return tuple(Part("text", LEFT_OUT) if n == dropped else part for n, part in enumerate(artifact.content))


def _without_blank(part: Part) -> Part:
    is_blank = part.kind == "text" and part.text is not None and not part.text.strip()
    return replace(part, text="") if is_blank else part
