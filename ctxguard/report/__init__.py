"""The report on a stabilization: the data, as text, and as HTML."""

from ctxguard.report.data import CheckResult, Decision, DecisionRun, Finding, Report, Step, decision_runs

__all__ = ["CheckResult", "Decision", "DecisionRun", "Finding", "Report", "Step", "decision_runs"]
