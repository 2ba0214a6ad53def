"""Tokens that lie: none is believed, each is refused at once."""

from __future__ import annotations

import hmac
import json
import time
from base64 import urlsafe_b64encode
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pytest
from joserfc import jwt
from joserfc.jwk import ECKey, RSAKey

from antiphon.edge.id_token import Expected, TokenRefused, read_id_token

NOW = datetime(2026, 1, 1, tzinfo=UTC)
AT = int(NOW.timestamp())
OURS = RSAKey.generate_key(2048, {"kid": "one"})
OTHER = RSAKey.generate_key(2048, {"kid": "one"})
CURVE = ECKey.generate_key("P-256", {"kid": "curve"})
KEYS = {"keys": [OURS.as_dict(private=False), CURVE.as_dict(private=False)]}
EXPECTED = Expected("https://id.example", "antiphon", "the nonce")
CLAIMS = {"iss": EXPECTED.issuer, "aud": "antiphon", "sub": "42", "exp": AT + 60, "iat": AT, "nonce": "the nonce"}


def part(value: object) -> str:
    text = value if isinstance(value, str) else json.dumps(value)
    return urlsafe_b64encode(text.encode()).rstrip(b"=").decode()


def signed(claims: dict[str, object] | None = None, key: RSAKey | ECKey = OURS, **header: object) -> str:
    header = {"alg": "RS256", "kid": "one", **header}
    return jwt.encode({name: value for name, value in header.items() if value is not None}, claims or CLAIMS, key)


def saying(**changes: object) -> str:
    return signed({name: value for name, value in {**CLAIMS, **changes}.items() if value is not ...})


def by_secret(secret: bytes) -> str:
    """HS256 with something public as the secret."""
    body = f"{part({'alg': 'HS256', 'kid': 'one'})}.{part(CLAIMS)}"
    return f"{body}.{urlsafe_b64encode(hmac.digest(secret, body.encode(), 'sha256')).rstrip(b'=').decode()}"


def embedded(name: str, value: object) -> str:
    """A header that brings a key, signed by that key."""
    header = part({"alg": "RS256", "kid": "one", name: value})
    signature = signed(key=OTHER).rpartition(".")[2]
    return f"{header}.{part(CLAIMS)}.{signature}"


good = signed()
HEAD, BODY, SIGNATURE = good.split(".")
CORPUS: dict[str, Callable[[], str]] = {
    "no algorithm": lambda: f"{part({'alg': 'none', 'kid': 'one'})}.{BODY}.",
    "no algorithm, in capitals": lambda: f"{part({'alg': 'NONE'})}.{BODY}.",
    "no algorithm, but a signature": lambda: f"{part({'alg': 'none'})}.{BODY}.{SIGNATURE}",
    "algorithm missing": lambda: f"{part({'kid': 'one'})}.{BODY}.{SIGNATURE}",
    "algorithm in another case": lambda: f"{part({'alg': 'rs256', 'kid': 'one'})}.{BODY}.{SIGNATURE}",
    "algorithm is a list": lambda: f"{part({'alg': ['RS256'], 'kid': 'one'})}.{BODY}.{SIGNATURE}",
    "the public key as a secret": lambda: by_secret(OURS.as_pem(private=False)),
    "the public key's DER as a secret": lambda: by_secret(OURS.as_der(private=False)),
    "the modulus as a secret": lambda: by_secret(str(OURS.as_dict(private=False)["n"]).encode()),
    "an embedded key": lambda: embedded("jwk", OTHER.as_dict(private=False)),
    "an address of keys": lambda: embedded("jku", "http://127.0.0.1:9/keys"),
    "a certificate": lambda: embedded("x5c", ["MIIB"]),
    "an address of certificates": lambda: embedded("x5u", "http://127.0.0.1:9/cert"),
    "a critical extension nobody knows": lambda: f"{part({'alg': 'RS256', 'kid': 'one', 'crit': ['exp2'], 'exp2': 1})}.{BODY}.{SIGNATURE}",
    "somebody else's key under the same id": lambda: signed(key=OTHER),
    "an unknown key": lambda: signed(kid="two"),
    "no key's name, where there are two": lambda: signed(kid=None),
    "a key of another kind": lambda: signed(kid="curve"),
    "a key's name with a path": lambda: signed(kid="../one"),
    "another body": lambda: f"{HEAD}.{part({**CLAIMS, 'sub': 'root'})}.{SIGNATURE}",
    "another header": lambda: f"{part({'alg': 'PS256', 'kid': 'one'})}.{BODY}.{SIGNATURE}",
    "no signature": lambda: f"{HEAD}.{BODY}.",
    "a cut signature": lambda: good[:-8],
    "two parts": lambda: f"{HEAD}.{BODY}",
    "four parts": lambda: f"{good}.{SIGNATURE}",
    "five parts": lambda: f"{HEAD}.{BODY}.{SIGNATURE}.{SIGNATURE}.{SIGNATURE}",
    "empty": lambda: "",
    "dots": lambda: "...",
    "not base64": lambda: f"{HEAD}.****.{SIGNATURE}",
    "not JSON": lambda: f"{HEAD}.{part('hello')}.{SIGNATURE}",
    "not ASCII": lambda: good.replace("e", "ё", 1),
    "a huge header": lambda: f"{'e' * 20_000_000}.{BODY}.{SIGNATURE}",
    "a huge body": lambda: saying(pad="x" * 20_000),
    "deep JSON": lambda: f"{part('[' * 3000)}.{BODY}.{SIGNATURE}",
    "another issuer": lambda: saying(iss="https://evil.example"),
    "the issuer with a slash": lambda: saying(iss="https://id.example/"),
    "no issuer": lambda: saying(iss=...),
    "another client": lambda: saying(aud="other"),
    "no client": lambda: saying(aud=...),
    "several clients, and nobody it is for": lambda: saying(aud=["antiphon", "other"]),
    "for another client": lambda: saying(azp="other"),
    "past": lambda: saying(exp=AT - 3600),
    "without an end": lambda: saying(exp=...),
    "its end is text": lambda: saying(exp="tomorrow"),
    "not yet": lambda: saying(nbf=AT + 3600),
    "from the future": lambda: saying(iat=AT + 3600),
    "another nonce": lambda: saying(nonce="other"),
    "no nonce": lambda: saying(nonce=...),
    "no subject": lambda: saying(sub=...),
    "an empty subject": lambda: saying(sub=""),
    "a subject that is a number": lambda: saying(sub=42),
    "a long subject": lambda: saying(sub="x" * 256),
}


def test_a_good_token_is_believed() -> None:
    assert read_id_token(good, KEYS, EXPECTED, now=NOW).subject == "42"
    curve = jwt.encode({"alg": "ES256", "kid": "curve"}, CLAIMS, CURVE)
    assert read_id_token(curve, KEYS, EXPECTED, now=NOW + timedelta(seconds=90)).subject == "42", "clocks may differ a little"
    several = saying(aud=["antiphon", "other"], azp="antiphon")
    assert read_id_token(several, KEYS, EXPECTED, now=NOW).subject == "42"


@pytest.mark.parametrize("name", sorted(CORPUS))
def test_a_token_that_lies_is_refused(name: str) -> None:
    token = CORPUS[name]()
    began = time.process_time()
    with pytest.raises(TokenRefused):
        read_id_token(token, KEYS, EXPECTED, now=NOW)
    assert time.process_time() - began < 0.25


@pytest.mark.parametrize("keys", [{}, {"keys": []}, {"keys": "none"}, {"keys": [{"kty": "oct", "k": "AAAA"}]}, {"keys": [1]}])
def test_a_key_set_that_is_none(keys: dict[str, object]) -> None:
    with pytest.raises(TokenRefused):
        read_id_token(good, keys, EXPECTED, now=NOW)
