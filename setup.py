"""What pyproject.toml cannot say of the build: a wheel without the browser client is refused, for its chat would not work."""

from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py

CLIENT = Path("static/vendor/cometd/cometd.js")


class BuildWithPages(build_py):
    """The usual step, which packs the pages too. An editable install takes them from the checkout, and needs none."""

    def run(self) -> None:
        """Copy modules and pages. Raises `SystemExit` if the browser client is missing."""
        if not self.editable_mode and not CLIENT.exists():
            raise SystemExit(
                f"{CLIENT} is missing, so the pages of this wheel would not work: run `make .cache/stamps/pages`, which needs"
                " Node.js with npm, and build again"
            )
        super().run()


setup(cmdclass={"build_py": BuildWithPages})
