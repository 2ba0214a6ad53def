"""The pace of sign-ins."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from antiphon.edge.sign_in_pace import Allowance, SignInPace, Try, TryLater

BOTH, NAME, ADDRESS = Allowance(3, 8), Allowance(6, 1), Allowance(10, 1)


def pace() -> SignInPace:
    return SignInPace(name_from_address=BOTH, name=NAME, address=ADDRESS)


def test_a_burst_then_one_at_a_time() -> None:
    tries = pace()
    assert [tries.ask("ada", "192.0.2.1", now=0) for _ in range(3)] == [Try()] * 3
    assert tries.ask("ada", "192.0.2.1", now=0) == TryLater(8)
    assert tries.ask("ada", "192.0.2.1", now=6) == TryLater(2)
    assert tries.ask("ada", "192.0.2.1", now=8) == Try()
    assert isinstance(tries.ask("ada", "192.0.2.1", now=8), TryLater)


def test_somebody_elsewhere_cannot_keep_a_person_out_alone() -> None:
    tries = pace()
    for _ in range(9):
        tries.ask("ada", "198.51.100.7", now=0)
    assert tries.ask("ada", "192.0.2.1", now=0) == Try()


def test_many_addresses_share_a_names_allowance() -> None:
    tries = pace()
    decisions = [tries.ask("ada", f"192.0.2.{number}", now=0) for number in range(10)]
    assert decisions.count(Try()) == 6


def test_many_names_share_an_addresss_allowance_and_a_network_is_one_address() -> None:
    for address in ("192.0.2.1", "2001:db8::{}"):
        tries = pace()
        decisions = [tries.ask(f"name {number}", address.format(number), now=0) for number in range(20)]
        assert decisions.count(Try()) == 10


@given(
    st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from(["192.0.2.1", "192.0.2.2", "x"]), st.floats(0, 30)), max_size=60),
)
def test_never_more_than_the_allowances(asked: list[tuple[str, str, float]]) -> None:
    tries, now = pace(), 0.0
    granted: dict[tuple[str, str], int] = {}
    for name, address, later in asked:
        now += later
        if tries.ask(name, address, now=now) == Try():
            granted[name, address] = granted.get((name, address), 0) + 1
        tries.check()
    for (name, _), count in granted.items():
        assert count <= BOTH.burst + now / BOTH.seconds
        assert sum(number for (other, _), number in granted.items() if other == name) <= NAME.burst + now / NAME.seconds
