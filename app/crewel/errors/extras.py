"""What installs an extra of Crewel, for errors about one that is missing."""


def install_extra(name: str) -> str:
    """The commands that install the extra `pipeline` or `otel`. Crewel is in no package index, where `crewel[pipeline]` would
    be looked for: an extra comes from where Crewel itself does."""
    from importlib.metadata import version  # slow to import, and most processes lack nothing

    wheel = f"crewel-{version('crewel')}-py3-none-any.whl"
    return f"pip install '.[{name}]' in a checkout, or pip install '{wheel}[{name}]' with the wheel"
