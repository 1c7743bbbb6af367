"""deepagents: the middleware by which `create_deep_agent` summarizes, and moves large results and the history to files."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from deepagents.backends import StoreBackend
from deepagents.middleware.filesystem import FilesystemMiddleware
from deepagents.middleware.summarization import create_summarization_middleware
from langchain.agents.middleware.types import ExtendedModelResponse, ModelRequest, ModelResponse
from langchain_core.exceptions import ContextOverflowError
from langchain_core.messages import AIMessage, BaseMessage, SystemMessage, ToolMessage
from langgraph.store.memory import InMemoryStore

from ctxguard.harness.contestants import Course, GaveUpError, Message

from .of_langchain import FixedSummarizer, OfLangChain
from .translated import Call


class Deep(OfLangChain):
    """Run both middlewares with the settings that the library derives from a model with this context window.

    Their state lives on. The files are kept in memory; nobody reads them back, since the sessions are recorded.
    """

    def __init__(self, course: Course) -> None:
        super().__init__(course)
        self._state: dict[str, Any] = {"messages": []}
        self._done = 0
        self._model = FixedSummarizer(written=course.summarize, profile={"max_input_tokens": course.available})
        backend = StoreBackend(namespace=lambda _: ("files",), store=InMemoryStore())
        self._files = FilesystemMiddleware(backend=backend)
        self._summaries = create_summarization_middleware(self._model, backend, token_counter=self.tokens)

    def send(self, end: int) -> object:
        """Return the system prompts and what the model would be given."""
        self._state["messages"] += [self._arrived(m) for m in self.messages[self._done : end] if m.type != "system"]
        self._done = end
        system = [m for m in self.messages[:end] if m.type == "system"]
        given: list[BaseMessage] = []

        def model(request: Any) -> ModelResponse:
            given[:] = request.messages
            return ModelResponse(result=[AIMessage("")])

        try:
            response = self._summaries.wrap_model_call(self._request(system), model)
        except ContextOverflowError as error:
            raise GaveUpError from error
        if isinstance(response, ExtendedModelResponse) and response.command is not None:
            self._update(dict(response.command.update))  # type: ignore[arg-type]
        return [*system, *given]

    def _request(self, system: list[BaseMessage]) -> Any:
        prompt = SystemMessage("\n\n".join(m.text for m in system)) if system else None
        return ModelRequest(
            model=self._model,
            messages=list(self._state["messages"]),
            system_message=prompt,
            state=self._state,  # type: ignore[arg-type]
            runtime=None,
        )

    def _update(self, update: dict[str, Any]) -> None:
        replaced = {message.id: message for message in update.pop("messages", [])}
        self._state["messages"] = [replaced.get(message.id, message) for message in self._state["messages"]]
        self._state |= update

    def _arrived(self, message: BaseMessage) -> BaseMessage:
        """Return a message as the agent's state gets it: a result that is too large goes to a file."""
        if not isinstance(message, ToolMessage):
            return message
        call = {"name": "tool", "args": {}, "id": message.tool_call_id}
        request: Any = SimpleNamespace(tool_call=call, tool=None, state=self._state, runtime=None)
        made = self._files.wrap_tool_call(request, lambda _: message)
        return made if isinstance(made, ToolMessage) else message

    def original(self, message: BaseMessage) -> Message:
        """Return the message of the session by its number, with the arguments that it has now."""
        found = super().original(message)
        if not isinstance(message, AIMessage) or message.tool_calls == self.messages[int(str(message.id))].tool_calls:
            return found
        calls = [Call(str(call["id"]), call["name"], call["args"]) for call in message.tool_calls]
        return self.spelling.message("assistant", message.text, calls)
