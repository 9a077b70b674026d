"""The data pipeline on Spark: it reads the streams that the server writes and analyses them. `crewel pipeline` runs it.

`source` reads entries of the store, `transformations` compute tables from tables, `jobs` combine Spark, paths and store, and
`report` writes the page. It uses the keys of `crewel.storage` and `crewel.errors`; the server does not need it.
"""
