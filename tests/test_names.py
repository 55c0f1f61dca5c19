import re
import string
import time

from hypothesis import given
from hypothesis import strategies as st

from durableq.keys import PARTS, queue_keys, registry_key
from durableq.names import is_name, new_id

ALLOWED = string.ascii_letters + string.digits + "_-.:@/+=~"


@given(st.text(max_size=130))
def test_a_name_is_1_to_128_of_the_allowed_characters(text: str) -> None:
    assert is_name(text) == (1 <= len(text) <= 128 and all(c in ALLOWED for c in text))


@given(st.text(alphabet=ALLOWED, min_size=1, max_size=128))
def test_every_such_text_is_a_name(text: str) -> None:
    assert is_name(text)


def test_new_ids_are_names_and_unique_and_sort_by_time() -> None:
    ids = [new_id() for _ in range(10_000)]

    assert len(set(ids)) == len(ids)
    assert all(is_name(id) and re.fullmatch("[0-9a-hjkmnp-tv-z]{26}", id) for id in ids)
    assert [id[:10] for id in ids] == sorted(id[:10] for id in ids)


def test_a_new_id_carries_the_time_of_a_ulid(monkeypatch: object) -> None:
    digits = "0123456789abcdefghjkmnpqrstvwxyz"
    made = 0
    for character in new_id()[:10]:
        made = made * 32 + digits.index(character)

    assert abs(made - time.time() * 1000) < 60_000


@given(*[st.text(alphabet=ALLOWED, min_size=1, max_size=20)] * 4)
def test_different_queues_have_different_keys(p: str, n: str, q: str, m: str) -> None:
    one, other = set(queue_keys(p, n)), set(queue_keys(q, m))

    assert (one == other) == ((p, n) == (q, m))
    assert (p, n) == (q, m) or not one & other
    assert registry_key(p) not in one | other


@given(st.text(alphabet=ALLOWED, min_size=1, max_size=20))
def test_all_keys_of_a_queue_share_a_cluster_slot(name: str) -> None:
    tags = {re.search(r"\{([^}]*)\}", key.decode())[1] for key in queue_keys("durableq", name)}

    assert tags == {name}
    assert len(queue_keys("durableq", name)) == len(PARTS)
