"""The page: one self-contained HTML file with tables, figures and an explorer."""
