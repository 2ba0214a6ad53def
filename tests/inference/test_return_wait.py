from __future__ import annotations

from antiphon.inference.return_wait import ReturnWait


def test_nothing_is_waited_for_when_nothing_ended() -> None:
    assert ReturnWait().expected(0) == 0


def test_who_comes_back_is_waited_for_again_and_again() -> None:
    wait = ReturnWait()
    for _ in range(1000):
        assert wait.expected(3) == 3
        wait.observe(2, 3)


def test_where_nobody_comes_back_it_is_tried_only_now_and_then_and_learned_again() -> None:
    wait = ReturnWait()
    waited = 0
    for _ in range(1000):
        expected = wait.expected(1)
        waited += expected
        wait.observe(0, expected)
    assert 20 < waited < 60
    tries = 0
    while wait.expected(1) == 0 or tries < 200:
        tries += 1
        wait.observe(1, 1)
    assert all(wait.expected(1) for _ in range(10))
