"""Images from `read_file`, in the form that PydanticAI takes."""

from __future__ import annotations

from pydantic_ai import BinaryContent as NativeContent

from ctxguard.files import BinaryContent


class Attachment(NativeContent, BinaryContent):
    """A `BinaryContent` of both ctxguard and PydanticAI, for a prompt or as the result of a tool."""

    media_type: str = ""  # a field, not a property as in the core: PydanticAI sets it

    def __init__(self, data: bytes, mime_type: str, width: int | None = None, height: int | None = None) -> None:
        NativeContent.__init__(self, data=data, media_type=mime_type)
        for name, value in (("mime_type", mime_type), ("width", width), ("height", height)):
            object.__setattr__(self, name, value)

    def __repr__(self) -> str:
        return f"Attachment({self.mime_type!r}, {self.width}x{self.height} pixels, {len(self.data)} bytes)"
