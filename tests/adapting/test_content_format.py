"""A content of typed parts is read by the adapter's table, in order, each piece with its place."""

from __future__ import annotations

import pytest

from ctxguard.adapting.content_format import ContentFormat, read_audio, read_file, read_image, text_reader, with_titles
from ctxguard.artifacts import Part
from ctxguard.errors import HistoryError
from ctxguard.tokens import ArtifactCounter, find_counter

COUNT = ArtifactCounter(find_counter("estimate"))
FORMAT = ContentFormat(
    {
        None: text_reader("text"),
        "text": text_reader("text"),
        "thought": text_reader("words", "reasoning"),
        "image": read_image,
        "sound": read_audio,
        "file": with_titles(read_file),
    },
    noun="block",
)


def test_pieces_stand_in_order_with_their_places():
    content = ["a", {"type": "thought", "words": "b"}, {"text": "c"}]
    assert FORMAT.read(content, ("content",)) == [
        (("content", 0), Part("text", "a")),
        (("content", 1, "words"), Part("reasoning", "b")),
        (("content", 2, "text"), Part("text", "c")),
    ]
    assert FORMAT.read("a", ("content",)) == [(("content",), Part("text", "a"))]
    assert FORMAT.read(None, ("content",)) == FORMAT.read("", ("content",)) == []


@pytest.mark.parametrize("kind", ["hologram", 5, {"name": "text"}])
def test_a_type_that_nobody_knows_is_counted_and_has_no_place(kind):
    ((path, part),) = FORMAT.read([{"type": kind, "text": "a"}], ())
    assert (path, part.kind, part.text) == ((), "opaque", None)
    assert part.tokens


def test_another_rule_may_hold_for_what_is_unknown():
    lenient = ContentFormat({}, unknown=text_reader("text"))
    assert lenient.read([{"type": "hologram", "text": "a"}], ()) == [((0, "text"), Part("text", "a"))]


def test_a_text_that_is_none_is_named_with_its_place():
    with pytest.raises(HistoryError, match=r"^content\[0\].words must be a text, not list$"):
        FORMAT.read([{"type": "thought", "words": []}], ("content",))
    with pytest.raises(HistoryError, match=r"^content must be a text or a list of blocks, not int$"):
        FORMAT.read(5, ("content",))


@pytest.mark.parametrize(
    "held",
    [{"data": "A" * 320_000}, {"source": {"base64": "A" * 320_000}}, {"file": {"file_data": "A" * 320_000}}],
    ids=lambda held: next(iter(held)),
)
def test_media_are_counted_by_their_data_wherever_it_stands(held):
    for kind in ("sound", "file"):
        ((_, link),) = FORMAT.read([{"type": kind, "url": "u"}], ())
        ((path, part),) = FORMAT.read([{"type": kind, **held}], ())
        assert path == (0,), "the whole part, in whose place a text may be written"
        assert COUNT.part(part) > 10
        assert COUNT.part(part) != COUNT.part(link)


@pytest.mark.parametrize(
    "image",
    [{"image_url": "u", "detail": "low"}, {"image_url": {"url": "u", "detail": "low"}}, {"url": "u", "detail": "low"}],
)
def test_an_image_in_low_detail_costs_the_same_in_every_spelling(image):
    ((_, part),) = FORMAT.read([{"type": "image", **image}], ())
    assert (part.kind, COUNT.part(part)) == ("image", 85)


def test_names_stand_behind_what_they_name():
    slots = FORMAT.read([{"type": "file", "url": "u", "title": "t", "context": None}], ())
    assert [(path, part.text) for path, part in slots] == [((0,), None), ((0, "title"), "t")]
