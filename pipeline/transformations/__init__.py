"""From tables to tables: pure functions of DataFrames, opening and closing with a `select`. They know no paths and no
session."""
