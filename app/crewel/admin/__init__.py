"""What operators see and do, with the whole broker at hand.

A module `…_resource` has the commands and REST resources of one subject; `commands` and `rest` put them together and carry
them out. A new command or route is one row: parsing, errors, OpenAPI and documentation follow from it.
`other_nodes` carries requests to the node that has the session.
"""
