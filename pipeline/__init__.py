"""The data pipeline on Spark: it reads the streams that the server writes, and asks what happened. `crewel pipeline` runs it.

`source` reads entries of the store, `transformations` compute tables from tables, `jobs` bring Spark, paths and store together,
`report` makes the page. It uses the keys of `crewel.storage` and `crewel.errors`; the server does not need it.
"""
