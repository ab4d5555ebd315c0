"""Tables, plots and pages from finished runs; needs no torch."""

from lidstone.lab.report.report import Report
from lidstone.lab.report.runs import Run, load_runs
from lidstone.lab.report.tables import Row, Table

__all__ = ["Report", "Row", "Run", "Table", "load_runs"]
