"""Pure functions of DataFrames that compute tables from tables, and begin and end with a `select`. They know no paths and no
session."""
