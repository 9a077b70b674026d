"""The page of a report: self-contained HTML that includes its plots. Pure: rows are arguments, and text is the result."""
