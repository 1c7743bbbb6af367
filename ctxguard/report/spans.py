"""Mask the spans that an application exports with OpenTelemetry.

A framework's instrumentation records a model call as it is sent, and everything around it as the application has it:
the arguments and results of tools, the state of an agent, restored answers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import ReadableSpan
    from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult
else:  # the SDK is imported by applications that export spans, and takes any object with these methods
    SpanExporter = object


class MaskingSpanExporter(SpanExporter):
    """Masks names, attributes, events, links, and the status of spans, and passes copies on to another exporter.

    The spans themselves are not changed, so other exporters of the application see the original texts. If the function
    for masking fails, nothing is exported.

    Args:
        exporter: The exporter of OpenTelemetry's SDK that gets the masked spans.
        mask: Function that masks a text. None means `ctxguard.mask_pii`.
    """

    def __init__(self, exporter: SpanExporter, *, mask: Callable[[str], str] | None = None) -> None:
        from ctxguard.pii import mask_pii

        self._exporter = exporter
        self._mask: Callable[[str], str] = mask or mask_pii

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """Export masked copies of spans."""
        return self._exporter.export([self._masked(span) for span in spans])

    def shutdown(self) -> None:
        """Shut the other exporter down."""
        self._exporter.shutdown()

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        """Flush the other exporter, and return whether it was done in time."""
        return self._exporter.force_flush(timeout_millis)

    def _masked(self, span: ReadableSpan) -> ReadableSpan:
        from opentelemetry.sdk.trace import Event, ReadableSpan
        from opentelemetry.trace import Link, Status

        described = span.status.description
        return ReadableSpan(
            name=self._mask(span.name),
            context=span.context,
            parent=span.parent,
            resource=span.resource,
            attributes=self._attributes(span.attributes),
            events=[
                Event(self._mask(one.name), self._attributes(one.attributes), one.timestamp) for one in span.events
            ],
            links=[Link(one.context, self._attributes(one.attributes)) for one in span.links],
            kind=span.kind,
            status=Status(span.status.status_code, self._mask(described) if described else None),
            start_time=span.start_time,
            end_time=span.end_time,
            instrumentation_scope=span.instrumentation_scope,
        )

    def _attributes(self, attributes: Mapping[str, Any] | None) -> dict[str, Any]:
        return {name: self._value(value) for name, value in (attributes or {}).items()}

    def _value(self, value: Any) -> Any:  # noqa: ANN401 - a value of an attribute
        if isinstance(value, str):
            return self._mask(value)
        if isinstance(value, bytes):
            text = value.decode(errors="replace")
            masked = self._mask(text)
            return value if masked == text else masked.encode()
        if isinstance(value, Mapping):
            return self._attributes(value)
        return type(value)(map(self._value, value)) if isinstance(value, tuple | list) else value
