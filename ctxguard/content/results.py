"""Save large tool results and return previews in their place; read lines of saved results."""

from __future__ import annotations

import asyncio
import dataclasses
import functools
import hashlib
import inspect
import json
import os
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, ParamSpec, TypeAlias, TypeVar, cast, overload

from ctxguard.config import ContextConfig, TruncationConfig, get_truncation_config
from ctxguard.config.loading import chosen_config
from ctxguard.content.opening import decode, find_encoding
from ctxguard.errors import ConfigError, StoreError
from ctxguard.settings import instance, opened
from ctxguard.tokens import find_counter
from ctxguard.views.bounding import bound, measure, show
from ctxguard.views.detection import detect
from ctxguard.views.views import Count, FileType, Source, TruncationInfo

if TYPE_CHECKING:
    from ctxguard.stores import Store
    from ctxguard.tokens import TokenCounter


P = ParamSpec("P")
R = TypeVar("R")

NAMESPACE: Final = "tool-output"
"""Namespace of full results in a store. `BoundToolOutput` uses the same one for full tool outputs."""
_HANDLE: Final = re.compile("[a-p]{20}")
_SUFFIXES: Final = {
    **dict.fromkeys((FileType.CODE, FileType.SNAPSHOT, FileType.TEXT), "txt"),
    FileType.CONSOLE: "log",
    FileType.MARKDOWN: "md",
}
"""Extensions of the files in a workspace. For types that are not listed, the extension is the name of the type."""
_LETTERS: Final = bytes.maketrans(b"0123456789abcdef", b"ghijklmnopabcdef")
_MEMORY: Final = 256_000_000  # maximum bytes of the store in memory
_FEW_LINES: Final = 4  # JSON with no more lines than this is indented, so that lines of it can be read


@dataclass(frozen=True, slots=True)
class _Folder:
    """Saves results as files in a folder. Only their owner can read them, and `file_type` decides their extension."""

    path: Path
    file_type: FileType | None = None

    def get(self, namespace: str, key: str) -> bytes | None:  # noqa: ARG002 - the signature of a store
        """Return the result that was saved under the handle `key`. Links and other files in the folder are not read."""
        if not _HANDLE.fullmatch(key):
            return None
        try:
            saved = (file for file in self.path.glob(f"{key}.*") if not file.is_symlink() and file.is_file())
            data = next((file.read_bytes() for file in saved), None)
        except OSError as error:
            raise _store_error(self.path, error) from None
        return data if data is not None and handle_of(data) == key else None

    def put_new(self, namespace: str, key: str, value: bytes) -> bytes:  # noqa: ARG002 - the signature of a store
        suffix = _SUFFIXES.get(self.file_type or FileType.TEXT, self.file_type or "txt")
        try:
            self.path.mkdir(parents=True, exist_ok=True, mode=0o700)
            descriptor = os.open(self.path / f"{key}.{suffix}", os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with os.fdopen(descriptor, "wb") as out:
                out.write(value)
        except FileExistsError:  # the key is a hash of the value, so the file has the same content
            if not self.path.is_dir():
                raise StoreError(f"workspace {self.path} is not a folder; name a folder") from None
        except OSError as error:
            raise _store_error(self.path, error) from None
        return value


def _store_error(path: Path, error: OSError) -> StoreError:
    return StoreError(f"workspace {path} cannot be used: {(error.strerror or str(error)).lower()}; name another folder")


_Place: TypeAlias = "Store | _Folder"


@dataclass(frozen=True, slots=True)
class _Preview:
    """Settings by which the results of one function are saved and shown. `saves` is None if they are not saved."""

    truncation: TruncationConfig
    count: Count
    saves: Callable[[FileType], _Place] | None

    def of(self, result: object) -> object:
        """Return the result itself, or a handle and a preview if the result exceeds the threshold."""
        written = _serialize(result)
        if written is None:
            return result
        text, data, file_type = written
        measured = measure(text, self.truncation.threshold, self.count)
        if measured.tokens <= self.truncation.threshold:
            return result
        detected = file_type or detect(text)
        handle = None if self.saves is None else handle_of(data)
        if handle is not None and self.saves is not None:
            self.saves(detected).put_new(NAMESPACE, handle, data)
        return self._show(text, detected, handle, measured.tokens)

    def _show(self, text: str, file_type: FileType, handle: str | None, tokens: int) -> str:
        most = self.truncation.max_preview_tokens
        size = f"{len(text)} characters"
        available = most - self.count(_head(handle, file_type, size, tokens)) - 4
        if available < 16:
            return bound(f"[handle {handle}]\n{text}" if handle else text, most, count=self.count).content
        while True:
            view = show(Source(text), file_type, max(1, available), self.count, limits=self.truncation.limits())
            shown = _head(handle, file_type, _size(view.info) or size, tokens) + view.content
            excess = self.count(shown) - most
            if excess <= 0 or available <= 0:
                return shown
            available -= excess


def _head(handle: str | None, file_type: FileType, size: str, tokens: int) -> str:
    saved = f"result saved, handle {handle}" if handle else "result shortened"
    return f"[{saved}: {file_type.value}, {size}, about {tokens} tokens; preview]\n"


def _size(info: TruncationInfo) -> str:
    totals = ((info.rows_total, "rows"), (info.lines_total, "lines"), (info.items_total, "entries"))
    return next((f"{total} {what}" for total, what in totals if total is not None), "")


@overload
def context_result(preset: Callable[P, R], /) -> Callable[P, R | str]: ...
@overload
def context_result(
    preset: str | TruncationConfig = "default",
    *,
    save: bool = True,
    store: Store | None = None,
    workspace: Path | str | None = None,
    counter: str | TokenCounter | Callable[[str], int] = "auto",
    config: ContextConfig | None = None,
) -> Callable[[Callable[P, R]], Callable[P, R | str]]: ...
def context_result(
    preset: object = "default",
    *,
    save: bool = True,
    store: Store | None = None,
    workspace: Path | str | None = None,
    counter: str | TokenCounter | Callable[[str], int] = "auto",
    config: ContextConfig | None = None,
) -> object:
    """Decorate a tool, sync or async, so that a large result is saved in full and replaced by a handle and a preview.

    Strings, bytes, dicts, lists, pydantic models, dataclasses, and data frames are previewed. Other results, and
    results within the preset's threshold, are returned unchanged. The function's name, signature, and annotations are
    kept, so that decorators of frameworks can be applied on top.

    Args:
        preset: A truncation preset, or the name of one.
        save: Whether results are saved; if not, only the preview is returned.
        store: Store for the results. If it is None, they are saved in `workspace`. Without a workspace, they are saved
            in the store of the configuration. If that has none, they are saved in memory, in a store of 256 MB for the
            whole process, from which the oldest results are evicted.
        workspace: Folder in which results are saved as files, instead of a store.
        counter: The token counter, as for `ctxguard.tokens.find_counter`.
        config: The configuration with the presets and the store; None means `load_context_config()`.

    Raises:
        ConfigError: If there is no such preset, the store is not open, or the function is a generator.
    """
    if callable(preset):
        return context_result()(cast("Callable[..., object]", preset))
    named = get_truncation_config(preset, config=config) if isinstance(preset, str) else preset
    truncation = instance(named, TruncationConfig, "preset")
    saves = functools.partial(_place, opened(store), workspace, config) if save else None
    preview = _Preview(truncation, find_counter(counter).count, saves)
    return functools.partial(_decorate, preview)


def _decorate(preview: _Preview, function: Callable[..., object]) -> Callable[..., object]:
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        name = getattr(function, "__name__", "it")
        raise ConfigError(f"context_result bounds what a function returns, and {name} yields; collect its items first")
    if inspect.iscoroutinefunction(function):

        @functools.wraps(function)
        async def asynchronous(*args: object, **kwargs: object) -> object:
            result = await function(*args, **kwargs)
            return await asyncio.to_thread(preview.of, result)

        return asynchronous

    @functools.wraps(function)
    def synchronous(*args: object, **kwargs: object) -> object:
        return preview.of(function(*args, **kwargs))

    return synchronous


RECALL_SCHEMA: Final[dict[str, object]] = {
    "name": "recall",
    "description": "Read lines of a result that was shortened.",
    "parameters": {
        "type": "object",
        "properties": {
            "handle": {"type": "string", "description": "The handle that the shortened result names."},
            "first_line": {"type": "integer", "description": "First line to read, counted from 1."},
            "last_line": {"type": "integer", "description": "Last line to read; leave it out to read on."},
            "contains": {"type": "string", "description": "Read only lines that contain this text."},
        },
        "required": ["handle"],
    },
}
"""The function that `recall_tool` returns, as JSON Schema for requests that are built without a framework."""


def recall_tool(
    store: Store | None = None,
    *,
    workspace: Path | str | None = None,
    max_tokens: int = 2_000,
    counter: str | TokenCounter | Callable[[str], int] = "auto",
) -> Callable[..., str]:
    """Return a function `recall(handle, first_line, last_line, contains)` to register as a tool for a model.

    Args:
        store: Store in which the results were saved; None means the same as for `context_result`.
        workspace: Folder in which the results were saved.
        max_tokens: Maximum number of tokens that one call returns.
        counter: The token counter, as for `ctxguard.tokens.find_counter`.
    """
    count, store = find_counter(counter).count, opened(store)

    def recall(handle: str, first_line: int = 1, last_line: int | None = None, contains: str | None = None) -> str:
        """Read lines of a result that was shortened.

        Args:
            handle: The handle that the shortened result names.
            first_line: First line to read, counted from 1.
            last_line: Last line to read; leave it out to read as many lines as one call returns.
            contains: Read only lines that contain this text.
        """
        name = handle if isinstance(handle, str) else ""
        data = _place(store, workspace, None).get(NAMESPACE, name) if _HANDLE.fullmatch(name) else None
        if data is None:
            return f"[nothing is saved under handle {name if name.isalnum() and len(name) < 80 else repr(handle)[:80]}]"
        if type(first_line) is not int or type(last_line) not in (int, type(None)):  # models may pass anything
            return "[first_line and last_line must be line numbers, counted from 1]"
        return _slice(data, first_line, last_line, contains, max_tokens=max_tokens, count=count)

    return recall


def recall(
    handle: str,
    first_line: int = 1,
    last_line: int | None = None,
    contains: str | None = None,
    *,
    store: Store | None = None,
    workspace: Path | str | None = None,
    max_tokens: int = 2_000,
) -> str:
    """Return lines of a saved result within a token limit, or one line that says that there is no such result.

    JSON that was saved in a few long lines is indented first. Line numbers refer to the indented text.

    Args:
        handle: The handle in the preview.
        first_line: First line to return, counted from 1.
        last_line: Last line to return; None means as many lines as the token limit allows.
        contains: Text that the returned lines contain; None means any lines.
        store: Store in which the result was saved; None means the same as for `context_result`.
        workspace: Folder in which the result was saved.
        max_tokens: Maximum number of tokens to return.
    """
    tool = recall_tool(store, workspace=workspace, max_tokens=max_tokens)
    return tool(handle, first_line, last_line, contains)


def handle_of(content: str | bytes) -> str:
    """Return the handle of some content: a hash of 20 letters, because masking rules might match digits."""
    data = content.encode("utf-8", "surrogatepass") if isinstance(content, str) else content
    return hashlib.blake2b(data, digest_size=10).hexdigest().encode().translate(_LETTERS).decode()


def _slice(data: bytes, first: int, last: int | None, contains: str | None, *, max_tokens: int, count: Count) -> str:
    lines = _lines(decode(data, find_encoding(data)))
    numbered = list(enumerate(lines, 1))[max(0, first - 1) : last]
    if contains is not None:
        numbered = [(number, line) for number, line in numbered if contains in line]
    if not numbered:
        return f"[no such lines; there are {len(lines)}]"
    taken, available = 0, max_tokens - 32
    for _, line in numbered:
        available -= count(line[: max_tokens * 16]) + 1
        if available < 0:
            break
        taken += 1
    shown = numbered[: max(1, taken)]
    body = "\n".join(f"{number}: {line}" if contains is not None else line for number, line in shown)
    rest = f"; go on with first_line={shown[-1][0] + 1}" if len(shown) < len(numbered) else ""
    head = f"[lines {shown[0][0]}-{shown[-1][0]} of {len(lines)}{rest}]\n"
    return bound(head + body, max_tokens, count=count, file_type=FileType.TEXT).content


def _lines(text: str) -> Sequence[str]:
    lines = text.splitlines()
    if len(lines) <= _FEW_LINES and len(text) > 400 and text.lstrip()[:1] in ("{", "["):
        with suppress(ValueError, RecursionError):  # if it is not JSON after all, its own lines are used
            return json.dumps(json.loads(text), indent=1, ensure_ascii=False).splitlines()
    return lines


def _place(
    store: Store | None,
    workspace: Path | str | None,
    config: ContextConfig | None,
    file_type: FileType | None = None,
) -> _Place:
    """Return where results are saved: in `store`, in the folder `workspace`, or else in the configuration's store."""
    if store is not None:
        return store
    if workspace is not None:
        return _Folder(Path(workspace), file_type)
    return _shared_store(chosen_config(config).stabilizer.store)


@functools.lru_cache(maxsize=8)
def _shared_store(url: str | None) -> Store:
    from ctxguard.stores import open_store

    return open_store(url or ":memory:", max_bytes=None if url else _MEMORY)


def _serialize(result: object) -> tuple[str, bytes, FileType | None] | None:
    """Return a result as text, as the bytes to save, and its type if that is known.

    It returns None for results that are not previewed.
    """
    if isinstance(result, str):
        return result, result.encode("utf-8", "surrogatepass"), None
    if isinstance(result, bytes | bytearray):
        return _of_bytes(bytes(result))
    frame = getattr(result, "write_csv", None) or getattr(result, "to_csv", None)
    if frame is not None and hasattr(result, "columns") and not isinstance(result, type):
        text = _frame_text(result, frame)
        return text, text.encode(), FileType.CSV
    if _is_data(result):
        try:
            text = json.dumps(_plain(result), ensure_ascii=False, default=_plain, skipkeys=True)
        except (
            TypeError,
            ValueError,
            RecursionError,
        ):  # cyclic or too deep: no framework can send it either
            return None
        return text, text.encode("utf-8", "surrogatepass"), FileType.JSON
    return None


def _of_bytes(data: bytes) -> tuple[str, bytes, FileType | None]:
    encoding = find_encoding(data)
    if encoding == "utf-8" or encoding.startswith("utf-"):
        return decode(data, encoding), data, None
    return f"{len(data)} bytes, starting with {data[:4096].hex(' ')}\n", data, FileType.TEXT


def _frame_text(frame: object, write: Callable[..., str]) -> str:
    """Return a data frame as CSV. The index of a pandas frame is included unless it only numbers the rows."""
    if hasattr(frame, "write_csv"):
        return write()
    return write(index=type(getattr(frame, "index", None)).__name__ != "RangeIndex")


def _is_data(result: object) -> bool:
    is_plain = isinstance(result, Mapping | list | tuple | set | frozenset) or dataclasses.is_dataclass(result)
    return not isinstance(result, type) and (is_plain or hasattr(result, "model_dump"))


def _plain(value: object) -> object:
    """Convert a value to one that JSON allows: a dict or a list if the value has parts, else a string."""
    dump = getattr(value, "model_dump", None)
    if dump is not None and not isinstance(value, type):
        return dump(mode="json")
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return dataclasses.asdict(value)
    if isinstance(value, set | frozenset):
        return sorted(value, key=repr)
    if isinstance(value, Mapping):
        return {str(key): item for key, item in value.items()}
    return list(value) if isinstance(value, list | tuple) else str(value)
