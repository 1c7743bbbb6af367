"""What a tool returns beside its result, and its pictures, never end a run."""

from __future__ import annotations

import base64
import io

import pytest

from ctxguard import Stabilizer

pytest.importorskip("PIL", reason="Pillow is not installed (extra files)")
BUDGET = 2_500
LONG = "data row 17 of ann@example.com, "


def picture():
    from PIL import Image

    out = io.BytesIO()
    Image.new("RGB", (512, 512)).save(out, "PNG")
    return out.getvalue()


def returns(image):
    """Yield what tools return: values, and contents for the model beside them."""
    texts = ("short", LONG * 900)
    contents = [None, *texts, *([text, LONG * 300] for text in texts)]
    contents += [[text, *[image] * count] for text in texts for count in (3, 20)]
    contents += [[*[image] * 20], [image, LONG * 900, image]]
    yield from (("ok", content) for content in contents)
    yield from ((list(content), None) for content in contents if isinstance(content, list))
    yield [*[image] * 20], [LONG * 900, *[image] * 20]


@pytest.mark.parametrize("limit", [None, 300])
def test_no_return_of_a_tool_ends_a_run_of_pydantic_ai(limit):
    pydantic_ai = pytest.importorskip("pydantic_ai")
    from pydantic_ai.messages import ModelResponse, TextPart, ToolCallPart
    from pydantic_ai.models.function import FunctionModel

    from ctxguard_pydantic_ai import ContextGuard

    image = pydantic_ai.BinaryContent(picture(), media_type="image/png")
    for value, content in returns(image):
        seen, reports = [], []

        def model(messages, info, seen=seen):
            seen.append(messages)
            calls = [ToolCallPart("look", {}, f"c{len(seen)}")]
            return ModelResponse(calls if len(seen) < 4 else [TextPart("Done.")])

        guard = ContextGuard(Stabilizer(BUDGET), max_result_tokens=limit, on_report=reports.append)
        agent = pydantic_ai.Agent(FunctionModel(model), capabilities=[guard])

        @agent.tool_plain
        def look(value=value, content=content) -> object:
            return value if content is None else pydantic_ai.ToolReturn(value, content=content)

        result = agent.run_sync("Go.")
        assert result.output == "Done."
        sent = [report for report in reports if report.tool is None]
        assert len(sent) == 4
        assert all(report.ok and report.tokens_after <= BUDGET for report in sent)
        assert "ann@example.com" not in str([getattr(p, "content", "") for ms in seen for m in ms for p in m.parts])
        stored = [part for message in result.all_messages() for part in message.parts]
        beside = [part.content for part in stored if part.part_kind == "user-prompt"][1:]
        if limit is None and content is not None:
            assert beside == [content] * 3, "the history stays as it is"
        elif content is not None:
            count = Stabilizer(BUDGET).counter.counter.count
            texts = [text for one in beside for text in ([one] if isinstance(one, str) else one)]
            assert sum(count(text) for text in texts if isinstance(text, str)) <= 3 * limit


def test_pictures_beside_a_text_are_no_reason_to_end_a_run_of_langchain():
    pytest.importorskip("langchain")
    from langchain.agents import create_agent
    from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
    from langchain_core.messages import AIMessage, ToolMessage
    from langchain_core.tools import tool

    from ctxguard_langchain import ContextGuardMiddleware

    class Model(GenericFakeChatModel):
        def bind_tools(self, *_, **__):
            return self

    image = {"type": "image", "base64": base64.b64encode(picture()).decode(), "mime_type": "image/png"}

    def tool_of(text, count):
        @tool
        def look() -> list:
            """Look."""
            return [{"type": "text", "text": text}, *[image] * count]

        return look

    for text in ("short", LONG * 900):
        for count in (1, 12):
            call = {"name": "look", "args": {}, "id": "1"}
            model = Model(messages=iter([AIMessage("", tool_calls=[call]), AIMessage("Done.")]))
            guard = ContextGuardMiddleware(Stabilizer(32_000), max_result_tokens=300)
            told = create_agent(model, [tool_of(text, count)], middleware=[guard]).invoke(
                {"messages": [("user", "Go.")]}
            )["messages"]
            assert told[-1].content == "Done."
            (result,) = [message for message in told if isinstance(message, ToolMessage)]
            assert [block["type"] for block in result.content] == ["text"] + ["image"] * count
            assert len(result.content[0]["text"]) < 2_000
