"""That uv installs from where pip is configured to, and what it cannot do is left to pip."""

from pathlib import Path

import pytest

from tools.install import Unsuited, settings, variables


def test_the_environment_comes_before_files_and_install_before_global() -> None:
    listed = (
        ":env:.timeout='3'\n"
        "freeze.timeout='4'\n"
        "global.index-url='https://global/simple'\n"
        "install.timeout='2'\n"
        "install.index-url='https://install/simple'\n"
        "global.timeout='1'\n"
    )
    assert settings(listed) == {"index-url": "https://install/simple", "timeout": "3"}


def test_indexes_and_what_reaches_them_are_those_of_pip() -> None:
    configured = {
        "index-url": "https://mirror/simple",
        "extra-index-url": "\nhttps://one/simple\nhttps://two/simple",
        "trusted-host": "mirror one",
        "cert": "/etc/mirror.pem",
        "timeout": "60",
        "no-color": "1",
    }
    assert variables(configured) == {
        "UV_DEFAULT_INDEX": "https://mirror/simple",
        "UV_INDEX": "https://one/simple https://two/simple",
        "UV_INSECURE_HOST": "mirror one",
        "SSL_CERT_FILE": "/etc/mirror.pem",
        "UV_HTTP_TIMEOUT": "60",
    }


def test_a_directory_of_packages_that_is_not_there_is_left_out(tmp_path: Path) -> None:
    configured = {"find-links": f"{tmp_path} {tmp_path}/missing https://mirror/links"}
    assert variables(configured) == {"UV_FIND_LINKS": f"{tmp_path},https://mirror/links"}


@pytest.mark.parametrize("name", ["no-index", "only-binary", "constraint"])
def test_what_uv_is_not_given_is_left_to_pip(name: str) -> None:
    with pytest.raises(Unsuited, match=name):
        variables({name: "1", "index-url": "https://mirror/simple"})
