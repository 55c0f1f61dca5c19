from hypothesis import given
from hypothesis import strategies as st

from durableq.policy import resend_pause


@given(st.integers(1, 10**6), st.floats(0, 1, exclude_max=True))
def test_pauses_grow_up_to_half_a_second_and_are_spread(tries: int, chance: float) -> None:
    pause = resend_pause(tries, chance)

    assert 0.005 <= pause <= 0.5
    assert pause <= resend_pause(tries, 0)
    assert resend_pause(tries, 0) <= resend_pause(tries + 1, 0)
    assert resend_pause(100, 0) == 0.5
