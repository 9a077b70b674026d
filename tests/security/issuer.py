"""An issuer of tokens for tests: real keys, and tokens signed with them."""

import json
import time
from functools import cache
from pathlib import Path
from typing import Any

import jwt
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from jwt.algorithms import ECAlgorithm, RSAAlgorithm

SECRET = "a shared secret that has more than the sixty-four bytes that HS512 asks for"


@cache
def rsa_key() -> rsa.RSAPrivateKey:
    """Return a key; making one takes a while, so that tests share it."""
    return rsa.generate_private_key(65537, 2048)


@cache
def other_rsa_key() -> rsa.RSAPrivateKey:
    """Return the key of somebody else."""
    return rsa.generate_private_key(65537, 2048)


@cache
def ec_key() -> ec.EllipticCurvePrivateKey:
    """Return a key for ES256."""
    return ec.generate_private_key(ec.SECP256R1())


def public_pem(key: Any) -> bytes:
    """Return the public half as a PEM file holds it."""
    half: bytes = key.public_key().public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    return half


def key_set(**keys: Any) -> str:
    """Return a JWK set that holds the public halves by key id."""
    made = []
    for key_id, key in keys.items():
        algorithm = RSAAlgorithm if isinstance(key, rsa.RSAPrivateKey) else ECAlgorithm
        made.append(algorithm.to_jwk(key.public_key(), as_dict=True) | {"kid": key_id, "use": "sig"})
    return json.dumps({"keys": made})


def claims(**more: Any) -> dict[str, Any]:
    """Return claims that hold for joe, for an hour, with these changes; None takes one out."""
    usual = {"sub": "joe", "exp": int(time.time()) + 3600, "subscribe": ["/chat/**"], "publish": ["/chat/demo"]}
    return {name: value for name, value in (usual | more).items() if value is not None}


def signed(key: Any = SECRET, algorithm: str = "HS256", key_id: str | None = None, **more: Any) -> str:
    """Return a token."""
    return jwt.encode(claims(**more), key, algorithm, {"kid": key_id} if key_id else None)


def secret_file(directory: Path) -> Path:
    """Return a file that holds the shared secret."""
    file = directory / "secret"
    file.write_text(SECRET + "\n")
    return file
