"""The report on a stabilization: the data, as text, and as HTML."""

from ctxguard.report.data import CheckResult, Decision, Finding, ReportData, Step
from ctxguard.report.report import Report

__all__ = ["CheckResult", "Decision", "Finding", "Report", "ReportData", "Step"]
