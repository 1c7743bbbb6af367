"""LangChain: `trim_messages`, `SummarizationMiddleware` with a fixed summarizer, `ContextEditingMiddleware`."""

from __future__ import annotations

from typing import Any, cast

from langchain_core.language_models import SimpleChatModel
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, SystemMessage, ToolMessage, trim_messages

from ctxguard.harness.contestants import Course, Message

from .translated import Spelling, TranslatedContestant, calls_of, edited, user_message

KEPT_RESULTS = 3


class OfLangChain(TranslatedContestant):
    """The messages in LangChain's classes; the id of each is its position in the session."""

    def __init__(self, course: Course) -> None:
        super().__init__(course)
        self.spelling = Spelling(course.messages)
        self.messages = [_message(number, message) for number, message in enumerate(course.messages)]

    def original(self, message: BaseMessage) -> Message:
        """Return the message of the session by its number."""
        if message.id is None or not message.id.isdigit():
            return user_message(message.text)
        return edited(self.course.messages[int(message.id)], message.text)


def _message(number: int, message: Message) -> BaseMessage:
    role, text, name = message["role"], str(message["content"]), str(number)
    if role == "tool":
        return ToolMessage(text, tool_call_id=str(message["tool_call_id"]), id=name)
    if role == "assistant":
        calls = [{"name": c.name, "args": c.arguments, "id": c.id} for c in calls_of(message)]
        return AIMessage(text, tool_calls=calls, id=name)
    return HumanMessage(text, id=name) if role == "user" else SystemMessage(text, id=name)


class Trimmed(OfLangChain):
    """`trim_messages` as documented; a tail may also start with the model's message, or tool loops lose everything."""

    def send(self, end: int) -> object:
        """Return the trimmed messages."""
        return trim_messages(
            self.messages[:end],
            max_tokens=self.course.available,
            token_counter=self.tokens,
            strategy="last",
            include_system=True,
            start_on=("human", "ai"),
        )


class Cleared(OfLangChain):
    """`ClearToolUsesEdit`: all but the latest tool results are replaced by a placeholder."""

    def send(self, end: int) -> object:
        """Return the edited messages."""
        from langchain.agents.middleware import ClearToolUsesEdit

        messages: list[Any] = list(self.messages[:end])
        ClearToolUsesEdit(trigger=self.course.available, keep=KEPT_RESULTS).apply(messages, count_tokens=self.tokens)
        return messages


class Edited(OfLangChain):
    """`ContextEditingMiddleware()` as it is: all but three results are cleared above 100,000 tokens, by its estimate."""

    def __init__(self, course: Course) -> None:
        from langchain.agents.middleware import ContextEditingMiddleware

        super().__init__(course)
        self._middleware: Any = ContextEditingMiddleware()

    def send(self, end: int) -> object:
        """Return the edited messages."""
        from langchain.agents.middleware.types import ModelRequest, ModelResponse

        given: list[Any] = []

        def model(request: Any) -> Any:
            given[:] = request.messages
            return ModelResponse(result=[AIMessage("")])

        request: Any = ModelRequest(model=cast("Any", None), messages=list(self.messages[:end]))
        self._middleware.wrap_model_call(request, model)
        return given


class Summarized(OfLangChain):
    """`SummarizationMiddleware`, whose state is kept from call to call; the system prompt is not part of it."""

    def __init__(self, course: Course) -> None:
        from langchain.agents.middleware import SummarizationMiddleware

        super().__init__(course)
        self._state: list[Any] = []
        self._done = 0
        available = max(2, course.available_beside_system)
        self._middleware: Any = SummarizationMiddleware(
            FixedSummarizer(written=course.summarize),
            trigger=("tokens", available),
            keep=("tokens", max(1, available // 2)),
            token_counter=cast("Any", self.tokens),
            trim_tokens_to_summarize=None,
        )

    def send(self, end: int) -> object:
        """Return the system prompts and the state."""
        self._state += [m for m in self.messages[self._done : end] if m.type != "system"]
        self._done = end
        update = self._middleware.before_model({"messages": self._state}, None)
        if update is not None:
            self._state = list(update["messages"][1:])
        return [*(m for m in self.messages[:end] if m.type == "system"), *self._state]


class FixedSummarizer(SimpleChatModel):
    """Answer with the fixed summary of what it is asked to summarize."""

    written: Any

    @property
    def _llm_type(self) -> str:
        return "fixed"

    def _call(self, messages: list[BaseMessage], *given: Any, **settings: Any) -> str:
        del given, settings
        return str(self.written("\n".join(message.text for message in messages)))
