"""Fuzzing targets: one for each parser of hostile input, from bytes to an assertion.

Each takes any bytes: the first says how the rest is cut into pieces. `test_targets.py` feeds them with Hypothesis,
`fuzz.py` with a fuzzer that follows coverage; both begin with the seeds below.
"""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Callable, Iterator

from test_value_edges import ENCODINGS, VALUES

from ctxguard.errors import WireError
from ctxguard.pii import STANDARD, Masker, Span
from ctxguard.pii.detect.normalize import PlainText, view_of, views_of
from ctxguard.pii.mask.json_text import is_json, json_tokens, rewrite_json
from ctxguard.views.processors.tree import parse_start
from ctxguard.wire.events import Frames, ServerSentEvents
from ctxguard.wire.replies import as_json

MASKER = Masker(STANDARD)
PSEUDONYMS = Masker(STANDARD, strategy="pseudonymize")
MOST = 200
"""Bytes of the largest event that the target takes."""
VALUES_OF_ALL = [value for values in VALUES.values() for value in values]


def text_of(data: bytes) -> tuple[int, str]:
    """Return the size of pieces, and a text of any characters, lone surrogates and NUL among them."""
    return 1 + (data[0] if data else 0) % 23, data[1:].decode(
        "utf-8", "surrogateescape" if len(data) % 2 else "replace"
    )


def pieces_of(whole, size: int) -> Iterator:
    return (whole[at : at + size] for at in range(0, len(whole), size))


def normalization(data: bytes) -> None:
    r"""Every place of every view is a place of the text, in the same order, and a normalized text stays as it is.

    Not one in which the beginning of an escape or a placeholder is left: a full-width backslash is read as a backslash,
    which may then escape what follows, and `<E\u200bMAIL_1>` without its invisible character is a placeholder.
    """
    _, text = text_of(data)
    seen = view_of(text).text
    if not set("\\%&<[") & set(seen):
        assert view_of(seen).text == seen
    for view in views_of(text):
        if type(view) is PlainText:  # one without escapes
            assert len(view.text) == len(text)
        step = 1 + len(view.text) // 50
        spans = [Span(at, min(at + step, len(view.text)), "X") for at in range(0, len(view.text), step)]
        places = [(span.start, span.end) for span in view.originals(spans)]
        assert all(0 <= start <= end <= len(text) for start, end in places)
        assert [start for start, _ in places] == sorted(start for start, _ in places)


def masking(data: bytes) -> None:
    """What is masked holds nothing that a rule finds, JSON stays JSON, and masking it again changes nothing."""
    _, text = text_of(data)
    masked = MASKER.mask(text)
    assert MASKER.mask(masked) == masked
    assert is_json(masked) or not is_json(text)


def strings_of(text: str) -> list[str]:
    """Read the strings and numbers of a JSON text in their order, by the parser of the standard library."""
    found: list[str] = []

    def walk(value: object) -> None:
        if isinstance(value, list):
            for one in value:
                if isinstance(one, tuple):
                    found.append(one[0])
                    walk(one[1])
                else:
                    walk(one)
        elif isinstance(value, str):
            found.append(value)

    walk(
        json.loads(
            text, strict=False, object_pairs_hook=list, parse_int=str, parse_float=str, parse_constant=lambda _: None
        )
    )
    return found


def json_strings(data: bytes) -> None:
    """The tokens of a JSON text are its strings and numbers; what is not changed stays, and a change stays JSON."""
    _, text = text_of(data)
    if not is_json(text):
        return
    tokens = list(json_tokens(text))
    assert [str(token.value) for token in tokens] == strings_of(text)
    assert rewrite_json(text, lambda token: token.value, tokens) == text
    changed = rewrite_json(text, lambda token: f'"\\{token.value}\n' if not token.is_number else token.value, tokens)
    expected = [str(t.value) if t.is_number else f'"\\{t.value}\n' for t in tokens]
    # an escaped half of a pair and a bare one behind it become one character
    assert [*map(_units, strings_of(changed))] == [*map(_units, expected)]


def _units(text: str) -> bytes:
    return text.encode("utf-16", "surrogatepass")


def events_of(pieces, most: int = MOST, cut: type = ServerSentEvents) -> tuple[list[bytes], bytes | None]:
    splitter, found = cut(most), []
    try:
        for piece in pieces:
            found += splitter.feed(piece)
    except WireError:
        return found, None
    return found, splitter.close()


def events(data: bytes) -> None:
    """Events are the same in whatever pieces a stream comes, no byte is lost, and data that is written is read back."""
    size, stream = 1 + (data[0] if data else 0) % 23, data[1:]
    found, rest = events_of(pieces_of(stream, size), most=len(stream) + 1)
    assert (found, rest) == events_of([stream], most=len(stream) + 1)
    assert rest is not None
    assert b"".join([*found, rest]) == stream.removeprefix(b"\xef\xbb\xbf")
    bounded, _ = events_of(pieces_of(stream, size))
    assert bounded == found[: len(bounded)]
    for event in found:
        assert ServerSentEvents.data_of(event) is None or ServerSentEvents.data_of(
            ServerSentEvents.with_data(event, b'{"a": 1}')
        ) == {"a": 1}


def framed(kind: bytes, payload: bytes) -> bytes:
    """Return a frame of Amazon's event streams; nobody looks at its checksums."""
    headers = b"\x0b:event-type\x07" + len(kind).to_bytes(2) + kind
    length = 16 + len(headers) + len(payload)
    return length.to_bytes(4) + len(headers).to_bytes(4) + bytes(4) + headers + payload + bytes(4)


def frames(data: bytes) -> None:
    """Frames are the same in whatever pieces a stream comes, no byte is lost, and an event that is written is read back."""
    size, rest = 1 + (data[0] if data else 0) % 23, data[1:]
    wrapped = b'{"bytes": "' + b64encode(rest) + b'"}'
    stream = framed(b"chunk", wrapped) + framed(rest[:9], b'{"a": 1}') + framed(b"messageStop", rest) + rest
    found, left = events_of(pieces_of(stream, size), len(stream), Frames)
    assert (found, left) == events_of([stream], len(stream), Frames)
    assert len(found) >= 3
    assert left is None or b"".join([*found, left]) == stream
    for frame in found:
        event = Frames.data_of(frame)
        assert event is None or repr(Frames.data_of(Frames.with_data(frame, as_json(event)))) == repr(event)


def is_start(tree: object, whole: object) -> bool:
    """Tell whether a tree is what there is of another one that was cut off."""
    if isinstance(tree, list) and isinstance(whole, list):
        return len(tree) <= len(whole) and all(map(is_start, tree, whole))
    if isinstance(tree, dict) and isinstance(whole, dict):
        return all(key in whole and is_start(value, whole[key]) for key, value in tree.items())
    return repr(tree) == repr(whole)


def cut_off_json(data: bytes) -> None:
    """The start of a text is a tree or a ValueError; of a JSON text it is a start of the whole tree."""
    size, text = text_of(data)
    try:
        whole = json.loads(text, object_pairs_hook=unique, parse_int=str, parse_float=str) if is_json(text) else None
    except ValueError:
        whole = None  # of a key that stands twice, the last value counts; a start may hold the first
    for end in {len(text), len(text) // 2, max(0, len(text) - size)}:
        try:
            tree = parse_start(text[:end])
        except ValueError:
            continue
        assert whole is None or is_start(tree, whole)


def unique(pairs: list[tuple[str, object]]) -> dict[str, object]:
    if len({key for key, _ in pairs}) < len(pairs):
        raise ValueError("a key stands twice")
    return dict(pairs)


def placeholders(data: bytes) -> None:
    """A stream gives back in pieces what the whole text gives back, and nothing for placeholders that were never given."""
    size, text = text_of(data)
    session = PSEUDONYMS.session()
    session.text(f"{VALUES_OF_ALL[0]} and {VALUES_OF_ALL[2]}")
    assert "".join(session.unmask_stream().over(pieces_of(text, size))) == "".join(session.unmask_stream().over([text]))
    for arguments in (False, True):
        stream = session.unmask_stream(arguments=arguments)
        out = "".join(stream.over(pieces_of(text, size)))
        other = session.unmask_stream(arguments=arguments)
        assert out == "".join(other.over([text]))
        assert stream.unknown == other.unknown
    fresh = PSEUDONYMS.session()
    assert fresh.unmask(text) == text
    assert fresh.unmask_arguments(text) == text
    masked = session.text(text)
    session.unmask(masked)
    session.unmask_arguments(masked)


TARGETS: dict[str, Callable[[bytes], None]] = {
    target.__name__: target
    for target in (normalization, masking, json_strings, events, frames, cut_off_json, placeholders)
}
_FRAMES = [
    'data: {"text": "%s"}\n\n',
    "\ufeffdata: %s\r\n\r\nid: 1\rdata: [DONE]\r\r",
    '{"a": ["%s", -1.5e3, {"b\\u00e9": null}], "a": "\\ud83d"}',
    '[[[{"k": "%s',
    "<EMAIL_1> %s <SSN_1_00> <CARD_4111111111111111> [REDACTED_EMAIL]",
    '{"to": "<EMAIL_1>", "n": "<SSN_1>", "%s": "\\u003cEMAIL_1\\u003e"}',
]


def seeds() -> list[bytes]:
    """Return the values of the other tests here in every encoding, and in what the parsers read."""
    texts = [encode(value) for value in VALUES_OF_ALL for encode in ENCODINGS.values()]
    texts += [frame % value for frame in _FRAMES for value in VALUES_OF_ALL]
    return [b"\x04" + text.encode() for text in dict.fromkeys(texts)]
