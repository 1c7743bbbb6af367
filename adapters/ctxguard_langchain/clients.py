"""Guard every request of a chat model in its HTTP client, regardless of who calls the model."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import cache, cached_property, partial
from typing import TYPE_CHECKING, Any, Final, TypeVar, Unpack, cast

from langchain_core.language_models import BaseChatModel
from langchain_core.runnables import Runnable

from ctxguard.errors import ConfigError

if TYPE_CHECKING:
    from ctxguard.stabilizer import Stabilizer
    from ctxguard.wire.guard import Guard, GuardSettings

Model = TypeVar("Model", bound="Runnable[Any, Any]")
_MOST_LAYERS: Final = 32  # maximum number of wrappers around a model; more indicate a cycle


def guarded(model: Model, guard: Stabilizer | Guard, **settings: Unpack[GuardSettings]) -> Model:
    """Return a copy of a chat model that guards its requests and shares the connections of the original.

    Every call is guarded, whether it comes from an agent, a summarizer, a subagent, or middleware.

    Args:
        model: A chat model from `langchain-openai` or `langchain-anthropic`, or from another package that uses the
            clients of OpenAI or Anthropic. It may be wrapped: with bound tools, retries, fallbacks, or a parser after
            it.
        guard: A stabilizer, or a guard to share between models.
        settings: The settings of `ctxguard.wire.Guard`, if `guard` is a stabilizer.

    Raises:
        ConfigError: If the model has no client that can be guarded, or a setting is invalid.
    """
    from ctxguard.wire.transport import as_guard, guarded

    with_guard = partial(guarded, guard=as_guard(guard, settings))
    return with_models(model, partial(_guarded_model, change=with_guard))


def with_models(part: Model, change: Callable[[BaseChatModel], object]) -> Model:
    """Return a copy of a chat model, or of what contains one, with changed models.

    Raises:
        ConfigError: If `part` contains no chat model.
    """
    changed = _changed(part, change, _MOST_LAYERS)
    if changed is None:
        raise ConfigError(f"expected a chat model, got {type(part).__name__}", setting="model")
    return cast("Model", changed)


def _guarded_model(model: BaseChatModel, change: Callable[[Any], Any]) -> object:
    """Return a copy of a chat model with changed clients; raise `ConfigError` if the model has no clients."""
    changes = _clients(model, change)
    if not changes:
        raise ConfigError(
            f"{type(model).__name__} has no client of OpenAI's or Anthropic's SDK to guard; put ContextGuard before "
            "it, or ContextGuardMiddleware into its agent",
            setting="model",
        )
    return copied(model, changes)


def _clients(model: BaseChatModel, change: Callable[[Any], Any]) -> dict[str, Any]:
    """Return the changed clients of a model, or parts of clients (`client.chat.completions`), by attribute name."""
    once, found = cache(change), dict[str, Any]()
    for name in dict.fromkeys([*vars(model), *_lazy_clients(model)]):
        value = getattr(model, name)
        if _is_client(value):
            found[name] = once(value)
        elif _is_client(owner := getattr(value, "_client", None)):
            found[name] = type(value)(once(owner))
    return found


def _lazy_clients(model: BaseChatModel) -> Iterator[str]:
    """Yield the names of the attributes for clients that a model creates on first use."""
    for kind in type(model).__mro__:
        for name, value in vars(kind).items():
            if isinstance(value, cached_property) and name.endswith("_client"):
                yield name


def _is_client(value: object) -> bool:
    return hasattr(value, "with_options") and hasattr(getattr(value, "_client", None), "_transport")


def _changed(part: object, change: Callable[[BaseChatModel], object], layers: int) -> object:
    """Return a copy of a model, or of what contains one, with changed models; None if `part` contains none."""
    if layers == 0:
        return None
    if isinstance(part, BaseChatModel):
        return change(part)
    if isinstance(part, (list, tuple)):
        inside = _changed_members(dict(enumerate(part)), change, layers)
        return type(part)(inside.get(number, member) for number, member in enumerate(part)) if inside else None
    if isinstance(part, Mapping):
        inside = _changed_members(part, change, layers)
        return {**part, **inside} if inside else None
    inside = _changed_members(vars(part), change, layers) if isinstance(part, Runnable) else {}
    return copied(part, inside) if inside else None


def _changed_members(members: Mapping[Any, object], change: Callable[[Any], Any], layers: int) -> dict[Any, object]:
    changed = {key: _changed(member, change, layers - 1) for key, member in members.items()}
    return {key: now for key, now in changed.items() if now is not None}


def copied(model: Any, changes: Mapping[str, Any]) -> Any:  # noqa: ANN401 - what was given
    """Return a changed copy of a pydantic object, whose cached properties and methods can be changed, too."""
    made = model.model_copy()
    vars(made).update(changes)
    return made
