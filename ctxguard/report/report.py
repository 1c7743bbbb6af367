"""The report: its data, and the forms in which it is shown."""

from __future__ import annotations

from ctxguard.report.data import ReportData
from ctxguard.report.text import report_lines


class Report(ReportData):
    """What a stabilizer did to one history, as data (`to_dict`), as text (`str`) and as a page (`to_html`)."""

    def to_html(self, *, title: str = "", show_originals: bool = False) -> str:
        """Return one self-contained HTML page: the figures, the checks, and each message before and after.

        Args:
            title: of the page.
            show_originals: also show the original values; the page then contains personal data.

        Raises:
            ImportError: Jinja2 is not installed, which the extra `html` brings.
        """
        from ctxguard.report.page import calls_page

        return calls_page([self], title=title, show_originals=show_originals)

    def __str__(self) -> str:
        return "\n".join(report_lines(self))

    def __repr__(self) -> str:
        state = "ok" if self.ok else "failed: " + ", ".join(c.name for c in self.checks if not c.ok)
        return f"<Report {self.tokens_before} -> {self.tokens_after} of {self.budget} tokens, {state}>"

    def _repr_html_(self) -> str | None:
        from ctxguard.report.page import notebook_html

        return notebook_html(self)
