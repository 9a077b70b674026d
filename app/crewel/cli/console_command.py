"""`crewel console`: a link that signs a browser in to the operator's page."""

import typer

from crewel.cli import bayeux_client
from crewel.errors import CrewelError
from crewel.outgoing_proxy import without_password


def page_link(url: str, token: str) -> str:
    """A link that works once, to the operator's page of the server with this Bayeux address and this admin token."""
    from crewel.security.sign_in import code

    return f"{bayeux_client.site(url)}/admin/#code={code(token)}"


def console(
    token: bayeux_client.Token = None,
    token_file: bayeux_client.TokenFile = None,
    url: bayeux_client.Url = bayeux_client.DEFAULT_URL,
) -> None:
    """Print a link to the operator's page that signs in once, within 15 minutes. The command needs the admin token."""
    bayeux_client.site(url)  # of what is no address, no token is looked for
    given = bayeux_client.credential(token, token_file)
    # It asks nothing, so no proxy sees it.
    found = (given() if callable(given) else given) or bayeux_client.local_token(url, "")
    if found is None:
        raise CrewelError(
            f"the admin token of {without_password(url)} is not found: {bayeux_client.how_to_get_token()}, or sign in with a"
            f" token on the page{bayeux_client.elsewhere(url)}"
        )
    if found.count(".") == 2:
        raise typer.BadParameter("--token takes the admin token here; sign in with a JSON Web Token on the page")
    print(page_link(url, found))
