"""The report on a stabilization: the data, as text, and as HTML."""

from ctxguard.report.data import CheckResult, Decision, DecisionRun, Finding, ReportData, Step, decision_runs
from ctxguard.report.report import Report

__all__ = ["CheckResult", "Decision", "DecisionRun", "Finding", "Report", "ReportData", "Step", "decision_runs"]
