"""Errors for guards that are called with wrong arguments, or given to a framework in the wrong place.

What to write instead is in `ctxguard.settings.right_line`, by framework.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from typing import ClassVar, Final, NoReturn, TypeVar

from ctxguard.errors import ConfigError
from ctxguard.settings import nearest, right_line
from ctxguard.stabilizer import Stabilizer
from ctxguard.stages.fold import WINDOW_SETTINGS

F = TypeVar("F", bound=Callable[..., object])

_TAKES_STABILIZER: Final = ("stabilizer", "guard")
"""Names of the parameters that take a stabilizer; `guard` also takes a guard on the wire."""


class NotAFunction:
    """Base of guards that a framework may take for a function: a hook, a processor, or a step of a chain.

    Attributes:
        error_if_called: The beginning of the error, which says what the guard is, and the setting that the error names.
    """

    error_if_called: ClassVar[tuple[str, str]]

    def __call__(self, *given: object, **named: object) -> NoReturn:
        """Raise an error that says what to write instead.

        Raises:
            ConfigError: Always.
        """
        message, setting = self.error_if_called
        raise ConfigError(f"{message}; {right_line(*given, *named.values())}", setting=setting)


def takes_stabilizer(name: str) -> Callable[[F], F]:
    """Return a decorator that explains arguments which do not fit: those of the stabilizer, or too many of them.

    Args:
        name: What the user calls, such as `ContextGuard`.
    """

    def decorate(function: F) -> F:
        signature = inspect.signature(function)

        @functools.wraps(function)
        def call(*args: object, **named: object) -> object:
            try:
                signature.bind(*args, **named)
            except TypeError as error:
                raise _error_for(name, signature, named, str(error)) from None
            return function(*args, **named)

        return call  # type: ignore[return-value]  # the same function

    return decorate


def _error_for(name: str, signature: inspect.Signature, named: Mapping[str, object], error: str) -> ConfigError:
    """Return the error for a call whose arguments do not fit: what is wrong with it, and what to write.

    Args:
        name: What the user calls.
        signature: The signature of what the user calls.
        named: The arguments that are given by name.
        error: The message of the `TypeError` that Python raises for the call.
    """
    parameters = [each for each in signature.parameters if each != "self"]
    place = next(number for number, each in enumerate(parameters) if each in _TAKES_STABILIZER)
    taken, options = parameters[place], parameters[place + 1 :]
    opening = f"{name}({''.join(f'{each}, ' for each in parameters[:place])}"
    unknown = next((each for each in named if each not in parameters), None)
    if unknown is None and repr(taken) in error:
        return ConfigError(f"{name} needs a Stabilizer; write {opening}Stabilizer(budget=8_000))", setting=taken)
    if unknown is None:
        return ConfigError(
            f"{name} takes a Stabilizer, and all else by name ({', '.join(options)}); write {opening}stabilizer, "
            f"{options[0]}=…)",
            setting=options[0],
        )
    if unknown == "policy":
        line = f"{opening}Stabilizer.from_policy('chat', budget=…))"
        return ConfigError(f"policy is a setting of the Stabilizer; write {line}", setting=unknown)
    if unknown in {*inspect.signature(Stabilizer).parameters, *WINDOW_SETTINGS}:
        others = "" if unknown == "budget" else "budget=…, "
        line = f"{opening}Stabilizer({others}{unknown}=…))"
        return ConfigError(f"{unknown} is a setting of the Stabilizer; write {line}", setting=unknown)
    known = [taken, *options]
    message = f"{name} has no setting {unknown!r}{nearest(unknown, known)}; known are {', '.join(known)}"
    return ConfigError(message, setting=unknown)
