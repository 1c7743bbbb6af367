"""The parts of a content: Chat Completions and Responses name the same things differently, and both names are taken."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from ctxguard.adapting.message_view import Path, Slot, get
from ctxguard.adapting.parts import Dialect, audio_part, file_part, image_part, opaque_part, text_part

__all__ = ["PARTS"]


def _untyped(part: object, path: Path) -> list[Slot]:
    return opaque_part(part, path) if get(part, "text") is None else text_part("text")(part, path)


def _thinking(part: object, path: Path) -> list[Slot]:
    """Return the pieces of Mistral's thinking, which holds parts of its own; signed, it is Anthropic's."""
    if get(part, "signature") is not None:
        return opaque_part(part, path)
    thought = PARTS.slots(get(part, "thinking"), (*path, "thinking"))
    return [(place, replace(piece, kind="reasoning") if piece.kind == "text" else piece) for place, piece in thought]


PARTS: Final = Dialect(
    {
        None: _untyped,
        **dict.fromkeys(("text", "input_text", "output_text"), text_part("text")),
        **dict.fromkeys(("summary_text", "reasoning_text"), text_part("text", "reasoning")),
        "refusal": text_part("refusal", "refusal"),
        "thinking": _thinking,
        **dict.fromkeys(("image_url", "input_image", "computer_screenshot"), image_part),
        "input_audio": audio_part,
        **dict.fromkeys(("file", "input_file"), file_part),
    }
)
