"""The report on a stabilization: as data, as text, and as HTML."""

from ctxguard.report.data import CheckResult, Finding, ReportData
from ctxguard.report.decisions import Decision, Step
from ctxguard.report.report import Report
from ctxguard.report.spans import MaskingSpanExporter

__all__ = ["CheckResult", "Decision", "Finding", "MaskingSpanExporter", "Report", "ReportData", "Step"]
