"""What a build fetches is named by what is in it: images by digest, and what installs the locks by version and hash."""

from __future__ import annotations

import re

import yaml

from tests.house.source import ROOT
from tools import install

PINNED = re.compile(r"[a-z0-9./-]+:[A-Za-z0-9.-]+@sha256:[0-9a-f]{64}")


def test_images_are_named_by_digest() -> None:
    services = yaml.safe_load((ROOT / "docker-compose.yml").read_text("utf-8"))["services"].values()
    dockerfile = (ROOT / "Dockerfile").read_text("utf-8")
    arguments = dict(re.findall(r"^ARG (\w+)=(\S+)$", dockerfile, re.MULTILINE))
    bases = [base.strip("${}") for base in re.findall(r"^FROM (\S+)", dockerfile, re.MULTILINE)]
    images = [*(arguments[base] for base in bases), *(each["image"] for each in services if "image" in each)]
    assert len(set(images)) == 4
    assert [image for image in images if not PINNED.fullmatch(image)] == []


def test_files_for_deploying_name_no_image_of_others_by_tag() -> None:
    files = [path for path in (ROOT / "deploy").rglob("*") if path.suffix in (".yml", ".yaml")]
    images = [
        image
        for path in files
        for image in re.findall(r"^\s*(?:- )?image: *(\S+)", path.read_text("utf-8"), re.MULTILINE)
    ]
    assert images
    others = [image for image in images if image.rpartition("/")[2].partition(":")[0] != "crewel"]
    assert [image for image in others if not PINNED.fullmatch(image)] == []


def test_what_resolves_and_installs_the_locks_is_locked() -> None:
    recipe = (ROOT / "Makefile").read_text("utf-8").partition("\nlock: ")[2].partition("\n\n")[0]
    assert "\t$(BIN)/python tools/install.py\n" in recipe
    assert "pip install" not in recipe
    assert install.PIP_UV[-2:] == ["--requirement", str(ROOT / "tools/lock/requirements.lock")]
    assert "--require-hashes" in install.PIP_UV
    lock = (ROOT / "tools/lock/requirements.lock").read_text("utf-8")
    assert re.search(r"^uv==[0-9.]+ \\\n    --hash=sha256:", lock, re.MULTILINE)
