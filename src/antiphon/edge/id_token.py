"""What an identity provider's token says, believed only after all of OpenID Connect Core 3.1.3.7 was checked.

Signatures are joserfc's, claims Authlib's. The algorithms are a fixed list without any that shares a secret, the key is found among the
provider's own by its id, and nothing in a token's header chooses a key (RFC 8725).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import cast

MOST_TOKEN_CHARACTERS = 16_384
ALGORITHMS = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA", "Ed25519")

_CLOCKS_DIFFER_S = 60
_MOST_SUBJECT = 255


class TokenRefused(Exception):
    """Why a token is not believed; for the log, never for its sender."""


class KeyUnknown(TokenRefused):
    """The token names a key that is not among those given: the provider may have changed them."""


@dataclass(frozen=True, slots=True)
class Expected:
    issuer: str
    client_id: str
    nonce: str


@dataclass(frozen=True, slots=True)
class Claims:
    """``email`` is empty unless the provider says that it is verified."""

    subject: str
    name: str
    email: str


def read_id_token(text: str, keys: Mapping[str, object], expected: Expected, *, now: datetime) -> Claims:
    """The claims of a token that is ``expected``. ``keys`` is the provider's key set (RFC 7517). Raises ``TokenRefused``."""
    from authlib.oidc.core import CodeIDToken
    from joserfc import jwt
    from joserfc.errors import InvalidKeyIdError, JoseError
    from joserfc.jwk import KeySet, KeySetSerialization

    if len(text) > MOST_TOKEN_CHARACTERS:
        raise TokenRefused("it is too long")
    try:
        token = jwt.decode(text, KeySet.import_key_set(cast("KeySetSerialization", dict(keys))), algorithms=list(ALGORITHMS))
        exact = {"iss": {"essential": True, "value": expected.issuer}, "aud": {"essential": True, "value": expected.client_id}}
        params = {"nonce": expected.nonce, "client_id": expected.client_id}
        claims = CodeIDToken(token.claims, token.header, options=exact, params=params)
        claims.validate(now=int(now.timestamp()), leeway=_CLOCKS_DIFFER_S)  # pyright: ignore[reportUnknownMemberType]
    except InvalidKeyIdError as error:
        raise KeyUnknown(str(error)) from error
    except JoseError as error:
        raise TokenRefused(str(error)) from error
    except Exception as error:  # what a library makes of hostile bytes is not ours to list
        raise TokenRefused(type(error).__name__) from error
    return claims_of(cast("Mapping[str, object]", token.claims))


def claims_of(said: Mapping[str, object]) -> Claims:
    """Who this is. Raises ``TokenRefused`` for a subject that OpenID Connect does not allow."""
    subject = said.get("sub")
    if not isinstance(subject, str) or not subject or len(subject) > _MOST_SUBJECT or not subject.isascii():
        raise TokenRefused("its subject is none")
    name = next((_text(said, claim) for claim in ("name", "preferred_username") if _text(said, claim)), "")
    return Claims(subject, name, _text(said, "email") if said.get("email_verified") is True else "")


def _text(said: Mapping[str, object], claim: str) -> str:
    value = said.get(claim)
    return "".join(letter for letter in value if letter.isprintable()).strip()[:200] if isinstance(value, str) else ""
