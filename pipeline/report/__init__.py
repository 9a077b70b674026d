"""The page that a report is: HTML that needs nothing else, with its plots in it. Pure: rows go in and text comes out."""
