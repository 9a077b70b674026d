"""What pyproject.toml cannot say of the build: a source distribution, as it is published, must have the browser client."""

from pathlib import Path

from setuptools import setup
from setuptools.command.sdist import sdist

# Through the link in a checkout; in a source distribution, which has copies of what the links lead to, as it stands.
CLIENT = Path("app/crewel/static/vendor/cometd/cometd.js")


def require_client() -> None:
    """Raises `SystemExit` if the browser client is missing."""
    if not CLIENT.exists():
        raise SystemExit(
            "static/vendor/cometd/cometd.js is missing, so the pages of this package would not work: run"
            " `make pages`, which needs Node.js with npm, and build again"
        )


class SourceWithPages(sdist):
    """The usual step, which packs the pages too, so that a wheel can be built from it without Node.js."""

    def run(self) -> None:
        """Copy the sources."""
        require_client()
        super().run()


setup(cmdclass={"sdist": SourceWithPages})
