"""The views and operations of operators, with access to the whole broker.

A module `…_resource` has the commands and REST resources of one subject; `commands` and `rest` combine and run them. A new
command or route is one row: parsing, errors, OpenAPI and documentation follow from it. `other_nodes` forwards requests to the
node that has the session.
"""
