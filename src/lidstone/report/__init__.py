"""Tables, plots and pages from finished runs; needs no torch."""

from lidstone.report.report import Report
from lidstone.report.runs import Run, load_runs
from lidstone.report.table import Row, Table

__all__ = ["Report", "Row", "Run", "Table", "load_runs"]
