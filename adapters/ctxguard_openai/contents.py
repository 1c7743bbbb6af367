"""The parts of a content: Chat Completions and Responses name the same things differently, and both names are taken."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from ctxguard.adapting.content_format import ContentFormat, read_audio, read_file, read_image, read_unknown, text_reader
from ctxguard.adapting.fields import Path, get
from ctxguard.adapting.message_view import PlacedPart


def _untyped(part: object, path: Path) -> list[PlacedPart]:
    return read_unknown(part, path) if get(part, "text") is None else text_reader("text")(part, path)


def _thinking(part: object, path: Path) -> list[PlacedPart]:
    """Return the parts of Mistral's thinking, which holds parts of its own; signed, it is Anthropic's."""
    if get(part, "signature") is not None:
        return read_unknown(part, path)
    thought = PARTS.read(get(part, "thinking"), (*path, "thinking"))
    return [(place, replace(part, kind="reasoning") if part.kind == "text" else part) for place, part in thought]


PARTS: Final = ContentFormat(
    {
        None: _untyped,
        **dict.fromkeys(("text", "input_text", "output_text"), text_reader("text")),
        **dict.fromkeys(("summary_text", "reasoning_text"), text_reader("text", "reasoning")),
        "refusal": text_reader("refusal", "refusal"),
        "thinking": _thinking,
        **dict.fromkeys(("image_url", "input_image", "computer_screenshot"), read_image),
        "input_audio": read_audio,
        **dict.fromkeys(("file", "input_file"), read_file),
    }
)
