"""A node that shares its store takes over no answer of a server that has its store to itself."""

from crewel.broker.cluster import Cluster
from crewel.nodes.several_nodes import Nodes


def test_nodes_answer_each_question_themselves() -> None:
    asked = {name for name in vars(Cluster) if not name.startswith("_")}
    assert asked - vars(Nodes).keys() == set()
